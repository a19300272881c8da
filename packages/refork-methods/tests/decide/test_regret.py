import numpy as np
import pytest

from refork.errors import BadInput
from refork_methods.decide import against_rules, regret

TABLE = np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 1.0], [2.0, 2.0, np.nan], [0.0, 1.0, 5.0]])


def test_regret_by_hand():
    found = regret(TABLE, np.array([0, 1, 0, 1]))
    assert found.chosen == (1 + 3 + 2 + 1) / 4
    assert found.oracle == (2 + 3 + 2 + 5) / 4
    assert found.best == 1  # the third option is not open everywhere
    assert found.fixed == 6 / 4
    assert found.regret.estimate == found.oracle - found.chosen


def test_cases_of_one_group_count_once():
    table = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    found = regret(table, np.array([1, 1, 1, 1]), groups=np.array([7, 7, 7, 9]))
    # Group 7 loses 1 in each of its cases, group 9 nothing: one half, not three quarters.
    assert (found.chosen, found.oracle, found.regret.estimate) == (0.5, 1.0, 0.5)
    assert found.fixed == 0.5
    plain = regret(table, np.array([1, 1, 1, 1]))
    assert (plain.regret.estimate, plain.best) == (0.75, 0)
    with pytest.raises(BadInput, match="3 groups for 4 cases"):
        regret(table, np.array([1, 1, 1, 1]), groups=np.array([1, 2, 3]))


def test_the_oracle_has_no_regret():
    lost = regret(TABLE, np.array([2, 1, 0, 2])).regret
    assert lost.estimate == 0
    assert lost.high > 0  # four cases without a loss do not show that there is never one


@pytest.mark.parametrize(
    ("table", "picks"),
    [
        (TABLE, [0, 1, 2, 1]),
        (TABLE, [0, 1, 3, 1]),
        (TABLE, [0, 1]),
        (np.array([[np.nan], [1.0]]), [0, 0]),
        (np.array([[np.nan, 1.0], [1.0, np.nan]]), [1, 0]),
    ],
)
def test_choices_that_cannot_be_are_refused(table, picks):
    with pytest.raises(BadInput):
        regret(table, np.array(picks))


def test_the_best_rule_stands_beside_the_reference():
    rng = np.random.default_rng(0)
    luck = rng.normal(size=400)
    mine, best, bad = luck + 1.0, luck + 0.5, luck * 0 - 5
    found = against_rules(mine, {"stop": best, "always": bad}, rng, reference="always")
    assert found.rule == "stop"
    assert found.gap.estimate == pytest.approx(0.5)
    assert found.reference is not None
    assert found.reference.low > 5
    assert found.means == {"stop": best.mean(), "always": -5}


def test_a_comparison_with_nothing_is_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(BadInput, match="no simple rule"):
        against_rules(np.ones(3), {}, rng)
    with pytest.raises(BadInput, match="no rule 'x'"):
        against_rules(np.ones(3), {"a": np.zeros(3)}, rng, reference="x")
