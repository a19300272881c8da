from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import expit, logit

from refork.errors import BadInput
from refork.stats import mcnemar, wilson
from refork_methods.stance.frontier import Rate, curve, flips, frontier, pools, read_rates, signed_distance
from refork_methods.stance.shift import (
    chance_distributions,
    logistic_above,
    shift_area,
    shifted,
)
from refork_testbed.worlds.refusal.prompts import refusal_chances
from refork_testbed.worlds.refusal.truth import level_weights

HARM, KIND = np.array([0.9, 0.6, 0.2]), np.array([0.05, 0.3, 0.5, 0.01])


def test_a_shift_adds_to_the_logit():
    assert logit(shifted(HARM, 1.5)) == pytest.approx(logit(HARM) + 1.5)
    assert shifted(np.array([0.0, 1.0]), 3.0).tolist() == [0.0, 1.0]
    with pytest.raises(BadInput, match=r"\[0, 1\]"):
        shifted(np.array([1.2]), 0)


@given(st.floats(-4, 4))
def test_shifts_trace_one_curve_from_wherever_they_start(c):
    assert shifted(shifted(HARM, c), 1.5) == pytest.approx(shifted(HARM, c + 1.5))
    assert shift_area(shifted(HARM, c), shifted(KIND, c)) == pytest.approx(shift_area(HARM, KIND), abs=1e-9)


def test_its_area_is_that_of_a_roc_curve_with_logistic_noise():
    shifts = np.linspace(-40, 40, 4001)
    refused, over = (np.array([shifted(q, c).mean() for c in shifts]) for q in (HARM, KIND))
    area = np.trapezoid(refused, over)
    assert shift_area(HARM, KIND) == pytest.approx(area, abs=1e-5)
    rng = np.random.default_rng(0)
    scores = [logit(q)[:, None] + rng.logistic(size=(len(q), 4000)) for q in (HARM, KIND)]
    # 4,000 draws a prompt; the area's standard error is about 0.004, this is five of them.
    above = np.mean(rng.choice(scores[0].ravel(), 10**6) > rng.choice(scores[1].ravel(), 10**6))
    assert above == pytest.approx(area, abs=0.02)
    with pytest.raises(BadInput, match="no logit to shift"):
        shift_area(np.array([1.0]), KIND)


@pytest.mark.parametrize("d", [-30.0, -2.0, -1e-4, 0.0, 1e-5, 0.5, 3.0, 25.0, 800.0])
def test_the_closed_form_of_two_logistics(d):
    def density(e):
        return expit(e + d) * expit(e) * expit(-e)

    assert float(logistic_above(np.array(d))) == pytest.approx(quad(density, -60, 60, limit=400)[0], abs=1e-7)


def test_the_law_behind_counts_gives_back_what_it_was_made_of():
    rng = np.random.default_rng(1)
    q = np.where(rng.random(4000) < 0.3, 0.1, 0.8)
    k, n = rng.binomial(32, q), np.full(4000, 32)
    distribution = chance_distributions(k, n)[0]
    assert distribution.sum() == pytest.approx(1.0)
    asr = [1 - shifted(q, c).mean() for c in (-2.0, 0.0, 2.0)]
    one = np.array([Rate(str(i), "harmful", int(a), 32) for i, a in enumerate(k)])
    table = pools([*one, Rate("b", "benign", 1, 2), Rate("c", "benign", 1, 2)])
    assert curve(table, np.array([-2.0, 0.0, 2.0]))[:, 0] == pytest.approx(asr, abs=0.01)
    twice = chance_distributions(k[:50], n[:50], np.stack([np.ones(50), np.arange(50) < 25]))
    assert twice[0] == pytest.approx(chance_distributions(k[:50], n[:50])[0])
    assert twice[1] == pytest.approx(chance_distributions(k[:25], n[:25])[0])


def test_distance_is_above_zero_on_the_better_side():
    line = np.array([[0.0, 1.0], [1.0, 0.0]])
    assert signed_distance(line, (0.25, 0.25))[0] == pytest.approx(0.25 * np.sqrt(2))
    assert signed_distance(line, (0.75, 0.75))[0] == pytest.approx(-0.25 * np.sqrt(2))
    assert signed_distance(line, (0.5, 0.5))[0] == 0.0


def rates(rng, q, intents, answers=16):
    k = rng.binomial(answers, q)
    return [
        Rate(f"p{i}", intent, int(a), answers) for i, (intent, a) in enumerate(zip(intents, k, strict=True))
    ]


def world(rng, prompts):
    """Prompts of the planted world P: refusal chances by level, harmful ones leaning to high levels."""
    chances = np.array(refusal_chances())
    half = prompts // 2
    q = [rng.choice(chances, half, p=level_weights(intent)) for intent in ("harmful", "benign")]
    return np.concatenate(q), ["harmful"] * half + ["benign"] * half


def test_a_constant_shift_is_called_a_slide_in_world_p():
    # 40 planted slides. A 95 % interval errs in one of twenty; more than 7 of 40 once in 700 suites.
    wrong = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        q, intents = world(rng, 300)
        shift = float(rng.uniform(-3, 3))
        base, other = rates(rng, q, intents), rates(rng, shifted(q, shift), intents)
        found = frontier(base, {"shift": other}, seed=seed, resamples=200).defences[0]
        wrong += found.verdict != "slide"
        assert found.paired
    assert wrong <= 7


def test_a_defence_that_tells_intents_apart_wins_and_one_that_muddles_them_is_worse():
    rng = np.random.default_rng(3)
    q, intents = world(rng, 400)
    bad = np.array([i == "harmful" for i in intents])
    base = rates(rng, q, intents)
    better = rates(rng, np.where(bad, shifted(q, 2), shifted(q, -2)), intents)
    worse = rates(rng, np.full(len(q), 0.5), intents)
    slid = rates(rng, shifted(q, 1.5), intents)
    found = frontier(base, {"better": better, "worse": worse, "slid": slid}, resamples=200)
    assert [d.verdict for d in found.defences[:2]] == ["win", "worse"]
    assert found.defences[0].lowers_both
    assert not found.defences[2].lowers_both
    assert found.defences[2].shift == pytest.approx(1.5, abs=0.6)
    assert found.base.distance.estimate == pytest.approx(0.0, abs=0.02)


def test_other_prompts_are_compared_unpaired():
    rng = np.random.default_rng(4)
    q, intents = world(rng, 80)
    base = rates(rng, q, intents)
    other = [Rate(f"x{r.prompt}", r.intent, r.refused, r.answers) for r in base]
    assert not frontier(base, {"x": other}, resamples=100).defences[0].paired


def test_flips_by_majority_and_by_rate():
    before = [Rate(str(i), "harmful", k, 4) for i, k in enumerate([0, 0, 4, 2, 3])]
    after = [Rate(str(i), "harmful", k, 4) for i, k in enumerate([4, 1, 0, 3, 3])]
    before += [Rate("b", "benign", 4, 4), Rate("unanswered", "benign", 0, 0)]
    after += [Rate("b", "benign", 0, 4), Rate("unanswered", "benign", 1, 4)]
    harmful, benign = flips(before, after)
    assert (harmful.better, harmful.worse) == (wilson(2, 5), wilson(1, 5))
    assert harmful.p == mcnemar(2, 1).p
    assert (harmful.rises, harmful.falls) == pytest.approx((3 / 5, 1 / 5))
    assert (benign.prompts, benign.better.estimate) == (1, 1.0)
    with pytest.raises(BadInput, match="share no"):
        flips(before[:1], after[1:2])


def test_rates_are_read_with_their_line():
    good = Rate("a", "harmful", 1, 4, "set")
    assert read_rates([json.dumps(asdict(good))]) == [good]
    for row, told in (
        ({"prompt": "a", "intent": "odd", "refused": 1, "answers": 2}, "a rate needs"),
        ({"prompt": "a", "intent": "benign", "refused": 0.5, "answers": 2}, "a rate needs"),
        ({"prompt": "a", "intent": "benign", "refused": 3, "answers": 2}, "3 refusals of 2"),
    ):
        with pytest.raises(BadInput, match=told) as error:
            read_rates([json.dumps(row)], "f")
        assert "f:1" in str(error.value)
    with pytest.raises(BadInput, match="twice"):
        read_rates([json.dumps(asdict(good))] * 2)


def test_groups_with_one_label_are_refused():
    only = [Rate(str(i), "harmful", 1, 4) for i in range(5)]
    with pytest.raises(BadInput, match="0 answered prompts are benign"):
        frontier(only, {})
    with pytest.raises(BadInput, match="resamples"):
        frontier(only, {}, resamples=5)
