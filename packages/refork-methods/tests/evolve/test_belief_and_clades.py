import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta

from refork.errors import BadInput
from refork_methods.evolve.belief import best_belief, best_beliefs
from refork_methods.evolve.clades import clade_counts, metaproductivity, thompson


@pytest.mark.parametrize(("s", "f", "value"), [(1, 0, 0.2236), (18, 2, 0.7294), (0, 0, 0.05)])
def test_best_belief_is_the_sheets_value(s, f, value):
    assert best_belief(s, f) == pytest.approx(value, abs=5e-5)


def test_best_belief_closed_forms():
    # Beta(1, 1) is uniform; Beta(2, 1) has distribution x^2; Beta(1, 2) has 1 - (1 - x)^2.
    assert best_belief(0, 0, 0.3) == pytest.approx(0.3, abs=1e-15)
    assert best_belief(1, 0) == pytest.approx(np.sqrt(0.05), abs=1e-14)
    assert best_belief(0, 1) == pytest.approx(1 - np.sqrt(0.95), abs=1e-14)


@given(st.integers(0, 400), st.integers(0, 400), st.floats(0.001, 0.5))
def test_best_belief_is_the_quantile(s, f, eps):
    assert beta.cdf(best_belief(s, f, eps), 1 + s, 1 + f) == pytest.approx(eps, rel=1e-9)


def test_best_belief_rises_strictly_with_successes_at_a_fixed_number():
    s = np.arange(101)
    assert (np.diff(best_beliefs(s, 100 - s)) > 0).all()


@pytest.mark.parametrize("eps", [0.0, 0.51, -1.0, float("nan")])
def test_eps_outside_its_range_is_refused(eps):
    with pytest.raises(BadInput, match="eps"):
        best_belief(1, 1, eps)


@pytest.mark.parametrize("bad", [-1, 0.5, float("nan")])
def test_counts_are_whole_and_not_negative(bad):
    with pytest.raises(BadInput, match="counts"):
        best_beliefs(np.array([bad]), np.array([1]))


def test_clades_of_the_sheets_worked_case():
    # 3/5 with children 8/10 and 9/10; 4/5 with children 1/10 and 2/10; both below an unmeasured root.
    parents = [-1, 0, 1, 1, 0, 4, 4]
    s, f = np.array([0, 3, 8, 9, 4, 1, 2]), np.array([0, 2, 2, 1, 1, 9, 8])
    good, bad = clade_counts(parents, s, f)
    assert (good[1], bad[1], good[4], bad[4]) == (20, 5, 7, 18)
    cmp = metaproductivity(parents, s, f)
    assert (cmp[1], cmp[4]) == (0.80, 0.28)
    assert good[0] == s.sum()


def test_pooling_is_fresh_however_often_it_is_done():
    parents, s, f = [-1, 0, 1, 1], np.array([1, 0, 2, 3]), np.array([0, 1, 1, 1])
    first = clade_counts(parents, s, f)
    second = clade_counts(parents, s, f)
    assert np.array_equal(first, second)
    assert s.tolist() == [1, 0, 2, 3]
    first[0][:] = 99
    assert clade_counts(parents, s, f)[0].tolist() == [6, 5, 2, 3]


@given(st.lists(st.integers(0, 10**6), min_size=0, max_size=30), st.randoms(use_true_random=False))
def test_clade_counts_are_sums_over_descendants(picks, random):
    parents = [-1, *(pick % (i + 1) for i, pick in enumerate(picks))]
    s = np.array([random.randrange(9) for _ in parents])
    good, _ = clade_counts(parents, s, np.zeros_like(s))

    def below(node):
        return s[node] + sum(below(child) for child, up in enumerate(parents) if up == node)

    assert good.tolist() == [below(node) for node in range(len(parents))]


def test_a_clade_without_outcomes_has_no_productivity():
    assert np.isnan(metaproductivity([-1, 0], np.array([1, 0]), np.array([0, 0]))[1])


@pytest.mark.parametrize("parents", [[], [0], [-1, 1], [-1, -1], [-1, 2, 0]])
def test_parents_that_are_no_tree_are_refused(parents):
    n = len(parents)
    with pytest.raises(BadInput):
        clade_counts(parents, np.zeros(n, int), np.zeros(n, int))


def test_thompson_chooses_as_often_as_the_beta_draws_say():
    # Two leaves of 9/10 and 5/10; the root's clade is 14/20. P(leaf 1 largest) by quadrature.
    s, f = np.array([0, 9, 5]), np.array([0, 1, 5])
    x = (np.arange(20000) + 0.5) / 20000
    exact = float((beta.pdf(x, 10, 2) * beta.cdf(x, 6, 6) * beta.cdf(x, 15, 7)).mean())
    rng = np.random.default_rng(1)
    hits = sum(thompson([-1, 0, 0], s, f, rng) == 1 for _ in range(2000))
    # Four standard errors: fails by chance once in 16,000 seeds.
    assert abs(hits / 2000 - exact) < 4 * np.sqrt(exact * (1 - exact) / 2000)


def test_leaving_a_node_out_moves_no_other_draw():
    s, f = np.array([3, 9, 5]), np.array([1, 1, 5])
    for seed in range(40):
        full = thompson([-1, 0, 0], s, f, np.random.default_rng(seed))
        for out in {0, 1, 2} - {full}:
            allowed = np.arange(3) != out
            assert thompson([-1, 0, 0], s, f, np.random.default_rng(seed), allowed) == full
    with pytest.raises(BadInput, match="no node"):
        thompson([-1, 0, 0], s, f, np.random.default_rng(0), np.zeros(3, bool))
