"""The history of a slot's judges, read from a run's events alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from refork.errors import BadInput, CannotDo
from refork.plain import from_json
from refork.stats import Interval, wilson
from refork.types import Json
from refork_methods.evolve.archive import BEGIN, CHECKPOINT, MEASURE
from refork_methods.evolve.promote import Decision
from refork_methods.evolve.records import EvaluatorSlot
from refork_methods.evolve.stringency import stringency_ratio

#: Where an examiner's notes tell how judges treat sources: ``{judge: {source: [accepted, judged]}}``, of
#: panels that are neither the anchor nor the traps.
PANELS: Final = "panels"


@final
@dataclass(frozen=True, slots=True)
class Tenure:
    """One judge's time in a slot: the epoch, the outcomes it decided, and what is known of it.

    ``since`` and ``until`` number outcomes of the whole run; ``anchor`` is the share of anchor items it had
    right when it was examined first, and ``stringency`` its acceptance of machine-made over human work on
    panels (None: never examined, or nobody told).
    """

    slot: str
    epoch: int
    judge: str
    since: int
    until: int
    decided: int
    anchor: Interval | None
    stringency: Interval | None
    traps: tuple[int, int] | None
    controls: tuple[int, int] | None


@final
@dataclass(frozen=True, slots=True)
class Examination:
    """One checkpoint of a slot: at which outcome, what was decided, and what the examiner noted."""

    slot: str
    at: int
    decision: Decision
    notes: Mapping[str, Any]

    @property
    def differs(self) -> bool:
        """Whether the two rules would have decided differently."""
        return self.decision.by_best_belief != self.decision.by_paired


@final
@dataclass(frozen=True, slots=True)
class JudgeHistory:
    """Tenures by slot in order of time, and every examination."""

    tenures: tuple[Tenure, ...]
    examinations: tuple[Examination, ...]
    outcomes: int

    @property
    def anchor_queries(self) -> int:
        """How many anchor answers were looked at; an anchor that is asked often is learnt."""
        return sum(one.decision.anchor_queries for one in self.examinations)


def panel_ratio(panel: Mapping[str, Any], level: float = 0.95) -> Interval | None:
    """The stringency ratio of one judge's counts on ``ai`` and ``human`` work; None where it has none."""
    sides = []
    for source in ("ai", "human"):
        accepted, judged = panel.get(source, (0, 0))
        if not judged:
            return None
        # Counts as single verdicts; their order does not matter to a bootstrap.
        sides.append(np.arange(judged) < accepted)
    try:
        return stringency_ratio(sides[0], sides[1], seed=0, level=level)
    except CannotDo:
        return None


def judge_history(events: Iterable[tuple[str, Json]], level: float = 0.95) -> JudgeHistory:
    """Who held each slot when, and how every examination went, from (kind, body) events.

    Raises: BadInput where they do not begin with a run.
    """
    slots: dict[str, EvaluatorSlot] = {}
    open_: dict[str, tuple[EvaluatorSlot, int]] = {}
    tenures: list[Tenure] = []
    done: list[Examination] = []
    decided: dict[str, int] = {}
    outcomes = 0
    for kind, body in events:
        if kind == BEGIN:
            slots = {slot["name"]: from_json(EvaluatorSlot, slot) for slot in body["slots"]}
            open_ = {name: (slot, 0) for name, slot in slots.items()}
        elif not slots:
            raise BadInput("these are not the events of a run", hint="is it another journal?")
        elif kind == MEASURE:
            outcomes += 1
            name = body["cell"].get("slot")
            decided[name] = decided.get(name, 0) + 1
        elif kind == CHECKPOINT:
            for name, one in sorted(body["decisions"].items()):
                decision = from_json(Decision, one)
                done.append(Examination(name, body["at"], decision, body["notes"][name]))
                if decision.chosen is not None:
                    slot, since = open_[name]
                    tenures.append(_tenure(slot, since, outcomes, decided.pop(name, 0), done, level))
                    open_[name] = (slot.replaced(decision.chosen), outcomes)
    for name, (slot, since) in open_.items():
        tenures.append(_tenure(slot, since, outcomes, decided.get(name, 0), done, level))
    tenures.sort(key=lambda one: (one.slot, one.epoch))
    return JudgeHistory(tuple(tenures), tuple(done), outcomes)


def _tenure(
    slot: EvaluatorSlot, since: int, until: int, decided: int, done: list[Examination], level: float
) -> Tenure:
    """What the first examination that knows a judge says of it."""
    mine = [one for one in done if one.slot == slot.name]
    known = ((one, judged) for one in mine for judged in (one.decision.incumbent, *one.decision.challengers))
    first = next(((one, judged) for one, judged in known if judged.tally.name == slot.judge), None)
    if first is None:
        return Tenure(slot.name, slot.epoch, slot.judge, since, until, decided, None, None, None, None)
    at, judged = first
    right, wrong = judged.tally.anchor
    panel = at.notes.get(PANELS, {}).get(slot.judge, {})
    return Tenure(
        slot.name, slot.epoch, slot.judge, since, until, decided,
        wilson(right, right + wrong, level) if right + wrong else None,
        panel_ratio(panel, level),
        judged.tally.traps if sum(judged.tally.traps) else None,
        judged.tally.controls if sum(judged.tally.controls) else None,
    )  # fmt: skip
