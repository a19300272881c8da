"""Chance that can be seeded, or gone through in full: what simulated workers flip.

A program that takes its chance from :class:`Coins` alone can be run with seeded coins, or once for every
outcome of them (:func:`every_outcome`), which gives exact probabilities from the very code that is sampled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar, final

from refork.errors import BadInput
from refork.sampling.noise import stream_of

T = TypeVar("T")
#: More outcomes than this are a mistake in what is enumerated.
MOST = 1 << 16


class Coins(Protocol):
    """Chance: whether something of a given probability happens, addressed by what it is."""

    def __call__(self, chance: float, *address: object) -> bool:
        """One flip; the same address gives the same flip."""
        ...


@final
class SeededCoins:
    """Flips that are a pure function of the seed and the address."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def __call__(self, chance: float, *address: object) -> bool:
        """Whether it happens."""
        return stream_of("coins", self.seed, *address) / 2.0**64 < chance


@final
class _Scripted:
    """Flips as told, then heads; every undecided flip is kept with its chance."""

    def __init__(self, told: tuple[bool, ...]) -> None:
        self._told = told
        self._known: dict[tuple[object, ...], bool] = {}
        self.flips: list[tuple[bool, float]] = []

    def __call__(self, chance: float, *address: object) -> bool:
        if not 0 <= chance <= 1:
            raise BadInput(f"{chance!r} is no probability", where="coins")
        if address in self._known:
            return self._known[address]
        if chance in (0, 1):
            return chance == 1
        place = len(self.flips)
        happens = self._told[place] if place < len(self._told) else True
        self.flips.append((happens, chance))
        self._known[address] = happens
        return happens


def every_outcome(run: Callable[[Coins], T]) -> list[tuple[float, T]]:
    """Every outcome of a program with its probability, which sum to 1: one run per way its coins can fall.

    Raises: BadInput where there are more than 65,536 ways.
    """
    found: list[tuple[float, T]] = []
    waiting: list[tuple[bool, ...]] = [()]
    while waiting:
        told = waiting.pop()
        coins = _Scripted(told)
        result = run(coins)
        weight = 1.0
        for happens, chance in coins.flips:
            weight *= chance if happens else 1 - chance
        found.append((weight, result))
        if len(found) + len(waiting) > MOST:
            raise BadInput(f"there are more than {MOST} outcomes", where="coins")
        fallen = tuple(happens for happens, _ in coins.flips)
        # What was undecided fell heads in this run. Each such flip is turned over once, with those before it
        # as they fell, so every way comes exactly once.
        waiting += [(*fallen[:place], False) for place in range(len(told), len(fallen))]
    return found
