from __future__ import annotations

import pytest

from gate.gate_problems import NEAR_ORACLE, model
from refork_methods.gate.answers import family, map_json
from refork_methods.gate.model import Prices
from refork_methods.gate.pictures import regime_figure


@pytest.fixture(scope="module")
def found():
    return map_json(model(), Prices(), xs="0.3,0.6,0.9", ys="1,30,60", verify="retry")[0]


def test_every_cell_is_shown_and_the_present_problem_framed(found):
    figure = regime_figure(found, "A <title> & more", (0.6, 30))
    assert figure.columns[:3] == ("price of the verifier", "prior chance that a candidate is right", "Cell")
    assert len(figure.rows) == 9
    assert figure.rows[0][:2] == ("60", "0.3"), "the highest price is on top"
    assert [row[2] for row in figure.rows].count("v") == 3
    assert "4.6" in [row[2] for row in figure.rows]
    assert [row["x"] for row in framed(figure)] == ["0.6"]


def framed(figure):
    sets = figure.draw(760).to_dict()["datasets"].values()
    return [row for rows in sets for row in rows if row.get("framed")]


@pytest.mark.parametrize("here", [None, (0.6, 95), (0.01, 30)])
def test_a_problem_outside_the_map_has_no_frame(found, here):
    assert framed(regime_figure(found, "map", here)) == []


def test_a_map_without_any_gain_can_be_drawn():
    flat = map_json(model(NEAR_ORACLE), Prices(), xs="0.5,0.6", ys="1,2", verify="retry")[0]
    figure = regime_figure(flat, "map")
    assert not [row for row in figure.rows if row[-1].startswith("planning")]
    assert figure.draw(760)


def test_every_rule_has_a_family():
    marks = {family(rule).mark for rule in ("stop", "always_verify", "gate(a)", "pipeline", "best_of_3")}
    assert marks == set("sv1mn")
    assert family("other").mark == "?"
