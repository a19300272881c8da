"""The page of a probe run: the areas under their ceilings, the separability curve, the prompt sweep."""

from __future__ import annotations

from pathlib import Path

from refork.report.page import environment
from refork.types import Json
from refork_methods.probe.picture import areas_figure, curve_figure, sweep_figure

_NAMES = {
    "last_prompt": "last prompt token",
    "first_thinking": "first thinking token",
    "text_control": "its text alone",
}


def write_page(folder: Path, report: Json) -> Path:
    """Write ``report.html`` into a run's folder from its report; where it is."""
    rows = [
        (_NAMES[name] if group == "pooled" else "", group, part)
        for name, probe in report["probes"].items()
        if probe["pooled"]
        for group, part in {"pooled": probe["pooled"], **probe["within"]}.items()
    ]
    curve, sweep = report["curve"], report["sweep"]
    page = environment("refork_methods.probe").get_template("probe.html.j2")
    text = page.render(
        told=report,
        headline=_headline(report["probes"]),
        areas=areas_figure(rows).html(),
        curve=curve_figure(curve).html() if curve else None,
        curve_words=curve_words(curve) if curve else "",
        sweep=sweep_figure(sweep).html() if sweep else None,
        left_out=[
            (_NAMES[name], group, reason)
            for name, probe in report["probes"].items()
            for group, reason in probe["left_out"].items()
        ],
    )
    file = folder / "report.html"
    file.write_text(text + "\n", encoding="utf-8")
    return file


def _headline(probes: Json) -> str:
    """What the last prompt token tells, of what there is to tell."""
    leaking = [
        _NAMES[name]
        for name, probe in probes.items()
        if probe["pooled"] and any(part["leak"] for part in (probe["pooled"], *probe["within"].values()))
    ]
    if leaking:
        return f"An AUROC beats its ceiling: {', '.join(leaking)}. The outcome leaks into the states."
    part = probes["last_prompt"]["pooled"]
    limit = part["ceiling"]
    if limit is None:
        return f"Before any thinking the outcome is read with an AUROC of {part['auroc']:.2f}"
    return (
        f"Before any thinking the outcome is read with an AUROC of {part['auroc']:.2f}, "
        f"of {limit['estimate']:.2f} that are possible"
    )


def curve_words(curve: Json) -> str:
    """What a report's separability curve shows, in sentences."""
    above = curve["above"]
    beyond = sum(value > curve["ever"] for value in above)
    told = (
        f"{beyond} of {len(above)} positions lie above what {curve['permutations']} permutations reach "
        f"anywhere in 5 % of cases ({curve['traces']} traces, {curve['reading']})."
    )
    valley = curve["valley"]
    if valley is None or not valley["real"]:
        return f"{told} No valley: on prompts that did not choose its place, no dip is deeper than noise."
    return (
        f"{told} The dip is real on prompts that did not choose its place; "
        f"{valley['recovery']:.0%} of the fall is regained by the end."
    )
