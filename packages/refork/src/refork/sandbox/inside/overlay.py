"""One command in a folder that it sees copy-on-write; what else it writes is thrown away, or refused.

The command has namespaces of its own: of mounts, processes and, unless it may have one, the network. All file
systems are read-only but for overlays, whose upper folders lie where the plan says. A relay outside passes
connections to one port of this machine's loopback on. It holds off accidents; it is no jail for an enemy.
"""

from __future__ import annotations

import array
import fcntl
import gc
import json
import os
import signal
import socket
import struct
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from refork.sandbox.inside import jail, wire

#: Exit status where the namespaces could not be made, as of ``env`` and ``timeout``.
REFUSED = 125
#: Status of a command that took too long, and of one whose guard was told to end.
TIMED_OUT, TOLD_TO_END = 124, 128 + signal.SIGTERM
#: Sockets of services that would act outside for the command: they are hidden where it has no network.
SERVICES = (
    "/run/docker.sock", "/run/containerd", "/run/podman", "/run/dbus", "/run/user", "/run/systemd/private",
    "/run/snapd.socket", "/run/libvirt", "/run/lxd.socket",
)  # fmt: skip
#: Variables that lead to more of them.
LEADING = ("SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST", "GPG_AGENT_INFO")
#: An administrator's rights by which a command could undo this: modules, raw devices, mounts, restart, nodes.
RIGHTS = (16, 17, 21, 22, 27)
PR_CAPBSET_DROP, SIOCSIFFLAGS, IFF_UP = 24, 0x8914, 1
#: Options of every overlay. Volatile: nothing of it outlives us, so that nothing need reach the disk.
OPTIONS = "userxattr,index=off,volatile"


def serve(control: int, arguments: list[str]) -> None:
    """With a plan: run its command, and end as it does. Else run one for each connection that comes.

    Then the argument is a folder, which is removed once no more can come.
    """
    if arguments[0].startswith("{"):
        plan = json.loads(arguments[0])
        # Whoever ran this is gone: so is the command.
        jail.call("prctl", jail.PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        # Ctrl-C is for the command, in whose group this is.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        status = _held(plan, arguments[1:]) if os.getppid() == plan["owner"] else REFUSED
        # Told to end, its owner may have been told so, too, and remove nothing.
        if status == TOLD_TO_END or os.getppid() != plan["owner"]:
            with suppress(OSError):
                jail.gone(plan["scratch"])
        os._exit(status)
    sock = socket.socket(fileno=control)
    sock.set_inheritable(False)
    # Shared with what is forked: a collection would touch, and so copy, every page.
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    while True:
        asked, fds, _, _ = socket.recv_fds(sock, 1, 2)
        if not asked:
            _emptied(arguments[0])
        if not os.fork():
            sock.close()
            _answer(fds)
        for fd in fds:
            os.close(fd)


def _emptied(folder: str) -> NoReturn:
    """End what still runs, remove a folder, and end: whoever asked for it is gone, or closed it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    with suppress(ChildProcessError):
        os.wait()  # of children that nobody is told of, the last
    with suppress(OSError):
        jail.gone(folder)
    os._exit(0)


def _answer(fds: list[int]) -> NoReturn:
    """Run the command that a connection asks for; what it prints goes to the other descriptor."""
    connection, output = fds
    os.set_inheritable(connection, False)
    jail.call("prctl", jail.PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for one in (1, 2):
        os.dup2(output, one)
    os.close(output)
    plan = wire.read(connection)
    os.environ.clear()
    os.environ.update(plan["environment"])
    status = _held(plan, plan["command"])
    for one in (1, 2):
        os.close(one)
    wire.write(connection, wire.pack({"status": status}))
    os._exit(0)


def _held(plan: dict[str, Any], command: list[str]) -> int:
    """Exit status of a command in namespaces of its own; with no command only they are made."""
    relay, theirs = 0, None
    if plan.get("port"):
        ours, theirs = socket.socketpair()
        relay = os.fork()
        if not relay:
            theirs.close()
            _relay(ours, int(plan["port"]))
        ours.close()
    try:
        _apart(jail.NEW_PID | jail.NEW_IPC | (0 if plan["network"] else jail.NEW_NET))
    except jail.RefusedError as error:
        return _refused(f"namespaces: {error}", relay)
    first = os.fork()
    if not first:
        _first(plan, command, theirs)
    taken = 0

    def end(number: int, _: Any) -> None:
        nonlocal taken
        taken = TIMED_OUT if number == signal.SIGALRM else TOLD_TO_END
        with suppress(ProcessLookupError):
            os.kill(first, signal.SIGKILL)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGALRM, end)
    if plan.get("limit"):
        signal.setitimer(signal.ITIMER_REAL, plan["limit"])
    _, status = os.waitpid(first, 0)
    if relay:
        os.kill(relay, signal.SIGKILL)
    if taken:
        return taken
    return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def _apart(spaces: int) -> None:
    """New namespaces; with one of users where we are no administrator, in which we stay who we are."""
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        # An administrator of a container may be none of mounts: then as everybody else.
        with suppress(jail.RefusedError):
            jail.call("unshare", spaces)
            return
    jail.call("unshare", spaces | jail.NEW_USER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _first(plan: dict[str, Any], command: list[str], relay: socket.socket | None) -> NoReturn:
    """The first process of the new namespaces: makes the views and starts the command; all end with it."""
    jail.call("prctl", jail.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        # Its own alone: who waits for it removes the layers afterwards, and must still be able to.
        jail.call("unshare", jail.NEW_NS)
        left = _mounted(plan)
        if not plan["network"]:
            _loopback(plan, relay)
        os.chdir(plan["cwd"])
    except (jail.RefusedError, OSError) as error:
        os._exit(_refused(str(error), 0))
    if not command:
        print(json.dumps(left), flush=True)
        os._exit(0)
    child = _started(command, plan["network"])
    while True:
        # The first process has every orphan for a child.
        ended, status = os.wait()
        if ended == child:
            os._exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))


def _started(command: list[str], network: bool) -> int:
    """The command's process; what it may not do, this one may not from here on."""
    with suppress(jail.RefusedError):
        for right in RIGHTS:
            jail.call("prctl", PR_CAPBSET_DROP, right, 0, 0, 0)
    jail.call("prctl", jail.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if not network:
        for name in LEADING:
            os.environ.pop(name, None)
    usual = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD, signal.SIGPIPE)
    try:
        return os.posix_spawnp(command[0], command, os.environ, setsigdef=usual)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr, flush=True)
    os._exit(127)


def _mounted(plan: dict[str, Any]) -> list[str]:
    """Make the views; those that may be left out and could not be made."""
    jail.mount("none", "/", "", jail.MS_REC | jail.MS_PRIVATE)
    # Opened before anything hides them; the names may hold what separates options.
    flags = os.O_PATH | os.O_DIRECTORY
    lowers = [[os.open(lower, flags) for lower in view["lowers"]] for view in plan["views"]]
    made, left = [], []
    for view, fds in zip(plan["views"], lowers, strict=True):
        layers = ":".join(f"/proc/self/fd/{fd}" for fd in fds)
        told = f"lowerdir={layers},upperdir={view['upper']},workdir={view['work']},{OPTIONS}"
        try:
            jail.mount("overlay", view["target"], "overlay", 0, told)
        except jail.RefusedError as error:
            if not view.get("optional"):
                raise jail.RefusedError(f"an overlay on {view['target']}: {error}") from error
            left.append(view["target"])
            continue
        made.append(view["target"])
    for one in (fd for fds in lowers for fd in fds):
        os.close(one)
    _attributes("/", jail.ATTR_READ_ONLY, 0, jail.AT_RECURSIVE)
    for target in made:
        _attributes(target, 0, jail.ATTR_READ_ONLY, 0)
    shared = Path("/dev/shm")  # ours alone, as a view of it would be
    if shared.is_dir() and not any(Path(one).is_relative_to(shared) for one in made):
        jail.mount("tmpfs", "/dev/shm", "tmpfs", jail.MS_NOSUID | jail.MS_NODEV, "mode=1777")
    jail.mount("proc", "/proc", "proc", jail.MS_NOSUID | jail.MS_NODEV | jail.MS_NOEXEC)
    if not plan["network"]:
        for service in filter(os.path.exists, SERVICES):
            if Path(service).is_dir():
                jail.mount("tmpfs", service, "tmpfs", jail.MS_NOSUID | jail.MS_NODEV, "size=4k,mode=755")
            else:
                jail.mount("/dev/null", service, "", jail.MS_BIND)
    return left


def _attributes(path: str, wanted: int, cleared: int, flags: int) -> None:
    data = struct.pack("=4Q", wanted, cleared, 0, 0)
    try:
        jail.call("syscall", jail.MOUNT_SETATTR, jail.AT_FDCWD, path.encode(), flags, data, len(data))
    except jail.RefusedError as error:
        raise jail.RefusedError(f"file systems cannot be made read-only (Linux 5.12): {error}") from error


def _loopback(plan: dict[str, Any], relay: socket.socket | None) -> None:
    """Bring up the loopback of our own network, with the one port that leads out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = array.array("B", struct.pack("16sH22x", b"lo", IFF_UP))
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, request)
    if relay is not None:
        with relay, socket.socket() as door:
            door.bind(("127.0.0.1", int(plan["port"])))
            door.listen(128)
            socket.send_fds(relay, [b"x"], [door.fileno()])


def _relay(control: socket.socket, port: int) -> NoReturn:
    """Pass on what comes through a door in another network; we are in that of this machine."""
    jail.call("prctl", jail.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # Else whoever reads the command's output would wait for us.
    quiet = os.open(os.devnull, os.O_RDWR)
    for one in (0, 1, 2):
        os.dup2(quiet, one)
    _, fds, _, _ = socket.recv_fds(control, 1, 1)
    if not fds:
        os._exit(0)
    door = socket.socket(fileno=fds[0])
    while True:
        inner, _ = door.accept()
        try:
            outer = socket.create_connection(("127.0.0.1", port))
        except OSError:
            inner.close()
            continue
        for pair in ((inner, outer), (outer, inner)):
            threading.Thread(target=_pumped, args=pair, daemon=True).start()


def _pumped(reads: socket.socket, writes: socket.socket) -> None:
    with suppress(OSError):
        while part := reads.recv(1 << 16):
            writes.sendall(part)
    with suppress(OSError):
        writes.shutdown(socket.SHUT_WR)


def _refused(why: str, relay: int) -> int:
    """Say so, where the reader of the output finds it."""
    print(f"refork: not contained: {why}", file=sys.stderr, flush=True)
    if relay:
        os.kill(relay, signal.SIGKILL)
    return REFUSED
