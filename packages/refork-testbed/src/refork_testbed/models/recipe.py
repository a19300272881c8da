"""What a recipe is: data or a parent, shape, training and how success is measured; four kinds of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from refork.policies.base import Sampling
from refork.progress import Progress
from refork.types import Json, Message
from refork.worlds.environment import EnvTrajectory
from refork_methods.train.loop import TreeTraining
from refork_methods.train.sft import SftSettings

if TYPE_CHECKING:
    from refork.policies.local import LocalPolicy

Conversation = Sequence[Message]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A Llama-type transformer with tied embeddings; ``context`` is in tokens.

    ``spread`` is the standard deviation of the initial weights. At this width the usual 0.02 leaves attention
    flat for hundreds of steps; with 0.1 these models learn to copy from their context several times sooner.
    """

    layers: int
    width: int
    heads: int
    hidden: int
    context: int
    spread: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One organism, trained from scratch.

    ``words`` gives the words that are tokens of their own; ``conversations`` the training data, the same
    on every call. ``world`` is where success is measured: one rollout of each of ``tasks`` held-out
    tasks under ``sampling``; None measures nothing.
    """

    name: str
    summary: str
    data: str
    words: Callable[[], Sequence[str]]
    conversations: Callable[[], Sequence[Conversation]]
    shape: Shape
    training: SftSettings
    world: str | None = None
    tasks: int = 200
    sampling: Sampling = field(default_factory=lambda: Sampling(max_tokens=32))
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reinforced:
    """One organism, trained from another one by reinforcement on the training tasks of ``world``.

    ``training`` runs (groups of independent rollouts, GRPO's advantages) until an update in which at least a
    share ``until`` of the rollouts succeeds. ``seed`` draws the tasks; the chance of rollouts is
    ``training``'s. Success is measured as for a :class:`Recipe`.
    """

    name: str
    summary: str
    data: str
    parent: str
    world: str
    training: TreeTraining
    until: float
    sampling: Sampling
    tasks: int = 200
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Stage:
    """Training at one depth: ``layers`` in all, then so many steps in bfloat16."""

    layers: int
    training: SftSettings


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Texts never trained on, and their answers' cost under the distribution that made them (nats in all)."""

    conversations: Sequence[Conversation]
    surprise: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """One organism trained from scratch and grown on the way, to be large in minutes.

    It starts with the layers of the first of ``stages``; before each later one, blocks that change nothing
    yet are inserted evenly. ``shape`` is what it ends with. Success is the loss on ``held_out`` texts beside
    that of the distribution that made them, in nats per learned token.
    """

    name: str
    summary: str
    data: str
    words: Callable[[], Sequence[str]]
    conversations: Callable[[], Sequence[Conversation]]
    held_out: Callable[[], HeldOut]
    shape: Shape
    stages: tuple[Stage, ...]
    threads: int = 2
    world: None = None
    sampling: Sampling = field(default_factory=lambda: Sampling(max_tokens=32))
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Made:
    """What a training left behind beside the model's folder: rows of its log, and facts for the card."""

    log: list[Json]
    facts: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """One organism that a function trains in place, from a new model or from another organism.

    ``begin`` gives the new model where there is no ``parent``. ``train`` is called with the policy; the
    ``how`` of the facts that it leaves is the card's line on it. ``measure`` says in ``told`` how well the
    organism does, on what it never saw; ``world`` is the one that it acts in, if it acts. ``reads`` gives the
    trajectories that it learned from, if they are such: they are named beside the weights, and evaluations
    refuse them.
    """

    name: str
    summary: str
    data: str
    train: Callable[[LocalPolicy, Progress], Made]
    measure: Callable[[LocalPolicy, Progress], Json]
    parent: str | None = None
    begin: Callable[[Progress], LocalPolicy] | None = None
    reads: Callable[[], Iterable[EnvTrajectory]] | None = None
    world: str | None = None
    sampling: Sampling = field(default_factory=lambda: Sampling(max_tokens=128))
    seed: int = 0


AnyRecipe: TypeAlias = Recipe | Reinforced | Grown | Staged
