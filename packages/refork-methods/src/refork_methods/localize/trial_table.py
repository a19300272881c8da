"""The planted trial as a table: three agents; findings handed over to all, filtered, gated; the controls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Bool, Int

from refork.stats import Interval, mean_interval, paired_difference, wilson
from refork.stats.results import Array
from refork_methods.localize.inject import AgentEffect, GateRun, InjectionGate, measure_agent
from refork_methods.localize.repair_trial import (
    AGENTS,
    NONE,
    Measure,
    TrialResult,
    TrialTasks,
    attempt,
    confidence_scores,
    draw_tasks,
    drawn_findings,
    right_findings,
    shuffled_findings,
    sweep,
    zero_of,
)

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
