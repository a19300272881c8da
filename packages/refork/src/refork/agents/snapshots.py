"""The folder of a recorded run: how it was at the start, and what was another in it at every exchange.

The start is kept whole, in blobs by content, so that a run can begin from it again whatever became of the
folder since. Of every exchange the digests of changed files are kept: a run whose tools do something else is
seen by the first file in which that shows.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import stat
import subprocess
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Final, final

from refork.agents.folders import entries, whiteout
from refork.agents.tape import secrets_of
from refork.errors import BadInput, CannotDo
from refork.tree.tree import Tree
from refork.types import Json

#: Version of what is kept of a folder.
VERSION: Final = 1
#: Bytes of files of a start that are kept, and about those of one blob.
LARGEST: Final = 256 << 20
_PACK: Final = 4 << 20
#: Folders that are made from others, and those that hold keys.
_LEFT_FOLDERS: Final = frozenset({
    "node_modules", ".venv", "venv", "__pycache__", ".tox", ".nox", ".mypy_cache", ".ruff_cache",
    ".pytest_cache", ".hg", ".svn", ".ssh", ".aws", ".gnupg", ".kube",
})  # fmt: skip
_LEFT_FILES: Final = (
    ".env", ".env.*", "*.pem", "*.key", "*.p12", "*.pfx", "id_rsa*", "id_ed25519*", "id_ecdsa*", ".netrc",
    ".npmrc", ".pypirc", ".git-credentials", "credentials.json", "*.kdbx",
)  # fmt: skip
#: Of git's own folder: what only grows, and what may hold a password.
_LEFT_GIT: Final = frozenset({".git/objects", ".git/lfs", ".git/modules", ".git/config", ".git/worktrees"})


@final
@dataclass(frozen=True, slots=True)
class KeptEntry:
    """A file, link or folder of a start. ``value``: digest of its bytes, or where it leads.

    Its bytes are ``size`` of blob number ``pack`` from ``offset``.
    """

    mode: int
    size: int
    mtime_ns: int
    value: str
    pack: int = 0
    offset: int = 0

    @property
    def content(self) -> str | None:
        """What makes it the same file or link; None: a folder."""
        return None if stat.S_ISDIR(self.mode) else _content(self.mode, self.value)


@final
@dataclass(frozen=True, slots=True)
class FolderStart:
    """How a folder was when a run began. ``left``: what was not kept, and is taken as it is in the folder."""

    entries: Mapping[str, KeptEntry]
    packs: tuple[str, ...]
    left: tuple[str, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.entries.values() if stat.S_ISREG(entry.mode))

    @property
    def files(self) -> int:
        """How many files and links."""
        return sum(entry.content is not None for entry in self.entries.values())

    def to_json(self) -> Json:
        """Plain fields."""
        known = {path: list(astuple(entry)) for path, entry in self.entries.items()}
        return {"version": VERSION, "entries": known, "packs": list(self.packs), "left": list(self.left)}


@final
@dataclass(frozen=True, slots=True)
class FolderDivergence:
    """The first exchange at which a file was not as when the run was recorded; ``more``: files beside it.

    ``recorded`` and ``now`` say what was done to the file since the start: changed, removed, or nothing.
    """

    exchange: int
    path: str
    recorded: str
    now: str
    more: int

    def __str__(self) -> str:
        more = f", and {self.more} other files" if self.more else ""
        return (
            f"at exchange {self.exchange} the file {self.path} was {self.recorded} when recorded, "
            f"and now {self.now}{more}"
        )


@final
class FolderWatch:
    """Keeps a folder while a run is recorded in it; ``besides``: files in it that are not the run's.

    Raises:
        CannotDo: the folder holds too much to keep.
    """

    def __init__(self, tree: Tree, folder: Path, besides: Sequence[Path] = ()) -> None:
        self._folder, self._rule = folder, _Rule(folder, besides)
        found = dict(self._rule.kept_entries())
        size = sum(facts.st_size for facts in found.values() if stat.S_ISREG(facts.st_mode))
        if size > LARGEST:
            raise CannotDo(
                f"the folder holds {size >> 20:,} MiB to keep, and {LARGEST >> 20} are the most",
                where=str(folder),
                hint="let git ignore what the program does not change, or record without --snapshots",
            )
        self.start = self._stored(tree, found)
        self.blob = tree.put_blob(zlib.compress(json.dumps(self.start.to_json()).encode()))

    def changes(self) -> dict[str, str | None]:
        """Content of every file that is not as at the start; None: it is gone."""
        found: dict[str, str | None] = {}
        there = dict(self._rule.kept_entries())
        for path, facts in there.items():
            known = self.start.entries.get(path)
            if stat.S_ISDIR(facts.st_mode) or (known is not None and _same(known, facts)):
                continue
            with suppress(OSError):  # it went between two looks
                content = _content_of(self._folder / path)
                if known is None or known.content != content:
                    found[path] = content
        for path, known in self.start.entries.items():
            if known.content is not None and (path not in there or stat.S_ISDIR(there[path].st_mode)):
                found[path] = None
        return self._rule.compared(found)

    def _stored(self, tree: Tree, found: Mapping[str, os.stat_result]) -> FolderStart:
        known: dict[str, KeptEntry] = {}
        packs: list[str] = []
        held, secrets = bytearray(), [one.encode() for _, one in secrets_of()]
        for path, facts in found.items():
            place = self._folder / path
            if stat.S_ISREG(facts.st_mode):
                try:
                    data = place.read_bytes()
                except OSError:
                    data = None
                if data is None or any(secret in data for secret in secrets):
                    self._rule.left.add(path)
                    continue
                value = hashlib.sha256(data).hexdigest()
                told = (len(data), facts.st_mtime_ns, value, len(packs), len(held))
                known[path] = KeptEntry(facts.st_mode, *told)
                held += data
                if len(held) >= _PACK:
                    packs.append(tree.put_blob(zlib.compress(held, 1)))
                    held.clear()
            elif stat.S_ISLNK(facts.st_mode):
                known[path] = KeptEntry(facts.st_mode, 0, facts.st_mtime_ns, str(place.readlink()))
            elif stat.S_ISDIR(facts.st_mode):
                known[path] = KeptEntry(facts.st_mode, 0, 0, "")
        if held:
            packs.append(tree.put_blob(zlib.compress(held, 1)))
        return FolderStart(known, tuple(packs), tuple(sorted(self._rule.left)))


@final
class FolderCheck:
    """Compares what a program changes in a contained folder with what the recorded run had changed there.

    ``difference`` is the first one. ``lock``: of all that use this tree.
    """

    def __init__(
        self,
        tree: Tree,
        start: FolderStart,
        folder: Path,
        upper: Path,
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        self._tree, self._start, self._upper = tree, start, upper
        self._lock = nullcontext() if lock is None else lock
        self._rule = _Rule(folder, left=start.left)
        self.difference: FolderDivergence | None = None

    def __call__(self, number: int, files: str | None) -> None:
        """Look at the folder as it is at an exchange, of which the tape has ``files``."""
        if files is None or self.difference is not None:
            return
        with self._lock:
            recorded = _read(self._tree, files)
        now = self.changes()
        differ = sorted(path for path in {*recorded, *now} if recorded.get(path, "") != now.get(path, ""))
        if differ:
            first, more = differ[0], len(differ) - 1
            self.difference = FolderDivergence(number, first, _word(recorded, first), _word(now, first), more)

    def changes(self) -> dict[str, str | None]:
        """As :meth:`FolderWatch.changes`, by what the layer holds."""
        found: dict[str, str | None] = {}
        known = self._start.entries
        for path, kind, place in entries(self._upper):
            if kind != "folder":
                found |= {one: None for one in known if one.startswith(f"{path}/") and known[one].content}
            if kind in ("file", "link"):
                with suppress(OSError):
                    found[path] = _content_of(place)
            elif path in known and known[path].content is not None:
                found[path] = None
        return self._rule.compared(
            {
                path: content
                for path, content in found.items()
                if self._rule.keeps(path) and not (path in known and known[path].content == content)
            }
        )


def start_of(tree: Tree, blob: str) -> FolderStart:
    """The start that a run keeps.

    Raises:
        BadInput: it cannot be read.
    """
    told = _read(tree, blob)
    try:
        known = {path: KeptEntry(*fields) for path, fields in told["entries"].items()}
        for path in known:
            parts = path.split("/")
            above = ["/".join(parts[:count]) for count in range(1, len(parts))]
            # A tape may be a stranger's: nothing is written beside the layer, nor through a link in it.
            if {"", ".", ".."} & {*parts} or not all(stat.S_ISDIR(known[one].mode) for one in above):
                raise KeyError(path)
        return FolderStart(known, tuple(told["packs"]), tuple(told["left"]))
    except (KeyError, TypeError, AttributeError) as error:
        raise BadInput(
            "what is kept of this run's folder cannot be read", hint="refork tree verify"
        ) from error


def lay_start(tree: Tree, start: FolderStart, folder: Path, layer: Path, besides: Sequence[Path] = ()) -> int:
    """Fill a layer so that above the folder as it is now it shows the start; how many paths differ.

    What was not kept shows as it is now.

    Raises:
        BadInput: what is kept cannot be read.
    """
    rule, packs, count = _Rule(folder, besides, start.left), _Packs(tree, start), 0
    there = dict(rule.kept_entries())
    modes = []
    for path, entry in start.entries.items():
        facts = there.get(path)
        is_folder = stat.S_ISDIR(entry.mode)
        if facts is not None and stat.S_IFMT(facts.st_mode) == stat.S_IFMT(entry.mode):
            same_mode = stat.S_ISLNK(entry.mode) or facts.st_mode == entry.mode
            if same_mode and (
                is_folder or _same(entry, facts) or _content_of(folder / path) == entry.content
            ):
                continue
        count += 1
        to = layer / path
        _parents(layer, path)
        if is_folder:
            to.mkdir(exist_ok=True)
            modes.append((to, entry.mode))
        elif stat.S_ISLNK(entry.mode):
            to.symlink_to(entry.value)
        else:
            to.write_bytes(packs.read(entry))
            to.chmod(stat.S_IMODE(entry.mode))
            os.utime(to, ns=(entry.mtime_ns, entry.mtime_ns))
    gone: list[str] = []
    for path in rule.without_ignored(path for path in there if path not in start.entries):
        # What stands below a folder that is gone, or that was a file, is gone with it.
        if any(path.startswith(f"{one}/") for one in gone):
            continue
        above = path.rpartition("/")[0]
        if above in start.entries and not stat.S_ISDIR(start.entries[above].mode):
            gone.append(above)
            continue
        _parents(layer, path)
        whiteout(layer / path)
        gone.append(path)
        count += 1
    known = {
        Path(layer, path): entry.mode for path, entry in start.entries.items() if stat.S_ISDIR(entry.mode)
    }
    for to in sorted(
        (one for one in layer.rglob("*") if one.is_dir() and not one.is_symlink()), reverse=True
    ):
        real = folder / to.relative_to(layer)
        mode = known.get(to) or (real.stat().st_mode if real.is_dir() else 0o755)
        to.chmod(stat.S_IMODE(mode))
    layer.chmod(stat.S_IMODE(folder.stat().st_mode))
    return count


# -- what is kept ---------------------------------------------------------------------------------


class _Rule:
    """What of a folder is kept: not what git ignores, what is made from others, what is named like a key."""

    def __init__(self, folder: Path, besides: Sequence[Path] = (), left: Sequence[str] = ()) -> None:
        self._folder = folder
        self.left = set(left)
        for one in besides:
            with suppress(ValueError):
                self.left.add(str(one.resolve().relative_to(folder.resolve())))
        listed = _git(folder, "ls-files", "-oi", "--exclude-standard", "--directory", "-z")
        self._ignored = {one.rstrip("/") for one in listed}

    def kept_entries(self, within: str = "") -> Iterator[tuple[str, os.stat_result]]:
        """All that is kept of the folder, folders before what is in them."""
        try:
            listed = sorted(os.scandir(self._folder / within), key=lambda one: one.name)
        except OSError:
            return
        for entry in listed:
            path = f"{within}{entry.name}"
            if not self._keeps(path, entry.name):
                self.left.add(path)
                continue
            try:
                facts = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            yield path, facts
            if stat.S_ISDIR(facts.st_mode):
                yield from self.kept_entries(f"{path}/")

    def keeps(self, path: str) -> bool:
        """Whether a path, and all above it, are kept."""
        parts = path.split("/")
        return all(
            self._keeps("/".join(parts[:count]), parts[count - 1]) for count in range(1, len(parts) + 1)
        )

    def without_ignored(self, paths: Iterator[str]) -> list[str]:
        """Paths, those of what came since the rule was made too, that git does not ignore."""
        wanted = list(paths)
        told = "\0".join(path for path in wanted if not path.startswith(".git/"))
        ignored = _git(self._folder, "check-ignore", "-z", "--stdin", given=told) if told else ()
        return [path for path in wanted if path not in set(ignored)]

    def compared(self, changes: Mapping[str, str | None]) -> dict[str, str | None]:
        """Changes by which runs are compared: git's own files hold times, and are others in every run."""
        own = (path for path in changes if path != ".git" and not path.startswith(".git/"))
        return {path: changes[path] for path in sorted(self.without_ignored(own))}

    def _keeps(self, path: str, name: str) -> bool:
        if path in self._ignored or path in self.left or path in _LEFT_GIT or name in _LEFT_FOLDERS:
            return False
        return not any(fnmatch.fnmatchcase(name, shape) for shape in _LEFT_FILES)


def _git(folder: Path, *arguments: str, given: str = "") -> tuple[str, ...]:
    """What git lists; nothing where it is not there, or the folder is none of its."""
    try:
        # No hook or monitor of a folder that a stranger made is run for it.
        ran = subprocess.run(
            ["git", "-c", "core.fsmonitor=false", "-C", str(folder), *arguments],
            input=given, capture_output=True, text=True, errors="surrogateescape", check=False,
        )  # fmt: skip
    except OSError:
        return ()
    return tuple(filter(None, ran.stdout.split("\0"))) if ran.returncode == 0 else ()


@final
class _Packs:
    """Bytes of a start's files, one blob at a time."""

    def __init__(self, tree: Tree, start: FolderStart) -> None:
        self._tree, self._start, self._open = tree, start, (-1, b"")

    def read(self, entry: KeptEntry) -> bytes:
        """The bytes of a file."""
        try:
            if self._open[0] != entry.pack:
                self._open = (entry.pack, zlib.decompress(self._tree.blob(self._start.packs[entry.pack])))
        except (IndexError, zlib.error) as error:
            raise BadInput("a kept file cannot be read", hint="refork tree verify") from error
        data = self._open[1][entry.offset : entry.offset + entry.size]
        if hashlib.sha256(data).hexdigest() != entry.value:
            raise BadInput("a kept file is not what was kept", hint="refork tree verify")
        return data


def _read(tree: Tree, blob: str) -> Json:
    try:
        told: Json = json.loads(zlib.decompress(tree.blob(blob)))
    except (ValueError, zlib.error) as error:
        raise BadInput("what is kept of a folder cannot be read", hint="refork tree verify") from error
    return told


def _same(known: KeptEntry, facts: os.stat_result) -> bool:
    """Whether nothing tells a file from the kept one, without a look into it."""
    return (facts.st_mode, facts.st_size, facts.st_mtime_ns) == (known.mode, known.size, known.mtime_ns)


def _content_of(path: Path) -> str:
    """What makes a file or a link the same."""
    facts = path.lstat()
    if stat.S_ISREG(facts.st_mode):
        with path.open("rb") as file:
            return _content(facts.st_mode, hashlib.file_digest(file, "sha256").hexdigest())
    return _content(facts.st_mode, str(path.readlink()) if stat.S_ISLNK(facts.st_mode) else "")


def _content(mode: int, value: str) -> str:
    kind = "link" if stat.S_ISLNK(mode) else "program" if mode & stat.S_IXUSR else "file"
    return f"{kind if stat.S_ISREG(mode) or stat.S_ISLNK(mode) else 'other'}:{value}"


def _word(changes: Mapping[str, str | None], path: str) -> str:
    if path not in changes:
        return "as at the start"
    return "removed" if changes[path] is None else f"changed to {str(changes[path])[:17]}"


def _parents(layer: Path, path: str) -> None:
    (layer / path).parent.mkdir(parents=True, exist_ok=True)
