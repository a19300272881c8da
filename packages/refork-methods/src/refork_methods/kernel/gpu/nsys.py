"""Nsight Systems' summaries as signals: how long kernels run, and how long it takes to launch them.

Reads what ``nsys stats --report cuda_gpu_kern_sum,cuda_api_sum --format csv FILE.nsys-rep`` prints, in one
file or two. Our definition of the overhead, for the paper (arXiv 2606.26453) prints none: time in launching
calls over that time and the kernels' own. Calls can overlap kernels, so it is the most that can be gained.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

from refork.errors import BadInput
from refork_methods.kernel.gpu.profiler_exports import Table, named, number, tables, text_of
from refork_methods.kernel.signals import Signals

#: Tables, each with the name of its file.
_Found: TypeAlias = list[tuple[str, Table]]

_TIME, _NAME = "Total Time (ns)", "Name"
#: Columns of counts: of kernels, and of calls.
_RUNS, _CALLS = ("Instances", "Num Calls")
_LAUNCHING = (
    "cudaLaunchKernel", "cudaLaunchCooperative", "cudaGraphLaunch",
    "cuLaunchKernel", "cuLaunchCooperative", "cuGraphLaunch",
)  # fmt: skip


def _sums(found: _Found, column: str, fits: tuple[str, ...] | None) -> list[tuple[str, float, float]]:
    """(name, seconds, count) of each row of the tables that have ``column``."""
    rows = []
    for name, table in found:
        if column not in table.header:
            continue
        for place, row in table.rows:
            if fits is not None and not row[_NAME].startswith(fits):
                continue
            where = f"{name}, line {place}"
            nanoseconds, count = number(row[_TIME], where=where), number(row[column], where=where)
            if nanoseconds is None or not count or count < 0:
                raise BadInput(f"no time or count of {row[_NAME]}", where=where, hint="export it again")
            rows.append((row[_NAME], nanoseconds * 1e-9, count))
    return rows


def read_nsys(*paths: Path, kernel: str | None = None) -> Signals:
    """Signals of one exported file, or of one for each report.

    They are of all its kernels, and of the one that is named (whole, or a part of one name).

    Raises:
        BadInput: neither summary is in it, a damaged line, or no such kernel.
    """
    found = [
        (one.name, table) for one in paths for table in tables(text_of(one), (_TIME, _NAME), name=one.name)
    ]
    name = ", ".join(path.name for path in paths)
    kernels = _sums(found, _RUNS, None)
    calls = _sums(found, _CALLS, _LAUNCHING)
    if not kernels and not any(_CALLS in table.header for _, table in found):
        raise BadInput(
            "neither kernels nor calls in it", where=name,
            hint="nsys stats --report cuda_gpu_kern_sum,cuda_api_sum --format csv FILE.nsys-rep",
        )  # fmt: skip
    values: dict[str, float] = {}
    lines = []
    if kernels:
        values["kernels_s"] = sum(seconds for _, seconds, _ in kernels)
        values["kernel_runs"] = sum(count for _, _, count in kernels)
        lines += [f"{count:.0f} runs, {seconds:.3g} s: {title}" for title, seconds, count in kernels[:3]]
    if calls:
        values["launches_s"] = sum(seconds for _, seconds, _ in calls)
        values["launches"] = sum(count for _, _, count in calls)
        lines += [f"{count:.0f} calls, {seconds:.3g} s: {title}" for title, seconds, count in calls]
    if kernels and calls:
        total = values["launches_s"] + values["kernels_s"]
        if total > 0:
            values["launch_pct"] = 100 * values["launches_s"] / total
    if kernel is not None:
        chosen = named(kernel, (row[0] for row in kernels), name)
        own = [row for row in kernels if row[0] == chosen]
        seconds = sum(row[1] for row in own)
        values["kernel_mean_s"] = seconds / sum(row[2] for row in own)
        if values["kernels_s"] > 0:
            values["kernel_share_pct"] = 100 * seconds / values["kernels_s"]
    return Signals({"nsys": values}, {"nsys": tuple(lines)})
