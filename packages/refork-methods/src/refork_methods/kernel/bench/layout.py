"""Where arrays lie in the memory that we share with a kernel's process: slots, guard pages, canaries.

Every call of a sample has a slot of its own. In a slot each array lies in a region of whole pages, with at
least one page to spare, between two guard pages that cannot be touched. Where in its region it begins is
drawn anew each time, in steps of 64 bytes; the rest of the region holds random bytes that must stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from refork_methods.kernel.problem import Argument, Problem, Role

PAGE, ALIGN = 4096, 64
#: The argument that an entry's result is kept in.
RESULT = "the result"
#: Most slots, since every array of each needs a mapping of its own.
SLOTS = 512
_NUMPY: dict[str, str] = {
    "float": "f4", "double": "f8", "char": "i1", "signed char": "i1", "unsigned char": "u1",
    "bool": "?", "_Bool": "?", "short": "i2", "unsigned short": "u2", "int": "i4", "unsigned": "u4",
    "unsigned int": "u4", "long": "i8", "unsigned long": "u8", "long long": "i8", "unsigned long long": "u8",
    "size_t": "u8", "ssize_t": "i8", "ptrdiff_t": "i8", "intptr_t": "i8", "uintptr_t": "u8",
}  # fmt: skip
PRECISE = {"float": "double", "double": "long double"}


def dtype_of(ctype: str) -> np.dtype[Any]:
    """The numpy type of a C type."""
    if ctype == "long double":
        return np.dtype(np.longdouble)
    if ctype.endswith("_t") and ctype not in _NUMPY:
        return np.dtype(ctype.removesuffix("_t"))
    return np.dtype(_NUMPY[ctype])


@final
@dataclass(frozen=True, slots=True)
class Region:
    """An array's place in a slot: first byte and length of its region, elements, type."""

    name: str
    role: Role
    start: int
    room: int
    count: int
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """Bytes of the array."""
        return self.count * self.dtype.itemsize


@final
@dataclass(frozen=True)
class Layout:
    """The memory of one problem's kernels; ``precise``: of the version in higher precision."""

    regions: tuple[Region, ...]
    scalars: tuple[Argument, ...]
    guards: tuple[int, ...]
    stride: int
    precise: bool

    @property
    def row(self) -> int:
        """Bytes of a slot's row of the table: offsets of arrays, then scalars."""
        return 8 * max(1, len(self.regions) + 2 * len(self.scalars))

    @property
    def slots(self) -> int:
        """Offset of the first slot."""
        return -(-self.row * SLOTS // PAGE) * PAGE

    @property
    def bytes(self) -> int:
        """All of the memory; pages that are not used take none."""
        return self.slots + SLOTS * self.stride

    @cached_property
    def touched(self) -> int:
        """Bytes of arrays in one slot."""
        return sum(one.size for one in self.regions)

    def whose(self, offset: int) -> str:
        """What lies at or beside an offset of the memory, in words."""
        inside = (offset - self.slots) % self.stride if offset >= self.slots else -1
        if not 0 <= offset < self.bytes or inside < 0:
            return "far from its arrays"
        for one in self.regions:  # of the guard between two arrays each has a half
            if inside < one.start:
                return f"before the start of {one.name}"
            if inside < one.start + one.room + PAGE // 2:
                return f"past the end of {one.name}"
        return f"past the end of {self.regions[-1].name}"


def layout_of(problem: Problem, *, precise: bool = False) -> Layout:
    """Regions for a problem's arrays, and one for the entry's result."""
    arrays = [one for one in problem.arguments if one.array]
    if problem.returns is not None:
        arrays.append(Argument(name=RESULT, ctype=problem.returns, length="1", role="out"))
    regions, guards, at = [], [], 0
    for one in arrays:
        ctype = PRECISE.get(one.ctype, one.ctype) if precise else one.ctype
        dtype, count = dtype_of(ctype), problem.length(one)
        guards.append(at)
        room = (-(-count * dtype.itemsize // PAGE) + 1) * PAGE
        regions.append(Region(one.name, one.role, at + PAGE, room, count, dtype))
        at += PAGE + room
    guards.append(at)
    scalars = tuple(one for one in problem.arguments if not one.array)
    return Layout(tuple(regions), scalars, tuple(guards), at + PAGE, precise)


@final
@dataclass(frozen=True, slots=True)
class Placed:
    """Where arrays begin in their regions, and the regions' other bytes, by the array's name."""

    offsets: dict[str, int]
    canaries: dict[str, NDArray[np.uint8]]


def place(layout: Layout, rng: np.random.Generator, at: str = "random") -> Placed:
    """Draw the offsets: ``low`` right behind the guard, ``high`` as near before the next one as can be."""
    offsets, canaries = {}, {}
    for one in layout.regions:
        most = (one.room - one.size) // ALIGN
        steps = {"low": 0, "high": most}.get(at)
        offsets[one.name] = ALIGN * (int(rng.integers(most + 1)) if steps is None else steps)
        canaries[one.name] = rng.integers(0, 256, one.room - one.size, dtype=np.uint8)
    return Placed(offsets, canaries)
