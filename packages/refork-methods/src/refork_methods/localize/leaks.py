"""What would make a localization too easy: the answer in the issue, or in the snapshot."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

from unidiff.patch import PatchSet

from refork.errors import BadInput
from refork_methods.localize.gold import read_diff
from refork_methods.localize.snapshot import Snapshot

Kind: TypeAlias = Literal["diff in issue", "fix in issue", "fix in snapshot", "dirty tree"]
_HUNK = re.compile(r"^@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@", re.MULTILINE)
_HEADER = re.compile(r"^(?:diff --git a/|--- a/\S+\n\+\+\+ b/)", re.MULTILINE)
#: Shorter lines (``return x``) are said by chance.
_TELLING = 20


@final
@dataclass(frozen=True, slots=True)
class Leak:
    """One way in which the answer is given away, and where."""

    kind: Kind
    words: str


def find_leaks(
    issue: str, *, diff: str | None = None, snapshot: Snapshot | None = None, allow_dirty: bool = False
) -> list[Leak]:
    """Leaks: a diff, or a line that the gold diff adds, in the issue; a snapshot with the fix; a dirty tree.

    A snapshot counts as newer than the gold diff where the new side of its every hunk is there and the old
    is not.
    Raises: BadInput for a diff that is none.
    """
    found: list[Leak] = []
    if _HUNK.search(issue) or _HEADER.search(issue):
        found.append(Leak("diff in issue", "the issue's text contains a diff"))
    if diff is not None:
        patch = read_diff(diff)
        said = _squeezed(issue)
        lines = [line.value.strip() for part in patch for hunk in part for line in hunk if line.is_added]
        telling = [line for line in lines if len(line) >= _TELLING and _squeezed(line) in said]
        if telling:
            found.append(
                Leak("fix in issue", f"the issue's text contains a line that the fix adds: {telling[0]}")
            )
        if snapshot is not None and _applied(patch, snapshot):
            found.append(
                Leak("fix in snapshot", "the snapshot is newer than the gold diff: the fix is in it")
            )
    if snapshot is not None and snapshot.dirty and not allow_dirty:
        names = ", ".join(snapshot.changed[:3]) + (" ..." if len(snapshot.changed) > 3 else "")
        found.append(Leak("dirty tree", f"the working tree has uncommitted changes ({names})"))
    return found


def refuse_leaks(
    issue: str, *, diff: str | None = None, snapshot: Snapshot | None = None, allow_dirty: bool = False
) -> None:
    """Raise BadInput for the first leak that :func:`find_leaks` finds."""
    hints = {
        "diff in issue": "take the diff out of the issue's text",
        "fix in issue": "mask or remove it, or say that the issue gives the fix away",
        "fix in snapshot": "take the snapshot at the fix's parent commit",
        "dirty tree": "allow a dirty tree explicitly, or take the snapshot of a commit",
    }
    for leak in find_leaks(issue, diff=diff, snapshot=snapshot, allow_dirty=allow_dirty):
        raise BadInput(leak.words, hint=hints[leak.kind])


def _squeezed(text: str) -> str:
    # An issue may quote a line of the fix with another indentation, or wrapped.
    return "".join(text.split())


def _applied(patch: PatchSet, snapshot: Snapshot) -> bool:
    """Whether every changed hunk's new side stands in the snapshot and its old side does not."""
    judged = 0
    for part in patch:
        path = part.target_file.removeprefix("b/")
        # Every hunk must be there: one line of the fix may stand in the old version by chance.
        for hunk in part:
            # Asked for what they are: the mark of a missing last line end is a line of neither side.
            old = [line.value.rstrip("\r\n") for line in hunk if line.is_removed or line.is_context]
            new = [line.value.rstrip("\r\n") for line in hunk if line.is_added or line.is_context]
            text = snapshot.lines(path) if path in snapshot else []
            if not new:
                if part.source_file.removeprefix("a/") in snapshot and _holds(text, old):
                    return False
                continue
            # A hunk that only adds has its old lines in both versions: they prove nothing.
            if not _holds(text, new) or (old and len(old) >= len(new) and _holds(text, old)):
                return False
            judged += 1
    return judged > 0


def _holds(text: list[str], run: list[str]) -> bool:
    return any(text[n : n + len(run)] == run for n in range(len(text) - len(run) + 1))
