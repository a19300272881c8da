"""Other languages by their tree-sitter grammars: one parse, one query, facts as Python's are."""

from __future__ import annotations

import importlib
import re
from bisect import bisect_right
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from refork.errors import install_command
from refork_methods.localize.facts import FileFacts, Kind
from refork_methods.localize.languages.imports_told import imports_told
from refork_methods.localize.languages.queries import QUERIES
from refork_methods.localize.languages.reading import Found, Layout, Reading, start_reading

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, Query

_WRAPPERS = frozenset(
    {
        "ambient_declaration",
        "const_declaration",
        "declaration",
        "export_statement",
        "field_declaration",
        "lexical_declaration",
        "template_declaration",
        "type_declaration",
        "var_declaration",
        "variable_declaration",
    }
)
_COMMENTS = frozenset({"comment", "line_comment", "block_comment"})
_BEFORE = frozenset({"attribute_item", "decorator"})
_CALLEE = re.compile(r"[\w$]+(?:(?:\.|::|->|\?\.)[~\w$]+)*")
_GENERIC = re.compile(r"<[^<>]*>")
_TAIL = re.compile(r"[\w$]+\Z")

_Capture = dict[str, "list[Node]"]


def read_with_grammar(
    path: str, raw: bytes, lines: list[str], language: str
) -> tuple[FileFacts, tuple[Layout, ...]]:
    """A file's facts by its grammar. Without the grammar's package the file is plain text, and says so.

    The parsers recover from syntax errors, so a broken file gives what stands outside the break.
    """
    reading = start_reading(path, language, lines)
    try:
        parser, query = _tools(language)
    except ImportError:
        module = QUERIES[language][0].replace("_", "-")
        return reading.facts("none", f"{module} is not installed: {install_command('languages')}")
    from tree_sitter import QueryCursor

    root = parser.parse(raw).root_node
    matches = [found for _, found in QueryCursor(query).matches(root)]
    places = _definitions(reading, matches, language)
    _calls(reading, matches, places)
    for match in matches:
        for node in (*match.get("import", ()), *match.get("dynamic", ())):
            reading.imports += imports_told(node, language)
    return reading.facts(
        "tree", "the parser met syntax errors and went on behind them" if root.has_error else None
    )


@cache
def _tools(language: str) -> tuple[Parser, Query]:
    from tree_sitter import Language, Parser, Query

    module, function, query = QUERIES[language]
    grammar = Language(getattr(importlib.import_module(module), function)())
    return Parser(grammar), Query(grammar, query)


def _definitions(reading: Reading, matches: list[_Capture], language: str) -> list[tuple[int, int, int]]:
    """Note the symbols; gives (first byte, last byte, position) of each, in order."""
    places: list[tuple[int, int, int]] = []
    around: list[tuple[int, int, str]] = []  # last byte, position (-1: a scope), name
    for kind, match, node in _told(matches):
        while around and around[-1][0] <= node.start_byte:
            around.pop()
        prefix, name = _name(match, language)
        if kind is None:
            around.append((node.end_byte, -1, name))
            continue
        parent, inner = _holder(around)
        above = reading.found[parent]
        if kind == "class" and parent and above.name == name and above.start == node.start_point.row + 1:
            continue  # C's typedef of a struct that has the same name
        is_method = prefix or above.kind == "class" or _in_type(around, language)
        found = _found(node, name, "method" if kind == "function" and is_method else kind, parent)
        found.prefix = ".".join([*inner, *([prefix] if prefix else [])])
        around.append((node.end_byte, len(reading.found), name))
        places.append((node.start_byte, node.end_byte, len(reading.found)))
        reading.found.append(found)
    for base in (node for match in matches for node in match.get("base", ())):
        holder = _inner(places, base.start_byte)
        if holder:
            reading.found[holder].bases += (_plain(_text(base)),)
    return places


def _told(matches: list[_Capture]) -> list[tuple[Kind | None, _Capture, Node]]:
    """(kind, captures, node) of each definition and scope (no kind), outer ones first."""
    told: dict[int, tuple[Kind | None, _Capture, Node]] = {}
    for match in matches:
        for label, nodes in match.items():
            old = told.get(nodes[0].id)
            if label == "scope":
                told.setdefault(nodes[0].id, (None, match, nodes[0]))
            elif label.startswith("def.") and (old is None or old[0] == "variable"):
                told[nodes[0].id] = (cast("Kind", label[4:]), match, nodes[0])
    return sorted(told.values(), key=lambda one: (one[2].start_byte, -one[2].end_byte))


def _holder(around: list[tuple[int, int, str]]) -> tuple[int, list[str]]:
    """(position of the innermost symbol around, 0 for the module; names of the scopes inside that)."""
    inner: list[str] = []
    for _, at, name in reversed(around):
        if at >= 0:
            return at, inner[::-1]
        inner.append(name)
    return 0, inner[::-1]


def _in_type(around: list[tuple[int, int, str]], language: str) -> bool:
    """Whether the nearest thing around is a Rust implementation, whose functions are methods."""
    return language == "rust" and bool(around) and around[-1][1] < 0 and around[-1][2][:1].isupper()


def _found(node: Node, name: str, kind: Kind, parent: int) -> Found:
    outer = node
    while outer.parent is not None and outer.parent.type in _WRAPPERS and outer.parent.named_child_count <= 3:
        if outer.parent.type in ("declaration", "field_declaration") and kind != "variable":
            break
        outer = outer.parent
    start = outer.start_point.row
    before = outer.prev_named_sibling
    while before is not None and before.type in _BEFORE and before.end_point.row >= start - 1:
        start, before = before.start_point.row, before.prev_named_sibling
    doc, doc_lines = _comments_above(before, start)
    body = node.child_by_field_name("body")
    value = node.child_by_field_name("value") or node.child_by_field_name("right")
    if body is None and value is not None:
        body = value.child_by_field_name("body")
    header = body.start_point.row if body is not None else node.start_point.row
    end = max(start, _last_row(outer))
    return Found(name, kind, start + 1, end + 1, parent, max(header, start) + 1, doc, doc_lines)


def _comments_above(before: Node | None, start: int) -> tuple[str, tuple[int, int]]:
    """(text, lines) of the comments that end right above a definition; lines (0, 0) without."""
    texts: list[str] = []
    above = start
    while before is not None and before.type in _COMMENTS and above - 1 <= _last_row(before) < above:
        row, earlier = before.start_point.row, before.prev_named_sibling
        if earlier is not None and earlier.type not in _COMMENTS and earlier.end_point.row == row:
            break  # a remark behind the code of its own line
        texts.append(_text(before))
        above, before = row, earlier
    lines = (above + 1, start) if texts else (0, 0)
    return _undecorated("\n".join(reversed(texts))), lines


def _last_row(node: Node) -> int:
    """A node's last line; some end at the very beginning of the next."""
    end = node.end_point
    return end.row - 1 if end.column == 0 and end.row > node.start_point.row else end.row


def _name(match: _Capture, language: str) -> tuple[str, str]:
    """(what the name is under, the name)."""
    text = _text(match["name"][0])
    if "owner" in match:
        return _plain(_text(match["owner"][0])), text
    if language in ("c", "cpp"):
        parts = [part for part in _plain(text.split("(", 1)[0]).split(".") if part]
        return ".".join(parts[:-1]), parts[-1] if parts else "?"
    return "", text.strip("\"'`") if not language.startswith("rust") else _plain(text)


def _plain(text: str) -> str:
    """A type or qualified name without its arguments, pointers and qualifiers, dotted."""
    while True:
        shorter = _GENERIC.sub("", text)
        if shorter == text:
            break
        text = shorter
    text = re.sub(r"\[[^\]]*\]", "", text).replace("::", ".").replace("->", ".")
    parts = re.findall(r"operator\s*\S+|[~\w$.]+", text)
    return parts[-1].strip(".") if parts else text.strip()


def _calls(reading: Reading, matches: list[_Capture], places: list[tuple[int, int, int]]) -> None:
    for match in matches:
        for node in match.get("call", ()):
            callee = _callee(_text(node))
            if callee:
                reading.call(_inner(places, node.start_byte), callee, node.start_point.row + 1)
        for node in match.get("invoke", ()):
            name, of = node.child_by_field_name("name"), node.child_by_field_name("object")
            if name is not None:
                before = "" if of is None else (_callee(_text(of)) or "?") + "."
                reading.call(_inner(places, node.start_byte), before + _text(name), node.start_point.row + 1)


def _callee(text: str) -> str:
    """A called expression as a dotted name; ``?.name`` where what stands before is no name."""
    if len(text) > 400:
        text = text[-400:]
    while "<" in text:
        shorter = _GENERIC.sub("", text)
        if shorter == text:
            break
        text = shorter
    text = text.rstrip(":")
    if _CALLEE.fullmatch(text):
        return re.sub(r"::|->|\?\.", ".", text)
    last = _TAIL.search(text)
    return f"?.{last[0]}" if last is not None else ""


def _inner(places: list[tuple[int, int, int]], byte: int) -> int:
    """The position of the innermost symbol that holds a byte; 0 is the module."""
    at = bisect_right(places, (byte, 1 << 60, 0))
    for start, end, place in reversed(places[max(0, at - 200) : at]):
        if start <= byte < end:
            return place
    return 0


def _undecorated(text: str) -> str:
    """A comment's text without its marks."""
    plain = [re.sub(r"^\s*(?:/\*\*?!?|//[/!]?|\*(?!/))\s?|\s*\*/\s*$", "", line) for line in text.split("\n")]
    return "\n".join(plain).strip()


def _text(node: Any) -> str:
    return (node.text or b"").decode("utf-8", "replace")
