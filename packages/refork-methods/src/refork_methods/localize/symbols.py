"""What is defined in a file, or where a name is defined."""

from __future__ import annotations

from refork.errors import BadInput
from refork_methods.localize.facts import Span, Symbol, ToolResult
from refork_methods.localize.index import RepoIndex

MOST = 200
"""Symbols that one answer shows at most."""


def symbols(index: RepoIndex, path: str | None = None, name: str | None = None) -> ToolResult:
    """The symbols of a file, those of a name, or both, with their lines.

    ``name``: a name or a dotted tail of one, such as ``Class.method``. Only lines whose signature is in
    the answer count as shown.

    Raises: BadInput where neither is given, or nothing is found.
    """
    if path is None and name is None:
        raise BadInput("give a path, a name, or both")
    where = index.snapshot.resolve(path) if path is not None else None
    if name is None:
        assert where is not None
        found = list(index.files[where].symbols[1:])
        if not found:
            return ToolResult(f"{where}: no symbols{_why(index, where)}")
    else:
        found = [symbol for symbol in index.named(name) if where is None or symbol.path == where]
        if not found:
            raise BadInput(
                f"no symbol is named {name!r}{f' in {where}' if where else ''}", hint=_hint(index, name)
            )
    shown = found[:MOST]
    out = [f"{where}: {len(found)} symbols" if name is None else f"{len(found)} named {name!r}"]
    out += [_line(symbol, nested=name is None) for symbol in shown]
    cut = len(found) - len(shown)
    if cut:
        out.append(f"{cut} more not shown: ask for a name")
    if where is not None:
        out[0] += _why(index, where)
    spans = tuple(sorted({Span(s.path, s.start, s.start) for s in shown if s.signature}))
    return ToolResult("\n".join(out) + "\n", spans, cut)


def _line(symbol: Symbol, nested: bool) -> str:
    place = f"{symbol.start}-{symbol.end}" if nested else f"{symbol.path}:{symbol.start}-{symbol.end}"
    pad = "  " * symbol.qualified.count(".") if nested else ""
    signature = f": {symbol.signature}" if symbol.signature else ""
    return f"  {pad}{place} {symbol.kind} {symbol.qualified}{signature}"


def _why(index: RepoIndex, path: str) -> str:
    facts = index.files[path]
    if facts.error is not None:
        return f" (some may be missing: {facts.error})"
    return " (symbols are not read from files of this kind)" if facts.language is None else ""


def _hint(index: RepoIndex, name: str) -> str | None:
    elsewhere = index.named(name)
    if elsewhere:
        return f"it is in {', '.join(sorted({symbol.path for symbol in elsewhere})[:5])}"
    close = index.near(name)
    return f"did you mean {' or '.join(close)}?" if close else None
