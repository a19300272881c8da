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
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput, CannotDo
from refork.sandbox.inside import landlock, seccomp
from refork_methods.kernel.bench.result import Limits
from refork_methods.kernel.problem import FLOATING, Argument, Problem, Role, value

PAGE, ALIGN = 4096, 64
#: The argument that an entry's result is kept in.
RESULT = "the result"
#: Most slots, since every array of each needs a mapping of its own.
SLOTS = 512
_NUMPY: dict[str, str] = {
    "float": "f4", "double": "f8", "char": "i1", "signed char": "i1", "unsigned char": "u1",
    "bool": "?", "_Bool": "?", "short": "i2", "unsigned short": "u2", "int": "i4", "unsigned": "u4",
    "unsigned int": "u4", "long": "i8", "unsigned long": "u8", "long long": "i8", "unsigned long long": "u8",
    "size_t": "u8", "ssize_t": "i8", "ptrdiff_t": "i8", "intptr_t": "i8", "uintptr_t": "u8",
}  # fmt: skip
PRECISE = {"float": "double", "double": "long double"}


def dtype_of(ctype: str) -> np.dtype[Any]:
    """The numpy type of a C type."""
    if ctype == "long double":
        return np.dtype(np.longdouble)
    if ctype.endswith("_t") and ctype not in _NUMPY:
        return np.dtype(ctype.removesuffix("_t"))
    return np.dtype(_NUMPY[ctype])


@final
@dataclass(frozen=True, slots=True)
class Region:
    """An array's place in a slot: first byte and length of its region, elements, type."""

    name: str
    role: Role
    start: int
    room: int
    count: int
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """Bytes of the array."""
        return self.count * self.dtype.itemsize


@final
@dataclass(frozen=True)
class Layout:
    """The memory of one problem's kernels; ``precise``: of the version in higher precision."""

    regions: tuple[Region, ...]
    scalars: tuple[Argument, ...]
    guards: tuple[int, ...]
    stride: int
    precise: bool

    @property
    def row(self) -> int:
        """Bytes of a slot's row of the table: offsets of arrays, then scalars."""
        return 8 * max(1, len(self.regions) + 2 * len(self.scalars))

    @property
    def slots(self) -> int:
        """Offset of the first slot."""
        return -(-self.row * SLOTS // PAGE) * PAGE

    @property
    def bytes(self) -> int:
        """All of the memory; pages that are not used take none."""
        return self.slots + SLOTS * self.stride

    @cached_property
    def touched(self) -> int:
        """Bytes of arrays in one slot."""
        return sum(one.size for one in self.regions)

    def whose(self, offset: int) -> str:
        """What lies at or beside an offset of the memory, in words."""
        inside = (offset - self.slots) % self.stride if offset >= self.slots else -1
        if not 0 <= offset < self.bytes or inside < 0:
            return "far from its arrays"
        for one in self.regions:  # of the guard between two arrays each has a half
            if inside < one.start:
                return f"before the start of {one.name}"
            if inside < one.start + one.room + PAGE // 2:
                return f"past the end of {one.name}"
        return f"past the end of {self.regions[-1].name}"


def layout_of(problem: Problem, *, precise: bool = False) -> Layout:
    """Regions for a problem's arrays, and one for the entry's result."""
    arrays = [one for one in problem.arguments if one.array]
    if problem.returns is not None:
        arrays.append(Argument(name=RESULT, ctype=problem.returns, length="1", role="out"))
    regions, guards, at = [], [], 0
    for one in arrays:
        ctype = PRECISE.get(one.ctype, one.ctype) if precise else one.ctype
        dtype, count = dtype_of(ctype), problem.length(one)
        guards.append(at)
        # A page more than it fills: an array can begin at many places, and end right before the next guard.
        room = (-(-count * dtype.itemsize // PAGE) + 1) * PAGE
        regions.append(Region(one.name, one.role, at + PAGE, room, count, dtype))
        at += PAGE + room
    guards.append(at)
    scalars = tuple(one for one in problem.arguments if not one.array)
    return Layout(tuple(regions), scalars, tuple(guards), at + PAGE, precise)


@final
@dataclass(frozen=True, slots=True)
class Placed:
    """Where arrays begin in their regions, and the regions' other bytes, by the array's name."""

    offsets: dict[str, int]
    canaries: dict[str, NDArray[np.uint8]]
    #: Arrays that are handed over as a part of another: its name, and how many bytes into it.
    within: dict[str, tuple[str, int]] = field(default_factory=dict)


def draw_offsets(layout: Layout, rng: np.random.Generator, at: str = "random") -> Placed:
    """Draw the offsets: ``low`` right behind the guard, ``high`` as near before the next one as can be."""
    offsets, canaries = {}, {}
    for one in layout.regions:
        most = (one.room - one.size) // ALIGN
        steps = {"low": 0, "high": most}.get(at)
        offsets[one.name] = ALIGN * (int(rng.integers(most + 1)) if steps is None else steps)
        canaries[one.name] = rng.integers(0, 256, one.room - one.size, dtype=np.uint8)
    return Placed(offsets, canaries)


Values: TypeAlias = NDArray[Any]
#: What an output holds before a call: NaN, or numbers that could be results. Integers: random bytes in both.
Poison: TypeAlias = Literal["nan", "number"]
#: The exponent of skewed indices (Zipf).
SKEW = 1.5


@final
@dataclass(frozen=True, slots=True)
class Batch:
    """Inputs of ``calls`` calls, by argument: arrays of ``calls elements``, and scalars of ``calls``."""

    calls: int
    arrays: dict[str, Values]
    scalars: dict[str, Values]
    poison: dict[str, Values]


def draw_batch(problem: Problem, calls: int, rng: np.random.Generator, poison: Poison = "nan") -> Batch:
    """Fresh inputs for each call; what outputs hold beforehand is drawn too."""
    arrays: dict[str, Values] = {}
    scalars: dict[str, Values] = {}
    poisons: dict[str, Values] = {}
    for one in problem.arguments:
        if one.role == "out":
            poisons[one.name] = _poison(one, problem.length(one), rng, poison)
        elif one.array:
            arrays[one.name] = _drawn(problem, one, (calls, problem.length(one)), rng)
        elif one.role == "size":
            scalars[one.name] = np.full(calls, problem.sizes[one.name], dtype_of(one.ctype))
        else:
            scalars[one.name] = _drawn(problem, one, (calls, 1), rng)[:, 0]
    return Batch(calls, arrays, scalars, poisons)


def _fits(one: Argument, dtype: np.dtype[Any], top: float) -> None:
    """Refuse a largest number (or constant) that an integer type does not hold."""
    if dtype.kind in "iu" and one.fill not in ("uniform", "positive"):
        known = np.iinfo(dtype)
        if not known.min <= top <= known.max:
            raise BadInput(
                f"{one.ctype} holds no {top:g}", where=f"fill of {one.name}", hint="a wider type, or fewer"
            )


def _drawn(problem: Problem, one: Argument, shape: tuple[int, int], rng: np.random.Generator) -> Values:
    return _filled(problem, one, shape, rng) if shape[1] else np.zeros(shape, dtype_of(one.ctype))


def _filled(problem: Problem, one: Argument, shape: tuple[int, int], rng: np.random.Generator) -> Values:
    dtype = dtype_of(one.ctype)
    kind, _, rest = one.fill.partition(":")
    known = value(rest, problem.sizes, f"fill of {one.name}") if rest else 0.0
    tops = {"const": known, "offsets": max(known, 0), "permutation": shape[1] - 1}
    _fits(one, dtype, tops.get(kind, max(known - 1, 0)))
    if kind == "const":
        return np.full(shape, known, dtype)
    if kind == "permutation":
        return rng.permuted(np.broadcast_to(np.arange(shape[1], dtype=dtype), shape), axis=1)
    if kind in ("index", "sorted-index", "skewed-index", "offsets"):
        # An index needs something to be below; offsets may all be 0.
        if known < (kind != "offsets"):
            raise BadInput(f"there is no index below {known:g}", where=f"fill of {one.name}")
        if kind == "skewed-index":
            share = np.arange(1, int(known) + 1) ** -SKEW
            # Without the last edge, which rounding can leave below 1: a draw beyond it would be no index.
            return np.searchsorted(np.cumsum(share)[:-1] / share.sum(), rng.random(shape)).astype(dtype)
        drawn = rng.integers(0, int(known) + (kind == "offsets"), shape).astype(dtype)
        if kind != "index":
            drawn.sort(axis=1)
        if kind == "offsets":
            drawn[:, 0], drawn[:, -1] = 0, int(known)
        return drawn
    if one.ctype in FLOATING:
        numbers = rng.random(shape, dtype=np.float32 if dtype.itemsize == 4 else np.float64)
        return (numbers * 0.9 + 0.1 if kind == "positive" else numbers * 2 - 1).astype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    low = 1 if kind == "positive" else 0 if dtype.kind == "u" else -100
    return rng.integers(low, 101, shape).astype(dtype)


def _poison(one: Argument, count: int, rng: np.random.Generator, kind: Poison) -> Values:
    dtype = dtype_of(one.ctype)
    if not count:
        return np.zeros((1, 0), dtype)
    if dtype.kind != "f":
        if dtype.kind == "b":
            return rng.integers(0, 2, (1, count)).astype(dtype)
        return np.frombuffer(rng.bytes(count * dtype.itemsize), dtype).reshape(1, count)
    if kind == "nan":
        return np.full((1, count), np.nan, dtype)
    return (rng.random((1, count)) * 2 - 1).astype(dtype)


@final
class Memory:
    """The shared memory of one process, as our side sees it."""

    def __init__(self, layout: Layout, data: NDArray[np.uint8]) -> None:
        self.layout, self._data = layout, data
        self._slots = data[layout.slots :].reshape(-1, layout.stride)

    def write(self, batch: Batch, placed: Placed, again: int = 1) -> None:
        """Put a batch's inputs in, poison its outputs, and fill the rest of their regions.

        ``again``: how often each of its calls is to be made, with the same arrays.
        """
        layout, calls = self.layout, batch.calls
        table = self._data[: layout.row * calls * again].reshape(calls * again, layout.row)
        starts = layout.slots + np.arange(calls, dtype=np.uint64).repeat(again) * np.uint64(layout.stride)
        places = {one.name: one.start + placed.offsets[one.name] for one in layout.regions}
        for number, one in enumerate(layout.regions):
            offset = placed.offsets[one.name]
            rest, room = placed.canaries[one.name], self._slots[:calls, one.start : one.start + one.room]
            room[:, :offset] = rest[:offset]
            room[:, offset + one.size :] = rest[offset:]
            room[:, offset : offset + one.size] = self._bytes(self.given(batch, one))
            whose, into = placed.within.get(one.name, (one.name, 0))
            at = starts + np.uint64(places[whose] + into)
            table[:, 8 * number : 8 * number + 8] = at.view(np.uint8).reshape(calls * again, 8)
        first = 8 * len(layout.regions)
        for number, scalar in enumerate(layout.scalars):
            ctype = PRECISE.get(scalar.ctype, scalar.ctype) if layout.precise else scalar.ctype
            told = batch.scalars[scalar.name].astype(dtype_of(ctype)).repeat(again)
            # A long double takes 16 bytes, so every scalar has as many.
            begins = first + 16 * number
            table[:, begins : begins + told.itemsize] = told.reshape(calls * again, 1).view(np.uint8)

    def given(self, batch: Batch, one: Region) -> Values:
        """What a region's array holds before the calls; one row where all calls' are the same."""
        if one.name in batch.arrays:
            return batch.arrays[one.name].astype(one.dtype, copy=False)
        known = batch.poison.get(one.name)
        if known is None:  # the entry's result
            known = np.full((1, one.count), np.nan if one.dtype.kind == "f" else 85)
        return known.astype(one.dtype, copy=False)

    def read(self, calls: int, placed: Placed) -> dict[str, Values]:
        """Copies of all arrays, each ``calls elements``."""
        found = {}
        for one in self.layout.regions:
            start = one.start + placed.offsets[one.name]
            raw = self._slots[:calls, start : start + one.size].copy()  # which nobody changes later
            found[one.name] = raw.view(one.dtype)
        return found

    def overwritten(self, calls: int, placed: Placed) -> str | None:
        """The array beside which bytes were changed, in words; None where none were."""
        for one in self.layout.regions:
            offset, rest = placed.offsets[one.name], placed.canaries[one.name]
            room = self._slots[:calls, one.start : one.start + one.room]
            if not (room[:, :offset] == rest[:offset]).all():
                return f"before the start of {one.name}"
            if not (room[:, offset + one.size :] == rest[offset:]).all():
                return f"past the end of {one.name}"
        return None

    @staticmethod
    def _bytes(values: Values) -> NDArray[np.uint8]:
        return np.ascontiguousarray(values).view(np.uint8)


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
        self.program = program
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
        # Slots that no call had so far are opened first, in time that nobody counts.
        if calls > self._open:
            self._continue()
            self._ask(_OPEN, self._open, calls - self._open, START)
            self._stop()
            # Opening took processor time of its own: there is no stop to compare the next start with.
            self._open, self._idle = calls, None
        if select.select([self._from], [], [], 0)[0]:
            self._stray()
        before = self._cpu()
        outside = ""
        # It was stopped since: processor time in between is work that it was not asked for.
        if self._idle is not None and before - self._idle > SLACK * 1e9:
            outside = "it worked while it was not called"
        allowed = self.limits.seconds * max(calls, 1)
        started = time.perf_counter_ns()
        self._continue()
        self._ask(_RUN, 0, calls, allowed)
        wall = time.perf_counter_ns() - started
        # What it still does after its answer falls into the time until this second one.
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
        # WNOWAIT: the end of the process stays to be seen by Popen, which must reap it itself.
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
            # With our copies closed, the end of the process is the end of the pipe for whoever reads it.
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
            # The number of the clock of another process, as clock_getcpuclockid makes it.
            return time.clock_gettime_ns((~self._process.pid << 3) | 2)
        except OSError:
            raise self._ended() from None

    def _ask(self, kind: int, first: int, count: int, seconds: float) -> None:
        # Drawn anew for each question: an answer that was written ahead of it cannot pass for the driver's.
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
            # Seconds of the processor count; the wall clock ends only what never gets any.
            left = seconds - (self._cpu() - used) * 1e-9
            if left <= 0 or time.monotonic() > until:
                self._process.kill()
                raise FailedError(f"it was not done after {seconds:g} s")
        said = os.read(self._from, _MESSAGE.size)
        if not said:
            raise self._ended()
        # A pipe takes so short a message whole or not at all: a part of one is none of the driver's.
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
