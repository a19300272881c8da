"""The chance of success along the tokens of the swept run."""

from __future__ import annotations

from typing import Any

from refork.report import palette
from refork.report.charts import WARM, WIDE, Figure, altair, axis, data, runs
from refork.report.data import Token, Trace
from refork.report.words import count, one_line, rate, span, token_text
from refork.types import Json

_INK, _SOFT, _RULE = (palette.ROLES[name] for name in ("ink", "soft", "rule"))


def policy_tokens(trace: Trace) -> list[tuple[int, Token]]:
    """The tokens of the trace with the step each belongs to, in order."""
    return [(i, token) for i, step in enumerate(trace.steps) for token in step.tokens]


def value_figure(trace: Trace) -> Figure:
    """Chance of success before each token, with its interval band and the cliff marked."""
    cliff = trace.cliff
    rows = tuple(
        (
            str(token.index), token_text(token.text), rate(token.p), rate(token.value),
            span(token.low, token.high), count(token.n),
            "cliff" if cliff is not None and token.index == cliff.token_index else "",
        )
        for _, token in policy_tokens(trace)
    )  # fmt: skip
    columns = ("#", "Token", "Probability", "Success before it", "Interval", "Draws", "")
    name = "Chance of success before each token of the failed run"
    return Figure(name, columns, rows, lambda width: _draw(trace, width))


def _rows(trace: Trace) -> list[Json]:
    tokens = [token for _, token in policy_tokens(trace)]
    cliff = None if trace.cliff is None else trace.cliff.token_index
    rows: list[Json] = []
    pieces = {i: n for n, run in enumerate(runs([t.value for t in tokens])) for i in run}
    for i, token in enumerate(tokens):
        told = f"before “{token_text(token.text)}”: {rate(token.value)} ({span(token.low, token.high)})"
        told += "" if token.n is None else f", {count(token.n)} draws"
        ranged = token.low is not None and token.high is not None
        rows.append({
            "i": i, "middle": i + 0.5, "next": i + 1, "value": token.value, "run": pieces.get(i),
            "low": token.low if ranged else None, "high": token.high if ranged else None, "told": told,
            "word": one_line(token_text(token.text), 11), "cliff": token.index == cliff,
            "colour": palette.colour(token.value),
        })  # fmt: skip
    return rows


def _draw(trace: Trace, width: int) -> Any:
    alt = altair()
    rows = _rows(trace)
    slot = (width - 96) / max(1, len(rows))
    worded = width >= WIDE and slot >= 12.5
    numbers = axis("number", width, "tokens", tickMinStep=1)
    along = alt.Axis(labels=False, title=None) if worded else numbers
    scale = alt.Scale(domain=[0, max(1, len(rows))], nice=False)
    marks = [0, 0.25, 0.5, 0.75, 1] if width >= WIDE else [0, 0.5, 1]
    y = {"axis": axis("rate", width, None, values=marks), "scale": alt.Scale(domain=[0, 1])}
    base = alt.Chart(data(rows))

    def at(field: str) -> Any:
        return alt.X(f"{field}:Q", axis=along, scale=scale)

    layers = [_turns(trace).encode(x=at("i")), *_slot(trace, rows, width, at)]
    band = base.transform_filter("isValid(datum.low)").mark_area(opacity=0.16, color=_SOFT, aria=False)
    layers.append(band.encode(x=at("i"), y=alt.Y("low:Q", **y), y2="high:Q", detail="run:N"))
    known = base.transform_filter("isValid(datum.value)")
    gaps = known.mark_line(strokeDash=[2, 3], strokeWidth=1, color=_SOFT, opacity=0.55, aria=False)
    layers.append(gaps.encode(x=at("i"), y=alt.Y("value:Q", **y)))
    curve = known.mark_line(strokeWidth=1.5, color=_SOFT, aria=False)
    layers.append(curve.encode(x=at("i"), y=alt.Y("value:Q", **y), detail="run:N"))
    radius = min(4.0, max(1.5, slot / 3))
    dots = known.mark_point(filled=True, size=3.15 * radius**2, opacity=1)
    shade = alt.Color("colour:N", scale=None)
    layers.append(dots.encode(x=at("i"), y=alt.Y("value:Q", **y), color=shade, description="told:N"))
    layers += _ending(trace, rows, y, at)
    if worded:
        for here, colour, weight in ((False, _SOFT, "normal"), (True, WARM, "bold")):
            words = base.transform_filter(f"datum.cliff == {str(here).lower()}").mark_text(
                angle=302, align="right", fontSize=11, font="monospace", color=colour, fontWeight=weight,
                aria=False,
            )  # fmt: skip
            layers.append(
                words.encode(x=at("middle"), y=alt.value("height"), yOffset=alt.value(10), text="word:N")
            )
    return alt.layer(*layers).properties(height=190)


def _turns(trace: Trace) -> Any:
    """A hairline where one turn of the policy ends and the next begins."""
    steps = [step for step, _ in policy_tokens(trace)]
    edges = [{"i": i} for i in range(1, len(steps)) if steps[i] != steps[i - 1]]
    return altair().Chart(data(edges)).mark_rule(strokeDash=[2, 4], color=_RULE, aria=False)


def _slot(trace: Trace, rows: list[Json], width: int, at: Any) -> list[Any]:
    """The place of the cliff token, with its words above."""
    alt = altair()
    found = [row for row in rows if row["cliff"]]
    cliff = trace.cliff
    if cliff is None or not found:
        return []
    words = f"“{one_line(token_text(cliff.text), 16)}”  {rate(cliff.before)} → {rate(cliff.after)}"
    # The words stay inside the picture where the cliff is near an end of it.
    share = found[0]["i"] / max(1, len(rows))
    half = 3.6 * len(words) / width
    align = "left" if share < half else "right" if share > 1 - half else "center"
    one = alt.Chart(data([{**found[0], "words": words}]))
    return [
        one.mark_rect(color=WARM, opacity=0.15, aria=False).encode(x=at("i"), x2="next:Q"),
        one.mark_text(
            dy=-16, align=align, fontSize=13, fontWeight=600, color=_INK, aria=False
        ).encode(x=at("middle"), y=alt.value(0), text="words:N"),
        one.mark_point(
            shape="triangle-down", filled=True, color=WARM, size=40, opacity=1, aria=False, yOffset=-5
        ).encode(x=at("middle"), y=alt.value(0)),
    ]  # fmt: skip


def _ending(trace: Trace, rows: list[Json], y: Json, at: Any) -> list[Any]:
    """The recorded outcome after the last token, joined by a dotted line."""
    alt = altair()
    if trace.outcome is None:
        return []
    outcome = min(1.0, max(0.0, trace.outcome))
    end = {"i": len(rows), "value": outcome, "sign": "✓" if outcome >= 0.5 else "✗"}
    layers = []
    if rows and rows[-1]["value"] is not None:
        way = alt.Chart(data([rows[-1], end])).mark_line(
            strokeDash=[2, 3], color=_SOFT, strokeWidth=1, aria=False
        )
        layers.append(way.encode(x=at("i"), y=alt.Y("value:Q", **y)))
    place = {"x": at("i"), "y": alt.Y("value:Q", **y)}
    one = alt.Chart(data([end]))
    colour = palette.colour(outcome)
    layers.append(one.mark_point(filled=True, size=200, opacity=1, color=colour, aria=False).encode(**place))
    layers.append(
        one.mark_text(fontSize=11, fontWeight=700, color="#fff", aria=False).encode(text="sign:N", **place)
    )
    layers.append(
        one.mark_text(dx=14, align="left", color=_SOFT, aria=False).encode(text=alt.value("end"), **place)
    )
    return layers
