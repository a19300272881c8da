"""What every language's reader gives: facts, and where each symbol's header and documentation lie."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import final

from refork_methods.localize.facts import Call, FileFacts, Import, Kind, Parse, Symbol

_SIGNATURE = 240


@final
@dataclass(slots=True)
class Definition:
    """A symbol while its file is being read. Lines from 1, both ends included.

    ``header``: the last line of its signature. ``doc_lines``: its documentation, inside or before it; (0, 0)
    without. ``parent``: the position of what holds it; -1 for the module. ``prefix``: the dotted name of
    what it belongs to where that is no symbol around it (a namespace, a type that is defined elsewhere).
    """

    name: str
    kind: Kind
    start: int
    end: int
    parent: int
    header: int = 0
    doc: str = ""
    doc_lines: tuple[int, int] = (0, 0)
    bases: tuple[str, ...] = ()
    prefix: str = ""


@final
@dataclass(frozen=True, slots=True)
class Layout:
    """Where a symbol's parts lie; lines as in :class:`Definition`."""

    header: int
    doc_lines: tuple[int, int]


@final
@dataclass(slots=True)
class Reading:
    """A file while it is being read: ``definitions[0]`` is the module."""

    path: str
    language: str
    lines: list[str]
    definitions: list[Definition] = field(default_factory=list)
    imports: list[Import] = field(default_factory=list)
    calls: dict[tuple[int, str], int] = field(default_factory=dict)
    exports: tuple[str, ...] | None = None

    def call(self, caller: int, callee: str, line: int) -> None:
        """Note a call, once for each caller and callee, at its first line."""
        key = (caller, callee)
        # Readers meet calls in any order, so the first line is the least one and not the first that came.
        if line < self.calls.get(key, line + 1):
            self.calls[key] = line

    def facts(self, parse: Parse = "tree", error: str | None = None) -> tuple[FileFacts, tuple[Layout, ...]]:
        """The finished facts, symbols in order of their lines, and each symbol's layout."""
        # Of symbols that begin on one line the longer holds the other and comes first: whoever looks for the
        # innermost one takes the last that holds a line.
        order = sorted(
            range(len(self.definitions)),
            key=lambda i: (i != 0, self.definitions[i].start, -self.definitions[i].end, i),
        )
        place = {old: new for new, old in enumerate(order)}
        symbols: list[Symbol] = []
        seen: dict[str, int] = {}
        names: dict[int, str] = {}
        for old in order:
            at = self.definitions[old]
            qualified = _qualified(self.definitions, old, names)
            key = f"{self.path}::{'' if old == 0 else qualified}"
            # Ids are keys of the index: a name that is bound again needs one of its own.
            seen[key] = seen.get(key, 0) + 1
            signature = "" if old == 0 else self._signature(at)
            symbols.append(
                Symbol(
                    key if seen[key] == 1 else f"{key}#{seen[key]}", at.name, qualified, at.kind, self.path,
                    at.start, at.end, first_paragraph(at.doc), signature, at.bases,
                )
            )  # fmt: skip
        calls = tuple(
            sorted((Call(place[c], callee, line) for (c, callee), line in self.calls.items()), key=_by_line)
        )
        layouts = tuple(
            Layout(self.definitions[old].header, self.definitions[old].doc_lines) for old in order
        )
        told = FileFacts(
            self.path, self.language or None, len(self.lines), parse, tuple(symbols),
            tuple(sorted(self.imports, key=lambda i: (i.line, i.level, i.module, i.names))),
            calls, self.exports, error,
        )  # fmt: skip
        return told, layouts

    def _signature(self, at: Definition) -> str:
        text = " ".join(" ".join(self.lines[at.start - 1 : max(at.start, at.header)]).split())
        return text if len(text) <= _SIGNATURE else text[:_SIGNATURE] + " …"


def start_reading(path: str, language: str, lines: list[str]) -> Reading:
    """A reading that holds the module alone: a symbol over the whole file, named for it."""
    stem = path.rsplit("/", 1)[-1].rsplit(".", 1)[0]
    # These stand for their folder in Python, JavaScript and Rust.
    if stem in ("__init__", "index", "mod") and "/" in path:
        stem = path.rsplit("/", 2)[-2]
    return Reading(path, language, lines, [Definition(stem, "module", 1, max(1, len(lines)), -1)])


def first_paragraph(doc: str) -> str:
    """The first paragraph of a documentation text, on one line."""
    return " ".join(re.split(r"\n\s*\n", doc.strip(), maxsplit=1)[0].split())


def _qualified(found: list[Definition], at: int, names: dict[int, str]) -> str:
    if at not in names:
        here = found[at]
        above = _qualified(found, here.parent, names) if here.parent > 0 else ""
        names[at] = ".".join(filter(None, (above, here.prefix, here.name)))
    return names[at]


def _by_line(call: Call) -> tuple[int, int, str]:
    return (call.line, call.caller, call.callee)
