"""What the learned allocator of leaves is worth: the share of mixed groups, at equal leaves.

Prompts have success rates of Beta(0.15, 0.45), a population in which most groups collapse; their rollouts are
independent. Each comes again in every epoch, as in training. Sides: the same leaves for all; leaves moved by
the posterior after four of them; the same with the model that learned from earlier epochs. Epochs that are
learned from are not reported. ``new`` are prompts that the model never saw. All decisions are made by the
shipped allocator; on real trees it must make the same ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np

from refork import stats
from refork.growing import UUCB, grow_trees
from refork.growing.allocator import AdaptiveBudgetAllocator, WarmUp, allot
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.tree import Tree
from refork.types import Json
from refork.worlds.lock import LockWorld, lock_distribution

LEAVES, FIRST = 8, 4
RATES = (0.15, 0.45)


@dataclass(slots=True)
class Prompts:
    """Prompts of known success rates; ``name`` keeps the histories of two sets apart."""

    name: str
    rates: np.ndarray

    def epoch(
        self, allocator: AdaptiveBudgetAllocator | None, seed: int, *, learn: bool = False
    ) -> np.ndarray:
        """Which groups of one epoch are mixed, [prompts], and how many leaves each had, as two rows."""
        won = np.random.default_rng([7, seed]).random((len(self.rates), 16 * LEAVES)) < self.rates[:, None]
        given = [LEAVES] * len(self.rates)
        tasks: list[WarmUp] = []
        if allocator is not None:
            tasks = self._warm_ups(allocator, won[:, :FIRST].sum(axis=1))
            given = allot(tasks, LEAVES, allocator.predict(tasks, LEAVES), cap=allocator.cap)
        count = np.array([int(row[:leaves].sum()) for row, leaves in zip(won, given, strict=True)])
        mixed = (count > 0) & (count < np.array(given))
        if allocator is not None and learn:
            allocator.log += [replace(t, uniform=not m) for t, m in zip(tasks, mixed.tolist(), strict=True)]
        return np.stack([mixed, np.array(given)])

    def _warm_ups(self, allocator: AdaptiveBudgetAllocator, wins: np.ndarray) -> list[WarmUp]:
        past: dict[str, list[bool]] = {}
        for one in allocator.log:
            past.setdefault(one.task, []).append(not one.uniform)
        everyone = [mixed for known in past.values() for mixed in known]
        mean = (sum(everyone) + 1) / (len(everyone) + 2)
        found = []
        for number, won in enumerate(wins.tolist()):
            name = f"{self.name}{number}"
            mine = past.get(name, [])
            rate = (sum(mine) + 2 * mean) / (len(mine) + 2)
            found.append(WarmUp(name, FIRST, won, 0.0, 0.0, 0.0, (won + 0.5) / (FIRST + 1), rate))
        return found


def learned_from(prompts: Prompts, seeds: Sequence[int], cap: float) -> AdaptiveBudgetAllocator:
    """An allocator after some epochs of its own."""
    found = AdaptiveBudgetAllocator(cap=cap)
    for seed in seeds:
        prompts.epoch(found, seed, learn=True)
    return found


def planted(prompts: int, runs: int, cap: float = 1.0) -> Json:
    """Shares over ``runs`` populations: four epochs to learn from, and two others that are reported."""
    rows: dict[str, list[float]] = {}
    leaves: dict[str, list[float]] = {}
    for run in range(runs):
        rng = np.random.default_rng([11, run])
        seen, new = (Prompts(name, rng.beta(*RATES, prompts)) for name in ("seen ", "new "))
        model = learned_from(seen, range(100 * run, 100 * run + 4), cap)
        for name, where, who in (
            ("fixed", seen, None), ("posterior", seen, AdaptiveBudgetAllocator(cap=cap)),
            ("learned", seen, model), ("new_learned", new, model),
            ("new_posterior", new, AdaptiveBudgetAllocator(cap=cap)),
        ):  # fmt: skip
            told = np.stack([where.epoch(who, 100 * run + 50 + i) for i in range(2)])
            rows.setdefault(name, []).append(float(told[:, 0].mean()))
            leaves.setdefault(name, []).append(float(told[:, 1].mean()))

    def gain(one: str, other: str) -> list[float]:
        found = stats.mean_interval(np.array(rows[one]) - np.array(rows[other]))
        return [round(v, 4) for v in (found.estimate, found.low, found.high)]

    return {
        "mixed": {name: round(float(np.mean(values)), 4) for name, values in rows.items()},
        "leaves": {name: round(float(np.mean(values)), 3) for name, values in leaves.items()},
        "learned_over_posterior": gain("learned", "posterior"),
        "posterior_over_fixed": gain("posterior", "fixed"),
        "new_learned_over_posterior": gain("new_learned", "new_posterior"),
    }


def _law(text: str) -> dict[str, float]:
    """A lock's choices, of which the first of each four is taken more often than in the world's own law."""
    own = lock_distribution(text)
    return own if len(own) == 1 else dict(zip(own, (0.6, 0.2, 0.1, 0.1), strict=True))


def on_trees(tasks: int, seeds: int) -> Json:
    """The allocator inside grow_trees: its leaves beside those of :func:`allot` for the same warm-ups."""
    world, policy = LockWorld(), ScriptedPolicy.from_text(_law, name="partial")
    chosen = [t for t in world.tasks("train", 40 * tasks) if t.data["right"].count("a") >= 2][:tasks]
    allocator, equal, total, spent = AdaptiveBudgetAllocator(cap=1.0), 0, 0, 0
    for seed in range(seeds):
        before = deepcopy(allocator)
        with Tree.memory() as tree:
            groups, _ = grow_trees(
                tree, policy, world, chosen, selector=UUCB(roots=FIRST, at_once=4), leaves=LEAVES,
                settings=Sampling(max_tokens=32), seed=seed, allocator=allocator,
            )  # fmt: skip
            drawn = [len(group.values()) for group in groups]
        seen = allocator.log[len(before.log) :]
        wanted = allot(seen, LEAVES, before.predict(seen, LEAVES), cap=1.0)
        equal += sum(a == b for a, b in zip(drawn, wanted, strict=True))
        total += len(drawn)
        spent += sum(drawn)
    return {"equal": equal / total, "leaves": spent / total}


def all_parts(quick: bool) -> Json:
    """Figures of the benchmark; printed as a table too."""
    told = planted(100 if quick else 200, 4 if quick else 20)
    more = planted(100 if quick else 200, 4 if quick else 20, cap=1.05)
    real = on_trees(12 if quick else 40, 2)
    print(f"\nleaves moved between prompts of Beta{RATES}, {LEAVES} leaves each: share of mixed groups")
    for name, value in told["mixed"].items():
        leaves = told["leaves"][name]
        print(f"{name:14s} {value:.3f} at {leaves:.2f} leaves; {more['mixed'][name]:.3f} at 5 % more")
    for name in ("posterior_over_fixed", "learned_over_posterior", "new_learned_over_posterior"):
        print("{:27s} {:+.3f} [{:+.3f}, {:+.3f}]".format(name, *told[name]))
    print(f"on real trees {real['equal']:.0%} of the allotments are equal, {real['leaves']:.2f} leaves each")
    return {
        "allocator": told | {"real": real},
        "allocator_fixed": told["mixed"]["fixed"],
        "allocator_posterior": told["mixed"]["posterior"],
        "allocator_learned": told["mixed"]["learned"],
        "allocator_gain_low": told["learned_over_posterior"][1],
        "allocator_new_gain": told["new_learned_over_posterior"][0],
        "allocator_cap": more["mixed"]["learned"],
        "allocator_real_equal": real["equal"],
    }
