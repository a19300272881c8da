"""Literal search: every line that holds a text, and the lines beside it."""

from __future__ import annotations

import re
from functools import lru_cache

from refork.errors import BadInput
from refork_methods.localize.facts import Span, ToolResult
from refork_methods.localize.paths import why_not_path
from refork_methods.localize.snapshot import Snapshot

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
