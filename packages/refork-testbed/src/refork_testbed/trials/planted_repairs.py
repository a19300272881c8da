"""A planted repair agent: it tries edits in an order, under a budget of test runs, with or without a finding.

All is drawn by chance and the whole distribution is known in closed form, which the tests hold it to: what a
finding earns and costs, and so the precision at which handing it over breaks even.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias, final

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from refork.errors import BadInput
from refork.stats import Interval, mean_interval, paired_difference, wilson
from refork.stats.results import Array
from refork_methods.localize.inject import AgentEffect, GateRun, InjectionGate, measure_agent

#: How sharply each agent's own order favours the faulty function [nats].
AGENTS = {"weak": 0.0, "middle": 3.0, "strong": 6.0}
#: A finding that names no function.
NONE = -1

Measure: TypeAlias = Literal["resolved", "runs"]


@final
@dataclass(frozen=True, slots=True)
class TrialRules:
    """Functions of a task, edits of a function, test runs allowed, test runs that a wrong finding wastes.

    Raises: BadInput for counts below 1, or a waste below 0.
    """

    functions: int = 40
    edits: int = 6
    budget: int = 40
    wasted: int = 18

    def __post_init__(self) -> None:
        if min(self.functions, self.edits, self.budget) < 1 or self.wasted < 0:
            raise BadInput("a trial has functions, edits and a budget of at least 1, and wastes 0 or more")
        if self.functions < 2:
            raise BadInput("with one function there is nothing to localize")


@final
@dataclass(frozen=True)  # no slots: what was worked out is kept
class TrialTasks:
    """Drawn tasks: the faulty function, the right edit's place (1 is first) and the agent's own noise.

    Both arms of a comparison get the same tasks, so their difference is paired.
    """

    fault: Int[Array, "tasks"]
    edit: Int[Array, "tasks"]
    noise: Float[Array, "tasks functions"]
    rules: TrialRules

    @cached_property
    def ahead(self) -> Float[Array, "tasks functions"]:
        """How far each other function's noise is above the faulty one's; minus infinity at that itself."""
        rows = np.arange(self.fault.size)
        gap = self.noise - self.noise[rows, self.fault][:, None]
        gap[rows, self.fault] = -np.inf
        return np.asarray(gap)

    @cached_property
    def _ranks(self) -> dict[float, Int[Array, "tasks"]]:
        return {}

    def rank(self, nats: float) -> Int[Array, "tasks"]:
        """The faulty function's place in the agent's own order, from 1 (a Plackett-Luce draw)."""
        if nats not in self._ranks:
            self._ranks[nats] = np.asarray(1 + (self.ahead > nats).sum(axis=1))
        return self._ranks[nats]


@final
@dataclass(frozen=True, slots=True)
class TrialResult:
    """Of each task: whether it was resolved, and the test runs spent (the budget where it was not)."""

    resolved: Bool[Array, "tasks"]
    runs: Int[Array, "tasks"]

    def utility(self, measure: Measure) -> Float[Array, "tasks"]:
        """1 for resolved, or minus the test runs."""
        return np.asarray(self.resolved, float) if measure == "resolved" else -np.asarray(self.runs, float)


def draw_tasks(count: int, rng: np.random.Generator, rules: TrialRules | None = None) -> TrialTasks:
    """Tasks with a fault and a right edit drawn evenly, and Gumbel noise for the agent's order.

    Raises: BadInput for no tasks.
    """
    if count < 1:
        raise BadInput("at least one task has to be drawn")
    rules = rules or TrialRules()
    return TrialTasks(
        rng.integers(rules.functions, size=count),
        rng.integers(1, rules.edits + 1, size=count),
        rng.gumbel(size=(count, rules.functions)),
        rules,
    )


def attempt(tasks: TrialTasks, nats: float, finding: Int[Array, "tasks"] | None = None) -> TrialResult:
    """Let an agent try: functions in its order, edits of one in theirs, until tests pass or runs are spent.

    ``finding``: a function that is tried first, or ``NONE``. A right one needs only its own edits; a wrong
    one wastes runs before the agent's own order begins.

    Raises: BadInput where findings do not fit the tasks.
    Source: arXiv:2606.24820 for measuring findings by the repair after them; the agent is ours.
    """
    rules = tasks.rules
    named = np.full(tasks.fault.shape, NONE) if finding is None else np.asarray(finding)
    if named.shape != tasks.fault.shape or (named < NONE).any() or (named >= rules.functions).any():
        raise BadInput(f"findings are one function (0 to {rules.functions - 1}) or {NONE} for each task")
    own = rules.edits * (tasks.rank(nats) - 1) + tasks.edit
    wrong = (named != NONE) & (named != tasks.fault)
    needed = np.where(named == tasks.fault, tasks.edit, own + rules.wasted * wrong)
    return TrialResult(needed <= rules.budget, np.minimum(needed, rules.budget))


def right_findings(tasks: TrialTasks) -> Int[Array, "tasks"]:
    """What an oracle says: the faulty function. No deployable localizer knows it."""
    return tasks.fault.copy()


def drawn_findings(tasks: TrialTasks, precision: float, rng: np.random.Generator) -> Int[Array, "tasks"]:
    """Findings that are right with chance ``precision``, else name another function evenly.

    From the same generator state, a higher precision turns wrong ones right and none the other way.
    Raises: BadInput for a chance outside [0, 1].
    """
    if not 0 <= precision <= 1:
        raise BadInput(f"the precision is {precision!r}; it must lie in [0, 1]")
    size, functions = tasks.fault.size, tasks.rules.functions
    right = rng.uniform(size=size) < precision
    other = (tasks.fault + rng.integers(1, functions, size=size)) % functions
    return np.where(right, tasks.fault, other)


def shuffled_findings(finding: Int[Array, "tasks"], rng: np.random.Generator) -> Int[Array, "tasks"]:
    """Each task gets another task's finding: the control for help that any findings would be."""
    order = rng.permutation(finding.size)
    moved = np.empty_like(finding)
    # One cycle through all tasks: nobody keeps its own finding, as somebody may in a plain permutation.
    moved[order] = finding[np.roll(order, 1)]
    return moved


def confidence_scores(
    tasks: TrialTasks, finding: Int[Array, "tasks"], rng: np.random.Generator
) -> Float[Array, "tasks"]:
    """A localizer's score of each finding: standard normal, higher by 1.55 where it is right."""
    return np.asarray(rng.normal(size=finding.size) + 1.55 * (finding == tasks.fault))


def sweep(
    nats: float,
    precisions: Sequence[float],
    *,
    tasks: int = 20_000,
    seed: int = 0,
    measure: Measure = "resolved",
) -> Float[np.ndarray, "precisions"]:
    """Mean gain of handing over every finding, at each precision of the localizer."""
    drawn = draw_tasks(tasks, np.random.default_rng([seed, 1]))
    base = attempt(drawn, nats).utility(measure)
    gains = []
    for precision in precisions:
        found = drawn_findings(drawn, precision, np.random.default_rng([seed, 2]))
        gains.append(float((attempt(drawn, nats, found).utility(measure) - base).mean()))
    return np.array(gains)


def zero_of(precisions: Shaped[Array, "points"], gains: Shaped[Array, "points"]) -> float | None:
    """The precision at which a sweep's gains turn from loss to gain, linear between points; None: never."""
    x, y = np.asarray(precisions, float), np.asarray(gains, float)
    if x.shape != y.shape or x.size < 2 or (np.diff(x) <= 0).any():
        raise BadInput("a sweep needs rising precisions, two or more, and one gain for each")
    turns = np.flatnonzero((y[:-1] <= 0) & (y[1:] > 0))
    if not turns.size:
        return None
    n = int(turns[-1])
    return float(x[n] - y[n] * (x[n + 1] - x[n]) / (y[n + 1] - y[n]))


# The trial as a table: three agents; findings handed over to all, filtered, gated; the controls.

#: A fixed filter on the localizer's score, the same for every agent: it passes 69 % of the right findings
#: and 14 % of the wrong ones.
CUT = 1.06
#: What each agent has to win: resolved tasks, or test runs where it resolves nearly all anyway.
UNITS: Mapping[str, Measure] = {"weak": "resolved", "middle": "resolved", "strong": "runs"}
#: Held-out tasks behind a gate of the trial.
_HELD_OUT = 4_000


@final
@dataclass(frozen=True, slots=True)
class TrialRow:
    """One agent in one arm: share resolved, mean test runs, and both against no report, paired."""

    agent: str
    arm: str
    injected: float
    resolved: Interval
    runs: Interval
    gain: Interval
    more_runs: Interval


@final
@dataclass(frozen=True, slots=True)
class BreakEven:
    """An agent's measured G, L and q*, and where a sweep over precisions really turned from loss to gain."""

    agent: str
    unit: Measure
    effect: AgentEffect
    crossing: float | None

    @property
    def deviation(self) -> float | None:
        """How far apart the two are; None where the sweep never turned."""
        return None if self.crossing is None else abs(self.crossing - self.effect.threshold)


def trial_table(tasks: int = 20_000, seed: int = 0) -> list[TrialRow]:
    """Every agent without a report, with all findings (90 and 60 % right), filtered, gated, and the controls.

    ``filtered`` drops findings below one fixed score for all agents; ``gated`` asks each agent's own
    break-even. All arms share the same tasks.
    """
    drawn = draw_tasks(tasks, np.random.default_rng([seed, 11]))
    good = drawn_findings(drawn, 0.9, np.random.default_rng([seed, 12]))
    poor = drawn_findings(drawn, 0.6, np.random.default_rng([seed, 13]))
    scores = confidence_scores(drawn, poor, np.random.default_rng([seed, 14]))
    gate = trial_gate(seed)
    rows = []
    for agent, nats in AGENTS.items():
        arms = {
            "no report": np.full(tasks, NONE),
            "injected, 90 % right": good,
            "injected, 60 % right": poor,
            "filtered, 60 % right": np.where(scores > CUT, poor, NONE),
            "gated, 60 % right": np.where(_passed(gate, agent, scores), poor, NONE),
            "shuffled, 90 % right": shuffled_findings(good, np.random.default_rng([seed, 15])),
            "oracle (control)": right_findings(drawn),
        }
        base = attempt(drawn, nats)
        rows += [_row(agent, arm, found, attempt(drawn, nats, found), base) for arm, found in arms.items()]
    return rows


def trial_gate(seed: int = 0) -> InjectionGate:
    """A gate fitted on drawn tasks of its own: the score's calibration, and each agent's G and L by forks."""
    drawn = draw_tasks(_HELD_OUT, np.random.default_rng([seed, 21]))
    found = drawn_findings(drawn, 0.6, np.random.default_rng([seed, 22]))
    scores = confidence_scores(drawn, found, np.random.default_rng([seed, 23]))
    runs = [
        GateRun(f"held out {n}", float(score), bool(right))
        for n, (score, right) in enumerate(zip(scores, found == drawn.fault, strict=True))
    ]
    return InjectionGate.fit(runs, [fork_agent(drawn, agent, UNITS[agent], seed) for agent in AGENTS])


def fork_agent(drawn: TrialTasks, agent: str, unit: Measure, seed: int = 0) -> AgentEffect:
    """G and L of a planted agent: each task with no, a right and a wrong finding."""
    nats = AGENTS[agent]
    wrong = drawn_findings(drawn, 0.0, np.random.default_rng([seed, 31]))
    none, right, bad = (
        attempt(drawn, nats, found).utility(unit) for found in (None, right_findings(drawn), wrong)
    )
    return measure_agent(agent, none, right, bad, unit=unit)


def break_evens(tasks: int = 100_000, seed: int = 0, *, steps: int = 41) -> list[BreakEven]:
    """Each agent's q* from forks on some tasks beside the turn of a sweep over others."""
    forked = draw_tasks(tasks, np.random.default_rng([seed, 41]))
    grid = np.linspace(0, 1, steps)
    found = []
    for agent, nats in AGENTS.items():
        unit = UNITS[agent]
        gains = sweep(nats, grid.tolist(), tasks=tasks, seed=seed + 1, measure=unit)
        found.append(BreakEven(agent, unit, fork_agent(forked, agent, unit, seed), zero_of(grid, gains)))
    return found


def _passed(gate: InjectionGate, agent: str, scores: np.ndarray) -> Bool[Array, "tasks"]:
    return np.asarray(gate.calibration(scores) > gate.effect(agent).threshold)


def _row(
    agent: str, arm: str, found: Int[Array, "tasks"], result: TrialResult, base: TrialResult
) -> TrialRow:
    return TrialRow(
        agent,
        arm,
        float((found != NONE).mean()),
        wilson(int(result.resolved.sum()), result.resolved.size),
        mean_interval(result.runs.astype(float)),
        paired_difference(base.resolved.astype(float), result.resolved.astype(float)).interval,
        paired_difference(base.runs.astype(float), result.runs.astype(float)).interval,
    )
