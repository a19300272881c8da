from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from refork_methods.stance.picture import cells_picture, plane_picture, variance_picture


def interval(value):
    return {"estimate": value, "low": max(value - 0.1, 0), "high": value + 0.1}


def row(cut, mode, value):
    return {"cut": cut, "mode": mode, "v": None if value is None else interval(value), "groups": 8}


def text_of(picture):
    return " ".join(t.strip() for t in ET.fromstring(picture).itertext())


def test_both_modes_the_coin_and_further_thinking_are_drawn():
    rows = [row(0, None, 0.9), row(0.5, "free", 0.8), row(0.5, "force_close", 0.0), row(1.5, "free", None)]
    told = text_of(variance_picture({"cuts": rows}))
    for words in ("a fair coin", "closed by force", "thinking on by force", ["complete", "rollouts"][0]):
        assert words in told
    assert "50\u00a0%: V 0.800 (0.700 to 0.900), 8 groups" in told


def test_a_picture_without_values_is_still_one():
    assert "fair coin" in text_of(variance_picture({"cuts": [row(0, None, None)]}))


def standing(name, asr, orr, verdict):
    return {"name": name, "asr": interval(asr), "orr": interval(orr), "verdict": verdict}


def test_the_plane_names_every_policy_and_what_it_did():
    told = {"base": standing("base", 0.5, 0.3, "slide"), "curve": [[0, 1], [0.5, 0.3], [1, 0]]}
    told["defences"] = [standing(f"d<{v}>", 0.4, 0.31, v) for v in ("slide", "win", "worse")]
    picture = plane_picture(told)
    assert "d<win>: win" in text_of(picture)
    assert "<win>" not in picture


@pytest.mark.parametrize("counts", [(60, 0, 39, 16), (0, 5, 0, 0), (1, 0, 0, 400)])
def test_the_four_cells(counts):
    names = ("locked performative", "locked meaningful", "wavering performative", "wavering meaningful")
    told = {"cells": dict(zip(names, counts, strict=True)), "performative": interval(0.5), "agreement": None}
    words = text_of(cells_picture(told))
    for name, count in zip(names, counts, strict=True):
        assert (f"{name.replace(' ', ', ')}: {count} of {sum(counts)}" in words) == (count > 0)


def test_no_turns_at_all():
    cells = dict.fromkeys(
        ("locked performative", "locked meaningful", "wavering performative", "wavering meaningful"), 0
    )
    assert "No turn of stance was found" in text_of(
        cells_picture({"cells": cells, "performative": None, "agreement": None})
    )
