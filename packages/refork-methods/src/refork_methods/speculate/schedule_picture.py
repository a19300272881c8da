"""Schedules against load: drafts verified per request and tokens per second."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from refork.report import palette
from refork.report.charts import Dot, Figure, Line, Plane, curves
from refork_methods.speculate.replay import LOGGED, Load, Replay, Replayed


def schedule_figure(report: Replay, title: str = "Schedules and load") -> Figure:
    """Two pictures over the number of requests at once: drafts verified per request, tokens per second."""
    verified = _panel(report, title, "drafts verified per request", lambda load: load.verified)
    throughput = _panel(report, "Tokens per second", "tokens per second", lambda load: load.throughput)
    told = f"{report.rounds:,} rounds in {report.steps:,} steps, blocks of {report.block} drafts. "
    told += "; ".join(_words(one) for one in report.schedules)
    return replace(verified, note=told, more=(throughput,))


def _panel(report: Replay, title: str, what: str, value: Callable[[Load], float]) -> Figure:
    lines = [
        Line(
            _name(one), [_dot(load, value(load)) for load in one.loads], dashed=one.name != LOGGED,
            colour=palette.SERIES[-1] if one.name == LOGGED else palette.SERIES[(place - 1) % 6],
        )
        for place, one in enumerate(report.schedules)
    ]  # fmt: skip
    plane = Plane("requests at once", what, "count", "number", log_x=True, bottom=0.0)
    return curves(lines, name=title, plane=plane)


def _name(one: Replayed) -> str:
    return "as logged" if one.name == LOGGED else one.name


def _dot(load: Load, value: float) -> Dot:
    size = f"{load.low}" if load.low == load.high else f"{load.low} to {load.high}"
    return Dot(math.sqrt(load.low * load.high), value, tooltip=f"{size} requests, {load.steps} steps")


def _words(one: Replayed) -> str:
    told = f"{_name(one)}: {one.verified:.2f} verified per request, {one.realised:.4g} tokens/s"
    if one.interval is not None:
        told += f" ({one.interval.low:.4g} to {one.interval.high:.4g})"
    if one.name != LOGGED:
        told += f", {one.against_logged:.3f} x logged"
        if one.imputed >= 0.0005:
            told += f", {one.imputed:.1%} of it imputed"
    return told
