"""A kernel under cachegrind: which caches are simulated, its accesses, misses and mispredicted branches.

The out-file is read and not cg_annotate's tables: its format has not changed in twenty years.
"""

from __future__ import annotations

import math
import re
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, final

from refork.errors import BadInput
from refork_methods.kernel.cpu import metrics as m
from refork_methods.kernel.cpu.metrics import Metric
from refork_methods.kernel.signals import Signals

if TYPE_CHECKING:
    from refork_methods.kernel.bench import Driver

#: A guest that is told of the host's whole last-level cache has this much of it for each of its processors.
SHARE = 2 << 20
#: With fewer misses than this share of the accesses, conflicts are not looked for (see the tool).
LEAST_MISSES = 0.01
#: In a quick diagnosis they are looked for where a tenth of the accesses miss, and the last level has what
#: they look for: a stream from memory has no conflicts worth a second simulation.
QUICK_MISSES, IN_LAST = 0.10, 4.0
#: How much longer a run may take by the clock on the wall than by the processor's.
BUSY = 4.0
_SYSTEM = Path("/sys/devices/system/cpu/cpu0/cache")


@final
@dataclass(frozen=True, slots=True)
class Cache:
    """Bytes, ways, and bytes of a line."""

    size: int
    ways: int
    line: int

    @property
    def whole(self) -> Cache:
        """The same bytes in one set."""
        return replace(self, ways=self.size // self.line)

    @property
    def simulable(self) -> Cache:
        """The largest of the same ways and line whose number of sets is a power of two."""
        ways = min(self.ways, self.size // self.line)
        sets = 1 << ((self.size // (self.line * ways)).bit_length() - 1)
        return Cache(sets * self.line * ways, ways, self.line)

    def __str__(self) -> str:
        size = f"{self.size >> 20} MiB" if self.size >= 1 << 20 else f"{self.size / 1024:g} KiB"
        return f"{size}, {self.ways} ways"


#: Where the system tells nothing: a first and a last level as most processors of the last ten years have.
USUAL = Cache(32 << 10, 8, 64), Cache(8 << 20, 16, 64)


@final
@dataclass(frozen=True, slots=True)
class Caches:
    """First-level data cache and last level, and what was changed of what the system reports."""

    first: Cache
    last: Cache
    notes: tuple[str, ...] = ()


def machine_caches(folder: Path = _SYSTEM) -> dict[int, Cache]:
    """Data and unified caches by level; what a virtual machine lists and does not describe is left out."""
    found: dict[int, Cache] = {}
    names = ("level", "type", "size", "ways_of_associativity", "coherency_line_size")
    for index in sorted(folder.glob("index*")):
        try:
            level, kind, told, ways, line = ((index / name).read_text().strip() for name in names)
            size = re.fullmatch(r"(\d+)([KM]?)", told)
            if kind != "Instruction" and size is not None and int(ways) > 0 and int(line) > 0:
                shift = {"": 0, "K": 10, "M": 20}[size[2]]
                found[int(level)] = Cache(int(size[1]) << shift, int(ways), int(line))
        except (OSError, ValueError):
            continue
    return found


def caches(folder: Path = _SYSTEM, *, processors: int = 1) -> Caches:
    """The machine's caches, in a form that can be simulated.

    A last level of more than 2 MiB for each of the ``processors`` is the host's, of which a virtual machine
    has a share: it is simulated with that share, at least the second level's size.
    """
    known = machine_caches(folder)
    notes: list[str] = []
    if 1 in known:
        first, last = known[1], known[max(known)]
    else:
        first, last = USUAL
        notes.append(f"the system reports no caches: {first} and {last} are simulated")
    share = max(SHARE * processors, known[2].size if 2 in known else 0)
    if last.size > 2 * share:
        notes.append(
            f"last-level cache: {last.size >> 20} MiB are reported, which is the host's;"
            f" {share >> 20} MiB are simulated"
        )
        last = replace(last, size=share)
    return Caches(first.simulable, last.simulable, tuple(notes))


@final
@dataclass(frozen=True, slots=True)
class Simulated:
    """Signals of cachegrind, or absence with its reason, and notes on how it ran."""

    signals: Signals
    notes: tuple[str, ...] = ()


def simulate(driver: Driver, shape: Caches, *, seconds: float = 20.0, quick: bool = False) -> Simulated:
    """One call of the kernel under cachegrind; a second one without sets where conflicts may be.

    Raises:
        BadInput: the kernel is not in what was counted.
    """
    text, why = _run(driver, shape.first, shape.last, seconds, branches=True)
    if text is None:
        return Simulated(Signals(absent={"cachegrind": why}))
    own = _file_of(text, driver.symbol)
    values, lines = parse(text, driver.symbol, file=own)
    notes = [
        *shape.notes, f"simulated: first level {shape.first}; last level {shape.last}; one call, caches cold"
    ]  # fmt: skip
    misses = values[m.D1_READ_MISSES.name] + values[m.D1_WRITE_MISSES.name]
    beyond = values[m.LL_READ_MISSES.name] + values[m.LL_WRITE_MISSES.name]
    share = misses / max(1.0, values[m.READS.name] + values[m.WRITES.name])
    if share < (QUICK_MISSES if quick else LEAST_MISSES):
        notes.append(f"conflicts were not looked for: {share:.2%} of the accesses miss the first level")
    elif quick and misses < IN_LAST * beyond:
        notes.append("conflicts were not looked for: most misses of the first level go on to memory")
    else:
        text, why = _run(driver, shape.first.whole, shape.last, seconds / 2)
        if text is None:
            notes.append(f"conflicts were not looked for: {why}")
        else:
            values |= fully_associative(parse(text, driver.symbol, file=own)[0])
    return Simulated(Signals({"cachegrind": values}, {"cachegrind": lines}), tuple(notes))


def _run(
    driver: Driver, first: Cache, last: Cache, seconds: float, *, branches: bool = False
) -> tuple[str | None, str]:
    """The out-file of one run; None and the reason where there is none."""
    if shutil.which("valgrind") is None:
        return None, "valgrind is not installed"
    late = f"valgrind took over {seconds:g} s: give smaller sizes (--set)"
    with tempfile.TemporaryDirectory(prefix="refork-cachegrind-") as folder:
        out = Path(folder) / "out"
        command = [
            "valgrind", "--tool=cachegrind", "--cache-sim=yes", "--demangle=no",
            f"--cachegrind-out-file={out}", f"--branch-sim={'yes' if branches else 'no'}",
            f"--D1={first.size},{first.ways},{first.line}", f"--LL={last.size},{last.ways},{last.line}",
            *driver.argv,
        ]  # fmt: skip
        # Processor seconds, so that a busy machine takes nothing away.
        limited = ["/bin/sh", "-c", 'ulimit -t "$0"; exec "$@"', str(math.ceil(seconds)), *command]
        try:
            done = subprocess.run(
                limited, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                text=True, errors="replace", timeout=BUSY * seconds, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return None, late
        # ulimit sets the soft and the hard limit at once: either signal may be the one that ends it.
        if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            return None, late
        if done.returncode or not out.exists():
            return None, f"valgrind: {_reason(done.stderr.splitlines(), done.returncode)}"
        return out.read_text(errors="replace"), ""


def _reason(said: Sequence[str], status: int) -> str:
    """The line of valgrind's that tells why it stopped."""
    words = ("nrecognised", "unhandled", "Illegal", "signal", "rror", "Bad option")
    for line in said:
        if any(word in line for word in words):
            return re.sub(r"^==\d+== *|^valgrind: *", "", line).strip()
    return f"it ended with {status}"


def _file_of(text: str, symbol: str) -> str | None:
    """The base name of the source in which a function was counted: its helpers are counted with it."""
    at = ""
    for line in text.splitlines():
        if line.startswith("fl="):
            at = PurePath(line[3:].strip()).name
        # What gcc copied from a function is named f.constprop.0 or f.part.0.
        elif line.startswith("fn=") and line[3:].strip().split(".")[0] == symbol:
            return at if at not in ("", "???") else None
    raise BadInput(f"{symbol} was not called, or was compiled into its caller", where="cachegrind")


WHERE = "cachegrind out-file"
_CACHE = re.compile(r"desc: D1 cache:\s+(\d+) B, (\d+) B,")
#: Metric -> the events that are added up for it.
_EVENTS: dict[Metric, tuple[str, ...]] = {
    m.INSTRUCTIONS: ("Ir",), m.READS: ("Dr",), m.WRITES: ("Dw",), m.D1_READ_MISSES: ("D1mr",),
    m.D1_WRITE_MISSES: ("D1mw",), m.LL_READ_MISSES: ("DLmr",), m.LL_WRITE_MISSES: ("DLmw",),
    m.BRANCHES: ("Bc", "Bi"), m.MISPREDICTIONS: ("Bcm", "Bim"),
}  # fmt: skip


@final
@dataclass(slots=True)
class _Read:
    """An out-file: events in order, their totals, the kernel's counts, the same by source line."""

    events: Sequence[str] = ()
    total: Sequence[int] = ()
    own: Counter[str] = field(default_factory=Counter)
    by_line: dict[tuple[str, int], Counter[str]] = field(default_factory=dict)
    cache: tuple[int, int] | None = None
    has_counts: bool = False


def parse(text: str, entry: str, *, file: str | None = None) -> tuple[dict[str, float], tuple[str, ...]]:
    """Counts of ``entry`` (and of all functions of ``file``, by base name), of a run that called it once.

    Returns metrics by name, events that were not simulated absent, and the source lines that miss most.

    Raises:
        BadInput: not a complete out-file, or no such function in it.
    """
    read = _read(text, entry, file)
    if not read.has_counts:
        raise BadInput(
            f"no function {entry}", where=WHERE, hint="compile the kernel with -g, and not into its caller"
        )
    values: dict[str, float] = {}
    for metric, events in _EVENTS.items():
        if all(event in read.events for event in events):
            values[metric.name] = sum(read.own[event] for event in events)
    total = dict(zip(read.events, read.total, strict=True))
    if total.get("Ir"):
        values[m.KERNEL_SHARE.name] = read.own["Ir"] / total["Ir"]
    if read.cache is not None:
        values[m.D1_BYTES.name], values[m.LINE_BYTES.name] = read.cache
    return values, _worst(read)


def fully_associative(values: Mapping[str, float]) -> dict[str, float]:
    """The conflict-free misses, from what ``parse`` gave for a run with a cache of one set.

    Raises:
        BadInput: that run simulated no first-level cache.
    """
    if m.D1_READ_MISSES.name not in values or m.D1_WRITE_MISSES.name not in values:
        raise BadInput("no D1 misses", where=WHERE, hint="run cachegrind with --cache-sim=yes")
    return {m.FULL_MISSES.name: values[m.D1_READ_MISSES.name] + values[m.D1_WRITE_MISSES.name]}


def _read(text: str, entry: str, file: str | None) -> _Read:
    """All lines of an out-file; counts of what is not the kernel's are left out."""
    read = _Read()
    at, mine, summed = "", False, False
    for number, line in enumerate(text.splitlines(), 1):
        key, _, rest = line.partition("=")
        if key == "fl":
            at, mine = rest.strip(), False
        elif key == "fn":
            mine = rest.strip().split(".")[0] == entry or (file is not None and PurePath(at).name == file)
            read.has_counts |= mine
        elif line.startswith("events:"):
            read.events = line.split()[1:]
        elif line.startswith("summary:"):
            read.total, summed = _counts(line.split()[1:], read.events, number), True
        elif cache := _CACHE.match(line):
            read.cache = int(cache[1]), int(cache[2])
        elif line[:1].isdigit():
            source, *fields = line.split()
            counts = _counts(fields, read.events, number)
            if mine:
                named = dict(zip(read.events, counts, strict=True))
                read.own.update(named)
                read.by_line.setdefault((PurePath(at).name, int(source)), Counter()).update(named)
    if not read.events or not summed:
        raise BadInput("no events or no summary", where=WHERE, hint="the run may have been cut short")
    return read


def _counts(fields: Sequence[str], events: Sequence[str], number: int) -> list[int]:
    """One line's counts; those left out at its end, and dots, are zeros."""
    if len(fields) > len(events) or not all(one.isdigit() or one == "." for one in fields):
        raise BadInput(f"line {number} is not {len(events)} counts", where=WHERE)
    counts = [0 if one == "." else int(one) for one in fields]
    return counts + [0] * (len(events) - len(counts))


def _worst(read: _Read) -> tuple[str, ...]:
    """The source lines with most misses (of at least 1 %), or instructions where nothing misses."""
    event = "D1mr" if read.own["D1mr"] else "Ir"
    floor = read.own[event] / 100
    lines = [at for at, counts in read.by_line.items() if counts[event] > floor]
    order = sorted(lines, key=lambda at: (-read.by_line[at][event], at))
    shown = [one for one in ("Ir", "Dr", "D1mr", "Dw", "D1mw", "DLmr", "Bc", "Bcm") if one in read.events]
    return tuple(
        f"{at[0]}:{at[1]}: " + " ".join(f"{one}={read.by_line[at][one]}" for one in shown) for at in order[:3]
    )
