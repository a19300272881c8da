from __future__ import annotations

import xml.etree.ElementTree as ET

from refork_methods.forensics.dose_picture import Mark, dose_picture, profile_picture


def drawn(text):
    return ET.fromstring(text)


def texts(root):
    return ["".join(t.itertext()) for t in root.iter("{http://www.w3.org/2000/svg}text")]


def test_doses_bands_and_predictions_are_drawn():
    marks = [Mark(0, 0.0, 0.0, 0.04, "0/100"), Mark(50, 0.1, 0.05, 0.2, "10/100"), Mark(90, None, None, None)]
    root = drawn(dose_picture(marks, "A & B", "errors", [("tedium", [(0, 0.0), (90, 0.2)])]))
    assert root.get("aria-label") == "A & B"
    told = texts(root)
    assert {"0", "50", "90", "errors", "predicted: tedium", "0/100"} <= set(told)
    dashed = [e for e in root.iter() if e.get("stroke-dasharray")]
    assert len(dashed) == 2, "the curve and its place in the legend"
    assert len(list(root.iter("{http://www.w3.org/2000/svg}circle"))) == 2, (
        "what was never computed has no dot"
    )


def test_many_doses_do_not_write_over_each_other():
    marks = [Mark(i, 0.5, 0.4, 0.6, f"{i}/9") for i in range(60)]
    told = [t for t in texts(drawn(dose_picture(marks, "t", "x"))) if t.isdigit()]
    assert 10 < len(told) < 20


def test_a_profile_has_a_row_for_every_sentence():
    prefixes = [Mark(0, 0.2, 0.1, 0.3), Mark(1, None, None, None), Mark(2, 1.0, 1.0, 1.0, "(its own end)")]
    scores = [Mark(0, None, None, None), Mark(1, 0.8, 0.6, 0.9, sure=True)]
    root = drawn(profile_picture(prefixes, scores, ["<one>", "two " * 40], "profile"))
    told = texts(root)
    assert any(t.startswith("<one>") for t in told)
    assert "not graded" in told
    assert any(t.endswith("…") for t in told), "long sentences are cut"
    assert "100% (its own end)" in told
    bars = [e for e in root.iter("{http://www.w3.org/2000/svg}rect") if e.get("fill-opacity")]
    assert len(bars) == 1
