"""The demo's report: one HTML file that needs no network, drawn from plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from refork.report import palette, sentences, words
from refork.report.charts import ACCENT, Across, Dot, Figure, Line, Plane, Row, curves, intervals
from refork.report.data import EffectData, RateData
from refork.report.diff import short_pieces
from refork.report.page import environment
from refork.report.value_chart import policy_tokens, value_figure
from refork.types import Json
from refork_testbed.demo.data import CurvePoint, ReportData, TreeData, TreeNode
from refork_testbed.demo.tree_layout import children_of
from refork_testbed.demo.tree_picture import tree_picture


def render(data: ReportData) -> str:
    """The page as one HTML text; equal data give equal bytes.

    Raises: BadInput for tree nodes that are no tree.
    """
    page = environment("refork_testbed.demo").get_template("report.html.j2").render(d=data, **_drawn(data))
    return page + "\n"


def _drawn(data: ReportData) -> Json:
    """Everything the template does not work out itself: pictures, sentences and tables."""
    return {
        "headline": sentences.headline(data.before, data.after, data.gain) or data.title,
        "minute": list(_minute(data)),
        "result": _result(data),
        "curve": _curve(data),
        "curve_words": curve_sentence(data.curve),
        "tree": tree_picture(data.tree.nodes) if data.tree and data.tree.nodes else None,
        "tree_rows": list(_indented(data.tree)) if data.tree else [],
        "cliff_words": sentences.cliff_sentence(data.trace.cliff if data.trace else None),
        "tokens": policy_tokens(data.trace) if data.trace else [],
        "values": _values(data),
        "arms": _arms(data.effect) if data.effect else None,
        "forest": _forest(data.effect) if data.effect else None,
        "effect_words": sentences.effect_sentence(data.effect) if data.effect else "",
        "pairing": sentences.pairing_sentence(data.effect) if data.effect else "",
        "diff": short_pieces(data.effect.before_text, data.effect.after_text) if data.effect else ((), ()),
        "bars": _bars(data),
        "notes": {
            "Policy": dict(_flat(data.policy)),
            "Settings": dict(_flat(data.settings)),
            "Versions": dict(_flat(data.versions)),
        },
    }


def _minute(data: ReportData) -> Iterator[tuple[str, str, str]]:
    """What happened, in three sentences at most: anchor, heading, sentence."""
    if data.trace is not None and data.trace.cliff is not None:
        said = f"One failed run was swept. {sentences.cliff_sentence(data.trace.cliff)}"
        yield "trace" if data.trace.steps else "headline", "Where it was lost", said
    if data.effect is not None:
        yield "effect", "What the change does", sentences.effect_sentence(data.effect)
    if data.before is not None and data.after is not None:
        anchor = "headline" if all(p.success is None for p in data.curve) else "curve"
        yield anchor, "What training made of it", sentences.gain_sentence(data.before, data.after, data.gain)


def _row(name: str, rate: RateData, scale: str = "rate") -> Row:
    ends = f"  ({words.span(rate.low, rate.high, scale)})" if rate.low is not None else ""
    text = words.value_of(rate.rate, scale) + ends
    colour = palette.colour(rate.rate) if scale == "rate" else palette.ROLES["ink"]
    return Row(name, rate.rate, rate.low, rate.high, text, colour)


def _result(data: ReportData) -> Markup | None:
    """Before and after on one axis."""
    if data.before is None or data.after is None or data.before.rate is data.after.rate is None:
        return None
    rows = [_row("before training", data.before), _row("after training", data.after)]
    name = "Success on held-out tasks before and after training, with intervals"
    return intervals(rows, name=name, across=Across(bounds=(0, 1)), value="Success").html()


def _arms(effect: EffectData) -> Markup:
    """The two arms on one axis."""
    scale = effect.unit
    rows = [_row("control", effect.base, scale), _row("with the change", effect.other, scale)]
    across = Across(bounds=(0, 1)) if scale == "rate" else Across("number")
    name = f"{effect.score} of the control and of the change, with intervals"
    return intervals(rows, name=name, across=across, value=effect.score).html()


def _forest(effect: EffectData) -> Markup:
    """The difference on an axis through zero."""
    scale = effect.unit
    ends = f"  ({words.span(effect.low, effect.high, scale, sign=True)})" if effect.low is not None else ""
    text = words.change_of(effect.difference, scale) + ends
    row = Row("difference", effect.difference, effect.low, effect.high, text)
    name = "Difference between the arms with its interval; zero means no effect"
    across = Across("points" if scale == "rate" else "number", zero="no effect")
    return intervals([row], name=name, across=across, value="Difference").html()


def curve_figure(curve: Sequence[CurvePoint]) -> Figure | None:
    """Success over updates with its interval; None where nothing was measured."""
    if all(point.success is None for point in curve):
        return None
    dots = []
    for p in curve:
        sampled = f"{words.count(p.tokens)} tokens sampled" if p.tokens is not None else ""
        dots.append(Dot(p.update, p.success, p.low, p.high, "; ".join(filter(None, (sampled, p.note)))))
    line = Line("success", dots, colour=ACCENT)
    name = "Success on held-out tasks after each update"
    return curves([line], name=name, plane=Plane("updates", "success", bottom=0.0), last=True)


def _curve(data: ReportData) -> Markup | None:
    figure = curve_figure(data.curve)
    return None if figure is None else figure.html()


def curve_sentence(curve: tuple[CurvePoint, ...]) -> str:
    """How far the curve came, in one line."""
    known = [point for point in curve if point.success is not None]
    if not known:
        return "Success was not measured between updates."
    first, last = known[0], known[-1]
    return (
        f"From {words.rate(first.success)} at update {first.update} "
        f"to {words.rate(last.success)} at update {last.update}. "
        f"The band is the 95{words.NBSP}% interval of each measurement."
    )


def _values(data: ReportData) -> Figure | None:
    trace = data.trace
    if trace is None or not any(token.value is not None for step in trace.steps for token in step.tokens):
        return None
    return value_figure(trace)


def _indented(tree: TreeData) -> Iterator[tuple[int, TreeNode]]:
    """The tree as table rows, depth first, with how deep each lies."""
    children = children_of(tree.nodes)
    # What is put on last is taken off first, so siblings go on in reverse.
    todo = [(0, node) for node in reversed(children.get(None, []))]
    while todo:
        depth, node = todo.pop()
        yield depth, node
        todo.extend((depth + 1, child) for child in reversed(children.get(node.id, [])))


def _bars(data: ReportData) -> list[tuple[float, float]]:
    """Start and width of each stage in percent of the whole time."""
    lengths = [stage.seconds or 0.0 for stage in data.stages]
    whole = sum(lengths) or 1.0
    return [(100 * sum(lengths[:i]) / whole, 100 * length / whole) for i, length in enumerate(lengths)]


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as dotted names and short texts; a dash for None."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", words.DASH if value is None else str(value)
