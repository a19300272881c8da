"""Excursions in a sequence of states, and the sequence without them (loop erasure).

A trajectory is kept as a stack: a new state is pushed, and meeting one that is on the stack takes everything
above it off. What stays is the path without detours. Every loop that was closed on it is an excursion.

Source: loop erasure after Lawler (1980). On the maze of arXiv 2606.22938, with nodes as states, the erased
trajectory is the shortest path and every trip through a dead branch one excursion.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]


class Excursion(NamedTuple):
    """A loop: left the state at step ``start`` and was back at step ``end``.

    ``depth`` is how many states it went ahead of where it returned to; 0 is a step that changed nothing.
    """

    start: int
    end: int
    depth: int

    @property
    def lost(self) -> int:
        """Steps it took."""
        return self.end - self.start


@final
@dataclass(frozen=True, eq=False)
class Erased:
    """What loop erasure found.

    ``first`` and ``last`` [kept states] are the first and last visit of each state that stays; between
    them lie its excursions. ``back`` [visits] marks visits that were arrived at by going back, so those from
    which a way on had to be found anew.
    """

    first: Int64
    last: Int64
    back: NDArray[np.bool_]
    excursions: tuple[Excursion, ...]

    @property
    def recoveries(self) -> tuple[Excursion, ...]:
        """Excursions that went anywhere."""
        return tuple(e for e in self.excursions if e.depth > 0)


def erase_loops(states: Sequence[Hashable]) -> Erased:
    """Loop-erase a sequence of states, in time linear in its length; None is a state never met again."""
    stack: list[Hashable] = []
    place: dict[Hashable, int] = {}
    first: list[int] = []
    last: list[int] = []
    height = np.zeros(len(states), dtype=np.int64)
    back = np.zeros(len(states), dtype=bool)
    for step, state in enumerate(states):
        at = None if state is None else place.get(state)
        if at is None:
            if state is not None:
                place[state] = len(stack)
            stack.append(state)
            first.append(step)
            last.append(step)
        else:
            # A step that changed nothing faces as the one before it.
            back[step] = back[step - 1] if at == len(stack) - 1 else True
            for gone in stack[at + 1 :]:
                place.pop(gone, None)
            del stack[at + 1 :], first[at + 1 :], last[at + 1 :]
            last[at] = step
        height[step] = len(stack) - 1
    return Erased(np.array(first), np.array(last), back, tuple(_loops(first, last, height)))


def _loops(first: list[int], last: list[int], height: Int64) -> list[Excursion]:
    found = []
    for at, (begin, end) in enumerate(zip(first, last, strict=True)):
        if begin == end:
            continue
        # At this height between its first and last visit only this state can lie on top of the stack.
        home = begin + np.flatnonzero(height[begin : end + 1] == at)
        for start, stop in zip(home[:-1].tolist(), home[1:].tolist(), strict=True):
            found.append(Excursion(start, stop, int(height[start : stop + 1].max()) - at))
    return found
