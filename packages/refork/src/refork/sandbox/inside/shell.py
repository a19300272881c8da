"""The process that runs shell commands: it confines itself, then loads folders and runs commands in them.

Every command has a shell of its own, which begins with the variables and the folder that the one before it
left; nothing else outlives a command, so that files, variables and place are the whole state.
"""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from refork.sandbox.inside import jail, wire
from refork.sandbox.inside.standing import changed, standing
from refork.sandbox.inside.ways import WAYS, Command, Way

#: Where a shell tells its variables and its folder when it ends.
REPORT_FD = 9
#: Bytes of a path in the folder; the system's limit is for whole paths, which are longer.
LONGEST = 3000
#: Bytes in which the folder counts what it holds.
PAGE = 4096
#: How a command begins: on its own line, so that line numbers in messages stay right.
#: The variables are not told by the shell itself, as every shell quotes in its own way.
HEAD = f"trap '/usr/bin/env -0 2>&- >&{REPORT_FD};pwd >&{REPORT_FD}' EXIT; "
#: Variables that are not part of the state: the shell sets them itself.
OWN = {"PWD", "_", "SHLVL", "PPID", "OPTIND", "IFS", "PS1", "PS2", "PS4"}
#: More of them where sh is bash.
_BASH = (
    "BASH BASH_EXECUTION_STRING BASH_LOADABLES_PATH BASH_VERSION EPOCHREALTIME EPOCHSECONDS EUID HOSTNAME "
    "HOSTTYPE LINENO MACHTYPE OPTERR OSTYPE POSIXLY_CORRECT RANDOM SECONDS SHELL UID"
)


def serve(control: int, _: list[str]) -> None:
    """Read a way, a folder and a plan, confine this process by them, then answer requests until the end."""
    sock = socket.socket(fileno=control)
    sock.set_inheritable(False)
    told = wire.read(control)
    plan = told["plan"]
    os.umask(0o022)
    try:
        runner = Runner(WAYS[told["way"]](told["folder"], plan["shown"], plan), plan)
        # The whole way, tried: what holds commands back is applied by each of them.
        runner.load([])
        tried = runner.run({"command": ":", "cwd": "/", "variables": {}, "seconds": 30.0, "output": PAGE})
        if tried["status"]:
            raise jail.RefusedError(f"a first command ended with status {tried['status']}")
    except (jail.RefusedError, OSError) as error:
        wire.write(control, wire.pack({"refused": str(error)}))
        os._exit(0)
    wire.write(control, wire.pack({"ready": True}))
    before = standing()
    while True:
        try:
            asked = wire.read(control)
        except EOFError:
            os._exit(0)
        try:
            answer = runner.load(asked["entries"]) if asked["do"] == "load" else runner.run(asked)
        except jail.RefusedError as error:
            answer = {"refused": str(error)}
        if altered := changed(before):
            answer = {"altered": altered}
        wire.write(control, wire.pack(answer))


class Runner:
    """Loads folders and runs commands in them, each by the processes of a way."""

    def __init__(self, way: Way, plan: dict[str, Any]) -> None:
        self.way, self.home, self.plan = way, way.home, plan
        self.null = os.open(os.devnull, os.O_RDONLY)
        self.base = {**plan["environment"], "HOME": way.home, "TMPDIR": way.scratch}

    def load(self, entries: list[Any]) -> dict[str, Any]:
        """Make the folder anew and fill it."""
        self.way.fresh()
        modes = []
        for path, kind, mode, text in entries:
            place = f"{self.home}/{path}"
            if kind == "folder":
                Path(place).mkdir()
                modes.append((place, mode))
            elif kind == "link":
                Path(place).symlink_to(text)
            elif kind == "same":
                os.link(f"{self.home}/{text}", place)
            else:
                Path(place).write_bytes(text.encode("utf-8", "surrogateescape"))
                Path(place).chmod(mode)
        for place, mode in reversed(modes):
            Path(place).chmod(mode)
        return {"ok": True}

    def run(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Run a command: what it printed, its status, how it ended, and the state it left.

        Raises:
            RefusedError: it could not be held back, and has not begun.
        """
        out, told, report = os.pipe(), os.pipe(), os.pipe()
        environment = {**self.base, **asked["variables"]}
        environment = {key: self._in(value) for key, value in environment.items() if value is not None}
        arguments = ["sh", "-a", "-c", HEAD + self._in(asked["command"]), "sh"]
        moves = [(self.null, 0), (out[1], 1), (out[1], 2), (told[1], REPORT_FD)]
        command = Command(arguments, environment, self._in(asked["cwd"]), moves, report[1])
        try:
            process = self.way.start(command)
        finally:
            for pipe in (out, told, report):
                os.close(pipe[1])
        kept: dict[int, bytearray] = {out[0]: bytearray(), told[0]: bytearray(), report[0]: bytearray()}
        ended = _watched(process, kept, asked["seconds"], asked["output"], out[0])
        self.way.end(process, _number(kept[report[0]], b"began "))
        # All is ended by now: what the pipes still hold is the whole rest, and nobody keeps them open.
        for fd, data in kept.items():
            while _drain(fd, data, asked["output"]):
                pass
            os.close(fd)
        printed, said, reported = (bytes(data) for data in kept.values())
        if b"refused " in reported:
            raise jail.RefusedError(reported.partition(b"refused ")[2].decode(errors="replace").strip())
        status = _number(reported, b"ended ") if ended == "exit" else None
        if (failed := _number(reported, b"failed ")) is not None:
            printed, status = f"sh: {os.strerror(failed)}\n".encode(), 126
        if len(printed) > asked["output"]:
            printed, ended = printed[: asked["output"]], "output"
        answer = {
            "output": self._out(_text(printed)), "ended": ended,
            "status": -signal.SIGKILL if status is None else status,
        }  # fmt: skip
        return {**answer, **self._left(asked, self._out(_text(said))), "entries": self.entries()}

    def _left(self, asked: dict[str, Any], said: str) -> dict[str, Any]:
        """Folder and variables at the end of a command; as before it where its shell did not tell."""
        *told, cwd = said.removesuffix("\n").split("\0")
        if not cwd.startswith("/") or not told:
            return {"cwd": asked["cwd"], "variables": asked["variables"]}
        pairs = (one.partition("=") for one in told)
        found = {key: value for key, is_one, value in pairs if is_one and key.isidentifier()}
        base = {key: self._out(value) for key, value in self.base.items()}
        own = OWN | set(_BASH.split()) if "BASH_VERSION" in found else OWN
        changed = {key: found[key] for key in sorted(found) if key not in own and base.get(key) != found[key]}
        gone = {key: None for key in base if key not in found}
        return {"cwd": cwd, "variables": {**changed, **gone}}

    def entries(self) -> list[Any]:
        """Everything in the folder: path, kind, mode, text; what is neither file, folder nor link goes.

        So does what is too deep or one too many; files end where they are more bytes than they may be.
        """
        Path(self.home).chmod(0o755)
        opened: list[tuple[str, int]] = []
        try:
            found = self._walked(opened)
        finally:
            for place, mode in reversed(opened):
                Path(place).chmod(mode)
        # A second name of a file comes after the first, and a folder before what is in it.
        return sorted(found, key=lambda one: (one[1] == "same", one[0]))

    def _walked(self, opened: list[tuple[str, int]]) -> list[Any]:
        """The entries; modes that forbid the owner to read are changed, and noted in ``opened``."""
        found: list[Any] = []
        first: dict[int, str] = {}
        stack, room = [self.home], self.plan["disk"] // PAGE * PAGE
        while stack:
            folder = stack.pop()
            _open_up(folder, 0o700, opened)
            for name in sorted(one.name for one in Path(folder).iterdir()):
                place = f"{folder}/{name}"
                path = place[len(self.home) + 1 :]
                seen = os.lstat(place)
                if len(found) >= self.plan["files"] or len(os.fsencode(path)) > LONGEST:
                    jail.discard(name, folder)
                    continue
                kind, mode = stat.S_IFMT(seen.st_mode), stat.S_IMODE(seen.st_mode)
                if kind == stat.S_IFDIR:
                    found.append([path, "folder", mode, ""])
                    stack.append(place)
                elif kind == stat.S_IFLNK:
                    found.append([path, "link", 0o777, str(Path(place).readlink())])
                elif kind != stat.S_IFREG:
                    Path(place).unlink()
                elif seen.st_nlink > 1 and seen.st_ino in first:
                    found.append([path, "same", mode, first[seen.st_ino]])
                else:
                    first[seen.st_ino] = path
                    _open_up(place, 0o600 if seen.st_size > room else 0o400, opened)
                    data = _file(place, room)
                    room -= -(-len(data) // PAGE) * PAGE
                    found.append([path, "file", mode, _text(data, exact=True)])
        return found

    def _in(self, text: str) -> str:
        """Names of folders as they are here."""
        return text if self.way.alone else text.replace(jail.HOME, self.home)

    def _out(self, text: str) -> str:
        """Names of folders as they are told."""
        if self.way.alone:
            return text
        return text.replace(self.home, jail.HOME).replace(self.way.scratch, "/tmp")


def _watched(pid: int, kept: dict[int, bytearray], seconds: float, cap: int, out: int) -> str:
    """Read until a process ends, the time is up or ``out`` said too much; how it came to an end."""
    deadline = time.monotonic() + seconds
    process = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
    poll = select.poll()
    for fd in kept:
        os.set_blocking(fd, False)
    for fd in (*kept, *([] if process is None else [process])):
        poll.register(fd, select.POLLIN)
    try:
        while (left := deadline - time.monotonic()) > 0:
            # Where no descriptor tells that it ended, it is asked every millisecond.
            for fd, event in poll.poll(left * 1000 if process is not None else min(left * 1000, 1.0)):
                if fd == process:
                    return "exit"
                if not _drain(fd, kept[fd], cap) and event & select.POLLHUP:
                    poll.unregister(fd)
            if len(kept[out]) > cap:
                return "output"
            if process is None and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                return "exit"
        return "time"
    finally:
        if process is not None:
            os.close(process)


def _number(report: bytes | bytearray, word: bytes) -> int | None:
    """The number behind a word in a report; None where it does not stand there."""
    found = re.search(re.escape(word) + rb"(-?[0-9]+)\n", report)
    return None if found is None else int(found[1])


def _drain(fd: int, into: bytearray, cap: int) -> bool:
    """Read what is there, and keep a little more than ``cap`` bytes; False where nothing is."""
    with suppress(BlockingIOError):
        part = os.read(fd, 1 << 16)
        if len(into) <= max(cap, PAGE):
            into += part
        return bool(part)
    return False


def _text(data: bytes, *, exact: bool = False) -> str:
    return data.decode("utf-8", "surrogateescape" if exact else "replace")


def _open_up(place: str, wanted: int, opened: list[tuple[str, int]]) -> None:
    mode = stat.S_IMODE(Path(place).stat().st_mode)
    if mode & wanted != wanted:
        opened.append((place, mode))
        Path(place).chmod(mode | wanted)


def _file(place: str, most: int) -> bytes:
    """A file's bytes; one that has more is cut, so that the folder is as it is told."""
    # Whatever lies there: a link is not followed, and a pipe without a writer makes nobody wait.
    with os.fdopen(os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        data = file.read(most)
        longer = bool(file.read(1))
    if longer:
        os.truncate(place, most)
    return data
