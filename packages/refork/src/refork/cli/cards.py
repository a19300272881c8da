"""What the terminal shows of an effect and of a swept run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.style import Style
from rich.table import Table
from rich.text import Text

from refork.cli.live import LiveProgress
from refork.plain import from_json
from refork.report import sentences, words
from refork.report.data import EffectData, Token, Trace
from refork.report.diff import short_pieces
from refork.report.palette import LIGHT

__all__ = ["LiveProgress", "effect_card", "trace_strip"]

WIDTH = 96
SPARKS = "▁▂▃▄▅▆▇█"


def effect_card(effect: Mapping[str, Any]) -> RenderableType:
    """An effect as a sentence, a table with intervals drawn, and what it cost.

    ``effect`` has the fields of the viewer's Effect. Raises: BadInput where one does not fit.
    """
    data = from_json(EffectData, effect)
    parts: list[RenderableType] = [Text(sentences.effect_sentence(data), style="bold")]
    if data.before_text or data.after_text:
        parts += [Text(), _diff(data)]
    parts += [Text(), _Arms(data), Text(), Text(_facts(data), style="dim")]
    how = sentences.pairing_sentence(data)
    if how:
        parts.append(Text(how, style="dim"))
    return Panel(
        Group(*parts), title="effect", title_align="left", box=box.ROUNDED, padding=(1, 2), width=WIDTH
    )


def _facts(data: EffectData) -> str:
    parts = [
        words.p_value(data.p) if data.p is not None else f"p {words.DASH}",
        f"{words.count(data.draws)} draws per arm",
        f"{words.count(data.ungraded)} not graded",
        f"{words.count(data.tokens)} tokens",
        words.duration(data.seconds),
    ]
    return " · ".join(parts)


def _diff(data: EffectData) -> Text:
    """The change as a line gone and a line come, the touched words underlined."""
    old, new = short_pieces(data.before_text, data.after_text)
    text = Text()
    for sign, line, colour, touched in (("−", old, "red", "gone"), ("+", new, "cyan", "new")):
        text.append(f"{sign} ", style=f"bold {colour}")
        for piece in line:
            shown = piece.text.replace("\n", "↵").replace("\t", "⇥")
            text.append(shown, style=f"{colour} underline" if piece.mark == touched else "")
        if not line:
            text.append("nothing", style="dim italic")
        text.append("\n" if sign == "−" else "")
    return text


@final
@dataclass(frozen=True, slots=True)
class _Arms:
    """The arms and their difference, drawn where the terminal is wide enough."""

    data: EffectData

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = options.max_width - 44
        yield _arms(self.data, min(44, room) if room >= 16 else 0)


def _arms(data: EffectData, plot: int) -> Table:
    """The table; ``plot`` characters for each drawn interval, 0 for none."""
    unit = data.unit
    ends = [v for arm in (data.base, data.other) for v in (arm.rate, arm.low, arm.high) if v is not None]
    axis = (0.0, 1.0) if unit == "rate" else (min(ends, default=0.0), max(ends, default=1.0))
    known = [v for v in (data.difference, data.low, data.high) if v is not None]
    # With no difference, or one of 0, the axis must still have a length.
    reach = max([abs(v) for v in known], default=0.0) or 1.0
    reach = min(1.0, reach * 1.1) if unit == "rate" else reach * 1.1
    table = Table.grid(padding=(0, 2))
    for justify in ("left", "right", "left", "left"):
        table.add_column(justify=justify, no_wrap=True)
    for name, arm in (("control", data.base), ("change", data.other)):
        line = interval_line(arm.rate, arm.low, arm.high, axis, plot)
        style = Style(color=_colour(arm.rate)) if unit == "rate" and arm.rate is not None else Style()
        ends_text = words.span(arm.low, arm.high, unit)
        table.add_row(
            name, Text(words.value_of(arm.rate, unit), style="bold"), ends_text, Text(line, style=style)
        )
    if plot:
        table.add_row("", "", "", Text(_scale(axis, unit, plot, signed=False), style="dim"))
    line = interval_line(data.difference, data.low, data.high, (-reach, reach), plot, zero=True)
    change = Text(words.change_of(data.difference, unit), style="bold")
    table.add_row("difference", change, words.span(data.low, data.high, unit, sign=True), Text(line))
    if plot:
        table.add_row("", "", "", Text(_scale((-reach, reach), unit, plot, signed=True), style="dim"))
    return table


def interval_line(
    value: float | None,
    low: float | None,
    high: float | None,
    axis: tuple[float, float],
    width: int,
    *,
    zero: bool = False,
) -> str:
    """An interval as ``width`` characters over ``axis``: ``├──●──┤``, and ``┊`` where zero is."""
    if width <= 0:
        return ""

    def column_of(x: float) -> int:
        share = (x - axis[0]) / ((axis[1] - axis[0]) or 1.0)
        return round(min(1.0, max(0.0, share)) * (width - 1))

    cells = [" "] * width
    if low is not None and high is not None:
        left, right = column_of(low), column_of(high)
        cells[left : right + 1] = "─" * (right - left + 1)
        cells[left], cells[right] = "├", "┤"
    if zero:
        cells[column_of(0)] = (
            "┼" if cells[column_of(0)] == "─" else "┊" if cells[column_of(0)] == " " else cells[column_of(0)]
        )
    if value is not None:
        cells[column_of(value)] = "●"
    return "".join(cells)


def _scale(axis: tuple[float, float], unit: str, width: int, *, signed: bool) -> str:
    """The ends of an axis under it, and zero in the middle of a signed one."""
    show = words.change_of if signed else words.value_of
    left, right = (show(end, unit).removesuffix(f"{words.NBSP}points") for end in axis)
    middle = "0" if signed else ""
    half = (width - len(middle)) // 2
    return left.ljust(half) + middle + right.rjust(width - half - len(middle))


def trace_strip(trace: Mapping[str, Any]) -> RenderableType:
    """A swept run as a transcript, its tokens coloured by the chance of success before them.

    ``trace`` has the fields of the viewer's Trace. Raises: BadInput where one does not fit.
    """
    data = from_json(Trace, trace)
    lines = Table.grid(padding=(0, 2))
    lines.add_column(style="dim", no_wrap=True)
    lines.add_column()
    names = {"observation": "world", "action": "policy"}
    for step in data.steps:
        if step.tokens:
            lines.add_row(names.get(step.kind, step.kind), _tokens(step.tokens, data))
        elif step.text.strip():
            lines.add_row(names.get(step.kind, step.kind), Text(words.one_line(step.text, 300)))
    tokens = [token for step in data.steps for token in step.tokens]
    parts: list[RenderableType] = [Text(sentences.cliff_sentence(data.cliff), style="bold"), Text(), lines]
    if any(token.value is not None for token in tokens):
        lines.add_row("", "")
        lines.add_row("chance", _spark(tokens, data))
        parts += [Text(), _legend()]
    if data.outcome is not None:
        parts.append(Text(f"The run ended with success {words.rate(data.outcome)}.", style="dim"))
    return Group(*parts)


def _tokens(tokens: Sequence[Token], data: Trace) -> Text:
    text = Text()
    for token in tokens:
        shown = token.text.replace("\n", "↵").replace("\t", "⇥") or "∅"
        if data.cliff is not None and token.index == data.cliff.token_index:
            # The sign, not the colour alone, marks the cliff: it must survive a pipe and NO_COLOR.
            fall = f"▼{words.rate(data.cliff.before)}→{words.rate(data.cliff.after)}"
            text.append(shown, style=Style(bold=True, reverse=True)).append(f" {fall} ", style="bold red")
        elif token.value is None:
            text.append(shown, style="dim")
        else:
            text.append(shown, style=Style(color=_ink(token.value), bgcolor=_colour(token.value)))
    return text


def _spark(tokens: Sequence[Token], data: Trace) -> Text:
    """One bar per token, a space where the value was never computed."""
    text = Text()
    for token in tokens:
        if token.value is None:
            text.append(" ")
            continue
        here = data.cliff is not None and token.index == data.cliff.token_index
        height = SPARKS[round(min(1.0, max(0.0, token.value)) * (len(SPARKS) - 1))]
        text.append(height, style=Style(color=_colour(token.value), bold=here, underline=here))
    return text


def _legend() -> Text:
    text = Text().append("chance of success before the token: 0 % ", style="dim")
    for colour in LIGHT:
        text.append("█", style=Style(color=colour))
    return text.append(" 100 %", style="dim")


def _colour(value: float | None) -> str:
    return LIGHT[round(10 * min(1.0, max(0.0, value or 0.0)))]


def _ink(value: float) -> str:
    """A text colour that reads on the colour of ``value``: light at the dark ends of the scale."""
    return "#ffffff" if abs(value - 0.5) >= 0.35 else "#111111"
