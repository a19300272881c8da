"""A source file with one function of it understood: its parameters, its body, what stands around it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, final

from refork.errors import BadInput
from refork_methods.kernel.problem import BLOCK, declarator_of, functions_of, parse
from refork_methods.kernel.rewrite.canonical import canonical, element, loops
from refork_methods.kernel.rewrite.read import read_block, read_expr, text
from refork_methods.kernel.rewrite.show import show
from refork_methods.kernel.rewrite.syntax import (
    Block,
    Declare,
    Expr,
    If,
    Loop,
    Name,
    Stmt,
    Stmts,
    names_in,
    statements,
)  # fmt: skip

if TYPE_CHECKING:
    from tree_sitter import Node

_UNSIGNED = re.compile(r"\b(?:unsigned|size_t|uint\d+_t)\b")


def is_unsigned(kind: str) -> bool:
    """Whether a type wraps at zero."""
    return bool(_UNSIGNED.search(kind))


@final
@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter. ``dims``: of an array or pointer, None where one is not said; None of a scalar."""

    name: str
    type: str
    dims: tuple[Expr | None, ...] | None
    const: bool
    restrict: bool
    spot: int


@final
@dataclass(frozen=True, slots=True)
class Unit:
    """A file: text before the body of its entry, the body, text after it, and flags of the compiler."""

    before: str
    body: Stmts
    after: str
    entry: str
    parameters: tuple[Parameter, ...]
    start: int
    flags: tuple[str, ...] = ()
    lengths: dict[str, Expr] = field(default_factory=dict)

    def render(self) -> str:
        """The file as C."""
        return f"{self.before}{{\n{show(self.body)}}}{self.after}"

    def parameter(self, name: str) -> Parameter | None:
        """The parameter of this name."""
        return next((one for one in self.parameters if one.name == name), None)

    def declared(self, name: str) -> Declare | None:
        """The local variable of this name."""
        return next((s for s in statements(self.body) if isinstance(s, Declare) and s.name == name), None)

    def kind(self, name: str) -> str:
        """Element type of a variable, '' where it is not known."""
        known = self.parameter(name)
        if known is not None:
            return element(known.type)
        local = self.declared(name)
        if local is not None:
            return element(local.type)
        loop = next((s for s in statements(self.body) if isinstance(s, Loop) and s.counter == name), None)
        return "" if loop is None else element(loop.type)

    def fresh(self, base: str) -> str:
        """A name that is not used yet."""
        used = names_in(self.body) | {one.name for one in self.parameters}
        # A word of the text before may be a macro, which would replace a variable of that name.
        words = set(re.findall(r"\w+", self.before))
        number, made = 1, base
        while made in used or made in words:
            number += 1
            made = f"{base}{number}"
        return made

    def with_top(self, lines: str) -> Unit:
        """With declarations before the function, once."""
        if lines in self.before:
            return self
        before = f"{self.before[: self.start]}{lines}\n{self.before[self.start :]}"
        return replace(self, before=before, start=self.start + len(lines) + 1)


def labelled(body: Stmts) -> dict[str, tuple[Loop, tuple[Loop, ...]]]:
    """Loops by counter; further ones of the same counter as ``j#2``."""
    found: dict[str, tuple[Loop, tuple[Loop, ...]]] = {}
    seen: dict[str, int] = {}
    for loop, above in loops(body):
        seen[loop.counter] = seen.get(loop.counter, 0) + 1
        number = seen[loop.counter]
        found[loop.counter if number == 1 else f"{loop.counter}#{number}"] = (loop, above)
    return found


def swap(body: Stmts, old: Loop, new: Stmts) -> Stmts:
    """Statements with one loop (the same object) replaced."""
    made: list[Stmt] = []
    for stmt in body:
        if stmt is old:
            made.extend(new)
        elif isinstance(stmt, Loop | Block):
            inner = swap(stmt.body, old, new)
            made.append(stmt if inner is stmt.body else replace(stmt, body=inner))
        elif isinstance(stmt, If):
            yes, no = swap(stmt.yes, old, new), swap(stmt.no, old, new)
            made.append(stmt if yes is stmt.yes and no is stmt.no else If(stmt.test, yes, no))
        else:
            made.append(stmt)
    same = len(made) == len(body) and all(one is other for one, other in zip(made, body, strict=True))
    return body if same else tuple(made)


@lru_cache(maxsize=256)
def read_unit(source: str, entry: str, flags: tuple[str, ...] = ()) -> Unit:
    """A file and its entry function.

    Raises:
        BadInput: a syntax error, no such function.
        MissingExtra: no grammar for C.
    """
    data = source.encode()
    found = functions_of(parse(source, ".c").root_node).get(entry)
    if found is None:
        raise BadInput(f"no function {entry} with a body", where="kernel rewrite", hint="name the entry")
    # The entry alone must parse: what stands around it is kept as text.
    if found.has_error:
        line = found.start_point[0] + 1
        raise BadInput(f"{entry} has a syntax error", where=f"line {line}", hint="it must compile first")
    body = found.child_by_field_name("body")
    assert body is not None
    before = data[: body.start_byte].decode()
    parameters = tuple(_parameters(found, data))
    statements_ = canonical(read_block(body))
    _plain(statements_, before, entry, frozenset(one.name for one in parameters))
    return Unit(
        before, statements_, data[body.end_byte :].decode(), entry, parameters,
        len(data[: found.start_byte].decode()), flags, _lengths(source),
    )  # fmt: skip


def _plain(body: Stmts, before: str, entry: str, parameters: frozenset[str]) -> None:
    """Refuse what would make names mean something else.

    Raises:
        BadInput: macros that are no numbers, volatile memory, a name that hides another.
    """
    # A macro that is no number may hide a call, a store or another name.
    macros = {
        name for name, value in re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(.*)$", before, re.M)
        if not re.fullmatch(r"(?:0[xX][\da-fA-F]+|\d[\d.]*(?:[eE][-+]?\d+)?[fFuUlL]*|[\s()+*/<>-])+", value)
    }  # fmt: skip
    if macros & names_in(body) or re.search(r"\b(?:volatile|_Atomic)\b", before.rpartition(entry)[2]):
        raise BadInput(
            f"{entry} uses macros or volatile memory", where="kernel rewrite", hint="write them out"
        )
    for loop, above in loops(body):
        local = [s.name for s in statements(loop.body) if isinstance(s, Declare)]
        if loop.counter in (*(one.counter for one in above), *local):
            raise BadInput(
                f"{loop.counter} hides another {loop.counter}", where=entry, hint="rename one of them"
            )
    for inner in _scopes(body, parameters):
        raise BadInput(f"{inner} hides another {inner}", where=entry, hint="rename one of them")


def _scopes(body: Stmts, known: frozenset[str]) -> Iterator[str]:
    """Names that are declared again inside of their scope."""
    own = known
    for stmt in body:
        if isinstance(stmt, Declare):
            if stmt.name in own:
                yield stmt.name
            own |= {stmt.name}
        elif isinstance(stmt, Loop) and stmt.counter in own:
            yield stmt.counter
        for part in ("body", "yes", "no"):
            yield from _scopes(getattr(stmt, part, ()), own)


def _parameters(function: Node, data: bytes) -> Iterator[Parameter]:
    declarator = declarator_of(function)
    listed = None if declarator is None else declarator.child_by_field_name("parameters")
    for node in () if listed is None else listed.named_children:
        inner = node.child_by_field_name("declarator")
        if node.type != "parameter_declaration" or inner is None:
            continue
        kind = data[node.start_byte : inner.start_byte].decode().strip()
        dims: list[Expr | None] = []
        pointed = restrict = False
        spot = -1
        at: Node | None = inner
        while at is not None and at.type != "identifier":
            words = [text(child) for child in at.children if child.type == "type_qualifier"]
            restrict = restrict or any("restrict" in word for word in words)
            if at.type == "array_declarator":
                size = at.child_by_field_name("size")
                dims.insert(0, None if size is None else read_expr(size))
                spot = next(child.end_byte for child in at.children if child.type == "[")
            elif at.type == "pointer_declarator":
                pointed = True
                dims.insert(0, None)
                spot = at.children[0].end_byte
            following = at.child_by_field_name("declarator")
            at = following or next(iter(at.named_children), None)
        if at is not None:
            # The tree counts bytes, Python characters.
            spot = len(data[:spot].decode()) if spot >= 0 else -1
            yield Parameter(
                text(at),
                kind,
                tuple(dims) if dims or pointed else None,
                "const" in kind.split(),
                restrict,
                spot,
            )


def _lengths(source: str) -> dict[str, Expr]:
    """Lengths that the comment block of a problem states as a name: ``h=bins:inout``."""
    found: dict[str, Expr] = {}
    for item in (item for line in BLOCK.findall(source) for item in line.split()):
        name, _, said = item.partition("=")
        length = said.partition(":")[0]
        if re.fullmatch(r"[A-Za-z_]\w*", length):
            found[name] = Name(length)
    return found
