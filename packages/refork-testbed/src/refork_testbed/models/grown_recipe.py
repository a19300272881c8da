"""What the recipe of a grown organism is: stages of depth, and the law that its loss is held against."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from refork.policies.base import Sampling
from refork_methods.train.sft import SftSettings
from refork_testbed.models.recipe import Conversation, Shape


@dataclass(frozen=True, slots=True)
class Stage:
    """Training at one depth: ``layers`` in all, then so many steps in bfloat16."""

    layers: int
    training: SftSettings


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Texts never trained on, and what their answers cost under the law that made them (nats in all)."""

    conversations: Sequence[Conversation]
    surprise: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """One organism trained from scratch and grown on the way, to be large in minutes.

    It starts with the layers of the first of ``stages``; before each later one, blocks that change nothing
    yet are inserted evenly. ``shape`` is what it ends with. Success is the loss on ``held_out`` texts beside
    that of the law that made them, in nats per learned token.
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
