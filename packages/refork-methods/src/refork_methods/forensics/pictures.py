"""Pictures of a case: rates over the doses of one number, and along the sentences of one trace."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from refork.report.charts import Dot, Figure, Line, Plane, curves
from refork.report.words import one_line
from refork.types import Json
from refork_methods.forensics.case import Case


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
