"""Divisions made multiplications, calls that do not change taken out of loops, expf made arithmetic."""

from __future__ import annotations

from dataclasses import replace

from refork_methods.kernel.rewrite.access import PURE
from refork_methods.kernel.rewrite.depend import assigned
from refork_methods.kernel.rewrite.rule import (
    Changed,
    Parameters,
    Rule,
    exchange,
    innermost,
    loop_at,
    offer,
    refuse,
    text_of,
)
from refork_methods.kernel.rewrite.syntax import (
    Assign,
    At,
    Call,
    Declare,
    Expr,
    Loop,
    Name,
    Number,
    Op,
    Stmt,
    bare,
    inside,
    map_expr,
    map_exprs,
    map_stmts,
    names,
    root,
    statements,
    within,
)
from refork_methods.kernel.rewrite.unit import Unit

_ONE = {"float": Number("1.0f"), "double": Number("1.0")}


def _moving(loop: Loop) -> set[str]:
    local = {s.name for s in statements(loop.body) if isinstance(s, Declare)}
    return assigned(loop.body) | local | {loop.counter}


def _kind(unit: Unit, expr: Expr) -> str:
    """The type of an expression of numbers of one type, '' where that is not plain."""
    match expr:
        case Number(text=digits):
            if digits.lower().startswith("0x"):
                return ""
            return "float" if digits.lower().endswith("f") else "double" if "." in digits else ""
        case Name(id=name):
            return unit.kind(name)
        case At():
            return unit.kind(root(expr) or "")
        case Op(op=op) if op in "+-*/":
            return _wider(_kind(unit, expr.left), _kind(unit, expr.right))
        case Call(name=name) if name in PURE:
            return "float" if name.endswith("f") and name != "fabs" else "double"
        case _:
            return ""


def _wider(left: str, right: str) -> str:
    return left if left == right else "double" if {left, right} <= {"float", "double"} else ""


def _reciprocal(unit: Unit, given: Parameters) -> Changed:  # noqa: C901 - two forms of division
    loop, _ = loop_at(unit, text_of(given, "loop"))
    moving = _moving(loop)
    made: list[Stmt] = []
    held: dict[Expr, Expr] = {}

    def inverse(kind: str, by: Expr) -> Expr | None:
        if kind not in _ONE or names(by) & moving or not isinstance(by, Name | Number):
            return None
        if isinstance(by, Number):
            return Op("/", _ONE[kind], by)
        if by not in held:
            name = unit.fresh(f"{by.id}_inverse")
            held[by] = Name(name)
            made.append(Declare(kind, name, (), Op("/", _ONE[kind], by)))
        return held[by]

    changes = 0

    def divided(expr: Expr) -> Expr:
        nonlocal changes
        if isinstance(expr, Op) and expr.op == "/" and _kind(unit, expr.left) == _kind(unit, expr.right):
            times = inverse(_kind(unit, expr.right), expr.right)
            if times is not None:
                changes += 1
                return Op("*", expr.left, times)
        return expr

    def assigned_to(stmt: Stmt) -> Stmt:
        nonlocal changes
        if (
            isinstance(stmt, Assign)
            and stmt.op == "/="
            and _kind(unit, stmt.target) == _kind(unit, stmt.value)
        ):
            times = inverse(_kind(unit, stmt.value), stmt.value)
            if times is not None:
                changes += 1
                return Assign(stmt.target, "*=", times)
        return stmt

    body = map_stmts(map_exprs(bare(loop.body), lambda expr: map_expr(expr, divided)), assigned_to)
    if not changes:
        raise refuse("no division by what does not change", f"loop {loop.counter}")
    return Changed(exchange(unit, loop, (*made, replace(loop, body=body, pragmas=()))), reassociates=True)


def _hoist(unit: Unit, given: Parameters) -> Changed:
    loop, _ = loop_at(unit, text_of(given, "loop"))
    moving = _moving(loop)
    calls = [part for part in within(loop.body) if isinstance(part, Call)]
    fixed = [
        call
        for call in dict.fromkeys(calls)
        # What is read from memory may be written in the loop, under another name too.
        if call.name in PURE and not names(call) & moving and not any(isinstance(p, At) for p in inside(call))
    ]
    if not fixed:
        raise refuse("no call that does not change", f"loop {loop.counter}")
    call = fixed[0]
    name = unit.fresh(f"{call.name}_once")
    kind = "float" if call.name.endswith("f") else "double"
    body = map_exprs(bare(loop.body), lambda e: map_expr(e, lambda p: Name(name) if p == call else p))
    return Changed(
        exchange(unit, loop, (Declare(kind, name, (), call), replace(loop, body=body, pragmas=())))
    )


RECIPROCAL = Rule("reciprocal", ("SlowOps",), offer(innermost), _reciprocal)
HOIST = Rule("hoist", ("SlowOps", "CallOverhead"), offer(innermost), _hoist)


#: exp(x) = 2^n exp(r), |r| <= log(2) / 2, with the polynomial of Cephes' expf. Conversions to int round, as
#: adding and taking away a large number would be folded away by -ffast-math; masks, as gcc vectorises no
#: branches on numbers that may be NaN. Above 88 infinite, below -87 zero.
SOURCE = """\
static inline float refork_expf(float x) {
    int high = -(x > 88.0f), low = -(x < -87.0f), bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    bits &= ~(high | low);
    float inside, power;
    __builtin_memcpy(&inside, &bits, sizeof bits);
    float scaled = inside * 1.44269504f;
    int n = (int)(scaled + 128.5f) - 128;
    float r = inside - (float)n * 0.693359375f + (float)n * 2.12194440e-4f;
    float p = ((((1.9875691500e-4f * r + 1.3981999507e-3f) * r + 8.3334519073e-3f) * r + 4.1665795894e-2f) * r
               + 1.6666665459e-1f) * r + 5.0000001201e-1f;
    bits = (int)((unsigned)(n + 127) << 23);
    __builtin_memcpy(&power, &bits, sizeof bits);
    float made = (p * r * r + r + 1.0f) * power;
    __builtin_memcpy(&bits, &made, sizeof bits);
    bits = (bits & ~(high | low)) | (high & 0x7f800000);
    __builtin_memcpy(&made, &bits, sizeof bits);
    return made;
}
"""


def _make(unit: Unit, given: Parameters) -> Changed:
    if not any(isinstance(part, Call) and part.name == "expf" for part in within(unit.body)):
        raise refuse("no call of expf")

    def inlined(part: Expr) -> Expr:
        return Call("refork_expf", part.args) if isinstance(part, Call) and part.name == "expf" else part

    body = map_exprs(unit.body, lambda expr: map_expr(expr, inlined))
    return Changed(replace(unit, body=body).with_top(SOURCE), reassociates=True)


FAST_EXP = Rule("fast_exp", ("SlowOps", "CpuScalarFallback", "CallOverhead"), lambda unit: [{}], _make)
