"""A directory of prompts or code as a workspace: read whole, changed as text, and never left."""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Final, TypeAlias

from refork.errors import BadInput
from refork.types import Json

#: Path within the directory, with slashes, and the file's text.
Files: TypeAlias = Mapping[str, str]
#: The two parts of a directory, which are its roles as well.
AGENT, JUDGE = "agent", "judge"

#: Files that a workspace may have, bytes of one, bytes of all, and parts of a path.
MOST_FILES: Final = 64
MOST_BYTES: Final = 64 << 10
MOST_BYTES_IN_ALL: Final = 256 << 10
DEEPEST: Final = 6


def check_path(path: str) -> str:
    """``path`` itself; raises BadInput for one that is absolute, hidden, no name, or leads outside."""
    parts = path.split("/")
    bad = (
        not path
        or path != str(PurePosixPath(path))
        or PurePosixPath(path).is_absolute()
        or len(parts) > DEEPEST
        or any(part.startswith(".") or part != part.strip() for part in parts)
        # What any system refuses in a name is refused on all: a workspace may be read on another machine.
        or any(ord(letter) < 32 or letter in '\\:*?"<>|' or letter == "\x7f" for letter in path)
        or not path.isprintable()
    )
    if bad:
        raise BadInput(f"no path of a workspace: {path[:200]!r}", hint="such as prompts/writer.md")
    return path


def part_of(files: Files, name: str) -> dict[str, str]:
    """The files of a part: the folder ``name``, and files of that name with any ending beside it."""
    return {
        path: text
        for path, text in files.items()
        if path.startswith(f"{name}/") or ("/" not in path and PurePosixPath(path).stem == name)
    }


def check_files(files: Files) -> dict[str, str]:
    """The files, sorted by path.

    Raises: BadInput for none, a path that is refused, a name that is both file and folder or differs from
        another by case alone, text that is no UTF-8 or has a NUL, or more than the limits allow.
    """
    found = dict(sorted(files.items()))
    if not 1 <= len(found) <= MOST_FILES:
        raise BadInput(f"{len(found)} files; a workspace has 1 to {MOST_FILES}")
    seen: dict[str, str] = {}
    total = 0
    for path, text in found.items():
        check_path(path)
        other = seen.setdefault(path.lower(), path)
        if other != path:
            raise BadInput(f"{other!r} and {path!r} are one file on some systems")
        total += _size(path, text)
    folders = {str(up) for path in found for up in PurePosixPath(path).parents}
    both = sorted(folders & found.keys())
    if both:
        raise BadInput("it is a file and a folder", where=both[0])
    if total > MOST_BYTES_IN_ALL:
        raise BadInput(f"{total} bytes; a workspace has at most {MOST_BYTES_IN_ALL}")
    return found


def _size(path: str, text: str) -> int:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise BadInput("it is no UTF-8 text", where=path) from error
    if "\0" in text:
        raise BadInput("it has a NUL in it: binary files cannot be evolved", where=path)
    if size > MOST_BYTES:
        raise BadInput(f"it has {size} bytes, and may have {MOST_BYTES}", where=path)
    return size


def read_folder(folder: Path) -> dict[str, str]:
    """Every file of a directory as text, by path; hidden names are left out.

    Raises: BadInput for what is no directory, a link or another special file in it, or what
        :func:`check_files` refuses. A link is refused, not followed: it may lead anywhere.
    """
    if folder.is_symlink() or not folder.is_dir():
        raise BadInput("this is no directory", where=str(folder))
    found: dict[str, str] = {}
    stack = [folder]
    while stack:
        for path in sorted(stack.pop().iterdir()):
            name = path.relative_to(folder).as_posix()
            if path.name.startswith("."):
                continue
            kind = path.lstat().st_mode
            if stat.S_ISDIR(kind):
                stack.append(path)
            elif not stat.S_ISREG(kind):
                raise BadInput(
                    "it is a link or a special file", where=name, hint="copy the file in its place"
                )
            else:
                found[name] = _text(path, name)
            # On the way, not at the end: a huge folder must not be read whole first.
            if len(found) > MOST_FILES or len(name.split("/")) > DEEPEST:
                raise BadInput(
                    f"more than {MOST_FILES} files, or folders deeper than {DEEPEST}", where=str(folder)
                )
    return check_files(found)


def _text(path: Path, name: str) -> str:
    # Opened without following, should a link have taken the file's place since it was looked at.
    with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)), "rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise BadInput(f"it has more than {MOST_BYTES} bytes", where=name)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadInput("it is no UTF-8 text", where=name, hint="only text can be evolved") from error


def diff(before: Files, after: Files) -> str:
    """What changed, as one unified diff; empty where nothing did."""
    parts: list[str] = []
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        if old == new:
            continue
        names = ("/dev/null" if old is None else f"a/{path}", "/dev/null" if new is None else f"b/{path}")
        rows = difflib.unified_diff((old or "").splitlines(), (new or "").splitlines(), *names, lineterm="")
        parts += rows
        if (old or "").splitlines() == (new or "").splitlines():
            parts.append(f"only line ends differ, or an empty file came or went: {path}")
    return "\n".join(parts) + "\n" if parts else ""


def workspace(files: Files, by: str = "", note: str = "", changed: str = "") -> Json:
    """A workspace as the archive keeps it: the files, who made it, what they said, and the diff."""
    return {"files": dict(sorted(files.items())), "by": by, "told": note, "diff": changed}


def files_of(body: Json) -> dict[str, str]:
    """The files of a workspace; raises BadInput where it has none."""
    files = body.get("files") if isinstance(body, dict) else None
    if not isinstance(files, dict) or not all(isinstance(text, str) for text in files.values()):
        raise BadInput("this workspace is no directory of files", hint="begin with a directory")
    return dict(files)
