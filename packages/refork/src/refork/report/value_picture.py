"""The chance of success along the tokens of the swept run."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from refork.report.data import Token, Trace
from refork.report.palette import shade
from refork.report.pictures import WIDE, Frame, band, rate_axis
from refork.report.svg import label, line, num, path, runs, svg, tag, ticks
from refork.report.words import count, one_line, rate, span, token_text


def policy_tokens(trace: Trace) -> list[tuple[int, Token]]:
    """The tokens of the trace with the step each belongs to, in order."""
    return [(i, token) for i, step in enumerate(trace.steps) for token in step.tokens]


def value_chart(trace: Trace, width: int = WIDE) -> Markup:
    """Chance of success before each token, with its interval band and the cliff marked."""
    tokens = policy_tokens(trace)
    wide = width >= WIDE
    slot = (width - 96) / max(1, len(tokens))
    worded = wide and slot >= 12.5
    frame = Frame(52, width - 44, 34, 216, 0, max(1, len(tokens)))
    drawn = rate_axis(frame, (0, 0.25, 0.5, 0.75, 1) if wide else (0, 0.5, 1))
    drawn += _turns(tokens, frame)
    xs = [frame.x(i) for i in range(len(tokens))]
    drawn += band(xs, [(t.low, t.high) for _, t in tokens], frame)
    cliff, told = _cliff(trace, tokens, frame)
    values = [t.value for _, t in tokens]
    drawn += cliff
    known = [(xs[i], frame.y(value)) for i, value in enumerate(values) if value is not None]
    drawn.append(tag("path", d=path(known), class_="over-gaps"))
    for run in runs(values):
        drawn.append(
            tag("path", d=path([(xs[i], frame.y(values[i] or 0)) for i in run]), class_="curve thin")
        )
    for i, (_, token) in enumerate(tokens):
        drawn.append(_value_dot(token, xs[i], frame, min(4.0, max(1.5, slot / 3))))
    drawn += _ending(trace, values, frame) + told
    drawn += _token_axis(trace, tokens, frame, slot, worded)
    height = 296 if worded else 250
    return svg(
        width, height, "Chance of success before each token of the failed run", *drawn, class_="values"
    )


def _value_dot(token: Token, x: float, frame: Frame, radius: float) -> Markup:
    told = f"before “{token_text(token.text)}”: {rate(token.value)} ({span(token.low, token.high)})"
    if token.n is not None:
        told += f", {count(token.n)} draws"
    if token.value is None:
        return tag("circle", tag("title", told), cx=x, cy=frame.bottom, r=1, class_="dot-none")
    return tag(
        "circle",
        tag("title", told),
        cx=x,
        cy=frame.y(token.value),
        r=radius,
        class_=f"pt {shade(token.value)}",
    )


def _turns(tokens: Sequence[tuple[int, Token]], frame: Frame) -> list[Markup]:
    """A hairline where one turn of the policy ends and the next begins."""
    edges = [i for i in range(1, len(tokens)) if tokens[i][0] != tokens[i - 1][0]]
    return [line(frame.x(i), frame.top, frame.x(i), frame.bottom, "turn") for i in edges]


def _cliff(
    trace: Trace, tokens: Sequence[tuple[int, Token]], frame: Frame
) -> tuple[list[Markup], list[Markup]]:
    """The slot of the cliff token (behind the line) and its words (before it)."""
    cliff = trace.cliff
    at = next((i for i, (_, t) in enumerate(tokens) if cliff and t.index == cliff.token_index), None)
    if cliff is None or at is None:
        return [], []
    left, right = frame.x(at), frame.x(at + 1)
    middle = (left + right) / 2
    shadow = tag(
        "rect", x=left, y=frame.top, width=right - left, height=frame.bottom - frame.top, class_="cliff-slot"
    )
    words = f"“{one_line(token_text(cliff.text), 16)}”  {rate(cliff.before)} → {rate(cliff.after)}"
    half = 3.6 * len(words)
    x = min(max(middle, frame.left + half - 30), frame.right - half + 34)
    arrow = path(
        [(middle - 5, frame.top - 9), (middle + 5, frame.top - 9), (middle, frame.top - 2)], close=True
    )
    return [shadow], [
        label(x, frame.top - 16, words, class_="cliff-text mid"),
        tag("path", d=arrow, class_="cliff-arrow"),
    ]


def _ending(trace: Trace, values: Sequence[float | None], frame: Frame) -> list[Markup]:
    """The recorded outcome after the last token, joined by a dotted line."""
    if trace.outcome is None:
        return []
    x, y = frame.right, frame.y(min(1.0, max(0.0, trace.outcome)))
    drawn: list[Markup] = []
    if values and values[-1] is not None:
        drawn.append(line(frame.x(len(values) - 1), frame.y(values[-1]), x, y, "to-end"))
    drawn.append(tag("circle", cx=x, cy=y, r=8, class_=f"outcome {shade(trace.outcome)}"))
    drawn.append(label(x, y + 4, "✓" if trace.outcome >= 0.5 else "✗", class_="outcome-sign mid"))
    drawn.append(label(x + 14, y + 4, "end", class_="tick"))
    return drawn


def _token_axis(
    trace: Trace, tokens: Sequence[tuple[int, Token]], frame: Frame, slot: float, worded: bool
) -> list[Markup]:
    if not worded:
        marks = [m for m in ticks(0, len(tokens), 6) if m == int(m) and m < len(tokens)]
        drawn = [label(frame.x(m), frame.bottom + 18, f"{m:.0f}", class_="tick mid") for m in marks]
        return [*drawn, label((frame.left + frame.right) / 2, frame.bottom + 33, "tokens", class_="tick mid")]
    drawn = []
    for i, (_, token) in enumerate(tokens):
        x, y = frame.x(i) + slot / 2, frame.bottom + 10
        here = trace.cliff is not None and token.index == trace.cliff.token_index
        drawn.append(
            label(
                x,
                y,
                one_line(token_text(token.text), 11),
                class_="word strong" if here else "word",
                transform=f"rotate(-58 {num(x)} {num(y)})",
            )
        )
    return drawn
