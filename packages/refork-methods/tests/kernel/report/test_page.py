"""The page and the Markdown as a whole: structure, hostile text, edges, bounds, equal numbers."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from kernel.report.searches import NAIVE, failed, finding, line, matmul, right, store
from refork.errors import BadInput
from refork.report.words import times, times_span
from refork_methods.kernel.commands import app
from refork_methods.kernel.report import write_report

_VOID = {"meta", "br", "hr", "img", "input", "link"}
SECTIONS = ["progress", "roofline", "tree", "best", "findings", "tools", "failures"]


class Page(HTMLParser):
    """Checks that tags are balanced, and collects ids, links and text."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(html)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            self.attributes.add(name)
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src"):
                self.links.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def checked(html: str) -> Page:
    """A page with all that holds for every page checked."""
    page = Page(html)
    assert len(page.ids) == len(set(page.ids))
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links)
    assert "<title>" in html
    for picture in re.findall(r"<svg.*?</svg>", html, flags=re.S):
        root = ElementTree.fromstring(picture)
        assert root.get("aria-label")
        assert root.get("role") in ("img", "group")
    for word in ("http:", "https:", "url(", "@import"):
        assert word not in html
    script = re.search(r"<script>(.*?)</script>", html, flags=re.S)
    assert script is not None
    digest = base64.b64encode(hashlib.sha256(script.group(1).encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in html.replace("&#39;", "'")
    assert page.tags.count("script") == 1
    assert not any(name.startswith("on") for name in page.attributes)
    return page


def written(folder: Path) -> tuple[str, str]:
    report = write_report(folder)
    return report.html.read_text(), report.markdown.read_text()


def test_golden_structure(tmp_path: Path) -> None:
    html, told = written(store(tmp_path / "s", *matmul()))
    page = checked(html)
    assert [name for name in page.ids if name in SECTIONS] == SECTIONS
    assert [name for name in page.ids if re.fullmatch(r"node-\d+", name)] != []
    assert sum(bool(re.fullmatch(r"node-\d+", name)) for name in page.ids) == 41
    assert page.tags.count("svg") == 6  # progress, roofline and tree, wide and narrow
    assert html.count('class="panel start"') == 1
    assert re.findall(r"^#+ .*", told, flags=re.M) == [
        "# matmul runs 26 times as fast", "## Timing", "## Under the roof", "## The way to the best kernel",
        "## The best kernel against the original", "## Findings before and after",
        "## What the tools' advice brought", "## What failed, and why", "## Again", "## Problem", "## Search",
        "## Machine",
    ]  # fmt: skip
    assert "prefers-color-scheme: dark" in html
    assert 'name="viewport"' in html


def test_equal_data_give_equal_bytes(tmp_path: Path) -> None:
    assert written(store(tmp_path / "1" / "s", *matmul())) == written(store(tmp_path / "2" / "s", *matmul()))


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
    page = checked(html)
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
    page = checked(html)
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
    page = checked(html)
    assert said in page.text
    assert said in text
    assert page.tags.count("svg") == 4  # no roofline


def test_a_deep_chain_fits(tmp_path: Path) -> None:
    lines = [line(0, -1, NAIVE, right(1.0))]
    lines += [line(n, n - 1, f"{NAIVE}//{n}", right(1 + n / 10), move=f"step {n}") for n in range(1, 200)]
    html, _ = written(store(tmp_path / "s", lines))
    checked(html)
    for x in re.findall(r'cx="([-\d.]+)"', html):
        assert 0 <= float(x) <= 760


def test_thousands_of_kernels_stay_small(tmp_path: Path) -> None:
    report = write_report(store(tmp_path / "s", *matmul(5000)))
    html = report.html.read_text()
    page = checked(html)
    assert len(html) < 2_500_000
    assert len(report.markdown.read_text()) < 100_000
    assert sum(name.startswith("node-") and not name.endswith("title") for name in page.ids) <= 300
    assert "stand in nodes.jsonl" in page.text
    assert report.figures.tried == 4999


def test_numbers_agree_everywhere(tmp_path: Path) -> None:
    lines, seen = matmul()
    final = right(17.31) | {"low": 16.2, "high": 18.9, "samples": [0.01] * 15}
    folder = store(tmp_path / "s", lines, seen, state="done", best=13, final=final)
    asked = CliRunner().invoke(app, ["report", str(folder), "--out", str(tmp_path / "out"), "--json"])
    assert asked.exit_code == 0, asked.output
    import json

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
