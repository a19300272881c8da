from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from gate.gate_problems import NEAR_ORACLE, model
from refork_methods.gate.answers import family, map_json
from refork_methods.gate.model import Prices
from refork_methods.gate.regime_picture import regime_picture


@pytest.fixture(scope="module")
def found():
    return map_json(model(), Prices(), xs="0.3,0.6,0.9", ys="1,30,60", verify="retry")[0]


def _texts(picture):
    return [element.text for element in ET.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")]


def test_the_picture_is_well_formed_shows_every_cell_and_is_the_same_again(found):
    picture = regime_picture(found, "A <title> & more", (0.6, 30))
    texts = _texts(picture)
    assert "A <title> & more" in texts
    assert texts.count("v") == 4  # three cells and the legend
    assert "4.6" in texts
    assert "price of the verifier" in texts
    assert "red frame: the problem as it stands" in texts
    assert picture == regime_picture(found, "A <title> & more", (0.6, 30))


@pytest.mark.parametrize("here", [None, (0.6, 95), (0.01, 30)])
def test_a_problem_outside_the_map_has_no_frame(found, here):
    assert "red frame: the problem as it stands" not in _texts(regime_picture(found, "map", here))


def test_a_map_without_any_gain_can_be_drawn():
    flat = map_json(model(NEAR_ORACLE), Prices(), xs="0.5,0.6", ys="1,2", verify="retry")[0]
    texts = _texts(regime_picture(flat, "map"))
    assert not [text for text in texts if text.startswith("planning wins")]


def test_every_rule_has_a_family():
    marks = {family(rule).mark for rule in ("stop", "always_verify", "gate(a)", "pipeline", "best_of_3")}
    assert marks == set("sv1mn")
    assert family("other").mark == "?"
