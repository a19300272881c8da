"""Other languages by their tree-sitter grammars: one parse, one query, facts as Python's are."""

from __future__ import annotations

import importlib
import re
from bisect import bisect_right
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, cast

from refork.errors import install_command
from refork_methods.localize.facts import FileFacts, Import, Kind
from refork_methods.localize.languages.reading import Definition, Layout, Reading, start_reading

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, Query


# Imports of other languages as they are written, read from their syntax nodes.


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


# What is looked for in the syntax trees of other languages.
#
# Captures: ``def.KIND`` with its ``name`` is a symbol; ``scope`` with its ``name`` qualifies the symbols
# inside it and is none itself; ``owner`` names the type that a method belongs to; ``base`` what a class
# derives from; ``import`` and ``call`` (the called expression) speak for themselves.

_SCRIPT = """
(function_declaration name: (identifier) @name) @def.function
(generator_function_declaration name: (identifier) @name) @def.function
(method_definition name: (_) @name) @def.method
(variable_declarator name: (identifier) @name value: [(arrow_function) (function_expression)
(generator_function)])
  @def.function
(program (lexical_declaration (variable_declarator name: (identifier) @name) @def.variable))
(program (export_statement (lexical_declaration (variable_declarator name: (identifier) @name)
@def.variable))) (program (variable_declaration (variable_declarator name: (identifier) @name) @def.variable))
(assignment_expression left: (member_expression property: (property_identifier) @name)
  right: [(arrow_function) (function_expression) (generator_function)]) @def.function
(pair key: (property_identifier) @name value: [(arrow_function) (function_expression)]) @def.function
(import_statement) @import
(export_statement source: (string)) @import
(call_expression function: [(identifier) (member_expression)] @call)
(call_expression function: (import)) @dynamic
(call_expression function: (identifier) @_f (#eq? @_f "require")) @dynamic
(new_expression constructor: (_) @call)
"""

_JAVASCRIPT = (
    _SCRIPT
    + """
(class_declaration name: (identifier) @name) @def.class
(class_heritage (_) @base)
(field_definition property: (_) @name value: [(arrow_function) (function_expression)]) @def.method
"""
)

_TYPESCRIPT = (
    _SCRIPT
    + """
(class_declaration name: (type_identifier) @name) @def.class
(abstract_class_declaration name: (type_identifier) @name) @def.class
(interface_declaration name: (type_identifier) @name) @def.class
(type_alias_declaration name: (type_identifier) @name) @def.class
(enum_declaration name: (identifier) @name) @def.class
(internal_module name: (_) @name) @scope
(function_signature name: (identifier) @name) @def.function
(abstract_method_signature name: (_) @name) @def.method
(method_signature name: (_) @name) @def.method
(public_field_definition name: (_) @name value: [(arrow_function) (function_expression)]) @def.method
(extends_clause value: (_) @base)
(implements_clause (_) @base)
"""
)

_GO = """
(function_declaration name: (identifier) @name) @def.function
(method_declaration receiver: (parameter_list (parameter_declaration type: (_) @owner))
  name: (field_identifier) @name) @def.method
(type_declaration (type_spec name: (type_identifier) @name) @def.class)
(type_declaration (type_alias name: (type_identifier) @name) @def.class)
(source_file (const_declaration (const_spec name: (identifier) @name) @def.variable))
(source_file (var_declaration (var_spec name: (identifier) @name) @def.variable))
(source_file (var_declaration (var_spec_list (var_spec name: (identifier) @name) @def.variable)))
(import_spec) @import
(call_expression function: [(identifier) (selector_expression)] @call)
"""

_RUST = """
(function_item name: (identifier) @name) @def.function
(function_signature_item name: (identifier) @name) @def.function
(struct_item name: (type_identifier) @name) @def.class
(enum_item name: (type_identifier) @name) @def.class
(union_item name: (type_identifier) @name) @def.class
(trait_item name: (type_identifier) @name) @def.class
(type_item name: (type_identifier) @name) @def.class
(macro_definition name: (identifier) @name) @def.function
(const_item name: (identifier) @name) @def.variable
(static_item name: (identifier) @name) @def.variable
(impl_item type: (_) @name) @scope
(mod_item name: (identifier) @name body: (_)) @scope
(mod_item) @import
(use_declaration) @import
(call_expression function: (_) @call)
(macro_invocation macro: (_) @call)
"""

_JAVA = """
(class_declaration name: (identifier) @name) @def.class
(interface_declaration name: (identifier) @name) @def.class
(enum_declaration name: (identifier) @name) @def.class
(record_declaration name: (identifier) @name) @def.class
(annotation_type_declaration name: (identifier) @name) @def.class
(method_declaration name: (identifier) @name) @def.method
(constructor_declaration name: (identifier) @name) @def.method
(compact_constructor_declaration name: (identifier) @name) @def.method
(field_declaration declarator: (variable_declarator name: (identifier) @name)) @def.variable
(superclass (_) @base)
(super_interfaces (type_list (_) @base))
(import_declaration) @import
(package_declaration) @import
(method_invocation) @invoke
(object_creation_expression type: (_) @call)
"""

_C = """
(function_definition declarator: (_) @name) @def.function
(struct_specifier name: (type_identifier) @name body: (_)) @def.class
(union_specifier name: (type_identifier) @name body: (_)) @def.class
(enum_specifier name: (type_identifier) @name body: (_)) @def.class
(type_definition declarator: (type_identifier) @name) @def.class
(preproc_function_def name: (identifier) @name) @def.function
(preproc_def name: (identifier) @name value: (_)) @def.variable
(translation_unit (declaration declarator: (init_declarator declarator: (_) @name)) @def.variable)
(preproc_include) @import
(call_expression function: (_) @call)
"""

_CPP = (
    _C
    + """
(class_specifier name: (_) @name body: (_)) @def.class
(namespace_definition name: (_) @name) @scope
(alias_declaration name: (type_identifier) @name) @def.class
(base_class_clause [(type_identifier) (qualified_identifier) (template_type)] @base)
(new_expression type: (_) @call)
"""
)

QUERIES: dict[str, tuple[str, str, str]] = {
    "javascript": ("tree_sitter_javascript", "language", _JAVASCRIPT),
    "typescript": ("tree_sitter_typescript", "language_typescript", _TYPESCRIPT),
    "tsx": ("tree_sitter_typescript", "language_tsx", _TYPESCRIPT),
    "go": ("tree_sitter_go", "language", _GO),
    "rust": ("tree_sitter_rust", "language", _RUST),
    "java": ("tree_sitter_java", "language", _JAVA),
    "c": ("tree_sitter_c", "language", _C),
    "cpp": ("tree_sitter_cpp", "language", _CPP),
}
"""Language -> (grammar module, its function, query)."""


# Other languages by their tree-sitter grammars: one parse, one query, facts as Python's are.

_WRAPPERS = frozenset({
    "ambient_declaration", "const_declaration", "declaration", "export_statement", "field_declaration",
    "lexical_declaration", "template_declaration", "type_declaration", "var_declaration",
    "variable_declaration",
})  # fmt: skip
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
    for kind, match, node in _labelled(matches):
        # What ended before this node does not hold it.
        while around and around[-1][0] <= node.start_byte:
            around.pop()
        prefix, name = _name(match, language)
        if kind is None:
            around.append((node.end_byte, -1, name))
            continue
        parent, inner = _holder(around)
        above = reading.definitions[parent]
        if kind == "class" and parent and above.name == name and above.start == node.start_point.row + 1:
            continue  # C's typedef of a struct that has the same name
        is_method = prefix or above.kind == "class" or _in_type(around, language)
        found = _definition(node, name, "method" if kind == "function" and is_method else kind, parent)
        found.prefix = ".".join([*inner, *([prefix] if prefix else [])])
        around.append((node.end_byte, len(reading.definitions), name))
        places.append((node.start_byte, node.end_byte, len(reading.definitions)))
        reading.definitions.append(found)
    for base in (node for match in matches for node in match.get("base", ())):
        holder = _inner(places, base.start_byte)
        if holder:
            reading.definitions[holder].bases += (_plain(_text(base)),)
    return places


def _labelled(matches: list[_Capture]) -> list[tuple[Kind | None, _Capture, Node]]:
    """(kind, captures, node) of each definition and scope (no kind), outer ones first."""
    told: dict[int, tuple[Kind | None, _Capture, Node]] = {}
    for match in matches:
        for label, nodes in match.items():
            old = told.get(nodes[0].id)
            if label == "scope":
                told.setdefault(nodes[0].id, (None, match, nodes[0]))
            # A constant that is given a function matches twice; it is the function.
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


def _definition(node: Node, name: str, kind: Kind, parent: int) -> Definition:
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
    return Definition(name, kind, start + 1, end + 1, parent, max(header, start) + 1, doc, doc_lines)


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
        # A declarator of C is captured whole, with its parameters.
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
        # Each call of a chain holds the text of all before it: read whole, a long chain takes quadratic time.
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
    # Places rise by first byte; 1 << 60 is beyond any last byte, so one that begins at this byte counts too.
    at = bisect_right(places, (byte, 1 << 60, 0))
    # Bounded, for files with thousands of symbols: nothing is nested that deep.
    for start, end, place in reversed(places[max(0, at - 200) : at]):
        if start <= byte < end:
            return place
    return 0


def _undecorated(text: str) -> str:
    """A comment's text without its marks."""
    plain = [re.sub(r"^\s*(?:/\*\*?!?|//[/!]?|\*(?!/))\s?|\s*\*/\s*$", "", line) for line in text.split("\n")]
    return "\n".join(plain).strip()
