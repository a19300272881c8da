"""Arithmetic over sizes, as in ``2*n*n*n``: numbers, names, + - * / % and powers, nothing else."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping

from refork.errors import BadInput

#: Longer ones are no length or operation count.
LONGEST = 400
_HIGHEST = 64


def value(text: str, names: Mapping[str, float], where: str) -> float:
    """The value of an expression; ``/`` of whole numbers rounds down, as in C.

    Raises:
        BadInput: no such expression, a name that is not known, a division by 0, a number beyond reason.
    """
    try:
        if len(text) > LONGEST:
            raise ValueError("it is too long")
        found = _value(ast.parse(text.strip(), mode="eval").body, names)
        if not math.isfinite(found):
            raise ValueError("it is not finite")
    except KeyError as error:
        name = str(error.args[0])
        raise BadInput(f"{name!r} in {text!r} is not known", where=where, hint=f"{name}=NUMBER") from None
    except (SyntaxError, ValueError, ZeroDivisionError, OverflowError, RecursionError, MemoryError) as error:
        said = "it is no arithmetic" if isinstance(error, SyntaxError) else str(error)
        raise BadInput(f"expression {text!r}: {said}", where=where, hint="such as 2*n*n") from None
    return found


def names_in(text: str) -> set[str]:
    """The names that an expression uses; empty where it is none."""
    try:
        return {
            node.id for node in ast.walk(ast.parse(text.strip(), mode="eval")) if isinstance(node, ast.Name)
        }
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()


def _value(node: ast.expr, names: Mapping[str, float]) -> float:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value  # type: ignore[return-value]
    if isinstance(node, ast.Name):
        return names[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        inner = _value(node.operand, names)
        return -inner if isinstance(node.op, ast.USub) else inner
    if isinstance(node, ast.BinOp):
        return _applied(node.op, _value(node.left, names), _value(node.right, names))
    raise ValueError("only numbers, names, + - * / % and **")


def _applied(op: ast.operator, left: float, right: float) -> float:
    if isinstance(op, ast.Add):
        return left + right
    if isinstance(op, ast.Sub):
        return left - right
    if isinstance(op, ast.Mult):
        return left * right
    if isinstance(op, ast.Div | ast.FloorDiv):
        whole = isinstance(left, int) and isinstance(right, int)
        return left // right if whole or isinstance(op, ast.FloorDiv) else left / right
    if isinstance(op, ast.Mod):
        return left % right
    if isinstance(op, ast.Pow):
        if abs(right) > _HIGHEST:
            raise ValueError(f"a power over {_HIGHEST}")
        return float(left**right) if right < 0 else left**right
    raise ValueError("only numbers, names, + - * / % and **")
