"""Rows, pairs and their layouts; TRL itself reads them in test_trl.py."""

import json

import numpy as np
import pytest
import torch
from datasets import load_dataset

from refork.errors import BadInput, MissingExtra
from refork.growing import RandomNode, grow, grow_trees
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.tree.tree import Tree
from refork_methods.credit.methods import credit_method
from refork_methods.train.export import (
    export_tree,
    recorded_reward,
    recorded_rollouts,
    trl_loss_inputs,
    trl_rollouts,
    verl_rollouts,
    verl_tasks,
    verl_tensors,
    write_parquet,
)
from refork_methods.train.rows import rollout_rows, sibling_pairs
from refork_methods.train.sources import graded_groups, tree_pairs, tree_rows
from support.worlds import TwoTurns


def forked(node, trajectory):
    """Two trajectories that share a task and one token; the second forks the turn and adds another turn."""
    task = node("t", "task", [1, 2], message={"role": "user", "content": "hi"}, extra={"world": "w"})
    said = node("a", tokens=[3, 4, 5], parent="t")
    other = node("b", tokens=[6], parent="a", keep=1)
    seen = node("o", "observation", [7, 8], parent="b")
    last = node("c", tokens=[9], parent="o")
    return [trajectory(task, said), trajectory(task, said, other, seen, last, keeps=[None, 1])]


def test_rows_by_hand(node, walk):
    trajectories = forked(node, walk)
    first, second = rollout_rows(trajectories, [1.0, 0.0], [[np.nan, np.nan, 0.1, 0.2, 0.3], -0.5])
    assert first.prompt.tolist() == second.prompt.tolist() == [1, 2]
    assert first.completion.tolist() == [3, 4, 5]
    assert first.advantages.tolist() == [0.1, 0.2, 0.3]
    assert second.completion.tolist() == [3, 6, 7, 8, 9]
    assert second.mask.tolist() == [True, True, False, False, True]
    assert second.advantages.tolist() == [-0.5, -0.5, 0, 0, -0.5]
    assert second.logprobs.tolist() == [-1, -1, 0, 0, -1]
    assert (second.group, second.leaf, second.reward) == ("t", "c", 0.0)
    once = rollout_rows(trajectories, [1.0, 0.0], [0.5, -0.5], once=True)
    assert once[1].mask.tolist() == [False, True, False, False, True]
    assert once[1].prompt.tolist() == [1, 2]


def test_ungraded_rollouts_are_left_out(node, walk):
    trajectories = forked(node, walk)
    (row,) = rollout_rows(trajectories, [np.nan, 0.0], [0.5, -0.5])
    assert row.leaf == "c"
    with pytest.raises(BadInput, match="none of these trajectories"):
        rollout_rows(trajectories, [np.nan, np.nan], [0.5, -0.5])
    with pytest.raises(BadInput, match="2 trajectories, 1 outcomes"):
        rollout_rows(trajectories, [1.0], [0.5, -0.5])


def test_pairs_are_the_turns_drawn_at_one_point(node, walk):
    trajectories = forked(node, walk)
    ((pair, difference),) = sibling_pairs(trajectories, [1.0, 0.0])
    assert pair.prompt.tolist() == [1, 2, 3]
    assert pair.chosen.tolist() == [4, 5]
    assert pair.rejected.tolist() == [6], "the turn ends where the world answers"
    assert difference == 1.0
    assert sibling_pairs(trajectories, [0.5, 0.5]) == []
    assert sibling_pairs(trajectories, [1.0, np.nan]) == []
    assert sibling_pairs(trajectories, [1.0, 0.0], least=1.5) == []


def test_rows_that_trl_could_not_group_are_refused(node, walk):
    """Tasks without messages and without a tokenizer: each prompt would be the empty text."""
    path = walk(node("t", "task", [1, 2]), node("a", tokens=[3], parent="t"))
    rows = rollout_rows([path], [1.0], [0.5])
    assert trl_rollouts(rows, lambda tokens: f"text of {len(tokens)}")[0]["prompt"] == "text of 2"
    with pytest.raises(BadInput, match=r"no chat messages.*node t"):
        trl_rollouts(rows)


def test_trl_tensors_by_hand(node, walk):
    rows = trl_rollouts(rollout_rows(forked(node, walk), [1.0, 0.0], [0.5, -0.5]))
    found = trl_loss_inputs(rows, pad_id=99)
    assert found["prompt_ids"].tolist() == [[1, 2], [1, 2]]
    assert found["completion_ids"].tolist() == [[3, 4, 5, 99, 99], [3, 6, 7, 8, 9]]
    assert found["completion_mask"].tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    assert found["tool_mask"].tolist() == [[1, 1, 1, 0, 0], [1, 1, 0, 0, 1]]
    assert found["advantages"].tolist() == [[0.5, 0.5, 0.5, 0, 0], [-0.5, -0.5, 0, 0, -0.5]]
    assert int(found["num_items_in_batch"]) == 6
    rollout = recorded_rollouts(rows)
    answer = rollout([rows[0]["prompt"]] * 2, None)
    assert answer["completion_ids"] == [rows[0]["completion_ids"], rows[1]["completion_ids"]]
    assert recorded_reward([], [], reward=answer["reward"]) == [1.0, 0.0]
    with pytest.raises(BadInput, match="no recorded rollout"):
        rollout(["other"], None)


def test_verl_rows_and_tensors_by_hand(node, walk):
    rows = rollout_rows(forked(node, walk), [1.0, 0.25], [0.5, -0.5])
    (task,) = verl_tasks(rows)
    assert set(task) == {"data_source", "prompt", "ability", "reward_model", "extra_info"}
    assert task["prompt"] == [{"role": "user", "content": "hi"}]
    assert task["data_source"] == "w"
    assert json.loads(task["reward_model"]["ground_truth"]) == {}
    batch, plain = verl_tensors(verl_rollouts(rows), pad_id=0)
    assert batch["input_ids"].tolist() == [[1, 2, 3, 4, 5, 0, 0], [1, 2, 3, 6, 7, 8, 9]]
    assert batch["attention_mask"].tolist() == [[1] * 5 + [0] * 2, [1] * 7]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 3, 4, 4, 4], [0, 1, 2, 3, 4, 5, 6]]
    assert batch["response_mask"].tolist() == [[1, 1, 1, 0, 0], [1, 1, 0, 0, 1]]
    assert batch["token_level_scores"].tolist() == [[0, 0, 1, 0, 0], [0, 0, 0, 0, 0.25]]
    assert torch.equal(batch["returns"], batch["advantages"])
    assert "ref_log_prob" not in batch
    assert plain["uid"].tolist() == ["t", "t"]
    with pytest.raises(BadInput, match="no chat messages"):
        verl_tasks([_without_messages(rows[0])])


def _without_messages(row):
    from dataclasses import replace

    return replace(row, messages=())


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("export") / "tree.db"
    policy = ScriptedPolicy.from_replies([" a", " b"])
    world = TwoTurns()
    with Tree.open(path) as tree:
        grow_trees(
            tree, policy, world, world.tasks("train", 3), selector=RandomNode(0, 4, 2), leaves=8,
            settings=Sampling(max_tokens=4),
        )  # fmt: skip
    return path


@pytest.mark.parametrize("layout", ["trl-grpo", "trl-dpo", "verl-tasks", "verl-rollouts"])
def test_datasets_reads_every_layout(file, tmp_path, layout):
    out = tmp_path / "rows.parquet"
    with Tree.open(file, "r") as tree:
        count = export_tree(tree, out, layout, policy="scripted:coin", least=0.1)
        rows = tree_rows(tree, credit_method("siblings"))
        pairs = tree_pairs(tree, 0.1)
    loaded = load_dataset("parquet", data_files=str(out), split="train", cache_dir=str(tmp_path / "cache"))
    assert len(loaded) == count
    if layout == "trl-grpo":
        assert loaded["completion_ids"][0] == rows[0].completion.tolist()
        np.testing.assert_allclose(loaded["advantages"][3], rows[3].advantages)
        assert loaded["prompt"][0] == list(rows[0].messages)
    elif layout == "trl-dpo":
        assert loaded["chosen_ids"][0] == pairs[0][0].chosen.tolist()
    elif layout == "verl-tasks":
        assert count == 3
        assert json.loads(loaded["reward_model"][0]["ground_truth"])["id"] == "two/train/0"
        assert loaded["extra_info"][2]["index"] == 2
    else:
        assert count == 24
        batch, _ = verl_tensors(list(loaded), pad_id=0)
        assert batch["advantages"].shape == batch["responses"].shape


def test_what_cannot_be_exported_is_refused(file, tmp_path, monkeypatch):
    with Tree.open(file, "r") as tree:
        with pytest.raises(BadInput, match="--policy"):
            export_tree(tree, tmp_path / "x", "trl-dpo")
        with pytest.raises(BadInput, match="unknown layout"):
            export_tree(tree, tmp_path / "x", "csv")
        with pytest.raises(BadInput, match="differ by"):
            tree_pairs(tree, 2.0)
    with Tree.memory() as empty, pytest.raises(BadInput, match="no rollout"):
        tree_rows(empty, credit_method("grpo"))
    with pytest.raises(BadInput, match="nothing to write"):
        write_parquet([], tmp_path / "x")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match="pip install 'datasets>="):
        write_parquet([{"a": 1}], tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_draws_of_two_temperatures_are_two_groups():
    """Neither credit nor a trainer may compare what was drawn from two distributions."""
    policy = ScriptedPolicy.from_chain({"": {" a": 0.6, " b": 0.4}, " a": {"": 1.0}, " b": {"": 1.0}})
    world, settings = TwoTurns(), Sampling(max_tokens=4)
    with Tree.memory() as tree:
        grow(tree, policy, world, world.tasks("train", 1), draws=6, settings=settings)
        plain = tree_rows(tree, credit_method("grpo"))
        grow(tree, policy, world, world.tasks("train", 1), draws=4, settings=settings.but(temperature=0.0))
        (task, *_), (other, *_) = groups = graded_groups(tree)
        rows = tree_rows(tree, credit_method("grpo"))
    assert [len(outcomes) for _, _, outcomes in groups] == [6, 4]
    assert task.id == other.id
    assert [row.group for row in rows[:6]] == [task.id] * 6
    assert len({row.group for row in rows[6:]} - {task.id}) == 1
    assert [row.advantages.tolist() for row in rows[:6]] == [row.advantages.tolist() for row in plain]
    assert not any(row.advantages.any() for row in rows[6:]), "greedy draws are alike"
    assert [one["extra_info"]["node"] for one in verl_tasks(rows)] == [task.id]
