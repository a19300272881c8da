"""The process that all runs are forked from: it has the allowed modules loaded and runs no tool itself.

It reads one request per line from its control socket. ``run`` comes with two pipe ends and forks; ``end``
kills what is left of a run and tells how it ended.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from refork.sandbox.inside import child, landlock, limits, tool

PR_SET_CHILD_SUBREAPER = 36
NONE = ctypes.c_ulong(0)


def serve(control: int, preload: Sequence[str] = ()) -> None:
    """Answer requests until the other side closes; ``preload``: modules to load first."""
    if sys.platform == "linux":  # what a run leaves behind becomes our child, and so can be ended
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), NONE, NONE, NONE)
    time.localtime()  # reads the time zone while files can still be opened
    known = tool.modules()
    missing = _loaded(preload)
    base = limits.address_space()
    sock = socket.socket(fileno=control)
    pids: set[int] = set()
    while True:
        data, fds, _, _ = socket.recv_fds(sock, 1 << 16, 2)
        if not data:
            for pid in pids:
                _end(pid, set())
            return
        request = json.loads(data)
        if request["do"] == "run":
            pid = os.fork()
            if not pid:
                _start(fds, request["plan"], base, known)
            for fd in fds:
                os.close(fd)
            pids.add(pid)
            answer: dict[str, Any] = {"pid": pid}
        elif request["do"] == "end":
            pids.discard(request["pid"])
            answer = _end(request["pid"], pids)
        else:
            answer = {**probe(request["plan"], base), "missing": missing}
        sock.sendall(json.dumps(answer).encode() + b"\n")


def _loaded(names: Sequence[str]) -> list[str]:
    """Load modules; the names of those that could not be."""
    missing = []
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            missing.append(name)
    return missing


def _start(fds: list[int], plan: dict[str, Any], base: int, known: dict[str, Any]) -> None:
    try:
        child.detach(*fds)
        child.main(plan, base, known)
    finally:
        os._exit(child.UNRESTRICTED)


def _end(pid: int, others: set[int]) -> dict[str, Any]:
    """Kill a run's whole session and all that it left behind; how the run itself ended."""
    # Not reaped yet, so the number still means this process: setsid made it the number of its group too.
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)
    _, status, used = os.wait4(pid, 0)
    # An end to it: what forks faster than it is killed must not hold up all later runs.
    for _ in range(1000):
        left = [one for one in _children() if one not in others]
        if not left:
            break
        for one in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(one, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(one, 0)
    code = os.waitstatus_to_exitcode(status)
    return {"status": code, "cpu": used.ru_utime + used.ru_stime, "rss": used.ru_maxrss}


def _children() -> list[int]:
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    except OSError:
        return []


def probe(plan: dict[str, Any], base: int) -> dict[str, Any]:
    """What of the layers asked for does not hold: each is applied alone in a process of its own, and tried.

    ``failed``: layer -> why. ``unlimited``: names of the limits that this system does not take.
    """
    failed: dict[str, str] = {}
    unlimited = limits.untaken(limits.wanted(plan["cpu"], plan["memory"], base))
    for layer in ("rlimits", "landlock", "seccomp"):
        if not plan[layer]:
            continue
        alone = {**plan, "rlimits": False, "landlock": False, "seccomp": False, layer: True}
        reads, writes = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                os.dup2(writes, child.WRITES)
                told = child.restrict(alone, base).get(layer, "") or _tried(layer)
                os.write(child.WRITES, (told or "holds").encode())
            finally:
                os._exit(0)
        os.close(writes)
        ready, _, _ = select.select([reads], [], [], 10)
        told = os.read(reads, 4096).decode() if ready else "no answer"
        os.close(reads)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        if told != "holds":
            failed[layer] = told or "the process ended when it was applied"
    return {"failed": failed, "unlimited": unlimited, "landlock": landlock.version()}


def _tried(layer: str) -> str:
    """Try what the layer must stop; what got through, or nothing."""
    if layer == "rlimits":
        return ""
    try:
        os.close(os.open("/", os.O_RDONLY))
    except PermissionError:
        return ""
    return "it was accepted, and a file could still be opened"
