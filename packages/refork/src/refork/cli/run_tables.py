"""What the terminal shows of runs and of where their time went."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from refork.runs.profile import ProfileRow
from refork.runs.record import RunRecord, State
from refork.runs.workers import seen_json
from refork.types import Json

_COLOURS = {
    "running": "cyan", "done": "green", "failed": "red", "killed": "red", "interrupted": "yellow",
    "working": "cyan", "idle": "", "ended": "", "lost": "red", "gone": "red",
}  # fmt: skip
#: Workers in a table, what is to be looked at first; and how many.
_ORDER: Final = ("silent", "working", "starting", "idle", "lost", "gone", "ended")
_ROWS: Final = 24
#: Its columns, the texts before the numbers.
_COLUMNS: Final = ("process", "state", "doing", "done", "for", "heard", "all", "errors")
_NUMBERS: Final = 3


def profile_table(title: str, rows: Sequence[ProfileRow]) -> Table:
    """Rows with seconds, share and calls."""
    table = Table("", title=title, title_justify="left", box=None, pad_edge=False)
    for name in ("seconds", "share", "calls"):
        table.add_column(name, justify="right")
    for row in rows:
        calls = f"{row.calls:,}" if row.calls else ""
        table.add_row(row.name, f"{row.seconds:,.3f}", f"{100 * row.share:.1f} %", calls)
    table.add_row("all", f"{sum(row.seconds for row in rows):,.3f}", "", "", style="bold")
    return table


def run_table(records: Sequence[RunRecord], now: float) -> Table:
    """A line for each run, the newest first."""
    table = Table(box=None, pad_edge=False)
    widest = max((len(record.id) for record in records), default=0)
    table.add_column("run", no_wrap=True, min_width=widest)  # it is what other verbs are told
    table.add_column("state", no_wrap=True)
    table.add_column("stage", overflow="ellipsis", no_wrap=True)
    for name in ("done", "left", "errors", "age"):
        table.add_column(name, justify="right")
    for record in reversed(records):
        state = record.state_at(now)
        table.add_row(
            record.id, Text(state, style=_COLOURS.get(state, "yellow")), record.stage, count(record),
            span(record.eta) if state == "running" and record.eta is not None else "",
            f"{sum(record.errors.values()):,}" if record.errors else "", span(now - record.started),
        )  # fmt: skip
    return table


def count(record: RunRecord) -> str:
    """Done, and of how many where that is known."""
    return f"{record.done:,}/{record.total:,}" if record.total else f"{record.done:,}" if record.done else ""


def span(seconds: float) -> str:
    """A time in its two largest units."""
    whole = max(0, round(seconds))
    for unit, size, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // part} {smaller}"
    return f"{whole} s"


def status_lines(record: RunRecord, now: float) -> list[str]:
    """What is known of a run but for its workers."""
    return [f"{title:<10} {text}" for title, text in facts(record, now)]


def status_picture(record: RunRecord, now: float) -> Group:
    """All that is known of a run, to be drawn again and again."""
    table = workers_table(record, now)
    lines = Text("\n".join(status_lines(record, now)))
    return Group(lines) if table is None else Group(lines, "", table)


def workers_table(record: RunRecord, now: float) -> Table | None:
    """A line for each worker, what is to be looked at first, and one for all; None where the run has none.

    Of many workers the first :data:`_ROWS` are listed, and the others are counted.
    """
    data = seen_json(record, now)
    if not data["workers"]:
        return None
    known = sorted(data["workers"], key=lambda one: _ORDER.index(one["state"]))
    rows = [_worker_row(one, record.host, now) for one in known[:_ROWS]]
    sums = data["workers_together"]
    states = ", ".join(f"{sums[state]:,} {state}" for state in _ORDER if sums.get(state))
    total = ("all", "", states, "", "", "", f"{sums['finished']:,}", f"{sums['errors']:,}")
    table = Table(box=None, pad_edge=False)
    for place, name in enumerate(_COLUMNS):
        # What is narrow keeps its width, and what is wide is wrapped into what is left.
        widest = max(len(row[place]) for row in ((name,), total, *rows) if place < len(row))
        wide = name == "doing"
        table.add_column(
            name, no_wrap=not wide, min_width=None if wide else min(widest, 24), ratio=1 if wide else None,
            overflow="fold" if wide else "ellipsis", justify="left" if place < _NUMBERS else "right",
        )  # fmt: skip
    for one, row in zip(known, rows, strict=False):
        colour = _COLOURS.get(one["state"], "yellow")
        table.add_row(row[0], Text(row[1], style=colour), *map(Text, row[2:]))
    if len(known) > _ROWS:
        table.add_row("...", "", f"and {len(known) - _ROWS:,} more; --json lists them")
    table.add_row(*total, style="bold")
    return table


def _worker_row(one: Json, host: str, now: float) -> tuple[str, ...]:
    elsewhere = f"@{one['host']}" if one["host"] != host else ""
    where = f"{one['worker']}" if one["pid"] is None else f"{one['pid']}{elsewhere}"
    doing = ": ".join(part for part in (one["task"], one["stage"]) if part)
    if one["why"]:
        doing = f"{one['why']}; was at {doing}" if doing else str(one["why"])
    done = f"{one['done']:,}/{one['total']:,}" if one["total"] else ""
    return (
        where, one["state"], doing, done, _age(now - one["since"]), _age(now - one["sign"]),
        f"{one['finished']:,}", f"{one['errors']:,}",
    )  # fmt: skip


def _age(seconds: float) -> str:
    """A time in its largest unit."""
    # From 59.5 s on a span is rounded to a minute or more, and then has two units.
    return span(seconds).rpartition(" ")[0].rpartition(" ")[0] if seconds >= 59.5 else span(seconds)


def facts(record: RunRecord, now: float) -> list[tuple[str, str]]:
    """What is known of a run, as names and texts."""
    state: State = record.state_at(now)
    lines = [
        ("run", record.id),
        ("state", state + (f": {record.error}" if record.error else "")),
        ("command", " ".join(["refork", *record.arguments]) if record.arguments else record.command),
        ("started", f"{_when(record.started)}, {span(now - record.started)} ago, by {record.user}"),
        ("process", f"{record.pid} on {record.host}"),
    ]
    if record.out is not None:
        lines.append(("folder", record.out))
    if record.recipe:
        lines.append(("recipe", ", ".join(f"{key} = {value!r}" for key, value in record.recipe.items())))
    return lines + _progress(record, state) + _outcome(record, state, now)


def _progress(record: RunRecord, state: State) -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    if record.stage:
        speed = "" if record.rate is None else f", {record.rate:.3g} per second"
        left = "" if record.eta is None or state != "running" else f", {span(record.eta)} left"
        lines.append(("stage", f"{record.stage}: {count(record)}{speed}{left}"))
    if record.waiting and state == "running":
        lines.append(("waiting", record.waiting))
    if record.tokens is not None:
        fast = "" if record.tokens_per_second is None else f", {record.tokens_per_second:,.0f} per second"
        lines.append(("tokens", f"{record.tokens:,}{fast}"))
    if record.rollouts:
        lines.append(("rollouts", f"{record.rollouts:,}"))
    if record.errors:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(record.errors.items()))
        lines.append(("errors", kinds))
    return lines


def _outcome(record: RunRecord, state: State, now: float) -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    if record.saved is not None:
        where = f" in {record.checkpoint}" if record.checkpoint else ""
        lines.append(("saved", f"{_when(record.saved)}{where}"))
    if record.ended is not None:
        took = span(record.ended - record.started)
        lines.append(("ended", f"{_when(record.ended)} after {took}, exit status {record.status}"))
    elif state in ("killed", "silent"):
        lines.append(("last sign", f"{_when(record.updated)}, {span(now - record.updated)} ago"))
    if record.profile is not None:
        lines.append(("profile", record.profile))
    return lines


def _when(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))
