"""A repository as it is at one moment: text files under their repository paths, read once and never again.

Everything downstream looks paths up in this table and nowhere else, so no path, however written, can reach a
file outside it.
"""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import final

from refork.errors import BadInput
from refork_methods.localize.paths import clean, near_paths, why_not_path
from refork_methods.localize.sources import Loaded, load_commit, load_directory, why_not_text


@final
class Snapshot:
    """The text files of a directory, of a commit of its repository, or of a mapping.

    ``root``: a directory. In a git checkout the files are those git tracks or would add (``.gitignore``
    holds); elsewhere all files but those of version control, caches, environments and builds. ``commit``:
    read this commit's files from git's objects instead; the working tree is not touched.

    Left out, each with its reason in ``refused``: binary files, files over 2 MB, links that do not end at a
    file of the snapshot, and names that no tool could be asked for.

    Raises: BadInput where the root is no directory, the commit does not exist, or no text file is there.
    """

    def __init__(self, root: str | Path, commit: str | None = None) -> None:
        self._take(load_directory(Path(root)) if commit is None else load_commit(Path(root), commit))

    @classmethod
    def from_files(cls, files: Mapping[str, str | bytes]) -> Snapshot:
        """A snapshot of texts by repository path. Raises BadInput where a path or a file would be refused."""
        contents: dict[str, bytes] = {}
        for path, content in files.items():
            raw = content.encode("utf-8") if isinstance(content, str) else bytes(content)
            why = why_not_path(path) or why_not_text(raw)
            if why is not None:
                raise BadInput(f"{path!r} cannot be in a snapshot: {why}")
            contents[clean(path)] = raw
        made = cls.__new__(cls)
        made._take(Loaded(contents, {}, origin="memory"))
        return made

    def _take(self, loaded: Loaded) -> None:
        contents = {path: raw for path, raw in loaded.contents.items() if why_not_path(path) is None}
        if not contents:
            raise BadInput("there is no text file to read", where=str(loaded.root or "snapshot"))
        odd = {path: str(why_not_path(path)) for path in loaded.contents if path not in contents}
        self._contents = {path: contents[path] for path in sorted(contents)}
        self._texts: dict[str, tuple[str, str]] = {}
        self.files = tuple(self._contents)
        self.refused = dict(sorted({**loaded.refused, **odd}.items()))
        self.origin = loaded.origin
        self.root = loaded.root
        self.commit = loaded.commit
        self.dirty = loaded.dirty
        self.changed = loaded.changed
        self.note = loaded.note

    files: tuple[str, ...]
    """Repository paths, sorted."""
    refused: dict[str, str]
    """Path -> why it is not among ``files``."""
    origin: str
    """"git" (a working tree), "commit", "folder" or "memory"."""
    root: Path | None
    """The directory that was opened, resolved; None in memory."""
    commit: str | None
    """The commit that was read, or the working tree's HEAD; None without git."""
    dirty: bool | None
    """Whether the working tree differs from ``commit`` (None where there is none to compare with)."""
    changed: tuple[str, ...]
    """The paths in which it differs, untracked files included."""
    note: str | None
    """What the reader of a report must know of how the files were found."""

    def __contains__(self, path: object) -> bool:
        return path in self._contents

    def __len__(self) -> int:
        return len(self.files)

    @property
    def digest(self) -> str:
        """SHA-256 over paths and bytes: equal snapshots, and only those, have the same."""
        total = hashlib.sha256()
        for path, raw in self._contents.items():
            total.update(f"{len(path.encode())}:{path}:{len(raw)}:".encode())
            total.update(raw)
        return total.hexdigest()

    def resolve(self, path: str) -> str:
        """The repository path that is meant. Raises BadInput, with near misses, where there is none."""
        why = why_not_path(path)
        if why is not None:
            raise BadInput(f"{path!r} is refused: {why}", hint="paths are relative to the repository's root")
        wanted = clean(path)
        if wanted in self._contents:
            return wanted
        if wanted in self.refused:
            raise BadInput(f"{wanted} cannot be read: {self.refused[wanted]}")
        close = near_paths(wanted, self.files)
        raise BadInput(
            f"there is no file {wanted!r}", hint=f"did you mean {' or '.join(close)}?" if close else None
        )

    def bytes(self, path: str) -> bytes:
        """A file's bytes. Raises BadInput where there is no such file."""
        return self._contents[path if path in self._contents else self.resolve(path)]

    def text(self, path: str) -> str:
        """A file's text, which encodes to exactly its bytes by :meth:`encoding`.

        Line ends, and a byte order mark (U+FEFF) at the beginning, are kept.

        Raises: BadInput where there is no such file.
        """
        return self._decoded(path)[0]

    def encoding(self, path: str) -> str:
        """Name of the text's encoding: utf-8, or latin-1 where it is not, which loses nothing."""
        return self._decoded(path)[1]

    def lines(self, path: str, keepends: bool = False) -> list[str]:
        """Lines as git counts them, ended by a line feed alone; without their ends unless asked for."""
        parts = self.text(path).split("\n")
        if keepends:
            ended = [part + "\n" for part in parts[:-1]]
            return ended + ([parts[-1]] if parts[-1] else [])
        if not parts[-1]:
            parts.pop()
        return [part.removesuffix("\r") for part in parts]

    def length(self, path: str) -> int:
        """How many lines a file has."""
        raw = self.bytes(path)
        return raw.count(b"\n") + (not raw.endswith(b"\n") and bool(raw))

    def _decoded(self, path: str) -> tuple[str, str]:
        known = self._texts.get(path)
        if known is None:
            raw = self.bytes(path)
            try:
                known = (raw.decode("utf-8"), "utf-8")
            except UnicodeDecodeError:
                known = (raw.decode("latin-1"), "latin-1")
            self._texts[path] = known
        return known


def has_mark(raw: bytes) -> bool:
    """Whether the bytes begin with UTF-8's byte order mark."""
    return raw.startswith(codecs.BOM_UTF8)
