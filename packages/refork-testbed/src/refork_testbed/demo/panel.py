"""What the terminal shows of a finished demo."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from refork.cli.cards import WIDTH
from refork.plain import from_json
from refork.report import sentences, words
from refork.report.data import Gain, RateData


def summary_panel(summary: Mapping[str, Any]) -> RenderableType:
    """The end of a demo: what happened, in sentences, and where it lies.

    Reads ``success_before``, ``success_after``, ``gain``, ``gain_low``, ``gain_high``, ``gain_p``,
    ``tasks``, ``cliff`` (a sentence), ``change``, ``effect``, ``ci_low``, ``ci_high``, ``seconds``,
    ``report``, ``tree``, ``summary`` and ``command``; what is missing or None is left out.

    Raises: BadInput where a figure is not one.
    """
    before, after, gain, effect = _figures(summary)
    lines = Table.grid(padding=(0, 2))
    lines.add_column(style="dim", no_wrap=True)
    lines.add_column()
    if summary.get("cliff"):
        lines.add_row("where", Text(str(summary["cliff"])))
    if effect.difference is not None:
        change = words.one_line(str(summary.get("change") or "the change"), 120)
        ends = words.span(effect.low, effect.high, sign=True)
        lines.add_row("why", Text(f"{change}: {words.points(effect.difference)} (95 % interval {ends})"))
    lines.add_row("learned", Text(sentences.gain_sentence(before, after, gain)))
    lines.add_row("", "")
    seconds = from_json(RateData, {"rate": summary.get("seconds")}).rate
    if seconds is not None:
        lines.add_row("time", words.duration(seconds))
    for key, name in (("report", "report"), ("summary", "figures"), ("tree", "tree"), ("command", "again")):
        if summary.get(key):
            lines.add_row(name, Text(str(summary[key]), style="cyan", overflow="fold"))
    head = sentences.headline(before, after, gain) or "Done"
    body = Group(Text(head, style="bold"), Text(), lines)
    return Panel(body, title="refork", title_align="left", box=box.ROUNDED, padding=(1, 2), width=WIDTH)


def _figures(summary: Mapping[str, Any]) -> tuple[RateData, RateData, Gain, Gain]:
    before = from_json(RateData, {"rate": summary.get("success_before")})
    after = from_json(RateData, {"rate": summary.get("success_after")})
    gain = from_json(
        Gain,
        {
            "difference": summary.get("gain"),
            "low": summary.get("gain_low"),
            "high": summary.get("gain_high"),
            "p": summary.get("gain_p"),
            "n": summary.get("tasks"),
        },
    )
    effect = from_json(
        Gain,
        {"difference": summary.get("effect"), "low": summary.get("ci_low"), "high": summary.get("ci_high")},
    )
    return before, after, gain, effect
