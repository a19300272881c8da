"""Pictures of the documentation: from reports, as files of their own, and bars from stored figures."""

import json
import re
from base64 import b64encode
from pathlib import Path

import pytest

from support.toolbox import load

ROOT = Path(__file__).resolve().parents[2]
pictures = load("page_pictures")


def test_every_picture_is_committed_and_shown():
    """No picture without a page that shows it, no page that shows a missing one."""
    pages = "".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    for name in pictures.PICTURES:
        assert (pictures.OUT / f"{name}.svg").exists(), name
        assert f"pictures/{name}.svg" in pages, name


def test_bars_are_the_stored_figures(monkeypatch, tmp_path):
    """The longest bar is the largest figure; a figure that is not stored is said."""
    monkeypatch.setattr(pictures, "STORED", tmp_path)
    (tmp_path / "x.json").write_text(json.dumps({"figures": {"a": 0.25, "b": {"c": 0.5}}}))
    drawn = pictures.bars(pictures.Bars("x", "title", (("one", "a"), ("two", "b.c"))))
    assert drawn.startswith("<svg xmlns=")
    assert ">0.25</text>" in drawn
    short, long = (float(found) for found in re.findall(r'd="M0,[\d.]+h([\d.]+)v[^"]*" fill', drawn))
    assert short == pytest.approx(long / 2, abs=0.2)
    with pytest.raises(SystemExit, match="not all of"):
        pictures.bars(pictures.Bars("x", "title", (("one", "gone"),)))


def test_a_report_gives_its_first_picture():
    """Light colours go with it, dark ones stay behind; an embedded picture is taken as it is."""
    dark = "@media (prefers-color-scheme: dark) { :root { --x: 1; } a { fill: blue } }"
    style = f"<style>a {{ fill: red }} {dark}</style>"
    found = pictures.from_report(f'{style}<svg class="a"><g/></svg><svg/>')
    assert "fill: red" in found
    assert "blue" not in found
    assert found.count("</svg>") == 1
    inside = b64encode(b"<svg><g/></svg>").decode()
    taken = pictures.from_report(f'<svg/><img src="data:image/svg+xml;base64,{inside}">')
    assert taken == '<svg xmlns="http://www.w3.org/2000/svg"><g/></svg>'
    with pytest.raises(SystemExit, match="no picture"):
        pictures.from_report("<p>none</p>")
