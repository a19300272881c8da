"""Pictures of a case's runs, written into its folder."""

from __future__ import annotations

from pathlib import Path

from refork.types import Json
from refork_methods.forensics.case import Case
from refork_methods.forensics.dose_picture import Mark, dose_picture, profile_picture

#: Scores whose p, corrected for all sentences of the trace, is at most this are coloured.
SURE = 0.05


def write_dose(folder: Path, case: Case, row: Json) -> Path:
    """The rates of a dose-response with its band and every predicted curve; where it is."""
    arms = row["arms"]
    marks = [Mark(a["dose"], a["rate"], a["low"], a["high"], f"{a['hits']}/{a['runs']}") for a in arms]
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
    file.write_text(dose_picture(marks, title, below, predicted) + "\n", encoding="utf-8")
    return file


def write_profile(folder: Path, told: Json) -> Path:
    """The rates and scores along one rollout; where it is."""
    prefixes = [
        Mark(i, p["rate"], p["low"], p["high"], f"{p['hits']}/{p['runs']}" if p["forks"] else "(its own end)")
        for i, p in enumerate(told["prefixes"])
    ]
    scores = [
        Mark(i, s["score"], s["low"], s["high"], sure=s["p_holm"] is not None and s["p_holm"] <= SURE)
        for i, s in enumerate(told["sentences"])
    ]
    texts = [str(s["text"]) for s in told["sentences"]]
    title = f"Sentence resampling of rollout {told['trace'][:12]}, {told['k']} continuations of every prefix"
    file = folder / f"resample-{told['trace'][:12]}.svg"
    file.write_text(profile_picture(prefixes, scores, texts, title) + "\n", encoding="utf-8")
    return file
