"""Counts of rounds, by position."""

import numpy as np
import pytest

from refork.decoding.speculator import ActiveRows, Drafts
from refork.policies.base import Sampling
from refork.sampling.noise import NoiseKey
from refork_methods.speculate.config import HeldOut
from refork_methods.speculate.speculator import DECAY, Outcome, Tally


def counted(lengths, accepted, ended=None):
    tally = Tally(3)
    lengths, accepted = np.array(lengths), np.array(accepted)
    end = np.zeros(len(lengths), dtype=bool) if ended is None else np.array(ended)
    tally.round(3 * len(lengths), lengths, accepted, end)
    return tally


def test_acceptance_is_conditional_and_tau_counts_the_last_token():
    stats = counted([3, 3, 3, 2], [3, 1, 0, 2]).stats
    assert stats.reached.tolist() == [4, 3, 1]
    assert stats.kept_tokens.tolist() == [3, 2, 1]
    assert stats.accept_rate == [0.75, pytest.approx(2 / 3), 1.0]
    assert stats.tau == 1 + 6 / 4
    assert (stats.drafted, stats.verified, stats.accepted) == (12, 11, 6)


def test_what_lies_behind_an_end_is_neither_kept_nor_refused():
    stats = counted([3, 3], [1, 1], [True, False]).stats
    assert stats.reached.tolist() == [2, 1, 0]
    assert stats.accept_rate == [1.0, 0.0, None]


def test_lately_is_unknown_then_a_survival_that_never_rises():
    assert Tally(3).recent() is None
    tally = counted([3] * 8, [3, 3, 3, 3, 1, 1, 0, 0])
    assert tally.recent().tolist() == pytest.approx([6 / 8, 4 / 8, 4 / 8])
    # A position nobody reached is taken to be as good as the one before it.
    assert counted([1, 1], [1, 0]).recent().tolist() == pytest.approx([0.5, 0.25, 0.125])
    assert Tally(2).stats.to_json()["tau"] is None


def outcome(tokens, accepted, settings, eos=frozenset({9})):
    n = len(tokens)
    branches = ActiveRows(
        np.arange(n), np.zeros(n, dtype=int), np.arange(n) + 10, np.arange(n) + 1, np.full(n, 20),
        settings, [NoiseKey(0, 0, i) for i in range(n)],
    )  # fmt: skip
    drafts = Drafts(np.array(tokens), np.full(n, 3))
    return Outcome.of(branches, drafts, np.array(accepted), eos)


def test_an_outcome_stops_at_the_first_end_that_is_one():
    plain, deaf, own = Sampling(), Sampling(ignore_eos=True), Sampling(stop_ids=(5,))
    found = outcome(
        [[1, 9, 9], [1, 9, 3], [5, 1, 9], [9, 1, 1], [1, 2, 9]], [3, 3, 3, 0, 2],
        [plain, deaf, own, plain, plain],
    )  # fmt: skip
    assert found.accepted.tolist() == [2, 3, 1, 0, 2]
    assert found.ended.tolist() == [True, False, True, False, False]
    assert [(r.request_id, r.offset, r.tokens.tolist()) for r in found.rejected()] == [
        (3, 4, [9, 1, 1]),
        (4, 7, [9]),
    ]


def test_rounds_say_what_calibration_needs():
    found = outcome([[1, 2, 3], [4, 9, 6]], [1, 3], [Sampling()] * 2)
    [one, two] = found.rounds(np.array([0, 1]), np.array([[0.1, 0.2, 0.3], [1.0, 2.0, 3.0]]), None, 7, 0.0)
    assert (one.drafted, one.accepted, one.end_within, one.anchor, one.step) == (3, 1, False, 10, 7)
    assert (two.drafted, two.accepted, two.end_within, two.logits) == (3, 2, True, (1.0, 2.0, 3.0))
    assert one.tokens_in_batch == 8


def test_credit_stands_before_the_first_round_and_fades():
    failed = counted([3], [0])
    assert failed.recent().tolist() == [0.0, 0.0, 0.0]
    assert failed.recent(4.0)[0] == pytest.approx(4 * DECAY / (1 + 4 * DECAY))
    for _ in range(300):
        failed.round(3, np.array([3]), np.array([0]), np.array([False]))
    assert failed.recent(4.0)[0] < 1e-3


def test_a_prior_of_known_rates_stands_before_the_first_round_and_fades():
    fresh = Tally(3)
    assert fresh.recent(4.0, HeldOut((0.8, 0.5, 0.25))).tolist() == pytest.approx([0.8, 0.4, 0.1])
    seen = counted([2] * 200, [2] * 200)
    for _ in range(300):
        seen.round(2, np.array([2]), np.array([2]), np.array([False]))
    assert seen.recent(4.0, HeldOut((0.1, 0.1, 0.1)))[0] > 0.99


def test_laws_are_counted_apart_and_mixed_by_their_share():
    tally, held = Tally(2), HeldOut((0.5, 0.5), (0.9, 0.9))
    assert tally.recent(4.0, held, greedy=1.0).tolist() == pytest.approx([0.9, 0.81])
    assert tally.recent(4.0, held, greedy=0.25).tolist() == pytest.approx([0.6, 0.25 * 0.81 + 0.75 * 0.25])
    for _ in range(300):
        tally.round(4, np.array([2, 2]), np.array([2, 0]), np.zeros(2, dtype=bool), np.array([True, False]))
    assert tally.recent(4.0, held, greedy=1.0)[1] > 0.99
    assert tally.recent(4.0, held)[0] < 0.01
    assert tally.recent(greedy=0.5)[1] == pytest.approx(0.5)
    assert tally.stats.accept_rate == [0.5, 1.0]


def test_a_law_that_was_not_seen_yet_fares_as_the_other_where_nothing_is_credited():
    seen = counted([2, 2], [1, 1])
    assert seen.recent(greedy=1.0).tolist() == seen.recent().tolist()
    assert seen.recent(4.0, HeldOut((0.5,) * 3, (0.9,) * 3), greedy=1.0)[0] == pytest.approx(0.9)
