"""The feature scatters: every live feature once in each, and what cannot be placed left out there."""

import math

from refork_methods.crosscoder.pictures import feature_figure
from refork_methods.crosscoder.rank import Example, FeatureRow


def row(feature, d, block="shared", on=0.5, off=0.0, share=0.5):
    examples = (Example(1.0, "<call>", "", ""),)
    return FeatureRow(
        feature,
        block,
        "shared",
        share,
        d,
        0.7,
        0.6,
        0.8,
        on,
        off,
        1.0,
        0.0,
        on >= 0.3 and off <= 0.1,
        examples,
    )


def test_every_live_feature_is_drawn_on_both_sides_and_the_rest_counted():
    rows = [row(1, 3.0, "A", share=1.0), row(2, 0.5), row(3, -2.0, "B", off=0.9, on=0.0, share=0.0)]
    rows.append(row(4, 0.0, on=0.0))
    figure = feature_figure(rows, "tool")
    (fires,) = figure.more
    assert {row[-1].split(":")[0] for row in figure.rows} == {"feature 1", "feature 2", "feature 3"}
    assert len(figure.rows) == len(fires.rows) == 3
    assert figure.note == "2 candidates (ringed); 1 never fire on these texts"
    assert any("'<call>'" in row[-1] for row in figure.rows)
    assert {row[0] for row in figure.rows} == {"1", "2", ""}, "the largest effects are named"


def test_what_has_no_place_on_an_axis_is_left_out_there_only():
    figure = feature_figure([row(1, math.inf), row(2, 1.0, share=math.nan), row(3, 1.0)], "tool")
    assert [row[-1].split(":")[0] for row in figure.rows] == ["feature 3"]
    assert len(figure.more[0].rows) == 3
    assert feature_figure([], "tool").svg().startswith("<svg")
