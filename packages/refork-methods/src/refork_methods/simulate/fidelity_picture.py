"""Exact match of simulators by domain, class and depth."""

from __future__ import annotations

from collections.abc import Sequence

from refork.report import palette
from refork.report.charts import Across, Row, intervals
from refork.report.charts import Figure as Picture
from refork.report.words import mean, one_line, span
from refork_methods.simulate.fidelity import Fidelity, Figures

_COLOURS = palette.SERIES[:5]


def fidelity_figure(evaluations: Sequence[Fidelity], measure: str = "exact") -> Picture:
    """Each group of turns and in it each simulator, a dot with its 95 % interval.

    Groups are those of the first simulator; at most five simulators are drawn.
    """
    shown = list(evaluations[: len(_COLOURS)])
    rows = [
        _row(one, colour, kind, name, measure, len(shown) > 1)
        for kind, name in _groups(shown[0])
        for one, colour in zip(shown, _COLOURS, strict=False)
    ]
    title = f"{measure.replace('_', ' ')} match" if measure.startswith("exact") else measure
    across = Across(
        "number", bounds=(0, 1), name="share of turns, with 95 % intervals that count trajectories", step=20,
        key=[(colour, one_line(one.name, 34)) for one, colour in zip(shown, _COLOURS, strict=False)],
    )  # fmt: skip
    found = [row for row in rows if row is not None]
    return intervals(found, name=f"Next observation: {title}", across=across, value="Share")


def _groups(one: Fidelity) -> list[tuple[str, str]]:
    found = [("", "all turns")]
    if len(one.domains) > 1:
        found.append(("", "mean of domains"))
        found += [("domain", name) for name in one.domains]
    found += [("class", name) for name in one.classes]
    return found + [("turn", name) for name in one.depths]


def _figures(one: Fidelity, kind: str, name: str) -> Figures:
    if not kind:
        return one.micro if name == "all turns" else one.macro
    return {"domain": one.domains, "class": one.classes, "turn": one.depths}[kind].get(name, {})


def _row(one: Fidelity, colour: str, kind: str, name: str, measure: str, several: bool) -> Row | None:
    found = _figures(one, kind, name).get(measure)
    if found is None:
        return None
    label = f"{kind} {name}".strip() + (f", {one_line(one.name, 20)}" if several else "")
    text = f"{mean(found.estimate)}  ({span(found.low, found.high, 'mean')})"
    return Row(label, found.estimate, found.low, found.high, text, colour, tooltip=f"{found.n} turns")
