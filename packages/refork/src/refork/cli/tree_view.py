"""How a tree looks in a terminal: one line a node, guides, score bars; wide or narrow."""

from __future__ import annotations

from rich.console import Console, OverflowMethod, RenderableType
from rich.table import Table
from rich.text import Text

from refork.tree.node import Node, Trajectory
from refork.tree.outline import Outline, OutlineLine

_MARKS = {"task": "◆", "observation": "○", "action": "▶", "rewrite": "↻", "verdict": "■"}
_ASCII = {"task": "#", "observation": "o", "action": ">", "rewrite": "~", "verdict": "="}
_STYLES = {
    "task": "bold",
    "observation": "dim",
    "action": "default",
    "rewrite": "magenta",
    "verdict": "bold",
}
_BARS = "▁▂▃▄▅▆▇█"
_GUIDES = str.maketrans({"├": "|", "└": "`", "─": "-", "│": "|"})
#: Below this many columns the token counts go, below the second the ids.
_ROOMY, _NARROW = 76, 44
_MORE = "…"


def _one_line(text: str, ascii_only: bool) -> str:
    """A text on one line, line ends shown."""
    if ascii_only:
        return _encodable(text.strip().replace("\n", " / "))
    return text.strip().replace("\n", "⏎ ")


def _encodable(text: str) -> str:
    return text.encode("ascii", "replace").decode()


def _overflow(ascii_only: bool) -> OverflowMethod:
    # The mark of a text that was cut is not ASCII itself.
    return "crop" if ascii_only else "ellipsis"


def _table() -> Table:
    return Table(box=None, expand=True, padding=(0, 1, 0, 0), header_style="dim", show_edge=False)


def tone(value: float | None) -> str:
    """The colour of a score: red for 0, yellow between, cyan for 1; by sign outside of that."""
    if value is None:
        return "dim"
    return "red" if value < 0.25 else ("yellow" if value < 0.75 else "cyan")


def _score(line: OutlineLine, ascii_only: bool) -> Text:
    """A node's own score, else the means of what is under it: what is real, then what is simulated."""
    if line.own is not None:
        return _mean(line.own, line.scored + line.simulated_scored, ascii_only)
    shown = _mean(line.mean, line.scored, ascii_only)
    if line.simulated_mean is not None:
        shown.append(" " if line.scored else "").append("simulated ", style="magenta")
        shown.append(_mean(line.simulated_mean, line.simulated_scored, ascii_only))
    return shown


def _mean(value: float | None, of: int, ascii_only: bool) -> Text:
    if value is None:
        return Text("")
    bar = "" if ascii_only or not 0 <= value <= 1 else f"{_BARS[round(7 * value)]} "
    count = "" if of == 1 else f" n={of:,}"
    return Text(f"{bar}{value:.2f}{count}", style=tone(value))


def _label(line: OutlineLine, ascii_only: bool) -> Text:
    guide = line.guide.translate(_GUIDES) if ascii_only else line.guide
    label = Text(no_wrap=True, overflow=_overflow(ascii_only)).append(guide, style="dim")
    node = line.node
    if node is None:
        dots = "..." if ascii_only else _MORE
        inside = f", {line.below:,} nodes below them" if line.below else ""
        return label.append(f"{dots} {line.more:,} more{inside}", style="italic dim")
    marks = _ASCII if ascii_only else _MARKS
    style = tone(line.own) if node.kind == "verdict" and line.own is not None else _STYLES[node.kind]
    label.append(f"{marks[node.kind]} ", style="green" if node.kind == "action" else style)
    if node.keep is not None:
        label.append(f"@{node.keep} ", style="magenta")
    if node.origin == "simulated":
        label.append("simulated ", style="magenta")
    said = _one_line(node.text, ascii_only)
    label.append(said or f"({node.kind})", style=style if said else "dim italic")
    if node.error:
        label.append(f"  {_one_line(node.error, ascii_only)}", style="red")
    return label


def _tokens(node: Node | None) -> str:
    return "" if node is None or node.tokens is None else str(node.length)


def tree_table(drawn: Outline, console: Console) -> RenderableType:
    """The lines of an outline as a table that fits the console."""
    wide, ids = console.width >= _ROOMY, console.width >= _NARROW
    plain = console.options.ascii_only
    table = _table()
    table.add_column("", ratio=1, no_wrap=True, overflow=_overflow(plain))
    if wide:
        table.add_column("tokens", justify="right", style="dim", no_wrap=True)
    if drawn.score is not None:
        table.add_column(drawn.score, no_wrap=True)
    if ids:
        table.add_column("node", style="blue", no_wrap=True)
    for line in drawn.lines:
        cells: list[RenderableType] = [_label(line, plain)]
        if wide:
            cells.append(_tokens(line.node))
        if drawn.score is not None:
            cells.append(_score(line, plain))
        if ids:
            cells.append("" if line.node is None else line.node.id[:8])
        table.add_row(*cells)
    return table


def legend(drawn: Outline, console: Console) -> Text:
    """What the marks mean, and what was left out."""
    marks = _ASCII if console.options.ascii_only else _MARKS
    said = Text("  ".join(f"{mark} {kind}" for kind, mark in marks.items()), style="dim")
    said.append("  @n kept n tokens of the step above", style="dim")
    if drawn.simulated:
        said.append(f"\n{drawn.simulated:,} of {drawn.leaves:,} leaves are simulated", style="magenta")
        said.append("; means are of the real ones, where they do not say otherwise", style="dim")
    if drawn.hidden:
        said.append(f"\n{drawn.hidden:,} of {drawn.total:,} nodes are not drawn", style="dim")
        said.append("; --under NODE, --siblings and --lines show them", style="dim")
    return said


def task_table(drawn: Outline, console: Console) -> RenderableType:
    """Tasks with the size and the mean score of what grows from them."""
    plain = console.options.ascii_only
    table = _table()
    table.add_column("task", ratio=1, no_wrap=True, overflow=_overflow(plain))
    wide = console.width >= _ROOMY
    if wide:
        table.add_column("world", no_wrap=True, style="dim")
    for name in ("nodes", "leaves"):
        table.add_column(name, justify="right", no_wrap=True)
    if drawn.score is not None:
        table.add_column(drawn.score, no_wrap=True)
    table.add_column("node", style="blue", no_wrap=True)
    for line in drawn.lines:
        if line.node is None:
            continue
        said = Text(_one_line(line.node.text, plain) or "(no text)", no_wrap=True, overflow=_overflow(plain))
        cells: list[RenderableType] = [said]
        if wide:
            cells.append(Text(_one_line(str(line.node.extra.get("world") or ""), plain)))
        some = f" ({line.simulated:,} simulated)" if line.simulated else ""
        cells += [f"{line.below + 1:,}", f"{line.leaves:,}{some}"]
        if drawn.score is not None:
            cells.append(_score(line, plain))
        table.add_row(*cells, line.node.id[:8])
    return table


def walk_table(trajectory: Trajectory, console: Console) -> RenderableType:
    """The steps of a trajectory with the text that it keeps of each."""
    plain = console.options.ascii_only
    table = _table()
    table.add_column("", no_wrap=True)
    table.add_column("kind", no_wrap=True, style="dim")
    table.add_column("kept text", ratio=1, overflow="fold")
    table.add_column("tokens", justify="right", no_wrap=True)
    table.add_column("node", style="blue", no_wrap=True)
    marks = _ASCII if plain else _MARKS
    for step in trajectory:
        node = step.node
        kept = (
            "" if node.tokens is None else f"{node.length if step.keep is None else step.keep}/{node.length}"
        )
        text = step.text if step.keep is None or node.offsets is not None else f"({step.keep} tokens)"
        style = _STYLES[node.kind]
        body = Text(_encodable(text) if plain else text, style=style)
        kind = "simulated" if node.origin == "simulated" else node.kind
        table.add_row(marks[node.kind], kind, body, kept, node.id[:8])
    return table
