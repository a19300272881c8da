"""Python by its own parser, in one pass; by line patterns where a file does not parse."""

from __future__ import annotations

import ast
import re
import warnings
from typing import Any

from refork_methods.localize.facts import FileFacts, Import
from refork_methods.localize.languages.reading import Definition, Layout, Reading, start_reading

_Def = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_LEAVES = frozenset({ast.Name, ast.Constant})
#: Node class -> its fields that can hold what we look for.
_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {}
_BARREN = frozenset({"ctx", "op", "ops", "type_comment", "type_ignores", "kind", "id", "attr", "name", "arg",
                     "names", "level", "module", "conversion", "asname", "simple", "rest", "kwd_attrs",
                     "is_async"})  # fmt: skip
_DYNAMIC = frozenset({"__import__", "import_module", "importlib.import_module"})
_HEAD = re.compile(
    r"^(?P<pad>[ \t]*)(?:async[ \t]+)?(?P<what>def|class)[ \t]+(?P<name>[^\W\d]\w*)(?P<rest>[^\n]*)"
)
_IMPORT = re.compile(r"^[ \t]*import[ \t]+(.+)$")
_FROM = re.compile(r"^[ \t]*from[ \t]+(\.*)[ \t]*([\w.]*)[ \t]+import[ \t]+(.+)$")


def read_python(path: str, raw: bytes, lines: list[str]) -> tuple[FileFacts, tuple[Layout, ...]]:
    """A Python file's facts; one that does not parse is read by line patterns, and says so in ``error``."""
    if raw.count(b"\r") != raw.count(b"\r\n"):
        raw = raw.replace(b"\r\n", b"\n").replace(b"\r", b" ")  # the parser ends lines there, diffs do not
    reading = start_reading(path, "python", lines)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = ast.parse(raw, path)
        _module_doc(reading, module)
        _block(reading, module.body, 0)
    # Code that is nested too deep ends the parser with MemoryError or RecursionError, not SyntaxError.
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return _by_lines(path, lines, f"{type(error).__name__}: {error}")
    return reading.facts()


def _module_doc(reading: Reading, module: ast.Module) -> None:
    top = reading.definitions[0]
    doc = _doc(module.body)
    if doc is not None:
        top.doc, top.doc_lines = doc.value, (doc.lineno, doc.end_lineno or doc.lineno)


def _doc(body: list[ast.stmt]) -> Any:
    """The documentation's node at the beginning of a body; None without."""
    first = body[0] if body else None
    if (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    ):
        return first.value
    return None


def _block(reading: Reading, body: list[ast.stmt], owner: int) -> None:
    for node in body:
        kind = node.__class__
        if kind is ast.FunctionDef or kind is ast.AsyncFunctionDef or kind is ast.ClassDef:
            _definition(reading, node, owner)
        elif kind is ast.Import or kind is ast.ImportFrom:
            reading.imports.extend(_imports(node))
        else:
            if owner == 0 or reading.definitions[owner].kind == "class":
                _assigned(reading, node, owner)
            _statement(reading, node, owner)


def _statement(reading: Reading, node: ast.AST, owner: int) -> None:
    for name in _fields(node.__class__):
        value = getattr(node, name)
        if value.__class__ is list:
            if value and isinstance(value[0], ast.stmt):
                _block(reading, value, owner)
            else:
                for item in value:
                    kind = item.__class__
                    if kind is ast.ExceptHandler or kind is ast.match_case:
                        _statement(reading, item, owner)
                    elif kind not in _LEAVES and item is not None:
                        _expression(reading, item, owner)
        elif value is not None and value.__class__ not in _LEAVES:
            _expression(reading, value, owner)


def _definition(reading: Reading, node: Any, owner: int) -> None:
    holder = reading.definitions[owner]
    is_class = node.__class__ is ast.ClassDef
    # The parser's line of a definition is that of ``def``; its decorators stand above it.
    start = min([node.lineno, *(mark.lineno for mark in node.decorator_list)])
    doc = _doc(node.body)
    first = node.body[0].lineno if node.body[0].__class__ not in _Def else _first_line(node.body[0])
    # A docstring on the line of the ``def`` has no line of its own to mark.
    found = Definition(
        node.name, "class" if is_class else "method" if holder.kind == "class" else "function",
        start, node.end_lineno, owner, max(node.lineno, first - 1),
        doc.value if doc is not None else "",
        (doc.lineno, doc.end_lineno) if doc is not None and doc.lineno > node.lineno else (0, 0),
        tuple(filter(None, (_dotted(base) for base in node.bases))) if is_class else (),
    )  # fmt: skip
    here = len(reading.definitions)
    reading.definitions.append(found)
    for mark in node.decorator_list:
        # A decorator without brackets is no Call node and is called all the same.
        name = _dotted(mark)
        if name:
            reading.call(owner, name, mark.lineno)
        _expression(reading, mark, owner)
    for inner in (*node.bases, *node.keywords) if is_class else (node.args,):
        _expression(reading, inner, owner)
    _block(reading, node.body, here)


def _first_line(node: Any) -> int:
    return int(min([node.lineno, *(mark.lineno for mark in node.decorator_list)]))


def _assigned(reading: Reading, node: ast.stmt, owner: int) -> None:
    """Names bound at the top of a module or class, each a symbol; and a literal ``__all__``."""
    if isinstance(node, ast.Assign):
        targets: list[ast.expr] = node.targets
    elif isinstance(node, ast.AnnAssign | ast.AugAssign):
        targets = [node.target]
    else:
        return
    for target in targets:
        if not isinstance(target, ast.Name):
            continue
        if target.id == "__all__" and owner == 0:
            _export(reading, node)
        elif not isinstance(node, ast.AugAssign):
            end = node.end_lineno or node.lineno
            reading.definitions.append(
                Definition(target.id, "variable", node.lineno, end, owner, node.lineno)
            )


def _export(reading: Reading, node: Any) -> None:
    value = node.value
    if isinstance(value, ast.List | ast.Tuple):
        names = tuple(
            item.value
            for item in value.elts
            if isinstance(item, ast.Constant) and isinstance(item.value, str)
        )
        reading.exports = names if reading.exports is None else reading.exports + names


def _expression(reading: Reading, top: ast.AST, owner: int) -> None:
    stack = [top]
    pop, push = stack.pop, stack.append
    while stack:
        node = pop()
        kind = node.__class__
        if kind is ast.Call:
            name = _dotted(node.func)  # type: ignore[attr-defined]
            if name:
                reading.call(owner, name, node.lineno)  # type: ignore[attr-defined]
                if name in _DYNAMIC:
                    _dynamic(reading, node)
        for field in _FIELDS.get(kind) or _fields(kind):
            value = getattr(node, field)
            if value.__class__ is list:
                for item in value:
                    if item.__class__ not in _LEAVES and item is not None:
                        push(item)
            elif value is not None and value.__class__ not in _LEAVES:
                push(value)


def _fields(kind: type[ast.AST]) -> tuple[str, ...]:
    known = _FIELDS.get(kind)
    if known is None:
        known = tuple(name for name in kind._fields if name not in _BARREN)
        if kind in (ast.Constant, ast.MatchSingleton, ast.Name, ast.Global, ast.Nonlocal):
            known = ()
        elif kind is ast.arg:
            known = ("annotation",)
        _FIELDS[kind] = known
    return known


def _dotted(node: ast.AST) -> str:
    """A called name as written: ``a.b.c``; ``?.c`` where what stands before is no name; empty for neither."""
    if node.__class__ is ast.Name:
        return str(node.id)
    parts: list[str] = []
    here: Any = node
    while here.__class__ is ast.Attribute:
        parts.append(here.attr)
        here = here.value
    if here.__class__ is ast.Name:
        parts.append(here.id)
    elif here.__class__ is ast.Call and here.func.__class__ is ast.Name and here.func.id == "super":
        parts.append("super")
    elif parts:
        parts = [parts[0], "?"]
    elif here.__class__ is ast.Subscript:
        return _dotted(here.value)
    parts.reverse()
    return ".".join(parts)


def _dynamic(reading: Reading, node: Any) -> None:
    """An import function that is given a literal name."""
    first = node.args[0] if node.args else None
    if isinstance(first, ast.Constant) and isinstance(first.value, str) and first.value.strip("."):
        plain = first.value.lstrip(".")
        reading.imports.append(Import(plain, node.lineno, (), len(first.value) - len(plain), "dynamic"))


def _imports(node: Any) -> list[Import]:
    if isinstance(node, ast.Import):
        return [
            Import(alias.name, node.lineno, ((alias.name, alias.asname or alias.name),))
            for alias in node.names
        ]
    if any(alias.name == "*" for alias in node.names):
        return [Import(node.module or "", node.lineno, (), node.level, "star")]
    names = tuple((alias.name, alias.asname or alias.name) for alias in node.names)
    return [Import(node.module or "", node.lineno, names, node.level, "from")]


def _by_lines(path: str, lines: list[str], error: str) -> tuple[FileFacts, tuple[Layout, ...]]:
    """Definitions end before the next line that is indented no deeper; imports are those of one line."""
    reading = start_reading(path, "python", lines)
    open_ones: list[tuple[int, int]] = []
    last = 0
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        pad = len(line) - len(line.lstrip())
        # The bracket that closes a long signature stands at the indentation of its ``def`` and ends nothing.
        while open_ones and pad <= open_ones[-1][0] and not line.lstrip().startswith((")", "]", "}")):
            reading.definitions[open_ones.pop()[1]].end = last
        head = _HEAD.match(line)
        if head is not None:
            parent = open_ones[-1][1] if open_ones else 0
            inside = reading.definitions[parent].kind == "class"
            kind = "class" if head["what"] == "class" else "method" if inside else "function"
            open_ones.append((pad, len(reading.definitions)))
            reading.definitions.append(Definition(head["name"], kind, number, number, parent, number))  # type: ignore[arg-type]
        else:
            reading.imports += _line_imports(line, number)
        last = number
    for _, at in open_ones:
        reading.definitions[at].end = last
    return reading.facts("lines", error)


def _line_imports(line: str, number: int) -> list[Import]:
    line = line.split("#", 1)[0].rstrip(" \t\\")
    plain = _IMPORT.match(line)
    if plain is not None:
        pairs = [_alias(part) for part in plain[1].split(",")]
        return [
            Import(name, number, ((name, bound),)) for name, bound in pairs if re.fullmatch(r"[\w.]+", name)
        ]
    told = _FROM.match(line)
    if told is None:
        return []
    names = tuple(pair for part in told[3].strip("() ").split(",") if (pair := _alias(part))[0])
    if names and names[0][0] == "*":
        return [Import(told[2], number, (), len(told[1]), "star")]
    return [Import(told[2], number, names, len(told[1]), "from")]


def _alias(part: str) -> tuple[str, str]:
    name, _, bound = part.strip().partition(" as ")
    return name.strip(), bound.strip() or name.strip()
