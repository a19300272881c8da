from __future__ import annotations

import numpy as np
import pytest

from refork.errors import BadInput, CannotDo
from refork.policies.base import Policy
from refork.stats import pass_at_k
from refork_methods.cliff.candidates import candidates, shift
from refork_methods.cliff.intervene import contrast, intervene, random_positions
from refork_methods.cliff.pairs import Pair, chosen_tokens, cliff_pairs, read_pairs, write_pairs
from refork_methods.cliff.scan import nominate, token_potential
from refork_methods.cliff.verify import counts, verify


@pytest.fixture
def proven(planted, judge):
    _, policy, end = planted
    found = token_potential(end, policy, 64, judge=judge, seed=1)
    nominees = nominate(found)
    return policy, found, nominees, verify(nominees, policy, 64, judge=judge, seed=1)


def test_pass_at_k_is_unbiased():
    # Exact: the mean of the estimator over all counts is 1 - (1 - p)^k.
    from scipy.stats import binom

    n, p = 16, 0.3
    for k in (1, 2, 4, 16):
        mean = sum(binom.pmf(c, n, p) * pass_at_k(c, n, k) for c in range(n + 1))
        assert mean == pytest.approx(1 - (1 - p) ** k)


def test_pass_at_64_after_deletion_says_nothing():
    # A nominee needs 0.1875 before it: then 64 tries succeed almost surely, whatever the token did.
    assert 1 - (1 - 0.1875) ** 64 > 0.999998


def test_deleting_keeping_and_replacing(proven, judge):
    # 400 draws: 4.5 standard errors, wrong once in 50,000 seeds.
    policy, _, _, cliffs = proven
    at = next(c.nominee for c in cliffs if c.real).before
    other = int(policy.encode(" o5")[0])
    instead = (0.8 - 0.2 * 0.1) / 0.8
    for mode, token, truth in (("delete", None, 0.8), ("keep", None, 0.1), ("replace", other, instead)):
        arm = intervene(at, policy, mode, 400, token=token, judge=judge, seed=5)
        wins, n = counts(arm)
        assert wins / n == pytest.approx(truth, abs=4.5 * (truth * (1 - truth) / 400) ** 0.5)
    with pytest.raises(BadInput, match="unknown intervention"):
        intervene(at, policy, "swap", 8, judge=judge)
    with pytest.raises(BadInput, match="needs one"):
        intervene(at, policy, "replace", 8, judge=judge)


def test_deletion_beats_keeping_and_the_control_does_not(proven, judge):
    policy, found, _, cliffs = proven
    real = [c.nominee for c in cliffs if c.real] * 3
    gain = contrast(real, policy, 64, judge=judge, seed=6).gain()
    assert gain.estimate == pytest.approx(0.7, abs=0.2)
    control = random_positions(real, [found] * 3, each=1, seed=1)
    assert control == [], "the only trace falls at that very depth"


def test_behind_the_last_token_the_outcome_stands_and_ungraded_is_left_out(proven, judge):
    from dataclasses import replace

    policy, found, nominees, _ = proven
    last = replace(nominees[0], index=11, before=found.points[11], after=None)
    assert contrast([last], policy, 32, judge=judge).kept_counts == ((0, 32),)
    blind = replace(found, curve=replace(found.curve, outcome=None))
    assert contrast([replace(last, trace=blind)], policy, 32, judge=judge).kept_counts == ()
    assert not verify([replace(last, trace=blind)], policy, 32, judge=judge)[0].real


def test_controls_have_equal_depth_and_stand_on_no_cliff(proven):
    _, found, nominees, _ = proven
    from dataclasses import replace

    moved = [replace(n, index=2, before=found.points[2], after=found.points[3]) for n in nominees[:1]]
    other = replace(found, end=found.points[7])
    picks = random_positions(moved, [found, other], each=2, seed=0)
    assert [p.index for p in picks] == [2], "the cliff's own place is not drawn"
    assert picks[0].trace is other


def test_no_position_is_the_control_of_two_cliffs(proven):
    from dataclasses import replace

    _, found, nominees, _ = proven
    at = [replace(nominees[0], index=2, before=found.points[2], after=found.points[3])] * 2
    others = [replace(found, end=found.points[place]) for place in (7, 8)]
    for seed in range(4):
        picks = random_positions(at, [found, *others], seed=seed)
        assert {p.trace.end.address for p in picks} == {t.end.address for t in others}
    taken = [replace(at[0], trace=others[0])]
    assert [p.trace for p in random_positions(at, [found, *others], avoid=taken)] == [others[1]]


def test_candidates_are_valued_and_weighed(proven, judge):
    policy, _, _, cliffs = proven
    real = [c for c in cliffs if c.real]
    choices = candidates(real, policy, 2, 200, judge=judge, seed=7)[0]
    mine = {c.text: c for c in choices.candidates}
    assert set(mine) == {" o5", " t6"}
    assert mine[" o5"].chance == pytest.approx(0.8)
    assert mine[" o5"].value == pytest.approx((0.8 - 0.02) / 0.8, abs=0.06)
    assert mine[" t6"].count == real[0].after, "the cliff keeps the counts of its re-test"
    assert choices.mass == pytest.approx(0.2), "its own probability, since it alone falls"
    same = shift(choices, policy, policy)
    assert (same.mass, same.rank_here) == (0.0, same.rank_there)
    with pytest.raises(BadInput, match="at least one"):
        candidates(real, policy, 0, judge=judge)


def test_pairs_hold_ids_and_text(proven, judge, tmp_path):
    policy, _, _, cliffs = proven
    choices = candidates([c for c in cliffs if c.real], policy, 2, 64, judge=judge, seed=7)
    pairs = cliff_pairs(choices, policy)
    assert len(pairs) == 1
    pair = pairs[0]
    assert policy.decode(np.array([pair.chosen])) == " o5"
    assert policy.decode(np.array([pair.rejected])) == " t6"
    assert pair.value_rejected < pair.value_before
    assert pair.kind == "sampled-off"
    assert pair.turn.endswith(" t5")
    assert (pair.chosen_text, pair.rejected_text) == (" o5", " t6")
    write_pairs(pairs, tmp_path / "pairs.jsonl")
    assert read_pairs(tmp_path / "pairs.jsonl") == pairs


def test_hard_pairs_are_no_worse_than_the_point(proven, judge):
    policy, _, _, cliffs = proven
    choices = candidates([c for c in cliffs if c.real], policy, 2, 64, judge=judge, seed=7)[0]
    options = choices.candidates
    easy = chosen_tokens((60, 64), choices.cliff.nominee.token, options)
    hard = chosen_tokens((64, 64), choices.cliff.nominee.token, options, "hard")
    assert set(hard) <= set(easy)
    assert all(c.value >= 1.0 for c in hard)
    with pytest.raises(BadInput, match="unknown variant"):
        chosen_tokens((1, 2), 0, options, "soft")


def test_cliffs_that_did_not_survive_make_no_pairs(proven, judge):
    from dataclasses import replace

    policy, _, _, cliffs = proven
    choices = candidates([c for c in cliffs if c.real], policy, 2, 64, judge=judge, seed=7)
    doubted = [replace(choices[0], cliff=replace(choices[0].cliff, real=False))]
    assert cliff_pairs(doubted, policy) == []
    assert cliff_pairs(doubted, policy, unproven=True) == cliff_pairs(choices, policy) != []


def test_pairs_that_make_no_sense_are_refused(tmp_path):
    with pytest.raises(BadInput, match="both chosen"):
        Pair((1,), 3, 3, None, 0.5, 0.5, 0.1)
    with pytest.raises(BadInput, match="before it"):
        Pair((), 3, 4, None, 0.5, 0.5, 0.1)
    (tmp_path / "bad.jsonl").write_text('{"prompt_tokens": [1]}\n')
    with pytest.raises(BadInput, match="line 1"):
        read_pairs(tmp_path / "bad.jsonl")
    with pytest.raises(BadInput, match="no pairs yet"):
        read_pairs(tmp_path / "none.jsonl")


def test_a_policy_without_its_law_is_refused(proven, judge):
    _, _, _, cliffs = proven

    class Sampler:
        card = proven[0].card

    assert not isinstance(Sampler(), Policy)
    with pytest.raises(CannotDo, match="cannot say the distribution"):
        candidates(cliffs, Sampler(), 2, judge=judge)
