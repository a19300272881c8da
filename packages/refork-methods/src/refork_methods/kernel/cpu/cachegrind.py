"""What cachegrind simulated: the kernel's reads, writes, cache misses and mispredicted branches.

The out-file is read and not cg_annotate's tables: its format has not changed in twenty years.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import final

from refork.errors import BadInput
from refork_methods.kernel.cpu import metrics as m
from refork_methods.kernel.cpu.metrics import Metric

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


def parse(
    text: str, entry: str, *, file: str | None = None, calls: int = 1
) -> tuple[dict[str, float], tuple[str, ...]]:
    """Counts of ``entry`` (and of all functions of ``file``, by base name) over ``calls`` calls of it.

    Returns metrics by name, events that were not simulated absent, and the source lines that miss most.

    Raises:
        BadInput: not a complete out-file, no such function in it, or calls below 1.
    """
    if calls < 1:
        raise BadInput(f"{calls} calls", where=WHERE, hint="how often the profiled run called the kernel")
    read = _read(text, entry, file)
    if not read.has_counts:
        raise BadInput(
            f"no function {entry}", where=WHERE, hint="compile the kernel with -g, and not into its caller"
        )
    values: dict[str, float] = {m.CALLS.name: calls}
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


def _worst(read: _Read, most: int = 3) -> tuple[str, ...]:
    """The source lines with most misses (of at least 1 %), or instructions where nothing misses."""
    event = "D1mr" if read.own["D1mr"] else "Ir"
    floor = read.own[event] / 100
    lines = [at for at, counts in read.by_line.items() if counts[event] > floor]
    order = sorted(lines, key=lambda at: (-read.by_line[at][event], at))
    shown = [one for one in ("Ir", "Dr", "D1mr", "Dw", "D1mw", "DLmr", "Bc", "Bcm") if one in read.events]
    return tuple(
        f"{at[0]}:{at[1]}: " + " ".join(f"{one}={read.by_line[at][one]}" for one in shown)
        for at in order[:most]
    )
