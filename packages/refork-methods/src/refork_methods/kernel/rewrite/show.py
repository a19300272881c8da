"""Kernels printed as C."""

from __future__ import annotations

from refork_methods.kernel.rewrite.syntax import (
    STREAM,
    Assign,
    At,
    Block,
    Braces,
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
    Opaque,
    Other,
    Pick,
    Return,
    Stmt,
    Stmts,
    Unary,
)  # fmt: skip

_LEVELS = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="), ("<<", ">>"), ("+", "-"),
    ("*", "/", "%"),
)  # fmt: skip
_LEVEL = {op: level for level, ops in enumerate(_LEVELS, start=2) for op in ops}
_UNARY, _POSTFIX = 13, 14
_INDENT = "    "


def show_expr(expr: Expr, around: int = 0) -> str:  # noqa: C901 - one case a kind
    """C text, in parentheses where what stands ``around`` binds more tightly."""
    match expr:
        case Name():
            return expr.id
        case Number():
            return expr.text
        case Op():
            level = _LEVEL[expr.op]
            text = f"{show_expr(expr.left, level)} {expr.op} {show_expr(expr.right, level + 1)}"
        case Unary():
            level, arg = _UNARY, show_expr(expr.arg, _UNARY)
            # - -x must not become --x.
            text = expr.op + (f"({arg})" if arg.startswith(expr.op) else arg)
        case Cast():
            level, text = _UNARY, f"({expr.type}){show_expr(expr.arg, _UNARY)}"
        case Call():
            return f"{expr.name}({', '.join(map(show_expr, expr.args))})"
        case At():
            return f"{show_expr(expr.base, _POSTFIX)}[{show_expr(expr.index)}]"
        case Pick():
            level = 1
            text = f"{show_expr(expr.test, 2)} ? {show_expr(expr.yes, 1)} : {show_expr(expr.no, 1)}"
        case Braces():
            return f"{{{', '.join(map(show_expr, expr.items))}}}"
        case Other():
            return f"({expr.text})"
    return f"({text})" if level < around else text


def show(body: Stmts, depth: int = 1) -> str:
    """Statements, one a line, indented by four spaces a level."""
    return "".join(_show(stmt, depth) for stmt in body)


def _show(stmt: Stmt, depth: int) -> str:
    pad = _INDENT * depth
    match stmt:
        case Assign():
            return f"{pad}{_assign(stmt)};\n"
        case Declare():
            dims = "".join(f"[{show_expr(one)}]" for one in stmt.dims)
            value = "" if stmt.value is None else f" = {show_expr(stmt.value)}"
            return f"{pad}{stmt.type} {stmt.name}{dims}{value};\n"
        case Loop():
            pragmas = "".join(f"{pad}#pragma {one}\n" for one in stmt.pragmas)
            step = f"{stmt.counter}++" if stmt.step == 1 else f"{stmt.counter} += {stmt.step}"
            start = f"{stmt.type} {stmt.counter} = {show_expr(stmt.lower)}"
            # 9 is the level above <: a bound that compares, or picks, is put in parentheses.
            test = f"{stmt.counter} < {show_expr(stmt.upper, 9)}"
            return f"{pragmas}{pad}for ({start}; {test}; {step}) {{\n{show(stmt.body, depth + 1)}{pad}}}\n"
        case If():
            made = f"{pad}if ({show_expr(stmt.test)}) {{\n{show(stmt.yes, depth + 1)}{pad}}}"
            return made + (f" else {{\n{show(stmt.no, depth + 1)}{pad}}}\n" if stmt.no else "\n")
        case Block():
            return f"{pad}{{\n{show(stmt.body, depth + 1)}{pad}}}\n"
        case Do():
            return f"{pad}{show_expr(stmt.call)};\n"
        case Return():
            return f"{pad}return{'' if stmt.value is None else ' ' + show_expr(stmt.value)};\n"
        case Note() | Opaque():
            return f"{pad}{stmt.text}\n"


def _assign(stmt: Assign) -> str:
    match stmt.target:
        case Unary(op="*", arg=Cast(type=kind, arg=place)) if kind.startswith(STREAM):
            return f"{kind.removesuffix(' *')}({show_expr(place)}, {show_expr(stmt.value)})"
        case _:
            target = show_expr(stmt.target)
    if stmt.op in ("+=", "-=") and stmt.value == Number("1"):
        return f"{target}{stmt.op[0] * 2}"
    return f"{target} {stmt.op} {show_expr(stmt.value)}"
