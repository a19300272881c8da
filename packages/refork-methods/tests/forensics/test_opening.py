from __future__ import annotations

from pathlib import Path

import pytest

from refork.errors import BadInput
from refork.growing import grow
from refork.judge import MatchJudge
from refork.policies.base import Sampling
from refork.policies.open import open_policy
from refork.tree.tree import Tree
from refork.worlds.open import open_world
from refork_methods.forensics import Case, Design, Incident, Intervention, Target
from refork_methods.forensics.bench import recorded_task, task_document
from refork_methods.forensics.opening import grader_of, open_bench, rollout_of, tree_file, world_of
from refork_methods.forensics.run import run_design
from refork_methods.forensics.running import parse_edit, parse_grid
from refork_methods.forensics.target import TargetJudge
from refork_testbed.worlds.motives.agents import find_agent
from refork_testbed.worlds.motives.world import motive_world

COIN = "scripted:coin"


def chat_case(folder):
    policy, grader = open_policy(COIN), MatchJudge("heads", "target")
    environment = {"messages": [{"role": "user", "content": "Flip it."}]}
    return Case.create(folder, Incident("chat", policy.card, environment, Target("heads", grader.producer)))


def test_a_case_of_messages_opens_with_its_pattern(tmp_path):
    case = chat_case(tmp_path / "chat")
    assert tree_file(case) == tmp_path / "chat" / "tree.db"
    with Tree.open(tree_file(case)) as tree:
        bench = open_bench(case, tree, COIN, pattern="heads", settings=Sampling(max_tokens=4))
        assert bench.restart.world is None
        ran = run_design(case, bench, Design.observe("rollouts", "base"), 20)
        assert 0 < ran.arms[0].hits < ran.arms[0].total == 200
        assert rollout_of(case, tree, None).node.id in ran.arms[0].nodes
        with pytest.raises(BadInput, match="graded by"):
            open_bench(case, tree, COIN, pattern="tails")
        with pytest.raises(BadInput, match="graded by"):
            open_bench(case, tree, COIN)


def test_a_case_of_any_world_opens_from_its_recorded_rollout(tmp_path):
    world, walker = open_world("maze:2,2,2?cap=8"), open_policy("scripted:walker")
    grader = MatchJudge("left", "target")
    with Tree.open(tmp_path / "tree.db") as tree:
        group = grow(tree, walker, world, world.tasks("train", 1), draws=2, settings=Sampling())[0]
        leaf = group.forks[0].draws[0].leaf
        task = recorded_task(tree, leaf)
        assert task == group.task
        incident = Incident(
            "maze", walker.card, task_document(task), Target("left", grader.producer),
            str(tmp_path / "tree.db"), (leaf,),
        )  # fmt: skip
        case = Case.create(tmp_path / "maze", incident)
        assert tree_file(case) == tmp_path / "tree.db"
        bench = open_bench(case, tree, walker, world="maze:2,2,2?cap=8", pattern="left", settings=Sampling())
        edit = Intervention.edit("prompt", str(task.prompt) + " Go left.")
        ran = run_design(case, bench, Design.counterfactual(edit), 5)
        assert ran.arms[1].total == 5
        assert rollout_of(case, tree, None).node.id == leaf
        assert rollout_of(case, tree, group.forks[0].draws[1].leaf).node.id != leaf


def test_worlds_graders_and_trees_are_found(tmp_path):
    world = motive_world("hook")
    target = Target("act", TargetJudge().producer)
    incident = Incident("hook", find_agent("tedium").policy().card, world.environment(), target)
    case = Case.memory(incident)
    assert world_of(case, None).name == "motive:hook"
    assert world_of(case, "none") is None
    assert grader_of(case, None) == TargetJudge()
    with pytest.raises(BadInput, match="no folder"):
        tree_file(case)
    with Tree.memory() as tree, pytest.raises(BadInput, match="no rollout"):
        rollout_of(case, tree, None)
    named = Case.create(
        tmp_path / "c", Incident("hook", incident.model, incident.environment, target, "a.db")
    )
    assert tree_file(named) == tmp_path / "c" / "a.db"
    assert isinstance(tree_file(named), Path)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [("a.b=3", "set", 3), ('a="x y"', "set", "x y"), ("a=x y", "set", "x y"), ("a[1]-", "remove", None)],
)
def test_edits_are_written_in_one_line(text, kind, value):
    edit = parse_edit(text).edits[0]
    assert (edit.kind, edit.value) == (kind, value)


def test_grids_keep_whole_numbers_whole():
    assert [type(x) for x in parse_grid("0, 1.5,3")] == [int, float, int]
    for bad in ("1,true", "1,", "x"):
        with pytest.raises(BadInput, match="no dose"):
            parse_grid(bad)
    for bad in ("x", "=3", "-"):
        with pytest.raises(BadInput, match="no edit"):
            parse_edit(bad)
