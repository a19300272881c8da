import pytest

from refork.errors import BadInput
from refork.plain import from_json
from refork.report.data import EffectData, RateData


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "what"),
        ({"what": "x", "p": float("nan")}, "p"),
        ({"what": "x", "base": {"rate": "high"}}, r"base\.rate"),
    ],
)
def test_the_field_that_does_not_fit_is_named(given, named):
    with pytest.raises(BadInput, match=named):
        from_json(EffectData, given)


def test_unknown_keys_are_passed_over():
    assert from_json(EffectData, {"what": "remove", "looks": 3}).what == "remove"


def test_figures_outside_zero_to_one_are_means_unless_said():
    assert EffectData(what="x", base=RateData(rate=0.2), other=RateData(rate=0.4)).unit == "rate"
    assert EffectData(what="x", base=RateData(rate=0.2), other=RateData(rate=1.4)).unit == "mean"
    assert (
        EffectData(what="x", base=RateData(rate=0.2), other=RateData(rate=0.4), scale="mean").unit == "mean"
    )
