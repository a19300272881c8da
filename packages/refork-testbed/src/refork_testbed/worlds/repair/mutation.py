"""Single mutations of a Python source: each a replaced span of characters, in a fixed order.

Nothing is drawn by chance: a source has one list of mutations. Which edits stand for a bug is our choice.
"""

from __future__ import annotations

import ast
import difflib
import io
import tokenize
from bisect import bisect_left
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import final

from refork.errors import BadInput

KINDS = ("operator", "off-by-one", "negation", "wrong-variable", "dropped-call")
#: Operators that change places; "-" as a sign and the "%" of text are left alone.
_SWAPPED = {
    "+": "-", "-": "+", "*": "/", "/": "*", "//": "%", "%": "//", "**": "*", "&": "|", "|": "&", "^": "&",
    "<<": ">>", ">>": "<<", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==",
    "and": "or", "or": "and", "+=": "-=", "-=": "+=", "*=": "/=", "//=": "%=",
}  # fmt: skip
_PLAIN = (ast.Name, ast.Constant, ast.Attribute, ast.Subscript, ast.Call, ast.List, ast.Dict, ast.Set)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
#: Other variables that a name is replaced by, at most.
_OTHERS = 2


@final
@dataclass(frozen=True, slots=True)
class Mutation:
    """``old``, the characters ``start:end`` of a source, becomes ``new``; ``line`` counts from 1."""

    kind: str
    start: int
    end: int
    old: str
    new: str
    line: int
    function: str

    @property
    def id(self) -> str:
        """Kind, place and new text: one mutation of a source has one."""
        return f"{self.kind}@{self.start}-{self.end}:{self.new}"

    def apply(self, source: str) -> str:
        """The mutated source.

        Raises:
            BadInput: this is not the source that the mutation was made for.
        """
        if source[self.start : self.end] != self.old:
            raise BadInput(f"the source has no {self.old!r} at character {self.start}", where=self.id)
        return source[: self.start] + self.new + source[self.end :]


def mutations(source: str, kinds: Collection[str] = KINDS) -> list[Mutation]:
    """Every single mutation of the bodies of a source's functions, by place and kind.

    Annotations, decorators, docstrings and the inside of f-strings are left alone.

    Raises:
        BadInput: the source does not parse, or a kind is unknown.
    """
    if unknown := sorted(set(kinds) - set(KINDS)):
        raise BadInput(f"there is no kind of mutation {unknown[0]!r}", hint=f"kinds: {', '.join(KINDS)}")
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise BadInput(f"the source does not parse: {error}", where="mutations") from error
    text = _Text(source)
    found = {one.id: one for one in _module(tree, text) if one.kind in kinds}
    return sorted(found.values(), key=lambda one: (one.start, one.end, KINDS.index(one.kind), one.new))


def unified_diff(path: str, before: str, after: str) -> str:
    """A unified diff (git's ``a/`` and ``b/`` names) that turns one text of a file into another."""
    rows: list[str] = []
    for row in difflib.unified_diff(lines(before), lines(after), f"a/{path}", f"b/{path}"):
        # difflib leaves a last line bare; without this mark, patch tools would add the newline.
        rows.append(row if row.endswith("\n") else f"{row}\n\\ No newline at end of file\n")
    return "".join(rows)


def lines(source: str) -> list[str]:
    """Lines with their ends, as Python counts them: a form feed ends none."""
    return io.StringIO(source).readlines()


@final
class _Text:
    """A source with the characters of its nodes and tokens."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._lines = lines(source)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))
        self._tokens = [
            (self._at(token.start), token.string)
            for token in tokenize.generate_tokens(io.StringIO(source).readline)
            if token.type in (tokenize.OP, tokenize.NAME)
        ]
        self._places = [place for place, _ in self._tokens]

    def _at(self, place: tuple[int, int]) -> int:
        return self._starts[place[0] - 1] + place[1]

    def _character(self, line: int, column: int) -> int:
        """Of an ast position, whose columns count bytes."""
        row = self._lines[line - 1] if line <= len(self._lines) else ""
        within = column if row.isascii() else len(row.encode()[:column].decode())
        return self._starts[line - 1] + within

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
        return self._character(node.lineno, node.col_offset), self._character(end_line, end_column)

    def of(self, node: ast.expr | ast.stmt) -> str:
        start, end = self.span(node)
        return self.source[start:end]

    def token(self, after: int, before: int, names: Collection[str]) -> tuple[int, str] | None:
        """The first of these tokens that stands between two characters."""
        for place, string in self._tokens[bisect_left(self._places, after) :]:
            if place >= before:
                return None
            if string in names:
                return place, string
        return None


def _module(tree: ast.Module, text: _Text) -> Iterator[Mutation]:
    pending: list[tuple[ast.AST, str]] = [(tree, "")]
    while pending:
        node, prefix = pending.pop()
        for child in ast.iter_child_nodes(node):
            inner = prefix
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{prefix}.{child.name}".lstrip(".")
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from _function(child, inner, text)
            pending.append((child, inner))


def _function(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str, text: _Text) -> Iterator[Mutation]:
    """Mutations of a function's own statements; a function inside it is its own."""
    variables = _variables(function)
    pending: list[ast.AST] = [*function.body]
    while pending:
        node = pending.pop()
        if isinstance(node, (*_SCOPES, ast.JoinedStr)) and not isinstance(node, ast.Lambda):
            continue
        found = [
            *_operators(node, text),
            *_numbers(node, text),
            *_conditions(node, text),
            *_names(node, variables, text),
            *_calls(node, text),
        ]
        for kind, start, end, new in found:
            line = text.source.count("\n", 0, start) + 1
            yield Mutation(kind, start, end, text.source[start:end], new, line, name)
        pending += _inner(node)


def _inner(node: ast.AST) -> list[ast.AST]:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return []  # a docstring, or a comment in the form of one
    skipped = {"annotation", "returns", "decorator_list"}
    found: list[ast.AST] = []
    for field, value in ast.iter_fields(node):
        if field not in skipped:
            found += [
                one for one in (value if isinstance(value, list) else [value]) if isinstance(one, ast.AST)
            ]
    return found


def _variables(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[tuple[str, int]]:
    """Parameters and local names with the line from which they may be set, in order of it."""
    arguments = function.args
    given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    found = {one.arg: function.lineno for one in given if one.arg not in ("self", "cls")}
    pending: list[ast.AST] = [*function.body]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found[node.id] = min(node.lineno, found.get(node.id, node.lineno))
        # What a comprehension or an inner function binds is not there outside of it.
        if not isinstance(node, (*_SCOPES, ast.comprehension)):
            pending += ast.iter_child_nodes(node)
    return sorted(found.items(), key=lambda pair: pair[1])


MutationSite = tuple[str, int, int, str]


def _operators(node: ast.AST, text: _Text) -> Iterator[MutationSite]:
    pairs: list[tuple[ast.expr, ast.expr]] = []
    if isinstance(node, ast.BinOp) and not _words(node.left) and not _words(node.right):
        pairs = [(node.left, node.right)]
    elif isinstance(node, ast.Compare):
        pairs = list(zip([node.left, *node.comparators], node.comparators, strict=False))
    elif isinstance(node, ast.BoolOp):
        pairs = list(zip(node.values, node.values[1:], strict=False))
    elif isinstance(node, ast.AugAssign) and not _words(node.value):
        pairs = [(node.target, node.value)]
    for left, right in pairs:
        found = text.token(text.span(left)[1], text.span(right)[0], _SWAPPED)
        if found:
            yield "operator", found[0], found[0] + len(found[1]), _SWAPPED[found[1]]


def _words(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )


def _numbers(node: ast.AST, text: _Text) -> Iterator[MutationSite]:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        start, end = text.span(node)
        for other in (node.value + 1, node.value - 1):
            yield "off-by-one", start, end, str(other) if other >= 0 else f"({other})"
    elif isinstance(node, ast.Call) and _named(node.func) in ("range", "len") and not node.keywords:
        start, end = text.span(node)
        if _named(node.func) == "len":
            yield "off-by-one", start, end, f"({text.of(node)} - 1)"
        elif node.args and not isinstance(node.args[-1], ast.Constant | ast.Starred):
            stop = node.args[min(1, len(node.args) - 1)]
            if not isinstance(stop, ast.Constant):
                start, end = text.span(stop)
                yield "off-by-one", end, end, " + 1"


def _named(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _conditions(node: ast.AST, text: _Text) -> Iterator[MutationSite]:
    tests: list[ast.expr] = []
    if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
        tests = [node.test]
    elif isinstance(node, ast.comprehension):
        tests = node.ifs
    for test in tests:
        if isinstance(test, ast.Constant):
            continue
        start, end = text.span(test)
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            yield "negation", start, start + (4 if text.source[start + 3].isspace() else 3), ""
        else:
            yield "negation", start, end, f"not ({text.source[start:end]})"


def _names(node: ast.AST, variables: list[tuple[str, int]], text: _Text) -> Iterator[MutationSite]:
    known = [name for name, _ in variables]
    if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load) or node.id not in known:
        return
    start, end = text.span(node)
    # The nearest ones that are set before: those a programmer takes one for the other.
    others = [name for name, line in reversed(variables) if name != node.id and line < node.lineno]
    for other in others[:_OTHERS]:
        yield "wrong-variable", start, end, other


def _calls(node: ast.AST, text: _Text) -> Iterator[MutationSite]:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield "dropped-call", *text.span(node), "pass"
    if not isinstance(node, ast.Call) or node.keywords:
        return
    start, end = text.span(node)
    if not node.args and isinstance(node.func, ast.Attribute):
        yield "dropped-call", start, end, _bare(node.func.value, text)
    elif (
        len(node.args) == 1 and isinstance(node.func, ast.Name) and not isinstance(node.args[0], ast.Starred)
    ):
        yield "dropped-call", start, end, _bare(node.args[0], text)


def _bare(node: ast.expr, text: _Text) -> str:
    """An expression's text, which stays one expression wherever it is put."""
    told = text.of(node)
    return told if isinstance(node, _PLAIN) and "\n" not in told else f"({told})"
