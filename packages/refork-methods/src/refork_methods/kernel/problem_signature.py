"""What a C signature says: the entry, its parameters, the lengths that it gives, constants of the file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from refork.errors import BadInput
from refork_methods.kernel.problem import BYTES

if TYPE_CHECKING:
    from tree_sitter import Node

#: Words of a declaration that do not change the element's type.
_QUALIFIERS = re.compile(
    r"\b(?:const|volatile|restrict|__restrict__|__restrict|static|inline|extern|register|_Alignas\s*\([^)]*\)|"
    r"__attribute__\s*\(\(.*?\)\)|struct)\b"
)
_DEFINE = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+([A-Za-z_]\w*)[ \t]+\(?[ \t]*(\d+)[uUlL]*[ \t]*\)?[ \t]*(?://.*|/\*.*)?$",
    re.M,
)
_TYPEDEF = re.compile(r"\btypedef\s+([A-Za-z_][\w ]*?)\s+([A-Za-z_]\w*)\s*;")


@final
@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter: element type, whether it is an array and constant, and its length where C says it."""

    name: str
    ctype: str
    array: bool
    constant: bool
    length: str | None


@final
@dataclass(frozen=True, slots=True)
class Signature:
    """The entry: name, result (None: void), parameters, and its definition in the syntax tree."""

    entry: str
    returns: str | None
    parameters: tuple[Parameter, ...]
    body: Node


def text(node: Node | None) -> str:
    """A node's source."""
    return "" if node is None or node.text is None else node.text.decode(errors="replace")


def constants(source: str) -> dict[str, int]:
    """Whole numbers that the file defines as macros."""
    return {name: int(number) for name, number in _DEFINE.findall(source)}


def signature(root: Node, source: str, entry: str | None, where: str) -> Signature:
    """The entry's signature; where none is named, the only function that is not static.

    Raises:
        BadInput: no such function, several, a parameter that is no number or array of numbers.
    """
    functions = {_named(node): node for node in _functions(root)}
    if entry is None:
        seen = [name for name, node in functions.items() if not re.search(r"\bstatic\b", _head(node))]
        if len(seen) != 1:
            told = ", ".join(seen) or "none"
            raise BadInput(f"which function is the kernel? There are: {told}", where=where, hint="entry=NAME")
        entry = seen[0]
    if entry not in functions:
        raise BadInput(f"no function {entry}", where=where, hint=f"one of {', '.join(functions) or 'none'}")
    node = functions[entry]
    known = {new: old.strip() for old, new in _TYPEDEF.findall(source)}
    declared = _QUALIFIERS.sub(" ", re.sub(r'"C"', " ", text(node.child_by_field_name("type")))).strip()
    returns = None if declared == "void" else _type(declared, known, f"{where}, the result of {entry}")
    if _pointer_result(node):
        raise BadInput(f"{entry} returns a pointer", where=where, hint="a kernel returns a number or nothing")
    function = _declarator(node)
    listed = function.child_by_field_name("parameters") if function is not None else None
    parameters = []
    for one in listed.named_children if listed is not None else []:
        if one.type == "parameter_declaration" and text(one).strip() != "void":
            parameters.append(_parameter(one, known, where))
        elif one.type not in ("comment", "parameter_declaration"):
            raise BadInput(f"parameter {text(one)!r}", where=where, hint="numbers and arrays of numbers")
    return Signature(entry, returns, tuple(parameters), node)


def _functions(root: Node) -> list[Node]:
    found, stack = [], [root]
    while stack:
        node = stack.pop()
        if node.type == "function_definition" and _named(node):
            found.append(node)
        elif node.type in (
            "translation_unit", "linkage_specification", "declaration_list", "preproc_ifdef", "preproc_if",
            "preproc_else", "preproc_elif",
        ):  # fmt: skip
            stack.extend(reversed(node.children))
    return found


def _declarator(node: Node) -> Node | None:
    one = node.child_by_field_name("declarator")
    while one is not None and one.type != "function_declarator":
        one = one.child_by_field_name("declarator")
    return one


def _pointer_result(node: Node) -> bool:
    one = node.child_by_field_name("declarator")
    return one is not None and one.type == "pointer_declarator"


def _named(node: Node) -> str:
    function = _declarator(node)
    name = function.child_by_field_name("declarator") if function is not None else None
    return text(name) if name is not None and name.type == "identifier" else ""


def _head(node: Node) -> str:
    """What stands before a function's name."""
    name = node.child_by_field_name("declarator")
    return text(node)[: name.start_byte - node.start_byte] if name is not None else ""


def _parameter(node: Node, known: dict[str, str], where: str) -> Parameter:
    kind = _type(
        _QUALIFIERS.sub(" ", text(node.child_by_field_name("type"))).strip(), known, where, text(node)
    )
    one = node.child_by_field_name("declarator")
    pointers, lengths = 0, list[str]()
    while one is not None and one.type != "identifier":
        if one.type == "array_declarator":
            size = one.child_by_field_name("size")
            lengths.insert(0, text(size))
        elif one.type in ("pointer_declarator", "reference_declarator"):
            pointers += 1
        elif one.type != "parenthesized_declarator":
            break
        inner = one.child_by_field_name("declarator")
        if inner is None:
            inner = next((child for child in one.named_children if child.type != "type_qualifier"), None)
        one = inner
    if one is None or one.type != "identifier":
        raise BadInput(f"parameter {text(node)!r} has no plain name", where=where)
    before = text(node)[: node.child_by_field_name("declarator").start_byte - node.start_byte]  # type: ignore[union-attr]
    if pointers > 1 or (pointers and lengths and not text(node).count("(*")):
        raise BadInput(
            f"parameter {text(node)!r} is a pointer to pointers", where=where, hint="one flat array"
        )
    dimensions = ([""] if pointers else []) + lengths
    length = None
    if dimensions and all(dimensions):
        length = "*".join(f"({size})" if re.search(r"[-+]", size) else size for size in dimensions)
    return Parameter(text(one), kind, bool(dimensions), bool(re.search(r"\bconst\b", before)), length)


def _type(declared: str, known: dict[str, str], where: str, shown: str = "") -> str:
    name = " ".join(declared.split())
    for _ in range(8):
        if name in known:
            name = " ".join(_QUALIFIERS.sub(" ", known[name]).split())
    name = {"unsigned long int": "unsigned long", "long int": "long", "short int": "short",
            "signed": "int", "signed int": "int", "long long int": "long long"}.get(
        name.removeprefix("std::"), name.removeprefix("std::")
    )  # fmt: skip
    if name not in BYTES:
        raise BadInput(
            f"type {declared!r}{f' of {shown!r}' if shown else ''}",
            where=where,
            hint="float, double, or integers",
        )
    return name
