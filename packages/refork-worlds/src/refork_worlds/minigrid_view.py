"""What a MiniGrid agent sees, in words: every visible cell, and nothing else.

``facing east ; hold nothing ; red door locked ahead 3 ; wall ahead 0 to 5 left 1 ; unseen ahead 6``

Places are counted from the agent: ``ahead`` in the direction it faces, then ``left`` or ``right`` of that.
A cell that is in view and not named is empty. Neighbouring walls, lava, floor and unseen cells are told as
rectangles, other objects one by one. The text and the environment's own picture say the same: each can be
computed from the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from numpy.typing import NDArray

FACING: Final = ("east", "south", "west", "north")
#: Told as rectangles: what they are made of has no edges.
_SPREAD: Final = ("wall", "lava", "floor", "unseen")
_USUAL: Final = {"wall": "grey", "goal": "green", "lava": "red"}
_DOOR: Final = ("open", "closed", "locked")

#: Steps ahead, and to the right (negative: to the left).
Cell = tuple[int, int]


def tell_view(image: NDArray[Any], direction: int, carried: Any) -> str:
    """A view in words; ``image`` [side, side, 3] is the environment's, ``carried`` an object or None."""
    from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT

    side = image.shape[0]
    cells: dict[str, set[Cell]] = {}
    for across in range(side):
        for row in range(side):
            kind, colour, state = (int(n) for n in image[across, row])
            place = (side - 1 - row, across - side // 2)
            name = IDX_TO_OBJECT[kind]
            if place != (0, 0) and name != "empty":
                cells.setdefault(_named(name, IDX_TO_COLOR[colour], state), set()).add(place)
    held = "nothing" if carried is None else f"{carried.color} {carried.type}"
    spread = [name for name in cells if name.split(" ")[-1] in _SPREAD]
    single = sorted((place, name) for name, found in cells.items() if name not in spread for place in found)
    parts = [f"facing {FACING[int(direction)]}", f"hold {held}"]
    parts += [f"{name} {_where(place, place)}" for place, name in single]
    for name in sorted(spread, key=lambda name: (name == "unseen", name)):
        parts += [f"{name} {_where(*corners)}" for corners in rectangles(cells[name])]
    return " ; ".join(parts)


def _named(kind: str, colour: str, state: int) -> str:
    if kind == "unseen" or _USUAL.get(kind) == colour:
        return kind
    return f"{colour} {kind} {_DOOR[state]}" if kind == "door" else f"{colour} {kind}"


def rectangles(cells: set[Cell]) -> Iterator[tuple[Cell, Cell]]:
    """Disjoint rectangles that cover cells, nearest first: nearest left and farthest right corner of each."""
    left = set(cells)
    while left:
        start = min(left)
        found = max((_grown(left, start, first) for first in (0, 1)), key=_area)
        left -= set(_inside(*found))
        yield found


def _grown(cells: set[Cell], start: Cell, first: int) -> tuple[Cell, Cell]:
    """The rectangle from a corner that grows as far as it can ahead (0) or right (1), then the other way."""
    end = start
    for axis in (first, 1 - first):
        while True:
            wider = (end[0] + (axis == 0), end[1] + (axis == 1))
            if not cells.issuperset(_inside(start, wider)):
                break
            end = wider
    return start, end


def _inside(start: Cell, end: Cell) -> list[Cell]:
    return [(a, r) for a in range(start[0], end[0] + 1) for r in range(start[1], end[1] + 1)]


def _area(corners: tuple[Cell, Cell]) -> int:
    return len(_inside(*corners))


def _where(start: Cell, end: Cell) -> str:
    """A rectangle in words; what is 0 and not a range is left out."""
    (near, first), (far, last) = start, end
    ahead = f"ahead {near}" if near == far else f"ahead {near} to {far}"
    if first == last:
        across = "" if not first else f"right {first}" if first > 0 else f"left {-first}"
    elif last <= 0:
        across = f"left {-first} to {-last}"
    elif first >= 0:
        across = f"right {first} to {last}"
    else:
        across = f"left {-first} to right {last}"
    return " ".join(part for part in ("" if near == far == 0 else ahead, across) if part)
