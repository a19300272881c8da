"""Rollouts on a tree for trainers of routers: a real world, real workers, a head that picks who speaks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias, final

import numpy as np
from jaxtyping import Float, Int

from refork.errors import BadInput
from refork.forking.arm import Fork, prepare, run_jobs
from refork.growing.plant import plant
from refork.policies.base import Request, Sampling
from refork.policies.relay import NextSpeaker
from refork.sampling.noise import stream_of
from refork.tree.node import Trajectory
from refork.tree.tree import Tree
from refork.types import Message
from refork.worlds.base import Task, World
from refork_methods.route.acting import Episode, Episodes, Router, gather
from refork_methods.route.backbone import RouterBackbone
from refork_methods.route.head import SelectionHead
from refork_methods.route.pool import WorkerPool
from refork_methods.route.runs import relay, speaker, turn_cost, turns_of
from refork_methods.route.svf import SvfAdapter

#: States [n, d] of conversations, where no backbone reads them.
Reader: TypeAlias = Callable[[Sequence[Sequence[Message]]], Float[np.ndarray, "n d"]]


@final
class TreeRollouts:
    """Tasks of a world, done by a pool under any router; every run is recorded on ``tree`` (default: memory).

    Before each turn the conversation so far is read by ``reader`` (a backbone, or a function that gives
    states) and the router names who speaks. Luck is a function of the task, its place among equal tasks and
    the seed, so two routers that choose alike get the same run. A worker's error is its run's outcome.
    ``score`` is the name of the tree's score that counts, in [0, 1].

    Raises: BadInput for no task, or a head with offsets and no backbone that could take them.
    """

    def __init__(
        self,
        pool: WorkerPool,
        world: World,
        tasks: Sequence[Task],
        reader: RouterBackbone | Reader,
        *,
        tree: Tree | None = None,
        settings: Sampling | None = None,
        score: str = "success",
        adapter: SvfAdapter | None = None,
    ) -> None:
        if not tasks:
            raise BadInput("there is no task to roll out", where=world.name)
        self.pool, self.tree = pool, tree if tree is not None else Tree.memory()
        self.workers, self.open = pool.names, pool.open
        self.unpriced = tuple(name for name in pool.open if pool[name].price is None)
        self.size, self.max_turns, self.name = len(tasks), world.max_turns, world.name
        self._world, self._tasks, self._reader = world, tuple(tasks), reader
        self._settings, self._score, self._adapter = settings or Sampling(), score, adapter

    def __call__(self, router: Router, tasks: Int[np.ndarray, "n"], seed: int) -> Episodes:
        """One recorded run of each task. Raises CannotDo where all of them fail."""
        counts = Counter(tasks.tolist())
        rows: dict[tuple[int, int], int] = {}
        rule = _Rule(self._states, router, self.pool, rows)
        policy = relay(self.pool, rule, dict(router.identity), "relay:head")
        points = plant(self.tree, policy, self._world, [self._tasks[i] for i in counts])
        seen: Counter[int] = Counter()
        streams = {task: stream_of(point.address) for task, point in zip(counts, points, strict=True)}
        for row, task in enumerate(tasks.tolist()):
            rows[streams[task], seen[task]] = row
            seen[task] += 1
        jobs = [
            prepare(point, policy, count, settings=self._settings, world=self._world, seed=seed)
            for point, count in zip(points, counts.values(), strict=True)
        ]
        with self._moved(router.head):
            forks = run_jobs(jobs)
        return self._gathered(forks, list(counts), streams, rows)

    def _gathered(
        self,
        forks: Sequence[Fork],
        tasks: Sequence[int],
        streams: dict[int, int],
        rows: dict[tuple[int, int], int],
    ) -> Episodes:
        found: list[Episode | None] = [None] * len(rows)
        reason: str | None = None
        for arm, task in zip(forks, tasks, strict=True):
            for draw, walk, value in zip(arm.draws, arm.leaves(), arm.values(self._score), strict=True):
                row = rows.get((streams[task], draw.draw))
                if row is None:
                    continue  # drawn by an earlier call that wanted more of this task
                if draw.end == "error" or value is None:
                    reason = reason or f"{self._tasks[task].id}: {draw.error or 'nobody graded this run'}"
                    continue
                found[row] = self._episode(walk, value)
        return gather(found, len(self.workers), reason)

    def _episode(self, walk: Trajectory, value: float) -> Episode:
        said = [speaker(turn[0], self.pool) for turn in turns_of(walk)]
        bills = [
            None if name is None else self.pool[name].bill(turn_cost(walk, number))
            for number, name in enumerate(said)
        ]
        known = [bill for bill in bills if bill is not None]
        used = tuple(self.pool.index(name) for name in said if name is not None)
        return Episode(value, used, sum(known) if len(known) == len(bills) else None)

    def _states(self, talks: Sequence[Sequence[Message]]) -> Float[np.ndarray, "n d"]:
        if isinstance(self._reader, RouterBackbone):
            return self._reader.states(talks)
        return np.asarray(self._reader(talks), dtype=np.float64)

    @contextmanager
    def _moved(self, head: SelectionHead) -> Iterator[None]:
        """The backbone as the head wants it."""
        if head.offsets is None:
            yield
            return
        if not isinstance(self._reader, RouterBackbone):
            raise BadInput("the head has offsets and nothing reads with a backbone")
        if self._adapter is None or tuple(self._adapter.counts) != head.matrices:
            self._adapter = self._reader.adapter(head.matrices)
        with self._reader.moved(self._adapter, head.offsets):
            yield


@final
class _Rule:
    """Who speaks next, as a relay asks for it: states of the conversations, then the router."""

    def __init__(
        self,
        states: Reader,
        router: Router,
        pool: WorkerPool,
        rows: dict[tuple[int, int], int],
    ) -> None:
        self._states, self._chooser, self._pool, self._rows = states, router, pool, rows

    def __call__(self, requests: Sequence[Request]) -> list[NextSpeaker]:
        """One turn per request."""
        talks = [list(request.messages or ()) for request in requests]
        rows = np.array([self._rows[request.noise.stream, request.noise.draw] for request in requests])
        picks = self._chooser.choose(self._states(talks), rows)
        return [NextSpeaker(self._pool.names[int(pick)]) for pick in picks]
