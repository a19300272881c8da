"""Statements out of tree-sitter's tree: loops that count in one form, conditional stores as picks."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from refork_methods.kernel.rewrite.syntax import (
    STREAM,
    Assign,
    At,
    Block,
    Braces,
    Call,
    Cast,
    Declare,
    Do,
    Expr,
    If,
    Loop,
    Name,
    Note,
    Number,
    Op,
    Opaque,
    Other,
    Pick,
    Return,
    Stmt,
    Stmts,
    Unary,
    code,
    decimal,
    map_expr,
    plus,
    statements,
    within,
)

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


#: Pragmas that belong to the loop after them and promise nothing that other moves could break.
_OURS = re.compile(r"#\s*pragma\s+((?:GCC\s+(?:ivdep|unroll)|omp\s+simd)\b.*)")
_FOLDS = ("+", "*")


def read_block(node: Node) -> Stmts:
    """The statements of a compound statement, or of one that stands alone."""
    if node.type != "compound_statement":
        return _merge(_read(node))
    made: list[Stmt] = []
    for child in node.named_children:
        made.extend(_read(child))
    return _merge(tuple(made))


def _merge(body: Stmts) -> Stmts:
    """Pragmas put onto the loop that follows them."""
    made: list[Stmt] = []
    pragmas: list[str] = []
    for stmt in body:
        found = _OURS.match(stmt.text) if isinstance(stmt, Opaque) else None
        if found:
            pragmas.append(" ".join(found[1].split()))
        elif isinstance(stmt, Loop):
            made.append(replace(stmt, pragmas=tuple(pragmas)))
            pragmas = []
        else:
            made.extend(Opaque(f"#pragma {one}") for one in pragmas)
            pragmas = []
            made.append(stmt)
    return tuple(made)


def _read(node: Node) -> Stmts:
    match node.type:
        case "comment":
            return (Note(text(node)),)
        case "compound_statement":
            return (Block(read_block(node)),)
        case "declaration":
            return _declared(node)
        case "for_statement":
            return (_loop(node),)
        case "if_statement":
            return (_branch(node),)
        case "return_statement":
            value = next(iter(node.named_children), None)
            return (Return(None if value is None else read_expr(value)),)
        case "expression_statement":
            inner = next(iter(node.named_children), None)
            return () if inner is None else _walked(_expression(inner))
        case _:
            return (Opaque(text(node).strip()),)


def _expression(node: Node) -> Stmt:
    opaque = Opaque(text(node) + ";")
    if node.type == "call_expression":
        match read_expr(node):
            case Call(name=called, args=(Unary(op="&", arg=At()) as place, value)) if called.startswith(
                STREAM
            ):
                return Assign(Unary("*", Cast(f"{called} *", place)), "=", value)
            case Call() as call:
                return Do(call)
            case _:
                return opaque
    operator = node.child_by_field_name("operator")
    if operator is None:
        return opaque
    if node.type == "update_expression":
        op = "+=" if text(operator) == "++" else "-="
        return Assign(read_expr(node.child_by_field_name("argument")), op, Number("1"))
    if node.type != "assignment_expression":
        return opaque
    target, value = (read_expr(node.child_by_field_name(side)) for side in ("left", "right"))
    op = text(operator)
    if op == "=" and isinstance(value, Op) and value.op in _FOLDS:
        # x = x + e and x = e + x are x += e to the last bit.
        if value.left == target:
            return Assign(target, value.op + "=", value.right)
        if value.right == target:
            return Assign(target, value.op + "=", value.left)
    return Assign(target, op, value)


_NEXT = re.compile(r"(\w+)\s*\+\+")


def _walked(stmt: Stmt) -> Stmts:
    """``*to++ = *from++`` as ``to[0] = from[0]``, and both moved on after it."""
    if not isinstance(stmt, Assign):
        return (stmt,)
    moved: list[str] = []

    def step(part: Expr) -> Expr:
        match part:
            case Unary(op="*", arg=Other(text=said)) if found := _NEXT.fullmatch(said):
                moved.append(found[1])
                return At(Name(found[1]), Number("0"))
            case _:
                return part

    made = Assign(map_expr(stmt.target, step), stmt.op, map_expr(stmt.value, step))
    used = [part.id for part in within((made,)) if isinstance(part, Name)]
    # Named once more, it would be read before or after it moved: C leaves that open.
    if not moved or any(used.count(name) != 1 for name in moved):
        return (stmt,)
    return (made, *(Assign(Name(name), "+=", Number("1")) for name in moved))


def _declared(node: Node) -> Stmts:
    declarators = node.children_by_field_name("declarator")
    whole = (Opaque(text(node)),)
    if not declarators:
        return whole
    source = text(node)
    kind = source.encode()[: declarators[0].start_byte - node.start_byte].decode().strip()
    made: list[Stmt] = []
    for each in declarators:
        value: Expr | None = None
        inner: Node | None = each
        if each.type == "init_declarator":
            value, inner = (
                read_expr(each.child_by_field_name("value")),
                each.child_by_field_name("declarator"),
            )
        dims: list[Expr] = []
        while inner is not None and inner.type == "array_declarator":
            dims.insert(0, read_expr(inner.child_by_field_name("size")))
            inner = inner.child_by_field_name("declarator")
        pointer = ""
        if inner is not None and inner.type == "pointer_declarator":
            pointer = "".join(
                text(child) if child.type == "*" else f" {text(child)} " for child in inner.children[:-1]
            )
            inner = inner.child_by_field_name("declarator")
        # A static variable lives on from call to call, a volatile one changes by itself.
        if inner is None or inner.type != "identifier" or "static" in kind.split() or "volatile" in kind:
            return whole
        made.append(Declare(f"{kind} {pointer}".strip(), text(inner), tuple(dims), value))
    return tuple(made)


def _branch(node: Node) -> Stmt:
    field = node.child_by_field_name
    consequence, alternative = field("consequence"), field("alternative")
    if consequence is None:
        return Opaque(text(node))
    test, yes = read_expr(field("condition")), read_block(consequence)
    inner = None if alternative is None else alternative.named_child(alternative.named_child_count - 1)
    no = () if inner is None else read_block(inner)
    match code(yes):
        # if (e > m) m = e; is m = e > m ? e : m; for every e, and can be a maximum.
        case (Assign(target=Name() as target, op="=", value=value),) if not no and _compares(
            test, value, target
        ):
            return Assign(target, "=", Pick(test, value, target))
        case _:
            return If(test, yes, no)


def _compares(test: Expr, value: Expr, target: Expr) -> bool:
    return (
        isinstance(test, Op)
        and test.op in ("<", ">", "<=", ">=")
        and {test.left, test.right} == {value, target}
    )


def _loop(node: Node) -> Stmt:
    field = node.child_by_field_name
    opaque = Opaque(text(node))
    body = field("body")
    start, test, update = _start(field("initializer")), read_expr(field("condition")), field("update")
    if body is None or start is None or update is None:
        return opaque
    counter, kind, lower = start
    step = _step(update, counter)
    if not isinstance(test, Op) or test.left != Name(counter) or step is None:
        return opaque
    if test.op not in ("<", "<="):
        return opaque
    # The same but at the type's largest number, at which a loop with <= would never end.
    upper = plus(test.right, 1) if test.op == "<=" else test.right
    read = read_block(body)
    if changes(read, counter) or not _plain(read):
        return opaque
    return Loop(counter, kind, lower, upper, step, read)


def _plain(body: Stmts) -> bool:
    """Nothing that may jump or change what is not seen."""
    if any(isinstance(stmt, Opaque | Return) for stmt in statements(body)):
        return False
    return not any(isinstance(part, Other) for part in within(body))


def _start(node: Node | None) -> tuple[str, str, Expr] | None:
    """Counter, its type ('' where it is declared before), first value."""
    if node is None:
        return None
    if node.type == "declaration":
        match _declared(node):
            case (Declare(type=kind, name=name, dims=(), value=value),) if value is not None:
                return name, kind, value
            case _:
                return None
    if node.type == "assignment_expression":
        match _expression(node):
            case Assign(target=Name(id=name), op="=", value=value):
                return name, "", value
            case _:
                return None
    return None


def _step(node: Node, counter: str) -> int | None:
    if node.type not in ("update_expression", "assignment_expression"):
        return None
    match _expression(node):
        case Assign(target=Name(id=name), op="+=", value=Number(text=digits)) if name == counter:
            return decimal(digits) or None
        case _:
            return None


def changes(body: Stmts, name: str) -> bool:
    """Whether a variable is assigned in statements, declared anew, or its address taken."""
    for stmt in statements(body):
        match stmt:
            case Assign(target=Name(id=target)) if target == name:
                return True
            case Declare(name=declared) if declared == name:
                return True
            case Loop(counter=counter) if counter == name:
                return True
            case _:
                pass
    return Unary("&", Name(name)) in within(body)
