"""``refork tree compare``: arms that were drawn earlier, one pair or points of several tasks."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from refork import Force, MatchJudge, ScriptedPolicy, Tree, compare, fork, plant_prompt
from refork.cli import fork as commands
from refork.errors import BadInput
from support.chain import PLAIN, TABLE


@pytest.fixture
def tree(tmp_path):
    """A file with the same change at points of three tasks."""
    policy, judge, file = ScriptedPolicy.from_chain(TABLE), MatchJudge("right"), tmp_path / "tree.db"
    found = []
    with Tree.open(file) as store:
        for task in ("Well?", "And?", "So?"):
            start = plant_prompt(store, policy, task)
            arms = [
                fork(start, policy, 12, change, settings=PLAIN, judge=judge)
                for change in (None, Force(text=" think"))
            ]
            found.append(tuple(arms))
        wanted = compare(found).to_json(), compare(*found[0]).to_json()
        ids = [f"{base.record.id}:{other.record.id}" for base, other in found]
    return file, ids, wanted


def ran(*arguments):
    import typer

    one = typer.Typer()
    one.callback()(lambda: None)
    one.command("compare")(commands.compare_command)
    return CliRunner().invoke(one, list(map(str, arguments)), catch_exceptions=False)


def effect(*arguments):
    told = json.loads(ran(*arguments, "--json").stdout)
    return {name: value for name, value in told.items() if name not in ("tokens", "seconds", "ties")}


def same(told):
    return {name: value for name, value in told.items() if name not in ("tokens", "seconds", "ties")}


def test_all_pairs_of_one_change_are_compared_by_task(tree):
    file, _, (wanted, _) = tree
    told = effect("compare", "--tree", file)
    assert told["base"] == pytest.approx(wanted["base"])
    assert (told["low"], told["high"], told["p"]) == pytest.approx(
        (wanted["low"], wanted["high"], wanted["p"])
    )
    assert (told["points"], told["tasks"], told["draws"], told["paired"]) == (3, 3, 36, True)
    card = ran("compare", "--tree", file).stdout
    assert "3 points of 3 tasks" in card


def test_pairs_are_named_by_beginnings_of_ids_or_in_a_file(tree, tmp_path):
    file, ids, (wanted, one) = tree
    alone = effect("compare", "--tree", file, "--pairs", ids[0])
    assert alone == {**same(one), "after_text": alone["after_text"]}
    assert (alone["points"], alone["tasks"]) == (1, 1)
    short = ":".join(part[:10] for part in ids[0].split(":"))
    listing = tmp_path / "pairs.txt"
    listing.write_text("# control:changed\n\n" + "\n".join(ids[1:]) + "  # the others\n")
    told = effect("compare", "--tree", file, "--pairs", short, "--pairs", listing)
    assert (told["low"], told["high"]) == pytest.approx((wanted["low"], wanted["high"]))
    narrow = effect("compare", "--tree", file, "--pairs", ids[0], "--level", 0.5)
    assert narrow["level"] == 0.5
    assert narrow["high"] - narrow["low"] < alone["high"] - alone["low"]


def test_the_pairs_of_a_tree_are_listed(tree):
    file, ids, _ = tree
    rows = json.loads(ran("compare", "--tree", file, "--list", "--json").stdout)
    assert [f"{row['control']}:{row['changed']}" for row in rows] == ids
    assert len({row["task"] for row in rows}) == 3
    assert all(row["draws"] == [12, 12] and row["what"] == "force" for row in rows)
    lines = ran("compare", "--tree", file, "--list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == [":".join(i[:12] for i in pair.split(":")) for pair in ids]


def test_what_cannot_be_compared_is_refused(tree, tmp_path):
    file, ids, _ = tree
    wrong = [
        (("--pairs", "abc"), "does not name two arms"),
        (("--pairs", "zz:zz"), "no arm begins"),
        (("--pairs", ":".join(["", ids[0]])), "does not name two arms"),
        (("--pairs", ids[0].split(":")[0] + ":" + ids[1].split(":")[1]), "different points"),
        (("--pairs", ids[0], "--pairs", ids[0]), "named twice"),
        (("--pairs", ids[0], "--score", "taste"), "have a score"),
    ]
    for arguments, message in wrong:
        with pytest.raises(BadInput, match=message):
            ran("compare", "--tree", file, *arguments)
    policy = ScriptedPolicy.from_chain(TABLE)
    with Tree.open(file) as store:
        start = plant_prompt(store, policy, "Well?")
        fork(start, policy, 4, Force(text=" guess"), settings=PLAIN, judge=MatchJudge("right"))
    with pytest.raises(BadInput, match="2 different changes: force"):
        ran("compare", "--tree", file)
    Tree.open(tmp_path / "empty.db").close()
    with pytest.raises(BadInput, match="no changed arm"):
        ran("compare", "--tree", tmp_path / "empty.db")
    assert "no changed arm" in ran("compare", "--tree", tmp_path / "empty.db", "--list").stdout
