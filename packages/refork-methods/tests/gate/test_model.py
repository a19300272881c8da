from __future__ import annotations

import json
import math
from fractions import Fraction

import pytest

from gate.gate_problems import IMPERFECT, KERNEL, model
from refork.errors import BadInput
from refork_methods.decide import BetaRate
from refork_methods.gate.model import Critic, CriticModel, Kernel, Prices, exact, read_policy, write_policy


def test_a_policy_file_keeps_counts_numbers_and_prices(tmp_path):
    fitted = CriticModel(
        BetaRate(60, 98), (Critic("test", BetaRate(9, 10), 0.25, 2),), Kernel(BetaRate(9, 44), 0.1), {"n": 98}
    )
    prices = Prices(80, 12, 3, ship_loss=40, unit="seconds")
    write_policy(tmp_path / "policy.json", fitted, prices)
    assert read_policy(tmp_path / "policy.json") == (fitted, prices)
    write_policy(tmp_path / "bare.json", fitted)
    assert read_policy(tmp_path / "bare.json") == (fitted, None)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bare.json", "policy.json"]


def test_smoothing_is_the_posterior_mean_in_rationals_too():
    # 9 fixes of 44 broken, 10 breaks of 68 correct: the example that the release works out.
    assert exact(BetaRate(9, 44)) == Fraction(10, 46)
    assert exact(BetaRate(10, 68)) == Fraction(11, 70)
    assert exact(0.1) == Fraction(1, 10)


@pytest.mark.parametrize("price", [-1, math.nan, math.inf])
def test_prices_that_are_none_are_refused(price):
    with pytest.raises(BadInput, match="finite amount of 0 or more"):
        Critic("test", 0.9, 0.4, price)
    for field in ("reward", "verify", "generate", "ship_loss"):
        with pytest.raises(BadInput, match="finite amount of 0 or more"):
            Prices(**{field: price})


@pytest.mark.parametrize("rate", [None, -0.1, 1.1, math.nan])
def test_a_critic_needs_both_sides(rate):
    with pytest.raises(BadInput, match="alpha"):
        Critic("test", rate, 0.4, 2)
    with pytest.raises(BadInput, match="beta"):
        Critic("test", 0.9, rate, 2)
    with pytest.raises(BadInput, match=r"P\(fix\)"):
        Kernel(rate, 0.1)


def test_names_of_actions_and_doubled_names_are_refused():
    for name in ("stop", "ship", "verify", "generate", ""):
        with pytest.raises(BadInput, match="cannot be called"):
            Critic(name, 0.9, 0.4, 2)
    with pytest.raises(BadInput, match="two critics"):
        model((IMPERFECT[1], IMPERFECT[1]))
    with pytest.raises(BadInput, match="no critic 'lint'"):
        model().critic("lint")
    assert model().only(["llm"]).names == ("llm",)


def test_unknown_units_are_refused():
    with pytest.raises(BadInput, match="unknown unit"):
        Prices(unit="minutes")


def _policy(change):
    data = model().to_json()
    change(data)
    return json.dumps(data)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "cannot be read"),
        ("[]", "no gate policy"),
        (_policy(lambda d: d.update(kind="other")), "no gate policy"),
        (_policy(lambda d: d.update(version=3)), "version 3"),
        (_policy(lambda d: d["critics"][1].pop("beta")), r"critics\.1\.beta"),
        (_policy(lambda d: d["critics"][1].update(alpha=None)), r"critics\.1\.alpha"),
        (_policy(lambda d: d["critics"][1].update(alpha="high")), r"critics\.1\.alpha"),
        (_policy(lambda d: d["critics"][1].update(alpha={"trials": 3})), r"critics\.1\.alpha"),
        (_policy(lambda d: d["kernel"].pop("fix")), r"kernel\.fix"),
        (_policy(lambda d: d.update(critics={})), "critics"),
        (_policy(lambda d: d.pop("prior")), "prior"),
        (_policy(lambda d: d.update(prices={"reward": 1})), "'verify'"),
    ],
)
def test_a_damaged_policy_file_names_what_is_wrong_and_where(tmp_path, text, said):
    file = tmp_path / "policy.json"
    file.write_text(text)
    with pytest.raises(BadInput, match=said) as error:
        read_policy(file)
    assert str(file) in str(error.value)


def test_a_fresh_draw_is_a_kernel():
    assert Kernel.resample(0.3) == Kernel(0.3, 0.7)
    assert Kernel.resample(0.6) != KERNEL
