"""The page and the Markdown as a whole: structure, hostile text, edges, bounds, equal numbers."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from kernel.report.searches import NAIVE, failed, finding, line, matmul, right, store
from refork.errors import BadInput
from refork.report.words import times, times_span
from refork_methods.kernel.commands import app
from refork_methods.kernel.report import write_report
from refork_methods.kernel.report.page import MOST_LINES, WIDEST, code, difference, fence, text

_VOID = {"meta", "br", "hr", "img", "input", "link"}


class Page(HTMLParser):
    """Checks that tags are balanced, and collects tags, attributes and text."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(html)
        self.close()
        assert not self.open, self.open
        assert "script" not in self.tags
        assert not any(name.startswith("on") or name in ("href", "src") for name in self.attributes)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def written(folder: Path) -> tuple[str, str]:
    report = write_report(folder)
    return report.html.read_text(), report.markdown.read_text()


def test_the_page_has_the_parts_of_the_markdown_and_pictures(tmp_path: Path) -> None:
    html, told = written(store(tmp_path / "s", *matmul()))
    page = Page(html)
    assert page.tags.count("svg") == 4  # progress and roofline, wide and narrow
    titles = re.findall(r"^## (.*)", told, flags=re.M)
    assert titles == [
        "Timing", "Under the roof", "Every kernel", "The best kernel against the original",
        "Findings before and after", "What the tools' advice brought", "What failed, and why", "Again",
        "Problem", "Search", "Machine",
    ]  # fmt: skip
    assert all(title in page.text for title in (*titles, "Progress"))
    assert "# matmul runs 26 times as fast" in told
    every = told.partition("## Every kernel")[2].partition("\n## ")[0]
    assert len(re.findall(r"^\| (?:\*\*)?\d+", every, flags=re.M)) == 41
    assert '<span class="new">+' in html
    assert written(store(tmp_path / "again" / "s", *matmul())) == (html, told)


HOSTILE = (
    "</script></svg></pre><script>alert(1)</script><img src=x onerror=alert(1)>\x00\x1b[31m\u202e|`*]]>&amp;"
)


def test_hostile_text_acts_on_nothing(tmp_path: Path) -> None:
    bad = finding("Tool") | {"cause": HOSTILE, "action": HOSTILE, "evidence": [HOSTILE], "tool": HOSTILE}
    lines = [
        line(0, -1, NAIVE, right(1.0)),
        line(
            1, 0, NAIVE + HOSTILE, right(3.0), move=HOSTILE, why=HOSTILE, answers=(HOSTILE,), notes=(HOSTILE,)
        ),
        line(2, 1, HOSTILE, failed("build", HOSTILE * 50), move=HOSTILE),
    ]
    told = {
        "problem": {"name": HOSTILE, "entry": HOSTILE, "flops": 1e9, "bytes": 1e6, HOSTILE: HOSTILE},
        "machine": {HOSTILE: HOSTILE}, "writer": HOSTILE,
    }  # fmt: skip
    html, text = written(store(tmp_path / "s", lines, {0: [bad], 1: [bad]}, **told))
    page = Page(html)
    assert "img" not in page.tags
    assert "onerror=alert(1)" in page.text
    for char in ("\x00", "\x1b", "\u202e"):
        assert char not in html
        assert char not in text
    outside = re.sub(r"(`{3,}).*?\n\1", "", text, flags=re.S)
    outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", outside)
    assert not re.search(r"(?<!\\)<", outside)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "nothing was tried yet"),
        ([line(0, -1, NAIVE, right(1.0))], "nothing was tried yet"),
        (
            [line(0, -1, NAIVE, failed("run", "x")), line(1, 0, NAIVE, failed("build", ""))],
            "no kernel passed",
        ),
        ([line(0, -1, NAIVE, right(1.0)), line(1, 0, NAIVE, right(0.5))], "no kernel beat the original"),
    ],
)
def test_edges(tmp_path: Path, lines: list[dict[str, Any]], said: str) -> None:
    html, text = written(store(tmp_path / "s", lines))
    page = Page(html)
    assert said in page.text
    assert said in text


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"ceilings": None, "machine": None}, "was not calibrated"),
        ({"problem": {"name": "f"}}, "is not declared"),
        ({"problem": {"name": "f", "flops": None, "bytes": 4096.0}}, "No floating-point work is declared"),
    ],
)
def test_what_is_not_known_is_said(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    html, text = written(store(tmp_path / "s", *matmul(12), **changed))
    page = Page(html)
    assert said in page.text
    assert said in text
    assert page.tags.count("svg") == 2  # no roofline


def test_thousands_of_kernels_stay_small(tmp_path: Path) -> None:
    report = write_report(store(tmp_path / "s", *matmul(5000)))
    text_of_it = report.markdown.read_text()
    assert len(report.html.read_text()) < 1_000_000
    assert len(text_of_it) < 100_000
    assert "kernels stand in `nodes.jsonl`" in text_of_it
    assert report.figures.tried == 4999


def test_numbers_agree_everywhere(tmp_path: Path) -> None:
    lines, seen = matmul()
    final = right(17.31) | {"low": 16.2, "high": 18.9, "samples": [0.01] * 15}
    folder = store(tmp_path / "s", lines, seen, state="done", best=13, final=final)
    asked = CliRunner().invoke(app, ["report", str(folder), "--out", str(tmp_path / "out"), "--json"])
    assert asked.exit_code == 0, asked.output
    told = json.loads(asked.stdout)
    html = Page(Path(told["html"]).read_text()).text
    text = Path(told["markdown"]).read_text()
    timing = told["timing"]
    assert (timing["speedup"], timing["duel"], told["best"]) == (17.31, True, 13)
    wanted = [
        times(timing["speedup"]),
        times_span(timing["low"], timing["high"]),
        f"{told['tried']} kernels tried",
    ]
    wanted += [f"{told['right']} right, {told['tried'] - told['right']} failed"]
    wanted += [times(hit["gain"]) for hit in told["hits"]]
    for words in wanted:
        assert words in html
        assert words in text.replace("\\", "")
    for hit in told["hits"]:
        row = re.search(rf"^\| {hit['tool']} \|(.*)\|$", text, flags=re.M)
        assert row is not None
        cells = [cell.strip() for cell in row.group(1).split("|")]
        assert cells[:3] == [str(hit["fires"]), str(hit["acted"]), str(hit["right"])]
        assert re.search(rf"{hit['tool']}\s*{hit['fires']}\s*{hit['acted']}\s*{hit['right']}\s", html) or (
            f"{hit['tool']}{hit['fires']}{hit['acted']}{hit['right']}" in re.sub(r"\s", "", html)
        )


def test_the_command_says_where_it_wrote(tmp_path: Path) -> None:
    folder = store(tmp_path / "s", *matmul(8))
    asked = CliRunner().invoke(app, ["report", str(folder)])
    assert asked.exit_code == 0, asked.output
    assert str(folder / "report.html") in asked.stdout.replace("\n", "")


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    folder = store(tmp_path / "s", *matmul(3))
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be written"):
        write_report(folder, tmp_path / "file" / "deeper")


@given(st.text(max_size=80))
def test_markdown_acts_on_no_foreign_text(foreign: str) -> None:
    line = code(foreign)
    assert "|" not in line
    assert "\n" not in line
    block = fence(foreign, "")
    ticks = block.split("\n", 1)[0]
    assert ticks not in block[len(ticks) : -len(ticks)]
    assert "<" not in text(foreign).replace("\\<", "")


def test_a_difference_is_cut() -> None:
    before = "\n".join(f"line {i}" for i in range(1000))
    found = difference(before, before.replace("line 7\n", "line seven\n")).splitlines()
    assert [one for one in found if one[:1] in "+-"] == ["-line 7", "+line seven"]
    assert difference(before, before) == "The source is the original's."
    assert len(difference(before, "").splitlines()) == MOST_LINES + 3
    assert "601 more lines" in difference(before, "")
    assert max(map(len, difference("", "x" * 5000).splitlines())) <= WIDEST + 1
    assert "too long" in difference("", "x\n" * 200_000)
