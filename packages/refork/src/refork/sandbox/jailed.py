"""``jailed``: one command in a jail of its own, with the files that it is given and those that it leaves.

For tools that read what a stranger wrote: compilers, assemblers, linkers, disassemblers. The command finds
what it is shown (its own program, libraries, headers) and one folder; it has no network; and its memory,
files, output, processes and time are bounded.
"""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, final

from refork.errors import CannotDo
from refork.sandbox.inside import wire
from refork.sandbox.process import receive, start, stop
from refork.sandbox.result import warn_open

#: time, output: it was ended, as it took or printed too much. size: it left a file that is too large.
Ended: TypeAlias = Literal["exit", "time", "output", "size"]
Way: TypeAlias = Literal["namespaces", "landlock", "none"]
WAYS: tuple[Way, ...] = ("namespaces", "landlock")
#: The kernel's Landlock is taken for no newer than this; for tests of older ones.
NEWEST = 99
#: Seconds beyond a command's own until its guard is taken for lost.
GRACE = 60.0


@final
@dataclass(frozen=True, slots=True)
class Bounds:
    """Of a command: seconds of the clock, and of each process as many of the processor and bytes of memory.

    ``file``: bytes of a file that it writes; ``disk``: of all together (in namespaces). ``kept_bytes``:
    bytes of a file that is handed out. ``output``: bytes of each of its two streams. ``processes``: at once.
    """

    seconds: float = 60.0
    memory: int = 1 << 30
    file: int = 64 << 20
    disk: int = 160 << 20
    kept_bytes: int = 8 << 20
    output: int = 1 << 20
    processes: int = 16


@final
@dataclass(frozen=True, slots=True)
class ExposedPaths:
    """What a jail shows: files and folders, none within another, and links by where they lead."""

    paths: tuple[str, ...]
    links: tuple[str, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class JailResult:
    """What came of a command: status (128 and more: a signal), what it printed, the files that it left.

    ``too_large`` names the file over the bound where ``ended`` is size; no file is handed out then.
    """

    status: int
    ended: Ended
    out: bytes
    err: bytes
    files: dict[str, bytes] = field(default_factory=dict)
    too_large: str = ""


def exposed(paths: Iterable[str | Path]) -> ExposedPaths:
    """All that is needed to reach these paths: what they are in the end, and the links on the way."""
    real: set[str] = set()
    links: set[str] = set()
    for path in paths:
        todo, at, hops = list(Path(path).absolute().parts[1:]), "", 0
        # As many links as Linux follows before it takes them for a circle.
        while todo and hops < 40:
            part = todo.pop(0)
            if part == "..":
                at = at.rpartition("/")[0]
                continue
            try:
                target = str(Path(f"{at}/{part}").readlink())
            except OSError:
                at = f"{at}/{part}"
                continue
            links.add(f"{at}/{part}")
            todo = [*(one for one in target.split("/") if one not in ("", ".")), *todo]
            at, hops = "" if target.startswith("/") else at, hops + 1
        if at and not todo and Path(at).exists():
            real.add(at)

    def within(path: str) -> bool:
        return any(str(up) in real for up in Path(path).parents)

    return ExposedPaths(
        tuple(sorted(one for one in real if not within(one))),
        tuple(sorted(one for one in links if not within(one))),
    )


_chosen: tuple[Way, ...] = WAYS


@contextmanager
def only(*ways: Way) -> Iterator[None]:
    """Have commands held in these ways alone, the first that the system grants; for tests of each."""
    global _chosen  # noqa: PLW0603
    before, _chosen = _chosen, ways
    try:
        yield
    finally:
        _chosen = before


@contextmanager
def unconfined(allowed: bool) -> Iterator[None]:
    """If ``allowed``, have commands run also where no way to hold them back is granted; a warning says so."""
    with only(*_chosen, *(("none",) if allowed and "none" not in _chosen else ())):
        yield


def jailed(
    command: Sequence[str],
    shows: ExposedPaths,
    *,
    files: Mapping[str, bytes] | None = None,
    wanted: Sequence[str] = (),
    bounds: Bounds | None = None,
    environment: Mapping[str, str] | None = None,
) -> JailResult:
    """Run a command in a folder with ``files`` and nothing else, and hand out those of its files ``wanted``.

    ``command[0]`` is a whole path. Names of files are plain, without folders. It reads ``shows`` and the
    folder, where it is when it begins; it writes there alone. Safe in threads.

    Raises:
        CannotDo: this system cannot hold commands back, or there is no such program.
    """
    limits, given = bounds or Bounds(), dict(files or {})
    for name in (*given, *wanted):
        if "/" in name or name in ("", ".", "..") or "\0" in name:
            raise ValueError(f"no plain name of a file: {name!r}")
    asked = {
        **asdict(limits), "command": list(command), "shown": shows.paths, "links": shows.links,
        "files": [[name, len(data)] for name, data in given.items()], "wanted": list(wanted),
        "environment": {"LC_ALL": "C", **(environment or {})}, "landlock": NEWEST,
    }  # fmt: skip
    for way in _chosen:
        if way not in _refused:
            done = _asked({**asked, "way": way}, given, limits)
            if not isinstance(done, str):
                if way == "none":
                    name = Path(command[0]).name
                    warn_open(name, "files, network and processes of whoever runs this")
                return done
            _refused[way] = done
    tried = "; ".join(f"{way}: {_refused[way]}" for way in _chosen)
    raise CannotDo(
        f"this system cannot hold {Path(command[0]).name} back ({tried or 'no way is left'})",
        where="jail",
        hint="run on Linux with user namespaces or Landlock 3 (Linux 6.2); --unconfined (in Python, "
        "refork.sandbox.jailed.unconfined) where all else is walled off",
    )


#: Ways that this system does not grant, and why.
_refused: dict[str, str] = {}


def _asked(asked: dict[str, Any], files: Mapping[str, bytes], limits: Bounds) -> JailResult | str:
    """What came of a request; why not, where the system does not grant the way."""
    with _server().connection() as sock:
        sock.settimeout(limits.seconds + GRACE)
        try:
            sock.sendall(wire.pack(asked))
            answer = _read(sock)
            if "ready" in answer:
                for data in files.values():
                    sock.sendall(data)
                answer = _read(sock)
            if "refused" in answer:
                return str(answer["refused"])
            if "unstarted" in answer:
                why = answer["unstarted"]
                raise CannotDo(f"{asked['command'][0]} cannot be started in a jail: {why}", where="jail")
            out, err = (_exactly(sock, count, limits.output) for count in answer["printed"])
            kept = {name: _exactly(sock, size, limits.kept_bytes) for name, size in answer["files"]}
        except (EOFError, OSError) as error:
            raise CannotDo(
                f"the guard of a command was lost: {error or 'it ended'}", where="jail", hint="try again"
            ) from None
    ended: Ended = "size" if answer["too_large"] and answer["ended"] == "exit" else answer["ended"]
    return JailResult(answer["status"], ended, out, err, kept, answer["too_large"])


def _read(sock: socket.socket) -> Any:
    (length,) = wire.HEAD.unpack(_exactly(sock, wire.HEAD.size, 1 << 20))
    return wire.unpack(_exactly(sock, length, 1 << 20))


def _exactly(sock: socket.socket, count: int, most: int) -> bytes:
    if count > most:
        raise OSError(f"{count} bytes, where {most} are the most")
    return receive(sock, count)


@final
class _Server:
    """A fresh interpreter that forks a guard for each connection."""

    def __init__(self) -> None:
        self.owner, self._lock = os.getpid(), threading.Lock()
        self.folder = folder = tempfile.mkdtemp(prefix="refork-jail-")
        Path(folder).chmod(0o711)  # a command's user goes through it to its own folder
        self.process, self._socket = start("command", [folder])
        self._stop = weakref.finalize(self, stop, self.process, self._socket, folder, self.owner)

    @contextmanager
    def connection(self) -> Iterator[socket.socket]:
        """A guard's socket."""
        ours, theirs = socket.socketpair()
        with ours:
            with theirs, self._lock:
                # A message of no bytes would not carry the descriptor.
                socket.send_fds(self._socket, [b"x"], [theirs.fileno()])
            yield ours


def outside() -> Path:
    """Where the folders of commands lie that are held without namespaces."""
    return Path(_server().folder)


_lock = threading.Lock()
_running: _Server | None = None


def _server() -> _Server:
    """The server of this process; a new one where it ended, or where this is a fork."""
    global _running  # noqa: PLW0603
    with _lock:
        if _running is None or _running.owner != os.getpid() or _running.process.poll() is not None:
            _running = _Server()
        return _running
