"""``refork localize run`` and ``score``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from refork.errors import BadInput
from refork_methods.localize import commands as localize

RUNNER = CliRunner()
DIFF = "--- a/shop.py\n+++ b/shop.py\n@@ -2,1 +2,1 @@\n-    return total > 100\n+    return total >= 100\n"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "shop.py").write_text("def has_discount(total):\n    return total > 100\n")
    (tmp_path / "issue.md").write_text("`has_discount(100)` is False")
    return tmp_path


def test_run_writes_all_forms_and_score_reads_them(shop: Path) -> None:
    files = {name: shop / f"case.{name}" for name in ("json", "md", "sarif")}
    told = RUNNER.invoke(
        localize.app,
        [
            "run",
            str(shop / "shop"),
            "--issue",
            str(shop / "issue.md"),
            "--out",
            str(files["json"]),
            "--markdown",
            str(files["md"]),
            "--sarif",
            str(files["sarif"]),
        ],
    )
    assert told.exit_code == 0, told.output
    assert "1. shop.py:1-2  has_discount" in told.output
    assert json.loads(files["json"].read_text())["locations"][0]["symbol"] == "has_discount"
    assert "has_discount" in files["md"].read_text()
    assert json.loads(files["sarif"].read_text())["version"] == "2.1.0"
    (shop / "fix.diff").write_text(DIFF)
    scored = RUNNER.invoke(
        localize.app, ["score", str(files["json"]), "--diff", str(shop / "fix.diff"), "--json"]
    )
    assert json.loads(scored.output)["acc"]["1"] == 1.0
    plain = RUNNER.invoke(localize.app, ["score", str(files["json"]), "--diff", str(shop / "fix.diff")])
    assert "acc@1            1.000" in plain.output


def test_run_from_standard_input_as_json(shop: Path) -> None:
    told = RUNNER.invoke(
        localize.app, ["run", str(shop / "shop"), "--issue", "-", "--json"], input="has_discount"
    )
    assert json.loads(told.stdout)["status"] == "final"
    none = RUNNER.invoke(localize.app, ["run", str(shop / "shop"), "--issue", "-"], input="zygote")
    assert "no place was found" in none.output


def test_score_needs_one_thing_to_score(shop: Path) -> None:
    for arguments in (["score"], ["score", "case.json"], ["score", "case.json", "--repo", "."]):
        assert isinstance(RUNNER.invoke(localize.app, arguments).exception, BadInput)
