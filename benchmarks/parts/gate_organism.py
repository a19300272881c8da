"""The gate over a trained writer: the organism ``repair-writer`` mends real packages, and errs as it will.

Rates are fitted on some of the mutations it has never seen and used on others, live by the planned controller
and replayed by every rule. The beliefs are put beside the writer's own sequence probability. One critic is
counted twice without saying so, to see that calibration suffers and that the independence test finds it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from parts.gate_live import COSTS, HORIZON, PRICES, Live, cell_of, played
from refork.forking.arm import prepare, run_jobs
from refork.growing.plant import plant
from refork.plain import to_json
from refork.policies.base import Sampling
from refork.policies.local import LocalPolicy
from refork.tree.tree import Tree
from refork.types import Json
from refork.worlds.base import Task
from refork.worlds.open import open_world
from refork_methods.gate import CriticModel, Prices
from refork_methods.gate.fit import fit_critics
from refork_methods.gate.independence import independence
from refork_methods.gate.live import collect_records
from refork_methods.gate.on_tree import Candidate
from refork_methods.gate.records import Record
from refork_methods.gate.score import Scores, prr, score
from refork_testbed.models import build, find
from refork_testbed.trials.gate_repairs import RepairBench
from refork_testbed.worlds.repair.world import RepairWorld

ORGANISM = "repair-writer"
TASKS = 200
#: A candidate of a chain: instance, draw, step.
Key = tuple[str, str, int | None]


def split_tasks(count: int, seed: int = 0) -> tuple[list[Task], list[Task]]:
    """Held-out mutations to fit on and as many others to measure on; the projects are the same."""
    world, _ = _world()
    both = world.tasks("held-out", 2 * count, seed)
    return both[:count], both[count:]


def organism_records(
    tasks: Sequence[Task], draws: int = 1, seed: int = 0
) -> tuple[list[Record], dict[Key, tuple[float, float]]]:
    """Chains of three candidates, judged by all; and each candidate's sum and mean token log-probability."""
    said: list[tuple[float, float]] = []

    def digest(candidate: Candidate) -> str:
        chances = candidate.node.logprobs
        assert chances is not None
        said.append((float(chances.sum()), float(chances.mean())))
        return candidate.digest

    with _bench(tasks, draws, seed) as bench:
        records = collect_records(
            {task.id: bench.open(task) for task in tasks}, digest, draws=draws, steps=HORIZON
        )
    keys = [(record.instance, record.candidate, record.step) for record in records]
    return records, dict(zip(keys, said, strict=True))


def organism_episodes(
    tasks: Sequence[Task], model: CriticModel, prices: Prices, draws: int = 1, seed: int = 1
) -> dict[str, list[float]]:
    """Utilities of live episodes of the planned controller, by task; ``seed`` is not that of the records."""
    with _bench(tasks, draws, seed) as bench:
        return played(bench, tasks, draws, model, prices)


@dataclass(frozen=True, slots=True)
class Rivals:
    """Prediction-rejection ratios on the same candidates: the belief, and the writer's own probability.

    ``low`` is the lower end of the 95 % bootstrap interval (tasks drawn whole) of the belief's lead over the
    better of the two ways to take that probability.
    """

    belief: float
    total: float
    mean: float
    low: float
    cases: int


def rivals(scores: Scores, said: Mapping[Key, tuple[float, float]], resamples: int = 1000) -> Rivals:
    """Put beliefs beside the sum and the mean of token log-probabilities."""
    right = np.array([float(bool(r.right)) for r in scores.records])
    own = np.array([said[r.instance, r.candidate, r.step] for r in scores.records])
    columns = np.column_stack([scores.beliefs, own])
    names = sorted({r.instance for r in scores.records})
    rows = {name: [] for name in names}
    for row, record in enumerate(scores.records):
        rows[record.instance].append(row)
    generator = np.random.default_rng(0)
    leads = []
    for _ in range(resamples):
        drawn = np.concatenate([rows[names[i]] for i in generator.integers(len(names), size=len(names))])
        values = _ratios(columns[drawn], right[drawn])
        leads.append(values[0] - max(values[1:]))
    belief, total, mean = _ratios(columns, right)
    return Rivals(belief, total, mean, float(np.quantile(leads, 0.025)), len(right))


def _ratios(columns: np.ndarray, right: np.ndarray) -> list[float]:
    found = [prr(column, right).value for column in columns.T]
    return [float("nan") if value is None else value for value in found]


@dataclass(frozen=True, slots=True)
class Doubled:
    """Calibration error of beliefs from one critic counted once and twice, and what the test says of it."""

    once: float
    twice: float
    flagged: bool


def doubled(fitted_on: Sequence[Record], held: Sequence[Record], critic: str = "ruff") -> Doubled:
    """Give a critic a second name and say nothing of it; no other critic is asked.

    Ruff, since on these candidates the public tests hardly err: whoever is nearly sure stays so.
    """
    again = f"{critic} again"
    first, second = _again(fitted_on, critic, again), _again(held, critic, again)
    prices = {critic: COSTS[critic], again: COSTS[critic]}
    once, twice = (
        score(fit_critics(first, prices, critics=names), second).rows[0].ece
        for names in ([critic], [critic, again])
    )
    assert once is not None
    assert twice is not None
    return Doubled(once, twice, (critic, again) in independence(first, [critic, again]).duplicates)


def _again(records: Sequence[Record], critic: str, again: str) -> list[Record]:
    return [replace(r, verdicts={**r.verdicts, again: r.verdicts.get(critic)}) for r in records]


@dataclass(frozen=True, slots=True)
class OrganismGate:
    """All that the organism's part comes to; ``cells`` by price of verifying."""

    model: CriticModel
    single: float
    cells: dict[str, Live]
    rivals: Rivals
    doubled: Doubled

    def to_json(self) -> Json:
        """The figures."""
        return {
            "single": self.single,
            "prior": self.model.start,
            "critics": {c.name: [c.right, c.wrong] for c in self.model.critics},
            "kernel": to_json(self.model.kernel),
            "cells": {
                name: {
                    "predicted": one.predicted, "realised": one.realised, "z": one.z,
                    "episodes": one.episodes, "replayed": one.comparison.best.mean,
                    "best_rule": one.comparison.best.rule,
                    "best_rule_mean": one.comparison.best.means[one.comparison.best.rule],
                    "low": one.comparison.best.gap.low, "high": one.comparison.best.gap.high,
                }
                for name, one in self.cells.items()
            },
            "prr": {
                "belief": self.rivals.belief, "logprob_sum": self.rivals.total,
                "logprob_mean": self.rivals.mean, "lead_low": self.rivals.low, "cases": self.rivals.cases,
            },
            "ece": [self.doubled.once, self.doubled.twice],
            "duplicate_flagged": self.doubled.flagged,
        }  # fmt: skip


def organism_gate(tasks: int = TASKS, prices: Mapping[str, Prices] = PRICES) -> OrganismGate:
    """Fit on ``tasks`` tasks, then one live episode and one recorded chain of each of as many others."""
    first, second = split_tasks(tasks)
    fitted_on, _ = organism_records(first)
    held, said = organism_records(second)
    model = fit_critics(fitted_on, COSTS)
    cells = {
        name: cell_of(model, cell, organism_episodes(second, model, cell), held)
        for name, cell in prices.items()
    }
    fresh = [r.right for r in held if r.step == 0 and r.right is not None]
    return OrganismGate(
        model, float(np.mean(fresh)), cells, rivals(score(model, held), said), doubled(fitted_on, held)
    )


def _world() -> tuple[RepairWorld, Sampling]:
    recipe = find(ORGANISM)
    assert recipe.world is not None
    world = open_world(recipe.world)
    assert isinstance(world, RepairWorld)
    return world, recipe.sampling


@contextmanager
def _bench(tasks: Sequence[Task], draws: int, seed: int) -> Iterator[RepairBench]:
    """The repair bench over the organism, which is built where it is not there.

    All first candidates are drawn in one batch; a writer then finds its own in the tree.
    """
    world, settings = _world()
    policy = LocalPolicy.load(str(build(ORGANISM)))
    with Tree.memory() as tree:
        roots = plant(tree, policy, world, tasks)
        run_jobs([prepare(root, policy, draws, settings=settings, seed=seed) for root in roots])
        yield RepairBench(tree, world, policy, settings, seed=seed)


def organism_part(tasks: int = TASKS) -> Json:
    """Print the figures of the organism's part, and give them under keys of their own."""
    began = time.monotonic()
    found = organism_gate(tasks).to_json()
    print(json.dumps(found | {"seconds": round(time.monotonic() - began)}, indent=1))
    cells, ratios = found["cells"], found["prr"]
    own = max(ratios["logprob_sum"], ratios["logprob_mean"])
    return {
        "organism_single": found["single"],
        "organism_live_z": {name: cell["z"] for name, cell in cells.items()},
        "organism_live_low": {name: cell["low"] for name, cell in cells.items()},
        "organism_prr_lead": ratios["belief"] - own,
        "organism_duplicate_flagged": found["duplicate_flagged"],
    }


def main() -> None:
    """Print the figures of the organism's part as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=TASKS)
    parser.add_argument("--cells", nargs="*", default=list(PRICES))
    told = parser.parse_args()
    began = time.monotonic()
    found = organism_gate(told.tasks, {name: PRICES[name] for name in told.cells})
    print(json.dumps(found.to_json() | {"seconds": round(time.monotonic() - began)}, indent=1))


if __name__ == "__main__":
    main()
