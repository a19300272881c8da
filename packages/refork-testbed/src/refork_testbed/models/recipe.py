"""What a recipe is: data or a parent, shape, training and how success is measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from refork.policies.base import Sampling
from refork.types import Json, Message
from refork_methods.train.loop import TreeTraining
from refork_methods.train.sft import SftSettings

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
class Made:
    """What a training left behind beside the model's folder: rows of its log, and facts for the card."""

    log: list[Json]
    facts: Json
