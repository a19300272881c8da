"""The tools a model or a script explores a repository with: read-only, and the same answer every time."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, final

import networkx as nx

from refork.errors import BadInput, UserError
from refork.types import Json
from refork_methods.localize.facts import Span, ToolResult
from refork_methods.localize.index import RepoIndex
from refork_methods.localize.snapshot import Snapshot, clean, has_mark, near_paths, why_not_path

# One file's lines, numbered and exact.

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
        # Two more for the end of the line, which does not count.
        if len(line) > LONGEST + 2:
            long += 1
            rest = len(line.rstrip("\r\n")) - LONGEST
            shown = f"{line[:LONGEST]} … {rest:,} more characters\n"
        body.append(f"{number:>6}\t{shown}")
    text = (
        f"{name}: lines {start}-{stop} of {total}{_file_notes(snapshot, name, lines, long)}\n{''.join(body)}"
    )
    if not body[-1].endswith("\n"):
        text += f"\n{_UNENDED}\n"
    return ToolResult(text, (Span(name, start, stop),), cut=wanted - stop)


def _file_notes(snapshot: Snapshot, name: str, lines: list[str], long: int) -> str:
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


# Files that a file imports and files that import it, as far as asked.

MOST_FILES = 100
"""Files that each direction shows at most."""

_FARTHEST = 5


def reached(graph: "nx.DiGraph[str]", path: str, hops: int) -> dict[str, int]:
    """File -> how many imports away it is, up to ``hops``; the file itself is left out."""
    found: dict[str, int] = nx.single_source_shortest_path_length(graph, path, cutoff=hops)
    return {other: far for other, far in found.items() if far}


def connected(index: RepoIndex, path: str, hops: int = 1) -> ToolResult:
    """The files a file imports and those that import it, inside the repository, with the lines that say so.

    Raises: BadInput where there is no such file or ``hops`` is not within 1 to 5.
    """
    if not 1 <= hops <= _FARTHEST:
        raise BadInput(f"hops is 1 to {_FARTHEST}")
    name = index.snapshot.resolve(path)
    graph = index.imports
    up = reached(graph.reverse(copy=False), name, hops)
    down = reached(graph, name, hops)
    out = [
        f"{name}: {len(down)} imported, {len(up)} importing, within {hops} {'hop' if hops == 1 else 'hops'}"
    ]
    cut = _section(
        out, "imports", down, {other: graph.edges[name, other] for other in down if down[other] == 1}
    )
    cut += _section(
        out, "imported by", up, {other: graph.edges[other, name] for other in up if up[other] == 1}
    )
    facts = index.files[name]
    if facts.error is not None:
        out.append(f"note: imports may be missing ({facts.error})")
    elif facts.language is None:
        out.append("note: imports are not read from files of this kind")
    return ToolResult("\n".join(out) + "\n", cut=cut)


def _section(
    out: list[str], title: str, found: dict[str, int], direct: Mapping[str, Mapping[str, object]]
) -> int:
    """Write one direction, nearest first; returns how many are left out."""
    out.append(f"{title}:" if found else f"{title}: none")
    for other, far in sorted(found.items(), key=lambda item: (item[1], item[0]))[:MOST_FILES]:
        out.append(f"  {other} ({_edge_text(direct[other]) if far == 1 else f'{far} hops'})")
    cut = max(0, len(found) - MOST_FILES)
    if cut:
        out.append(f"  {cut} more not shown")
    return cut


def _edge_text(edge: Mapping[str, object]) -> str:
    lines, names = edge["lines"], edge["names"]
    assert isinstance(lines, tuple)
    assert isinstance(names, tuple)
    told = f"line {', '.join(map(str, lines[:4]))}{' …' if len(lines) > 4 else ''}"
    return f"{told}: {', '.join(names[:6])}{' …' if len(names) > 6 else ''}" if names else told


# Literal search: every line that holds a text, and the lines beside it.

MOST_HITS = 200
"""Hits that one answer shows at most, whatever was asked for."""

_WIDTH = 240


def hits(snapshot: Snapshot, text: str, path_glob: str | None = None) -> list[tuple[str, int]]:
    """(path, line) of every line in which the text begins, by path and line; capitals count.

    ``path_glob``: ``*`` within a name, ``**`` across folders; without a slash it is a file's name anywhere.

    Raises: BadInput where the text is empty or the pattern names nothing.
    """
    if not text:
        raise BadInput("there is no text to search for")
    return [
        (path, line)
        for path in matching(snapshot.files, path_glob)
        for line in _in_file(snapshot, path, text)
    ]


def matching(paths: tuple[str, ...], path_glob: str | None) -> list[str]:
    """The paths that a glob fits, all without one. Raises BadInput where it leads outside or fits none."""
    if path_glob is None:
        return list(paths)
    why = why_not_path(path_glob)
    if why is not None:
        raise BadInput(f"{path_glob!r} is refused: {why}", hint="globs are relative to the repository's root")
    pattern = _glob(path_glob.removeprefix("./"))
    kept = [path for path in paths if pattern.fullmatch(path)]
    if not kept:
        raise BadInput(
            f"no file fits {path_glob!r}", hint="'*.py' fits a name anywhere, 'src/**' all below src"
        )
    return kept


def search(snapshot: Snapshot, text: str, path_glob: str | None = None, max_hits: int = 50) -> ToolResult:
    """The lines that hold a text, each with the line before and after it; how many more there are is said.

    Raises: BadInput where the text is empty, the pattern fits no file, or ``max_hits`` is below 1.
    """
    if max_hits < 1:
        raise BadInput("max_hits is at least 1")
    found = hits(snapshot, text, path_glob)
    shown = found[: min(max_hits, MOST_HITS)]
    files = len({path for path, _ in found})
    if not found:
        return ToolResult(f"no line holds {text!r}{_other_case(snapshot, text, path_glob)}")
    out = [f"{len(found)} {_plural('hit', len(found))} in {files} {_plural('file', files)} for {text!r}"]
    spans: list[Span] = []
    by_path: dict[str, list[int]] = {}
    for path, line in shown:
        by_path.setdefault(path, []).append(line)
    for path, numbers in by_path.items():
        blocks = _blocks(numbers, snapshot.length(path), text.count("\n"))
        spans += [Span(path, first, last) for first, last in blocks]
        out += _printed(snapshot, path, set(numbers), blocks)
    cut = len(found) - len(shown)
    if cut:
        out.append(f"{cut} more {_plural('hit', cut)} not shown: narrow the text or give path_glob")
    return ToolResult("\n".join(out) + "\n", tuple(spans), cut)


def _in_file(snapshot: Snapshot, path: str, text: str) -> list[int]:
    # ASCII has the same bytes in both encodings of a snapshot, so a file without them is not decoded.
    if text.isascii() and text.encode() not in snapshot.bytes(path):
        return []
    content = snapshot.text(path)
    found: list[int] = []
    line, counted, at = 1, 0, content.find(text)
    while at >= 0:
        line += content.count("\n", counted, at)
        counted = at
        found.append(line)
        end = content.find("\n", at)
        at = content.find(text, end + 1) if end >= 0 else -1
    return found


def _blocks(numbers: list[int], total: int, more: int) -> list[tuple[int, int]]:
    """Hits with a line of context on each side, joined where they touch."""
    joined: list[tuple[int, int]] = []
    for number in numbers:
        first, last = max(1, number - 1), min(total, number + more + 1)
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined


def _printed(snapshot: Snapshot, path: str, numbers: set[int], blocks: list[tuple[int, int]]) -> list[str]:
    lines = snapshot.lines(path)
    out: list[str] = []
    for first, last in blocks:
        for number in range(first, last + 1):
            line = lines[number - 1]
            if len(line) > _WIDTH:
                line = f"{line[:_WIDTH]} … {len(line) - _WIDTH:,} more characters"
            out.append(f"{path}:{number}{':' if number in numbers else '-'} {line}")
        out.append("--")
    return out


def _other_case(snapshot: Snapshot, text: str, path_glob: str | None) -> str:
    folded = text.casefold()
    count = sum(snapshot.text(path).casefold().count(folded) for path in matching(snapshot.files, path_glob))
    return f"; {count} {_plural('place', count)} would if capitals were no difference" if count else ""


def _plural(word: str, count: int) -> str:
    return word if count == 1 else word + "s"


@lru_cache(maxsize=256)
def _glob(pattern: str) -> re.Pattern[str]:
    """A glob as a regular expression over whole paths."""
    out = "" if "/" in pattern else "(?:.*/)?"
    at = 0
    while at < len(pattern):
        if pattern.startswith("**/", at):
            out, at = out + "(?:.*/)?", at + 3
        elif pattern.startswith("**", at):
            out, at = out + ".*", at + 2
        elif pattern[at] == "*":
            out, at = out + "[^/]*", at + 1
        elif pattern[at] == "?":
            out, at = out + "[^/]", at + 1
        elif pattern[at] == "[" and "]" in pattern[at + 2 :]:
            end = pattern.index("]", at + 2)
            inner = pattern[at + 1 : end].replace("\\", r"\\").replace("[", r"\[").replace("^", r"\^")
            out, at = out + "[" + (f"^{inner[1:]}" if inner.startswith("!") else inner) + "]", end + 1
        else:
            out, at = out + re.escape(pattern[at]), at + 1
    try:
        return re.compile(out, re.DOTALL)
    except re.error as error:
        raise BadInput(f"{pattern!r} is no pattern: {error}") from None


# The folders of a repository, folded where they go too deep.

MOST_LINES = 400
"""Entries that one answer shows at most."""


@final
@dataclass(slots=True)
class _Folder:
    folders: dict[str, _Folder] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)

    def counts(self) -> tuple[int, int]:
        """Files and folders anywhere below."""
        below = [folder.counts() for folder in self.folders.values()]
        return len(self.files) + sum(files for files, _ in below), len(below) + sum(more for _, more in below)


def tree(snapshot: Snapshot, path: str = ".", depth: int = 2) -> ToolResult:
    """Folders and files below a folder, ``depth`` levels of them; deeper folders stand with their counts.

    Raises: BadInput where there is no such folder or the depth is below 1.
    """
    if depth < 1:
        raise BadInput("depth is at least 1")
    top, name = _opened(snapshot, path)
    out: list[str] = []
    _write(top, 0, depth, snapshot, f"{name}/" if name else "", out)
    files, folders = top.counts()
    head = f"{name or '.'}/ {_folded_text(files, folders)}"
    cut = max(0, len(out) - MOST_LINES)
    more = [f"{cut} more entries not shown: ask for a folder of it, or less depth"] if cut else []
    return ToolResult("\n".join([head, *out[:MOST_LINES], *more]) + "\n", cut=cut)


def _opened(snapshot: Snapshot, path: str) -> tuple[_Folder, str]:
    why = why_not_path(path)
    if why is not None:
        raise BadInput(f"{path!r} is refused: {why}", hint="paths are relative to the repository's root")
    name = clean(path)
    if name in snapshot:
        raise BadInput(f"{name} is a file", hint="view_file shows it")
    prefix = f"{name}/" if name else ""
    top = _Folder()
    for file in snapshot.files:
        if not file.startswith(prefix):
            continue
        here = top
        *parts, last = file[len(prefix) :].split("/")
        for part in parts:
            here = here.folders.setdefault(part, _Folder())
        here.files.append(last)
    if not top.files and not top.folders:
        known = {
            "/".join(file.split("/")[:deep])
            for file in snapshot.files
            for deep in range(1, file.count("/") + 1)
        }
        close = near_paths(name, sorted(known))
        raise BadInput(
            f"there is no folder {name!r}", hint=f"did you mean {' or '.join(close)}?" if close else None
        )
    return top, name


def _write(folder: _Folder, level: int, depth: int, snapshot: Snapshot, prefix: str, out: list[str]) -> None:
    pad = "  " * (level + 1)
    for name in sorted(folder.folders):
        inner = folder.folders[name]
        if level + 1 < depth:
            out.append(f"{pad}{name}/")
            _write(inner, level + 1, depth, snapshot, f"{prefix}{name}/", out)
        else:
            out.append(f"{pad}{name}/ {_folded_text(*inner.counts())}")
    for name in sorted(folder.files):
        count = snapshot.length(prefix + name)
        out.append(f"{pad}{name} ({count} {'line' if count == 1 else 'lines'})")


def _folded_text(files: int, folders: int) -> str:
    told = f"{files} {'file' if files == 1 else 'files'}"
    return f"({told}, {folders} {'folder' if folders == 1 else 'folders'})" if folders else f"({told})"


# The tools a model or a script explores a repository with: read-only, and the same answer every time.


@final
class RepoTools:
    """View, search, tree and connected over one snapshot.

    ``root``: a directory, an open snapshot, or an index of one. A question that cannot be answered is no
    exception but an answer whose ``error`` says why and what may have been meant.

    Raises: BadInput where a directory cannot be opened.
    """

    def __init__(self, root: str | Path | Snapshot | RepoIndex) -> None:
        self._index = root if isinstance(root, RepoIndex) else None
        if isinstance(root, RepoIndex):
            self.snapshot = root.snapshot
        else:
            self.snapshot = root if isinstance(root, Snapshot) else Snapshot(root)

    snapshot: Snapshot
    """What the tools answer from."""

    @property
    def index(self) -> RepoIndex:
        """Imports, read when they are first asked for."""
        if self._index is None:
            self._index = RepoIndex.build(self.snapshot, words=False)
        return self._index

    def view_file(self, path: str, start: int = 1, end: int | None = None) -> ToolResult:
        """Numbered lines of a file, 250 at most, with the total."""
        return _answer(lambda: view_file(self.snapshot, path, start, end))

    def search(self, text: str, path_glob: str | None = None, max_hits: int = 50) -> ToolResult:
        """Lines that hold a literal text, with a line of context, and how many are not shown."""
        return _answer(lambda: search(self.snapshot, text, path_glob, max_hits))

    def tree(self, path: str = ".", depth: int = 2) -> ToolResult:
        """Folders and files, with counts for what is folded."""
        return _answer(lambda: tree(self.snapshot, path, depth))

    def connected(self, path: str, hops: int = 1) -> ToolResult:
        """Files linked by imports, both directions."""
        return _answer(lambda: connected(self.index, path, hops))

    def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Answer a tool call as a model makes it; a call that fits no schema is an answer with ``error``."""
        spec = _SPECS.get(name)
        if spec is None:
            return _refused(f"there is no tool {name!r}; there are {', '.join(_SPECS)}")
        why = _misfit(spec, arguments)
        if why is not None:
            return _refused(f"{name}: {why}")
        given = {key: value for key, value in arguments.items() if value is not None}
        made: ToolResult = getattr(self, name)(**given)
        return made

    @staticmethod
    def schemas() -> list[Json]:
        """The tools as OpenAI function schemas."""
        return [
            {
                "type": "function",
                "function": {
                    "name": name,
                    "description": spec["description"],
                    "parameters": {
                        "type": "object",
                        "properties": {key: dict(one) for key, one in spec["properties"].items()},
                        "required": list(spec["required"]),
                        "additionalProperties": False,
                    },
                },
            }
            for name, spec in _SPECS.items()
        ]


def _answer(ask: Callable[[], ToolResult]) -> ToolResult:
    try:
        return ask()
    except UserError as error:
        return _refused(f"{error.what}{f'; {error.hint}' if error.hint else ''}")


def _refused(why: str) -> ToolResult:
    return ToolResult(f"error: {why}\n", error=why)


def _misfit(spec: Json, arguments: Mapping[str, Any]) -> str | None:
    """Why arguments do not fit a tool; None where they do. A null is an argument that is not given."""
    properties = spec["properties"]
    for key, value in arguments.items():
        if key not in properties:
            return f"it takes {', '.join(properties)}, not {key}"
        kind = properties[key]["type"]
        fits = (
            isinstance(value, str)
            if kind == "string"
            else isinstance(value, int) and not isinstance(value, bool)
        )
        if value is not None and not fits:
            return f"{key} is {'a string' if kind == 'string' else 'an integer'}, not {value!r}"
        if fits and kind == "integer" and value < 1:
            return f"{key} is at least 1"
    missing = [key for key in spec["required"] if arguments.get(key) is None]
    return f"{missing[0]} is missing" if missing else None


def _text(description: str) -> Json:
    return {"type": "string", "description": description}


def _number(description: str, most: int | None = None) -> Json:
    limit = {} if most is None else {"maximum": most}
    return {"type": "integer", "minimum": 1, **limit, "description": description}


_PATH = "Path relative to the repository root, with forward slashes."
_SPECS: dict[str, Json] = {
    "view_file": {
        "description": f"Show numbered lines of one file, {CAP} at most per call, and their total.",
        "properties": {
            "path": _text(_PATH),
            "start": _number("First line, counted from 1. Default 1."),
            "end": _number("Last line, included. Default: as many lines as one call shows."),
        },
        "required": ["path"],
    },
    "search": {
        "description": "Find a literal text (no pattern, capitals count) in all files. Gives path:line "
        "of each"
        " line that holds it, with one line of context, and says how many hits were left out.",
        "properties": {
            "text": _text("The text to find, exactly as it stands in the code."),
            "path_glob": _text("Only files that fit, such as '*.py', 'src/**' or 'tests/**/test_*.py'."),
            "max_hits": _number("Hits to show. Default 50.", MOST_HITS),
        },
        "required": ["text"],
    },
    "tree": {
        "description": "List folders and files below a folder. Deeper folders are folded to their counts.",
        "properties": {
            "path": _text("Folder relative to the repository root. Default '.', the root."),
            "depth": _number("Levels to open. Default 2."),
        },
        "required": [],
    },
    "connected": {
        "description": "List the files that a file imports and those that import it, in the repository.",
        "properties": {"path": _text(_PATH), "hops": _number("How many imports away, 1 to 5. Default 1.", 5)},
        "required": ["path"],
    },
}  # fmt: skip
