"""Orchestration collapse through the engine: isolated and shared voters."""

from __future__ import annotations

import pytest

from refork.errors import BadInput
from refork_methods.route.conduct.coins import every_outcome
from refork_methods.route.conduct.collapse import (
    collapse_table,
    majority,
    majority_chance,
    vote,
)


def test_closed_forms() -> None:
    assert majority_chance(0.7) == pytest.approx(0.784)
    assert majority_chance(0.7, 0.5) == pytest.approx(0.721)
    assert majority_chance(0.7, 1.0) == pytest.approx(0.7)
    assert majority_chance(0.7) == pytest.approx(0.7**3 + 3 * 0.7**2 * 0.3)
    with pytest.raises(BadInput):
        majority_chance(0.7, 1.5)


def test_the_engine_gives_the_closed_forms_exactly_and_samples_near_them() -> None:
    # Three sampled rows within 4 standard errors: a chance failure comes in fewer than 1 of 5,000 seeds.
    rows = collapse_table(draws=600, seed=1)
    assert [round(row.closed, 3) for row in rows] == [0.784, 0.721, 0.7]
    for row in rows:
        assert row.engine == pytest.approx(row.closed, abs=1e-12)
        assert abs(row.sampled - row.closed) < 4 * row.error
    with pytest.raises(BadInput):
        collapse_table(draws=1)


def test_isolated_voters_cannot_copy_however_much_they_would() -> None:
    every = every_outcome(lambda coins: majority(vote(0.7, 1.0, "workflow", coins)))
    assert sum(weight for weight, said in every if said == "yes") == pytest.approx(0.784)
    granted = every_outcome(lambda coins: majority(vote(0.7, 1.0, "granted", coins)))
    assert sum(weight for weight, said in granted if said == "yes") == pytest.approx(0.784)
