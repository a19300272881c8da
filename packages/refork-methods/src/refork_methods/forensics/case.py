"""The case: everything that was asked, predicted and found about one incident, in an append-only file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self, final

from refork.errors import BadInput, DrawConflict, Mismatch
from refork.plain import to_json
from refork_methods.forensics import rules
from refork_methods.forensics.arm import Arm, Outcome
from refork_methods.forensics.design import BASE, ArmPlan, Design
from refork_methods.forensics.evidence import EvidenceItem
from refork_methods.forensics.hypothesis import Hypothesis, Prediction
from refork_methods.forensics.incident import Incident
from refork_methods.forensics.intervention import Intervention
from refork_methods.forensics.standards import CAUSES, COMPUTED, ENVIRONMENT, Answer, Standard, Status
from refork_methods.forensics.state import BASE_KEY, State
from refork_methods.forensics.table import Table, ach_table
from refork_methods.journal import Entry, Journal


def checklist(state: State, table: Table, base: Arm | None) -> tuple[Standard, ...]:
    """Benign causes and marks of the environment as answered, then what the case itself shows."""
    found: list[Standard] = []
    for name, question in {**CAUSES, **ENVIRONMENT}.items():
        answer = state.answers.get(name)
        if answer is None:
            found.append(Standard(name, question, "open"))
        else:
            found.append(Standard(name, question, answer.status, answer.note, answer.evidence))
    computed = dict(_computed(state, table, base))
    for name, question in COMPUTED.items():
        met, note = computed[name]
        status: Status = "open" if met is None else "met" if met else "not met"
        found.append(Standard(name, question, status, note))
    return tuple(found)


def _computed(state: State, table: Table, base: Arm | None) -> Iterator[tuple[str, tuple[bool | None, str]]]:
    """Each computed standard: met, not met, or None while there is nothing to judge by."""
    rows = table.rows
    arms = [arm for row in rows for arm in row.item.result.arms]
    purposes = {state.designs[row.item.design].purpose for row in rows}
    yield (
        "base rate",
        _of(
            None if base is None else base.runs > 0,
            "" if base is None else f"{base.hits} of {base.runs}",
        ),
    )
    late = [r.item.name for r in rows if not any(c.mark and not c.post_hoc for c in r.cells.values())]
    yield "predictions first", _of(not late if rows else None, ", ".join(late))
    tested = [s.hypothesis for s in table.standings if s.rank is not None]
    yield "several hypotheses", _of(len(tested) >= 2 if rows else None, f"{len(tested)} tested")
    lines = max((s.consistent for s in table.standings if s.rank == 1), default=0)
    yield "independent lines", _of(lines >= 2 if rows else None, f"{lines}")
    bare = [r.item.name for r in rows if not r.item.confounds]
    yield "confounds listed", _of(not bare if rows else None, ", ".join(bare))
    yield "control setting", _of("control setting" in purposes or None)
    yield "control model", _of("control model" in purposes or None)
    searches = {r.item.instrument for r in rows if r.item.looked_for is not None}
    # A control in which nothing was found shows that the search is blind, not that it sees.
    blind = sorted(searches - {name for name, arm in state.controls.items() if arm.hits})
    yield "positive control", _of(not blind if searches else None, ", ".join(blind))
    counted = [arm.name for arm in arms if arm.unfinished is None]
    yield "rollouts accounted", _of(not counted if arms else None, ", ".join(dict.fromkeys(counted)))
    graders = {arm.grader for arm in arms}
    yield "one grader", _of(len(graders) == 1 and None not in graders if arms else None)


def _of(met: bool | None, note: str = "") -> tuple[bool | None, str]:
    return met, note


#: The journal's name in a case's folder.
FILE = "case.jsonl"


@final
class Case:
    """One incident and all that was done about it; every change is one durable entry of its journal.

    Order is part of the record: a prediction counts where it was registered before the first result
    of its design.
    """

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._state = State()
        for entry in journal:
            self._state.take(entry)

    @classmethod
    def create(cls, folder: str | os.PathLike[str], incident: Incident) -> Self:
        """A new case in a folder; raises Mismatch where there is one."""
        return cls._begun(Journal.create(Path(folder) / FILE, noun="case"), incident)

    @classmethod
    def memory(cls, incident: Incident) -> Self:
        """A case that lives and dies with this process."""
        return cls._begun(Journal(noun="case"), incident)

    @classmethod
    def _begun(cls, journal: Journal, incident: Incident) -> Self:
        case = cls(journal)
        case._write("incident", to_json(incident))
        return case

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Self:
        """The case of a folder.

        Raises:
            BadInput: there is none.
            Mismatch: an entry was changed.
        """
        file = Path(folder) / FILE
        if not file.exists():
            raise BadInput("there is no case here", where=str(file), hint="refork forensics open")
        case = cls(Journal(file, noun="case"))
        if case._state.incident is None:
            raise BadInput("this case was never begun", where=str(file), hint="create it: nothing is lost")
        return case

    # What is on record

    @property
    def folder(self) -> Path | None:
        """Where the case is kept; None in memory."""
        return None if self.journal.file is None else self.journal.file.parent

    @property
    def incident(self) -> Incident:
        """What happened."""
        assert self._state.incident is not None
        return self._state.incident

    @property
    def hypotheses(self) -> tuple[Hypothesis, ...]:
        """The hypotheses with all their predictions, in order of registration."""
        return tuple(self._state.hypotheses.values())

    @property
    def designs(self) -> tuple[Design, ...]:
        """The designs, in order of registration."""
        return tuple(self._state.designs.values())

    @property
    def evidence(self) -> tuple[EvidenceItem, ...]:
        """The rows, in order of recording."""
        return tuple(self._state.evidence.values())

    @property
    def controls(self) -> Mapping[str, Arm]:
        """The positive control of each instrument."""
        return dict(self._state.controls)

    @property
    def state(self) -> State:
        """All of it, with the number of the entry that said it; read only."""
        return self._state

    def design(self, name: str) -> Design:
        """A design by its digest or its name; raises BadInput."""
        found = [d for d in self.designs if name in (d.id, d.name)]
        if len(found) != 1:
            known = ", ".join(repr(d.name) for d in self.designs) or "none yet"
            raise BadInput(f"{len(found)} designs are called {name!r}", hint=f"designs: {known}")
        return found[0]

    def arm(self, plan: ArmPlan) -> Arm:
        """The recorded draws of an arm, counted; no draw is 0 of 0."""
        return self._state.arm(plan)

    def arms(self, design: Design) -> tuple[Arm, ...]:
        """The arms of a design, as far as they were drawn."""
        return tuple(map(self.arm, design.arms))

    @property
    def base(self) -> Arm | None:
        """The unedited arm: its recorded draws, else what the incident came with, else None."""
        if BASE_KEY in self._state.draws:
            return self.arm(ArmPlan(BASE, Intervention.none()))
        return self.incident.base

    def missing(self, plan: ArmPlan, draws: int) -> list[int]:
        """Which of an arm's first ``draws`` draws are not on record yet."""
        held = self._state.draws.get(plan.key, {})
        return [draw for draw in range(draws) if draw not in held]

    # What is written

    def add_hypothesis(self, hypothesis: Hypothesis) -> None:
        """Register a hypothesis and the predictions that it brings.

        Raises: BadInput where the name is taken by another, or a prediction is of an unknown design.
        """
        # All predictions are checked before anything is written, and each is then an entry of its own: the
        # entry's number says whether it came before a result.
        known = self._state.hypotheses.get(hypothesis.name)
        if known is None:
            for prediction in hypothesis.predictions:
                self._check(prediction)
            self._write(
                "hypothesis", to_json(Hypothesis(hypothesis.name, hypothesis.statement, hypothesis.malign))
            )
        elif (known.statement, known.malign) != (hypothesis.statement, hypothesis.malign):
            raise BadInput(f"hypothesis {hypothesis.name!r} says something else already")
        for prediction in hypothesis.predictions:
            self.predict(hypothesis.name, prediction)

    def predict(self, hypothesis: str, prediction: Prediction) -> None:
        """Register a prediction; after a result of its design it will be shown as post hoc.

        The same one again is written once.
        """
        self._check(prediction)
        known = self._state.hypotheses.get(hypothesis)
        if known is None:
            raise BadInput(f"no hypothesis {hypothesis!r} in this case")
        if (hypothesis, prediction.id) not in self._state.predicted_at:
            body = {"hypothesis": hypothesis, "id": prediction.id, "prediction": to_json(prediction)}
            self._write("prediction", body)

    def _check(self, prediction: Prediction) -> None:
        design = self._state.designs.get(prediction.design)
        if design is None:
            raise BadInput("a prediction is about a registered design", where=prediction.words or None,
                           hint="add_design comes first")  # fmt: skip
        strange = [name for name in prediction.rates or {} if name not in {arm.name for arm in design.arms}]
        if strange:
            raise BadInput(
                f"design {design.name!r} has no arm {strange[0]!r}", where=prediction.words or None
            )

    def add_design(self, design: Design) -> str:
        """Register a design, every edit verified on the incident's environment; its digest.

        Raises: BadInput for an edit that has no effect or touches another field, or a name in use.
        """
        if design.id in self._state.designs:
            return design.id
        if any(design.name == other.name for other in self.designs):
            raise BadInput(f"another design is called {design.name!r}")
        changes = {
            arm.name: to_json(list(arm.intervention.apply(self.incident.environment).changes))
            for arm in design.arms
        }
        self._write("design", {"id": design.id, "design": to_json(design), "changes": changes})
        return design.id

    def record(
        self,
        plan: ArmPlan,
        outcomes: Mapping[int, Outcome],
        *,
        grader: str | None = None,
        subject: str | None = None,
    ) -> int:
        """Write how draws of an arm ended, in one entry; how many are new. Known draws are not written again.

        ``grader`` and ``subject`` default to the incident's.

        Raises:
            DrawConflict: a known draw with another outcome.
            BadInput: another grader or model than that of the arm's other draws.
        """
        held = self._state.draws.get(plan.key, {})
        # All are checked before anything is written: an entry holds every new draw or none.
        for draw, outcome in outcomes.items():
            if draw in held and held[draw] != outcome:
                raise DrawConflict(
                    "this draw is on record with another outcome", where=f"{plan.name}, draw {draw}"
                )
        who = (grader or self.incident.target.grader.id, subject or self.incident.subject)
        if plan.key in self._state.seen_by and self._state.seen_by[plan.key] != who:
            raise BadInput("an arm has one grader and one model", where=f"arm {plan.name}")
        new = {draw: outcome for draw, outcome in outcomes.items() if draw not in held}
        if new:
            body = {
                "intervention": plan.intervention.id, "arm": plan.name, "grader": who[0], "subject": who[1],
                "outcomes": {str(draw): to_json(outcome) for draw, outcome in sorted(new.items())},
            }  # fmt: skip
            self._write("draws", body)
        return len(new)

    def add_evidence(self, item: EvidenceItem, *, post_hoc: bool = False) -> tuple[rules.Concern, ...]:
        """Record a row; what a reader must be told beside it.

        Raises:
            BadInput: an unknown design, a name in use, a result that :mod:`rules` refuses, or one that no
                hypothesis predicted before it was seen and that is not called ``post_hoc``.
            Mismatch: other counts than the recorded draws give.
        """
        design = self._state.designs.get(item.design)
        if design is None:
            raise BadInput("evidence is about a registered design", where=item.name, hint="add_design")
        if item.name in self._state.evidence:
            if self._state.evidence[item.name] == item:
                return ()
            raise BadInput("a row of this name says something else already", where=item.name)
        if item.looked_for is not None and item.result.quantity != "rate":
            raise BadInput("a search reports a rate: how often it found something", where=item.name)
        self._agree(item, design)
        told = rules.refuse(rules.check_result(item.result, design.purpose, item.name))
        if not post_hoc and not self._predicted(item, design):
            raise BadInput(
                f"no hypothesis predicted {design.name!r} before its result was seen", where=item.name,
                hint="post_hoc=True records it as a row that counts for nothing",
            )  # fmt: skip
        self._write("evidence", to_json(item))
        return told

    def _predicted(self, item: EvidenceItem, design: Design) -> bool:
        seen = self._state.result_seen(design)
        return any(
            prediction.design == item.design
            and prediction.quantity in ("curve", item.result.quantity)
            and (seen is None or self._state.predicted_at[hypothesis.name, prediction.id] < seen)
            for hypothesis in self.hypotheses
            for prediction in hypothesis.predictions
        )

    def _agree(self, item: EvidenceItem, design: Design) -> None:
        plans = {plan.name: plan for plan in design.arms}
        for arm in item.result.arms:
            plan = plans.get(arm.name)
            if plan is None or plan.key not in self._state.draws:
                continue
            known = self.arm(plan)
            # What nobody counted is no contradiction.
            counted = [name for name in ("failed", "unfinished", "asked") if getattr(arm, name) is not None]
            other = [name for name in counted if getattr(arm, name) != getattr(known, name)]
            if known.counts != arm.counts or other:
                mine, its = (
                    ", ".join([f"{one.hits} of {one.runs}", *(f"{getattr(one, n)} {n}" for n in other)])
                    for one in (arm, known)
                )
                raise Mismatch(
                    f"arm {arm.name!r} has {mine}, its recorded draws give {its}",
                    where=item.name,
                )

    def add_control(self, instrument: str, arm: Arm) -> None:
        """Record how often an instrument found what was planted; a later one takes its place."""
        if arm.runs == 0:
            raise BadInput("a positive control without runs controls nothing", where=instrument)
        self._write("control", {"instrument": instrument, "arm": to_json(arm)})

    def answer(self, answer: Answer) -> None:
        """Answer one standard; a later answer takes its place. Raises BadInput for unknown evidence."""
        strange = [name for name in answer.evidence if name not in self._state.evidence]
        if strange:
            raise BadInput(f"no row {strange[0]!r} in this case", where=answer.standard)
        self._write("answer", to_json(answer))

    def _write(self, kind: str, body: Any) -> Entry:
        entry = self.journal.append(kind, body)
        self._state.take(entry)
        return entry

    # What follows

    def concerns(self) -> tuple[rules.Concern, ...]:
        """All that a reader must know: of the whole case, then of each row."""
        edited = [arm for item in self.evidence for arm in item.result.arms if arm.name != BASE]
        found = rules.contrast_exists(self.base, edited) + rules.judges_itself(self.incident)
        if self.base is not None:
            found += rules.censored(self.base)
        for item in self.evidence:
            purpose = self._state.designs[item.design].purpose
            found += rules.check_result(item.result, purpose, item.name)
        return tuple(dict.fromkeys(found))

    def table(self, *, likelihood: bool = False) -> Table:
        """The table of competing hypotheses as the case stands."""
        return ach_table(
            self.hypotheses, self.evidence, late=self._state.late(), controls=self._state.controls,
            concerns=self.concerns(), likelihood=likelihood,
        )  # fmt: skip

    def standards(self) -> tuple[Standard, ...]:
        """The checklist: what is met, what is not, and what is still open."""
        return checklist(self._state, self.table(), self.base)


def register(case: Case, designs: Iterable[Design], hypotheses: Iterable[Hypothesis]) -> None:
    """Register designs, then hypotheses with their predictions."""
    for design in designs:
        case.add_design(design)
    for hypothesis in hypotheses:
        case.add_hypothesis(hypothesis)
