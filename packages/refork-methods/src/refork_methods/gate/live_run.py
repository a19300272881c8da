"""Many live episodes on a tree: rows, totals, what the model had promised; nothing is played twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, final

import numpy as np

from refork.errors import BadInput, ServerError
from refork.progress import Progress, silent
from refork.stats.results import Interval
from refork.tree.node import Node, Point
from refork.tree.score import Producer
from refork.tree.tree import Tree
from refork.types import Json
from refork.worlds.base import Task
from refork_methods.gate.calibration_report import interval_json
from refork_methods.gate.controller import METHODS, BayesController
from refork_methods.gate.evaluate import worth
from refork_methods.gate.live import Opened, run_gate
from refork_methods.gate.model import CriticModel, Prices, read_policy
from refork_methods.gate.on_tree import Candidate, gate_producer, record_episode, recorded_episodes
from refork_methods.gate.policy import Policy, Verify, verify_from
from refork_methods.gate.problem import in_floats
from refork_methods.gate.regimes import Comparison, compare_rules
from refork_methods.gate.replay import mean_interval
from refork_methods.gate.rules import every_rule

#: An episode whose writer gave no candidate; it has no utility.
FAILED = "failed"


class Bench(Protocol):
    """Where tasks become episodes: the repair world's in the testbed, or one of your own."""

    @property
    def producers(self) -> Mapping[str, Producer]:
        """Who gives each critic's verdicts."""

    def root(self, task: Task) -> Point:
        """Where a task's episodes begin."""

    def open(self, task: Task) -> Callable[[int], Opened[Candidate]]:
        """What an episode's number opens."""


@final
@dataclass(frozen=True, slots=True)
class Setting:
    """A policy and what it acts under. ``measured``: pay what calls really cost, where they say so."""

    policy: Policy
    model: CriticModel
    prices: Prices
    horizon: int = 3
    ending: Verify = "terminal"
    measured: bool = False

    def producer(self, critics: Mapping[str, Producer]) -> Producer:
        """Who gives the beliefs of this setting."""
        more: Json = {"horizon": self.horizon, "verify": self.ending, "measured": self.measured}
        return gate_producer(self.policy, self.model, self.prices, critics, more)


@final
@dataclass(frozen=True, slots=True)
class LiveRow:
    """One episode; ``found``: it was on the tree already. A failed one has nothing but its ``why``."""

    task: str
    draw: int
    outcome: str
    actions: tuple[str, ...] = ()
    belief: float | None = None
    utility: float | None = None
    spent: float | None = None
    node: str | None = None
    found: bool = False
    why: str | None = None


@final
@dataclass(frozen=True, slots=True)
class LiveRun:
    """Episodes beside what the model promised of the policy, of the plan, and of every simple rule."""

    policy: str
    unit: str
    rows: tuple[LiveRow, ...]
    predicted: float
    rules: Comparison

    @property
    def utilities(self) -> list[float]:
        """Mean utility of each task; failed episodes, and those without an outcome, are left out."""
        found: dict[str, list[float]] = {}
        for row in self.rows:
            if row.utility is not None and row.outcome != "unknown":
                found.setdefault(row.task, []).append(row.utility)
        return [sum(mine) / len(mine) for mine in found.values()]

    def mean(self, level: float = 0.95) -> Interval | None:
        """Mean utility over tasks with its t interval; None without an episode."""
        values = np.array(self.utilities)
        return mean_interval(values, level, "task") if values.size else None

    @property
    def z(self) -> float | None:
        """(Realised - predicted) by the realised mean's standard error; None where that is not known."""
        values = np.array(self.utilities)
        error = float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else 0.0
        return (float(values.mean()) - self.predicted) / error if error > 0 else None

    def to_json(self) -> Json:
        """Plain fields, rows and totals."""
        rows = [
            {
                "task": row.task, "draw": row.draw, "outcome": row.outcome, "actions": list(row.actions),
                "belief": row.belief, "utility": row.utility, "spent": row.spent, "node": row.node,
                "found": row.found, "why": row.why,
            }
            for row in self.rows
        ]  # fmt: skip
        counts: dict[str, int] = {}
        for row in self.rows:
            counts[row.outcome] = counts.get(row.outcome, 0) + 1
        return {
            "policy": self.policy, "unit": self.unit, "rows": rows, "outcomes": counts,
            "found": sum(row.found for row in self.rows), "tasks": len(self.utilities),
            "utility": interval_json(self.mean()), "predicted": self.predicted, "z": self.z,
            "promised": self.rules.to_json(),
        }  # fmt: skip


def policy_named(
    name: str, model: CriticModel, prices: Prices, horizon: int = 3, verify: Verify = "terminal"
) -> Policy:
    """``dp``, ``greedy``, or a rule by its name, such as ``gate(public)``. Raises BadInput."""
    for method in METHODS:
        if name == method:
            return BayesController(model, prices, horizon, verify, method)
    rules = every_rule(model, horizon)
    if name not in rules:
        raise BadInput(f"there is no policy {name!r}", hint=", ".join([*METHODS, *rules]))
    return rules[name]


def setting_from(
    path: Path, use: str = "dp", *, horizon: int = 3, verify: str = "terminal", measured: bool = False
) -> Setting:
    """A policy by name over a policy file. Raises BadInput for a file without prices, or an unknown name."""
    model, prices = read_policy(path)
    if prices is None:
        raise BadInput(
            "the policy file has no prices", where=str(path), hint="refork gate fit --reward 100 ..."
        )
    ending = verify_from(verify)
    policy = policy_named(use, model, prices, horizon, ending)
    return Setting(policy, model, prices, horizon, ending, measured)


def run_live(
    tree: Tree,
    bench: Bench,
    tasks: Sequence[Task],
    setting: Setting,
    *,
    draws: int = 1,
    progress: Progress = silent,
) -> LiveRun:
    """Play ``draws`` episodes of every task and write each on the tree as it ends.

    An episode that is on the tree is read from there, so a run that was stopped goes on. A writer that fails
    is a row without utility, never the end of the run.

    Raises: BadInput for fewer than one draw or no task, and as :func:`run_gate`.
    """
    if draws < 1 or not tasks:
        raise BadInput(f"{draws} draws of {len(tasks)} tasks", hint="at least 1 of each")
    problem = in_floats(setting.model, setting.prices, setting.horizon, setting.ending)
    promised = compare_rules(setting.model, setting.prices, setting.horizon, setting.ending)
    gate = setting.producer(bench.producers)
    rows: list[LiveRow] = []
    for task in tasks:
        known = recorded_episodes(tree, bench.root(task), gate)
        opened = bench.open(task)
        for draw in range(draws):
            node, why = known.get(str(draw)), None
            if node is None:
                try:
                    made = _play(tree, setting, opened(draw), gate, bench.producers, str(draw))
                    rows.append(_row(task.id, draw, tree.node(made), found=False))
                except ServerError as error:
                    why = error.what
                    rows.append(LiveRow(task.id, draw, FAILED, why=why))
            else:
                rows.append(_row(task.id, draw, node, found=True))
            progress("episodes", len(rows), draws * len(tasks))
    found = worth(setting.policy, problem)
    return LiveRun(setting.policy.name, setting.prices.unit, tuple(rows), found, promised)


def _play(
    tree: Tree,
    setting: Setting,
    opened: Opened[Candidate],
    gate: Producer,
    critics: Mapping[str, Producer],
    name: str,
) -> str:
    write, checks, verify = opened
    episode = run_gate(
        setting.policy, setting.model, setting.prices, write, checks, verify,
        horizon=setting.horizon, ending=setting.ending, measured=setting.measured,
    )  # fmt: skip
    return record_episode(tree, episode, gate, critics, name)


def _row(task: str, draw: int, node: Node, *, found: bool) -> LiveRow:
    body = node.extra["gate"]
    return LiveRow(
        task,
        draw,
        body["outcome"],
        tuple(event["action"] for event in body["events"]),
        body["belief"],
        body["utility"],
        body["first"] + sum(event["price"] for event in body["events"]),
        node.id,
        found,
    )
