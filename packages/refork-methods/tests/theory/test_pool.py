from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refork.errors import BadInput
from refork_methods.theory.pool import MetricObservation, Pool, Round, Verdict, next_label
from refork_methods.theory.scores import relative_scores


def seen(name, real, *values):
    labels = ("pi_1", "pi_2", "pi_3", "pi_2_1", "pi_4")
    return MetricObservation(name, "share of B", real, dict(zip(labels, values, strict=False)))


ROUNDS = (
    Round(
        (seen("a", 0.5, 0.1, 0.4, 0.45, 0.42, 0.5), seen("b", 0.3, 0.9, 0.4, 0.2, None, 0.3)),
        Verdict("new_theory", 1),
    ),
    Round((seen("c", 0.7, 0.2, 0.6, 0.8, 0.65, 0.7),), Verdict("new_model", 2)),
    Round((seen("d", 0.2, 0.2, 0.1, 0.4, 0.3, 0.2),), Verdict("new_theory", 2)),
)  # fmt: skip


def test_labels_follow_family_and_number():
    assert next_label(["pi_1", "pi_2"], "pi_1", "new_theory") == "pi_3"
    assert next_label(["pi_1", "pi_2"], "pi_2", "new_model") == "pi_2_1"
    assert next_label(["pi_1", "pi_2", "pi_2_1"], "pi_2_1", "new_model") == "pi_2_2"
    assert next_label(["pi_1", "pi_2", "pi_2_1", "pi_10"], "pi_2", "new_theory") == "pi_11"
    for bad in (
        (["pi_1"], "pi_2", "new_model"),
        (["pi_0"], "pi_0", "new_model"),
        (["pi_1"], "pi_1", "other"),
    ):
        with pytest.raises(BadInput):
            next_label(*bad)


def test_labels_slots_and_scores_by_hand():
    pool = Pool(ROUNDS)
    first, second, third = pool.replay()
    assert [one.slots for one in (first, second, third)] == [
        ("pi_3", "pi_2"),
        ("pi_3", "pi_2_1"),
        ("pi_3", "pi_4"),
    ]
    assert third.labels == pool.labels == ("pi_1", "pi_2", "pi_3", "pi_2_1", "pi_4")
    assert second.newest == "pi_2_1"
    d = np.asarray([[0.4, 0.6], [0.1, 0.1], [0.05, 0.1]])
    assert list(first.scores.values()) == pytest.approx(relative_scores(d).tolist())
    assert third.scores["pi_4"] == 1
    assert pool.slots == ("pi_3", "pi_4")
    # pi_2_1 has no value on b, which counts as the worst there.
    assert np.isnan(pool.table(["pi_2_1"], 1)).tolist() == [[False, True]]


def test_a_saved_pool_replays_bit_for_bit():
    pool = Pool(ROUNDS)
    again = Pool.from_json(json.loads(json.dumps(pool.to_json())))
    assert again == pool
    assert again.digest == pool.digest
    assert again.replay() == pool.replay()


@given(
    st.lists(st.tuples(st.sampled_from(["new_model", "new_theory"]), st.sampled_from([1, 2])), max_size=6),
    st.integers(0, 99),
)
def test_any_pool_replays_bit_for_bit(verdicts, seed):
    rng = np.random.default_rng(seed)
    labels = Pool(
        tuple(Round((MetricObservation("x", "m", 0.0, _Any()),), Verdict(*v)) for v in verdicts)
    ).labels
    rounds = tuple(
        Round(
            (MetricObservation(f"o{i}", "m", rng.random(), {label: rng.random() for label in labels}),),
            Verdict(*v),
        )
        for i, v in enumerate(verdicts)
    )
    pool = Pool(rounds)
    again = Pool.from_json(json.loads(json.dumps(pool.to_json())))
    assert again.replay() == pool.replay()
    assert len(set(pool.labels)) == len(verdicts) + 2


class _Any(dict):
    def __contains__(self, key):
        return True


def test_a_half_finished_round_is_kept():
    half = Pool((ROUNDS[0], replace(ROUNDS[1], verdict=None)))
    assert half.unfinished == half.rounds[-1]
    assert len(half.replay()) == 1
    assert half.replay() == Pool(ROUNDS).replay()[:1]
    assert Pool(ROUNDS).unfinished is None
    assert Pool().slots == ("pi_1", "pi_2")


def test_a_candidate_s_loss():
    pool = Pool((ROUNDS[0],))
    # Spreads: 0.1 to 0.5 and 0.2 to 0.9.
    assert pool.loss([0.4, 0.3]) == pytest.approx((0.1 / 0.4 + 0) / 2)
    assert pool.loss([None, 0.3]) == pytest.approx(0.5)
    with pytest.raises(BadInput):
        pool.loss([0.4])


def test_refused_pools():
    open_round = replace(ROUNDS[0], verdict=None)
    with pytest.raises(BadInput, match="others follow"):
        Pool((open_round, ROUNDS[1]))
    with pytest.raises(BadInput, match="no observation"):
        Pool((Round((), None),))
    with pytest.raises(BadInput, match="pi_3 was never simulated"):
        Pool((Round((seen("a", 0.5, 0.1, 0.4),), Verdict("new_theory", 1)),))
    with pytest.raises(BadInput, match="slot 3"):
        Verdict("new_model", 3)
    with pytest.raises(BadInput, match="not finite"):
        seen("a", float("nan"))
    with pytest.raises(BadInput, match="ruling"):
        Pool.from_json({"rounds": [{"seen": [], "verdict": {"ruling": "x", "target": 1}}]})
