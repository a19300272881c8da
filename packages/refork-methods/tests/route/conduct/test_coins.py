"""Seeded flips and every outcome of a program's chance."""

from __future__ import annotations

from functools import partial

import pytest

from refork.errors import BadInput
from refork_methods.route.conduct.coins import Coins, SeededCoins, every_outcome


def test_seeded_flips_depend_on_seed_and_address_alone() -> None:
    coins = SeededCoins(3)
    flips = [coins(0.5, "a", n) for n in range(200)]
    assert flips == [SeededCoins(3)(0.5, "a", n) for n in range(200)]
    assert flips != [SeededCoins(4)(0.5, "a", n) for n in range(200)]
    # 200 fair flips: outside 60 .. 140 with probability below 1e-7.
    assert 60 < sum(flips) < 140
    assert all(coins(1.0, n) and not coins(0.0, n) for n in range(20))


def test_every_outcome_has_its_probability() -> None:
    def heads(coins: Coins) -> int:
        return sum(coins(0.3, n) for n in range(3))

    found = every_outcome(heads)
    assert len(found) == 8
    assert sum(weight for weight, _ in found) == pytest.approx(1)
    assert sum(weight for weight, number in found if number == 2) == pytest.approx(3 * 0.09 * 0.7)


def test_flips_that_depend_on_flips_and_repeated_addresses() -> None:
    def run(coins: Coins) -> tuple[bool, ...]:
        if coins(0.5, "first"):
            return (coins(0.5, "first"), coins(0.25, "second"))
        return (False,)

    found = {said: weight for weight, said in every_outcome(run)}
    assert found == {(True, True): 0.125, (True, False): 0.375, (False,): 0.5}


def _flip(chance: float, coins: Coins) -> bool:
    return coins(chance)


def test_certain_things_are_no_outcomes_and_bad_chances_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert every_outcome(lambda coins: (coins(1.0), coins(0.0))) == [(1.0, (True, False))]
    for chance in (-0.1, 1.1, float("nan")):
        with pytest.raises(BadInput):
            every_outcome(partial(_flip, chance))
    monkeypatch.setattr("refork_methods.route.conduct.coins.MOST", 100)
    with pytest.raises(BadInput, match="outcomes"):
        every_outcome(lambda coins: [coins(0.5, n) for n in range(8)])
