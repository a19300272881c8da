"""The live part of the gate benchmark: real packages, real tests, a planted repairer; in two processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from refork import Tree
from refork.errors import ServerError
from refork.worlds.base import Split, Task
from refork_methods.gate import BayesController, CriticModel, Prices, every_rule
from refork_methods.gate.evaluate import worth
from refork_methods.gate.fit import fit_critics
from refork_methods.gate.live import collect_records, run_gate
from refork_methods.gate.records import Record
from refork_methods.gate.replay import Comparison, Replay, compare, replay
from refork_methods.gate.solve import in_floats
from refork_testbed.trials.gate_repairs import RepairBench
from refork_testbed.worlds.repair.repairer import Skill, repairer
from refork_testbed.worlds.repair.world import RepairWorld

HORIZON = 3
#: What critics cost in units of utility, as in the paper; a right patch earns 100, a new draw costs 5.
COSTS = {"syntax": 1.0, "ruff": 1.0, "public": 2.0}
PRICES = {cell: Prices(verify=price) for cell, price in (("cheap", 5.0), ("paper", 30.0), ("dear", 60.0))}
#: The planted repairer's chances, set before any figure here was seen: about the paper's middle prior.
SKILL = Skill(gold=0.4, syntax=0.05, flawed=0.6)


def records_of(split: Split, tasks: int, draws: int, seed: int = 0) -> list[Record]:
    """Chains of three real candidates of ``tasks`` tasks, judged by every critic and by the hidden suite."""
    world = RepairWorld(origin="generated")
    with Tree.memory() as tree:
        bench = RepairBench(tree, world, repairer(SKILL), seed=seed)
        opened = {task.id: bench.open(task) for task in world.tasks(split, tasks, seed)}
        return collect_records(opened, lambda one: one.digest, draws=draws, steps=HORIZON)


def played(
    bench: RepairBench, tasks: Sequence[Task], draws: int, model: CriticModel, prices: Prices
) -> dict[str, list[float]]:
    """Utilities of live episodes of the planned controller, by task; those without a verdict are left out."""
    controller = BayesController(model, prices, HORIZON, "retry")
    found: dict[str, list[float]] = {}
    for task in tasks:
        opened = bench.open(task)
        for draw in range(draws):
            write, critics, verify = opened(draw)
            try:
                episode = run_gate(
                    controller, model, prices, write, critics, verify, horizon=HORIZON, ending="retry"
                )
            except ServerError:
                continue
            if episode.outcome != "unknown":
                found.setdefault(task.id, []).append(episode.utility)
    return found


def episodes_of(
    split: Split, tasks: int, draws: int, model: CriticModel, prices: Prices, seed: int = 0
) -> dict[str, list[float]]:
    """Live episodes of the planted repairer on tasks of a split."""
    world = RepairWorld(origin="generated")
    with Tree.memory() as tree:
        bench = RepairBench(tree, world, repairer(SKILL), seed=seed)
        return played(bench, world.tasks(split, tasks, seed), draws, model, prices)


@dataclass(frozen=True, slots=True)
class Live:
    """What one cell came to: live episodes against the prediction, replays against every rule."""

    predicted: float
    realised: float
    z: float
    comparison: Comparison
    replays: dict[str, Replay]
    episodes: int


def fitted(records: Sequence[Record]) -> CriticModel:
    """The critic model of calibration records at the stated prices."""
    return fit_critics(records, COSTS)


def cell_of(model: CriticModel, prices: Prices, live: dict[str, list[float]], held: Sequence[Record]) -> Live:
    """Put live episodes beside the value that the model promises, and replayed policies beside each other."""
    controller = BayesController(model, prices, HORIZON, "retry")
    predicted = worth(controller, in_floats(model, prices, HORIZON, "retry"))
    means = np.array([np.mean(values) for values in live.values()])
    error = float(means.std(ddof=1) / np.sqrt(means.size))
    policies = {"dp": controller} | every_rule(model, HORIZON)
    found = {
        name: replay(policy, held, model, prices, horizon=HORIZON, verify="retry")
        for name, policy in policies.items()
    }
    return Live(
        predicted,
        float(means.mean()),
        (float(means.mean()) - predicted) / error,
        compare(found, "dp", np.random.default_rng(0), resamples=2000),
        found,
        sum(map(len, live.values())),
    )
