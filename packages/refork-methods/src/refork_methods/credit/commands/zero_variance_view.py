"""How collapse reports look in a terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

_KINDS = (("all_fail", "all fail"), ("all_pass", "all pass"), ("mixed", "mixed"))


def report_card(report: dict[str, Any]) -> Group:
    """The report as a table of shares, a line of gradient mass, and the budget curve."""
    table = Table(box=None, pad_edge=False)
    for name in ("", "groups", "all fail", "all pass", "mixed", "95 % of mixed"):
        table.add_column(name, justify="left" if not name else "right")
    table.add_row("all", *_cells(report))
    for level, part in report["by_difficulty"].items():
        table.add_row(f"  {level}", *_cells(part))
    mass = report["gradient_mass"]
    lines = [
        f"difficulty: {report['difficulty_is']}",
        f"gradient mass per rollout: {mass['squared']:.3f} squared, {mass['absolute']:.3f} absolute, "
        f"{mass['centred']:.3f} without the deviation",
    ]
    parts: list[Any] = [table, Text("\n".join(lines))]
    if report["curve"] is not None:
        needed = ", ".join(
            f"{float(target):.0%} at {'no size' if n is None else f'{n:,}'}"
            for target, n in report["needed"].items()
        )
        parts += [curve_table(report["curve"]), Text(f"mixed groups by rates fitted to prompts: {needed}")]
    return Group(*parts)


def _cells(part: dict[str, Any]) -> list[str]:
    low, high = part["mixed_share"][1:]
    return [f"{part['groups']:,}", *(f"{part[key]:,}" for key, _ in _KINDS), f"{low:.2f} to {high:.2f}"]


def curve_table(points: list[dict[str, Any]]) -> Table:
    """Share of mixed groups by group size."""
    table = Table(box=None, pad_edge=False)
    table.add_column("group size", justify="right")
    rates = list(points[0]["mixed"]) if isinstance(points[0]["mixed"], dict) else []
    for name in [f"p = {rate}" for rate in rates] or ["mixed", "95 %"]:
        table.add_column(name, justify="right")
    for point in points:
        if rates:
            table.add_row(str(point["size"]), *(f"{v:.3f}" for v in point["mixed"].values()))
            continue
        note = "extrapolated" if point["extrapolated"] else f"{point['low']:.2f} to {point['high']:.2f}"
        table.add_row(str(point["size"]), f"{point['mixed']:.3f}", note)
    return table
