"""One file's lines, numbered and exact."""

from __future__ import annotations

from refork.errors import BadInput
from refork_methods.localize.facts import Span, ToolResult
from refork_methods.localize.snapshot import Snapshot, has_mark

CAP = 250
"""Lines that one view shows at most."""

LONGEST = 4000
"""Characters of one line that a view shows; longer lines are generated code or data."""

_UNENDED = "\\ no newline at the end of the file"


def view_file(snapshot: Snapshot, path: str, start: int = 1, end: int | None = None) -> ToolResult:
    """Lines ``start`` to ``end`` of a file, both included; without an end the next 250.

    The first line states the window, the total, and whatever the bytes are besides UTF-8 with line feeds.
    Then one line each: number, tab, the line with the very end it has. ``cut``: lines asked for and not
    shown.

    Raises: BadInput where the path or the window is not in the file.
    """
    name = snapshot.resolve(path)
    lines = snapshot.lines(name, keepends=True)
    total = len(lines)
    if not total:
        return ToolResult(f"{name}: an empty file")
    last = total if end is None else end
    if start < 1 or last < start:
        raise BadInput(f"lines {start} to {last} are no window", hint="count from 1; the end is included")
    if start > total:
        raise BadInput(f"{name} has {total} lines; line {start} is beyond its end")
    wanted = min(last, total)
    stop = min(wanted, start + CAP - 1)
    body: list[str] = []
    long = 0
    for number, line in enumerate(lines[start - 1 : stop], start):
        shown = line
        if len(line) > LONGEST + 2:
            long += 1
            rest = len(line.rstrip("\r\n")) - LONGEST
            shown = f"{line[:LONGEST]} … {rest:,} more characters\n"
        body.append(f"{number:>6}\t{shown}")
    text = f"{name}: lines {start}-{stop} of {total}{_told(snapshot, name, lines, long)}\n{''.join(body)}"
    if not body[-1].endswith("\n"):
        text += f"\n{_UNENDED}\n"
    return ToolResult(text, (Span(name, start, stop),), cut=wanted - stop)


def viewed(text: str) -> str:
    """The file's own text that a view shows: its inverse, for lines that are shown whole."""
    kept = text.split("\n", 1)[1].split("\n")
    if kept[-2:] == [_UNENDED, ""]:
        kept = kept[:-2]
        return "\n".join(line.split("\t", 1)[1] for line in kept)
    return "".join(line.split("\t", 1)[1] + "\n" for line in kept[:-1])


def _told(snapshot: Snapshot, name: str, lines: list[str], long: int) -> str:
    raw = snapshot.bytes(name)
    ended = sum(line.endswith("\r\n") for line in lines)
    told: list[str] = []
    if snapshot.encoding(name) != "utf-8":
        told.append("not UTF-8, read as latin-1")
    if has_mark(raw):
        told.append("begins with a byte order mark")
    if ended:
        told.append("lines end with CRLF" if ended >= len(lines) - 1 else f"{ended} lines end with CRLF")
    if long:
        told.append(f"{long} of these lines cut")
    return f" ({'; '.join(told)})" if told else ""
