"""Where a fix really was: the old-side lines that a unified diff touches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

from unidiff.errors import UnidiffParseError
from unidiff.patch import Hunk, PatchedFile, PatchSet

from refork.errors import BadInput

Kind: TypeAlias = Literal["change", "insertion", "deletion"]


@final
@dataclass(frozen=True, slots=True)
class GoldSpan:
    """One chunk of the old side: lines 1-based, both ends included."""

    path: str
    start: int
    end: int
    kind: Kind


@final
@dataclass(frozen=True, slots=True)
class Gold:
    """What a perfect answer names: the files that exist before the fix, and the chunks in them.

    ``files`` also holds files without chunks (a pure rename, a binary file). ``created`` are new files: they
    have no old side, so nothing can point at them and they count nowhere.
    """

    spans: tuple[GoldSpan, ...]
    files: tuple[str, ...]
    created: tuple[str, ...] = ()

    def only(self, keep: Callable[[str], bool]) -> Gold:
        """The part that lies in files for which ``keep`` holds, such as no tests."""
        return Gold(
            tuple(one for one in self.spans if keep(one.path)),
            tuple(path for path in self.files if keep(path)),
            tuple(path for path in self.created if keep(path)),
        )


def gold_spans(diff: str) -> Gold:
    """The files and old-side chunks of a unified diff.

    A chunk is a run of changed lines without its context, so the answer does not depend on how much context
    the diff was made with. A pure insertion has no old line: its chunk is the line before it, plus and minus
    one.

    Raises: BadInput for text that is not a unified diff, or changes nothing.
    Source: arXiv:2606.24820 for scoring by spans of the gold diff; the exact ranges are ours.
    """
    patch = read_diff(diff)
    spans: list[GoldSpan] = []
    files: list[str] = []
    created: list[str] = []
    for changed in patch:
        path = _old_path(changed)
        if path is None:
            created.append(_strip(changed.target_file))
            continue
        files.append(path)
        spans += [one for hunk in changed for one in _chunks(path, hunk)]
    order = sorted(set(spans), key=lambda one: (one.path, one.start, one.end))
    return Gold(tuple(order), tuple(dict.fromkeys(files)), tuple(created))


def read_diff(diff: str) -> PatchSet:
    """The parsed diff, its own line ends as LF: those of a CRLF file say nothing about which lines changed.

    Raises: BadInput for text that is not a unified diff, or changes nothing.
    """
    try:
        patch = PatchSet(diff.replace("\r\n", "\n").replace("\r", ""))
    except UnidiffParseError as error:
        raise BadInput(f"this is not a unified diff: {error}") from error
    if len(patch) == 0:
        raise BadInput("the diff changes no file", hint="give a unified diff, as `git diff` writes it")
    return patch


def _old_path(changed: PatchedFile) -> str | None:
    if changed.source_file == "/dev/null":  # an insertion into an empty file is not a new one
        return None
    return _strip(changed.source_file)


def _strip(name: str) -> str:
    return name[2:] if name.startswith(("a/", "b/")) else name


def _chunks(path: str, hunk: Hunk) -> list[GoldSpan]:
    """Runs of removed and added lines between context lines."""
    found: list[GoldSpan] = []
    removed: list[int] = []
    added = 0
    # A hunk without old lines names the line it stands behind, any other its first line.
    before = hunk.source_start - (1 if hunk.source_length else 0)
    # None closes a run that goes on to the end of the hunk.
    for line in (*hunk, None):
        if line is not None and line.is_removed:
            removed.append(line.source_line_no)
            before = line.source_line_no
        elif line is not None and line.is_added:
            added += 1
        elif line is None or line.is_context:
            if removed:
                found.append(GoldSpan(path, removed[0], removed[-1], "change" if added else "deletion"))
            elif added:
                found.append(GoldSpan(path, max(1, before - 1), before + 1, "insertion"))
            removed, added = [], 0
            before = before if line is None else line.source_line_no
    return found
