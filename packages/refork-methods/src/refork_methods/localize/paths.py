"""Repository paths: which are refused, and what a near miss may have meant."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from urllib.parse import unquote

MOST = 5

_PLAIN = re.compile(r"[a-zA-Z_0-9][a-zA-Z_0-9./ +-]*[a-zA-Z_0-9]")


def clean(path: str) -> str:
    """A path without ``.`` parts and doubled slashes; ``.`` is the root, given as the empty string."""
    return "/".join(part for part in path.split("/") if part not in ("", "."))


def why_not_path(path: str) -> str | None:
    """Why a path is refused before it is looked up; None for one that may be.

    Also refused is what only looks like a way out: letters that a file system or a later tool may fold into
    dots and slashes.
    """
    if not isinstance(path, str) or not path:
        return "it is empty"
    if _PLAIN.fullmatch(path) and ".." not in path and ".git" not in path.lower():
        return None
    if any(unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp") for letter in path):
        return "it holds a control or unprintable character"
    for written in (path, unicodedata.normalize("NFKC", path), _undo_percent(path)):
        why = _leads_out(written)
        if why is not None:
            return why
    if "\\" in path or (len(path) > 1 and path[1] == ":") or "://" in path:
        return "it is not a repository path with forward slashes"
    if any(letter in path for letter in "∕⁄╱⧸․‥…"):
        return "it holds a look-alike of a dot or slash"
    return None


def _leads_out(path: str) -> str | None:
    parts = [part.strip() for part in path.replace("\\", "/").split("/")]
    if ".." in parts:
        return "it leads outside (..)"
    if path.startswith(("/", "\\")):
        return "it is absolute"
    if path.startswith("~"):
        return "it names a home folder"
    return (
        "it is inside git's own folder" if ".git" in [part.rstrip(".").casefold() for part in parts] else None
    )


def _undo_percent(path: str) -> str:
    """The path as a server would read it: decoded until nothing changes."""
    for _ in range(4):
        plain = unquote(path)
        if plain == path:
            break
        path = plain
    return path


def near_paths(wanted: str, paths: Iterable[str], most: int = MOST) -> tuple[str, ...]:
    """Paths with the same basename, then those within two edits; each group in order of path.

    Capitals are no difference.
    """
    low = wanted.casefold()
    base = low.rsplit("/", 1)[-1]
    same: list[str] = []
    close: list[str] = []
    for path in paths:
        other = path.casefold()
        if other.rsplit("/", 1)[-1] == base:
            same.append(path)
        elif within(low, other, 2):
            close.append(path)
    same.sort(key=lambda path: (path.casefold() != low, path))
    return tuple([*same, *sorted(close)][:most])


def near_names(wanted: str, names: Iterable[str], most: int = MOST) -> tuple[str, ...]:
    """Names within two edits (one for names of up to four letters), in order; capitals are no difference."""
    low = wanted.casefold()
    limit = 1 if len(low) <= 4 else 2
    return tuple(sorted({name for name in names if within(low, name.casefold(), limit)})[:most])


def within(first: str, second: str, limit: int) -> bool:
    """Whether at most ``limit`` insertions, deletions or replacements of a letter turn one into the other."""
    if abs(len(first) - len(second)) > limit:
        return False
    start = 0
    least = min(len(first), len(second))
    while start < least and first[start] == second[start]:
        start += 1
    end = 0
    while end < least - start and first[-1 - end] == second[-1 - end]:
        end += 1
    return _edits(first[start : len(first) - end], second[start : len(second) - end], limit)


def _edits(first: str, second: str, limit: int) -> bool:
    if not first or not second:
        return len(first) + len(second) <= limit
    if limit == 0:
        return False
    if first[0] == second[0]:
        return _edits(first[1:], second[1:], limit)
    return (
        _edits(first[1:], second[1:], limit - 1)
        or _edits(first[1:], second, limit - 1)
        or _edits(first, second[1:], limit - 1)
    )
