"""Figures in pages are those that are stored, and notebooks become pages."""

import json
import re
from pathlib import Path

import pytest

import refork
from support.toolbox import load

ROOT = Path(__file__).resolve().parents[2]
site_hooks = load("site_hooks")
results = site_hooks.results


def test_a_marker_becomes_the_stored_figures(monkeypatch, tmp_path):
    """The table holds the chosen figures in the order asked for, as docs/results.md prints them."""
    figures = (results.Figure("a", "first"), results.Figure("b.c", "second", published="0.9"))
    entry = results.Entry("some_bench", "core", "A claim.", figures, "A note.")
    monkeypatch.setattr(results, "REGISTRY", (entry,))
    monkeypatch.setattr(results, "STORED", tmp_path)
    record = {"figures": {"a": 12345.6, "b": {"c": 0.5}}, "command": "python x.py"}
    (tmp_path / "some_bench.json").write_text(json.dumps(record))
    table = site_hooks.figures_table("some_bench", ["b.c", "a"])
    assert table.splitlines()[2:4] == ["| second | 0.9 | 0.5 |", "| first | - | 12,300 |"]
    assert table.endswith("`python x.py`; setting and notes in [Results](../results.md#some-bench).")
    assert "| first |" in site_hooks.figures_table("some_bench", [], up="")
    with pytest.raises(ValueError, match=r"claims no 'x'; it has a, b\.c"):
        site_hooks.figures_table("some_bench", ["x"])
    with pytest.raises(ValueError, match="no benchmark 'other'"):
        site_hooks.figures_table("other", [])
    (tmp_path / "some_bench.json").unlink()
    assert site_hooks.figures_table("some_bench", ["a"]).splitlines()[2] == "| first | - | not run yet |"


def test_the_page_on_security_has_links_as_from_the_pages():
    page = site_hooks.security_page()
    linked = re.findall(r"\]\(([\w./-]+\.md)", page)
    assert linked
    assert all((ROOT / "docs" / one).exists() for one in linked)


def test_every_name_at_the_top_has_its_reference():
    shown = [line.rpartition(".")[2] for line in site_hooks.names_of_refork().splitlines() if line]
    assert sorted(shown) == sorted(refork.__all__)
    assert site_hooks.NAMES in (ROOT / "docs/reference/python.md").read_text()


def test_every_marker_of_the_pages_is_known():
    """No page asks for a figure that no benchmark claims."""
    found = [
        match
        for page in (ROOT / "docs").rglob("*.md")
        for match in site_hooks.MARKER.finditer(page.read_text())
    ]
    assert len(found) > 10
    for match in found:
        assert site_hooks.figures_table(match[1], match[2].split()).startswith("| figure |")


def test_a_notebook_becomes_a_page():
    """Cells are fenced, outputs follow them, a cell without source or output leaves nothing."""
    book = {
        "cells": [
            {"cell_type": "markdown", "source": ["# Title\n", "Text."]},
            {
                "cell_type": "code",
                "source": "print(1)",
                "outputs": [
                    {"output_type": "stream", "text": ["1\n"]},
                    {
                        "output_type": "display_data",
                        "data": {"image/png": "QUJD\n", "text/plain": "<Figure>"},
                    },
                ],
            },
            {"cell_type": "code", "source": "", "outputs": []},
        ]
    }
    page = site_hooks.notebook_page(book, "core")
    assert page.startswith("# Title\nText.\n\n*A notebook: `notebooks/core.ipynb`")
    assert "```python\nprint(1)\n```\n\n```text\n1\n```\n\n<img alt=" in page
    assert 'base64,QUJD"' in page
    assert "<Figure>" not in page


def test_every_notebook_is_in_the_navigation_with_outputs():
    """A notebook that was never run, or that no reader finds, is none."""
    nav = (ROOT / "mkdocs.yml").read_text()
    books = sorted((ROOT / "notebooks").glob("*.ipynb"))
    assert [book.stem for book in books] == ["app", "core", "discover", "examine", "learn", "operate"]
    for book in books:
        assert f"notebooks/{book.stem}.md" in nav
        cells = [c for c in json.loads(book.read_text())["cells"] if c["cell_type"] == "code"]
        kinds = {kind for cell in cells for out in cell["outputs"] for kind in out.get("data", {})}
        assert "image/png" in kinds, book.name


#: The main page of each method; the others are details of these.
MAIN = (
    "cliff-tokens",
    "crosscoder",
    "forensics",
    "gate",
    "graph-credit",
    "implicit-advantage",
    "judge-evolution",
    "kernel-search",
    "localize",
    "memory",
    "probe",
    "recovery",
    "rot",
    "route",
    "speculate",
    "theory",
    "tree-sampling",
    "world-model",
)


@pytest.mark.parametrize("name", MAIN)
def test_main_pages_of_methods_have_one_form(name):
    """When to use it, one command, a picture, the stored numbers, limits: in this order."""
    page = (ROOT / f"docs/methods/{name}.md").read_text()
    wanted = (
        "\n## When to use it, and when not\n",
        "\n## One command",
        "# Numbers against the paper\n",
        "\n## Limits",
    )
    places = [page.find(part) for part in wanted]
    assert -1 not in places, wanted[places.index(-1)]
    assert places == sorted(places)
    assert "](../pictures/" in page
    assert site_hooks.MARKER.search(page)
