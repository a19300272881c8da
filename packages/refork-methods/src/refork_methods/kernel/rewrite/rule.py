"""A move that can be made on a kernel, a rule that makes such moves, and what rules share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TypeAlias, final

from refork.errors import BadInput
from refork_methods.kernel.rewrite.access import GATHERS, HINTS, PURE, values_of
from refork_methods.kernel.rewrite.affine import Facts, add, poly, whole
from refork_methods.kernel.rewrite.depend import assigned, may_alias
from refork_methods.kernel.rewrite.syntax import (
    Assign,
    At,
    Call,
    Declare,
    Expr,
    If,
    Loop,
    Name,
    Number,
    Op,
    Opaque,
    Return,
    Stmts,
    Unary,
    code,
    expressions,
    inside,
    names,
    root,
    statements,
)  # fmt: skip
from refork_methods.kernel.rewrite.unit import Unit, is_unsigned, labelled, swap

Parameters: TypeAlias = Mapping[str, str | int]
#: Parameters to try.
Given: TypeAlias = dict[str, str | int]


@final
@dataclass(frozen=True, slots=True)
class Move:
    """One legal rewrite of a kernel.

    ``answers``: tools whose findings it is an answer to. ``reassociates``: rounding may change. ``assumes``:
    what the caller must promise, '' where nothing. ``first``: the move before it that makes it legal.
    """

    name: str
    parameters: dict[str, str | int] = field(default_factory=dict)
    answers: tuple[str, ...] = ()
    reassociates: bool = False
    assumes: str = ""
    first: Move | None = None

    @property
    def id(self) -> str:
        """Name and parameters, such as ``tile(k,64)`` or ``restrict()+tile(k,64)``."""
        before = "" if self.first is None else f"{self.first.id}+"
        return f"{before}{self.name}({','.join(map(str, self.parameters.values()))})"

    def after(self, first: Move) -> Move:
        """The same with a move before it, whose promises it makes too."""
        promises = "; ".join(one for one in (first.assumes, self.assumes) if one)
        rounds = first.reassociates or self.reassociates
        return replace(self, reassociates=rounds, assumes=promises, first=first)


@final
@dataclass(frozen=True, slots=True)
class Changed:
    """A kernel after a move."""

    unit: Unit
    reassociates: bool = False
    assumes: str = ""


@final
@dataclass(frozen=True, slots=True)
class Rule:
    """A kind of move: what may be tried on a kernel, and how it is done (BadInput where it is not legal)."""

    name: str
    answers: tuple[str, ...]
    offers: Callable[[Unit], Iterable[dict[str, str | int]]]
    make: Callable[[Unit, Parameters], Changed]


def refuse(why: str, where: str = "kernel rewrite") -> BadInput:
    """The error of a move that does not apply."""
    return BadInput(why, where=where, hint="moves() lists those that do")


def text_of(given: Parameters, name: str) -> str:
    """A parameter that is a name.

    Raises:
        BadInput: it is missing.
    """
    value = given.get(name)
    if not isinstance(value, str):
        raise refuse(f"the move needs {name}")
    return value


def count_of(given: Parameters, name: str, most: int = 4096) -> int:
    """A parameter that is a number, 2 to ``most``.

    Raises:
        BadInput: it is missing or out of range.
    """
    value = given.get(name)
    if not isinstance(value, int) or not 2 <= value <= most:
        raise refuse(f"the move needs {name} from 2 to {most}")
    return value


def loop_at(unit: Unit, label: str) -> tuple[Loop, tuple[Loop, ...]]:
    """A loop by its label, and the loops around it.

    Raises:
        BadInput: no such loop, something in it that is not understood, or bounds that change in it.
    """
    found = labelled(unit.body).get(label)
    if found is None:
        raise refuse(f"no loop {label}")
    loop, above = found
    if any(isinstance(stmt, Opaque | Return) for stmt in statements(loop.body)):
        raise refuse(f"loop {label} holds a statement that is not understood")
    written = assigned(loop.body)
    if _wild(loop.body) and not _own(unit, names(loop.lower) | names(loop.upper)):
        raise refuse(f"the bounds of loop {label} may change in it")
    for bound in (loop.lower, loop.upper):
        arrays = {root(part) or "" for part in inside(bound) if isinstance(part, At)}
        if names(bound) & written or any(may_alias(unit, one, two) for one in arrays for two in written):
            raise refuse(f"the bounds of loop {label} may change in it")
    return loop, above


def _wild(body: Stmts) -> bool:
    """Whether statements may write memory that is not named."""
    for stmt in statements(body):
        parts = [part for expr in expressions(stmt) for part in inside(expr)]
        called = {part.name for part in parts if isinstance(part, Call)} - PURE - HINTS
        if any(not GATHERS.fullmatch(name) for name in called):
            return True
        if isinstance(stmt, Assign) and isinstance(stmt.target, Unary):
            return True
    return False


def _own(unit: Unit, used: set[str]) -> bool:
    """Whether names are of scalars that only the function itself can change."""
    counters = {s.counter for s in statements(unit.body) if isinstance(s, Loop)}
    for name in used - counters:
        known, local = unit.parameter(name), unit.declared(name)
        if not (known is not None and known.dims is None) and not (local is not None and not local.dims):
            return False
    return True


def offer(labels: Callable[[Unit], Iterable[str]], **choices: Sequence[int]) -> Callable[[Unit], list[Given]]:
    """Each of the loops that ``labels`` names with every combination of the choices, the last the fastest."""

    def offers(unit: Unit) -> list[Given]:
        return [
            {"loop": label, **dict(zip(choices, values, strict=True))}
            for label in labels(unit)
            for values in product(*choices.values())
        ]

    return offers


def every_loop(unit: Unit) -> Iterable[str]:
    """Labels of all loops, outer ones first."""
    return labelled(unit.body)


def innermost(unit: Unit) -> list[str]:
    """Labels of loops that hold no other."""
    return [
        label
        for label, (loop, _) in labelled(unit.body).items()
        if not any(isinstance(stmt, Loop) for stmt in statements(loop.body))
    ]


def exchange(unit: Unit, loop: Loop, new: Stmts) -> Unit:
    """A kernel with one of its loops replaced by statements."""
    return replace(unit, body=swap(unit.body, loop, new))


def inner_of(loop: Loop) -> Loop | None:
    """The loop that is all of another's body."""
    match code(loop.body):
        case (Loop() as inner,):
            return inner
        case _:
            return None


def cut(unit: Unit, loop: Loop, width: int, suffix: str = "main") -> tuple[Stmts, Expr]:
    """Where the last full group of ``width`` counts ends: declarations for it, and the expression.

    Raises:
        BadInput: the counter cannot go below its start, so that an empty loop would look full.
    """
    bound = whole(loop.lower, loop.upper, width)
    if isinstance(loop.upper, Name | Number) and loop.lower == Number("0"):
        return (), bound
    # Without a sign the length of an empty range would wrap to a huge one.
    if is_unsigned(loop.type) and loop.lower != Number("0"):
        raise refuse(f"loop {loop.counter} counts without a sign from {loop.lower}")
    name = unit.fresh(f"{loop.counter}_{suffix}")
    return (Declare(loop.type, name, (), bound),), Name(name)


def runs(unit: Unit, loop: Loop, above: tuple[Loop, ...]) -> bool:
    """Whether a loop provably runs at least once where it is reached."""
    values = values_of(unit)
    facts = Facts(above, values)
    lower, upper = poly(loop.lower, values), poly(loop.upper, values)
    return (
        lower is not None and upper is not None and facts.nonnegative(add(add(upper, lower, -1), {(): 1}, -1))
    )


def guarded(unit: Unit, loop: Loop, above: tuple[Loop, ...], body: Stmts) -> Stmts:
    """Statements that only run where a loop runs."""
    return body if runs(unit, loop, above) else (If(Op("<", loop.lower, loop.upper), body),)
