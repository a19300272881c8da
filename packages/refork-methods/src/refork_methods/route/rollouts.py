"""Rollouts that a router is trained on: what a trainer needs of an environment, a tree as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, TypeAlias, final

import numpy as np
from jaxtyping import Bool, Float, Int

from refork.errors import BadInput, CannotDo
from refork.forking.arm import Fork, prepare, run_jobs
from refork.growing.plant import plant
from refork.plain import content_hash
from refork.policies.base import Request, Sampling
from refork.registry import part
from refork.sampling.noise import stream_of
from refork.tree.node import Trajectory
from refork.tree.tree import Tree
from refork.types import Json, Message
from refork.worlds.base import Task, World
from refork.worlds.open import open_world
from refork_methods.route.backbone import RouterBackbone
from refork_methods.route.head import HeadCard, SelectionHead, load_head
from refork_methods.route.pool import WorkerPool
from refork_methods.route.relay import NextSpeaker
from refork_methods.route.runs import relay, speaker, turn_cost, turns_of
from refork_methods.route.svf import SvfAdapter

# What a trainer of routers needs of an environment: rollouts, each with what it earned and used.


class Router(Protocol):
    """Who picks a worker at every turn of every rollout."""

    @property
    def head(self) -> SelectionHead:
        """The head behind it, with the offsets of its backbone if it has some."""
        ...

    @property
    def identity(self) -> Json:
        """What tells it from any other router, for the record of its runs."""
        ...

    def choose(self, states: Float[np.ndarray, "m d"], rows: Int[np.ndarray, "m"]) -> Int[np.ndarray, "m"]:
        """The workers for some turns: a state of each, and which rollout of the batch it belongs to."""
        ...


@final
@dataclass(frozen=True, slots=True)
class Greedy:
    """The likeliest open worker, as a head is served."""

    head: SelectionHead
    open: Collection[str] | None = None

    @property
    def identity(self) -> Json:
        """The head's digest."""
        return {"router": "greedy", "head": self.head.digest}

    def choose(self, states: Float[np.ndarray, "m d"], rows: Int[np.ndarray, "m"]) -> Int[np.ndarray, "m"]:
        """Argmax."""
        del rows
        return self.head.choose(states, self.open)


@final
@dataclass(frozen=True, slots=True)
class Drawn:
    """A worker drawn with the head's chances; ``turns`` keeps (states, rows, workers) of every draw."""

    head: SelectionHead
    rng: np.random.Generator
    open: Collection[str] | None = None
    turns: list[tuple[Float[np.ndarray, "m d"], Int[np.ndarray, "m"], Int[np.ndarray, "m"]]] = field(
        default_factory=list
    )

    @property
    def identity(self) -> Json:
        """The head's digest and the state of the dice."""
        return {"router": "drawn", "head": self.head.digest, "dice": repr(self.rng.bit_generator.state)}

    def choose(self, states: Float[np.ndarray, "m d"], rows: Int[np.ndarray, "m"]) -> Int[np.ndarray, "m"]:
        """Draw."""
        # The last edge may miss 1 by rounding: luck scaled to it never falls beyond the last worker.
        edges = self.head.probabilities(states, self.open).cumsum(axis=1)
        luck = self.rng.random((len(edges), 1)) * edges[:, -1:]
        picks = np.asarray((luck >= edges).sum(axis=1))
        self.turns.append((states, rows, picks))
        return picks


@final
@dataclass(frozen=True, slots=True, eq=False)
class Episodes:
    """What n rollouts came to: ``reward`` in [0, 1], ``turns`` taken, ``uses`` of each worker, ``cost``.

    A cost of NaN is unknown. ``failed`` ones broke off by an error: their reward is 0, and ``reason`` is the
    first one's.

    Raises: BadInput for a reward that is NaN or out of range, or shapes that do not fit.
    """

    reward: Float[np.ndarray, "n"]
    turns: Int[np.ndarray, "n"]
    uses: Int[np.ndarray, "n workers"]
    cost: Float[np.ndarray, "n"]
    failed: Bool[np.ndarray, "n"]
    reason: str | None = None

    def __post_init__(self) -> None:
        n = self.reward.size
        lengths = {len(one) for one in (self.turns, self.uses, self.cost, self.failed)}
        if n == 0 or self.uses.ndim != 2 or lengths != {n}:
            raise BadInput("rollouts must have one reward, turns, uses, cost and failure each, and be some")
        # Not the other way round, for NaN is neither below 0 nor above 1.
        wrong = ~((self.reward >= 0) & (self.reward <= 1))
        if wrong.any():
            raise BadInput(
                f"a reward of {self.reward[wrong][0]} is outside 0 .. 1",
                where=f"rollout {int(wrong.argmax())}",
            )

    def __len__(self) -> int:
        return int(self.reward.size)

    @property
    def entropy(self) -> float:
        """Entropy in nats of which workers were used, over all turns of all rollouts; 0 where none was."""
        total = self.uses.sum(axis=0)
        share = total[total > 0] / max(int(total.sum()), 1)
        # Adding 0 makes 0 of the -0.0 of a single worker.
        return float(-(share * np.log(share)).sum()) + 0.0


class Rollouts(Protocol):
    """An environment, seen from a trainer."""

    @property
    def workers(self) -> tuple[str, ...]:
        """Who may be chosen, in the order of a head's rows."""
        ...

    @property
    def open(self) -> Collection[str] | None:
        """Who of them may be called; None for all."""
        ...

    @property
    def unpriced(self) -> Collection[str]:
        """Open workers whose price is unknown."""
        ...

    @property
    def size(self) -> int:
        """How many tasks there are: they are numbered from 0."""
        ...

    @property
    def max_turns(self) -> int:
        """Most turns of a rollout."""
        ...

    @property
    def name(self) -> str:
        """What it is, with all that decides its rollouts beside the router, for the record of a run."""
        ...

    def __call__(self, router: Router, tasks: Int[np.ndarray, "n"], seed: int) -> Episodes:
        """One rollout of each task.

        The same router, tasks and seed give the same rollouts, and the luck of a rollout is a function of
        its task, its place and the seed only: candidates meet the same luck.
        """
        ...


@final
@dataclass(frozen=True, slots=True)
class Episode:
    """One rollout: its reward, the workers used turn by turn, and its cost (None: unknown)."""

    reward: float
    used: tuple[int, ...]
    cost: float | None = None


def gather(result: list[Episode | None], workers: int, reason: str | None = None) -> Episodes:
    """Single rollouts as a batch; None is one that failed. Raises CannotDo where all did."""
    if result and all(one is None for one in result):
        raise CannotDo(f"all {len(result)} rollouts failed: {reason}", hint="run one task by hand first")
    done = [one or Episode(0.0, ()) for one in result]
    uses = np.stack([np.bincount(np.array(one.used, dtype=np.int64), minlength=workers) for one in done])
    return Episodes(
        np.array([one.reward for one in done], dtype=np.float64),
        np.array([len(one.used) for one in done]),
        uses,
        np.array([np.nan if one.cost is None else one.cost for one in done], dtype=np.float64),
        np.array([one is None for one in result]),
        reason,
    )


# Rollouts on a tree for trainers of routers: a real world, real workers, a head that picks who speaks.

#: States [n, d] of conversations, where no backbone reads them.
Reader: TypeAlias = Callable[[Sequence[Sequence[Message]]], Float[np.ndarray, "n d"]]


@final
class TreeRollouts:
    """Tasks of a world, done by a pool under any router; every run is recorded on ``tree`` (default: memory).

    Before each turn the conversation so far is read by ``reader`` (a backbone, or a function that gives
    states) and the router names who speaks. Luck is a function of the task, its place among equal tasks and
    the seed, so two routers that choose alike get the same run. A worker's error is its run's outcome.
    The tree's score ``success`` counts.

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
    ) -> None:
        if not tasks:
            raise BadInput("there is no task to roll out", where=world.name)
        self.pool, self.tree = pool, tree if tree is not None else Tree.memory()
        self.workers, self.open = pool.names, pool.open
        self.unpriced = tuple(name for name in pool.open if pool[name].price is None)
        self.size, self.max_turns = len(tasks), world.max_turns
        self._world, self._tasks, self._reader = world, tuple(tasks), reader
        self._settings = settings or Sampling()
        self.name = f"{world.name} {self._digest()[:12]}"
        self._adapter: SvfAdapter | None = None

    def _digest(self) -> str:
        """Of the world with its rewards, the tasks, and how each worker answers and is paid."""
        tasks = [one.id for one in self._tasks]
        return content_hash([self._world.version, tasks, self._settings.to_json(), self.pool.identity])

    def __call__(self, router: Router, tasks: Int[np.ndarray, "n"], seed: int) -> Episodes:
        """One recorded run of each task. Raises CannotDo where all of them fail."""
        # Equal tasks of a batch are draws of one point; a row of the batch is found again by (stream, draw).
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
            for draw, trajectory, value in zip(arm.draws, arm.leaves(), arm.values("success"), strict=True):
                row = rows.get((streams[task], draw.draw))
                if row is None:
                    continue  # drawn by an earlier call that wanted more of this task
                if draw.end == "error" or value is None:
                    reason = reason or f"{self._tasks[task].id}: {draw.error or 'nobody graded this run'}"
                    continue
                found[row] = self._episode(trajectory, value)
        return gather(found, len(self.workers), reason)

    def _episode(self, trajectory: Trajectory, value: float) -> Episode:
        said = [speaker(turn[0], self.pool) for turn in turns_of(trajectory)]
        bills = [
            None if name is None else self.pool[name].bill(turn_cost(trajectory, number))
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


# What stage 2 begins with, by name: an environment to train and to test in, and a head to begin from.


def open_rollouts(
    world: str,
    pool: WorkerPool | None,
    backbone: RouterBackbone | None,
    folder: Path,
    *,
    tasks: int,
    test: int,
    seed: int,
    settings: Sampling | None = None,
) -> tuple[Rollouts, Rollouts, int]:
    """Rollouts to train and to test on (no task in common), and the width of a state.

    ``scaffold`` is the planted environment; any other world is done by the pool, recorded in FOLDER/tree.db.

    Raises: BadInput for a world without pool or backbone, and as the world itself.
    """
    if world == "scaffold":
        scaffold = part("route.scaffold", "refork-testbed")
        return scaffold(seed), scaffold(seed, size=test, split=1), scaffold.WIDTH
    if pool is None or backbone is None:
        raise BadInput("a world needs --pool (who works) and --backbone (what the head reads)")
    place = open_world(world)
    train, held = place.tasks("train", tasks, seed), place.tasks("held-out", test, seed)
    folder.mkdir(parents=True, exist_ok=True)
    tree = Tree.open(folder / "tree.db")
    # One state is read to learn its width, which no card tells.
    width = int(backbone.states([held[0].prompt]).shape[1])
    first, second = (
        TreeRollouts(pool, place, part, backbone, tree=tree, settings=settings) for part in (train, held)
    )
    return first, second, width


def starting_head(
    folder: Path | None,
    workers: tuple[str, ...],
    width: int,
    backbone: RouterBackbone | None,
    *,
    svf: bool = False,
    roles: Sequence[str] = (),
) -> tuple[SelectionHead, HeadCard | None]:
    """A head from a folder (checked against the backbone), or zeros; ``svf`` gives it offsets of 0.

    ``roles``: of a head of zeros, and rows of 0 for a head from a folder that has none.

    Raises: Mismatch and WrongWeights as :meth:`SelectionHead.require`; BadInput for offsets of no backbone.
    """
    card: HeadCard | None = None
    if folder is not None:
        head, card = load_head(folder)
        if roles and not head.roles:
            weights = np.concatenate([head.weights, np.zeros((len(roles), head.width))])
            bias = None if head.bias is None else np.concatenate([head.bias, np.zeros(len(roles))])
            head = replace(head, weights=weights, roles=tuple(roles), bias=bias)
        if backbone is not None:
            head.require(backbone, str(folder))
    else:
        head = SelectionHead.zero(workers, width, roles)
        head = head.on(backbone) if backbone is not None else head
    if svf and head.offsets is None:
        if backbone is None:
            raise BadInput("singular values are moved in a backbone", hint="name one with --backbone")
        adapter = backbone.adapter()
        head = head.with_offsets(tuple(adapter.counts), adapter.zeros().cpu().numpy())
    return head, card
