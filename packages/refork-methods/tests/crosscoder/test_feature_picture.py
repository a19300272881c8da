"""The feature scatter: well-formed, every live feature once on each side, the same bytes again."""

import math
from xml.etree import ElementTree

from refork_methods.crosscoder.feature_picture import feature_picture
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
    text = feature_picture(rows, "tool")
    drawn = ElementTree.fromstring(text)
    names = [t.text for t in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert sum(name.startswith("feature 1:") for name in names) == 2
    assert len(names) == 6
    assert "1 never fire on these texts" in text
    assert "candidate (2)" in text
    assert any("'<call>'" in name for name in names)
    assert text == feature_picture(rows, "tool")


def test_what_has_no_place_on_an_axis_is_left_out_there_only():
    text = feature_picture([row(1, math.inf), row(2, 1.0, share=math.nan), row(3, 1.0)], "tool")
    names = [t.text for t in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}title")]
    assert sum(name.startswith(("feature 1:", "feature 2:")) for name in names) == 2
    assert feature_picture([], "tool").startswith("<svg")
