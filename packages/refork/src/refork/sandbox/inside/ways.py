"""The ways in which commands are held, and how a command begins and ends in each.

The runner, which loads folders and tells how commands ended, runs none itself. Over each command stands a
process of its own that confines itself for good, starts the shell and ends with it. What a command changes of
whoever started it is gone with the command; the runner lies outside its namespaces or its Landlock domain.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from refork.sandbox.inside import filtered, jail
from refork.sandbox.inside.jail import HOME, RefusedError, call

MNT_DETACH = 2
#: Processes that count as a command's beside those that it starts: the runner, and the one over the shell.
OVER = 2


class Command(NamedTuple):
    """A shell's arguments, environment and folder; its descriptors (ours, its own); where its end is told."""

    arguments: list[str]
    environment: dict[str, str]
    cwd: str
    moves: list[tuple[int, int]]
    report: int


class Way:
    """Limits alone: what the other ways add to. Commands reach whatever this user does.

    A process that makes one goes into it for good.
    """

    #: Whether folders have the names here that commands are told.
    alone = False

    def __init__(self, folder: str, exposed: list[str], plan: dict[str, Any]) -> None:
        self.folder, self.exposed = folder, exposed
        self.home, self.scratch = f"{folder}/home", f"{folder}/tmp"
        self.limits = jail.limits(plan, plan["processes"] + OVER + jail.mine())
        if os.geteuid() == 0:
            os.chown(folder, jail.USER, jail.USER)
        # Opened now: later nothing outside the folder may be.
        self._children = _opened(f"/proc/self/task/{os.getpid()}/children")
        self.enter()
        jail.own({})

    def enter(self) -> None:
        """Hold this process back, from which commands are started."""

    def confine(self) -> None:
        """Hold back the process over a command, and so the command."""
        jail.own(self.limits)

    def fresh(self) -> None:
        """Make the commands' folders anew, with nothing of the old ones: no mode, owner or time."""
        for folder in (self.home, self.scratch):
            jail.gone(folder)
            Path(folder).mkdir()

    def start(self, command: Command) -> int:
        """Begin a command; the process over it."""
        jail.empty(self.scratch)
        os.chown(self.scratch, -1, os.getegid())
        os.utime(self.scratch, (0, 0))
        return os.fork() or self.stand(command)

    def stand(self, command: Command) -> NoReturn:
        """Start a command's shell and end with it; its end is told in a line."""
        try:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            self.confine()
            try:
                os.chdir(command.cwd)
            except OSError:
                os.chdir(self.home)
            moves = [(os.POSIX_SPAWN_DUP2, *pair) for pair in command.moves]
            try:
                shell = os.posix_spawn(
                    "/bin/sh", command.arguments, command.environment, file_actions=moves, setsid=True
                )
            except OSError as error:  # the command or a variable is too long
                os.write(command.report, b"failed %d\n" % (error.errno or 0))
                os._exit(0)
            os.write(command.report, b"began %d\n" % shell)
            while (ended := os.wait())[0] != shell:
                pass
            os.write(command.report, b"ended %d\n" % os.waitstatus_to_exitcode(ended[1]))
        except BaseException as error:
            os.write(command.report, b"refused %s\n" % f"{error}".replace("\n", " ").encode())
        finally:
            os._exit(0)

    def end(self, process: int, shell: int | None) -> None:
        """Kill what a command has started, and reap it: who lost its parent is our child."""
        for one in (process, shell) if shell else (process,):
            for kill in (os.killpg, os.kill):
                with suppress(ProcessLookupError, PermissionError):
                    kill(one, signal.SIGKILL)
        os.waitpid(process, 0)
        for _ in range(1000):
            for one in self._left():
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(one, signal.SIGKILL)
            try:
                # Where nobody lists them they cannot be ended, and must not be waited for.
                pid, _ = os.waitpid(-1, os.WNOHANG if self._children is None else 0)
            except ChildProcessError:
                break
            if not pid:
                break

    def _left(self) -> list[int]:
        if self._children is None:
            return []
        os.lseek(self._children, 0, os.SEEK_SET)
        return [int(pid) for pid in os.read(self._children, 1 << 16).split()]


class Walls(Way):
    """Landlock: the runner writes in the folder, commands in two that lie in it and that it can replace."""

    def enter(self) -> None:
        """Files of programs and of the folder, no TCP, no signals to others."""
        _ready(sockets=False)
        jail.guarded(self.folder)
        self._children = _opened(f"/proc/self/task/{os.getpid()}/children")
        rules = self._rules(self.folder)
        jail.bound(rules)
        self._inner = rules

    def fresh(self) -> None:
        """Rights go to these folders and not to others that will have their names."""
        super().fresh()
        os.close(self._inner)
        self._inner = self._rules(self.home, self.scratch)

    def confine(self) -> None:
        """A second domain within the runner's: signals to the runner are refused, and so is its folder."""
        jail.bound(self._inner)
        super().confine()
        _filtered(sockets=False)

    def _rules(self, *owned: str) -> int:
        rights = dict.fromkeys((*jail.SYSTEM, *jail.DEVICES, *self.exposed), jail.READS)
        return jail.ruleset({**rights, "/dev/null": jail.READS | 2, **dict.fromkeys(owned, jail.ALL)})


class Spaces(Way):
    """Namespaces: no network, and no files but programs; processes, System V objects and /tmp by command."""

    alone = True

    def __init__(self, folder: str, exposed: list[str], plan: dict[str, Any]) -> None:
        self.home, self.scratch = HOME, "/tmp"
        self.limits = jail.limits(plan, plan["processes"] + OVER)  # a user namespace counts its own
        self._data = f"size={plan['disk']},nr_inodes={plan['files']},mode=755,uid={jail.USER},gid={jail.USER}"
        _ready(sockets=True)
        root = os.geteuid() == 0
        ask, told = os.pipe(), os.pipe()
        if child := os.fork():
            _outside(child, folder, ask, told)
        os.close(ask[0])
        os.close(told[1])
        proc = os.open("/proc", os.O_PATH)
        jail.apart(folder, jail.NEW_UTS | jail.NEW_NET | (0 if root else jail.NEW_PID))
        for path in (*jail.SYSTEM, *jail.DEVICES, *exposed):
            jail.show(path, folder)
        etc = Path(folder, "etc")
        etc.mkdir(exist_ok=True)
        (etc / "passwd").write_text(f"agent:x:{jail.USER}:{jail.USER}::{HOME}:/bin/sh\n")
        (etc / "group").write_text(f"agent:x:{jail.USER}:\n")
        for path in (HOME, "/tmp", "/proc"):
            Path(folder + path).mkdir(parents=True, exist_ok=True)
        jail.inward(folder)
        if root:  # an administrator's rights end here: those that are left count inside only
            os.setgroups([])
            call("unshare", ctypes.c_int(jail.NEW_USER | jail.NEW_NS | jail.NEW_PID))
            os.write(ask[1], b"m")
            if os.read(told[0], 1) != b"m":
                raise RefusedError("no users of its own")
            os.setresgid(jail.USER, jail.USER, jail.USER)
            os.setresuid(jail.USER, jail.USER, jail.USER)
        os.close(ask[1])
        os.close(told[0])
        if child := os.fork():
            os.closerange(3, 1024)  # so that its end is seen by who asks
            os.waitpid(child, 0)
            os._exit(0)
        self._own = os.open("self/ns/pid", os.O_RDONLY, dir_fd=proc)
        os.close(proc)
        jail.own({})

    def fresh(self) -> None:
        """Another file system in memory."""
        with suppress(RefusedError):
            call("umount2", HOME.encode(), ctypes.c_int(MNT_DETACH))
        jail.mount("tmpfs", HOME, "tmpfs", jail.MS_NOSUID | jail.MS_NODEV, self._data)

    def start(self, command: Command) -> int:
        """Begin a command as process 1 of its own processes; all of them end with it."""
        call("unshare", ctypes.c_int(jail.NEW_PID))
        try:
            return os.fork() or self.stand(command)
        finally:
            # Back: later processes would else be born where the first one, and with it all, is gone.
            call("setns", ctypes.c_int(self._own), ctypes.c_int(jail.NEW_PID))

    def confine(self) -> None:
        """Mounts and System V objects of its own, a new /tmp, and no right that the runner has."""
        call("unshare", ctypes.c_int(jail.NEW_NS | jail.NEW_IPC))
        jail.mount("tmpfs", "/tmp", "tmpfs", jail.MS_NOSUID | jail.MS_NODEV, self._data)
        with suppress(RefusedError):  # some containers forbid it; few tools look there
            jail.mount("proc", "/proc", "proc", jail.MS_NOSUID | jail.MS_NODEV | jail.MS_NOEXEC)
        # Version 3 of the call; 24 zeros are no capability in any of its three sets.
        call("capset", struct.pack("=2I", 0x20080522, 0), bytes(24))
        super().confine()
        _filtered(sockets=True)

    def end(self, process: int, shell: int | None) -> None:
        """Kill process 1: the kernel ends all others before it is gone."""
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


WAYS: dict[str, type[Way]] = {"namespaces": Spaces, "landlock": Walls, "none": Way}


def _outside(child: int, folder: str, ask: tuple[int, int], told: tuple[int, int]) -> NoReturn:
    """Name the users of a child's namespace where it asks for them, and tidy up when it ended."""
    os.close(ask[1])
    if os.read(ask[0], 1):
        with suppress(OSError):
            for kind in ("gid", "uid"):
                Path(f"/proc/{child}/{kind}_map").write_text(f"{jail.USER} {jail.USER} 1")
            os.write(told[1], b"m")
    os.closerange(3, 1024)  # so that its end is seen by who asks
    os.waitpid(child, 0)
    with suppress(OSError):
        Path(folder).rmdir()
    os._exit(0)


def _ready(*, sockets: bool) -> None:
    """What every command's process will need, made before the first is forked."""
    if filtered.ready(sockets=sockets) is None:
        raise RefusedError("no seccomp filter for this system and processor")
    gc.freeze()


def _filtered(*, sockets: bool) -> None:
    if why := filtered.install(sockets=sockets):
        raise RefusedError(why)


def _opened(path: str) -> int | None:
    try:
        return os.open(path, os.O_RDONLY)
    except OSError:
        return None
