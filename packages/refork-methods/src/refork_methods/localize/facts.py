"""What is known of a repository's text: spans of lines, symbols, imports, calls, and a tool's answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

Kind = Literal["module", "class", "function", "method", "variable"]
"""What a symbol is: interfaces, structs, traits, enums and type aliases are "class"; "module" is a file."""

Parse = Literal["tree", "lines", "none"]
"""How a file was read: by its syntax tree, by line patterns (it does not parse), or as plain text."""


@final
@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Lines ``start`` to ``end`` of a file, both counted from 1 and both included."""

    path: str
    start: int
    end: int


@final
@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answers: its text, the lines of files it showed, and how much it left out.

    ``cut``: entries or lines that were asked for and are not in the text. ``error``: why nothing was shown.
    """

    text: str
    spans: tuple[Span, ...] = ()
    cut: int = 0
    error: str | None = None


@final
@dataclass(frozen=True, slots=True)
class Symbol:
    """A named piece of a file. ``qualified`` is its name inside the file, such as ``Class.method``.

    ``start`` and ``end`` [lines from 1, both included] contain its decorators and its body. ``id`` is
    ``path::qualified``, with ``#2`` and so on where the same name is bound again; a module's is ``path::``.
    ``doc``: the first paragraph of its documentation. ``signature``: its head up to the body, on one line.
    ``bases``: what a class derives from, as written.
    """

    id: str
    name: str
    qualified: str
    kind: Kind
    path: str
    start: int
    end: int
    doc: str = ""
    signature: str = ""
    bases: tuple[str, ...] = ()

    @property
    def span(self) -> Span:
        """Its lines."""
        return Span(self.path, self.start, self.end)


@final
@dataclass(frozen=True, slots=True)
class Import:
    """One import as written. ``module``: the dotted name, path or package; ``names``: (name, bound as) pairs.

    ``level``: leading dots of a Python import. ``kind``: "import" a module, "from" a module, "star",
    "dynamic" (a literal given to an import function), "include" of a header, "mod" of Rust, "package" that
    the file is in.
    """

    module: str
    line: int
    names: tuple[tuple[str, str], ...] = ()
    level: int = 0
    kind: Literal["import", "from", "star", "dynamic", "include", "mod", "package"] = "import"


@final
@dataclass(frozen=True, slots=True)
class Call:
    """A call as written: ``caller`` is a position in the file's symbols, ``callee`` a dotted name."""

    caller: int
    callee: str
    line: int


@final
@dataclass(frozen=True, slots=True)
class FileFacts:
    """What one file says of itself. ``symbols``: in order of their first line, the module itself first.

    ``error``: why it was not read by its syntax tree; ``exports``: the names of a literal ``__all__``.
    """

    path: str
    language: str | None
    lines: int
    parse: Parse
    symbols: tuple[Symbol, ...]
    imports: tuple[Import, ...] = ()
    calls: tuple[Call, ...] = ()
    exports: tuple[str, ...] | None = None
    error: str | None = None
