"""``refork why``: the token that lost a trace, found, tested again and undone."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from refork import cli
from refork.cli import common
from refork.errors import BadInput
from refork.forking import fork
from refork.growing.plant import plant_prompt
from refork.judge import MatchJudge
from refork.policies.base import Sampling
from refork.tree.tree import Tree
from refork_methods.cliff.planted import flat_chain, record_trace
from refork_methods.cliff.select import first_by, plain_leaves
from refork_methods.cliff.why import why

#: Success falls from 0.8 to 0.1 at the sixth token, and nowhere else before the last.
FALLS = flat_chain(12, before=0.8, after=0.1, at=[5], chance=0.9, low=0.2)
STAYS = flat_chain(6, before=0.1, after=0.1, chance=0.9)


def planted(chain, store):
    policy = chain.policy()
    end = record_trace(plant_prompt(store, policy, "Well?"), policy, chain.text)
    return end, policy


@pytest.fixture
def chain(tmp_path, monkeypatch):
    """Makes a tree with one recorded trace; the command's policy is the chain."""

    def make(chain, grade=True):
        monkeypatch.setenv("REFORK_HOME", str(tmp_path / "home"))
        monkeypatch.setattr(common, "policy_for", lambda spec, live: chain.policy())
        monkeypatch.setattr("refork_methods.cliff.commands.policy_for", lambda spec, live: chain.policy())
        with Tree.open(tmp_path / "tree.db") as store:
            end, _ = planted(chain, store)
        return tmp_path / "tree.db", end.node.id

    return make


def run(*typed, status):
    done = CliRunner().invoke(cli.app, ["why", *map(str, typed)], catch_exceptions=False)
    assert done.exit_code == status, done.output
    return done


def test_a_planted_cliff_is_found_and_undone():
    with Tree.memory() as store:
        end, policy = planted(FALLS, store)
        found = why(end, policy, 64, judge=MatchJudge("right"))
        assert found.worst.nominee.text == " t6"
        assert found.worst.nominee.index == 5
        assert [one.nominee.index for one in found.cliffs if one.real] == [5]
        # Before the token success is 0.8, saying it again included; behind it 0.1.
        assert found.effect.low < 0.7 < found.effect.high
        held = list(store.forks())
        (other,) = [arm for arm in held if arm.change is not None]
        assert (other.node, len(store.draws(other.id))) == (end.node.id, 64)  # the tree keeps both arms
        assert any(arm.change is None and arm.seed == other.seed for arm in held)
        before = found.scan.curve.sampled + sum(one.sampled for one in found.cliffs)
        assert json.loads(json.dumps(found.to_json()))["rollouts"] == before + 128


def test_the_command_says_it_and_exits_with_one(chain):
    file, leaf = chain(FALLS)
    typed = ("--tree", file, "--policy", "scripted:coin", "--success-regex", "right", "--node", leaf)
    told = json.loads(run(*typed, "--json", status=1).stdout)
    assert told["worst"]["text"] == " t6"
    assert told["node"] == leaf
    shown = run(*typed, status=1).stdout
    assert "t6" in shown
    assert "╭─ effect" in shown


def test_a_trace_without_a_cliff(chain):
    file, leaf = chain(STAYS)
    typed = ("--tree", file, "--policy", "scripted:coin", "--success-regex", "right", "--node", leaf)
    assert "no token of this trace loses more" in run(*typed, status=0).stdout
    assert json.loads(run(*typed, "--json", status=0).stdout)["effect"] is None


def test_a_tree_that_nobody_grades_is_refused_with_the_three_ways(chain):
    file, leaf = chain(FALLS)
    for more in ((), ("--node", leaf)):
        with pytest.raises(BadInput) as refused:
            run("--tree", file, "--policy", "scripted:coin", *more, status=2)
        for way in ("--world", "--success-regex", "--judge"):
            assert way in str(refused.value)


def test_without_a_node_a_failed_trace_is_taken(chain):
    file, leaf = chain(FALLS)
    named = ("--tree", file, "--policy", "scripted:coin", "--draws", 16, "--json", "--success-regex")
    typed = (*named, "right")
    with pytest.raises(BadInput, match="no wrong rollout"):
        run(*named, ".", status=2)
    assert json.loads(run(*typed, status=1).stdout)["node"] == leaf, "the judge is asked about it"
    judge = MatchJudge("right")
    with Tree.open(file) as store:
        start = store.at(next(store.tasks()))
        fork(start, FALLS.policy(), 12, settings=Sampling(max_tokens=12), judge=judge)
        graded = store.score_map("success", plain_leaves(store, start.node))
        failed = [leaf for leaf, value in graded.items() if value == 0]
    done = CliRunner().invoke(cli.app, ["why", *map(str, typed)], catch_exceptions=False)
    assert json.loads(done.stdout)["node"] in failed


def test_of_several_policies_rollouts_the_asked_ones_is_taken():
    def made(name, *weights):
        return SimpleNamespace(name=name, weights=weights)

    def path(end):
        nodes = [SimpleNamespace(kind="task", weights=None)]
        nodes += [SimpleNamespace(kind="action", weights=one) for one in end.weights]
        return [SimpleNamespace(node=node) for node in nodes]

    tree = SimpleNamespace(path=path)
    ends = [made("old", "v", "v"), made("both", "w", "v"), made("new", "w", "w")]
    assert first_by(tree, ends, "w").name == "new"
    assert first_by(tree, ends, "v").name == "old"
    assert first_by(tree, ends, "x").name == "old", "what refuses other weights says so then"
