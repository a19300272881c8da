"""The report's text, written once as Markdown, and the HTML page that is made of it."""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from typing import Any, final

from markdown_it import MarkdownIt
from markupsafe import Markup

from refork.report.charts import Figure
from refork.report.page import environment
from refork.report.words import (
    DASH,
    counted,
    digits,
    flat,
    one_line,
    per_second,
    rate,
    scientific,
    short_time,
    times,
    times_span,
)
from refork.visible import visible
from refork_methods.kernel.report.figures import Figures, RoofPosition, Search
from refork_methods.kernel.report.pictures import progress_figure, roofline_figure
from refork_methods.kernel.search.folder import SearchNode, fastest, path_to
from refork_methods.kernel.search.model import KernelSearchSettings

#: Kernels that get a row of their own; the others are counted.
MOST_ROWS = 300
#: Lines of a difference that are shown, characters of a line, and of a source that is compared.
MOST_LINES, WIDEST, LONGEST = 400, 200, 200_000
#: Longest text in a cell.
_CELL = 160
#: What Markdown or HTML would act on.
_ACTS = re.compile(r"([\\`*_{}\[\]<>|~&$])")
#: How kernels end that fail: each, and several of them.
_FAILED = {
    "untried": ("not tried", "before they were tried"),
    "build": ("does not build", "at the build"),
    "run": ("stops with an error", "when run"),
    "check": ("wrong result", "with a wrong result"),
    "cheat": ("refused as a cheat", "as cheats"),
    "done": ("failed", "in another way"),
}


@final
@dataclass(frozen=True, slots=True)
class Section:
    """A part of the report: its text as Markdown, and the picture above it on the page."""

    title: str
    text: str
    figure: Figure | None = None


def markdown(search: Search, figures: Figures) -> str:
    """The report as Markdown; equal data give equal text, and foreign text acts on nothing."""
    parts = [f"# {text(headline(figures))}", text(deck(figures))]
    for part in sections(search, figures):
        parts += [f"## {part.title}", part.text] if part.text else []
    return "\n\n".join(parts) + "\n"


def render(search: Search, figures: Figures) -> str:
    """The page as one HTML text that needs no network; equal data give equal bytes."""
    made = MarkdownIt("commonmark", {"html": False, "highlight": _coloured}).enable("table")
    parts = [
        {"title": part.title, "html": Markup(made.render(part.text)), "figure": part.figure}
        for part in sections(search, figures)
    ]
    page = environment("refork_methods.kernel.report").get_template("report.html.j2")
    lead = Markup(made.render(text(deck(figures))))
    return page.render(headline=headline(figures), deck=lead, parts=parts) + "\n"


def _coloured(code: str, language: str, _: str) -> str:
    """The lines of a difference by their signs; nothing for other code, which is then escaped as it is."""
    if language != "diff":
        return ""
    kinds = {"+": "new", "-": "gone", "@": "quiet"}
    lines = [
        Markup('<span class="{}">{}</span>').format(kinds.get(line[:1], "same"), line)
        for line in code.splitlines()
    ]
    return str(Markup('<pre class="diff" tabindex="0">{}</pre>').format(Markup("").join(lines)))


def headline(figures: Figures) -> str:
    """What the search came to."""
    if not figures.tried:
        return f"{figures.name}: nothing was tried yet"
    if figures.best is None:
        return f"{figures.name}: no kernel passed"
    if figures.timing is None or figures.timing.speedup is None:
        return f"{figures.name}: nothing was timed"
    if len(figures.path) == 1:
        return f"{figures.name}: no kernel beat the original"
    if figures.timing.beyond_noise is False:
        return f"{figures.name}: no proven gain over the original"
    return f"{figures.name} runs {times(figures.timing.speedup)} as fast".replace("×", " times")


def deck(figures: Figures) -> str:
    """How many kernels were tried and how they ended, and what the headline's number rests on."""
    state = (
        " The search has not ended: its command goes on with it."
        if figures.state in ("running", "stopped")
        else ""
    )
    if not figures.tried:
        return f"No kernel was tried beside the original.{state}"
    failed = [
        f"{number} {how}" for stage, (_, how) in _FAILED.items() if (number := figures.failed.get(stage))
    ]
    rest = f" ({', '.join(failed)})" if failed else ""
    ended = f"{figures.right:,} right, {figures.tried - figures.right:,} failed{rest}"
    return (
        f"{counted(figures.tried, 'kernel')} tried beside the original: {ended}.{state}{_standing(figures)}"
    )


def _standing(figures: Figures) -> str:
    """What the number rests on: the duel or the search, interval and noise."""
    timing = figures.timing
    if timing is None or timing.speedup is None:
        return ""
    first = (
        f"In the last duel, {counted(timing.samples, 'timing')} of each in turns."
        if timing.duel
        else "This is the search's own timing: the luckiest of many is taken; the true gain may be smaller."
    )
    interval = "" if timing.low is None else f" The 95 % interval is {times_span(timing.low, timing.high)}."
    beyond = {
        None: "Whether this is more than noise is not known: no interval, or no calibration.",
        True: "That is beyond chance, and beyond what equal programs differ by on this machine.",
        False: "That is within chance, or within what equal programs differ by: no proven gain.",
    }[timing.beyond_noise]
    if timing.warm is None:
        return f" {first}{interval} {beyond}"
    warm = f"With its arrays in the caches it is {times(timing.warm)} as fast"
    if timing.slower_warm:
        return f" {first}{interval} {warm}, slower than the original: no proven gain."
    return f" {first}{interval} {beyond} {warm}."


def sections(search: Search, figures: Figures) -> list[Section]:
    """All parts of the report; those that have nothing to say are left out."""
    path = figures.path or ((0,) if search.nodes else ())
    found = [
        Section("Timing", _table(("", "original", "best"), _timing_rows(search, figures))),
        Section("Progress", "", progress_figure(search)),
        Section("Under the roof", text(_roof_words(search, figures)), roofline_figure(search, path)),
        Section("Every kernel", _kernels(search, figures)),
        Section("The best kernel against the original", _best(search, figures)),
        Section("Findings before and after", _findings(figures)),
        Section("What the tools' advice brought", _hits(figures)),
        Section("What failed, and why", _failures(figures)),
        Section("Again", "\n\n".join(fence(command, "console") for command in commands(search))),
        Section("Problem", _facts(_problem(search))),
        Section("Search", _facts(flat(search.part("settings")))),
        Section("Machine", _facts(_machine(search)) or "The machine was not calibrated."),
    ]
    return [one for one in found if one.text or one.figure]


def text(foreign: str, most: int = 2000) -> str:
    """Text in one line that Markdown prints as it is."""
    return _ACTS.sub(r"\\\1", one_line(foreign, most))


def code(foreign: str, most: int = _CELL) -> str:
    """A code span, also of text that has back-quotes; in a table, too."""
    line = one_line(foreign, most).replace("|", "¦")
    ticks = "`" * (max((len(run) for run in re.findall("`+", line)), default=0) + 1)
    pad = " " if "`" in line else ""
    return f"{ticks}{pad}{line}{pad}{ticks}" if line else DASH


def fence(foreign: str, language: str) -> str:
    """A code block, fenced by more back-quotes than it has."""
    ticks = "`" * max(3, max((len(run) for run in re.findall("`+", foreign)), default=0) + 1)
    return f"{ticks}{language}\n{visible(foreign)}\n{ticks}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already; empty without rows."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *lines]) if lines else ""


def _facts(facts: Mapping[str, str]) -> str:
    return "\n".join(f"- {text(name)}: {code(value, 300)}" for name, value in facts.items())


def _timing_rows(search: Search, figures: Figures) -> Iterator[tuple[str, str, str]]:
    """The table of times: what, the original, the best."""
    if not search.nodes:
        return
    first, best = search.nodes[0].evaluated, figures.timing
    yield "seconds of a call", short_time(first.seconds), short_time(best.seconds if best else None)
    yield "speed-up over the reference", times(first.speedup), times(best.speedup if best else None)
    interval = times_span(best.low, best.high) if best else DASH
    yield "its interval", times_span(first.low, first.high), interval
    yield "timings", str(len(first.samples)), str(best.samples) if best else DASH
    yield "worst relative error", scientific(first.error), scientific(best.error if best else None)
    if search.work is not None:
        yield "useful work a second", _rate(figures.original), _rate(figures.reached)
        yield "share of the roof", _roof_share(figures.original), _roof_share(figures.reached)


def _rate(where: RoofPosition | None) -> str:
    """What a kernel does a second: useful flop where it has any, else compulsory bytes; a dash for None."""
    if where is None:
        return DASH
    return per_second(where.flops, "flop") if where.flops else per_second(where.bandwidth, "B")


def _roof_share(where: RoofPosition | None) -> str:
    return DASH if where is None else rate(where.roof_share)


def _roof_words(search: Search, figures: Figures) -> str:
    """Where the original stood and where the best stands, or why that is not known."""
    if figures.best is None and not any(node.evaluated.ok for node in search.nodes):
        return "No kernel is right, so none has a place under the roof."
    if search.work is None:
        return "The useful work of a call is not declared: give the problem its flops and bytes."
    ends = f"From {_rate(figures.original)} to {_rate(figures.reached)}"
    if search.ceilings is None:
        return f"{ends}. The machine was not calibrated: `refork kernel calibrate`, then search again."
    ends = f"{ends}, from {_roof_share(figures.original)} of the roof to {_roof_share(figures.reached)}."
    if not search.work.flops:
        return f"{ends} No floating-point work is declared: the roof is the memory's speed alone."
    side = "memory" if search.work.intensity < search.ceilings.ridge else "compute"
    at = digits(search.work.intensity)
    return f"{ends} At {at} flop per byte the {side} ceiling is the one that counts."


def name_of(node: SearchNode) -> str:
    """The move that made a kernel, in one line."""
    move = "" if node.proposal is None else node.proposal.move
    return one_line(move, 120) or ("original" if node.parent < 0 else f"node {node.number}")


def _kernels(search: Search, figures: Figures) -> str:
    """The search tree as rows, a child below its parent; of too many the best's way and the fastest."""
    nodes = search.nodes
    if len(nodes) < 2:
        return ""
    kept = {0, *figures.path}
    failed = [node for node in nodes if not node.evaluated.ok]
    for node in (*fastest(nodes, len(nodes)), *failed):
        # With all above it: a row hangs on a row.
        way = kept.union(path_to(nodes, node.number))
        kept = way if len(way) <= MOST_ROWS else kept
    children = defaultdict(list)
    for node in nodes[1:]:
        children[node.parent].append(node)
    rows, waiting = [], [(nodes[0], 0)]
    while waiting:
        node, depth = waiting.pop()
        rows.append(_row(node, depth, node.number in figures.path))
        waiting += [(one, depth + 1) for one in reversed(children[node.number]) if one.number in kept]
    head = ("node", "from", "move", "outcome", "speed-up", "interval", "a call", "answers")
    left = len(nodes) - len(rows)
    more = f"\n\nThe other {counted(left, 'kernel')} stand in `nodes.jsonl`." if left else ""
    return _table(head, rows) + more


def _row(node: SearchNode, depth: int, on_way: bool) -> tuple[str, ...]:
    done, made = node.evaluated, node.proposal
    number = f"**{node.number}**" if on_way else str(node.number)
    outcome = "right" if done.ok else _FAILED[done.stage][0]
    move = "· " * min(depth, 12) + code(name_of(node), 60)
    return (
        number,
        DASH if node.parent < 0 else str(node.parent),
        move,
        outcome,
        times(done.speedup),
        times_span(done.low, done.high),
        short_time(done.seconds),
        text(", ".join(made.answers), _CELL) if made and made.answers else DASH,
    )


def _best(search: Search, figures: Figures) -> str:
    if figures.best is None or len(figures.path) == 1:
        return "No kernel is right." if figures.best is None else "The original is the best."
    best = search.nodes[figures.best].candidate
    suffix = search.part("problem").get("suffix", "")
    way = [search.nodes[number] for number in figures.path]
    steps = [f"{place}. {code(name_of(one))} {times(one.evaluated.speedup)}" for place, one in enumerate(way)]
    parts = [
        "\n".join(steps),
        f"It is {code(f'sources/{best.digest}{suffix}')}, compiled with {code(' '.join(best.flags), 400)}.",
    ]
    if figures.granted:
        listed = "\n".join(f"- {text(one)}" for one in figures.granted)
        parts.append(f"**It is assumed, so check it before you use this version:**\n\n{listed}")
    return "\n\n".join([*parts, difference(search.nodes[0].candidate.source, best.source)])


def difference(before: str, after: str) -> str:
    """What changed between two sources, line by line, as a code block."""
    if max(len(before), len(after)) > LONGEST:
        return "The sources are too long to be compared here."
    # The first two lines name files, of which there are none.
    found = list(unified_diff(before.splitlines(), after.splitlines(), lineterm=""))[2:]
    if not found:
        return "The source is the original's."
    lines = [line if len(line) <= WIDEST else line[:WIDEST] + "…" for line in found[:MOST_LINES]]
    if len(found) > MOST_LINES:
        lines.append(f"@@ {counted(len(found) - MOST_LINES, 'more line')}")
    return fence("\n".join(lines), "diff")


def _findings(figures: Figures) -> str:
    if figures.compared is None:
        return "The original or the best kernel was not diagnosed."
    if not figures.compared:
        return "No tool found anything, on either."
    parts = []
    for row in figures.compared:
        one = row.finding
        cited = "".join(f"\n  - {code(line, WIDEST)}" for line in one.evidence[:6])
        parts.append(f"- {row.state}: **{text(one.tool)}** ({one.severity}) {text(one.sentence)}{cited}")
    return "\n".join(parts)


def _hits(figures: Figures) -> str:
    rows = [
        (text(hit.tool), str(hit.fires), str(hit.acted), str(hit.right), rate(hit.large), times(hit.gain))
        for hit in figures.hits
    ]
    head = ("tool", "fires", "acted on", "right", "gains over 1.5×", "mean gain")
    return _table(head, rows) or "No kernel was diagnosed with a finding."


def _failures(figures: Figures) -> str:
    rows = [
        (_FAILED[kind.stage][0], str(kind.count), code(kind.why), ", ".join(map(str, kind.nodes)))
        for kind in figures.failures
    ]
    more = f"\n\n{figures.failures_left} more failed in other ways." if figures.failures_left else ""
    return (_table(("how", "kernels", "first reason given", "nodes"), rows) or "Nothing failed.") + more


def _problem(search: Search) -> dict[str, str]:
    left_out = ("suffix", "digest", "source", "reference", "arguments")
    return flat({key: value for key, value in search.part("problem").items() if key not in left_out})


def _machine(search: Search) -> dict[str, str]:
    """Facts of the machine: ceilings first."""
    known = search.ceilings
    if known is None:
        return flat(search.part("machine"))
    return {
        "compute ceiling": per_second(known.flops, "flop"),
        "memory ceiling": per_second(known.bandwidth, "B"),
        "noise of equal programs": f"±{100 * (known.noise - 1):.1f} %",
    } | flat(search.part("machine"))


def commands(search: Search) -> list[str]:
    """The commands that make this search and this report again.

    A search that was not begun on the command line has no file and no settings: its name stands for it.
    """
    problem, asked = search.part("problem"), search.part("asked")
    folder = str(asked.get("out") or search.folder.resolve().name)
    file = asked.get("file") or f"{problem.get('name')}{problem.get('suffix', '')}"
    parts = ["refork", "kernel", "search", str(file)]
    parts += ["--entry", str(problem["entry"])] if problem.get("entry") else []
    given = [str(item) for item in asked.get("set") or []]
    named = {item.partition("=")[0] for item in given}
    sizes = [f"{name}={size}" for name, size in (problem.get("sizes") or {}).items() if name not in named]
    for item in (*given, *sizes):
        parts += ["--set", item]
    usual: dict[str, Any] = KernelSearchSettings().to_json()
    for name in ("evaluations", "seed", "search", "feedback", "batch", "unguided"):
        value = search.part("settings").get(name, usual[name])
        parts += [f"--{name}", str(value)] if name in ("evaluations", "seed") or value != usual[name] else []
    writer = str(search.facts.get("writer"))
    # Of the writer without a model the record's name also holds its settings.
    parts += [] if writer.startswith("rewrite") else ["--writer", writer]
    parts += ["--out", folder]
    return [shlex.join(parts), shlex.join(["refork", "kernel", "report", folder])]
