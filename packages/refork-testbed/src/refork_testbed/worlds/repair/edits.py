"""Edits as an agent writes them: ``line N: code``, or a unified diff of the project's files."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import final

from unidiff.errors import UnidiffParseError
from unidiff.patch import PatchSet

from refork_testbed.worlds.repair.mutation import lines, unified_diff

_LINE = re.compile(r"^\s*line\s+(\d{1,6})\s*:[ ]?(.*)$", re.IGNORECASE | re.MULTILINE)
_FENCE = re.compile(r"```[\w+-]*\n(.*?)```", re.DOTALL)
#: Characters of an edit, at most.
LONGEST = 64 * 1024


@final
class EditError(Exception):
    """An edit that cannot be read or does not fit; the text says why."""


def edited(files: Mapping[str, str], path: str, action: str) -> dict[str, str]:
    """The files after an edit: one replaced line of ``path``, or a diff of any of the files.

    A replacement that begins without white space takes the indentation of the line it replaces. A hunk must
    fit exactly, at its line or at the nearest other place.

    Raises:
        EditError: nothing was changed, and why.
    """
    if len(action) > LONGEST:
        raise EditError(f"an edit has at most {LONGEST} characters")
    fenced = _FENCE.search(action)
    text = fenced[1] if fenced else action
    if "@@" in text:
        return _patched(files, text)
    found = _LINE.findall(text)
    if not found:
        raise EditError("write 'line N: code', a unified diff, or submit")
    if len(found) > 1:
        raise EditError("one line is replaced at a time; a diff changes more")
    number, code = found[0]
    return {**files, path: _replaced(files[path], int(number), code.rstrip("\r"))}


def as_action(path: str, before: str, after: str) -> str:
    """The edit that turns one text of a file into another: a line where one line is enough, else a diff."""
    old, new = lines(before), lines(after)
    changed = [at for at, (one, two) in enumerate(zip(old, new, strict=False)) if one != two]
    if len(old) == len(new) and len(changed) == 1:
        action = f"line {changed[0] + 1}: {new[changed[0]].rstrip(chr(10))}"
        if edited({path: before}, path, action)[path] == after:
            return action
    return unified_diff(path, before, after)


def _replaced(source: str, number: int, code: str) -> str:
    rows = lines(source)
    if not 1 <= number <= len(rows):
        raise EditError(f"there is no line {number}; the file has {len(rows)}")
    old = rows[number - 1]
    if code and not code[0].isspace():
        code = old[: len(old) - len(old.lstrip())].rstrip("\n") + code
    rows[number - 1] = code + ("\n" if old.endswith("\n") else "")
    return "".join(rows)


def _patched(files: Mapping[str, str], text: str) -> dict[str, str]:
    start = re.search(r"^(diff --git|--- )", text, re.MULTILINE)
    try:
        patch = PatchSet(textwrap.dedent(text[start.start() :]) if start else text)
    except (UnidiffParseError, ValueError, IndexError) as error:
        raise EditError(f"the diff cannot be read: {error}") from error
    if not len(patch):
        raise EditError("the diff names no file")
    changed = dict(files)
    for part in patch:
        if part.path not in files or part.is_added_file or part.is_removed_file or part.is_rename:
            raise EditError(f"{part.path!r} is no source file of the project")
        rows = lines(changed[part.path])
        offset = 0
        for hunk in part:
            old = [line.value for line in hunk if not line.is_added and line.line_type != "\\"]
            new = [line.value for line in hunk if not line.is_removed and line.line_type != "\\"]
            at = _fitting(rows, old, hunk.source_start - 1 + offset)
            rows[at : at + len(old)] = new
            offset += len(new) - len(old)
        changed[part.path] = "".join(rows)
    return changed


def _fitting(rows: Sequence[str], old: Sequence[str], wanted: int) -> int:
    """Where these lines stand, nearest to where they should."""
    if not old:
        if 0 <= wanted + 1 <= len(rows):  # an insertion says the line that it follows
            return wanted + 1
        raise EditError(f"there is no line {wanted + 1} to insert after")
    # Line ends are not compared: a diff that was written elsewhere may have others.
    bare = [row.rstrip("\r\n") for row in rows]
    sought = [row.rstrip("\r\n") for row in old]
    places = [at for at in range(len(rows) - len(old) + 1) if bare[at : at + len(old)] == sought]
    if not places:
        raise EditError(f"the diff does not fit: its lines from {wanted + 1} on are not in the file")
    return min(places, key=lambda at: (abs(at - wanted), at))
