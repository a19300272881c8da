"""Hand a finding to a repair agent only where its chance of being right is above the agent's break-even."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, final

import numpy as np
from jaxtyping import Shaped

from refork.errors import BadInput, CannotDo
from refork.plain import content_hash, from_json, to_json
from refork.settings import present_mark
from refork.stats import Interval, paired_difference
from refork.stats.results import Array
from refork.types import Json
from refork_methods.decide import Advice, Calibration, advise, break_even, fit_calibration
from refork_methods.localize.casefile import CaseFile, replace_text
from refork_methods.localize.gold import Gold, gold_spans

FORMAT = "refork injection gate"
VERSION = 1
#: The mark in a case's ``meta`` that its maker had seen the fix.
GOLD = "gold_conditioned"
Within: TypeAlias = Literal["file", "lines"]


@final
@dataclass(frozen=True, slots=True)
class GateRun:
    """One held-out run of a localizer: its case's score, whether its first place was right, and the task.

    ``producer``: who made the case; scores of different producers are not comparable. ``issue``: digest of
    the issue's text, by which a case without a task's name is known again.
    """

    task: str
    score: float
    right: bool
    producer: str = ""
    issue: str = ""

    @classmethod
    def of(cls, task: str, case: CaseFile, diff: str | Gold, within: Within = "lines") -> GateRun:
        """The run of a case whose fix is known. Raises as :func:`case_score` and :func:`finding_right`."""
        refuse_gold(case)
        right, issue = finding_right(case, diff, within), str(case.meta.get("issue", ""))
        return cls(task, case_score(case), right, producer_of(case), issue)


@final
@dataclass(frozen=True, slots=True)
class AgentEffect:
    """What a right finding earns a repair agent and a wrong one costs it, in one unit of utility.

    Intervals are over tasks; ``tasks`` are those that were forked. ``gain`` and ``loss`` may come out below
    0; a decision counts such a one as 0.
    """

    agent: str
    gain: Interval
    loss: Interval
    tasks: tuple[str, ...] = ()
    unit: str = "resolved"

    @property
    def threshold(self) -> float:
        """The break-even chance q* = L / (L + G); 1 where a right finding earns nothing: never inject."""
        return _threshold(self.gain.estimate, self.loss.estimate)

    @property
    def threshold_range(self) -> tuple[float, float]:
        """The least and greatest q* that gain and loss within their intervals allow; wider than the level."""
        low = _threshold(self.gain.high, self.loss.low)
        return low, _threshold(self.gain.low, self.loss.high)

    @property
    def amounts(self) -> tuple[float, float]:
        """Gain and loss, none below 0."""
        return max(self.gain.estimate, 0.0), max(self.loss.estimate, 0.0)

    def advise(self, chance: float, price: float = 0.0) -> Advice:
        """Inject or not at this chance of being right; ``price``: of any finding, in the same unit."""
        gain, loss = self.amounts
        if gain + loss == 0 and price == 0:  # nothing to win, and reading it is never free
            return Advice(False, chance, math.inf, 0.0)
        return advise(chance, gain, loss, price)

    def to_json(self) -> Json:
        """Plain fields."""
        told: Json = to_json(self)
        return told


def _threshold(gain: float, loss: float) -> float:
    return break_even(gain, max(loss, 0.0)) if gain > 0 else 1.0


def measure_agent(
    agent: str,
    none: Shaped[Array, "tasks"],
    right: Shaped[Array, tasks],
    wrong: Shaped[Array, tasks],
    *,
    tasks: Sequence[str] = (),
    unit: str = "resolved",
) -> AgentEffect:
    """G and L of a repair agent from forks of the same tasks with no, a right and a wrong finding.

    Utilities, one of each arm for each task: resolved or not, or anything with a price taken off.

    Raises: BadInput for arms of unequal length, fewer than two tasks, or task names that do not fit.
    Source: arXiv:2606.24820 for findings that help weak and harm strong agents; the measurement is ours.
    """
    if tasks and len(tasks) != np.size(none):
        raise BadInput(f"{len(tasks)} task names for {np.size(none)} outcomes", where=agent)
    gain = paired_difference(none, right).interval
    loss = paired_difference(wrong, none).interval
    return AgentEffect(agent, gain, loss, tuple(tasks), unit)


@final
@dataclass(frozen=True, slots=True)
class InjectionGate:
    """A localizer's calibration, and the repair agents whose gain and loss are known.

    ``fitted_on``: the tasks behind the calibration and their issues' digests. A decision about one of them,
    or about one on which the agent was measured, is refused: it would look better than it is.
    """

    calibration: Calibration
    agents: Mapping[str, AgentEffect]
    fitted_on: frozenset[str]
    producer: str = ""

    @classmethod
    def fit(cls, runs: Sequence[GateRun], agents: Iterable[AgentEffect] = ()) -> InjectionGate:
        """Learn q = P(first place right | score) on held-out runs.

        Raises: BadInput for a task that stands twice, runs of several producers, or too few right or wrong
            ones.
        """
        names = [one.task for one in runs]
        if not names:
            raise BadInput("a gate needs runs whose fix is known", hint="some dozens of them")
        if len(set(names)) < len(names):
            raise BadInput("a task stands twice among the runs", hint="one run of each task")
        producers = sorted({one.producer for one in runs})
        if len(producers) > 1:
            raise BadInput(f"the runs are of {len(producers)} producers: their scores are not comparable")
        scores, right = np.array([one.score for one in runs]), np.array([float(one.right) for one in runs])
        fitted = fit_calibration(scores, right)
        known = frozenset([*names, *(one.issue for one in runs if one.issue)])
        return cls(fitted, {one.agent: one for one in agents}, known, producers[0])

    def chance(self, case: CaseFile) -> float:
        """The chance that the case's first place is right; 0 for an empty case.

        Raises: CannotDo for a case whose maker saw the fix. BadInput for another producer, or no score.
        """
        refuse_gold(case)
        if not case.locations:
            return 0.0
        if producer_of(case) != self.producer:
            raise BadInput(
                f"the gate was fitted on cases of {self.producer!r}, this one is of {producer_of(case)!r}",
                hint="fit a gate for it",
            )
        return self.calibration.chance(case_score(case))

    def decide(self, case: CaseFile, agent: str, *, task: str | None = None, price: float = 0.0) -> Advice:
        """Inject or not, with the chance, the break-even and what injecting nets.

        ``price``: of any finding, in the agent's unit of utility.

        Raises: BadInput for an unknown agent, or a task that the gate was fitted or the agent measured on.
            As :meth:`chance`.
        """
        effect = self.effect(agent)
        known = self.fitted_on | set(effect.tasks)
        # By its issue too: the same task may come under another name.
        for name in (task, case.meta.get("issue")):
            if name is not None and name in known:
                raise BadInput(
                    f"the gate was fitted on this very task ({name})", hint="fit it on other tasks than these"
                )
        return effect.advise(self.chance(case), price)

    def effect(self, agent: str) -> AgentEffect:
        """What is known of an agent. Raises BadInput for one that was not measured."""
        if agent not in self.agents:
            known = ", ".join(sorted(self.agents)) or "none yet"
            raise BadInput(f"the repair agent {agent!r} was not measured", hint=f"known: {known}")
        return self.agents[agent]

    def to_json(self) -> Json:
        """The versioned document."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "producer": self.producer,
            "calibration": self.calibration.to_json(),
            "agents": [self.agents[name].to_json() for name in sorted(self.agents)],
            "fitted_on": sorted(self.fitted_on),
        }

    @classmethod
    def from_json(cls, data: Json) -> InjectionGate:
        """Inverse of :meth:`to_json`. Raises BadInput for another format or version."""
        if (
            not isinstance(data, dict)
            or present_mark(data.get("format")) != FORMAT
            or data.get("version") != VERSION
        ):
            raise BadInput("this is not an injection gate", hint=f'format "{FORMAT}", version {VERSION}')
        try:
            agents = [from_json(AgentEffect, one, "injection gate") for one in data["agents"]]
            fitted = frozenset(str(one) for one in data["fitted_on"])
            made = Calibration.from_json(data["calibration"])
            return cls(made, {one.agent: one for one in agents}, fitted, str(data["producer"]))
        except (KeyError, TypeError) as error:
            raise BadInput(f"this injection gate lacks a part: {error!r}") from error

    def write(self, file: Path) -> None:
        """Write the gate, whole or not at all. Raises BadInput where the file cannot be written."""
        replace_text(file, json.dumps(self.to_json(), indent=2, allow_nan=False) + "\n")

    @classmethod
    def read(cls, file: Path) -> InjectionGate:
        """Read what :meth:`write` wrote. Raises BadInput."""
        try:
            return cls.from_json(json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise BadInput(f"the gate cannot be read: {error}", where=str(file)) from error


def case_score(case: CaseFile) -> float:
    """The score of the first place, else its stated confidence.

    Raises: BadInput where there is no place, or it has neither.
    """
    if not case.locations:
        raise BadInput("an empty case has no score", hint="leave it out, and count it")
    first = case.locations[0]
    told = first.score if first.score is not None else first.confidence
    if told is None:
        raise BadInput("the first place has neither a score nor a confidence", where=first.location())
    return told


def finding_right(case: CaseFile, diff: str | Gold, within: Within = "lines") -> bool:
    """Whether the first place overlaps a chunk of the fix (``lines``), or lies in one of its ``file``s.

    Raises: BadInput for a diff that is none or, for ``lines``, has no old side.
    """
    gold = gold_spans(diff) if isinstance(diff, str) else diff
    if within not in ("file", "lines"):
        raise BadInput(f"unknown measure {within!r}", hint="'file' or 'lines'")
    if not case.locations:
        return False
    first = case.locations[0]
    if within == "file":
        return first.path in gold.files
    if not gold.spans:
        raise BadInput("the fix touches no old line, so no place can be right", hint="judge by file")
    return any(
        one.path == first.path and first.start <= one.end and one.start <= first.end for one in gold.spans
    )


def refuse_gold(case: CaseFile) -> None:
    """Raise CannotDo for a case whose maker saw the fix: a control, never something to deploy or fit."""
    if case.meta.get(GOLD):
        raise CannotDo(
            "this finding was made with the fix at hand; it measures the best case and cannot be deployed",
            hint="use it as an arm of `localize transfer`, marked as oracle",
        )


def producer_of(case: CaseFile) -> str:
    """Who made a case: name, version, a digest of its settings and the model; empty where it does not say."""
    told = case.meta.get("producer")
    if not isinstance(told, dict) or "name" not in told:
        return ""
    parts = [str(told[key]) for key in ("name", "version") if key in told]
    # Scores of other settings (five places shown, or one) and of another model are other scores.
    if "settings" in told:
        parts.append(content_hash(told["settings"])[:8])
    if "model" in case.meta:
        parts.append(str(case.meta["model"]))
    return " ".join(parts)


def advise_by_numbers(
    case: CaseFile, gain: float, loss: float, *, chance: float | None = None, price: float = 0.0
) -> Advice:
    """Inject or not from G and L as they are known, at ``chance`` or the first place's own confidence.

    Raises: CannotDo for a case whose maker saw the fix. BadInput where no chance is known, or as ``advise``.
    """
    refuse_gold(case)
    if not case.locations:
        return Advice(False, 0.0, break_even(gain, loss, price) if gain + loss else math.inf, -loss - price)
    told = case.locations[0].confidence if chance is None else chance
    if told is None:
        raise BadInput(
            "the first place has no confidence: nothing was calibrated",
            where=case.locations[0].location(),
            hint="give the chance of being right, or a fitted gate",
        )
    return advise(told, gain, loss, price)
