"""A planted environment, vectorised: workers who are others in a harness than alone, domains as features.

It is the :mod:`refork_testbed.worlds.specialists` world without its texts: the same skills and closed forms,
but a turn is a row of numbers, so that thousands of rollouts take milliseconds.
"""

from __future__ import annotations

from typing import Final, final

import numpy as np
from jaxtyping import Float, Int

from refork.errors import BadInput
from refork.plain import content_hash
from refork_methods.route.head import SelectionHead
from refork_methods.route.rollouts import Episodes, Greedy, Router
from refork_methods.route.table import OutcomeTable
from refork_testbed.worlds.specialists import ALONE, DOMAINS, HARNESS, TURNS, success, success_of

#: What exact reasoning says of whole runs in the harness.
ORACLE = success_of(tuple(int(i) for i in HARNESS.argmax(axis=0)))
ALONE_BEST = success_of(tuple(int(i) for i in ALONE.argmax(axis=0)))
BEST_SINGLE = max(success_of((i,) * len(DOMAINS)) for i in range(len(HARNESS)))
RANDOM = success(np.full(HARNESS.shape, 1 / len(HARNESS)))
WORKERS = tuple(f"worker {i}" for i in range(len(HARNESS)))


@final
class Scaffold:
    """Rollouts of three turns, each of a random domain; rewarded where every turn was right.

    A turn's state is its domain's direction plus noise, [d]. ``skills`` [workers, domains] default to those
    of the harness. Directions are of ``seed``; tasks are of ``seed`` and ``split``.

    Raises: BadInput for a width below 1, negative noise or no tasks.
    """

    WIDTH: Final = 32

    def __init__(
        self,
        seed: int = 0,
        *,
        d: int = WIDTH,
        noise: float = 0.3,
        size: int = 4096,
        split: int = 0,
        skills: Float[np.ndarray, "workers domains"] = HARNESS,
        price: float | None = None,
    ) -> None:
        if d < 1 or size < 1 or noise < 0:
            raise BadInput(f"a scaffold of width {d}, noise {noise} and {size} tasks")
        self.workers = WORKERS
        self.open = None
        self.unpriced = WORKERS if price is None else ()
        self.size = size
        self.max_turns = TURNS
        self.name = f"scaffold seed={seed} split={split} d={d} noise={noise}"
        self.name += "" if price is None else f" price={price}"
        self.name += "" if skills is HARNESS else f" skills={content_hash(skills.tolist())[:8]}"
        self._skills, self._price, self._noise = skills, price, noise
        # The number behind the seed keeps apart what is drawn: directions, tasks, questions, rollouts.
        self._directions = np.random.default_rng([seed, 0]).normal(size=(len(DOMAINS), d))
        self._seed, self._split = seed, split
        rng = np.random.default_rng([seed, 1, split])
        self._domains = rng.integers(len(DOMAINS), size=(size, TURNS))
        self._states = self.states(self._domains, rng)

    def states(self, domains: Int[np.ndarray, "..."], rng: np.random.Generator) -> Float[np.ndarray, "... d"]:
        """States of turns of given domains."""
        own = rng.normal(size=(*domains.shape, self._directions.shape[1]))
        return np.asarray(self._directions[domains] + self._noise * own)

    def __call__(self, router: Router, tasks: Int[np.ndarray, "n"], seed: int) -> Episodes:
        """One rollout of each task."""
        domains, states = self._domains[tasks], self._states[tasks]
        rows = np.repeat(np.arange(len(tasks)), TURNS)
        picks = router.choose(states.reshape(len(rows), -1), rows).reshape(domains.shape)
        luck = np.random.default_rng([seed, 4]).random(domains.shape)
        right = luck < self._skills[picks, domains]
        uses = (picks[:, :, None] == np.arange(len(WORKERS))).sum(axis=1)
        cost = np.full(len(tasks), np.nan if self._price is None else TURNS * self._price)
        turns = np.full(len(tasks), TURNS)
        failed = np.zeros(len(tasks), dtype=np.bool_)
        return Episodes(right.all(axis=1).astype(np.float64), turns, uses, cost, failed)

    def value(self, head: SelectionHead, states: int = 4000) -> float:
        """The chance that a whole run succeeds under argmax: exact in everything but which states there are.

        Domains are equally frequent among ``states`` fresh ones.
        """
        domains = np.arange(states) % len(DOMAINS)
        h = self.states(domains, np.random.default_rng([self._seed, 2, self._split]))
        return float(self._skills[head.choose(h), domains].mean() ** TURNS)

    def success(self, head: SelectionHead, runs: int = 4000, seed: int = 0) -> float:
        """Share of successful runs among ``runs`` rollouts of argmax, on tasks that were not trained on."""
        other = Scaffold(
            self._seed, d=self._directions.shape[1], noise=self._noise, size=runs, split=self._split + 1,
            skills=self._skills,
        )  # fmt: skip
        return float(other(Greedy(head), np.arange(runs), seed).reward.mean())

    def alone(self, queries: int = 400, repeats: int = 8) -> OutcomeTable:
        """What every worker earns on single questions, asked alone: what stage 1 is fitted on."""
        rng = np.random.default_rng([self._seed, 3])
        domains = np.arange(queries) % len(DOMAINS)
        chance = ALONE[:, domains].T[:, :, None]
        reward = (rng.random((queries, len(WORKERS), repeats)) < chance).astype(np.float64)
        return OutcomeTable.from_arrays(reward, WORKERS, features=self.states(domains, rng))
