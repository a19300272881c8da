"""One run: restrict this process for good, then read the job, run it, answer, and end."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import types
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from refork.sandbox.inside import landlock, limits, seccomp, tool, wire

READS, WRITES = 3, 4
PR_SET_PDEATHSIG = 1
NONE = ctypes.c_ulong(0)
#: Exit status of a process that could not restrict itself; it has run nothing.
UNRESTRICTED = 77


def detach(reads: int, writes: int) -> None:
    """A session of our own, and no descriptor but the null device and the two pipe ends."""
    os.setsid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), NONE, NONE, NONE)
    high = os.dup(reads), os.dup(writes)
    # Both above the two numbers first: else one could be put where the other still lies.
    while min(high) <= WRITES:
        high = os.dup(high[0]), os.dup(high[1])
    os.dup2(high[0], READS)
    os.dup2(high[1], WRITES)
    for fd in [int(path.name) for path in Path("/dev/fd").iterdir()]:
        if fd > WRITES:
            with suppress(OSError):  # the one by which the list was read is closed already
                os.close(fd)


def restrict(plan: dict[str, Any], base: int) -> dict[str, str]:
    """Apply the layers that ``plan`` asks for; layer -> why it is not there, for each that failed."""
    failed = {}
    if plan["landlock"]:
        try:
            landlock.restrict(landlock.rules(landlock.version()))
        except OSError as error:
            failed["landlock"] = str(error)
    if plan["rlimits"]:
        refused = limits.apply(limits.wanted(plan["cpu"], plan["memory"], base))
        vital = [name for name in ("RLIMIT_CPU", "RLIMIT_CORE", "RLIMIT_FSIZE") if name in refused]
        if vital:
            failed["rlimits"] = f"the system did not take {', '.join(vital)}"
    # The filter last: it leaves none of the calls by which the other layers are applied.
    machine = seccomp.here()
    if plan["seccomp"] and machine is None:
        failed["seccomp"] = "no filter for this system and processor"
    elif plan["seccomp"] and machine is not None:
        try:
            seccomp.install(seccomp.packed(seccomp.program(machine, READS, WRITES)))
        except OSError as error:
            failed["seccomp"] = str(error)
    return failed


def ask(name: str, arguments: dict[str, Any]) -> Any:
    """Ask the parent to call a function, and wait for its answer."""
    wire.write(WRITES, wire.pack({"call": name, "arguments": arguments}))
    answer = wire.read(READS)
    if "error" in answer:
        raise tool.CallFailedError(answer["error"])
    return answer["ok"]


def main(plan: dict[str, Any], base: int, known: dict[str, types.ModuleType]) -> NoReturn:
    """The whole life of a run's process; it never returns."""
    try:
        # The job's own garbage only: what the interpreter has is shared with its parent.
        gc.freeze()
        if restrict(plan, base):
            os._exit(UNRESTRICTED)
        wire.write(WRITES, wire.pack({"ready": True}))
        space: dict[str, Any] = {"__name__": "tool"}
        if plan["builtins"]:
            space["__builtins__"] = tool.restricted(known)
        answer = tool.run(wire.read(READS), space, ask)
        try:
            frame = wire.pack(answer)
        except MemoryError:
            frame = wire.pack({"error": "it asked for more memory than it may have", "kind": "memory"})
        except (TypeError, ValueError, RecursionError) as error:
            frame = wire.pack({"error": f"the result is not JSON: {error}"[: tool.LONGEST], "kind": "error"})
        wire.write(WRITES, frame)
    finally:
        os._exit(0)
