"""Expressions out of tree-sitter's tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from refork_methods.kernel.rewrite.syntax import (
    At,
    Braces,
    Call,
    Cast,
    Expr,
    Name,
    Number,
    Op,
    Other,
    Pick,
    Unary,
)  # fmt: skip

if TYPE_CHECKING:
    from tree_sitter import Node


def text(node: Node) -> str:
    """What a node spans."""
    return (node.text or b"").decode()


def read_expr(node: Node | None) -> Expr:
    """An expression; what changes a variable on the way is not understood."""
    if node is None:
        return Other("")
    match node.type:
        case "identifier":
            return Name(text(node))
        case "number_literal" | "char_literal":
            return Number(text(node))
        case "parenthesized_expression" if node.named_child_count == 1:
            return read_expr(node.named_child(0))
        case "initializer_list" | "call_expression" | "compound_literal_expression":
            return _several(node)
        case _:
            return _operators(node)


def _operators(node: Node) -> Expr:
    field = node.child_by_field_name
    operator = field("operator")
    match node.type:
        case "binary_expression" if operator is not None:
            return Op(text(operator), read_expr(field("left")), read_expr(field("right")))
        case "unary_expression" | "pointer_expression" if operator is not None:
            return Unary(text(operator), read_expr(field("argument")))
        case "subscript_expression":
            return At(read_expr(field("argument")), read_expr(field("index")))
        case "conditional_expression":
            test, yes, no = (read_expr(field(name)) for name in ("condition", "consequence", "alternative"))
            return Pick(test, yes, no)
        case "cast_expression":
            kind = field("type")
            return Cast("" if kind is None else text(kind), read_expr(field("value")))
        case _:
            return Other(text(node))


def _several(node: Node) -> Expr:
    named = [child for child in node.named_children if child.type != "comment"]
    if node.type == "initializer_list":
        plain = all(child.type not in ("initializer_pair", "initializer_list") for child in named)
        return Braces(tuple(map(read_expr, named))) if plain else Other(text(node))
    function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
    if function is None or arguments is None or function.type != "identifier":
        return Other(text(node))
    given = [child for child in arguments.named_children if child.type != "comment"]
    return Call(text(function), tuple(map(read_expr, given)))
