"""Paths as a file reader would resolve them, and glob patterns on them.

The calls are never executed, so a link on somebody's disk cannot be followed; what can be resolved from the
text alone is: ``~``, ``$HOME``, ``.`` and ``..``, doubled slashes, backslashes, ``file://`` and percent
escapes, and the links that every Linux has under ``/proc``. Case is ignored, as on macOS and Windows.
"""

from __future__ import annotations

import fnmatch
import re
import unicodedata
from collections.abc import Sequence
from urllib.parse import unquote

_HOME = re.compile(r"^(?:~[^/]*|\$home|\$\{home\}|%userprofile%)(?=/|$)")
_PROC = re.compile(r"^/proc/(?:self|thread-self|\d+)/(?:task/\d+/)?(?:root|cwd)(?=/|$)")


def resolved(path: str) -> tuple[str, ...]:
    """The parts of a path, lower case, without ``.`` and ``..``; a home directory is the part ``~``."""
    text = unicodedata.normalize("NFKC", path).strip().strip("'\"").casefold()
    text = "".join(c for c in text if unicodedata.category(c) not in ("Cc", "Cf"))
    if text.startswith("file:"):
        text = unquote(re.sub(r"^file:(?://(?:localhost)?)?", "", text))
    text = re.sub(r"/+", "/", text.replace("\\", "/"))
    text = _HOME.sub("~", text)
    # Again after each step: /proc/self/root may lead to another such link, and .. may uncover one.
    while _PROC.match(text := _flat(text)):
        text = _PROC.sub("", text) or "/"
    return tuple(part for part in text.split("/") if part)


def _flat(text: str) -> str:
    parts: list[str] = []
    for part in text.split("/"):
        if part == ".." and parts and parts[-1] not in ("", ".."):
            parts.pop()
        elif (part == ".." and parts == [""]) or part == ".":
            continue  # above the root is the root
        elif part or not parts:
            parts.append(part)
    return "/".join(parts)


def matches(parts: Sequence[str], pattern: str) -> bool:
    """Whether path parts match a glob: ``*`` and ``?`` inside a part, ``**`` for any number of parts."""
    return _match(tuple(parts), tuple(p for p in pattern.casefold().split("/") if p))


def _match(parts: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_match(parts[i:], pattern[1:]) for i in range(len(parts) + 1))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], pattern[0]) and _match(parts[1:], pattern[1:])
