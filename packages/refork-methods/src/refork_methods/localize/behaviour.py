"""What the body of a Python function tells of its results, its literals and the errors it can raise."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import final

from refork_methods.localize.reported import ENDLESS, Atom, number, signs

_BUILT = {
    "sorted": "list", "list": "list", "range": "list", "zip": "list", "dict": "dict", "set": "set",
    "tuple": "tuple", "str": "str", "repr": "str", "len": "int", "int": "int", "float": "float",
    "bool": "bool", "any": "bool", "all": "bool", "isinstance": "bool", "sum": "number",
    "round": "number", "abs": "number",
}  # fmt: skip
_METHODS = {
    "join": "str", "strip": "str", "lstrip": "str", "rstrip": "str", "lower": "str", "upper": "str",
    "title": "str", "replace": "str", "format": "str", "capitalize": "str", "ljust": "str",
    "rjust": "str", "split": "list", "splitlines": "list", "items": "list", "keys": "list",
    "values": "list", "startswith": "bool", "endswith": "bool", "index": "int", "find": "int",
}  # fmt: skip
_DISPLAYS: dict[type[ast.expr], str] = {
    ast.List: "list", ast.ListComp: "list", ast.Dict: "dict", ast.DictComp: "dict", ast.Set: "set",
    ast.SetComp: "set", ast.Tuple: "tuple", ast.JoinedStr: "str", ast.Compare: "bool",
}  # fmt: skip
_CALL_ERRORS: dict[str, tuple[str, ...]] = {
    "pop": ("IndexError", "KeyError"),
    **dict.fromkeys(("int", "float", "max", "min", "index", "remove"), ("ValueError",)),
}
#: Numbers that stand in any code.
_EVERYWHERE = frozenset({-1, 0, 0.5, 1, 2, 10, 100})
_LONGEST = 12
_NUMERIC = frozenset({"int", "float", "number"})


@final
@dataclass(frozen=True, slots=True)
class Behaviour:
    """``returns``: kinds of its results, ``unknown`` where some are not told by its own lines.

    ``atoms``: words, signs and numbers of its literals. ``errors``: that its expressions can raise.
    """

    returns: frozenset[str]
    unknown: bool
    atoms: frozenset[Atom]
    errors: frozenset[str]

    def fits(self, kinds: frozenset[str]) -> float:
        """1 where a told result has the kind of one of its results, -1 where none can, 0 where unsure."""
        if not kinds:
            return 0.0
        for told in kinds:
            if told in self.returns or (told in _NUMERIC and "number" in self.returns):
                return 1.0
            if told == "int" and "float" in self.returns:
                return 1.0
        return 0.0 if self.unknown else -1.0


@lru_cache(maxsize=512)
def behaviours(tree: ast.Module) -> dict[int, Behaviour]:
    """First line of a function, decorators included -> what its body tells."""
    return {
        min([node.lineno, *(one.lineno for one in node.decorator_list)]): _behaviour(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def _own(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """Nodes of a function's body without its documentation and without inner functions' bodies."""
    body = function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body
    pending: list[ast.AST] = [*body]
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            pending += ast.iter_child_nodes(node)


def _behaviour(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Behaviour:
    nodes = list(_own(function))
    bound: dict[str, set[str | None]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            bound.setdefault(node.targets[0].id, set()).add(_kind(node.value))
    given = [_result(node.value, bound) for node in nodes if isinstance(node, ast.Return) and node.value]
    kinds = {kind for kind in given if kind is not None}
    if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in nodes):
        kinds.add("list")
    atoms = {atom for node in nodes if isinstance(node, ast.Constant) for atom in _literal_atoms(node.value)}
    errors = {error for node in nodes for error in _errors(node)}
    kinds |= set() if given or kinds else {"None"}
    return Behaviour(frozenset(kinds), None in given, frozenset(atoms), frozenset(errors))


def _literal_atoms(value: object) -> Iterator[Atom]:
    if isinstance(value, str):
        if re.fullmatch(r"\w{2,30}", value):
            yield "word", value
        elif len(value) <= 4 or (len(value) <= _LONGEST and not re.search(r"[^\W\d_]", value)):
            yield from signs(value)
    elif value not in _EVERYWHERE:
        yield from number(value)


def _result(value: ast.expr, bound: dict[str, set[str | None]]) -> str | None:
    kind = _kind(value)
    if kind is None and isinstance(value, ast.Name):
        kinds = bound.get(value.id, set()) - {None}
        kind = next(iter(kinds)) if len(kinds) == 1 else None
    return kind


def _kind(node: ast.expr) -> str | None:
    """The kind of an expression's value as far as its own form tells."""
    if type(node) in _DISPLAYS:
        return _DISPLAYS[type(node)]
    if isinstance(node, ast.Constant):
        return "None" if node.value is None else type(node.value).__name__
    if isinstance(node, ast.UnaryOp):
        return "bool" if isinstance(node.op, ast.Not) else _kind(node.operand)
    if isinstance(node, ast.BoolOp):
        kinds = {_kind(value) for value in node.values}
        return kinds.pop() if len(kinds) == 1 else None
    if isinstance(node, ast.IfExp):
        first, second = _kind(node.body), _kind(node.orelse)
        return first if first == second else first or second
    if isinstance(node, ast.BinOp):
        return _arithmetic(node)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _BUILT.get(node.func.id)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return _METHODS.get(node.func.attr)
    return None


def _arithmetic(node: ast.BinOp) -> str | None:
    if isinstance(node.op, ast.Div):
        return "float"
    first, second = _kind(node.left), _kind(node.right)
    if isinstance(node.op, ast.Add | ast.Mult | ast.Mod):
        for kind in ("str", "list", "tuple", "float"):
            if kind in (first, second):
                return kind
    if first == second:
        return first
    return "number" if isinstance(node.op, ast.FloorDiv | ast.Sub | ast.Mult) else None


def _errors(node: ast.AST) -> Iterator[str]:
    """Errors that one expression or statement can raise by its form."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.FloorDiv | ast.Mod):
        yield "ZeroDivisionError"
    if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice):
        yield from ("KeyError", "IndexError")
    if isinstance(node, ast.BinOp | ast.Compare | ast.Call | ast.For):
        yield "TypeError"
    if isinstance(node, ast.Attribute):
        yield "AttributeError"
    if isinstance(node, ast.While):
        yield ENDLESS
    if isinstance(node, ast.Assign | ast.For) and _unpacks(node):
        yield "ValueError"
    if isinstance(node, ast.Call):
        yield from _CALL_ERRORS.get(_last_name(node.func), ())
    if isinstance(node, ast.Raise) and node.exc is not None:
        yield _last_name(node.exc.func if isinstance(node.exc, ast.Call) else node.exc)


def _unpacks(node: ast.Assign | ast.For) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return any(isinstance(target, ast.Tuple) for target in targets)


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""
