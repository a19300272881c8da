"""What a journal says so far: the objects of a case, and in which entry each was written."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from refork.plain import from_json
from refork.types import Json
from refork_methods.forensics.arm import Arm, Outcome
from refork_methods.forensics.design import BASE, ArmPlan, Design
from refork_methods.forensics.document import FieldChange
from refork_methods.forensics.evidence import EvidenceItem
from refork_methods.forensics.hypothesis import Hypothesis, Prediction
from refork_methods.forensics.incident import Incident
from refork_methods.forensics.intervention import Intervention
from refork_methods.forensics.standards import Answer
from refork_methods.journal import Entry

#: A file key of draws: the intervention's digest and the arm's name.
Key = tuple[str, str]
BASE_KEY: Key = (Intervention.none().id, BASE)


@dataclass(slots=True)
class State:
    """Everything that entries said, keyed by name or digest; numbers are those of the entries."""

    incident: Incident | None = None
    hypotheses: dict[str, Hypothesis] = field(default_factory=dict)
    designs: dict[str, Design] = field(default_factory=dict)
    changes: dict[str, dict[str, tuple[FieldChange, ...]]] = field(default_factory=dict)
    draws: dict[Key, dict[int, Outcome]] = field(default_factory=dict)
    seen_by: dict[Key, tuple[str, str]] = field(default_factory=dict)
    first_draw: dict[Key, int] = field(default_factory=dict)
    evidence: dict[str, EvidenceItem] = field(default_factory=dict)
    evidence_at: dict[str, int] = field(default_factory=dict)
    predicted_at: dict[tuple[str, str], int] = field(default_factory=dict)
    controls: dict[str, Arm] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)

    def take(self, entry: Entry) -> None:
        """Add what an entry says; entries of kinds unknown to this version are passed over."""
        reader = getattr(self, f"_{entry.kind}", None)
        if reader is not None:
            reader(entry.n, entry.body)

    def _incident(self, _: int, body: Json) -> None:
        self.incident = from_json(Incident, body)

    def _hypothesis(self, _: int, body: Json) -> None:
        self.hypotheses[body["name"]] = from_json(Hypothesis, body)

    def _prediction(self, n: int, body: Json) -> None:
        known = self.hypotheses[body["hypothesis"]]
        prediction = from_json(Prediction, body["prediction"])
        self.hypotheses[known.name] = replace(known, predictions=(*known.predictions, prediction))
        self.predicted_at.setdefault((known.name, prediction.id), n)

    def _design(self, _: int, body: Json) -> None:
        design = from_json(Design, body["design"])
        self.designs[design.id] = design
        self.changes[design.id] = {
            arm: tuple(from_json(FieldChange, change) for change in found)
            for arm, found in body["changes"].items()
        }

    def _draws(self, n: int, body: Json) -> None:
        key = (body["intervention"], body["arm"])
        self.first_draw.setdefault(key, n)
        self.seen_by[key] = (body["grader"], body["subject"])
        held = self.draws.setdefault(key, {})
        held |= {int(draw): from_json(Outcome, found) for draw, found in body["outcomes"].items()}

    def _evidence(self, n: int, body: Json) -> None:
        item = from_json(EvidenceItem, body)
        self.evidence[item.name] = item
        self.evidence_at[item.name] = n

    def _control(self, _: int, body: Json) -> None:
        self.controls[body["instrument"]] = from_json(Arm, body["arm"])

    def _answer(self, _: int, body: Json) -> None:
        answer = from_json(Answer, body)
        self.answers[answer.standard] = answer

    def arm(self, plan: ArmPlan) -> Arm:
        """The recorded draws of an arm, counted."""
        grader, subject = self.seen_by.get(plan.key, (None, None))
        held = self.draws.get(plan.key, {})
        outcomes = [held[draw] for draw in sorted(held)]
        return Arm.of(plan.name, outcomes, grader=grader, subject=subject, dose=plan.dose)

    def result_seen(self, design: Design) -> int | None:
        """The entry in which a result of a design was first on record; None where none is.

        Draws of the unedited base tell nothing of what an edit does, and do not count where one is tested.
        """
        tested = [arm for arm in design.arms if arm.key != BASE_KEY] or design.arms
        found = [self.first_draw[arm.key] for arm in tested if arm.key in self.first_draw]
        found += [self.evidence_at[item.name] for item in self.evidence.values() if item.design == design.id]
        return min(found, default=None)

    def late(self) -> set[tuple[str, str, str]]:
        """(hypothesis, prediction id, evidence name) of predictions made after a result of their design."""
        found: set[tuple[str, str, str]] = set()
        for item in self.evidence.values():
            seen = self.result_seen(self.designs[item.design])
            for hypothesis in self.hypotheses.values():
                for prediction in hypothesis.predictions:
                    at = self.predicted_at[hypothesis.name, prediction.id]
                    if prediction.design == item.design and seen is not None and at > seen:
                        found.add((hypothesis.name, prediction.id, item.name))
        return found
