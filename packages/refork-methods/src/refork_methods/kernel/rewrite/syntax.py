"""The part of C that kernels are made of, as plain data: expressions, statements, counted loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, final

#: Beginning of the names of functions that store past the caches: assignments to a place of that "type".
STREAM = "refork_stream_"


@final
@dataclass(frozen=True, slots=True)
class Name:
    """A variable."""

    id: str


@final
@dataclass(frozen=True, slots=True)
class Number:
    """A literal, as written."""

    text: str


@final
@dataclass(frozen=True, slots=True)
class Op:
    """Two operands."""

    op: str
    left: Expr
    right: Expr


@final
@dataclass(frozen=True, slots=True)
class Unary:
    """A prefix operator, with ``*`` and ``&`` among them."""

    op: str
    arg: Expr


@final
@dataclass(frozen=True, slots=True)
class Call:
    """A function called by its name."""

    name: str
    args: tuple[Expr, ...]


@final
@dataclass(frozen=True, slots=True)
class At:
    """A subscript: two of them for ``c[i][j]``."""

    base: Expr
    index: Expr


@final
@dataclass(frozen=True, slots=True)
class Pick:
    """``test ? yes : no``."""

    test: Expr
    yes: Expr
    no: Expr


@final
@dataclass(frozen=True, slots=True)
class Cast:
    """A conversion; the type as written."""

    type: str
    arg: Expr


@final
@dataclass(frozen=True, slots=True)
class Braces:
    """An initialiser list."""

    items: tuple[Expr, ...]


@final
@dataclass(frozen=True, slots=True)
class Other:
    """An expression that is not understood, as written."""

    text: str


Expr: TypeAlias = Name | Number | Op | Unary | Call | At | Pick | Cast | Braces | Other


@final
@dataclass(frozen=True, slots=True)
class Assign:
    """An assignment; ``op`` is ``=`` or a compound one such as ``+=``."""

    target: Expr
    op: str
    value: Expr


@final
@dataclass(frozen=True, slots=True)
class Declare:
    """One local variable, or a local array where it has ``dims``."""

    type: str
    name: str
    dims: tuple[Expr, ...] = ()
    value: Expr | None = None


@final
@dataclass(frozen=True, slots=True)
class Loop:
    """``for (type counter = lower; counter < upper; counter += step)``."""

    counter: str
    type: str
    lower: Expr
    upper: Expr
    step: int
    body: tuple[Stmt, ...]
    pragmas: tuple[str, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class If:
    """A branch."""

    test: Expr
    yes: tuple[Stmt, ...]
    no: tuple[Stmt, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class Block:
    """A scope of its own."""

    body: tuple[Stmt, ...]


@final
@dataclass(frozen=True, slots=True)
class Do:
    """A call whose result is not used."""

    call: Call


@final
@dataclass(frozen=True, slots=True)
class Return:
    """The end of the function."""

    value: Expr | None


@final
@dataclass(frozen=True, slots=True)
class Note:
    """A comment."""

    text: str


@final
@dataclass(frozen=True, slots=True)
class Opaque:
    """A statement that is not understood, as written: nothing around it is moved."""

    text: str


Stmt: TypeAlias = Assign | Declare | Loop | If | Block | Do | Return | Note | Opaque
Stmts: TypeAlias = tuple[Stmt, ...]


#: Fields of an expression that hold expressions, in the order of the source; several where it is a tuple.
_PARTS: Mapping[type, tuple[str, ...]] = {
    Op: ("left", "right"), Unary: ("arg",), Cast: ("arg",), Call: ("args",), At: ("base", "index"),
    Pick: ("test", "yes", "no"), Braces: ("items",),
}  # fmt: skip
#: The same of a statement, and those that hold statements within it. A call that is done stays a call.
_OWN: Mapping[type, tuple[str, ...]] = {
    Assign: ("target", "value"), Declare: ("dims", "value"), Loop: ("lower", "upper"), If: ("test",),
    Do: ("call",), Return: ("value",),
}  # fmt: skip
_WITHIN: Mapping[type, tuple[str, ...]] = {Loop: ("body",), Block: ("body",), If: ("yes", "no")}


def _listed(node: Expr | Stmt, names: Sequence[str]) -> tuple[Expr, ...]:
    """The expressions in these fields; what is left out is None."""
    found: list[Expr] = []
    for name in names:
        value = getattr(node, name)
        if isinstance(value, tuple):
            found.extend(value)
        elif value is not None:
            found.append(value)
    return tuple(found)


def _changed(node: Any, names: Sequence[str], change: Callable[[Expr], Expr]) -> Any:
    """The same with each expression in these fields changed."""
    new: dict[str, Any] = {}
    for name in names:
        value = getattr(node, name)
        if isinstance(value, tuple):
            new[name] = tuple(map(change, value))
        elif value is not None:
            new[name] = change(value)
    return replace(node, **new) if new else node


def parts(expr: Expr) -> tuple[Expr, ...]:
    """The operands of an expression."""
    return _listed(expr, _PARTS.get(type(expr), ()))


def inside(expr: Expr) -> Iterator[Expr]:
    """An expression and all in it, outermost first."""
    yield expr
    for part in parts(expr):
        yield from inside(part)


def map_expr(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Every part changed, innermost first."""
    return change(_changed(expr, _PARTS.get(type(expr), ()), lambda part: map_expr(part, change)))


def map_exprs(body: Stmts, change: Callable[[Expr], Expr]) -> Stmts:
    """Every expression of the statements changed, by a function of a whole expression."""

    def one(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Do):
            return Do(Call(stmt.call.name, tuple(map(change, stmt.call.args))))
        made: Stmt = _changed(stmt, _OWN.get(type(stmt), ()), change)
        return _with_bodies(made, lambda inner: tuple(map(one, inner)))

    return tuple(map(one, body))


def _with_bodies(stmt: Stmt, change: Callable[[Stmts], Stmts]) -> Stmt:
    """The same with the statements within it changed."""
    names = _WITHIN.get(type(stmt), ())
    new: Any = {name: change(getattr(stmt, name)) for name in names}
    return replace(stmt, **new) if new else stmt


def map_stmts(body: Stmts, change: Callable[[Stmt], Stmts | Stmt]) -> Stmts:
    """Every statement changed into one or several, innermost first."""
    made: list[Stmt] = []
    for stmt in body:
        new = change(_with_bodies(stmt, lambda inner: map_stmts(inner, change)))
        made.extend(new if isinstance(new, tuple) else (new,))
    return tuple(made)


def statements(body: Stmts) -> Iterator[Stmt]:
    """All statements, outer ones before what is in them."""
    for stmt in body:
        yield stmt
        for name in _WITHIN.get(type(stmt), ()):
            yield from statements(getattr(stmt, name))


def expressions(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions that stand in a statement itself, not in statements within it."""
    return _listed(stmt, _OWN.get(type(stmt), ()))


def within(body: Stmts) -> Iterator[Expr]:
    """Every expression of the statements, and all in it."""
    for stmt in statements(body):
        for expr in expressions(stmt):
            yield from inside(expr)


def names(expr: Expr) -> set[str]:
    """The variables that an expression reads."""
    return {part.id for part in inside(expr) if isinstance(part, Name)}


def names_in(body: Stmts) -> set[str]:
    """The variables that statements read, write or declare."""
    found: set[str] = set()
    for stmt in statements(body):
        found.update(*(names(expr) for expr in expressions(stmt)), set())
        if isinstance(stmt, Declare):
            found.add(stmt.name)
        elif isinstance(stmt, Loop):
            found.add(stmt.counter)
    return found


def put(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """An expression with variables replaced."""
    return map_expr(expr, lambda part: values.get(part.id, part) if isinstance(part, Name) else part)


def put_in(body: Stmts, values: Mapping[str, Expr]) -> Stmts:
    """Statements with variables replaced; names that they declare follow where the value is a name."""

    def new(name: str) -> str:
        value = values.get(name)
        return value.id if isinstance(value, Name) else name

    def named(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Declare):
            return replace(stmt, name=new(stmt.name))
        return replace(stmt, counter=new(stmt.counter)) if isinstance(stmt, Loop) else stmt

    return map_stmts(map_exprs(body, lambda expr: put(expr, values)), named)


def root(expr: Expr) -> str | None:
    """The array of a subscript, or None where it is no plain one."""
    while isinstance(expr, At):
        expr = expr.base
    return expr.id if isinstance(expr, Name) else None


def code(body: Stmts) -> Stmts:
    """Statements without comments."""
    return tuple(stmt for stmt in body if not isinstance(stmt, Note))


def bare(body: Stmts) -> Stmts:
    """Statements without pragmas: what they promise may not hold of changed loops."""
    return map_stmts(body, lambda stmt: replace(stmt, pragmas=()) if isinstance(stmt, Loop) else stmt)


def decimal(digits: str) -> int | None:
    """The value of a decimal literal without a suffix; None of others: 010 is octal in C."""
    return int(digits) if digits.isdigit() and (digits == "0" or digits[0] != "0") else None


def plus(expr: Expr, more: int) -> Expr:
    """An expression and a constant, folded where that is plain."""
    if more == 0:
        return expr
    if isinstance(expr, Number) and (number := decimal(expr.text)) is not None:
        return Number(str(number + more)) if number + more >= 0 else Op("-", expr, Number(str(-more)))
    if (
        isinstance(expr, Op)
        and expr.op in "+-"
        and isinstance(expr.right, Number)
        and (number := decimal(expr.right.text)) is not None
    ):
        total = number * (1 if expr.op == "+" else -1) + more
        return expr.left if total == 0 else Op("+" if total > 0 else "-", expr.left, Number(str(abs(total))))
    return Op("+" if more > 0 else "-", expr, Number(str(abs(more))))


def least(left: Expr, right: Expr) -> Expr:
    """The smaller of two."""
    return Pick(Op("<", left, right), left, right)


def scoped(body: Stmts) -> Stmts:
    """Statements that may stand beside copies of themselves."""
    return (Block(body),) if any(isinstance(stmt, Declare) for stmt in body) else body
