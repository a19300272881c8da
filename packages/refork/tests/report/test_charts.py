"""What a figure says: its marks, its table, and that it stands alone."""

import re
from importlib.util import find_spec
from xml.etree import ElementTree

import pytest

from refork.errors import MissingExtra
from refork.report import charts, palette
from refork.report.charts import (
    Across,
    Dot,
    Figure,
    Level,
    Line,
    Plane,
    Row,
    Spot,
    Trail,
    curves,
    decades,
    intervals,
    scatter,
)
from refork.report.data import Cliff, Token, Trace, TraceStep
from refork.report.value_chart import value_figure


def layers(figure: Figure, width: int = charts.WIDE):
    """Each layer of a figure's chart: the kind of its mark and the rows it draws, by its own filter."""
    spec = figure.draw(width).to_dict()
    for layer in spec["layer"]:
        held = layer.get("data", spec.get("data", {}))
        rows = spec.get("datasets", {}).get(held.get("name"), held.get("values", []))
        tests = [t["filter"] for t in layer.get("transform", ())]
        yield layer["mark"]["type"], [row for row in rows if all(holds(test, row) for test in tests)], layer


def holds(test: str, row: dict) -> bool:
    """The filters that charts use: a flag, a known value, an equality."""
    found = []
    for part in test.split(" && "):
        if known := re.fullmatch(r"isValid\(datum\.(\w+)\)", part):
            found.append(row[known[1]] is not None)
        elif equal := re.fullmatch(r"datum\.(\w+) == '?(\w+)'?", part):
            found.append(str(row[equal[1]]).lower() == equal[2])
        else:
            found.append(bool(row[re.fullmatch(r"datum\.(\w+)", part)[1]]))
    return all(found)


def drawn(figure: Figure, mark: str, **has):
    """Rows of all layers of one kind whose mark has these settings."""
    return [
        row
        for kind, rows, layer in layers(figure)
        if kind == mark and has.items() <= layer["mark"].items()
        for row in rows
    ]


def test_a_curve_is_broken_where_nothing_was_measured():
    dots = [
        Dot(0, 0.0, 0.0, 0.1, "1,200 tokens sampled"),
        Dot(1, None),
        Dot(2, 0.5, None, None, "siblings join"),
    ]
    figure = curves(
        [Line("success", dots)], name="n", plane=Plane("updates", "success", bottom=0.0), last=True
    )
    assert [row["x"] for row in drawn(figure, "point")] == [0, 2]
    assert len({row["run"] for row in drawn(figure, "line")}) == 2
    assert [row["x"] for row in drawn(figure, "area")] == [0]
    assert figure.columns == ("updates", "success", "Interval", "Note")
    assert figure.rows[0] == ("0", "0\u00a0%", "0 to 10\u00a0%", "1,200 tokens sampled")
    assert figure.rows[1][1] == "–"


def test_faint_lines_are_behind_and_not_in_the_table():
    line = [Dot(1, 0.5), Dot(2, 0.6)]
    figure = curves(
        [Line("a", line), Line("a", [Dot(1, 0.4), Dot(2, 0.5)], faint=True), Line("b", line, dashed=True)],
        name="n", plane=Plane("x", "y", levels=(Level(0.5, "a coin"),)),
    )  # fmt: skip
    order = [layer["mark"]["opacity"] for kind, _, layer in layers(figure) if kind == "line"]
    assert order == [0.3, 1, 1]
    assert [row[0] for row in figure.rows] == ["a", "a", "b", "b", "a coin"]
    assert len(drawn(figure, "point")) == 4


def test_a_logarithmic_axis_leaves_out_what_it_can_not_hold():
    figure = curves(
        [Line("a", [Dot(0, 0.0), Dot(1, 10.0), Dot(2, float("inf")), Dot(3, 1000.0)])],
        name="n", plane=Plane("x", "y", unit="number", log=True),
    )  # fmt: skip
    assert [row["x"] for row in drawn(figure, "point")] == [1, 3]
    assert [row[1] for row in figure.rows] == ["0", "10", "∞", "1e+03"]


@pytest.mark.parametrize("values", [[0.0, -3.0], [0.0, 5.0], []])
def test_logarithmic_axes_hold_the_positive_values_alone(values):
    plane = Plane("x", "y", unit="number", log=True, log_x=True, bottom=0.0, levels=(Level(0.0, "none"),))
    positive = [value for value in values if value > 0]
    curve = curves([Line("a", [Dot(v, v) for v in values])], name="n", plane=plane, last=True)
    assert [row["x"] for row in drawn(curve, "point")] == positive
    spots = [Spot(v, v, "a", label="s", low=0.0, high=v, x_low=v, x_high=v) for v in values]
    trails = [Trail([(v, v) for v in values])]
    cloud = scatter(spots, name="n", plane=plane, colours={"a": "#000"}, trails=trails)
    cloud_rows = drawn(cloud, "point", filled=True)
    assert [(row["x"], row["low"]) for row in cloud_rows] == [(v, None) for v in positive]
    low, high = plane.axes([], 600)[1]["scale"].to_dict()["domain"]
    assert (low, high) == pytest.approx((1 / 1.15, 11.5))


@pytest.mark.parametrize(
    ("low", "high", "marks"),
    [
        (1, 10, [1, 2, 5, 10]),
        (1, 1000, [1, 3, 10, 30, 100, 300, 1000]),
        (0.9, 1e6, [10.0**i for i in range(7)]),
    ],
)
def test_marks_of_a_logarithmic_axis_are_round(low, high, marks):
    assert decades(low, high) == pytest.approx(marks)


def test_lines_break_where_nothing_was_computed():
    assert charts.runs([None, 1, 2, None, 0.0]) == [range(1, 3), range(4, 5)]
    assert charts.runs([]) == []


def test_a_row_without_figures_has_no_mark():
    rows = [Row("a", None, None, None, "–"), Row("b", 0.5, 0.4, 0.6, "x", ring=0.7)]
    figure = intervals(rows, name="n", across=Across(bounds=(0, 1), ring="predicted"))
    assert [row["name"] for row in drawn(figure, "point", filled=True)] == ["b"]
    assert [row["ring"] for row in drawn(figure, "point", filled=False)] == [0.7]
    assert figure.columns == ("", "Value", "Interval", "Predicted", "As shown")
    assert figure.rows[1] == ("b", "50\u00a0%", "40 to 60\u00a0%", "70\u00a0%", "x")


def test_a_difference_stands_on_an_axis_with_zero():
    figure = intervals([Row("d", 0.2, 0.1, 0.3, "x")], name="n", across=Across("points", zero="no effect"))
    spec = figure.draw(charts.NARROW).to_dict()
    scales = [
        layer["encoding"]["x"].get("scale") for layer in spec["layer"] if "scale" in layer["encoding"]["x"]
    ]
    assert scales[0]["domain"][0] == 0
    assert drawn(figure, "text", dy=-9) == [{"v": 0.0, "t": "no effect"}]
    assert figure.rows[0][2] == "+10 to +30"


def trace_of(values, cliff=None, outcome=0.0):
    tokens = tuple(Token(text=f" t{i}", index=10 + i, value=v) for i, v in enumerate(values))
    return Trace(steps=(TraceStep(kind="action", text="", tokens=tokens),), outcome=outcome, cliff=cliff)


def test_values_are_drawn_where_known_and_the_cliff_is_marked():
    cliff = Cliff(token_index=11, text=" t1", before=0.8, after=0.1)
    figure = value_figure(trace_of([0.8, 0.8, 0.1, None], cliff))
    dots = [row for row in drawn(figure, "point", filled=True) if "told" in row and "words" not in row]
    assert [row["i"] for row in dots] == [0, 1, 2]
    assert dots[0]["colour"] == palette.LIGHT[8]
    assert [row["i"] for row in drawn(figure, "rect")] == [1]
    assert [row["word"] for row in drawn(figure, "text", fontWeight="bold")] == ["t1"]
    assert [row["sign"] for row in drawn(figure, "text", fontWeight=700)] == ["✗"]
    assert [row[-1] for row in figure.rows] == ["", "cliff", "", ""]


def test_a_cliff_that_is_not_a_token_and_a_missing_outcome_are_left_out():
    figure = value_figure(trace_of([0.8], Cliff(token_index=99, text="x", before=1, after=0), outcome=None))
    assert drawn(figure, "rect") == []
    assert drawn(figure, "text", fontWeight=700) == []


def test_hundreds_of_tokens_get_numbers_instead_of_words():
    figure = value_figure(trace_of([0.5] * 400))
    assert drawn(figure, "text", font="monospace") == []
    assert len(drawn(figure, "point", filled=True)) >= 400


def test_a_figure_stands_alone_and_on_a_page():
    """The same bytes again, no script, every colour known to the dark page, texts and hovers escaped."""
    evil = '<script>alert(1)</script> & "x" 0.12345'
    figure = curves(
        [
            Line(evil, [Dot(0, 0.25, 0.2, 0.3, tooltip=evil), Dot(1, 0.5)]),
            Line("b", [Dot(0, 0.5), Dot(1, 0.7)]),
        ],
        name=evil, plane=Plane("updates", "success"),
    )  # fmt: skip
    alone = figure.svg()
    assert alone == figure.svg()
    root = ElementTree.fromstring(alone)
    texts = [element.text or "" for element in root.iter() if element.tag.endswith(("text", "title"))]
    assert evil in texts
    assert any("25\u00a0% (20 to 30\u00a0%)" in text and evil in text for text in texts)
    assert "<script" not in alone
    page = str(figure.html())
    assert "<script" not in page
    assert len(re.findall('role="img" aria-label="&lt;script', page)) == 2
    assert page.count("<table>") == 1
    colours = set(re.findall(r'(?:fill|stroke)="(#\w+)"', page))
    assert colours <= set(palette.dark_of()) | {"#fff"}
    assert 'opacity="0.16"' in page


def test_without_the_library_the_extra_is_named(monkeypatch):
    assert find_spec("altair") is not None
    monkeypatch.setitem(__import__("sys").modules, "altair", None)
    with pytest.raises(MissingExtra, match="altair"):
        charts.altair()
