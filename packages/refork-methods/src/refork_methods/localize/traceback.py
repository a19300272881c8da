"""Stack frames in an issue's text or a test log: Python, JavaScript, Java, Go and Rust."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import final

_PYTHON = re.compile(
    r'^\s*File "(?P<path>[^"\n]+)", line (?P<line>\d+)(?:, in (?P<name>[^\s]+))?', re.MULTILINE
)
_PYTEST = re.compile(
    r"^(?P<path>[^\s:]+\.py):(?P<line>\d+):(?: in (?P<name>\S+)|(?= ?\w*(?:Error|Exception)?\s*$))",
    re.MULTILINE,
)
_JAVASCRIPT = re.compile(
    r"^\s*at (?:(?P<name>(?:async |new )?[^\s(]+(?: \[as [^\]]+\])?) )?\(?(?:file://)?"
    r"(?P<path>[^\s():]+\.(?:[cm]?[jt]s|[jt]sx)):(?P<line>\d+):\d+\)?",
    re.MULTILINE,
)
_JAVA = re.compile(
    r"^\s*at (?P<name>[\w.$<>/]+)\((?P<path>\w+\.(?:java|kt|scala)):(?P<line>\d+)\)", re.MULTILINE
)
_CAUSE = re.compile(r"^\s*Caused by: ", re.MULTILINE)
_GO = re.compile(r"^(?P<name>[\w./*()-]+)\([^\n]*\)\n\s+(?P<path>[^\s:]+\.go):(?P<line>\d+)", re.MULTILINE)
_RUST = re.compile(r"^\s*\d+: (?P<name>\S+)\n\s+at (?P<path>[^\s:]+\.rs):(?P<line>\d+)", re.MULTILINE)
_PANIC = re.compile(r"panicked at (?P<path>[^\s:]+\.rs):(?P<line>\d+)(?P<name>)", re.MULTILINE)
#: Whether the frame where it went wrong is written last.
_STYLES = (
    (_PYTHON, "python", True), (_PYTEST, "python", True), (_JAVASCRIPT, "javascript", False),
    (_JAVA, "java", False), (_GO, "go", False), (_RUST, "rust", False), (_PANIC, "rust", False),
)  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class Frame:
    """One stack frame as written; ``depth`` 0 is where it went wrong, 1 its caller."""

    path: str
    line: int
    name: str | None
    language: str
    depth: int


def frames(text: str) -> tuple[Frame, ...]:
    """All stack frames in a text, those of one style from the deepest (depth 0) outwards."""
    found: list[Frame] = []
    for pattern, language, deepest_last in _STYLES:
        hits = list(pattern.finditer(text))
        if deepest_last:
            hits.reverse()
        if language == "java":
            # Within a cause the deepest frame stands first, but the cause of all stands last.
            causes = [hit.start() for hit in _CAUSE.finditer(text)]
            hits.sort(key=lambda hit: -bisect(causes, hit.start()))
        for depth, hit in enumerate(hits):
            name = _name(hit["name"], language)
            found.append(Frame(hit["path"].replace("\\", "/"), int(hit["line"]), name, language, depth))
    return tuple(found)


def _name(raw: str | None, language: str) -> str | None:
    if not raw or raw.startswith("<"):
        return None
    if language == "java":
        return ".".join(raw.split("/")[-1].split(".")[-2:])
    if language == "go":
        return raw.rsplit("/", 1)[-1].split(".")[-1]
    if language == "rust":
        return raw.split("::")[-1]
    return raw.split(" [as ")[0]


@final
@dataclass(frozen=True, slots=True)
class Placed:
    """A frame and the repository file that it stands for."""

    frame: Frame
    path: str


def place_frames(result: Iterable[Frame], files: Iterable[str]) -> tuple[Placed, ...]:
    """Frames whose file is in the repository: the file that shares the longest tail of path parts.

    A frame that fits several files equally well is left out: nothing says which it is. So is one that only
    shares its file name with a file in a folder, unless frames of this language name no folders (Java).
    """
    by_name: dict[str, list[str]] = {}
    for path in files:
        by_name.setdefault(path.rsplit("/", 1)[-1], []).append(path)
    placed: list[Placed] = []
    for frame in result:
        best = _best(frame, by_name.get(frame.path.rsplit("/", 1)[-1], []))
        if best is not None:
            placed.append(Placed(frame, best))
    return tuple(placed)


def _best(frame: Frame, candidates: list[str]) -> str | None:
    # Traces come from other machines: only the end of a path can be compared.
    scored = sorted(((_tail(frame.path, path), path) for path in candidates), reverse=True)
    if not scored or (len(scored) > 1 and scored[0][0] == scored[1][0]):
        return None
    shared, path = scored[0]
    outside = len(PurePosixPath(frame.path).parts) > 1
    whole = shared == len(PurePosixPath(path).parts)
    return path if whole or shared >= 2 or not outside else None


def _tail(first: str, second: str) -> int:
    """How many path parts agree from the end."""
    count = 0
    for one, other in zip(
        reversed(PurePosixPath(first).parts), reversed(PurePosixPath(second).parts), strict=False
    ):
        if one != other:
            break
        count += 1
    return count
