"""The pages of ``refork rot``: a session's audit with its contexts side by side, and a grid's tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup, escape

from refork.report.charts import NARROW, WIDE
from refork.report.page import environment
from refork.report.words import points, rate, span
from refork.types import Json
from refork.visible import visible
from refork_methods.rot.picture import condition_name, conditions_figure, strip

#: Characters of one message that are shown; the middle of a longer one is cut.
_SHOWN = 700
_ACTS = {"refused": "no call", None: ""}
_GRID_WORDS = {"rate": rate, "points": points, "span": span, "condition": condition_name}


def write_audit_page(file: Path, sessions: Sequence[Json]) -> Path:
    """Write the page of audited sessions; each has its audit, its diffs and its rules."""
    page = environment("refork_methods.rot").get_template("rot_audit.html.j2")
    text = page.render(
        sessions=[_session(told) for told in sessions],
        headline=_headline(sessions), acts=_ACTS
    )  # fmt: skip
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text + "\n", encoding="utf-8")
    return file


def write_grid_page(folder: Path, report: Json) -> Path:
    """Write ``report.html`` into a run's folder from its report; where it is."""
    page = environment("refork_methods.rot").get_template("rot_grid.html.j2")
    drawn = [{"setup": one, "figure": conditions_figure(one["table"]).html()} for one in report["setups"]]
    text = page.render(
        told=report, drawn=drawn, headline=_decay_words(report), words=_GRID_WORDS
    )  # fmt: skip
    file = folder / "report.html"
    file.write_text(text + "\n", encoding="utf-8")
    return file


def _session(told: Json) -> Json:
    rules = [rule["rule"] for rule in told["rules"]]
    wide, narrow = (strip(told["calls"], rules, width) for width in (WIDE, NARROW))
    texts = {rule["rule"]: rule["text"] for rule in told["rules"]}
    picture = Markup('<div class="wide">{}</div><div class="narrow">{}</div>').format(wide, narrow)
    diffs = [
        {
            **diff,
            "before": [_line(line, texts) for line in diff["before"]],
            "after": [_line(line, texts) for line in diff["after"]],
        }
        for diff in told["diffs"]
    ]
    return {**told, "picture": picture, "diffs": diffs}


def _line(line: Json, texts: dict[str, str]) -> Json:
    return {**line, "shown": marked(line["text"], [texts[name] for name in line["rules"]])}


def marked(text: str, rules: Sequence[str]) -> Markup:
    """A message's text with the rules in it marked; a long one is cut, but never inside or before a rule."""
    ends = [text.find(rule) + len(rule) for rule in rules if rule in text]
    most = max([_SHOWN, *(end + 80 for end in ends)])
    cut = text if len(text) <= most else text[:most].rstrip() + " …"
    shown = escape(visible(cut))
    for rule in rules:
        # The text is escaped by now, so a rule with a "<" in it is only found in the same form.
        mark = escape(visible(rule))
        shown = Markup(str(shown).replace(str(mark), f"<mark>{mark}</mark>"))
    return shown


def _headline(sessions: Sequence[Json]) -> str:
    lost = sum(rule["lost_at"] is not None for told in sessions for rule in told["rules"])
    broken = sum(bool(rule["violated_at"]) for told in sessions for rule in told["rules"])
    total = sum(len(told["rules"]) for told in sessions)
    if not lost and not broken:
        return "No rule was lost, none was broken"
    return f"{lost} of {total} rules went out of view, {broken} {'was' if broken == 1 else 'were'} broken"


def _decay_words(told: Json) -> str:
    known = [(s["decay"]["all"], s["compactor"]) for s in told["setups"] if s["decay"]["all"] is not None]
    if not known:
        return "No compaction could be compared with its control"
    worst, name = max(known, key=lambda one: one[0]["decay"])
    ends = span(worst["low"], worst["high"], sign=True)
    if worst["low"] <= 0:
        return f"No clear decay: {points(worst['decay'])} of violations with {name} ({ends})"
    return f"Compaction by {name} adds {points(worst['decay']).removeprefix('+')} of violations ({ends})"
