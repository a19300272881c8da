"""Imports of other languages as they are written, read from their syntax nodes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from refork_methods.localize.facts import Import

if TYPE_CHECKING:
    from tree_sitter import Node


def imports_told(node: Node, language: str) -> list[Import]:
    """What an import node says; several where one statement imports several."""
    return _READERS[language](node, node.start_point.row + 1)


def _script(node: Node, line: int) -> list[Import]:
    if node.type == "call_expression":
        given = node.child_by_field_name("arguments")
        first = given.named_child(0) if given is not None and given.named_child_count else None
        if first is None or first.type != "string":
            return []
        return [Import(_text(first).strip("\"'`"), line, kind="dynamic")]
    source = node.child_by_field_name("source")
    if source is None:
        return []
    module = _text(source).strip("\"'")
    names: list[tuple[str, str]] = []
    waiting = [child for child in node.named_children if child.type in ("import_clause", "export_clause")]
    star = node.type == "export_statement" and not waiting
    while waiting:
        here = waiting.pop(0)
        if here.type in ("import_specifier", "export_specifier"):
            name, alias = here.child_by_field_name("name"), here.child_by_field_name("alias")
            if name is not None:
                names.append((_text(name), _text(alias if alias is not None else name)))
        elif here.type == "identifier":
            names.append(("default", _text(here)))
        elif here.type == "namespace_import":
            names.append(("*", _text(here).removeprefix("*").replace(" as ", "").strip()))
        else:
            waiting += here.named_children
    return [Import(module, line, tuple(names), kind="star" if star else "from" if names else "import")]


def _go(node: Node, line: int) -> list[Import]:
    path, name = node.child_by_field_name("path"), node.child_by_field_name("name")
    if path is None:
        return []
    module = _text(path).strip('"`')
    return [Import(module, line, ((module, _text(name) if name is not None else module.rsplit("/", 1)[-1]),))]


def _java(node: Node, line: int) -> list[Import]:
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", _text(node), flags=re.DOTALL).strip().rstrip(";").split()
    if text[0] == "package":
        return [Import("".join(text[1:]), line, kind="package")]
    static = "static" in text
    module = "".join(part for part in text[1:] if part != "static")
    if static:
        home, _, name = module.rpartition(".")
        return [Import(home, line, () if name == "*" else ((name, name),), kind="from")]
    if module.endswith(".*"):
        return [Import(module[:-2], line, kind="star")]
    return [Import(module, line)]


def _include(node: Node, line: int) -> list[Import]:
    path = node.child_by_field_name("path")
    text = _text(path) if path is not None else ""
    if len(text) < 3 or text[0] not in '"<':
        return []
    # The level says how it is looked for: 1 beside the file first (quotes), 0 in the include folders only.
    return [Import(text[1:-1], line, level=int(text[0] == '"'), kind="include")]


def _rust(node: Node, line: int) -> list[Import]:
    if node.type == "mod_item":
        name = node.child_by_field_name("name")
        if node.child_by_field_name("body") is not None or name is None:
            return []
        path = _path_attribute(node)
        return [Import(_text(name), line, ((path, path),) if path else (), kind="mod")]
    argument = node.child_by_field_name("argument")
    if argument is None:
        return []
    return [
        Import(path, line, ((path.rpartition("::")[2], alias),), kind="from")
        if not path.endswith("::*") else Import(path[:-3], line, kind="star")
        for path, alias in _used(argument, "")
    ]  # fmt: skip


def _path_attribute(node: Node) -> str:
    """The file that ``#[path = "..."]`` before a module names; empty without."""
    before = node.prev_named_sibling
    told = re.match(r'#\[\s*path\s*=\s*"([^"]+)"', _text(before)) if before is not None else None
    return told[1] if told is not None else ""


def _used(node: Node, prefix: str) -> list[tuple[str, str]]:
    """(path, name it is bound to) of each leaf of a use tree."""

    def under(text: str) -> str:
        return f"{prefix}::{text}" if prefix else text

    if node.type == "use_list":
        return [pair for child in node.named_children for pair in _used(child, prefix)]
    if node.type == "scoped_use_list":
        path, inner = node.child_by_field_name("path"), node.child_by_field_name("list")
        below = under(_text(path)) if path is not None else prefix
        return _used(inner, below) if inner is not None else []
    if node.type == "use_as_clause":
        path, alias = node.child_by_field_name("path"), node.child_by_field_name("alias")
        return [(under(_text(path)), _text(alias))] if path is not None and alias is not None else []
    if node.type == "use_wildcard":
        return [(under(_text(node)), "*")]
    if node.type == "self":
        return [(prefix or "self", prefix.rpartition("::")[2])]
    if node.type in ("identifier", "scoped_identifier", "crate", "super"):
        text = under(_text(node))
        return [(text, text.rpartition("::")[2])]
    return []


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


_READERS: dict[str, Callable[[Node, int], list[Import]]] = {
    "javascript": _script, "typescript": _script, "tsx": _script, "go": _go, "java": _java, "rust": _rust,
    "c": _include, "cpp": _include,
}  # fmt: skip
