"""Confine this process and all it starts to one folder: by namespaces, or else by Landlock."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import struct
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from refork.sandbox.inside import landlock

#: Where a command finds itself, and who it is.
HOME, USER = "/home/agent", 65534
NEW_NS, NEW_UTS, NEW_IPC, NEW_USER, NEW_PID, NEW_NET = (
    0x20000,
    0x4000000,
    0x8000000,
    1 << 28,
    1 << 29,
    1 << 30,
)
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_MOVE, MS_REC, MS_PRIVATE = 2, 4, 8, 4096, 8192, 16384, 1 << 18
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS, PR_SET_CHILD_SUBREAPER = 1, 4, 38, 36
MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE = 442, -100, 0x8000  # the same numbers on every architecture
ATTR_READ_ONLY, ATTR_NO_SUID = 1, 2
LANDLOCK_ADD, BENEATH = 445, 1
#: Landlock's rights: to read and run files; all but the making of devices.
READS, ALL = 1 | 4 | 8, 0xFFFF & ~(1 << 6) & ~(1 << 11)
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/alternatives", "/etc/ld.so.cache")
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")


class RefusedError(Exception):
    """The system does not grant what was asked."""


def apart(folder: str, spaces: int = NEW_UTS | NEW_IPC | NEW_PID | NEW_NET) -> None:
    """Namespaces of our own for what is started from here on; ``folder`` becomes an empty one in memory.

    ``spaces``: kinds beside that of mounts, and that of users where we are no administrator.

    Raises:
        RefusedError: the system does not grant it; this process must end.
    """
    root, user, group = os.geteuid() == 0, os.geteuid(), os.getegid()
    call("unshare", ctypes.c_int(NEW_NS | spaces | (0 if root else NEW_USER)))
    if not root:
        # Before the groups' map: without it the kernel lets no plain user write one.
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{USER} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{USER} {group} 1")
    # Private first: what is mounted below would else appear outside, too.
    mount("none", "/", "", MS_REC | MS_PRIVATE)
    mount("tmpfs", folder, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755")


def inward(folder: str) -> None:
    """Make a folder all that there is, read-only but for what is mounted in it."""
    os.chdir(folder)
    mount(".", "/", "", MS_MOVE)
    os.chroot(".")
    os.chdir("/")
    _attributes("/", ATTR_READ_ONLY, 0)
    with suppress(OSError):
        socket.sethostname("box")


def guarded(folder: str) -> None:
    """Go on in a child; this process, which commands cannot signal, ends what it leaves behind."""
    call("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    child = os.fork()
    if not child:
        return
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGKILL))
    os.closerange(3, 1024)  # so that its end is seen by who asks
    with suppress(ChildProcessError):
        while os.wait()[0] != child:
            pass
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    mine = Path(f"/proc/self/task/{os.getpid()}/children")
    with suppress(OSError):
        while left := mine.read_text().split():
            for one in left:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(int(one), signal.SIGKILL)
            os.wait()
    for part in (f"{folder}/home", f"{folder}/tmp", folder):
        with suppress(OSError):
            gone(part)
    os._exit(0)


#: How a folder is opened: never by a link in its place.
FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)


def gone(path: str) -> None:
    """Remove a file, a link or a folder with all that is in it, if it is there."""
    folder, _, name = path.rpartition("/")
    if os.path.lexists(path):
        discard(name, folder)


def empty(folder: str) -> None:
    """Remove all that is in a folder, whatever its modes and however deep; no link is followed on the way.

    Whoever owned the folder may have put a link in its place: what a link leads to is never emptied.

    Raises:
        OSError: it is a link, or no folder.
    """
    top = os.open(folder, FOLDER)
    try:
        os.fchmod(top, 0o755)
        remove(os.listdir(top), top)  # noqa: PTH208  # an open folder has no path
    finally:
        os.close(top)


def discard(name: str, folder: str) -> None:
    """Remove a file or folder of a folder, with all that is in it.

    Raises:
        OSError: the folder is a link, or no folder.
    """
    top = os.open(folder, FOLDER)
    try:
        try:
            os.unlink(name, dir_fd=top)
            return
        # Of a folder Linux says EISDIR, and other systems EPERM.
        except (IsADirectoryError, PermissionError):
            place = _taken(name, top)
        try:
            # Within itself: others may be removing its neighbours, and would take the same names.
            remove(os.listdir(place), place)  # noqa: PTH208
        finally:
            os.close(place)
        os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)


def remove(names: list[str], top: int) -> None:
    """Remove files and folders of an open folder; folders within folders are moved up first.

    So neither the length of a path nor its depth has an end, and every name is looked up in an open folder.
    """
    left, number = list(names), 0
    while left:
        name = left.pop()
        try:
            os.unlink(name, dir_fd=top)
            continue
        except (IsADirectoryError, PermissionError):
            place = _taken(name, top)
        try:
            for one in os.listdir(place):  # noqa: PTH208
                try:
                    os.unlink(one, dir_fd=place)
                except (IsADirectoryError, PermissionError):
                    os.close(_taken(one, place))  # else it cannot be moved
                    while _there(f".{number}", top):
                        number += 1
                    os.rename(one, f".{number}", src_dir_fd=place, dst_dir_fd=top)
                    left.append(f".{number}")
        finally:
            os.close(place)
        os.rmdir(name, dir_fd=top)


def _taken(name: str, within: int) -> int:
    """A folder of an open folder, opened; it may be read, written and moved from then on."""
    try:
        place = os.open(name, FOLDER, dir_fd=within)
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=within)
        place = os.open(name, FOLDER, dir_fd=within)
    os.fchmod(place, 0o700)
    return place


def _there(name: str, within: int) -> bool:
    try:
        os.stat(name, dir_fd=within, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def landlocked(rights: dict[str, int], least: int = 6, newest: int = 99) -> None:
    """Leave this process and all that it starts these rights by path, and no TCP, and no signals to others.

    Raises:
        RefusedError: as :func:`ruleset`.
    """
    rules = ruleset(rights, least, newest)
    bound(rules)
    os.close(rules)


def ruleset(rights: dict[str, int], least: int = 6, newest: int = 99) -> int:
    """A descriptor of Landlock rules: these rights by path, and no TCP, and no signals to others.

    ``least``: a version that will do; before 6, signals, and before 4, TCP is for a filter to hold back.
    ``newest``: take the kernel's for no newer one.

    Raises:
        RefusedError: the kernel's Landlock is older, or refuses.
    """
    known = min(landlock.version(), newest)
    if known < least:
        raise RefusedError(f"Landlock version {known}; it takes {least}")
    libc = ctypes.CDLL(None, use_errno=True)
    handled = landlock.rules(known)
    (files,) = struct.unpack_from("=Q", handled)
    rules = int(libc.syscall(landlock.CREATE, handled, ctypes.c_size_t(len(handled)), 0))
    if rules < 0:
        raise RefusedError("the kernel refused the Landlock rules")
    for path, right in rights.items():
        with suppress(FileNotFoundError):
            fd = os.open(path, os.O_PATH)
            # Of a file the kernel takes no right that only folders have: to run, write and read it are left.
            kept = files & (right if Path(path).is_dir() else right & 7)
            # The kernel's struct is packed, so nothing lies between its two fields.
            rule = struct.pack("=Qi", kept, fd)
            if libc.syscall(LANDLOCK_ADD, rules, BENEATH, rule, 0):
                raise RefusedError(f"the kernel refused a Landlock rule for {path}")
            os.close(fd)
    return rules


def bound(rules: int) -> None:
    """Apply Landlock rules to this process and all that it starts, within those that it has.

    Raises:
        RefusedError: the kernel refuses.
    """
    call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    call("syscall", ctypes.c_long(landlock.RESTRICT), ctypes.c_int(rules), ctypes.c_int(0))


def limits(plan: dict[str, Any], processes: int) -> dict[str, int]:
    """Limit by name; the clock bounds processor time."""
    return {
        "RLIMIT_AS": plan["memory"], "RLIMIT_NPROC": processes, "RLIMIT_FSIZE": plan["disk"],
        "RLIMIT_NOFILE": 256, "RLIMIT_CORE": 0,
    }  # fmt: skip


def own(wanted: dict[str, int], user: int = USER) -> None:
    """What every way of confinement ends with; an administrator becomes a user who owns nothing else."""
    if os.geteuid() == 0:
        os.setgroups([])
        # The groups first: once the user is changed they cannot be any more.
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    if sys.platform == "linux":
        call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        call("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        # So that no command can trace this process, which tells how commands ended.
        call("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)
    for name, value in wanted.items():
        if hasattr(resource, name):
            with suppress(ValueError, OSError):
                resource.setrlimit(getattr(resource, name), (value, value))


def mine() -> int:
    """How many processes this user has, since their limit counts all of them."""
    count = 0
    user = USER if os.geteuid() == 0 else os.getuid()
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            count += path.stat().st_uid == user
    return count if Path("/proc/self").exists() else 1024


def show(path: str, folder: str) -> None:
    """The same path in the folder, read-only; nothing where there is none."""
    target = Path(folder + path)
    if not os.path.lexists(path) or os.path.lexists(target):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if Path(path).is_symlink():
        target.symlink_to(Path(path).readlink())
        return
    target.mkdir() if Path(path).is_dir() else target.touch()
    mount(path, str(target), "", MS_BIND | MS_REC)
    if path not in DEVICES:
        _attributes(str(target), ATTR_READ_ONLY | ATTR_NO_SUID, AT_RECURSIVE)


def _attributes(path: str, attributes: int, flags: int) -> None:
    data = struct.pack("=4Q", attributes, 0, 0, 0)
    number, place = ctypes.c_long(MOUNT_SETATTR), ctypes.c_int(AT_FDCWD)
    call("syscall", number, place, path.encode(), ctypes.c_uint(flags), data, ctypes.c_size_t(len(data)))


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """The system's mount, with no data where ``data`` is empty."""
    told = [source.encode(), target.encode(), kind.encode() or None]
    call("mount", *told, ctypes.c_ulong(flags), data.encode() or None)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: Any) -> None:
    """A function of the C library that tells failure by what is not 0.

    Raises:
        RefusedError: it failed.
    """
    libc = _libc()
    # These functions read whole registers; ctypes passes a plain int as 32 bits of one.
    plain = [ctypes.c_ulong(one) if isinstance(one, int) else one for one in arguments]
    if name == "prctl":
        plain[0] = ctypes.c_int(arguments[0])
    if getattr(libc, name)(*plain):
        raise RefusedError(f"{name}: {os.strerror(ctypes.get_errno())}")
