"""Keys and values of the prompts of running requests, in few stacks whatever order they came in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import final

from ramify.core.policy.decoder.plan import BLOCK, align, shared
from ramify.core.policy.decoder.prefill import Seat
from ramify.core.policy.decoder.stack import KvShape, Stack
from ramify.core.types import IntArray

_WORTH = 2 * BLOCK
"""Tokens that two prompts must share at least, to be held once for both."""


@dataclass(slots=True)
class _Shelf:
    """Runs of about equal length that continue one trunk; ``owners`` names them, None is a gap.

    ``head`` are the trunk's tokens.
    """

    stack: Stack
    trunk: Stack | None
    head: IntArray
    owners: list[int | None] = field(default_factory=list)
    view: Stack | None = None


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a run comes to lie: ``filled`` positions of its old place, behind those ``skipped`` there."""

    shelf: _Shelf
    item: int
    skipped: int
    filled: int


@final
class Shelves:
    """Runs by number. A stack has room for twice what it holds, so that requests may come one by one.

    With ``share`` prompts that begin alike continue one trunk, also where they come one by one; what is
    computed of them must depend on their tokens alone.
    """

    def __init__(self, shape: KvShape, share: bool = False) -> None:
        self.shape = shape
        self.share = share
        self._tokens: dict[int, IntArray] = {}
        self._shelves: dict[tuple[int, int, int], _Shelf] = {}
        self._where: dict[int, tuple[int, int, int]] = {}

    @property
    def bytes(self) -> int:
        """Memory held."""
        trunks = {id(s.trunk): s.trunk.bytes for s in self._shelves.values() if s.trunk is not None}
        return sum(s.stack.bytes for s in self._shelves.values()) + sum(trunks.values())

    def put(self, number: int, seat: Seat, tokens: IntArray) -> None:
        """Copy a run of a filled stack; ``tokens`` are those that it and its trunk hold."""
        self.put_all([(number, seat, tokens)])

    def put_all(self, runs: Iterable[tuple[int, Seat, IntArray]]) -> None:
        """Copy runs, each as :meth:`put` does; a stack grows once for all that come to it."""
        placed = [(self._place(*run), run[1]) for run in runs]
        for place, seat in placed:
            shelf, item = place.shelf, place.item
            if len(shelf.owners) > shelf.stack.count:
                self._resize(shelf, max(2 * shelf.stack.count, len(shelf.owners)))
            shelf.stack.copy_block(item, 0, seat.leaf, seat.item, place.skipped, place.filled)
            # What lay here before may not be finite, and 0 * NaN is NaN.
            shelf.stack.clear(item, place.filled)

    def _place(self, number: int, seat: Seat, tokens: IntArray) -> _Place:
        """Give a run its place, which may not be there yet."""
        trunk, start = self._trunk(seat, tokens)
        skipped = start - seat.leaf.start
        filled = min(align(max(len(tokens) - start, 0)), seat.leaf.length - skipped)
        room = 1 << (max(filled, BLOCK) - 1).bit_length()
        name = (0 if trunk is None else id(trunk), start, room)
        shelf = self._shelves.get(name)
        if shelf is None:
            nothing = Stack(self.shape, 0, start, room)
            shelf = self._shelves[name] = _Shelf(nothing, trunk, tokens[:start])
        if None in shelf.owners:
            item = shelf.owners.index(None)
            shelf.owners[item] = number
        else:
            item = len(shelf.owners)
            shelf.owners.append(number)
            shelf.view = None
        self._where[number] = name
        self._tokens[number] = tokens
        return _Place(shelf, item, skipped, filled)

    def _trunk(self, seat: Seat, tokens: IntArray) -> tuple[Stack | None, int]:
        """The trunk that a run continues, and its length: its own, one that is here, or a new one."""
        best, length = seat.trunk, seat.leaf.start
        if not self.share:
            return best, length
        for shelf in self._shelves.values():
            size = len(shelf.head)
            if length <= size < len(tokens) and size and shared(shelf.head, tokens) == size:
                best, length = shelf.trunk, size
        # The last token is the run's own, so that no run is empty.
        alike = max((shared(other, tokens) for other in self._tokens.values()), default=0)
        alike = min(alike, len(tokens) - 1) // BLOCK * BLOCK
        if alike < max(_WORTH, 2 * length):
            return best, length
        trunk = Stack(self.shape, 1, 0, alike)
        own = seat.leaf.start
        if seat.trunk is not None:
            trunk.copy_block(0, 0, seat.trunk, 0, 0, own)
        trunk.copy_block(0, own, seat.leaf, seat.item, 0, alike - own)
        return trunk, alike

    def drop(self, number: int) -> None:
        """Nobody needs this run any more; its memory is used again or given back by :meth:`tidy`."""
        del self._tokens[number]
        owners = self._shelves[self._where.pop(number)].owners
        owners[owners.index(number)] = None

    def tidy(self) -> None:
        """Close gaps and give memory back; whoever reads must ask for its :meth:`seat` anew."""
        for name, shelf in list(self._shelves.items()):
            used = sum(owner is not None for owner in shelf.owners)
            if used == 0:
                del self._shelves[name]
                continue
            if 2 * used > len(shelf.owners):
                continue
            living = [item for item, owner in enumerate(shelf.owners) if owner is not None]
            for item, source in enumerate(living):
                if item != source:
                    shelf.stack.copy_block(item, 0, shelf.stack, source, 0, shelf.stack.length)
            shelf.owners = [shelf.owners[source] for source in living]
            shelf.view = None
            if shelf.stack.count > 2 * used:
                self._resize(shelf, 2 * used)

    def seat(self, number: int) -> Seat:
        """Where a run lies now."""
        shelf = self._shelves[self._where[number]]
        if shelf.view is None:
            shelf.view = shelf.stack.part(0, len(shelf.owners))
        return Seat(shelf.view, shelf.owners.index(number), shelf.trunk, number)

    def _resize(self, shelf: _Shelf, count: int) -> None:
        old = shelf.stack
        shelf.stack = Stack(self.shape, count, old.start, old.length)
        kept = min(count, old.count)
        for mine, theirs in zip(
            (*shelf.stack.keys, *shelf.stack.values), (*old.keys, *old.values), strict=True
        ):
            mine[:kept] = theirs[:kept]
        shelf.view = None
