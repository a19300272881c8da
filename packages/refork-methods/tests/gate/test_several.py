from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from refork.errors import BadInput
from refork_methods.gate.several import CauseProblem, cause_value

CAUSES = "ABC"
FAILING = {
    name: tuple(Fraction(9, 10) if name == cause else Fraction(2, 10) for cause in CAUSES) for name in CAUSES
}
ANCHOR = CauseProblem(
    (Fraction(1, 3),) * 3,
    FAILING,
    reward=Fraction(200),
    patch=Fraction(3),
    verify=Fraction(20),
    test=Fraction(1),
)


@pytest.mark.parametrize(
    ("tests", "value"),
    [(0, Fraction(131, 3)), (1, Fraction(268, 3)), (2, Fraction(391, 3)), (3, Fraction(42329, 300))],
)
def test_the_anchor_values(tests, value):
    assert cause_value(ANCHOR, tests) == value


def test_more_tests_never_hurt_and_repeating_helps():
    values = [cause_value(ANCHOR, tests) for tests in range(6)]
    assert values == sorted(values)
    once = replace(ANCHOR, repeat=False)
    assert [cause_value(once, k) for k in (0, 1)] == values[:2]
    assert cause_value(once, 2) < values[2]
    assert cause_value(once, 5) == cause_value(once, 3)


def test_two_causes_without_signal_are_patched_at_once():
    blind = replace(
        ANCHOR, prior=(Fraction(1, 4), Fraction(3, 4)), failing={"T": (Fraction(1, 2), Fraction(1, 2))}
    )
    assert cause_value(blind, 4) == 150 - 23


def test_problems_that_cannot_be_are_refused():
    with pytest.raises(BadInput, match="sum to 1"):
        replace(ANCHOR, prior=(Fraction(1, 3),) * 2)
    with pytest.raises(BadInput, match="each of 3 causes"):
        replace(ANCHOR, failing={"T": (Fraction(1, 2),)})
    with pytest.raises(BadInput, match="0 or more"):
        replace(ANCHOR, test=Fraction(-1))
    with pytest.raises(BadInput, match="-1 tests"):
        cause_value(ANCHOR, -1)
