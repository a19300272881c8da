"""A kernel's process, from outside: started, asked to call, and timed by clocks that it cannot reach."""

from __future__ import annotations

import mmap
import os
import secrets
import select
import signal
import struct
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np

from refork.errors import CannotDo
from refork.sandbox.inside import landlock, seccomp
from refork_methods.kernel.bench.draw import Memory
from refork_methods.kernel.bench.layout import SLOTS, Layout
from refork_methods.kernel.bench.result import Limits

_RUN, _PING, _OPEN = 1, 2, 3
_READY, _DONE, _SIGNAL = 16, 17, 18
_LAYERS = {"process": 1, "landlock": 2, "seccomp": 4}
_MESSAGE = struct.Struct("<4Q")
#: Seconds in which a new process must have confined itself.
START = 20.0
#: Work outside of the window: so much of it, in seconds and as a share, is the driver's own.
SLACK, SHARE = 3e-4, 0.1
#: So many samples in a row with more than that are a kernel that works outside. One alone is the machine: an
#: interrupt, or time that the host of a virtual machine took, is billed to whoever was running.
STRIKES = 3
#: A limit counts seconds of the processor; on the wall it may be so many times as long, for a busy machine.
BUSY = 20.0


@final
class FailedError(Exception):
    """The kernel ended its process, or took too long; ``cheat`` where it went around the bench."""

    def __init__(self, why: str, cheat: str = "") -> None:
        super().__init__(why)
        self.cheat = cheat


@final
@dataclass(frozen=True, slots=True)
class Took:
    """One sample: seconds of the processor and of the clock on the wall, as measured outside."""

    cpu: float
    wall: float


@final
class Shared:
    """Memory that several kernels' processes have in turn, of which only one ever runs.

    A time depends on which pages of the machine the arrays got, by 13 % in a matrix product of 512: so those
    that are compared have the same ones. A context.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.fd = os.memfd_create("arrays", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, layout.bytes)
        self.memory = Memory(layout, np.frombuffer(mmap.mmap(self.fd, layout.bytes), np.uint8))

    def close(self) -> None:
        """Give the memory back once no process has it."""
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1


@final
class Host:
    """A process with a kernel in it, which is stopped except while it is called. A context.

    It has no file, no network, no other process or thread in reach: resource limits, another user where we
    are an administrator, Landlock where the kernel has it, and a seccomp filter that leaves it its memory,
    two pipe ends and the way out, the same as for generated tools.
    """

    def __init__(self, program: Path, shared: Shared, limits: Limits) -> None:
        self.layout, self.limits, self.memory = shared.layout, limits, shared.memory
        machine = seccomp.here()
        if machine is None:
            raise CannotDo(
                "kernels run under a seccomp filter, which this system lacks",
                where="kernel bench",
                hint="Linux on x86_64 or aarch64",
            )
        self._idle: int | None = None
        self._strikes = 0
        self._open = 0
        self._base = 0
        self.layers: tuple[str, ...] = ()
        self._process, self._to, self._from = self._started(program, shared.fd)
        try:
            self._confined(machine)
            self._stop()
        except FailedError as failed:
            self.close()
            raise CannotDo(f"a kernel's process did not start: {failed}", where="kernel bench") from None
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for fd in (self._to, self._from):
            with suppress(OSError):
                os.close(fd)
        self._to = self._from = -1

    def run(self, calls: int) -> Took:
        """Have the kernel called on the first ``calls`` slots; what that took.

        Raises:
            FailedError: it did not come back as it should.
        """
        if calls > self._open:
            self._continue()
            self._ask(_OPEN, self._open, calls - self._open, START)
            self._stop()
            self._open, self._idle = calls, None
        if select.select([self._from], [], [], 0)[0]:
            self._stray()
        before = self._cpu()
        outside = ""
        if self._idle is not None and before - self._idle > SLACK * 1e9:
            outside = "it worked while it was not called"
        allowed = self.limits.seconds * max(calls, 1)
        started = time.perf_counter_ns()
        self._continue()
        self._ask(_RUN, 0, calls, allowed)
        wall = time.perf_counter_ns() - started
        self._ask(_PING, 0, 0, allowed)
        self._stop()
        self._idle = self._cpu()
        cpu = self._idle - before
        if cpu > wall * (1 + SHARE) + SLACK * 1e9:
            outside = f"it worked {cpu * 1e-9:.4g} s, and said to be done after {wall * 1e-9:.4g} s"
        self._strikes = self._strikes + 1 if outside else 0
        if self._strikes >= STRIKES:
            raise FailedError(outside, "works-outside")
        return Took(cpu * 1e-9, wall * 1e-9)

    def _continue(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def _stop(self) -> None:
        """Hold the process until it is called again, so that it sees nothing of others' results."""
        os.kill(self._process.pid, signal.SIGSTOP)
        told = os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        if told is None or told.si_code != os.CLD_STOPPED:
            raise self._ended()

    def _started(self, program: Path, arrays: int) -> tuple[subprocess.Popen[bytes], int, int]:
        child_reads, to = os.pipe()
        back, child_writes = os.pipe()
        try:
            given = (child_reads, child_writes, arrays)
            process = subprocess.Popen(
                [str(program), *map(str, given)], env={}, cwd="/", start_new_session=True, pass_fds=given,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        except BaseException:
            os.close(to)
            os.close(back)
            raise
        finally:
            for fd in (child_reads, child_writes):
                os.close(fd)
        return process, to, back

    def _confined(self, machine: seccomp.Machine) -> None:
        layout, limits = self.layout, self.limits
        rules = landlock.rules(landlock.version()) if landlock.version() else b""
        steps = seccomp.program(machine, 3, 4)
        code = b"".join(struct.pack("<HBBI", *step) for step in steps)
        seconds = 3600
        plan = struct.pack(
            "<11Q", layout.bytes, limits.memory, seconds, 0, layout.row, layout.slots, layout.stride,
            len(layout.guards), len(rules), len(code), 7,
        )  # fmt: skip
        guards = struct.pack(f"<{len(layout.guards)}Q", *layout.guards)
        os.write(self._to, plan + guards + rules + code)
        kind, held, self._base, _ = self._answer(START)
        if kind != _READY:
            raise CannotDo("a kernel's process did not start", where="kernel bench")
        self.layers = tuple(name for name, bit in _LAYERS.items() if held & bit)
        if "seccomp" not in self.layers:
            raise CannotDo("the system refused the seccomp filter", where="kernel bench")

    def _cpu(self) -> int:
        """Nanoseconds of processor time that the process has had, from the kernel's own accounts."""
        try:
            return time.clock_gettime_ns((~self._process.pid << 3) | 2)
        except OSError:
            raise self._ended() from None

    def _ask(self, kind: int, first: int, count: int, seconds: float) -> None:
        number = secrets.randbits(63)
        try:
            os.write(self._to, _MESSAGE.pack(kind, number, first, count))
        except BrokenPipeError:
            raise self._ended() from None
        answer = self._answer(seconds)
        if answer[0] == _SIGNAL:
            raise self._struck(answer[1], answer[2])
        if answer[:2] != (_DONE, number):
            raise FailedError("it answered in the place of the bench's driver", "forged-answer")

    def _answer(self, seconds: float) -> tuple[int, int, int, int]:
        until, used, left = time.monotonic() + BUSY * seconds, self._cpu(), seconds
        while not select.select([self._from], [], [], max(left, 0.02))[0]:
            left = seconds - (self._cpu() - used) * 1e-9
            if left <= 0 or time.monotonic() > until:
                self._process.kill()
                raise FailedError(f"it was not done after {seconds:g} s")
        said = os.read(self._from, _MESSAGE.size)
        if not said:
            raise self._ended()
        if len(said) != _MESSAGE.size:
            raise FailedError("it answered in the place of the bench's driver", "forged-answer")
        kind, number, first, count = _MESSAGE.unpack(said)
        return kind, number, first, count

    def _stray(self) -> None:
        said = os.read(self._from, _MESSAGE.size)
        if not said:
            raise self._ended()
        raise FailedError("it answered without being asked", "forged-answer")

    def _ended(self) -> FailedError:
        """Why there is no process to talk to any more."""
        try:
            status = self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return FailedError("it closed its pipes", "forged-answer")
        if status < 0:
            return FailedError(f"its process was ended by {_signal_name(-status)}")
        return FailedError(f"it ended its process with status {status}")

    def _struck(self, number: int, address: int) -> FailedError:
        name = _signal_name(number)
        offset = address - self._base
        if number not in (signal.SIGSEGV, signal.SIGBUS):
            return FailedError(f"it was stopped by {name}")
        if 0 <= offset < self.layout.bytes:
            return FailedError(f"it reached {self.layout.whose(offset)} ({name})", "out-of-bounds")
        if address < 1 << 16:
            return FailedError(f"it followed a null pointer ({name}); memory may have run out")
        return FailedError(f"it reached for memory that is not there ({name})")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


#: The most calls of one sample.
MOST = SLOTS
