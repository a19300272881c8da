"""The folders of a repository, folded where they go too deep."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from refork.errors import BadInput
from refork_methods.localize.facts import ToolResult
from refork_methods.localize.paths import clean, near_paths, why_not_path
from refork_methods.localize.snapshot import Snapshot

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
    head = f"{name or '.'}/ {_said(files, folders)}"
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
            out.append(f"{pad}{name}/ {_said(*inner.counts())}")
    for name in sorted(folder.files):
        count = snapshot.length(prefix + name)
        out.append(f"{pad}{name} ({count} {'line' if count == 1 else 'lines'})")


def _said(files: int, folders: int) -> str:
    told = f"{files} {'file' if files == 1 else 'files'}"
    return f"({told}, {folders} {'folder' if folders == 1 else 'folders'})" if folders else f"({told})"
