"""Where a snapshot's bytes come from: a git working tree, a plain folder, or a commit's objects."""

from __future__ import annotations

import os
import posixpath
import stat
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from refork.errors import BadInput, CannotDo
from refork_methods.localize.reading_git import QUIET, environment, unfiltered

MAX_BYTES = 2_000_000
"""Larger files are not read: they are data or generated."""

_SKIPPED = frozenset(
    [
        ".git",
        ".hg",
        ".svn",
        ".bzr",
        ".jj",
        "__pycache__",
        "node_modules",
        "bower_components",
        ".venv",
        "venv",
        ".env",
        ".tox",
        ".nox",
        ".eggs",
        ".idea",
        ".vscode",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".hypothesis",
        ".cache",
        ".gradle",
        ".terraform",
        "target",
        "dist",
        "build",
        "site-packages",
        ".next",
        ".nuxt",
        "coverage",
        "htmlcov",
        ".ipynb_checkpoints",
        "DerivedData",
    ]
)
"""Folders that a plain directory's walk does not enter: ignored almost everywhere."""


@final
@dataclass(frozen=True, slots=True)
class Loaded:
    """Bytes by path, refusals by path, and where they are from."""

    contents: dict[str, bytes]
    refused: dict[str, str]
    origin: str
    root: Path | None = None
    commit: str | None = None
    dirty: bool | None = None
    changed: tuple[str, ...] = ()
    note: str | None = None


@final
@dataclass(slots=True)
class _Taken:
    """What has been read so far; links wait until all files are known."""

    contents: dict[str, bytes] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)

    def take(self, path: str, raw: bytes) -> None:
        """Keep a file's bytes, or the reason not to."""
        why = why_not_text(raw)
        if why is None:
            self.contents[path] = raw
        else:
            self.refused[path] = why

    def follow_links(self) -> None:
        """Give each link the file it ends at, where that is a file of the snapshot."""
        for path in self.links:
            here, seen = path, {path}
            while here in self.links:
                here = posixpath.normpath(posixpath.join(posixpath.dirname(here), self.links[here]))
                if here in seen:
                    self.refused[path] = "a link that leads in a circle"
                    break
                seen.add(here)
            else:
                if here in self.contents:
                    self.contents[path] = self.contents[here]
                else:
                    self.refused[path] = "a link that does not end at a text file of the snapshot"


def why_not_text(raw: bytes) -> str | None:
    """Why bytes are not taken as a text file; None where they are. A NUL byte marks a binary file."""
    if len(raw) > MAX_BYTES:
        return f"{len(raw):,} bytes, more than {MAX_BYTES:,}"
    return "a binary file" if b"\0" in raw else None


def load_directory(root: Path) -> Loaded:
    """The files of a directory as they are on disk.

    Raises: BadInput where it is no directory.
    """
    if not root.is_dir():
        raise BadInput(f"{root} is not a directory")
    top = root.resolve()
    names, note = _git_names(top)
    if names is None:
        return _on_disk(top, _walk(top), "folder", note)
    loaded = _on_disk(top, names, "git", note)
    head = _git(top, "rev-parse", "--verify", "-q", "HEAD", check=False)
    commit = head.decode().strip() or None
    changed = _changed(top)
    return Loaded(
        loaded.contents, loaded.refused, "git", top, commit, bool(changed) or commit is None, changed, note
    )


def load_commit(root: Path, commit: str) -> Loaded:
    """The files of a commit below ``root``, read from git's objects.

    Raises: BadInput where there is no such commit. CannotDo without a git repository.
    """
    if not root.is_dir():
        raise BadInput(f"{root} is not a directory")
    top = root.resolve()
    if commit.startswith("-") or not commit.strip():
        raise BadInput(f"{commit!r} is not a commit")
    if not _git(top, "rev-parse", "--git-dir", check=False):
        raise CannotDo(
            f"{root} is not a git repository", hint="leave the commit out to read the folder as it is"
        )
    full = _git(top, "rev-parse", "--verify", "-q", f"{commit}^{{commit}}", check=False).decode().strip()
    if not full:
        raise BadInput(f"there is no commit {commit!r}", where=str(root), hint="git log --oneline lists them")
    taken = _Taken()
    wanted = _entries(top, full, taken)
    for (path, _, is_link), raw in zip(wanted, _blobs(top, [blob for _, blob, _ in wanted]), strict=True):
        if is_link:
            taken.links[path] = raw.decode("utf-8", "replace")
        else:
            taken.take(path, raw)
    taken.follow_links()
    return Loaded(taken.contents, taken.refused, "commit", top, full, dirty=False)


def _entries(top: Path, commit: str, taken: _Taken) -> list[tuple[str, str, bool]]:
    """(path, blob, whether it is a link) of a commit's files that may be read."""
    wanted: list[tuple[str, str, bool]] = []
    for entry in _git(top, "ls-tree", "-r", "-z", "--long", commit).split(b"\0"):
        if not entry:
            continue
        meta, _, name = entry.partition(b"\t")
        mode, kind, blob, size = meta.split()
        path = _name(name)
        if path is None:
            taken.refused[_shown(name)] = "a name that is not plain UTF-8"
        elif kind != b"blob":
            taken.refused[path] = "another repository (a submodule)"
        elif int(size) > MAX_BYTES:
            taken.refused[path] = f"{int(size):,} bytes, more than {MAX_BYTES:,}"
        else:
            wanted.append((path, blob.decode(), mode == b"120000"))
    return wanted


def _on_disk(top: Path, names: list[bytes], origin: str, note: str | None) -> Loaded:
    taken = _Taken()
    inside: dict[str, bool] = {}
    base = os.fspath(top).rstrip("/")
    for name in names:
        path = _name(name)
        if path is None:
            taken.refused[_shown(name)] = "a name that is not plain UTF-8"
            continue
        folder = posixpath.dirname(path)
        if folder not in inside:
            # A tracked folder may have been replaced by a link since.
            there = f"{base}/{folder}".rstrip("/")
            inside[folder] = os.path.realpath(there) == there
        _read(f"{base}/{path}", path, inside[folder], taken)
    taken.follow_links()
    return Loaded(taken.contents, taken.refused, origin, top, note=note)


def _read(full: str, path: str, inside: bool, taken: _Taken) -> None:
    try:
        status = os.lstat(full)
        if not inside:
            taken.refused[path] = "a link leads there"
        elif stat.S_ISLNK(status.st_mode):
            taken.links[path] = os.fspath(Path(full).readlink())
        elif stat.S_ISDIR(status.st_mode):
            taken.refused[path] = "another repository (a submodule)"
        elif not stat.S_ISREG(status.st_mode):
            taken.refused[path] = "not a regular file"
        elif status.st_size > MAX_BYTES:
            taken.refused[path] = f"{status.st_size:,} bytes, more than {MAX_BYTES:,}"
        else:
            descriptor = os.open(full, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
            with os.fdopen(descriptor, "rb") as source:
                taken.take(path, source.read(MAX_BYTES + 1))
    except FileNotFoundError:
        return  # tracked, but deleted from the working tree
    except OSError as error:
        taken.refused[path] = f"unreadable ({error.strerror})"


def _walk(top: Path) -> list[bytes]:
    found: list[bytes] = []
    base = os.fsencode(top)
    for folder, inner, files in os.walk(base):
        links = [name for name in inner if Path(os.fsdecode(folder), os.fsdecode(name)).is_symlink()]
        inner[:] = sorted(
            name
            for name in inner
            if os.fsdecode(name) not in _SKIPPED and name not in links and not name.endswith(b".egg-info")
        )
        prefix = os.path.relpath(folder, base)
        for name in [*files, *links]:
            found.append(name if prefix == b"." else prefix.replace(os.sep.encode(), b"/") + b"/" + name)
    return sorted(found)


def _git_names(top: Path) -> tuple[list[bytes] | None, str | None]:
    """What git tracks or would add; None, and why, where the folder is not git's to say."""
    try:
        inside = _git(top, "rev-parse", "--is-inside-work-tree", check=False)
        if inside.strip() != b"true":
            beside = (top / ".git").exists()
            return None, "git would not read this checkout; it was read as a plain folder" if beside else None
        if _run(top, "check-ignore", "-q", ".").returncode == 0:
            return None, "git ignores this folder; it was read as a plain one"
        listed = _git(top, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    except CannotDo:
        return None, "git is not installed; .gitignore was not read" if (top / ".git").exists() else None
    return sorted({name for name in listed.split(b"\0") if name}), None


def _changed(top: Path) -> tuple[str, ...]:
    # Not into submodules, which have settings of their own.
    told = _git(
        top, "status", "--porcelain", "-z", "--untracked-files=all", "--no-renames",
        "--ignore-submodules=all", "--", ".", reads_files=True,
    )  # fmt: skip
    prefix = _git(top, "rev-parse", "--show-prefix").rstrip(b"\n")
    return tuple(sorted({_shown(entry[3:].removeprefix(prefix)) for entry in told.split(b"\0") if entry}))


def _blobs(top: Path, ids: list[str]) -> list[bytes]:
    raw = (
        _git(top, "cat-file", "--batch", given="".join(f"{blob}\n" for blob in ids).encode()) if ids else b""
    )
    found: list[bytes] = []
    at = 0
    for blob in ids:
        end = raw.index(b"\n", at)
        head = raw[at:end].split()
        if len(head) != 3:
            raise CannotDo(
                f"git has no object {blob}", where=str(top), hint="a shallow or partial clone? git fetch"
            )
        size = int(head[2])
        found.append(raw[end + 1 : end + 1 + size])
        at = end + 2 + size
    return found


def _run(
    top: Path, *arguments: str, given: bytes | None = None, reads_files: bool = False
) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["git", "-C", os.fspath(top), *QUIET, *arguments],
            input=given, capture_output=True, check=False,
            env=unfiltered(top) if reads_files else environment(),
        )  # fmt: skip
    except FileNotFoundError:
        raise CannotDo("git is not installed", hint="install git, or give a plain folder") from None


def _git(
    top: Path, *arguments: str, given: bytes | None = None, check: bool = True, reads_files: bool = False
) -> bytes:
    done = _run(top, *arguments, given=given, reads_files=reads_files)
    if done.returncode and check:
        raise CannotDo(
            f"git {arguments[0]} failed: {done.stderr.decode('utf-8', 'replace').strip()[:300]}",
            where=str(top),
        )
    return b"" if done.returncode else done.stdout


def _name(raw: bytes) -> str | None:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _shown(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")
