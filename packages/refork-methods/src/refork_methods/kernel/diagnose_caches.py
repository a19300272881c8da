"""Simulated caches: which are simulated, how the profiled program is run under them, and what it counted.

The caches are those that the system reports, as far as they can be simulated and believed; both changes are
ours, and are told. Source of the signals: arXiv 2606.26453 uses a GPU's counters in their place.
"""

from __future__ import annotations

import math
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import final

from refork.errors import BadInput
from refork_methods.kernel.bench import Driver
from refork_methods.kernel.cpu import cachegrind
from refork_methods.kernel.cpu import metrics as m
from refork_methods.kernel.signals import Signals

#: A guest that is told of the host's whole last-level cache has this much of it for each of its processors.
SHARE = 2 << 20
#: Where the system tells nothing: a first and a last level as most processors of the last ten years have.
USUAL = ((32 << 10, 8, 64), (8 << 20, 16, 64))
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
    def option(self) -> str:
        """As valgrind takes it."""
        return f"{self.size},{self.ways},{self.line}"

    @property
    def whole(self) -> Cache:
        """The same bytes in one set."""
        return replace(self, ways=self.size // self.line)

    def __str__(self) -> str:
        size = f"{self.size >> 20} MiB" if self.size >= 1 << 20 else f"{self.size / 1024:g} KiB"
        return f"{size}, {self.ways} ways"


@final
@dataclass(frozen=True, slots=True)
class Caches:
    """First-level data cache and last level, and what was changed of what the system reports."""

    first: Cache
    last: Cache
    notes: tuple[str, ...] = ()


def caches(folder: Path = _SYSTEM, *, processors: int = 1) -> Caches:
    """The machine's caches, in a form that can be simulated.

    A last level of more than 2 MiB for each of the ``processors`` is the host's, of which a virtual machine
    has a share: it is simulated with that share, at least the second level's size.
    """
    found = _reported(folder)
    first, last = found.get("first"), found.get("last")
    notes: list[str] = []
    if first is None or last is None:
        first, last = (Cache(*one) for one in USUAL)
        notes.append(f"the system reports no caches: {first} and {last} are simulated")
    share = max(SHARE * processors, found["second"].size if "second" in found else 0)
    if last.size > 2 * share:
        notes.append(
            f"last-level cache: {last.size >> 20} MiB are reported, which is the host's;"
            f" {share >> 20} MiB are simulated"
        )
        last = replace(last, size=share)
    return Caches(_simulable(first), _simulable(last), tuple(notes))


def _reported(folder: Path) -> dict[str, Cache]:
    """Data and unified caches by the role that they have here."""
    levels: dict[int, Cache] = {}
    for index in sorted(folder.glob("index*")):
        told = {
            name: _text(index / name)
            for name in ("level", "type", "size", "ways_of_associativity", "coherency_line_size")
        }
        size = re.fullmatch(r"(\d+)([KM]?)", told["size"])
        if told["type"] == "Instruction" or size is None or not told["level"].isdigit():
            continue
        ways, line = (told[name] for name in ("ways_of_associativity", "coherency_line_size"))
        if not (ways.isdigit() and line.isdigit() and int(ways) and int(line)):
            continue
        levels[int(told["level"])] = Cache(
            int(size[1]) << {"": 0, "K": 10, "M": 20}[size[2]], int(ways), int(line)
        )
    if not levels:
        return {}
    found = {"last": levels[max(levels)]}
    return found | {name: levels[at] for name, at in (("first", 1), ("second", 2)) if at in levels}


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _simulable(cache: Cache) -> Cache:
    """The largest of the same ways and line whose number of sets is a power of two."""
    ways = min(cache.ways, cache.size // cache.line)
    sets = 1 << ((cache.size // (cache.line * ways)).bit_length() - 1)
    return Cache(sets * cache.line * ways, ways, cache.line)


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
    text, why = _counted(driver, shape.first, shape.last, seconds, branches=True)
    if text is None:
        return Simulated(Signals(absent={"cachegrind": why}))
    own = _file_of(text, driver.symbol)
    values, lines = cachegrind.parse(text, driver.symbol, file=own)
    first, last = shape.first, shape.last
    notes = [*shape.notes, f"simulated: first level {first}; last level {last}; one call, caches cold"]
    misses = values[m.D1_READ_MISSES.name] + values[m.D1_WRITE_MISSES.name]
    beyond = values[m.LL_READ_MISSES.name] + values[m.LL_WRITE_MISSES.name]
    share = misses / max(1.0, values[m.READS.name] + values[m.WRITES.name])
    if share < (QUICK_MISSES if quick else LEAST_MISSES):
        notes.append(f"conflicts were not looked for: {share:.2%} of the accesses miss the first level")
    elif quick and misses < IN_LAST * beyond:
        notes.append("conflicts were not looked for: most misses of the first level go on to memory")
    else:
        text, why = _counted(driver, first.whole, last, seconds / 2)
        if text is None:
            notes.append(f"conflicts were not looked for: {why}")
        else:
            values |= cachegrind.fully_associative(cachegrind.parse(text, driver.symbol, file=own)[0])
    return Simulated(Signals({"cachegrind": values}, {"cachegrind": lines}), tuple(notes))


def _counted(
    driver: Driver, first: Cache, last: Cache, seconds: float, *, branches: bool = False
) -> tuple[str | None, str]:
    """The out-file of one run; None and the reason where there is none."""
    if shutil.which("valgrind") is None:
        return None, "valgrind is not installed"
    late = f"valgrind took over {seconds:g} s: give smaller sizes (--set)"
    with tempfile.TemporaryDirectory(prefix="refork-cachegrind-") as folder:
        out = Path(folder) / "out"
        command = [
            "valgrind",
            "--tool=cachegrind",
            "--cache-sim=yes",
            f"--branch-sim={'yes' if branches else 'no'}",
            "--demangle=no",
            f"--cachegrind-out-file={out}",
            f"--D1={first.option}",
            f"--LL={last.option}",
            *driver.argv,
        ]
        # Processor seconds, so that a busy machine takes nothing away.
        limited = ["/bin/sh", "-c", 'ulimit -t "$0"; exec "$@"', str(math.ceil(seconds)), *command]
        try:
            done = subprocess.run(
                limited, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                text=True, errors="replace", timeout=BUSY * seconds, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return None, late
        if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            return None, late
        if done.returncode or not out.exists():
            return None, f"valgrind: {_reason(done.stderr.splitlines(), done.returncode)}"
        return out.read_text(errors="replace"), ""


def _reason(said: Sequence[str], status: int) -> str:
    """The line of valgrind's that tells why it stopped."""
    words = ("unrecognised", "Unrecognised", "unhandled", "Illegal", "signal", "error", "Error", "Bad option")
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
        elif line.startswith("fn=") and line[3:].strip().split(".")[0] == symbol:
            return at if at not in ("", "???") else None
    raise BadInput(f"{symbol} was not called, or was compiled into its caller", where="cachegrind")
