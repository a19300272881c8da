from __future__ import annotations

import pytest

from refork_methods.stance.picture import cells_figure, plane_figure, variance_figure


def interval(value):
    return {"estimate": value, "low": max(value - 0.1, 0), "high": value + 0.1}


def row(cut, mode, value):
    return {"cut": cut, "mode": mode, "v": None if value is None else interval(value), "groups": 8}


def test_both_modes_the_coin_and_complete_rollouts_are_drawn():
    rows = [row(0, None, 0.9), row(0.5, "free", 0.8), row(0.5, "force_close", 0.0), row(1.5, "free", None)]
    figure = variance_figure({"cuts": rows})
    assert [line for line, *_ in figure.rows] == [
        "closed by force", "thinking on", "complete rollouts", "a fair coin",
    ]  # fmt: skip
    assert figure.rows[1][1:] == ("50\u00a0%", "0.8", "0.7 to 0.9", "8 groups")


def test_a_picture_without_values_is_still_one():
    figure = variance_figure({"cuts": [row(0, None, None)]})
    assert figure.rows[0][0] == "a fair coin"
    assert figure.draw(760)


def standing(name, asr, orr, verdict):
    return {"name": name, "asr": interval(asr), "orr": interval(orr), "verdict": verdict}


def test_the_plane_names_every_policy_and_what_it_did():
    told = {"base": standing("base", 0.5, 0.3, "slide"), "curve": [[0, 1], [0.5, 0.3], [1, 0]]}
    told["defences"] = [standing(f"d<{v}>", 0.4, 0.31, v) for v in ("slide", "win", "worse")]
    figure = plane_figure(told)
    assert [row[:2] for row in figure.rows] == [
        ("base", "base"), ("d<slide>", "slide"), ("d<win>", "win"), ("d<worse>", "worse"),
    ]  # fmt: skip
    assert figure.rows[0][2:5] == ("50\u00a0%", "30\u00a0%", "20 to 40\u00a0%")


@pytest.mark.parametrize("counts", [(60, 0, 39, 16), (0, 5, 0, 0), (1, 0, 0, 400)])
def test_the_four_cells(counts):
    names = ("locked performative", "locked meaningful", "wavering performative", "wavering meaningful")
    told = {"cells": dict(zip(names, counts, strict=True)), "performative": interval(0.5), "agreement": None}
    figure = cells_figure(told)
    assert [row[-1] for row in figure.rows] == [
        f"{name.replace(' ', ', ')}: {count} of {sum(counts)}"
        for name, count in zip(names, counts, strict=True)
    ]


def test_no_turns_at_all():
    cells = dict.fromkeys(
        ("locked performative", "locked meaningful", "wavering performative", "wavering meaningful"), 0
    )
    figure = cells_figure({"cells": cells, "performative": None, "agreement": None})
    assert figure.note == "No turn of stance was found."
