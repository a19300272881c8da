from __future__ import annotations

import math

import numpy as np
import pytest

from refork.errors import BadInput
from refork_methods.forensics.instruments.redraw_distribution import chain_paths, chain_rates, judge_quality


def chain(said):
    """Three sentences; the class 'c' is likelier after 'a', and so is the act 'y'."""
    if len(said) == 0:
        return {"a": 0.6, "b": 0.4}
    if len(said) == 1:
        return {"c": 0.8, "d": 0.2} if said[0] == "a" else {"c": 0.1, "d": 0.9}
    if len(said) == 2:
        return {"y": 0.9, "n": 0.1} if said[0] == "a" else {"y": 0.2, "n": 0.8}
    return {}


def in_class(sentence, said):
    return sentence == "c"


def acted(said):
    return said[-1] == "y"


def test_redrawing_and_conditioning_differ_and_the_weights_map_one_to_the_other():
    found = chain_rates(chain, in_class, acted)
    # Redrawn: the first sentence keeps its distribution, so 0.6 * 0.9 + 0.4 * 0.2.
    assert found.intervened == pytest.approx(0.62, abs=1e-12)
    # Conditioned: 'a' is as rare as 'd' makes it.
    clean = 0.6 * 0.2 + 0.4 * 0.9
    assert found.conditioned == pytest.approx((0.6 * 0.2 * 0.9 + 0.4 * 0.9 * 0.2) / clean, abs=1e-12)
    assert abs(found.intervened - found.conditioned) > 0.2
    assert found.reweighted == pytest.approx(found.conditioned, abs=1e-12)
    assert found.free == pytest.approx(0.62, abs=1e-12)


def test_the_intervened_law_is_a_law_and_the_weight_is_the_chance_of_no_redraw():
    paths = chain_paths(chain, in_class)
    assert math.fsum(p.intervened for p in paths) == pytest.approx(1, abs=1e-12)
    assert math.fsum(p.free for p in paths) == pytest.approx(1, abs=1e-12)
    for path in paths:
        if path.intervened > 0:
            assert path.intervened * path.weight == pytest.approx(path.free, abs=1e-12)
    never = math.fsum(p.free for p in paths if p.intervened > 0)
    assert never == pytest.approx(math.fsum(p.intervened * p.weight for p in paths), abs=1e-12)


def test_random_chains_agree():
    rng = np.random.default_rng(0)
    table = {}

    def law(said):
        if len(said) == 4:
            return {}
        if said not in table:
            table[said] = dict(zip("cdef", rng.dirichlet(np.ones(4)), strict=True))
        return table[said]

    found = chain_rates(law, lambda s, said: s == "c", lambda said: said.count("d") >= 2)
    assert found.reweighted == pytest.approx(found.conditioned, abs=1e-12)
    assert found.intervened != pytest.approx(found.conditioned, abs=1e-6)


def test_impossible_chains_are_refused():
    with pytest.raises(BadInput, match="nothing is left"):
        chain_rates(chain, lambda s, said: s in "cd", acted)
    with pytest.raises(BadInput, match="no distribution"):
        chain_paths(lambda said: {} if said else {"a": 0.5}, in_class)
    with pytest.raises(BadInput, match="more than"):
        chain_paths(lambda said: {str(i): 0.1 for i in range(10)}, in_class, most=500)


def test_an_imperfect_judge_is_reported_as_the_class_it_filters():
    judged = np.array([True] * 45 + [False] * 5 + [True] * 10 + [False] * 90)
    truth = np.array([True] * 50 + [False] * 100)
    found = judge_quality(judged, truth)
    assert found.recall.estimate == 0.9
    assert found.false_alarm.estimate == 0.1
    assert found.recall.low < 0.9 < found.recall.high
    assert "finds 90%" in found.sentence("c")
    assert "takes 10%" in found.sentence("c")
    assert found.to_json()["recall"]["rate"] == 0.9
    with pytest.raises(BadInput, match="both kinds"):
        judge_quality(judged, np.ones(150, dtype=bool))
