"""Expressions of several neighbouring iterations at once, in the vector types of GCC and Clang."""

from __future__ import annotations

from collections.abc import Mapping

from refork_methods.kernel.rewrite.affine import poly, words
from refork_methods.kernel.rewrite.rule import refuse
from refork_methods.kernel.rewrite.syntax import (
    STREAM,
    At,
    Call,
    Cast,
    Expr,
    Name,
    Number,
    Op,
    Unary,
    inside,
    names,
    root,
)  # fmt: skip
from refork_methods.kernel.rewrite.unit import Unit
from refork_methods.kernel.rewrite.vector_helpers import GATHER, vector_text

_TAGS = {"float": ("f32", 4), "double": ("f64", 8), "int": ("i32", 4)}


def lanes_of(unit: Unit, kind: str) -> int:
    """How many numbers of a type a vector holds: 64 bytes, or 32 where the flags prefer that.

    Raises:
        BadInput: a type without vectors.
    """
    if kind not in _TAGS:
        raise refuse(f"no vectors of {kind or 'an unknown type'}")
    wide = "-mprefer-vector-width=256" not in unit.flags
    return (64 if wide else 32) // _TAGS[kind][1]


def vector_type(kind: str, lanes: int) -> tuple[str, str]:
    """Name and definition of a vector type that may stand at any address."""
    tag = _TAGS[kind][0]
    return f"refork_{tag}x{lanes}", vector_text(tag, lanes)


def unit_stride(expr: At, counter: str, values: Mapping[str, Expr]) -> bool:
    """Whether a subscript moves by one number when a counter does."""
    found = poly(expr.index, values)
    if found is None or counter in names(expr.base):
        return False
    own = {term: value for term, value in found.items() if counter in words({term: 1})}
    return own == {(counter,): 1}


def widened(unit: Unit, expr: Expr, counter: str, kind: str, lanes: int, values: Mapping[str, Expr]) -> Expr:
    """An expression for ``lanes`` iterations at once; parts that do not change with the counter stay scalars.

    Raises:
        BadInput: an operand that is of another type, or not read in order.
    """
    match expr:
        case Number(text=digits):
            return _literal(digits, kind)
        case Name(id=name):
            if name == counter or unit.kind(name) != kind:
                raise refuse(f"{name} is of another type")
            return expr
        case At():
            return _read(unit, expr, counter, kind, lanes, values)
        case Op(op=op) if op in "+-*/":
            left = widened(unit, expr.left, counter, kind, lanes, values)
            return Op(op, left, widened(unit, expr.right, counter, kind, lanes, values))
        case Unary(op="-", arg=arg):
            return Unary("-", widened(unit, arg, counter, kind, lanes, values))
        case _:
            raise refuse("an operation that has no vector form here")


def _literal(digits: str, kind: str) -> Number:
    if kind == "float" and digits.isdigit():
        return Number(f"{digits}.0f")
    if (kind == "float" and not digits.lower().endswith("f")) or (kind == "int" and not digits.isdigit()):
        raise refuse(f"{digits} is of another type")
    return Number(digits)


def _read(unit: Unit, expr: At, counter: str, kind: str, lanes: int, values: Mapping[str, Expr]) -> Expr:
    if unit.kind(root(expr) or "") != kind:
        raise refuse(f"{root(expr)} is of another type")
    if unit_stride(expr, counter, values):
        return Unary("*", Cast(f"const {vector_type(kind, lanes)[0]} *", Unary("&", expr)))
    found = poly(expr.index, values)
    if isinstance(expr.base, Name) and any(isinstance(part, At) for part in inside(expr.index)):
        at = widened(unit, expr.index, counter, "int", lanes, values)
        if at != expr.index:
            return Call(f"{GATHER}{_TAGS[kind][0]}x{lanes}", (expr.base, at))
    if counter in names(expr) or found is None or counter in words(found):
        raise refuse(f"{root(expr)} is not read in order of {counter}")
    return expr


def stored(expr: At, kind: str, lanes: int) -> Expr:
    """The place of ``lanes`` neighbouring numbers, to be assigned."""
    return Unary("*", Cast(f"{vector_type(kind, lanes)[0]} *", Unary("&", expr)))


def streamed(expr: At, kind: str, lanes: int) -> Expr:
    """The same place, to be assigned past the caches. It is printed, and read back, as a call."""
    return Unary("*", Cast(f"{STREAM}{_TAGS[kind][0]}x{lanes} *", Unary("&", expr)))
