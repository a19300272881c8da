"""What a recipe is: data, shape, training and how success is measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ramify.core.policy.base import Sampling
from ramify.core.types import Message
from ramify.learn.train.sft import SftSettings

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
    """One organism.

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
