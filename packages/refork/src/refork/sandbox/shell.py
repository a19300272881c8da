"""``Shell``: shell commands in a folder that holds nothing else, with no network, under limits.

A state (files, folder, variables) goes in and another comes out: one process serves any number of episodes.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeAlias, final, get_args

from refork.errors import CannotDo
from refork.sandbox.inside import wire
from refork.sandbox.inside.jail import HOME
from refork.sandbox.process import receive, start, stop
from refork.sandbox.result import Layer, warn_open
from refork.types import Json

Kind: TypeAlias = Literal["file", "folder", "link", "same"]
Ended: TypeAlias = Literal["exit", "time", "output", "lost"]
#: What every command finds in its environment; HOME and TMPDIR come from the sandbox.
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC", "TERM": "dumb"}
#: Seconds beyond a command's own until its process is taken for lost.
GRACE = 60.0


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """One thing in a folder: ``text`` is a file's content, or what a link (or "same": second name) names."""

    path: str
    kind: Kind = "file"
    mode: int = 0o644
    text: str = ""


@dataclass(frozen=True, slots=True)
class ShellState:
    """All that outlives a command. Bytes that are no UTF-8 stand as surrogates (PEP 383)."""

    entries: tuple[FolderEntry, ...] = ()
    cwd: str = HOME
    variables: dict[str, str | None] = field(default_factory=dict)

    def files(self) -> dict[str, str]:
        """Path -> content of every file."""
        found = {entry.path: entry.text for entry in self.entries if entry.kind == "file"}
        return found | {one.path: found[one.text] for one in self.entries if one.kind == "same"}

    def folders(self) -> frozenset[str]:
        """Paths of the folders."""
        return frozenset(entry.path for entry in self.entries if entry.kind == "folder")

    def to_json(self) -> Json:
        """Plain JSON, entries by path."""
        rows = [[one.path, one.kind, one.mode, one.text] for one in self.entries]
        return {"entries": rows, "cwd": self.cwd, "variables": dict(sorted(self.variables.items()))}

    @classmethod
    def from_json(cls, data: Json) -> ShellState:
        """Inverse of :meth:`to_json`.

        Raises:
            ValueError, TypeError, KeyError: it is not what :meth:`to_json` gives.
        """
        entries = tuple(_entry(*row) for row in data["entries"])
        variables: dict[str, str | None] = dict(data["variables"])
        told = [data["cwd"], *variables, *(text for text in variables.values() if text is not None)]
        if not all(isinstance(text, str) and "\0" not in text for text in told):
            raise ValueError("a folder or variable that is no text")
        return cls(entries, data["cwd"], variables)

    @classmethod
    def of_files(cls, files: dict[str, str], folders: Sequence[str] = ()) -> ShellState:
        """Files with the folders that they need, and ``folders`` more."""
        parents = {
            str(up) for path in [*files, *(f"{one}/x" for one in folders)] for up in Path(path).parents
        }
        found = [FolderEntry(path, "folder", 0o755) for path in parents - {"."}]
        found += [FolderEntry(path, text=text) for path, text in files.items()]
        return cls(tuple(sorted(found, key=lambda one: one.path)))


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command printed (both streams in their order), its exit status, how it ended, what it left."""

    output: str
    status: int
    ended: Ended
    state: ShellState

    def checked(self) -> Ran:
        """This, for an episode.

        Raises:
            ShellLostError: the process was lost. A rollout records that as its error.
        """
        if self.ended == "lost":
            raise ShellLostError(self.output or "the shell's process is gone")
        return self


@dataclass(frozen=True, slots=True)
class ShellLimits:
    """Of a command: seconds, bytes printed, processes, memory of each; of its folder: bytes and files."""

    seconds: float = 2.0
    output: int = 1 << 16
    disk: int = 4 << 20
    files: int = 512
    processes: int = 48
    memory: int = 1 << 30


class ShellLostError(Exception):
    """The process that runs commands was lost or altered while one ran: its episode is no episode."""


@final
class Shell:
    """Runs commands; :meth:`close` it, or let it go. Nothing but a state goes from a command to the next.

    ``exposed``: folders outside that commands may read. ``unconfined``: run also where the system can hold
    commands back by limits alone, so that they reach whatever this user does; a warning says so.
    ``layers`` says what holds.

    Raises:
        CannotDo: the system cannot confine commands, and ``unconfined`` is not set.
    """

    def __init__(
        self, limits: ShellLimits | None = None, *, exposed: Sequence[str] = (), unconfined: bool = False,
        ways: Sequence[str] = ("namespaces", "landlock"), environment: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.limits = limits or ShellLimits()
        self.owner = os.getpid()
        self._shown, self._ways = tuple(exposed), (*ways, *(["none"] if unconfined else []))
        self._environment = ENVIRONMENT | (environment or {})
        self._lock = threading.Lock()
        self._held: ShellState | None = None
        self._refused: dict[str, str] = {}
        self._begin()

    def run(self, state: ShellState, command: str, *, seconds: float | None = None) -> Ran:
        """What a command does to a state.

        A command that is not done in time, or says too much, is ended; what it did to the files stands. Where
        its process is lost, or is not as it was (``output`` says in what), another takes its place, and the
        state is what it was.

        Raises:
            CannotDo: the system does not confine commands any more.
        """
        command = _sendable(command)
        asked = {
            "do": "run", "command": command, "cwd": state.cwd, "variables": state.variables,
            "seconds": seconds or self.limits.seconds, "output": self.limits.output,
        }  # fmt: skip
        if os.getpid() != self.owner:  # a fork of the process that started it: it talks to one of its own
            self._lock, self.owner = threading.Lock(), os.getpid()
            self._begin()
        with self._lock:
            try:
                # By identity: only who holds this very state has the folder that is there now.
                if self._held is not state:
                    self._held = None
                    self._ask({"do": "load", "entries": state.to_json()["entries"]})
                told = self._ask(asked)
            except (EOFError, OSError, ValueError) as error:
                self.close()
                self._begin()
                return Ran(f"{error}", -9, "lost", state)
            except BaseException:
                self.close()
                self._begin()
                raise
            # Never the state that was given: who else has that one finds a folder of its own.
            left = ShellState.from_json({key: told[key] for key in ("entries", "cwd", "variables")})
            self._held = left
        return Ran(told["output"], told["status"], told["ended"], left)

    @property
    def process(self) -> int:
        """Number of the process that all others of this shell come from."""
        return self._process.pid

    @property
    def layers(self) -> tuple[Layer, ...]:
        """What holds here, and what is not enforced."""
        spaces = self.way == "namespaces"
        notes = {
            "namespaces": "files, processes, users, network and host name of its own",
            "landlock": "no writing outside, no reading but of programs, no TCP, no signals",
            "none": "commands reach all that this user does",
        }
        found = [
            Layer(
                name,
                on=name == self.way,
                note=self._refused.get(name, notes[name] if name == self.way else ""),
            )
            for name in ("namespaces", "landlock")
        ]
        filtered = self.way != "none"
        more = "no tracing, no namespaces, no other process's limits, priority or memory"
        more += "" if spaces else "; no sockets, no System V memory"
        found.append(Layer("seccomp", on=filtered, note=more if filtered else ""))
        disk = f"{self.limits.disk} bytes, {self.limits.files} files" if spaces else "after a command only"
        found.append(Layer("disk", on=spaces, note=disk))
        found.append(
            Layer("rlimits", on=True, note="memory of each process, number of processes, size of a file")
        )
        return tuple(found)

    def close(self) -> None:
        """End the process."""
        self._stop()

    def _ask(self, request: Json) -> Any:
        self._socket.settimeout(self.limits.seconds + request.get("seconds", 0.0) + GRACE)
        self._socket.sendall(wire.pack(request))
        told = self._read()
        if "altered" in told:
            raise ValueError(f"the process that runs commands was altered: {told['altered']}")
        if "refused" in told:
            raise _cannot(f"{self.way}: {told['refused']}")
        return told

    def _read(self) -> Any:
        (length,) = wire.HEAD.unpack(receive(self._socket, wire.HEAD.size))
        return wire.unpack(receive(self._socket, length))

    def _begin(self) -> None:
        self._held = None
        for way in self._ways:
            if way not in self._refused and self._started(way):
                self.way = way
                if way == "none":
                    warn_open("a shell", "files, network and processes of whoever runs this")
                return
        tried = "; ".join(f"{way}: {why}" for way, why in self._refused.items())
        raise _cannot(tried)

    def _started(self, way: str) -> bool:
        limits = self.limits
        plan = {
            "disk": limits.disk, "files": limits.files, "processes": limits.processes,
            "memory": limits.memory, "shown": self._shown, "environment": self._environment,
        }  # fmt: skip
        folder = tempfile.mkdtemp(prefix="refork-shell-")
        # Commands see its arguments: no number in them may differ from shell to shell.
        self._process, self._socket = start("shell", as_input=True)
        self._stop = weakref.finalize(self, stop, self._process, self._socket, folder, self.owner)
        self._socket.settimeout(GRACE * 3)
        try:
            self._socket.sendall(wire.pack({"way": way, "folder": folder, "plan": plan}))
            answer = self._read()
        except (EOFError, OSError, ValueError):
            answer = {"refused": "its process ended"}
        if "ready" in answer:
            return True
        self._refused[way] = str(answer.get("refused", "no answer"))
        self._stop()
        return False


def _cannot(why: str) -> CannotDo:
    return CannotDo(
        f"this system cannot confine shell commands ({why})",
        where="shell",
        hint="run on Linux with user namespaces or Landlock 6; unconfined where all else is walled off",
    )


def _entry(path: str, kind: Kind, mode: int, text: str) -> FolderEntry:
    """An entry, where it lies in the folder."""
    if not all(isinstance(one, str) for one in (path, text)):
        raise ValueError("an entry of a folder that is no text")
    if kind not in get_args(Kind) or "\0" in path or {"", ".", ".."} & set(path.split("/")):
        raise ValueError(f"no entry of a folder: {path!r}, {kind!r}"[:200])
    text.encode("utf-8", "surrogateescape")
    return FolderEntry(path, kind, stat.S_IMODE(mode), text)


def _sendable(text: str) -> str:
    """What a command line can hold: no NUL, no half of a surrogate pair."""
    try:
        return text.encode("utf-8", "surrogateescape").replace(b"\0", b"").decode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode().replace("\0", "")


@lru_cache(maxsize=8)
def _shared(owner: int, limits: ShellLimits, shown: tuple[str, ...], rest: str) -> Shell:
    del owner
    told = json.loads(rest)
    return Shell(limits, exposed=shown, unconfined=told[0], environment=told[1])


def shared_shell(
    limits: ShellLimits, exposed: Sequence[str] = (), *, unconfined: bool = False,
    environment: dict[str, str] | None = None,
) -> Shell:  # fmt: skip
    """The shell of this process with these settings; all episodes share it.

    Raises:
        CannotDo: as :class:`Shell`.
    """
    # The process is in the key: a fork must not talk through the socket of its parent.
    return _shared(os.getpid(), limits, tuple(exposed), json.dumps([unconfined, environment]))
