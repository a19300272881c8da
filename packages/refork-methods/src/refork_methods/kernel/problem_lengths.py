"""Lengths of arrays from the loops around their subscripts, where these leave no doubt.

An array's last element is found by putting each loop variable's last value into the subscript. That is
certain only where the subscript is made of sums and products of sizes and variables of counting loops, no
term is subtracted that a variable is in, and the array is used in no other way. Anything else: no length.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from refork.errors import BadInput
from refork_methods.kernel.problem_expr import names_in, value
from refork_methods.kernel.problem_signature import text

if TYPE_CHECKING:
    from tree_sitter import Node

#: Sizes are tried at others too: each in its turn is made so much larger.
_LARGER = 7


class _UnsureError(Exception):
    """A subscript or loop that this cannot follow."""


@final
@dataclass(frozen=True, slots=True)
class _Use:
    node: Node
    loops: dict[str, str]


def inferred_length(body: Node, name: str, sizes: Mapping[str, int]) -> str | None:
    """Elements that a function reaches in an array, as an expression over sizes; None where unsure."""
    try:
        uses = _uses(body, name)
        if not uses:
            return None
        reached = [_reached(use, sizes) for use in uses]
    except _UnsureError:
        return None
    try:
        lengths = [_length(one, sizes) for one in dict.fromkeys(reached)]
        best = max(lengths, key=lambda one: value(one, sizes, "length"))
        for grown in _others(sizes):
            if value(best, grown, "length") < max(value(one, grown, "length") for one in lengths):
                return None  # which is longest depends on the sizes
    except BadInput:
        return None
    return best


def _uses(body: Node, name: str) -> list[_Use]:
    found: list[_Use] = []
    stack: list[tuple[Node, dict[str, str]]] = [(body, {})]
    function = body.child_by_field_name("body")
    stack = [(function, {})] if function is not None else []
    while stack:
        node, loops = stack.pop()
        if node.type == "identifier" and text(node) == name:
            parent = node.parent
            if parent is None or parent.type != "subscript_expression":
                raise _UnsureError
            if parent.child_by_field_name("argument") != node:
                raise _UnsureError
            found.append(_Use(parent, loops))
        inner = loops
        if node.type == "for_statement":
            variable, last = _loop(node)
            inner = loops | {variable: last}
        stack.extend((child, inner) for child in node.children)
    return found


def _loop(node: Node) -> tuple[str, str]:
    """Variable and last value of a loop that counts up by a fixed step."""
    condition = re.fullmatch(
        r"\s*(\w+)\s*(<=?)\s*(.+?)\s*", text(node.child_by_field_name("condition")), re.S
    )
    update = text(node.child_by_field_name("update")).replace(" ", "")
    if condition is None:
        raise _UnsureError
    name, sign, bound = condition.groups()
    if not re.fullmatch(rf"{name}\+\+|\+\+{name}|{name}\+=\w+|{name}={name}\+\w+", update):
        raise _UnsureError
    if re.search(r"[&|?]", bound):
        raise _UnsureError
    body = text(node.child_by_field_name("body"))
    if re.search(
        rf"(?<![\w.])(?:{name}\s*(?:[-+*/%&|^]|<<|>>)?=(?!=)|{name}\s*(?:\+\+|--)|(?:\+\+|--)\s*{name}\b)",
        body,
    ):
        raise _UnsureError
    return name, _plain(bound) if sign == "<=" else f"({_plain(bound)}-1)"


def _plain(expression: str) -> str:
    """An expression without casts, or a doubt."""
    bare = re.sub(
        r"\(\s*(?:size_t|int|long|unsigned|ptrdiff_t|int64_t|uint64_t|long long)\s*\)", "", expression
    )
    if not re.fullmatch(r"[\w\s+*()-]+", bare) or re.search(r"\w\s*\(", bare):
        raise _UnsureError
    return bare.strip()


def _reached(use: _Use, sizes: Mapping[str, int]) -> str:
    """The subscript with every loop variable at its last value."""
    index = use.node.child_by_field_name("index")
    if index is None:  # the C grammar names it so; that of C++ keeps a list
        index = next((one for one in use.node.named_children if one.type == "subscript_argument_list"), None)
        index = index.named_children[0] if index is not None and index.named_child_count == 1 else None
    above = use.node.parent
    if index is None:
        raise _UnsureError
    if above is not None and above.type == "subscript_expression" and above.children[0] == use.node:
        raise _UnsureError  # one dimension of several
    told = _plain(text(index))
    for _ in range(12):
        inside = names_in(told) & set(use.loops)
        if not inside:
            break
        for name in inside:
            if _falls(told, name, sizes, use.loops):
                raise _UnsureError
            told = re.sub(rf"\b{name}\b", f"({use.loops[name]})", told)
    if names_in(told) - set(sizes):
        raise _UnsureError
    return told


def _falls(told: str, name: str, sizes: Mapping[str, int], loops: Mapping[str, str]) -> bool:
    """Whether an expression may get smaller as a variable grows; products of sums are tried at two values."""
    names = {one: sizes.get(one, 7) for one in names_in(told) if one in sizes or one in loops}
    if names_in(told) - set(names):
        raise _UnsureError
    try:
        at = [value(told, names | {name: number}, "subscript") for number in (0, 1, 5)]
    except BadInput:
        raise _UnsureError from None
    return at[1] < at[0] or at[2] < at[1]


def _length(reached: str, sizes: Mapping[str, int]) -> str:
    """One more than the last subscript; as a product of sizes where it is one."""
    names = sorted(names_in(reached) or sizes)
    everywhere = [sizes, *_others(sizes)]
    wanted = [value(f"({reached})+1", known, "length") for known in everywhere]
    for many in range(1, 4):
        for product in itertools.combinations_with_replacement(names, many):
            told = "*".join(product)
            if [value(told, known, "length") for known in everywhere] == wanted:
                return told
    return f"{reached}+1"


def _others(sizes: Mapping[str, int]) -> list[dict[str, int]]:
    return [{key: (_LARGER * n + 1 if key == one else n) for key, n in sizes.items()} for one in sizes]
