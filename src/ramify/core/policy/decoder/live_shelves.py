"""Keys and values of the prompts of running requests, in few stacks whatever order they came in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from ramify.core.policy.decoder.plan import BLOCK, align
from ramify.core.policy.decoder.prefill import Seat
from ramify.core.policy.decoder.stack import KvShape, Stack


@dataclass(slots=True)
class _Shelf:
    """Runs of about equal length that continue one trunk; ``owners`` names them, None is a gap."""

    stack: Stack
    trunk: Stack | None
    owners: list[int | None] = field(default_factory=list)
    view: Stack | None = None


@final
class Shelves:
    """Runs by number. A stack has room for twice what it holds, so that requests may come one by one."""

    def __init__(self, shape: KvShape) -> None:
        self.shape = shape
        self._shelves: dict[tuple[int, int, int], _Shelf] = {}
        self._where: dict[int, tuple[int, int, int]] = {}

    @property
    def bytes(self) -> int:
        """Memory held."""
        trunks = {id(s.trunk): s.trunk.bytes for s in self._shelves.values() if s.trunk is not None}
        return sum(s.stack.bytes for s in self._shelves.values()) + sum(trunks.values())

    def put(self, number: int, seat: Seat, length: int) -> None:
        """Copy a run of a filled stack; ``length`` is how many tokens it and its trunk hold."""
        start = seat.leaf.start
        filled = min(align(max(length - start, 0)), seat.leaf.length)
        room = 1 << (max(filled, BLOCK) - 1).bit_length()
        name = (0 if seat.trunk is None else id(seat.trunk), start, room)
        shelf = self._shelves.get(name)
        if shelf is None:
            shelf = self._shelves[name] = _Shelf(Stack(self.shape, 1, start, room), seat.trunk)
        if None in shelf.owners:
            item = shelf.owners.index(None)
            shelf.owners[item] = number
        else:
            item = len(shelf.owners)
            shelf.owners.append(number)
            shelf.view = None
            if item >= shelf.stack.count:
                self._resize(shelf, 2 * shelf.stack.count)
        shelf.stack.copy_block(item, 0, seat.leaf, seat.item, 0, filled)
        # What lay here before may not be finite, and 0 * NaN is NaN.
        shelf.stack.clear(item, filled)
        self._where[number] = name

    def drop(self, number: int) -> None:
        """Nobody needs this run any more; its memory is used again or given back by :meth:`tidy`."""
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
        for item in range(min(count, old.count)):
            shelf.stack.copy_block(item, 0, old, item, 0, old.length)
        shelf.view = None
