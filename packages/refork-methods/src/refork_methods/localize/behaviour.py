"""What an issue reports of values and errors, held against what function bodies can do."""

from __future__ import annotations

import ast
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np
from jaxtyping import Float, Int

from refork_methods.localize.bm25f import scaled
from refork_methods.localize.index import RepoIndex
from refork_methods.localize.spans import parsed
from refork_methods.localize.terms import IssueTerms

# What an issue tells of values: which kinds of result it speaks of, what stands in them, which errors.

#: English words after which a report states a result.
_OUTCOME = re.compile(
    r"\b(?:gives?|gave|gets?|got|returns?|returned|results?|outputs?|prints?|produces?|yields?|expect(?:s|ed)?"
    r"|actual(?:ly)?|should|ought|instead|says?|now|see|observed|receive[sd]?)\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?!\.?\w)|\b(?:True|False|None)\b")
_ENDLESS = re.compile(
    r"\b(?:hang(?:s|ing)?|infinite|endless(?:ly)?|forever|never (?:ends?|returns?|finish(?:es)?|stops?)"
    r"|(?:not|n't) (?:end|return|stop|finish|terminate|come to an end)|time[sd]? ?out)\b",
    re.IGNORECASE,
)
#: How far before a value its word of outcome may stand [characters].
_REACH = 40
_KINDS = {list: "list", dict: "dict", set: "set", tuple: "tuple", str: "str", bool: "bool", int: "int",
          float: "float", type(None): "None"}  # fmt: skip
#: Characters of an issue that are searched for values.
_MOST = 20_000
#: An error that no class stands for: it does not end.
ENDLESS = "no end"
Atom = tuple[str, str | float]


@final
@dataclass(frozen=True, slots=True)
class Reported:
    """``kinds`` of results that are told; ``atoms``: words, signs and numbers in values; ``errors``."""

    kinds: frozenset[str]
    atoms: frozenset[Atom]
    errors: frozenset[str]


def reported(issue: IssueTerms) -> Reported:
    """Read the literals in an issue's text; a value that is cut off is not read."""
    kinds: set[str] = set()
    atoms: set[Atom] = set()
    for value, start in _literals(issue.text[:_MOST]):
        before = re.split(r"[.;\n]\s", issue.text[max(0, start - _REACH) : start])[-1]
        if _OUTCOME.search(before):
            kinds.add(_KINDS.get(type(value), "other"))
        atoms |= set(_atoms(value))
    errors = {name for name in issue.errors if not name.endswith("Warning")}
    if _ENDLESS.search(issue.text):
        errors.add(ENDLESS)
    return Reported(frozenset(kinds), frozenset(atoms), frozenset(errors))


def signs(text: str) -> Iterator[Atom]:
    """The characters of a text that are neither letters, digits nor spaces."""
    return (("sign", letter) for letter in text if not letter.isalnum() and letter != " ")


def number(value: object) -> Iterator[Atom]:
    """A number that a float can hold."""
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300:
        yield "number", float(value)


def _atoms(value: object) -> Iterator[Atom]:
    if isinstance(value, str):
        yield from (("word", word) for word in re.findall(r"\w{2,30}", value))
        yield from signs(value)
    elif isinstance(value, dict):
        for key, held in value.items():
            yield from _atoms(key)
            yield from _atoms(held)
    elif isinstance(value, list | tuple | set | frozenset):
        for held in value:
            yield from _atoms(held)
    else:
        yield from number(value)


def _literals(text: str) -> Iterator[tuple[object, int]]:
    """Python literals in a text and where each starts; of nested ones the outermost."""
    at = 0
    while at < len(text):
        end = at
        inside = at > 0 and (text[at - 1].isalnum() or text[at - 1] in "._")
        if text[at] in "[{(\"'" and not (inside and text[at] in "\"'"):
            end = _closing(text, at)
        elif not inside and (hit := _NUMBER.match(text, at)):
            end = hit.end()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = ast.literal_eval(text[at:end].strip()) if end > at else ...
        except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError, OverflowError):
            found = ...
        if found is ...:
            at += 1
        else:
            yield found, at
            at = end


def _closing(text: str, start: int, most: int = 1000) -> int:
    """Past the end of the bracket or quote that opens at ``start``, on its line; ``start`` if it has none."""
    depth, quote, at = 0, "", start
    # Bounded, since every bracket and quote of an issue begins such a search.
    while at < min(len(text), start + most) and text[at] != "\n":
        letter = text[at]
        if quote:
            if letter == "\\":
                at += 1
            elif letter == quote:
                quote = ""
        elif letter in "\"'":
            quote = letter
        elif letter in "[{(":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        if not quote and depth <= 0:
            return at + 1
        at += 1
    return start


# What the body of a Python function tells of its results, its literals and the errors it can raise.

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


# A tree is hashed by identity; `parsed` gives the same tree again for the same text.
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
    # A bare return gives None, and so does a body that is left at its end.
    elif any(isinstance(node, ast.Return) and not node.value for node in nodes) or _left(function.body):
        kinds.add("None")
    atoms = {atom for node in nodes if isinstance(node, ast.Constant) for atom in _literal_atoms(node.value)}
    errors = {error for node in nodes for error in _errors(node)}
    return Behaviour(frozenset(kinds), None in given, frozenset(atoms), frozenset(errors))


def _left(body: Sequence[ast.stmt]) -> bool:
    """Whether a block can be left at its end; taken so where its form does not tell."""
    last = body[-1]
    if isinstance(last, ast.Return | ast.Raise):
        return False
    if isinstance(last, ast.If):
        return not last.orelse or _left(last.body) or _left(last.orelse)
    if isinstance(last, ast.While) and isinstance(last.test, ast.Constant) and last.test.value:
        return any(isinstance(node, ast.Break) for node in ast.walk(last))
    if isinstance(last, ast.With | ast.AsyncWith):
        return _left(last.body)
    if isinstance(last, ast.Try):
        ended = bool(last.finalbody) and not _left(last.finalbody)
        blocks = [last.orelse or last.body, *(one.body for one in last.handlers)]
        return not ended and any(_left(block) for block in blocks)
    if isinstance(last, ast.Match):
        ways = [case.body for case in last.cases]
        whole = isinstance(last.cases[-1].pattern, ast.MatchAs) and last.cases[-1].pattern.pattern is None
        return not (whole and last.cases[-1].guard is None) or any(map(_left, ways))
    return True


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


# The issue's values held against function bodies: literals, kinds of result, errors they can raise, size.

#: What a shared word or number counts against 1 for a shared sign: names in data are seldom those in code.
_PLAIN = 0.25
_SHOWN = 3


@final
@dataclass(frozen=True, slots=True)
class Matched:
    """Evidence by symbol: ``value``, ``result``, ``error``, ``size``; ``findings``: the same in words."""

    parts: dict[str, Float[np.ndarray, "symbols"]]
    findings: Mapping[int, tuple[str, ...]]


def match_bodies(index: RepoIndex, issue: Reported, chosen: Int[np.ndarray, "chosen"]) -> Matched:
    """Match the functions among the ``chosen`` symbols; bodies are read in Python alone, sizes everywhere."""
    parts = {name: np.zeros(len(index.symbols)) for name in ("value", "result", "error", "size")}
    known = _read(index, chosen)
    # Rarity is counted among the bodies that were read: the others were never parsed.
    counts = Counter(atom for one in known.values() for atom in one.atoms)
    told: dict[int, tuple[str, ...]] = {}
    for n, one in known.items():
        shared = sorted(one.atoms & issue.atoms, key=lambda atom: (counts[atom], atom[0], str(atom[1])))
        parts["value"][n] = sum(_worth(atom, counts[atom], len(known)) for atom in shared)
        parts["result"][n] = one.fits(issue.kinds)
        errors = sorted(one.errors & issue.errors)
        parts["error"][n] = float(bool(errors))
        told[n] = tuple(_words(one, issue, shared, errors))
    parts["value"] = scaled(parts["value"])
    for n in chosen:
        symbol = index.symbols[n]
        if symbol.kind in ("function", "method"):
            parts["size"][n] = np.log1p(symbol.end - symbol.start)
    parts["size"] = scaled(parts["size"])
    return Matched(parts, told)


def _read(index: RepoIndex, chosen: Int[np.ndarray, "chosen"]) -> dict[int, Behaviour]:
    """Number of a Python function -> what its body tells."""
    found: dict[int, Behaviour] = {}
    for n in chosen.tolist():
        symbol = index.symbols[n]
        if symbol.kind not in ("function", "method"):
            continue
        tree = parsed(index.snapshot.text(symbol.path), symbol.path)
        one = behaviours(tree).get(symbol.start) if tree is not None else None
        if one is not None:
            found[n] = one
    return found


def _worth(atom: Atom, holding: int, bodies: int) -> float:
    """The inverse document frequency of a literal among the bodies, as BM25 has it."""
    return float(np.log1p((bodies - holding + 0.5) / (holding + 0.5))) * (
        1.0 if atom[0] == "sign" else _PLAIN
    )


def _words(one: Behaviour, issue: Reported, shared: list[Atom], errors: list[str]) -> list[str]:
    told: list[str] = []
    if shared:
        literals = ", ".join(
            repr(value) if isinstance(value, str) else f"{value:g}" for _, value in shared[:_SHOWN]
        )
        told.append(f"its literals stand in the issue's values: {literals}")
    if one.fits(issue.kinds) > 0:
        told.append(f"the kind of its result is one that the issue tells ({', '.join(sorted(one.returns))})")
    if errors:
        named = ", ".join("a loop without end" if error == ENDLESS else error for error in errors)
        told.append(f"its code has the form that can raise {named}")
    return told
