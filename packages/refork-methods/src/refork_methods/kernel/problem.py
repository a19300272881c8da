"""A kernel to make fast: its entry, its arguments and sizes, its useful work, and how near is near enough.

What a kernel is given and how its results are judged follows arXiv 2606.26453; the form of it is ours.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, final

from refork.errors import BadInput
from refork_methods.kernel.cpu.build import FLAGS
from refork_methods.kernel.problem_expr import value
from refork_methods.kernel.roofline import Work

Role: TypeAlias = Literal["in", "out", "inout", "size", "scalar"]

#: Element type in C -> bytes.
BYTES: dict[str, int] = {
    "float": 4, "double": 8,
    "char": 1, "signed char": 1, "unsigned char": 1, "int8_t": 1, "uint8_t": 1, "bool": 1, "_Bool": 1,
    "short": 2, "unsigned short": 2, "int16_t": 2, "uint16_t": 2,
    "int": 4, "unsigned": 4, "unsigned int": 4, "int32_t": 4, "uint32_t": 4,
    "long": 8, "unsigned long": 8, "long long": 8, "unsigned long long": 8, "int64_t": 8, "uint64_t": 8,
    "size_t": 8, "ssize_t": 8, "ptrdiff_t": 8, "intptr_t": 8, "uintptr_t": 8,
}  # fmt: skip
FLOATING = ("float", "double")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One parameter of the entry.

    ``ctype``: the element type as C spells it. ``length``: elements of an array, an expression over the
    sizes; None for a scalar. ``role``: in (read), out (written, whatever it held), inout, size (an integer
    among the problem's sizes) or scalar. ``fill`` is how inputs are drawn: ``uniform`` (-1 to 1; integers
    -100 to 100), ``positive`` (0.1 to 1; integers 1 to 100), ``index:E`` (integers from 0 to below E),
    ``sorted-index:E`` (the same in ascending order), ``skewed-index:E`` (k as often as
    (k + 1)**-1.5, as words and background pixels are), ``offsets:E`` (ascending, the first 0 and the last E),
    ``permutation``, ``const:X``.
    """

    name: str
    ctype: str
    length: str | None
    role: Role
    fill: str = "uniform"

    def __post_init__(self) -> None:
        if self.ctype not in BYTES:
            raise BadInput(
                f"no inputs of type {self.ctype} can be drawn",
                where=f"argument {self.name}",
                hint="float, double, or an integer type of C",
            )
        indices = ("index", "sorted-index", "skewed-index", "offsets")
        kinds = ("uniform", "positive", *indices, "permutation", "const")
        kind, _, rest = self.fill.partition(":")
        takes = kind in (*indices, "const")
        if kind not in kinds or takes != bool(rest):
            raise BadInput(
                f"fill {self.fill!r}",
                where=f"argument {self.name}",
                hint="uniform, positive, index:E, sorted-index:E, skewed-index:E, offsets:E, permutation or "
                "const:X",
            )
        if kind in (*indices, "permutation") and self.ctype in FLOATING:
            raise BadInput(f"fill {self.fill!r} of {self.ctype}", where=f"argument {self.name}")

    @property
    def array(self) -> bool:
        """Whether it is a pointer to elements."""
        return self.length is not None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A kernel with all that is needed to run, check and time it.

    ``flops`` and ``bytes`` are the useful work of one call (None: not declared). A result r of the kernel
    passes against the expected e where |r - e| <= rtol |e| + atol rms(e), with rms over the array (and, where
    it has few numbers, over several draws of inputs); integers must be equal. ``reference`` is the source of
    a version in higher precision with the same parameters, float as double and double as long double; None:
    made from ``source``. ``returns`` is the entry's result type, None for void. ``work_of`` are the
    expressions of flops and bytes over the sizes, where known.
    """

    name: str
    entry: str
    source: str
    suffix: str
    arguments: tuple[Argument, ...]
    sizes: dict[str, int]
    flops: float | None = None
    bytes: float | None = None
    rtol: float
    atol: float
    reference: str | None = None
    flags: tuple[str, ...] = FLAGS
    returns: str | None = None
    work_of: tuple[str | None, str | None] = (None, None)

    def __post_init__(self) -> None:
        where = f"problem {self.name}"
        if not (self.rtol >= 0 and self.atol >= 0):
            raise BadInput(f"tolerances {self.rtol} and {self.atol}", where=where, hint="0 or more")
        for name in ("flops", "bytes"):
            given = getattr(self, name)
            if given is not None and not 0 <= given < float("inf"):
                raise BadInput(f"{name} {given}", where=where, hint="0 or more")
        if self.returns is not None and self.returns not in BYTES:
            raise BadInput(f"a result of type {self.returns}", where=where, hint="a number, or void")
        if not any(one.role in ("out", "inout") for one in self.arguments) and self.returns is None:
            raise BadInput(f"{self.entry} writes nothing and returns nothing", where=where, hint="NAME=E:out")
        for one in self.arguments:
            if one.array and self.length(one) < 1:
                raise BadInput(f"{one.name} has {self.length(one)} elements", where=where)

    def length(self, argument: Argument) -> int:
        """Elements of an array at these sizes; 1 for a scalar."""
        if argument.length is None:
            return 1
        return int(value(argument.length, self.sizes, f"length of {argument.name}"))

    @property
    def work(self) -> Work | None:
        """The useful work of one call; None where flops or bytes are not declared."""
        if self.flops is None or not self.bytes:
            return None
        return Work(self.flops, self.bytes)

    def resized(self, sizes: Mapping[str, int]) -> Problem:
        """The same at other sizes; its work is not declared where it was no expression.

        Raises:
            BadInput: an array has no elements at these sizes.
        """
        new = {**self.sizes, **sizes}
        flops, of_bytes = (None if one is None else value(one, new, "work") for one in self.work_of)
        return replace(self, sizes=new, flops=flops, bytes=of_bytes)

    @property
    def digest(self) -> str:
        """16 hex digits of all that decides what is run and how it is judged."""
        told = repr([getattr(self, name) for name in self.__slots__ if name != "name"])
        return hashlib.sha256(told.encode()).hexdigest()[:16]
