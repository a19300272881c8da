"""The part of C that kernels are made of, as plain data: expressions, statements, counted loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias, final

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


def parts(expr: Expr) -> tuple[Expr, ...]:
    """The operands of an expression."""
    match expr:
        case Op():
            return (expr.left, expr.right)
        case Unary() | Cast():
            return (expr.arg,)
        case Call():
            return expr.args
        case At():
            return (expr.base, expr.index)
        case Pick():
            return (expr.test, expr.yes, expr.no)
        case Braces():
            return expr.items
        case _:
            return ()


def inside(expr: Expr) -> Iterator[Expr]:
    """An expression and all in it, outermost first."""
    yield expr
    for part in parts(expr):
        yield from inside(part)


def map_expr(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Every part changed, innermost first."""

    def of(part: Expr) -> Expr:
        return map_expr(part, change)

    match expr:
        case Op():
            made: Expr = Op(expr.op, of(expr.left), of(expr.right))
        case Unary():
            made = Unary(expr.op, of(expr.arg))
        case Cast():
            made = Cast(expr.type, of(expr.arg))
        case Call():
            made = Call(expr.name, tuple(map(of, expr.args)))
        case At():
            made = At(of(expr.base), of(expr.index))
        case Pick():
            made = Pick(of(expr.test), of(expr.yes), of(expr.no))
        case Braces():
            made = Braces(tuple(map(of, expr.items)))
        case _:
            made = expr
    return change(made)


def map_exprs(body: Stmts, change: Callable[[Expr], Expr]) -> Stmts:
    """Every expression of the statements changed, by a function of a whole expression."""

    def one(stmt: Stmt) -> Stmt:
        match stmt:
            case Assign():
                return Assign(change(stmt.target), stmt.op, change(stmt.value))
            case Declare():
                value = None if stmt.value is None else change(stmt.value)
                return Declare(stmt.type, stmt.name, tuple(map(change, stmt.dims)), value)
            case Loop():
                lower, upper = change(stmt.lower), change(stmt.upper)
                return replace(stmt, lower=lower, upper=upper, body=tuple(map(one, stmt.body)))
            case If():
                return If(change(stmt.test), tuple(map(one, stmt.yes)), tuple(map(one, stmt.no)))
            case Block():
                return Block(tuple(map(one, stmt.body)))
            case Do():
                return Do(Call(stmt.call.name, tuple(map(change, stmt.call.args))))
            case Return():
                return Return(None if stmt.value is None else change(stmt.value))
            case _:
                return stmt

    return tuple(map(one, body))


def map_stmts(body: Stmts, change: Callable[[Stmt], Stmts | Stmt]) -> Stmts:
    """Every statement changed into one or several, innermost first."""
    made: list[Stmt] = []
    for stmt in body:
        match stmt:
            case Loop() | Block():
                new = change(replace(stmt, body=map_stmts(stmt.body, change)))
            case If():
                new = change(If(stmt.test, map_stmts(stmt.yes, change), map_stmts(stmt.no, change)))
            case _:
                new = change(stmt)
        made.extend(new if isinstance(new, tuple) else (new,))
    return tuple(made)


def statements(body: Stmts) -> Iterator[Stmt]:
    """All statements, outer ones before what is in them."""
    for stmt in body:
        yield stmt
        match stmt:
            case Loop() | Block():
                yield from statements(stmt.body)
            case If():
                yield from statements(stmt.yes)
                yield from statements(stmt.no)
            case _:
                pass


def expressions(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions that stand in a statement itself, not in statements within it."""
    match stmt:
        case Assign():
            return (stmt.target, stmt.value)
        case Declare():
            return stmt.dims if stmt.value is None else (*stmt.dims, stmt.value)
        case Loop():
            return (stmt.lower, stmt.upper)
        case If():
            return (stmt.test,)
        case Do():
            return (stmt.call,)
        case Return():
            return () if stmt.value is None else (stmt.value,)
        case _:
            return ()


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
        match stmt:
            case Declare():
                return replace(stmt, name=new(stmt.name))
            case Loop():
                return replace(stmt, counter=new(stmt.counter))
            case _:
                return stmt

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


def plus(expr: Expr, more: int) -> Expr:
    """An expression and a constant, folded where that is plain."""
    if more == 0:
        return expr
    if isinstance(expr, Number) and expr.text.isdigit():
        return (
            Number(str(int(expr.text) + more))
            if int(expr.text) + more >= 0
            else Op("-", expr, Number(str(-more)))
        )
    if (
        isinstance(expr, Op)
        and expr.op in "+-"
        and isinstance(expr.right, Number)
        and expr.right.text.isdigit()
    ):
        total = int(expr.right.text) * (1 if expr.op == "+" else -1) + more
        return expr.left if total == 0 else Op("+" if total > 0 else "-", expr.left, Number(str(abs(total))))
    return Op("+" if more > 0 else "-", expr, Number(str(abs(more))))


def least(left: Expr, right: Expr) -> Expr:
    """The smaller of two."""
    return Pick(Op("<", left, right), left, right)


def scoped(body: Stmts) -> Stmts:
    """Statements that may stand beside copies of themselves."""
    return (Block(body),) if any(isinstance(stmt, Declare) for stmt in body) else body
