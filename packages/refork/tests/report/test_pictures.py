import pytest

from refork.report import palette
from refork.report.svg import num, tag


def test_svg_escapes_text_and_attributes():
    drawn = str(tag("text", "<script>&", class_='"x"'))
    assert drawn == '<text class="&#34;x&#34;">&lt;script&gt;&amp;</text>'
    assert str(tag("g", tag("title", "a\x00b"))) == "<g><title>a␀b</title></g>"
    assert str(tag("path", d=None, stroke_width=1.0)) == '<path stroke-width="1"/>'


def test_numbers_are_short():
    assert [num(v) for v in (1.0, -0.01, 0.25, 12.34)] == ["1", "0", "0.2", "12.3"]


def test_the_scale_has_eleven_distinct_steps_and_one_for_none():
    assert [palette.shade(v) for v in (None, 0.0, 0.5, 1.0, 2.0)] == ["snone", "s0", "s5", "s10", "s10"]
    assert len(set(palette.LIGHT)) == len(set(palette.DARK)) == 11


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


@pytest.mark.parametrize(
    ("scale", "paper", "least"), [(palette.LIGHT, "#fbfaf7", 2.6), (palette.DARK, "#121417", 4.5)]
)
def test_every_step_of_the_scale_stands_out_from_the_page(scale, paper, least):
    for colour in scale:
        low, high = sorted((luminance(colour), luminance(paper)))
        assert (high + 0.05) / (low + 0.05) >= least
