"""What a trainer of routers needs of an environment: rollouts, each with what it earned and used."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol, final

import numpy as np
from jaxtyping import Bool, Float, Int

from refork.errors import BadInput, CannotDo, UserError
from refork.types import Json
from refork_methods.route.head import SelectionHead


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
        """What it is, for the record of a run."""
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


@final
@dataclass(frozen=True, slots=True)
class OneByOne:
    """An environment made of any function of (router, task, place in the batch, seed).

    An error that the function raises is that rollout's outcome: reward 0, counted, the first reason kept.
    """

    function: Callable[[Router, int, int, int], Episode]
    workers: tuple[str, ...]
    size: int
    max_turns: int
    name: str = "function"
    open: Collection[str] | None = None
    unpriced: Collection[str] = ()

    def __call__(self, router: Router, tasks: Int[np.ndarray, "n"], seed: int) -> Episodes:
        """Run them in order. Raises CannotDo where all of them fail."""
        found: list[Episode | None] = []
        reason: str | None = None
        for place, task in enumerate(tasks.tolist()):
            try:
                found.append(self.function(router, task, place, seed))
            except UserError as error:
                found.append(None)
                reason = reason or f"task {task}: {error.what}"
        return gather(found, len(self.workers), reason)


def gather(found: list[Episode | None], workers: int, reason: str | None = None) -> Episodes:
    """Single rollouts as a batch; None is one that failed. Raises CannotDo where all did."""
    if found and all(one is None for one in found):
        raise CannotDo(f"all {len(found)} rollouts failed: {reason}", hint="run one task by hand first")
    done = [one or Episode(0.0, ()) for one in found]
    uses = np.stack([np.bincount(np.array(one.used, dtype=np.int64), minlength=workers) for one in done])
    return Episodes(
        np.array([one.reward for one in done], dtype=np.float64),
        np.array([len(one.used) for one in done]),
        uses,
        np.array([np.nan if one.cost is None else one.cost for one in done], dtype=np.float64),
        np.array([one is None for one in found]),
        reason,
    )
