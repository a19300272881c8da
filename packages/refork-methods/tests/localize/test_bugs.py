"""Real bugs: rows and commits read, every arm scored on the same files, a model asked by the same loop."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from refork.errors import BadInput
from refork_methods.localize import bugs
from refork_methods.localize.baseline import FunctionBm25
from refork_methods.localize.bugs import (
    Bug,
    BugScore,
    bug_of_commit,
    bugs_json,
    find_clone,
    read_bugs,
    score_bug,
)
from refork_methods.localize.commands import app
from refork_methods.localize.index import RepoIndex
from refork_methods.localize.ranking import named_order
from refork_methods.localize.snapshot import Snapshot
from refork_methods.localize.terms import issue_terms

RATES = """def discount(total):
    if total > 10000:
        return total // 10
    return 0


def shipping(weight):
    return 490 if weight < 2000 else 690
"""
CART = """def cart_total(prices):
    return sum(prices)
"""
ISSUE = "`discount(10000)` is 0, and a coupon should count from there on"


def git(root: Path, *arguments: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    done = subprocess.run(
        ["git", "-C", str(root), *who, *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture(scope="module")
def clones(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clones")
    root = folder / "acme__shop"
    root.mkdir()
    for name, text in {"rates.py": RATES, "cart.py": CART, "CHANGES.md": 9 * ISSUE}.items():
        (root / name).write_text(text)
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "A shop")
    (root / "rates.py").write_text(RATES.replace("> 10000", ">= 10000"))
    (root / "CHANGES.md").write_text("Coupons count from a hundred euros on.")
    git(
        root,
        "commit",
        "-qam",
        "Fix discount in rates.py for coupons at the limit\n\nFixes #12\nSigned-off-by: a <a@b>",
    )
    return folder


@pytest.fixture
def bug(clones: Path) -> Bug:
    found = bug_of_commit(clones / "acme__shop", "acme/shop", "HEAD")
    return Bug("acme__shop-1", "acme/shop", found.base, ISSUE, found.diff)


def test_a_fix_is_told_by_its_message_without_its_names(clones: Path) -> None:
    root = find_clone(clones, "acme/shop")
    found = bug_of_commit(root, "acme/shop", "HEAD")
    assert found.issue == "Fix discount in rates.py for coupons at the limit"
    assert (found.base, found.source) == (git(root, "rev-parse", "HEAD~1"), "message")
    index = RepoIndex.build(Snapshot(root, found.base))
    right = {("rates.py", "discount")}
    told = bugs._hidden(found, index, right, False)
    assert "discount" not in told
    assert "rates" not in told
    assert "coupons at the limit" in told
    with pytest.raises(BadInput, match="0 parents"):
        bug_of_commit(root, "acme/shop", "HEAD~1")


def test_every_arm_ranks_the_same_files(clones: Path, bug: Bug) -> None:
    score, masked = score_bug(find_clone(clones, bug.repo), bug, (False, True))
    assert score.sources == 2
    arms = ["investigator", "bm25", "bm25 best", "names"]
    assert list(score.files) == arms
    assert all(row == {1: True, 5: True} for row in score.files.values())
    assert score.functions is not None
    assert all(row == {1: True, 5: True} for row in score.functions.values())
    # With the name masked nothing is named, and "coupon" stands in no source.
    assert masked.files["names"] == {1: False, 5: False}
    assert masked.to_json()["files"]["names"] == {"1": False, "5": False}
    assert BugScore.from_json(json.loads(json.dumps(masked.to_json()))) == masked


def test_a_fix_outside_of_functions_has_no_function_level(clones: Path, bug: Bug) -> None:
    diff = "--- a/cart.py\n+++ b/cart.py\n@@ -1,0 +1,1 @@\n+import math\n"
    other = Bug("b", bug.repo, bug.base, "cart", diff.replace("-1,0 +1,1", "-0,0 +1,1"))
    (score,) = score_bug(find_clone(clones, bug.repo), other)
    # The line before an insertion at the top is the first function's own.
    assert score.functions is not None
    new = diff.replace("cart.py", "new.py").replace("--- a/new.py", "--- /dev/null")
    with pytest.raises(BadInput, match="0 source files"):
        score_bug(find_clone(clones, bug.repo), Bug("c", bug.repo, bug.base, "new", new))
    leak = Bug(
        "d",
        bug.repo,
        bug.base,
        ISSUE + "\n    if total >= 10000: # here",
        bug.diff.replace(">= 10000:", ">= 10000: # here"),
    )
    with pytest.raises(BadInput, match="a line that the fix adds"):
        score_bug(find_clone(clones, bug.repo), leak)


def test_rows_are_read_and_written(bug: Bug, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    row = bug.to_json() | {"hints_text": "none"}
    file.write_text(json.dumps(row) + "\n\n" + json.dumps(row | {"source": "message"}))
    first, second = read_bugs(file)
    assert first == bug
    assert second.source == "message"
    file.write_text(json.dumps({name: text for name, text in row.items() if name != "patch"}))
    with pytest.raises(BadInput, match="no text 'patch'"):
        read_bugs(file)
    with pytest.raises(BadInput, match="no clone of acme/shop"):
        find_clone(tmp_path, "acme/shop")


def test_leads_are_paired() -> None:
    def row(mine: bool, other: bool, both: bool) -> BugScore:
        hit = {"investigator": {1: mine, 5: True}, "bm25": {1: other, 5: True}}
        return BugScore("b", "r", "issue", 9, hit, hit if both else None)

    scores = [row(True, False, True), row(True, True, False), row(False, False, True), row(True, False, True)]
    told = bugs_json(scores, {"x": "why"})
    assert told["arms"]["files investigator @1"]["mean"] == 0.75
    assert told["leads"]["files bm25 @1"]["mean"] == 0.5
    assert told["arms"]["functions bm25 @1"]["bugs"] == 3
    assert bugs.hits(scores, "functions", "bm25", 1).tolist() == [0.0, 0.0, 0.0]
    assert [BugScore.from_json(one) for one in told["rows"]] == scores
    assert told["skipped"] == {"x": "why"}
    with pytest.raises(BadInput, match="no bug"):
        bugs_json([], {"x": "why"})


def test_names_alone_and_bodies_alone(clones: Path) -> None:
    index = RepoIndex.build(Snapshot(clones / "acme__shop", "HEAD~1"))
    named = named_order(index, issue_terms("`shipping` fails, see cart.py"), ["cart.py", "rates.py"])
    assert [(one.path, one.name) for one in named] == [
        ("cart.py", "cart"), ("cart.py", "cart_total"), ("rates.py", "shipping"),
    ]  # fmt: skip
    assert named_order(index, issue_terms("parcel"), ["cart.py"]) == []
    assert FunctionBm25(index, ["rates.py"]).ranked("weight")[0] == ("rates.py", "shipping")
    assert FunctionBm25(index, []).ranked("weight") == []
    assert FunctionBm25(index, []).scores("weight") == {}
    scores = FunctionBm25(index).scores("weight")
    assert [one.rsplit("::", 1) for one in sorted(scores, key=lambda one: -scores[one])] == [
        list(one) for one in FunctionBm25(index).ranked("weight")
    ]


def test_a_name_that_stands_twice_takes_one_place() -> None:
    order = [("a.py", "Box.size"), ("a.py", "Box.size"), *(("a.py", f"f{n}") for n in range(4))]
    assert bugs._hits(order, {("a.py", "f3")}) == {1: False, 5: True}


def test_bugs_are_scored_from_the_command_line_with_a_model(clones: Path, bug: Bug, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    gone = bug.to_json() | {"instance_id": "gone", "repo": "acme/gone"}
    rows.write_text(json.dumps(bug.to_json()) + "\n" + json.dumps(gone))
    command = ["score", "--bugs", str(rows), "--clones", str(clones)]
    told = CliRunner().invoke(app, [*command, "--model", "scripted:greeter", "--turns", "2", "--json"])
    assert told.exit_code == 0, told.output
    found = json.loads(told.stdout)
    # The scripted model names no place of its own: those that it was shown stay.
    assert found["rows"][0]["files"]["model"] == {"1": True, "5": True}
    assert found["skipped"] == {"gone": "no clone of acme/gone"}
    plain = CliRunner().invoke(app, [*command, "--mask"])
    assert "files bm25 best @1" in plain.output
    assert "1 bugs could not be scored" in plain.output
    for wrong in (["score", "--bugs", str(rows)], ["score", "--repo", ".", "--model", "scripted:greeter"]):
        assert isinstance(CliRunner().invoke(app, wrong).exception, BadInput)


def test_intervals_have_a_width() -> None:
    hit = {"investigator": {1: True, 5: True}, "bm25": {1: False, 5: True}}
    scores = [BugScore(str(n), "r", "issue", 9, hit, None) for n in range(40)]
    span = bugs.lead(scores, "files", "bm25", 1)
    assert span.estimate == 1.0
    assert np.isfinite(span.low)
    assert 0.8 < span.low < 1.0
