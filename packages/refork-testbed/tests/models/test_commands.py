"""``refork organism``: the list shows what every kind of organism measured."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from refork_testbed.models import commands as organism

RATE = {"rate": 0.485, "low": 0.417, "high": 0.554}


def row(name: str, measured: Any, world: str | None = None) -> dict[str, Any]:
    return {
        "name": name, "summary": f"is {name}", "world": world, "path": "somewhere",
        "built": measured is not None, "measured": measured,
    }  # fmt: skip


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    rows = [
        row("walker", RATE, "maze:2"),
        row("simulator", {"exact": {"terminal": RATE, "tools?x=1": RATE}, "coverage": 1.0}),
        row("forecaster", {"told": "a sentence"}),
        row("seedling", None),
    ]
    monkeypatch.setattr("refork_testbed.models.describe", lambda: rows)
    return CliRunner()


def test_one_rate_many_rates_and_none(listed):
    lines = listed.invoke(organism.app, ["list"]).output.splitlines()
    assert lines[0].split()[:4] == ["walker", "built", "0.48", "[0.42,"]
    assert lines[0].endswith("is walker (maze:2)")
    assert "terminal 0.48 [0.42, 0.55], tools 0.48 [0.42, 0.55]" in lines[1]
    assert lines[2].split()[:3] == ["forecaster", "built", "-"]
    assert lines[3].split()[:4] == ["seedling", "not", "built", "-"]


def test_json_is_what_was_described(listed):
    told = json.loads(listed.invoke(organism.app, ["list", "--json"]).output)
    assert [one["name"] for one in told] == ["walker", "simulator", "forecaster", "seedling"]
    assert told[0]["measured"] == RATE
