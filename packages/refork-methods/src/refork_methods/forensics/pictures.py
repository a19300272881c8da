"""Pictures of a case: rates over the doses of one number, and along the sentences of one trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from refork.report import palette
from refork.report.charts import Across, Dot, Figure, Line, Plane, Row, curves, intervals
from refork.report.words import one_line, points
from refork.types import Json
from refork_methods.forensics.case import Case

#: Scores whose p, corrected for all sentences of the trace, is at most this are coloured.
SURE = 0.05


def dose_figure(
    arms: Sequence[Json],
    title: str,
    below: str,
    predicted: Sequence[tuple[str, Sequence[tuple[float, float]]]],
) -> Figure:
    """The rate at every dose with its Wilson band, and predicted curves as broken lines.

    ``arms`` hold dose, rate, low, high, hits and runs; ``below`` names the dose; ``predicted`` are a name
    and (dose, rate) points for each hypothesis.
    """
    own = sorted(
        (Dot(a["dose"], a["rate"], a["low"], a["high"], f"{a['hits']}/{a['runs']}") for a in arms),
        key=lambda dot: dot.x,
    )
    lines = [Line("measured, 95 % Wilson band", own, whiskers=True)]
    lines += [
        Line(one_line(f"predicted: {name}", 60), [Dot(x, y) for x, y in curve], dashed=True, marks=False)
        for name, curve in predicted
    ]
    return curves(lines, name=one_line(title, 96), plane=Plane(below, "rate", bottom=0.0))


def profile_figure(profile: Json) -> Figure:
    """The rate of the action at every prefix of a trace, and below how much each sentence changes it."""
    before = [
        Dot(i, p["rate"], p["low"], p["high"], f"{p['hits']}/{p['runs']}" if p["forks"] else "its own end")
        for i, p in enumerate(profile["prefixes"])
    ]
    trace, runs = profile["trace"][:12], profile["k"]
    title = f"Sentence resampling of rollout {trace}, {runs} continuations of every prefix"
    plane = Plane("sentences kept", "rate of the action behind them", bottom=0.0, top=1.0)
    rates = curves([Line("rate", before, colour=palette.LIGHT[-1])], name=title, plane=plane)
    rows = [_sentence(i, one) for i, one in enumerate(profile["sentences"])]
    across = Across("points", zero="no change", step=26)
    return replace(
        rates, more=(intervals(rows, name="Change by each sentence", across=across, value="Score"),)
    )


def _sentence(number: int, one: Json) -> Row:
    sure = one["p_holm"] is not None and one["p_holm"] <= SURE
    score = one["score"]
    colour = palette.LIGHT[5] if not sure or score is None else palette.LIGHT[0 if score > 0 else -1]
    text = "not graded" if score is None else points(score)
    words = str(one["text"]).strip() or "(no text)"
    return Row(
        f"{number + 1}  {one_line(words, 46)}",
        score,
        one["low"],
        one["high"],
        text,
        colour,
        tooltip=one_line(words, 300),
    )


def write_dose(folder: Path, case: Case, row: Json) -> Path:
    """The rates of a dose-response with its band and every predicted curve; where it is."""
    arms = row["arms"]
    doses = {a["name"]: a["dose"] for a in arms}
    predicted = [
        (h.name, sorted((doses[name], rate) for name, rate in (p.rates or {}).items()))
        for h in case.hypotheses
        for p in h.predictions
        if p.design == row["id"] and p.rates and set(p.rates) <= set(doses)
    ]
    z = next((r for r in row["results"] if r["quantity"] == "trend"), None)
    words = "" if z is None else f": trend z = {z['estimate']:.1f}"
    title = f"{case.incident.target.action}{words}"
    below = str(arms[0]["name"]).partition("=")[0]
    file = folder / f"sweep-{row['id'][:12]}.svg"
    file.write_text(dose_figure(arms, title, below, predicted).svg(), encoding="utf-8")
    return file


def write_profile(folder: Path, report: Json) -> Path:
    """The rates and scores along one rollout; where it is."""
    file = folder / f"resample-{report['trace'][:12]}.svg"
    file.write_text(profile_figure(report).svg(), encoding="utf-8")
    return file
