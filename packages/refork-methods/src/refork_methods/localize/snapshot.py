"""A repository as it is at one moment: text files under their paths, read once and never again."""

from __future__ import annotations

import codecs
import hashlib
import os
import posixpath
import re
import stat
import subprocess
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Final, final
from urllib.parse import unquote

from refork.errors import BadInput, CannotDo

# Repository paths: which are refused, and what a near miss may have meant.

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
    # Nearly every path is plain ASCII: only the odd ones pay for looking at each letter.
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


def near_paths(wanted: str, paths: Iterable[str]) -> tuple[str, ...]:
    """At most five paths: the same basename, then those spelled most alike; capitals are no difference."""
    low = wanted.casefold()
    folded = {path.casefold(): path for path in sorted(paths)}
    same = [other for other in folded if other.rsplit("/", 1)[-1] == low.rsplit("/", 1)[-1]]
    same.sort(key=lambda other: other != low)
    # Paths share folders, so more has to agree than in a bare name.
    close = get_close_matches(low, folded, MOST, 0.8)
    return tuple(folded[other] for other in dict.fromkeys([*same, *close]))[:MOST]


# Git over a stranger's repository: what its own settings could start, switched off.

#: Settings that name programs, over those of the repository.
QUIET: Final = (
    "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=false",
    "-c", "log.showSignature=false",
)  # fmt: skip
#: No transport: a missing object is an error, and not fetched by a program that the repository names.
_SETTINGS: Final = {
    "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none", "LC_ALL": "C",
}  # fmt: skip
_POINTING: Final = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")
_FILTER: Final = re.compile(r"(filter\..+)\.(?:clean|smudge|process|required)\Z", re.DOTALL)


def environment() -> dict[str, str]:
    """This process's, without what points git elsewhere, and with no transport."""
    return {name: value for name, value in os.environ.items() if name not in _POINTING} | _SETTINGS


def unfiltered(top: str | Path) -> dict[str, str]:
    """The environment for commands that read files of a working tree: filters of the repository are empty.

    A file that is not as in the index is read through the ``clean`` program of its attributes. Filters of the
    user's own settings, such as git-lfs, stay.
    """
    told = environment()
    listed = subprocess.run(
        ["git", "-C", os.fspath(top), *QUIET, "config", "--list", "--name-only", "--show-scope", "-z"],
        capture_output=True, check=False, env=told,
    )  # fmt: skip
    parts = listed.stdout.decode("utf-8", "surrogateescape").split("\0")
    rows = zip(parts[::2], parts[1::2], strict=False)
    found = {
        one[1] for scope, name in rows if scope in ("local", "worktree") and (one := _FILTER.match(name))
    }
    keys = [(f"{name}.{part}", "") for name in sorted(found) for part in ("clean", "smudge", "process")]
    keys += [(f"{name}.required", "false") for name in sorted(found)]
    first = int(told.get("GIT_CONFIG_COUNT", "0") or 0)
    for number, (key, value) in enumerate(keys, first):
        told |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return told | {"GIT_CONFIG_COUNT": str(first + len(keys))}


# Where a snapshot's bytes come from: a git working tree, a plain folder, or a commit's objects.

MAX_BYTES = 2_000_000
"""Larger files are not read: they are data or generated."""

_SKIPPED = frozenset({
    ".git", ".hg", ".svn", ".bzr", ".jj", "__pycache__", "node_modules", "bower_components", ".venv", "venv",
    ".env", ".tox", ".nox", ".eggs", ".idea", ".vscode", ".mypy_cache", ".pytest_cache", ".ruff_cache",
    ".hypothesis", ".cache", ".gradle", ".terraform", "target", "dist", "build", "site-packages", ".next",
    ".nuxt", "coverage", "htmlcov", ".ipynb_checkpoints", "DerivedData",
})  # fmt: skip
"""Folders of a plain directory that are not entered: ignored almost everywhere."""


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
    # Git would take such a name for an option.
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
            taken.refused[_escaped(name)] = "a name that is not plain UTF-8"
        elif kind != b"blob":
            taken.refused[path] = "another repository (a submodule)"
        elif not size.isdigit():
            # Git writes BAD there; nothing is fetched while a snapshot is read.
            taken.refused[path] = "an object that this clone does not hold (a partial clone)"
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
            taken.refused[_escaped(name)] = "a name that is not plain UTF-8"
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
            # Since lstat it may have become a link, or have grown: neither is followed or cut in silence.
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
        if run_git(top, "check-ignore", "-q", ".").returncode == 0:
            return None, "git ignores this folder; it was read as a plain one"
        # In a merge conflict a file is listed once for each of its versions, hence the set below.
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
    # Two letters of status and a space stand before a path.
    return tuple(sorted({_escaped(entry[3:].removeprefix(prefix)) for entry in told.split(b"\0") if entry}))


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
        # A line feed that is not the object's own follows its bytes.
        at = end + 2 + size
    return found


def run_git(
    top: Path, *arguments: str, given: bytes | None = None, reads_files: bool = False
) -> subprocess.CompletedProcess[bytes]:
    """A finished git command, whatever its status. Raises CannotDo without git, or where it hangs."""
    try:
        return subprocess.run(
            ["git", "-C", os.fspath(top), *QUIET, *arguments],
            input=given, capture_output=True, check=False, timeout=120,
            env=unfiltered(top) if reads_files else environment(),
        )  # fmt: skip
    except FileNotFoundError:
        raise CannotDo("git is not installed", hint="install git, or give a plain folder") from None
    except subprocess.TimeoutExpired:
        raise CannotDo("git did not answer in two minutes", where=" ".join(arguments)) from None


def _git(
    top: Path, *arguments: str, given: bytes | None = None, check: bool = True, reads_files: bool = False
) -> bytes:
    done = run_git(top, *arguments, given=given, reads_files=reads_files)
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


def _escaped(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


# A repository as it is at one moment: text files under their repository paths, read once and never again.
#
# Everything downstream looks paths up in this table and nowhere else, so no path, however written, can
# reach a file outside it.


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
            # Lengths come first, so that no two snapshots run together to the same bytes.
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
