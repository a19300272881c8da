"""One command in a jail of its own: a tool that reads what a stranger wrote, such as a compiler.

A server forks a guard for each command. The guard makes the jail, puts the files in, has the command run in
it, and tells what it printed and the files that were asked for. It stays outside, and serves one command.
"""

from __future__ import annotations

import math
import os
import select
import signal
import socket
import stat
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from refork.sandbox.inside import filtered, jail, landlock, wire

#: Where a command runs, in namespaces.
WORK = "/work"
#: Users from here on are nobody's: each jail of an administrator gets one, so that none sees another's.
USERS = 0x50000000
#: Rights in the one folder, by Landlock: all but to run what is there.
OWNED = jail.ALL & ~1
#: Landlock that will do: the filter holds back what it does not know, but the emptying of files.
LEAST = 3
FOLDER = os.O_PATH | os.O_DIRECTORY if hasattr(os, "O_PATH") else os.O_RDONLY


class JailPaths(NamedTuple):
    """A jail before anything runs in it: the folder as the guard opened it and as the command will name it.

    ``root``: what becomes all that there is, in namespaces. ``outside``: the folder's path where it lies
    outside of the jail. ``user``: who the command is. ``others``: how many processes of that user there are.
    """

    folder: int
    name: str
    root: str
    outside: str
    user: int
    others: int


def serve(control: int, arguments: list[str]) -> None:
    """Fork a guard for each connection that comes, to the end; ``arguments``: an empty folder of ours."""
    sock = socket.socket(fileno=control)
    sock.set_inheritable(False)
    # Nobody waits for the guards, so the kernel is to reap them.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    filtered.ready(sockets=False, signals=False)  # made once, for all that are forked
    while True:
        asked, fds, _, _ = socket.recv_fds(sock, 1, 1)
        if not asked:
            with suppress(OSError):  # whoever asked may have been killed, and removes nothing
                jail.empty(arguments[0])
                Path(arguments[0]).rmdir()
            os._exit(0)
        for fd in fds:
            with suppress(OSError):  # no process to be had: who asked sees the end of the connection
                if not os.fork():
                    sock.close()
                    os.set_inheritable(fd, False)
                    guard(fd, arguments[0])
            os.close(fd)


def guard(connection: int, spot: str) -> NoReturn:
    """Answer one request, then end."""
    try:
        # As usual again: a child that the kernel reaped could not be asked for its status.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if sys.platform == "linux":
            jail.call("prctl", jail.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            jail.call("prctl", jail.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        os.umask(0o022)
        asked = wire.read(connection)
        try:
            place = CONFINEMENTS[asked["way"]](asked, spot)
        except (jail.RefusedError, OSError) as error:
            wire.write(connection, wire.pack({"refused": str(error)}))
            os._exit(0)
        try:
            wire.write(connection, wire.pack({"ready": True}))
            for name, size in asked["files"]:
                _put(place, name, size, connection)
            _answer(connection, asked, place)
        finally:
            _clear(place)
        os._exit(0)
    finally:
        os._exit(1)


def _apart(asked: dict[str, Any], spot: str) -> JailPaths:
    """Namespaces: the tools and the folder are all that there is, and the folder lies in memory."""
    root = os.geteuid() == 0
    user, others = _user()
    jail.apart(spot)
    for path in (*asked["links"], *asked["shown"], "/dev/null"):
        jail.show(path, spot)
    folder = spot + WORK
    Path(folder).mkdir()
    owner = user if root else jail.USER
    data = f"size={asked['disk']},nr_inodes=256,mode=700,uid={owner},gid={owner}"
    jail.mount("tmpfs", folder, "tmpfs", jail.MS_NOSUID | jail.MS_NODEV | jail.MS_NOEXEC, data)
    return JailPaths(os.open(folder, FOLDER), WORK, spot, "", user, others if root else 0)


def _walled(asked: dict[str, Any], spot: str) -> JailPaths:
    """Landlock alone: the folder lies outside, and its files are bounded one by one."""
    if (known := min(landlock.version(), asked["landlock"])) < LEAST:
        raise jail.RefusedError(f"Landlock version {known}; {LEAST} is the first that keeps files whole")
    return _alone({}, spot)


def _alone(asked: dict[str, Any], spot: str) -> JailPaths:
    """No wall: a folder, and resource limits."""
    del asked
    user, others = _user()
    folder = f"{spot}/{os.getpid()}"
    Path(folder).mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(folder, user, user)
    return JailPaths(os.open(folder, FOLDER), folder, "", folder, user, others)


CONFINEMENTS = {"namespaces": _apart, "landlock": _walled, "none": _alone}


def _user() -> tuple[int, int]:
    """Who a command is, and how many processes of that user there are: a user of its own, where we may."""
    user = USERS + os.getpid()
    if os.geteuid() == 0:
        with suppress(OSError, ValueError):
            for line in Path("/proc/self/uid_map").read_text().splitlines():
                first, _, count = map(int, line.split())
                if first <= user < first + count:
                    return user, 0
    return jail.USER, jail.mine()


def _put(place: JailPaths, name: str, size: int, connection: int) -> None:
    """A file that comes over the connection."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(name, flags, 0o644, dir_fd=place.folder), "wb") as file:
        while size:
            part = os.read(connection, min(size, 1 << 16))
            if not part:
                raise EOFError
            file.write(part)
            size -= len(part)


def _answer(connection: int, asked: dict[str, Any], place: JailPaths) -> None:
    """Run the command, and tell what came of it."""
    out, err, said = os.pipe(), os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        _begin(asked, place, (out[1], err[1], said[1]))
    for pipe in (out, err, said):
        os.close(pipe[1])
    # Empty where the command began; else what failed, and why.
    why = b"".join(iter(lambda: os.read(said[0], 1 << 12), b"")).decode(errors="replace")
    if why:
        _end(child)
        what, _, why = why.partition(":")
        wire.write(connection, wire.pack({what: why}))
        return
    kept, ended = _watch(child, (out[0], err[0]), connection, asked)
    status = os.waitstatus_to_exitcode(_end(child))
    for fd, data in kept.items():
        while len(data) <= asked["output"] and _drain(fd, data, asked["output"]):
            pass
    if ended == "exit" and any(len(data) > asked["output"] for data in kept.values()):
        ended = "output"
    told = [bytes(data[: asked["output"]]) for data in kept.values()]
    files, too_large = _left(asked, place)
    answer = {
        "status": status if status >= 0 else 128 - status, "ended": ended, "printed": [*map(len, told)],
        "files": [[name, size] for name, _, size in files], "too_large": too_large,
    }  # fmt: skip
    _clear(place)  # the files are open; whoever reads the answer finds nothing left
    wire.write(connection, wire.pack(answer))
    for part in told:
        wire.write(connection, part)
    for _, fd, size in files:
        at = 0
        while at < size:
            at += os.sendfile(connection, fd, at, size - at)


def _clear(place: JailPaths) -> None:
    """Remove the folder, where it lies outside of the jail."""
    if place.outside:
        jail.gone(place.outside)


def _left(asked: dict[str, Any], place: JailPaths) -> tuple[list[tuple[str, int, int]], str]:
    """Name, descriptor and size of each wanted file; none but the name of one that is too large."""
    found = []
    for name in asked["wanted"]:
        if (fd := _opened(place, name)) is not None:
            size = os.fstat(fd).st_size
            if size > asked["kept_bytes"]:
                return [], name
            found.append((name, fd, size))
    return found, ""


def _begin(asked: dict[str, Any], place: JailPaths, pipes: tuple[int, int, int]) -> NoReturn:
    """Confine this process, then become the command, or, in namespaces, the first process above it."""
    out, err, said = pipes
    failed = "refused"
    try:
        _confined(asked, place)
        failed = "unstarted"
        if place.root:  # a first process would be deaf to the signals of its limits
            tool = os.fork()
            if tool:
                _first(tool)
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        for fd, to in ((null, 0), (out, 1), (err, 2)):
            os.dup2(fd, to)
        # A descriptor that came over a socket would be inherited, and the guard's own connection is one.
        os.closerange(3, said)
        os.closerange(said + 1, 4096)
        environment = asked["environment"] | {"HOME": place.name, "TMPDIR": place.name}
        os.execve(asked["command"][0], asked["command"], environment)
    except BaseException as error:
        os.write(said, f"{failed}:{error}".encode(errors="replace")[:4096])
    finally:
        os._exit(126)


def _confined(asked: dict[str, Any], place: JailPaths) -> None:
    """No way back from here on.

    Raises:
        RefusedError, OSError: the system does not grant it.
    """
    way, seconds = asked["way"], math.ceil(asked["seconds"]) + 1
    if way == "namespaces":
        jail.inward(place.root)
    elif way == "landlock":
        rights = dict.fromkeys(asked["shown"], jail.READS)
        rights |= {"/dev/null": jail.READS | 2, place.name: OWNED}
        jail.landlocked(rights, LEAST, asked["landlock"])
    os.chdir(place.name)
    limits = {
        "RLIMIT_AS": asked["memory"], "RLIMIT_DATA": asked["memory"], "RLIMIT_CPU": seconds,
        "RLIMIT_FSIZE": asked["file"], "RLIMIT_NPROC": asked["processes"] + place.others,
        "RLIMIT_NOFILE": 256, "RLIMIT_CORE": 0, "RLIMIT_MEMLOCK": 0, "RLIMIT_MSGQUEUE": 0,
    }  # fmt: skip
    jail.own(limits, place.user)
    if way != "none" and (why := filtered.install(sockets=False, signals=False)):
        raise jail.RefusedError(why)


def _first(tool: int) -> NoReturn:
    """Wait for the command as the first process of its namespace, whose end ends all others."""
    os.closerange(0, 512)
    while True:
        pid, status = os.wait()
        if pid == tool:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def _watch(
    child: int, pipes: tuple[int, int], connection: int, asked: dict[str, Any]
) -> tuple[dict[int, bytearray], str]:
    """Read what the command prints until it ends, the time is up, it said too much, or nobody waits."""
    kept, cap = {fd: bytearray() for fd in pipes}, asked["output"]
    deadline = time.monotonic() + asked["seconds"]
    end = os.pidfd_open(child) if hasattr(os, "pidfd_open") else None
    poll = select.poll()
    for fd in (*pipes, connection, *([] if end is None else [end])):
        poll.register(fd, select.POLLIN)
    for fd in pipes:
        os.set_blocking(fd, False)
    while (left := deadline - time.monotonic()) > 0:
        # Where no descriptor tells that it ended, it is asked every millisecond.
        for fd, _ in poll.poll(left * 1000 if end is not None else min(left * 1000, 1.0)):
            if fd == end:
                return kept, "exit"
            if fd == connection:
                return kept, "left"
            if not _drain(fd, kept[fd], cap):
                poll.unregister(fd)
        if any(len(data) > cap for data in kept.values()):
            return kept, "output"
        if end is None and os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return kept, "exit"
    return kept, "time"


def _drain(fd: int, into: bytearray, cap: int) -> bool:
    """Read what is there; False where nothing is or will be."""
    with suppress(BlockingIOError):
        part = os.read(fd, 1 << 16)
        if len(into) <= cap:
            into += part
        return bool(part)
    return False


def _end(child: int) -> int:
    """End the command and all that it started; its status."""
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    mine = Path(f"/proc/self/task/{os.getpid()}/children")
    with suppress(OSError):  # whoever lost its parent is our child
        while left := mine.read_text().split():
            for one in left:
                with suppress(ProcessLookupError):
                    os.kill(int(one), signal.SIGKILL)
            os.wait()
    return status


def _opened(place: JailPaths, name: str) -> int | None:
    """A file that the command left; None where it left none, or no plain one."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place.folder)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return None
