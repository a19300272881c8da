import json
from dataclasses import replace

import pytest

from refork.errors import BadInput
from refork.report.data import CurvePoint, EffectData, RateData, ReportData, read


def test_json_round_trip_is_the_identity(report):
    text = json.dumps(report.to_json(), allow_nan=False)
    assert ReportData.from_json(json.loads(text)) == report


def test_none_stays_none_and_zero_stays_zero():
    data = ReportData(
        title="t", command="c", world="w", curve=(CurvePoint(update=0), CurvePoint(update=1, success=0.0))
    )
    back = ReportData.from_json(data.to_json())
    assert back.curve[0].success is None
    assert back.curve[1].success == 0.0
    assert back.seconds is None


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_figure_that_is_not_finite_is_refused_both_ways(value, report):
    data = replace(report, before=RateData(rate=value))
    with pytest.raises(BadInput, match="not a finite number"):
        data.to_json()
    with pytest.raises(BadInput, match=r"before\.rate"):
        ReportData.from_json({"title": "t", "command": "c", "world": "w", "before": {"rate": value}})


def test_the_field_that_does_not_fit_is_named():
    with pytest.raises(BadInput, match=r"curve\.0\.update"):
        ReportData.from_json({"title": "t", "command": "c", "world": "w", "curve": [{"update": "soon"}]})
    with pytest.raises(BadInput, match="what"):
        read(EffectData, {})


def test_unknown_keys_are_passed_over():
    assert read(EffectData, {"what": "remove", "looks": 3}).what == "remove"


def test_figures_outside_zero_to_one_are_means_unless_said():
    assert EffectData(what="x", base=RateData(rate=0.2), other=RateData(rate=0.4)).unit == "rate"
    assert EffectData(what="x", base=RateData(rate=0.2), other=RateData(rate=1.4)).unit == "mean"
    assert (
        EffectData(what="x", base=RateData(rate=0.2), other=RateData(rate=0.4), scale="mean").unit == "mean"
    )
