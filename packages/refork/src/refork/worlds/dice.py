"""Seeded choices for building tasks, and the rule that splits tasks.

The numbers come from Refork's own counter-based noise, so a layout is the same under every NumPy.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, TypeVar, final

from refork.sampling.noise import NoiseKey, stream_of, uniforms
from refork.worlds.base import Split

T = TypeVar("T")
_BLOCK = 64


@final
class Dice:
    """A stream of choices that is a pure function of the parts that name it."""

    def __init__(self, *parts: object) -> None:
        self._key = NoiseKey(stream_of("dice", *parts), 0, 0)
        self._used = 0
        self._block: list[float] = []

    def uniform(self) -> float:
        """A number in (0, 1)."""
        # Uniforms are addressed by their place in the stream, so blocks of any size give the same numbers.
        at = self._used % _BLOCK
        if at == 0:
            self._block = [float(u) for u in uniforms([self._key], _BLOCK, self._used)[0]]
        self._used += 1
        return self._block[at]

    def below(self, bound: int) -> int:
        """A number in 0 .. bound - 1."""
        # A product that is rounded up to the bound must not leave the range.
        return min(int(self.uniform() * bound), bound - 1)

    def choice(self, items: Sequence[T]) -> T:
        """One of the items."""
        return items[self.below(len(items))]

    def sample(self, items: Sequence[T], count: int) -> list[T]:
        """``count`` different items in random order."""
        pool = list(items)
        for i in range(count):
            j = i + self.below(len(pool) - i)
            pool[i], pool[j] = pool[j], pool[i]
        return pool[:count]


def digest(*parts: Any) -> str:
    """A stable 32-digit hex digest of JSON-able parts, keys sorted."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def split_of(content: str) -> Split:
    """The split a task belongs to, decided by the digest of its content alone: one in four is held out.

    So the same content can never stand in both splits, whatever the seed or count.
    """
    return "held-out" if int(digest("split", content)[:8], 16) % 4 == 0 else "train"
