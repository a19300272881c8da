"""The report as one HTML file that needs no network."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import final

from jinja2 import Environment
from markupsafe import Markup

from refork.report import words
from refork.report.charts import NARROW, WIDE, Figure
from refork.report.page import environment
from refork.types import Json
from refork_methods.kernel.report import sentences as says
from refork_methods.kernel.report.diff import Change, change
from refork_methods.kernel.report.figures import Figures, gain_over
from refork_methods.kernel.report.folder import Node, Search
from refork_methods.kernel.report.pictures import progress_figure, roofline_figure
from refork_methods.kernel.report.tree_picture import (
    FAILED,
    Row,
    name_of,
    told_of,
    tree_picture,
    tree_rows,
)

#: Lines of a kernel's difference to its parent, and characters of all of them together.
PANEL_LINES, PANEL_TEXT = 80, 1_200_000
#: Characters of what a compiler or a writer said.
OUTPUT_CHARACTERS = 1200

_TEMPLATES = "refork_methods.kernel.report"


@final
@dataclass(frozen=True, slots=True)
class Panel:
    """What is shown of one kernel: how it did in words, and what changed against its parent.

    ``flags``: the compiler's, where they are not the parent's.
    """

    node: Node
    name: str
    detail: str
    gain: float | None
    failed: str
    output: str
    change: Change | None
    flags: str


def render(search: Search, report: Figures) -> str:
    """The page as one HTML text; equal data give equal bytes."""
    script = files(_TEMPLATES).joinpath("templates", "report.js").read_text(encoding="utf-8").strip()
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rows = tree_rows(search.nodes, report.path)
    page = _environment().get_template("report.html.j2").render(
        t=report, search=search, script=Markup(script), digest=digest, rows=rows,
        **_drawn(search, report, rows)
    )  # fmt: skip
    return page + "\n"


def _drawn(search: Search, told: Figures, rows: Sequence[Row]) -> Json:
    noise = None if search.ceilings is None else search.ceilings.noise
    best = None if told.best is None else search.by_number[told.best]
    return {
        "headline": says.headline(told),
        "standing": says.standing(told),
        "tried": says.tried(told),
        "timing": says.timing_rows(search, told),
        "roofline": _html(roofline_figure(search, told.path or (0,))),
        "no_roofline": says.no_roofline(search, told),
        "roof_words": says.roof_words(search, told),
        "progress": _html(progress_figure(search)),
        "tree": _both(lambda width: tree_picture(rows, told.path, noise, width)) if rows else None,
        "folded": sum(row.folded for row in rows),
        "panels": panels(search, rows),
        "best_change": change(search.nodes[0].source, best.source) if best else None,
        "best_flags": (search.nodes[0].flags, best.flags) if best else ((), ()),
        "way": [search.by_number[number] for number in told.path],
        "machine": says.machine(search),
        "settings": words.flat(search.settings),
        "problem": says.problem(search),
        "commands": says.commands(search),
    }


def panels(search: Search, rows: Sequence[Row]) -> list[Panel]:
    """A panel for each row of the tree, in the tree's order."""
    left = PANEL_TEXT
    found = []
    for row in rows:
        if row.node is None:
            continue
        node = row.node
        parent = None if node.parent is None else search.by_number[node.parent]
        changed = None
        if parent is not None and left > 0:
            changed = change(parent.source, node.source, PANEL_LINES, 2)
            left -= sum(len(line.text) + 40 for line in changed.lines) if changed else 0
        found.append(
            Panel(
                node,
                name_of(node),
                told_of(node),
                None if parent is None else gain_over(parent, node),
                "" if node.evaluated.ok else FAILED[node.evaluated.stage],
                _short(node.evaluated.why),
                changed,
                "" if parent is None or parent.flags == node.flags else " ".join(node.flags),
            )
        )
    return found


def _short(text: str) -> str:
    return text if len(text) <= OUTPUT_CHARACTERS else text[:OUTPUT_CHARACTERS] + " …"


@cache
def _environment() -> Environment:
    env = environment(_TEMPLATES)
    for name in ("times", "times_span", "short_time", "scientific", "counted"):
        env.filters[name] = getattr(words, name)
    env.filters["short"] = _short
    env.filters["name_of"] = name_of
    env.globals["failed_words"] = FAILED
    return env


def _html(figure: Figure | None) -> Markup | None:
    return None if figure is None else figure.html()


def _both(draw: Callable[[int], Markup]) -> Markup:
    """A picture for a wide page and one for a narrow page; the style sheet shows one of them."""
    parts = [(name, draw(width)) for name, width in (("wide", WIDE), ("narrow", NARROW))]
    return Markup("").join(Markup('<div class="{}">{}</div>').format(name, drawn) for name, drawn in parts)
