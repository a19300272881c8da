"""Keys and values of the prompts of running requests, in few stacks whatever order they came in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, final

import torch

from refork.decoding.plan import BLOCK, align, shared
from refork.decoding.prefill import Seat
from refork.decoding.stack import KvShape, Stack
from refork.types import IntArray

_WORTH = 2 * BLOCK
"""Tokens that two prompts must share at least, to be held once for both."""

Run: TypeAlias = tuple[int, Seat, IntArray]
"""A number, where it was filled, and the tokens that it and its trunk hold."""


@dataclass(slots=True)
class _Shelf:
    """Runs of about equal length that continue one trunk; ``owners`` names them, None is a gap.

    ``head`` are the trunk's tokens, ``beyond`` says for which side of the switch they were computed. A
    ``lent`` stack may be read by others, and is copied before it changes.
    """

    stack: Stack
    trunk: Stack | None
    head: IntArray
    owners: list[int | None] = field(default_factory=list)
    beyond: bool = False
    lent: bool = False
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
    computed of them must depend on their tokens alone, and on whether they are more than ``switch``.
    """

    def __init__(self, shape: KvShape, share: bool = False, switch: int | None = None) -> None:
        self.shape = shape
        self.share = share
        self.switch = switch
        self._tokens: dict[int, IntArray] = {}
        self._shelves: dict[tuple[int, int, int], _Shelf] = {}
        self._where: dict[int, tuple[int, int, int]] = {}

    @property
    def bytes(self) -> int:
        """Memory held."""
        trunks = {id(s.trunk): s.trunk.bytes for s in self._shelves.values() if s.trunk is not None}
        return sum(s.stack.bytes for s in self._shelves.values()) + sum(trunks.values())

    def put(self, number: int, seat: Seat, tokens: IntArray) -> None:
        """Hold a run of a filled stack; ``tokens`` are those that it and its trunk hold."""
        self.put_all([(number, seat, tokens)])

    def put_all(self, runs: Iterable[Run]) -> None:
        """Hold runs of filled stacks, which nobody may write to any more.

        A stack of which all runs come is taken as it is, others are copied run by run.
        """
        stacks: dict[int, list[Run]] = {}
        for run in runs:
            stacks.setdefault(id(run[1].leaf), []).append(run)
        placed = [
            (self._place(*run), run[1])
            for group in stacks.values()
            if not self._adopted(group)
            for run in group
        ]
        for place, seat in placed:
            shelf, item = place.shelf, place.item
            if shelf.lent or len(shelf.owners) > shelf.stack.count:
                self._resize(shelf, max(2 * shelf.stack.count, len(shelf.owners)))
            shelf.stack.copy_block(item, 0, seat.leaf, seat.item, place.skipped, place.filled)
            # What lay here before may not be finite, and 0 * NaN is NaN.
            shelf.stack.clear(item, place.filled)

    def _adopted(self, runs: Sequence[Run]) -> bool:
        """Take the whole stack of some runs, unless they belong to others that are here."""
        _, seat, _ = runs[0]
        leaf, trunk = seat.leaf, seat.trunk
        name = _name(trunk, leaf.start, leaf.length)
        whole = len(runs) == leaf.count and leaf.length == _roomy(leaf.length)
        if not whole or name in self._shelves or any(self._akin(s, tokens) for _, s, tokens in runs):
            return False
        beyond = self._beyond(runs[0][2])
        shelf = _Shelf(leaf, trunk, runs[0][2][: leaf.start], [None] * leaf.count, beyond, lent=True)
        for number, place, tokens in runs:
            shelf.owners[place.item] = number
            self._where[number], self._tokens[number] = name, tokens
        self._shelves[name] = shelf
        return True

    def _akin(self, seat: Seat, tokens: IntArray) -> bool:
        """Whether a run would continue another trunk than its own."""
        trunk, length = self._known(seat, tokens)
        return trunk is not seat.trunk or self._alike(tokens, length) > 0

    def _place(self, number: int, seat: Seat, tokens: IntArray) -> _Place:
        """Give a run its place, which may not be there yet."""
        trunk, start = self._trunk(seat, tokens)
        skipped = start - seat.leaf.start
        filled = min(align(max(len(tokens) - start, 0)), seat.leaf.length - skipped)
        room = _roomy(filled)
        name = _name(trunk, start, room)
        shelf = self._shelves.get(name)
        if shelf is None:
            nothing = Stack(self.shape, 0, start, room)
            beyond = self._beyond(tokens)
            shelf = self._shelves[name] = _Shelf(nothing, trunk, tokens[:start], beyond=beyond)
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
        best, length = self._known(seat, tokens)
        alike = self._alike(tokens, length)
        if not alike:
            return best, length
        trunk = Stack(self.shape, 1, 0, alike)
        own = seat.leaf.start
        if seat.trunk is not None:
            trunk.copy_block(0, 0, seat.trunk, 0, 0, own)
        trunk.copy_block(0, own, seat.leaf, seat.item, 0, alike - own)
        return trunk, alike

    def _known(self, seat: Seat, tokens: IntArray) -> tuple[Stack | None, int]:
        """The longest trunk that there is for a run, its own or one that is here."""
        best, length, beyond = seat.trunk, seat.leaf.start, self._beyond(tokens)
        for shelf in self._shelves.values() if self.share else ():
            size = len(shelf.head) if shelf.beyond == beyond else 0
            if length <= size < len(tokens) and size and shared(shelf.head, tokens) == size:
                best, length = shelf.trunk, size
        return best, length

    def _alike(self, tokens: IntArray, length: int) -> int:
        """How long a new trunk for a run and one that is here would be; 0: the one of ``length`` will do."""
        if not self.share:
            return 0
        beyond = self._beyond(tokens)
        others = (other for other in self._tokens.values() if self._beyond(other) == beyond)
        alike = max((shared(other, tokens) for other in others), default=0)
        # The last token is the run's own, so that no run is empty.
        alike = min(alike, len(tokens) - 1) // BLOCK * BLOCK
        return alike if alike >= max(_WORTH, 2 * length) else 0

    def _beyond(self, tokens: IntArray) -> bool:
        return self.switch is not None and len(tokens) > self.switch

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
            shelf.stack = shelf.stack.take(torch.tensor(living, device=self.shape.device))
            shelf.owners = [shelf.owners[item] for item in living]
            shelf.lent, shelf.view = False, None

    def seat(self, number: int) -> Seat:
        """Where a run lies now."""
        shelf = self._shelves[self._where[number]]
        if shelf.view is None:
            shelf.view = shelf.stack.part(0, len(shelf.owners))
        return Seat(shelf.view, shelf.owners.index(number), shelf.trunk, number, self._tokens[number])

    def _resize(self, shelf: _Shelf, count: int) -> None:
        old = shelf.stack
        shelf.stack = Stack(self.shape, count, old.start, old.length)
        kept = min(count, old.count)
        for mine, theirs in zip(
            (*shelf.stack.keys, *shelf.stack.values), (*old.keys, *old.values), strict=True
        ):
            mine[:kept] = theirs[:kept]
        shelf.lent, shelf.view = False, None


def _name(trunk: Stack | None, start: int, room: int) -> tuple[int, int, int]:
    return 0 if trunk is None else id(trunk), start, room


def _roomy(length: int) -> int:
    """Positions of the runs that one of this length is shelved with: a power of two."""
    return 1 << (max(length, BLOCK) - 1).bit_length()
