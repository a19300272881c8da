"""What statements read and write: arrays with their subscripts, variables, and sums that may be reordered."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import final

from refork.errors import BadInput
from refork_methods.kernel.rewrite.affine import Poly, poly
from refork_methods.kernel.rewrite.canonical import is_integer, keeps_int
from refork_methods.kernel.rewrite.syntax import (
    Assign,
    At,
    Block,
    Call,
    Cast,
    Declare,
    Do,
    Expr,
    If,
    Loop,
    Name,
    Note,
    Number,
    Op,
    Other,
    Pick,
    Stmts,
    Unary,
    expressions,
    inside,
    names,
    parts,
    root,
    statements,
)  # fmt: skip
from refork_methods.kernel.rewrite.unit import Unit

#: Functions of the C library that only compute.
PURE = frozenset(
    name + kind
    for name in (
        "ceil", "cos", "exp", "exp2", "expm1", "fabs", "floor", "fma", "fmax", "fmin", "log", "log1p", "pow",
        "rint", "sin", "sqrt", "tanh",
    )
    for kind in ("", "f")
) | {"abs", "refork_expf"}  # fmt: skip
HINTS = frozenset({"__builtin_prefetch", "refork_stream_end"})
#: Functions of the vector helpers that read one array at places that a vector holds.
GATHERS = re.compile(r"refork_gather_[fi]\d+x\d+")
_TESTS = frozenset({"<", "<=", ">", ">=", "==", "!=", "&&", "||"})
_MAXIMA = {">": "max", ">=": "max", "<": "min", "<=": "min"}


@final
@dataclass(frozen=True, slots=True)
class Access:
    """One read or write. ``dims``: its subscripts, None where not understood. ``fold``: of which kind of sum.

    ``exact``: what is summed are integers, into an integer. ``loops`` around it, outer first.
    """

    array: str
    dims: tuple[Poly | None, ...]
    write: bool
    loops: tuple[Loop, ...]
    fold: str = ""
    lanes: int = 1
    exact: bool = False


def fold_of(stmt: Assign) -> tuple[str, Expr] | None:
    """The kind and the addend of a sum, product, maximum or minimum that a statement adds to its target."""
    if stmt.op in ("+=", "-=", "*="):
        return ("*" if stmt.op == "*=" else "+"), stmt.value
    match stmt.op, stmt.value:
        case "=", Pick(test=Op(op=op, left=left, right=right), yes=yes, no=no) if op in _MAXIMA:
            if (yes, no) == (left, right) and no == stmt.target:
                return _MAXIMA[op], yes
            if (yes, no) == (left, right) and yes == stmt.target:
                return _MAXIMA[op], no
            # a > b ? b : a is a minimum, a < b ? b : a a maximum.
            if (yes, no) == (right, left) and stmt.target in (yes, no):
                kind = "min" if _MAXIMA[op] == "max" else "max"
                return kind, (no if yes == stmt.target else yes)
        case "=", Call(name=name, args=(left, right)) if name in ("fmaxf", "fmax", "fminf", "fmin"):
            if stmt.target in (left, right):
                return name[1:4], (right if left == stmt.target else left)
        case _:
            pass
    return None


def is_whole(unit: Unit, expr: Expr) -> bool:
    """Whether an expression is provably of an integer type."""
    match expr:
        case Name(id=name):
            return is_integer(unit.kind(name)) if unit.kind(name) else False
        case Number(text=digits):
            return bool(re.fullmatch(r"(?:0[xX][\da-fA-F]+|\d+)[uUlL]*", digits))
        case At():
            return is_whole(unit, Name(root(expr) or ""))
        case Cast(type=kind):
            return is_integer(kind)
        case Op(op=op) if op in _TESTS:
            return True
        case Op(left=left, right=right) | Pick(yes=left, no=right):
            return is_whole(unit, left) and is_whole(unit, right)
        case Unary(op="!"):
            return True
        case Unary(op="-" | "+" | "~", arg=arg):
            return is_whole(unit, arg)
        case Call(name="abs"):
            return True
        case _:
            return False


def values_of(unit: Unit) -> dict[str, Expr]:
    """Integer variables that are set once, from sums and products of what does not change."""
    declared: dict[str, list[Declare]] = {}
    assigned: set[str] = set()
    for stmt in statements(unit.body):
        if isinstance(stmt, Declare):
            declared.setdefault(stmt.name, []).append(stmt)
        elif isinstance(stmt, Assign) and isinstance(stmt.target, Name):
            assigned.add(stmt.target.id)
    found: dict[str, Expr] = {}
    for name, several in declared.items():
        value = several[0].value
        if (
            len(several) != 1
            or value is None
            or several[0].dims
            or name in assigned
            or not keeps_int(several[0].type)
        ):
            continue
        if names(value) & assigned or any(
            isinstance(part, At | Call | Other | Unary) for part in inside(value)
        ):
            continue
        found[name] = value
    return {name: value for name, value in found.items() if name not in names(value)}


def accesses(unit: Unit, body: Stmts, above: tuple[Loop, ...] = ()) -> list[Access]:
    """All accesses of statements to what is declared outside of them, equal ones once.

    Raises:
        BadInput: a statement, call or pointer that is not understood.
    """
    local = {s.name for s in statements(body) if isinstance(s, Declare)}
    found: dict[object, Access] = {}
    for one in _Reader(unit).read(body, above):
        if one.array not in local:
            dims = tuple(None if dim is None else frozenset(dim.items()) for dim in one.dims)
            found.setdefault(
                (one.array, dims, one.write, tuple(map(id, one.loops)), one.fold, one.lanes, one.exact), one
            )
    return list(found.values())


class _Reader:
    """Walks statements in program order."""

    def __init__(self, unit: Unit) -> None:
        self.unit, self.values = unit, values_of(unit)
        # Counters and macros that are numbers are no memory: nothing conflicts over them.
        self.fixed = {s.counter for s in statements(unit.body) if isinstance(s, Loop)}
        self.fixed |= set(re.findall(r"#\s*define\s+(\w+)\s+[\d.]+[fFuUlL]*\s", unit.before))

    def read(self, body: Stmts, above: tuple[Loop, ...]) -> Iterator[Access]:
        for stmt in body:
            match stmt:
                case Assign():
                    yield from self._assign(stmt, above)
                case Loop():
                    for bound in (stmt.lower, stmt.upper):
                        yield from self._reads(bound, above)
                    yield from self.read(stmt.body, (*above, stmt))
                case If():
                    yield from self._reads(stmt.test, above)
                    yield from self.read(stmt.yes, above)
                    yield from self.read(stmt.no, above)
                case Block():
                    yield from self.read(stmt.body, above)
                case Declare():
                    for expr in expressions(stmt):
                        yield from self._reads(expr, above)
                case _:
                    if not isinstance(stmt, Note) and not (isinstance(stmt, Do) and stmt.call.name in HINTS):
                        raise BadInput("a statement that is not understood", where="loop nest")

    def _assign(self, stmt: Assign, above: tuple[Loop, ...]) -> Iterator[Access]:
        folded = fold_of(stmt)
        reads = list(self._reads(stmt.value, above))
        target = list(self._target(stmt.target, above))
        if folded is not None:
            addend = list(self._reads(folded[1], above))
            own = target[0]
            # The place that is summed into is read as part of the sum, and not on its own account.
            if not any(one.array == own.array for one in addend):
                reads = [*addend, *(one for one in reads if one.array != own.array)]
                yield from reads
                exact = is_whole(self.unit, stmt.target) and is_whole(self.unit, folded[1])
                own = replace(own, fold=folded[0], exact=exact)
                yield own
                yield replace(own, write=False)
                yield from target[1:]
                return
        yield from reads
        yield from target
        if stmt.op != "=":
            yield replace(target[0], write=False)

    def _target(self, expr: Expr, above: tuple[Loop, ...]) -> Iterator[Access]:
        """The write first, then what its subscripts read."""
        found = self._reads(expr, above)
        first = next(found, None)
        if first is None:
            raise BadInput("a loop changes its counter", where="loop nest")
        yield replace(first, write=True)
        yield from found

    def _accesses(self, expr: At, above: tuple[Loop, ...], lanes: int) -> Iterator[Access]:
        """A subscript, then what it reads."""
        array = root(expr)
        if array is None:
            raise BadInput("a pointer that is not understood", where="loop nest")
        indices: list[Expr] = []
        inner: Expr = expr
        while isinstance(inner, At):
            indices.insert(0, inner.index)
            inner = inner.base
        yield Access(array, tuple(poly(one, self.values) for one in indices), False, above, "", lanes)
        for index in indices:
            yield from self._reads(index, above)

    def _reads(self, expr: Expr, above: tuple[Loop, ...], lanes: int = 1) -> Iterator[Access]:
        match expr:
            case Name(id=name):
                if name not in self.fixed:
                    yield Access(name, (), False, above)
            case At():
                yield from self._accesses(expr, above, lanes)
            case Unary(op="*", arg=Cast(type=kind, arg=Unary(op="&", arg=At() as aimed))):
                # A vector is read through a cast address, as many numbers at once as its type's name says.
                wide = kind.replace("*", "").split()[-1].rpartition("x")[2]
                if not kind.replace("const ", "").startswith("refork_") or not wide.isdigit():
                    raise BadInput("a pointer that is not understood", where="loop nest")
                yield from self._reads(aimed, above, int(wide))
            case Call(name=called, args=(Name(id=array), at)) if GATHERS.fullmatch(called):
                yield Access(array, (None,), False, above)
                yield from self._reads(at, above)
            case Unary(op="*" | "&") | Other():
                raise BadInput("a pointer that is not understood", where="loop nest")
            case Call(name=called) if called not in PURE:
                raise BadInput(f"a call of {called}", where="loop nest", hint="its effects are not known")
            case _:
                for part in parts(expr):
                    yield from self._reads(part, above)
