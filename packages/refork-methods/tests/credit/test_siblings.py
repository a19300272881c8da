from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from refork.errors import BadInput
from refork_methods.credit.siblings import (
    child_mean_values,
    curve_credit,
    leaf_mean_values,
    levels,
    node_values,
    sibling_credit,
    step_credit,
    visit_counts,
)

NAN = float("nan")

#: root 0 -> 1, 2; 1 -> 3, 4, 5; 2 -> 6; 6 -> 7 (ungraded)
PARENTS = [-1, 0, 0, 1, 1, 1, 2, 6]
OUTCOMES = [NAN, NAN, NAN, 1.0, 0.0, 0.5, NAN, NAN]


def same(found, expected):
    np.testing.assert_array_equal(found, np.asarray(expected, dtype=float))


def test_values_by_hand():
    same(leaf_mean_values(PARENTS, OUTCOMES), [0.5, 0.5, NAN, 1, 0, 0.5, NAN, NAN])
    same(child_mean_values(PARENTS, OUTCOMES), [0.5, 0.5, NAN, 1, 0, 0.5, NAN, NAN])
    assert visit_counts(PARENTS, OUTCOMES).tolist() == [3, 3, 0, 1, 1, 1, 0, 0]


def test_the_two_estimators_differ_where_one_child_was_forked_more():
    parents = [-1, 0, 0, 1, 1, 1, 2]
    outcomes = [NAN, NAN, NAN, 1, 1, 1, 0]
    assert leaf_mean_values(parents, outcomes)[0] == 0.75
    assert child_mean_values(parents, outcomes)[0] == 0.5
    same(node_values(parents, outcomes), leaf_mean_values(parents, outcomes))
    same(node_values(parents, outcomes, "leaves"), leaf_mean_values(parents, outcomes))
    same(node_values(parents, outcomes, "children"), child_mean_values(parents, outcomes))


def test_step_and_sibling_credit_by_hand():
    values = leaf_mean_values(PARENTS, OUTCOMES)
    same(step_credit(PARENTS, values), [NAN, 0, NAN, 0.5, -0.5, 0, NAN, NAN])
    # Node 1 has one sibling, whose value is unknown; 6 and 7 have none.
    same(sibling_credit(PARENTS, values), [NAN, NAN, NAN, 0.75, -0.75, 0, NAN, NAN])


def test_unknown_is_never_zero():
    for credit in (step_credit, sibling_credit):
        found = credit([-1, 0, 0], leaf_mean_values([-1, 0, 0], [NAN, NAN, NAN]))
        assert np.isnan(found).all()
    same(sibling_credit([-1, 0], [1.0, 1.0]), [NAN, NAN])
    same(sibling_credit([-1, 0, 0], [0.0, 0.0, 0.0]), [NAN, 0, 0])


def test_what_is_not_known_may_be_none():
    none = [None if np.isnan(one) else one for one in OUTCOMES]
    values = leaf_mean_values(PARENTS, none)
    same(values, leaf_mean_values(PARENTS, OUTCOMES))
    assert visit_counts(PARENTS, none).dtype == np.int64
    for credit in (step_credit, sibling_credit):
        same(credit(PARENTS, [None if np.isnan(v) else v for v in values]), credit(PARENTS, values))
    same(curve_credit([0.5, None, 0.25, 1.0]), [NAN, NAN, 0.75])


def test_nodes_of_a_level_are_in_order_so_that_sums_are_the_same_everywhere():
    parents = np.arange(1000) % 2 + 500
    parents[[500, 501]] = [-1, 500]
    rest = [i for i in range(1000) if i not in (500, 501)]
    below = [i for i in rest if parents[i] == 500]
    assert [level.tolist() for level in levels(parents)] == [
        [500], sorted([*below, 501]), [i for i in rest if parents[i] == 501]
    ]  # fmt: skip


def test_forests_and_empty_trees():
    same(leaf_mean_values([-1, -1, 0], [NAN, 1.0, 0.0]), [0, 1, 0])
    assert levels([]) == []
    assert len(leaf_mean_values([], [])) == 0


@pytest.mark.parametrize(
    ("parents", "outcomes", "what"),
    [
        ([-1, 5], [NAN, 1.0], "parent index"),
        ([-1, 2], [NAN, 1.0], "parent index"),
        ([-2], [1.0], "parent index"),
        ([1, 0], [NAN, NAN], "cycle"),
        ([-1, 1], [NAN, NAN], "cycle"),
        ([-1, 0], [NAN], "outcomes"),
        ([-1, 0], [1.0, 1.0], "inner node"),
        ([-1, 0], [NAN, float("inf")], "infinite"),
    ],
)
def test_bad_trees(parents, outcomes, what):
    with pytest.raises(BadInput, match=what):
        leaf_mean_values(parents, outcomes)


def test_unknown_estimator():
    with pytest.raises(BadInput, match="median"):
        node_values([-1], [1.0], "median")


def test_curve_credit():
    same(curve_credit([0.5, 0.75, 0.25, 1.0]), [0.25, -0.5, 0.75])
    same(curve_credit([0.5]), [])
    same(curve_credit([0.5, NAN, 0.25, 1.0]), [NAN, NAN, 0.75])
    with pytest.raises(BadInput):
        curve_credit([])


@st.composite
def trees(draw):
    size = draw(st.integers(1, 40))
    parents = [-1, *(draw(st.integers(0, i - 1)) for i in range(1, size))]
    inner = set(parents)
    # Eighths are exact in binary, so that sums of differences are exact too.
    outcomes = [
        NAN if i in inner else draw(st.sampled_from([NAN, *(k / 8 for k in range(9))])) for i in range(size)
    ]
    return np.array(parents), np.array(outcomes)


@given(trees())
def test_leaf_means_equal_a_slow_count(tree):
    parents, outcomes = tree
    values = leaf_mean_values(parents, outcomes)
    counts = visit_counts(parents, outcomes)
    below = [[] for _ in parents]
    for leaf, outcome in enumerate(outcomes):
        node = leaf
        while node >= 0 and not np.isnan(outcome):
            below[node].append(outcome)
            node = parents[node]
    same(counts, [len(b) for b in below])
    same(values, [sum(b) / len(b) if b else NAN for b in below])


@given(trees())
def test_child_means_equal_a_slow_recursion(tree):
    parents, outcomes = tree

    def value(node):
        children = [c for c in range(len(parents)) if parents[c] == node]
        if not children:
            return outcomes[node]
        known = [v for v in map(value, children) if not np.isnan(v)]
        return sum(known) / len(known) if known else NAN

    np.testing.assert_allclose(child_mean_values(parents, outcomes), [value(i) for i in range(len(parents))])


@given(trees(), st.randoms(use_true_random=False))
def test_the_order_of_nodes_does_not_matter(tree, random):
    parents, outcomes = tree
    order = list(range(len(parents)))
    random.shuffle(order)
    place = np.empty(len(order), dtype=int)
    place[order] = np.arange(len(order))
    moved = np.array([-1 if parents[i] < 0 else place[parents[i]] for i in order])
    for estimator in ("leaves", "children"):
        values = node_values(parents, outcomes, estimator)
        other = node_values(moved, outcomes[order], estimator)
        np.testing.assert_allclose(other, values[order], rtol=1e-12)
        np.testing.assert_allclose(step_credit(moved, other), step_credit(parents, values)[order], atol=1e-12)
        np.testing.assert_allclose(
            sibling_credit(moved, other), sibling_credit(parents, values)[order], atol=1e-12
        )


@given(trees())
def test_step_credit_telescopes_exactly(tree):
    parents, outcomes = tree
    values = leaf_mean_values(parents, outcomes)
    # In exact arithmetic over the floats themselves.
    for leaf in np.flatnonzero(np.isfinite(outcomes)):
        total, node = Fraction(0), leaf
        while parents[node] >= 0:
            total += Fraction(values[node]) - Fraction(values[parents[node]])
            node = parents[node]
        assert total == Fraction(values[leaf]) - Fraction(values[node])
        credit = step_credit(parents, values)
        trajectory = [leaf]
        while parents[trajectory[-1]] >= 0:
            trajectory.append(parents[trajectory[-1]])
        np.testing.assert_allclose(
            credit[trajectory[:-1]].sum(), values[leaf] - values[trajectory[-1]], atol=1e-12
        )


@given(trees())
def test_leaf_weighted_step_credit_of_children_is_zero(tree):
    parents, outcomes = tree
    values = leaf_mean_values(parents, outcomes)
    weighted = np.nan_to_num(step_credit(parents, values) * visit_counts(parents, outcomes))
    sums = np.zeros(len(parents))
    below = parents >= 0
    np.add.at(sums, parents[below], weighted[below])
    np.testing.assert_allclose(sums, 0, atol=1e-9)


@given(hnp.arrays(np.int64, st.integers(1, 60), elements=st.integers(0, 64)))
def test_curve_credit_sums_exactly(eighths):
    curve = eighths / 64
    assert curve_credit(curve).sum() == curve[-1] - curve[0]


def test_a_long_chain_and_a_wide_star_stay_cheap():
    size = 20_000
    chain = np.arange(-1, size - 1)
    outcomes = np.full(size, NAN)
    outcomes[-1] = 1.0
    assert leaf_mean_values(chain, outcomes)[0] == 1.0
    star = np.r_[-1, np.zeros(size, dtype=int)]
    outcomes = np.r_[NAN, np.tile([0.0, 1.0], size // 2)]
    assert leaf_mean_values(star, outcomes)[0] == 0.5
    assert sibling_credit(star, leaf_mean_values(star, outcomes))[2] == 1 - (size / 2 - 1) / (size - 1)
