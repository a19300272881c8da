"""Numbers, foreign text, axes and differences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refork.report import words
from refork_methods.kernel.report.diff import WIDEST, change
from refork_methods.kernel.report.markdown import code, fence, text
from refork_methods.kernel.report.tree_picture import LogAxis, covering


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (words.times(24.68), "24.7×"), (words.times(1234.0), "1,234×"), (words.times(None), "–"),
        (words.times_span(0.95, 1.04), "0.95 to 1.04×"), (words.times_span(None, 1.0), "–"),
        (words.short_time(0.0073), "7.3\u00a0ms"), (words.short_time(2.5e-7), "250\u00a0ns"),
        (words.short_time(None), "–"),
        (words.per_second(34.12e9, "flop"), "34.1\u00a0Gflop/s"),
        (words.per_second(11e9, "B"), "11\u00a0GB/s"),
        (words.rate(0.0), "0\u00a0%"), (words.rate(0.0294), "3\u00a0%"), (words.rate(0.714), "71\u00a0%"),
        (words.counted(1, "kernel"), "1 kernel"), (words.counted(1200, "kernel"), "1,200 kernels"),
    ],
)  # fmt: skip
def test_numbers_in_words(shown: str, expected: str) -> None:
    assert shown == expected


def test_nested_facts_are_one_list() -> None:
    told = words.flat({"seed": 0, "tree": {"explore": 0.7}, "gone": None, "flags": ["-O3", "-g"]})
    assert told == {"seed": "0", "tree: explore": "0.7", "flags": "-O3 -g"}


@given(st.text())
def test_a_line_is_one(given_text: str) -> None:
    assert "\n" not in words.one_line(given_text)


@given(st.text(max_size=80))
def test_markdown_acts_on_no_foreign_text(given_text: str) -> None:
    line = code(given_text)
    assert "|" not in line
    assert "\n" not in line
    block = fence(given_text, "")
    ticks = block.split("\n", 1)[0]
    assert ticks not in block[len(ticks) : -len(ticks)]
    assert "<" not in text(given_text).replace("\\<", "")


@given(st.lists(st.floats(1e-6, 1e12), min_size=1, max_size=9))
def test_an_axis_holds_its_values_in_order(values: list[float]) -> None:
    axis = covering(values, 0, 100)
    places = [axis(value) for value in sorted(values)]
    assert places == sorted(places)
    assert all(-1e-6 <= place <= 100 + 1e-6 for place in places)
    ticks = axis.ticks(7)
    assert 1 <= len(ticks) <= 7
    assert ticks == sorted(ticks)


def test_an_axis_is_logarithmic() -> None:
    axis = LogAxis(1.0, 100.0, 0.0, 200.0)
    assert axis(10.0) == pytest.approx(100.0)
    assert axis(1e9) == 200.0


def test_a_difference_is_counted_and_cut() -> None:
    before = "\n".join(f"line {i}" for i in range(300))
    after = before.replace("line 7\n", "line seven\nand more\n")
    found = change(before, after)
    assert (found.added, found.removed) == (2, 1)
    assert [line.sign + line.text for line in found.lines if line.kind != "same"] == [
        "@-5,7 +5,8", "-line 7", "+line seven", "+and more",
    ]  # fmt: skip
    assert change(before, before).lines == ()
    cut = change(before, "", most=10)
    assert len(cut.lines) == 11
    assert cut.lines[-1].kind == "cut"
    assert cut.removed == 300
    assert len(change("", "x" * 5000).lines[-1].text) <= WIDEST + 1
    assert change("", "x\n" * 200_000).lines[0].kind == "cut"
