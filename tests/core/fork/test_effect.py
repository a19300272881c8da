from __future__ import annotations

import numpy as np
import pytest

from ramify.core.errors import BadInput
from ramify.core.fork import (
    Ban,
    Force,
    Remove,
    Set,
    arm_summary,
    compare,
    compare_until,
    fork,
    sweep,
    trace_report,
)
from support.chain import PLAIN


def arms(start, policy, judge, draws=300, seed=0):
    base = fork(start, policy, draws, Force(text=" guess"), settings=PLAIN, judge=judge, seed=seed)
    other = fork(start, policy, draws, Force(text=" think"), settings=PLAIN, judge=judge, seed=seed)
    return base, other


def test_a_known_effect_is_inside_its_interval(start, policy, judge):
    effect = compare(*arms(start, policy, judge))
    assert effect.low < 0.7 < effect.high
    assert effect.p < 1e-6
    assert effect.paired
    assert effect.draws == 300
    assert "raises success" in effect.sentence


def test_the_difference_is_the_mean_of_the_pairs(start, policy, judge):
    base, other = arms(start, policy, judge, 50)
    effect = compare(base, other)
    pairs = np.array(other.values()) - np.array(base.values())
    assert effect.difference == pytest.approx(pairs.mean())
    assert effect.base.rate == pytest.approx(np.mean(base.values()))


def test_pairing_narrows_the_interval(start, policy, judge):
    base = fork(start, policy, 400, settings=PLAIN, judge=judge)
    other = fork(start, policy, 400, Set(temperature=0.9), settings=PLAIN, judge=judge)
    effect = compare(base, other)
    assert effect.high - effect.low < 0.7 * (effect.unpaired_high - effect.unpaired_low)


def test_arms_with_other_noise_are_compared_unpaired(start, policy, judge):
    base, _ = arms(start, policy, judge, 60)
    _, other = arms(start, policy, judge, 60, seed=9)
    effect = compare(base, other)
    assert not effect.paired
    assert (effect.low, effect.high) == (effect.unpaired_low, effect.unpaired_high)


def test_ungraded_draws_leave_with_their_partner(start, policy, judge):
    base, other = arms(start, policy, judge, 40)

    def sometimes(walk):
        return None if walk.leaf.noise.draw % 4 == 0 else float("right" in walk.leaf.text)

    effect = compare(base, other, score=sometimes)
    assert (effect.draws, effect.ungraded) == (30, 10)
    assert effect.score == "sometimes"


def test_arms_of_different_length_are_compared_on_what_they_share(start, policy, judge):
    base, _ = arms(start, policy, judge, 20)
    _, other = arms(start, policy, judge, 30)
    assert compare(base, other).draws == 20


def test_no_effect_says_so(start, policy, judge):
    base = fork(start, policy, 50, settings=PLAIN, judge=judge)
    effect = compare(base, base)
    assert effect.sentence.startswith("no clear effect")
    assert effect.low < 0 < effect.high, "no pair differs, and still the interval has width"


def test_one_pair_is_refused(start, policy, judge):
    base = fork(start, policy, 1, settings=PLAIN, judge=judge)
    with pytest.raises(BadInput, match="1 of 1 pairs"):
        compare(base, base)


def test_a_clear_answer_stops_early(start, policy, judge):
    effect = compare_until(
        start, policy, Force(text=" guess"), batch=32, max_draws=512, settings=PLAIN, judge=judge
    )
    assert effect.decided
    assert effect.high < 0
    assert effect.draws < 512
    assert effect.looks == effect.draws // 32


def test_an_unclear_answer_stops_at_the_limit_and_says_so(start, policy, judge):
    effect = compare_until(
        start, policy, Set(temperature=0.98), batch=16, max_draws=32, settings=PLAIN, judge=judge
    )
    assert effect.decided is False
    assert effect.draws == 32


def test_a_margin_decides_that_nothing_happens(start, policy, judge):
    effect = compare_until(
        start, policy, Set(max_tokens=9), batch=64, max_draws=512, margin=0.2, settings=PLAIN, judge=judge
    )
    assert effect.decided
    assert -0.2 <= effect.low <= effect.high <= 0.2


def test_early_stopping_keeps_its_error_rate(tree, policy, judge):
    # No true effect (the banned word is never said): 60 runs with up to 8 looks at error 0.05 each.
    # More than 9 false alarms of 60 happen once in 1,000 if the rate were 0.05; seeds are fixed.
    from ramify.core.grow.plant import plant_prompt

    begin = plant_prompt(tree, policy, "Other?")
    alarms = 0
    for seed in range(60):
        base = fork(begin, policy, 64, settings=PLAIN, judge=judge, seed=seed)
        other = fork(begin, policy, 64, settings=PLAIN, judge=judge, seed=seed + 1000)
        from ramify.core import stats

        pairs = np.array(other.values()) - np.array(base.values())
        looks = [stats.confidence_sequence(pairs[: 8 * n], error=0.05) for n in range(1, 9)]
        alarms += any(i.low > 0 or i.high < 0 for i in looks)
    assert alarms <= 9


def test_an_effect_is_plain_data(start, policy, judge):
    import json

    effect = compare(*arms(start, policy, judge, 20))
    assert json.loads(json.dumps(effect.to_json()))["base"]["rate"] == effect.base.rate


def test_an_arm_alone_is_summarised(start, policy, judge):
    arm = fork(start, policy, 40, settings=PLAIN, judge=judge)
    summary = arm_summary(arm)
    assert summary["draws"] == summary["graded"] == 40
    assert sum(count for _, count in summary["most_common"]) == 40
    blind = arm_summary(fork(start, policy, 4, Ban(text=" think"), settings=PLAIN))
    assert blind["rate"] is None


def test_a_swept_trace_is_plain_data(tree, start, policy, judge):
    base = fork(start, policy, 40, settings=PLAIN, judge=judge)
    leaf = next(w.leaf for w in base.leaves() if w.leaf.text == " guess wrong")
    report = trace_report(sweep(tree.at(leaf), policy, 64, judge=judge))
    tokens = [t for step in report["steps"] for t in step["tokens"]]
    assert [t["text"] for t in tokens] == [" guess", " wrong", ""]
    assert [t["index"] for t in tokens] == [0, 1, 2]
    assert report["cliff"]["token_index"] == 0
    assert report["cliff"]["text"] == " guess"
    assert tokens[0]["low"] < tokens[0]["value"] < tokens[0]["high"]
    assert report["outcome"] == 0.0


def test_removing_the_cliff_wins_what_it_cost(tree, start, policy, judge):
    base = fork(start, policy, 40, settings=PLAIN, judge=judge)
    leaf = next(w.leaf for w in base.leaves() if w.leaf.text == " guess wrong")
    point = tree.at(leaf, 1)
    effect = compare(
        fork(point, policy, 400, judge=judge, seed=1),
        fork(point, policy, 400, Remove(1), judge=judge, seed=1),
    )
    assert effect.low < 0.35 < effect.high


def test_no_cliff_is_claimed_where_the_intervals_overlap(tree, start, policy, judge):
    base = fork(start, policy, 40, settings=PLAIN, judge=judge)
    leaf = next(w.leaf for w in base.leaves() if w.leaf.text == " think right")
    assert trace_report(sweep(tree.at(leaf), policy, 16, judge=judge))["cliff"] is None
