"""Nsight Compute's CSV exports, taken on any machine, as signals: no GPU and no ncu is needed here.

``ncu --import report.ncu-rep --csv --page raw`` gives one row a launch and a row of units; ``--page details``
(and ``ncu --metrics ... --csv``) one row a metric. Both are read. What ncu could not measure is absent.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

from refork.errors import BadInput
from refork_methods.kernel.gpu.metrics import BY_LABEL, BY_RAW, Metric, derived
from refork_methods.kernel.gpu.table import Table, tables
from refork_methods.kernel.gpu.units import factor, number, text_of
from refork_methods.kernel.signals import Signals

_KERNEL, _ID = "Kernel Name", "ID"
_LONG = ("Metric Name", "Metric Unit", "Metric Value")


@final
@dataclass(frozen=True, slots=True)
class Launch:
    """One profiled launch: its number, its kernel, measured values by our names, and the lines to cite."""

    number: str
    kernel: str
    values: dict[str, float]
    lines: tuple[str, ...]


@final
class _Reading:
    """The values of one launch while they come in; the first raw name of a metric counts."""

    def __init__(self, kernel: str) -> None:
        self.kernel = kernel
        self.values: dict[str, float] = {}
        self._rank: dict[str, int] = {}
        self._lines: dict[str, str] = {}

    def take(self, name: str, unit: str, value: str, where: str) -> None:
        """One cell, if it is in the table of metrics and was measured."""
        rank, metric = BY_RAW.get(name, (len(BY_RAW), BY_LABEL.get(name)))
        if metric is None:
            return
        measured = number(value, where=where)
        if measured is None or self._rank.get(metric.name, len(BY_RAW) + 1) <= rank:
            return
        times = factor(unit, metric.unit, where=where)
        if times is None:
            self._refuse(name, unit, metric, where)
            return
        self._rank[metric.name] = rank
        self.values[metric.name] = measured * times
        self._lines[metric.name] = (
            f"{metric.name} = {measured * times:.9g} ({name} {value} {unit}".rstrip() + ")"
        )

    def _refuse(self, name: str, unit: str, metric: Metric, where: str) -> None:
        """Labels are shared by several metrics and told apart by their units; raw names are not."""
        if name in BY_RAW:
            raise BadInput(
                f"{name} in {unit or 'no unit'!r}, not in {metric.unit or 'counts'!r}", where=where,
                hint="export with --print-units base",
            )  # fmt: skip

    def launch(self, number_: str) -> Launch:
        """All of it, with what follows from it."""
        return Launch(
            number_,
            self.kernel,
            self.values | derived(self.values),
            tuple(self._lines[one] for one in self.values),
        )


def _wide(table: Table, name: str) -> list[Launch]:
    (first, units), *rows = table.rows or [(0, {_ID: "?"})]
    if units[_ID].strip():
        raise BadInput(
            "no row of units below the header",
            where=f"{name}, line {first}",
            hint="ncu --csv --page raw prints it",
        )
    found = []
    for place, row in rows:
        reading = _Reading(row[_KERNEL])
        for column, value in row.items():
            # Sizes of block and grid are printed twice: as (x, y, z), and as metrics.
            if not value.startswith("("):
                reading.take(column, units[column], value, f"{name}, line {place}, {column}")
        found.append(reading.launch(row[_ID]))
    return found


def _long(table: Table, name: str) -> list[Launch]:
    found: dict[str, _Reading] = {}
    for place, row in table.rows:
        reading = found.setdefault(row[_ID], _Reading(row[_KERNEL]))
        title, unit, value = (row[column] for column in _LONG)
        reading.take(title.strip(), unit, value, f"{name}, line {place}, {title}")
    return [reading.launch(number_) for number_, reading in found.items()]


def launches(text: str, *, name: str = "ncu export") -> list[Launch]:
    """Every launch of an export, in its order.

    Raises:
        BadInput: there is no table of ncu, or it is damaged; with the line.
    """
    found: list[Launch] = []
    for table in tables(text, (_ID, _KERNEL), name=name, upto=_LONG[-1]):
        if "Metric Name" in table.header and "Metric Value" not in table.header:
            raise BadInput("a summary over launches", where=name, hint="export without --print-summary")
        found += _long(table, name) if set(_LONG) <= set(table.header) else _wide(table, name)
    if not found:
        raise BadInput(
            "no launch of a kernel in it",
            where=name,
            hint="ncu --import FILE.ncu-rep --csv --page raw > FILE.csv",
        )
    return found


def choose(found: list[Launch], kernel: str | None = None) -> Launch:
    """The last launch of the kernel that is named (whole, or a part of one name only), or of the only one.

    Raises:
        BadInput: no kernel, or several, answer to it; with their names.
    """
    names = list(dict.fromkeys(one.kernel for one in found))
    fitting = [one for one in names if kernel is None or kernel == one] or [
        one for one in names if kernel is not None and kernel in one
    ]
    if len(fitting) != 1:
        asked = f"{kernel!r} fits {len(fitting)} kernels" if kernel else f"{len(fitting)} kernels"
        raise BadInput(asked, where="ncu export", hint="name one of: " + "; ".join(fitting or names))
    return [one for one in found if one.kernel == fitting[0]][-1]


def ncu_signals(text: str, kernel: str | None = None, *, name: str = "ncu export") -> Signals:
    """Signals of one kernel of an export (see :func:`choose`).

    Raises:
        BadInput: a damaged export, no such kernel, or nothing in it that is read.
    """
    launch = choose(launches(text, name=name), kernel)
    if not launch.values:
        raise BadInput(
            f"no known metric of {launch.kernel}",
            where=name,
            hint="profile with ncu --set full, or --set detailed",
        )
    return Signals(
        {"ncu": launch.values}, {"ncu": (f"launch {launch.number} of {launch.kernel}", *launch.lines)}
    )


def read_ncu(path: Path, kernel: str | None = None) -> Signals:
    """Signals of one kernel of an exported file."""
    return ncu_signals(text_of(path), kernel, name=path.name)
