"""Rows of TRL, verl and SkyRL and OpenAI's preferences: what the packages write, and there and back."""

from __future__ import annotations

import json
import math
from datetime import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from refork.errors import BadInput
from refork.formats import reader_for
from refork.formats.parquet_export import TRLWriter
from refork.formats.trl import TRL
from refork.plain import content_hash
from refork.tree import NewNode, Producer, Score, Tree
from support.foreign_logs import FIXTURES, exported, imported, kinds, plain, whats

USER = {"role": "user", "content": "2+2?"}
TALK = [USER, {"role": "assistant", "content": "what base?"}, {"role": "user", "content": "ten"}]
GOOD, BAD = ({"role": "assistant", "content": text} for text in ("4", "five"))


def lines(folder, *rows, name="rows.jsonl"):
    file = folder / name
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def read(file, name=None):
    reader = reader_for(file, name)
    return (*imported(reader, file), reader.name)


def scores(tree):
    return {(s.name, s.value) for s in tree.scores()}


def test_openai_preferences_are_two_branches_of_one_prompt(tmp_path):
    tools = [{"type": "function", "function": {"name": "f"}}]
    row = {
        "input": {
            "messages": [{**TALK[0], "weight": 2}, *TALK[1:]],
            "tools": tools,
            "parallel_tool_calls": True,
        },
        "preferred_output": [GOOD],
        "non_preferred_output": [BAD],
        "source": "people",
    }
    tree, remarks, name = read(lines(tmp_path, row, row))
    assert name == "openai-preference"
    assert whats(remarks, "lost") == ["token ids, log-probs and times: the file has none"] * 2
    first, second, *others = tree.paths(tree.leaves())
    assert len(others) == 2  # The same row twice is data: it is kept apart from its second node on.
    assert [s.node.id for s in first][:3] == [s.node.id for s in second][:3]
    assert {first.leaf.text, second.leaf.text} == {"4", "five"}
    values = tree.score_map("preferred", [first.leaf.id, second.leaf.id])
    assert {w.leaf.text: values[w.leaf.id] for w in (first, second)} == {"4": 1.0, "five": 0.0}
    assert first.root.extra["tools"] == tools
    assert first.root.message["weight"] == 2
    assert first.leaf.extra["line"] == {"source": "people", "input": {"parallel_tool_calls": True}}


def test_bad_preferences_are_skipped_and_the_others_read(tmp_path):
    good = {"input": {"messages": [USER]}, "preferred_output": [GOOD], "non_preferred_output": [BAD]}
    file = lines(
        tmp_path,
        good,
        {"input": {"messages": []}, "preferred_output": [GOOD], "non_preferred_output": [BAD]},
        {"input": {"messages": [USER]}, "preferred_output": [], "non_preferred_output": [BAD]},
        {"input": "x", "preferred_output": [GOOD]},
        {**good, "preferred_output": [{"role": "robot", "content": ""}]},
    )
    with file.open("a") as more:
        more.write(json.dumps(good)[:40])
    tree, remarks, _ = read(file)
    assert len(tree) == 3
    said = whats(remarks, "skipped")
    assert len(said) == 5
    assert any("no messages" in one for one in said)
    assert any("robot" in one for one in said)
    assert any("ends within" in one for one in said)


def test_trl_logs_of_a_trainer_are_read(tmp_path):
    """``trl-completions.parquet`` is what GRPOTrainer wrote; a reward that is not known is no score."""
    tree, remarks, name = read(FIXTURES / "trl-completions.parquet")
    assert name == "parquet"
    assert kinds(tree) == [["task", "action"]] * 4
    assert len(list(tree.tasks())) == 2
    found = [s.name for s in tree.scores()]
    assert sorted(found) == ["advantage"] * 4 + ["long"] * 2 + ["short"] * 4
    assert ("short", 0.0) in scores(tree)
    assert whats(remarks, "lost") == ["token ids, log-probs and times: the file has none"] * 4
    words = {w.leaf.text: w.leaf.extra["line"]["words"] for w in tree.paths(tree.leaves())}
    assert words == {"g": 1, "f b d": 3, "": 0, "a h e h": 4}


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_data_sets_of_trl_are_read_as_the_package_writes_them(tmp_path, kind):
    pairs = Dataset.from_list([{"prompt": [USER], "chosen": [GOOD], "rejected": [BAD], "score_chosen": 0.9}])
    file = tmp_path / f"pairs.{kind}"
    pairs.to_parquet(file) if kind == "parquet" else pairs.to_json(file)
    tree, _, _ = read(file)
    assert kinds(tree) == [["task", "action"]] * 2
    assert scores(tree) == {("preferred", 1.0), ("preferred", 0.0), ("score", 0.9)}


def test_what_trl_extracts_as_the_prompt_is_shared(tmp_path):
    from trl import extract_prompt

    row = {"chosen": [*TALK, GOOD], "rejected": [*TALK, BAD]}
    plainly, _, _ = read(lines(tmp_path, row, name="implicit.jsonl"), "trl")
    told = extract_prompt(row)
    named, _, _ = read(lines(tmp_path, told, name="named.jsonl"), "trl")
    for tree in (plainly, named):
        assert kinds(tree) == [["task", "action", "observation", "action"]] * 2
        assert len(tree) == 5


def test_labels_steps_and_unpaired_preferences(tmp_path):
    steps = {"prompt": "2+2?", "completions": ["two and two", "make 4"], "labels": [True, False]}
    alone = {"prompt": [USER], "completion": [GOOD], "label": False}
    tree, _, name = read(lines(tmp_path, steps, alone))
    assert name == "trl"
    assert kinds(tree) == [["task", "action"], ["task", "action", "action"]]
    assert scores(tree) == {("label", 1.0), ("label", 0.0), ("preferred", 0.0)}


@pytest.mark.parametrize("prompt", ["2+2?", TALK, TALK[:2]])
def test_what_else_a_row_of_steps_tells_stands_behind_its_last_step(tmp_path, prompt):
    steps = {"prompt": prompt, "completions": ["two and two", "make 4"], "labels": [True, False]}
    bare, _, _ = read(lines(tmp_path, steps))
    tree, _, _ = read(lines(tmp_path, steps | {"source": "people", "words": 5, "reward": 0.5}))
    assert kinds(tree) == kinds(bare)
    (end,) = tree.leaves()
    assert [step.node.id for step in tree.path(end) if "line" in step.node.extra] == [end.id]
    assert end.extra["line"] == {"source": "people", "words": 5, "reward": 0.5}
    assert {s.name: s.value for s in tree.scores(node=end.id)} == {"label": 0.0, "reward": 0.5}
    exported(tree, TRLWriter(), back := tmp_path / "back.parquet")
    (row,) = pq.read_table(back).to_pylist()
    assert json.loads(row["extra"]) == {"source": "people", "words": 5}


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
@pytest.mark.parametrize(
    ("label", "score"),
    [
        (True, ("preferred", 1.0)),
        (False, ("preferred", 0.0)),
        (1, ("preferred", 1.0)),
        (0, ("preferred", 0.0)),
        (0.7, ("label", 0.7)),
        (4, ("label", 4.0)),
    ],
)
def test_a_label_is_a_preference_or_a_grade(tmp_path, kind, label, score):
    row = {"prompt": "q", "completion": "a", "label": label}
    file = lines(tmp_path, row)
    if kind == "parquet":
        file = tmp_path / "rows.parquet"
        pq.write_table(pa.Table.from_pylist([row]), file)
    assert scores(read(file)[0]) == {score}


@pytest.mark.parametrize(
    ("text", "score"), [("0.5", 0.5), ("12.340", 12.34), ("0", 0.0), ("0.12345678901234567891", None)]
)
def test_decimals_of_parquet_are_numbers_and_name_the_row_as_texts(tmp_path, text, score):
    reward = Decimal(text)
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_pylist([{"prompt": "q", "completion": "a", "reward": reward}]), file)
    tree, _, _ = read(file)
    assert scores(tree) == ({("reward", score)} if score is not None else set())
    (leaf,) = tree.leaves()
    assert leaf.extra["line"]["reward"] == (text if score is None else score)
    assert leaf.key == f"trl/{content_hash({'prompt': 'q', 'completion': 'a', 'reward': str(reward)})}/0/1"


ROLLOUT = {
    "prompt": [USER],
    "completion": [GOOD, {"role": "tool", "content": "r", "tool_call_id": "c"}, BAD],
    "prompt_ids": [1, 2],
    "completion_ids": [3, 4, 5, 6],
    "env_mask": [1, 1, 0, 1],
    "logprobs": [-0.5, -0.25, 0.0, -1.0],
    "advantages": [0.5, 0.5, 0.0, 0.5],
    "reward": 1,
    "note": {"a": [1]},
}


def test_rollouts_in_ids_keep_ids_and_log_probs(tmp_path):
    tree, remarks, name = read(lines(tmp_path, ROLLOUT))
    assert (name, whats(remarks, "lost")) == ("trl", ["times: the file has none"])
    (trajectory,) = tree.paths(tree.leaves())
    assert [s.node.kind for s in trajectory] == ["task", "action", "observation", "action"]
    assert trajectory.tokens.tolist() == [1, 2, 3, 4, 5, 6]
    first, seen, last = (s.node for s in trajectory.steps[1:])
    assert (first.text, seen.text, last.text) == ("4", "r", "five")
    assert first.logprobs.tolist() == [-0.5, -0.25]
    assert seen.logprobs is None
    assert (first.logprobs_t1, first.ref_logprobs) == (None, None)
    assert last.extra["line"] == {"reward": 1, "note": {"a": [1]}}
    assert tree.score_map("reward", [last.id]) == {last.id: 1.0}
    assert next(iter(tree.scores(first))).value.tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"completion_ids": [3, 4, 5, 2**40]}, "32 bits"),
        ({"completion_ids": [3, 4, 5, -1]}, "below 0"),
        ({"completion_ids": "text"}, "no list of token ids"),
        ({"completion_ids": [True]}, "no list of token ids"),
        ({"completion_ids": []}, "messages and no tokens"),
        ({"env_mask": [1]}, "mask"),
    ],
)
def test_bad_ids_are_named(tmp_path, change, said):
    tree, remarks, _ = read(lines(tmp_path, ROLLOUT | change, ROLLOUT))
    assert len(tree) == 4
    assert said in whats(remarks, "skipped")[0]


@pytest.mark.parametrize("said", [{}, {"completion": ""}, {"completion": [GOOD | {"content": ""}]}])
def test_a_rollout_in_which_nothing_was_said_counts(tmp_path, said):
    arrays = {"logprobs": [], "advantages": [], "env_mask": []}
    row = {"prompt_ids": [1, 2], "completion_ids": [], "reward": 0.0, "note": 1, **arrays, **said}
    tree, remarks, _ = read(lines(tmp_path, row, ROLLOUT))
    assert not whats(remarks, "skipped")
    failed = next(leaf for leaf in tree.leaves() if leaf.extra["line"] == {"reward": 0.0, "note": 1})
    assert (failed.kind, failed.text, failed.tokens.tolist(), failed.depth) == ("action", "", [], 1)
    assert [(s.name, s.value) for s in tree.scores(failed)] == [("reward", 0.0)]
    assert sorted(s.value for s in tree.scores(name="reward")) == [0.0, 1.0]
    assert list(tree.verify()) == []


def test_a_prompt_of_parts_is_their_text(tmp_path):
    parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:"}}]
    tree, _, _ = read(lines(tmp_path, ROLLOUT | {"prompt": [{"role": "user", "content": parts}]}))
    assert [task.text for task in tree.tasks()] == ["look"]


def test_numbers_that_do_not_fit_the_tokens_are_lost_and_said(tmp_path):
    tree, remarks, _ = read(lines(tmp_path, ROLLOUT | {"logprobs": [-1.0], "advantages": [None] * 4}))
    said = ["logprobs of another count than the completion's tokens", "times: the file has none"]
    assert whats(remarks, "lost") == said
    assert all(node.logprobs is None for node in tree.walk())
    assert {s.name for s in tree.scores()} == {"reward"}


def test_verl_dumps_are_read(tmp_path):
    """``verl-dump.jsonl`` is what verl's own function wrote."""
    tree, remarks, name = read(FIXTURES / "verl-dump.jsonl")
    assert name == "verl"
    assert kinds(tree) == [["task", "action"]] * 2
    assert len(list(tree.tasks())) == 1
    assert scores(tree) == {("score", 1.0), ("score", 0.0), ("acc", 1.0), ("acc", 0.0)}
    assert tree.paths(tree.leaves())[0].leaf.extra["line"]["gts"] == "4"
    assert "roles" in whats(remarks, "lost")[0]


def test_verl_answers_and_tasks(tmp_path):
    row = {"data_source": "gsm8k", "prompt": [USER], "ability": "math", "reward_model": {"ground_truth": "4"}}
    file = tmp_path / "answers.parquet"
    Dataset.from_list([row | {"responses": ["4", "5", "4"], "scores": [1.0, None, 0.0]}]).to_parquet(file)
    tree, _, _ = read(file)
    assert kinds(tree) == [["task", "action"]] * 3
    assert sorted(s.value for s in tree.scores()) == [0.0, 1.0]
    tree, _, name = read(lines(tmp_path, row))
    assert (name, kinds(tree)) == ("verl", [["task"]])
    assert next(tree.tasks()).extra["task"]["reward_model"] == {"ground_truth": "4"}


def test_verl_batches_lose_their_padding(tmp_path):
    row = {
        "uid": "u", "prompts": [0, 0, 1, 2], "responses": [5, 6, 0], "attention_mask": [0, 0, 1, 1, 1, 1, 0],
        "response_mask": [1, 1, 0], "old_log_probs": [-1.0, -2.0, 0.0], "token_level_scores": [0.0, 1.0, 0.0],
    }  # fmt: skip
    tree, _, name = read(lines(tmp_path, row))
    (trajectory,) = tree.paths(tree.leaves())
    assert name == "verl"
    assert trajectory.tokens.tolist() == [1, 2, 5, 6]
    assert trajectory.leaf.logprobs.tolist() == [-1.0, -2.0]
    assert tree.score_map("reward", [trajectory.leaf.id]) == {trajectory.leaf.id: 1.0}
    broken = row | {"attention_mask": [1]}
    assert "attention mask" in whats(read(lines(tmp_path, broken, row))[1], "skipped")[0]


def test_skyrl_dumps_and_outputs(tmp_path):
    """``skyrl-dump.jsonl`` is what SkyRL's own function wrote; its reward is the sum of those of tokens."""
    tree, _, name = read(FIXTURES / "skyrl-dump.jsonl")
    assert name == "skyrl"
    assert scores(tree) == {("score", 1.0), ("score", 0.75)}
    assert sorted(w.leaf.finish for w in tree.paths(tree.leaves())) == ["length", "stop"]
    row = {
        "prompt_token_ids": [1], "response_ids": [2, 3], "rewards": [0.0, 1.0], "loss_masks": [0, 1],
        "rollout_logprobs": [0.0, -0.5], "stop_reason": "stop",
    }  # fmt: skip
    tree, _, name = read(lines(tmp_path, row))
    assert name == "skyrl"
    assert kinds(tree) == [["task", "observation", "action"]]
    assert (
        scores(tree) >= {("reward", 1.0)} if all(isinstance(s.value, float) for s in tree.scores()) else True
    )


messages = st.builds(
    lambda role, text: {"role": role, "content": text},
    st.sampled_from(["user", "system"]),
    st.text(max_size=5),
)
grades = st.dictionaries(
    st.sampled_from(["reward", "acc", "style score"]), st.floats(-5, 5, width=32) | st.none(), max_size=3
)


@st.composite
def rollouts(draw):
    """A row in ids: stretches of the policy and of its world, with what is known of the tokens."""
    said = draw(st.lists(st.booleans(), min_size=1, max_size=8).filter(any))
    count = len(said)
    ids = st.integers(0, 2**31 - 1)
    floats = st.floats(-20, 0, width=32)
    logprobs = draw(st.none() | st.lists(floats, min_size=count, max_size=count))
    row = {
        "prompt": draw(st.lists(messages, max_size=2)),
        "prompt_ids": draw(st.lists(ids, max_size=4)),
        "completion_ids": draw(st.lists(ids, min_size=count, max_size=count)),
        "env_mask": [int(one) for one in said],
        "logprobs": logprobs and [value if one else 0.0 for value, one in zip(logprobs, said, strict=True)],
        **draw(grades),
        "note": draw(st.text(max_size=3)),
    }
    return {key: value for key, value in row.items() if value is not None}


@settings(max_examples=40, deadline=None)
@given(st.lists(rollouts(), min_size=1, max_size=3))
def test_import_export_import_is_the_identity_on_trl_rows(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("rows")
    first, remarks = imported(TRL(), lines(folder, *rows))
    assert not whats(remarks, "skipped")
    exported(first, TRLWriter(), folder / "a.parquet")
    second, _ = imported(TRL(), folder / "a.parquet")
    exported(second, TRLWriter(), folder / "b.parquet")
    once, again = (pq.read_table(folder / f"{name}.parquet").to_pylist() for name in "ab")
    assert once == again
    carried = ("prompt_ids", "completion_ids", "env_mask", "logprobs", "reward", "acc", "style score")
    assert sorted(({k: r.get(k) for k in carried} for r in rows), key=repr) == sorted(
        ({k: r.get(k) for k in carried} for r in once), key=repr
    )
    assert len(first) == len(second)


def grown():
    """A tree with a fork inside a step, a rewrite, a verdict and scores of two versions of a judge."""
    tree = Tree.memory()
    task = tree.append(NewNode(kind="task", text="go", tokens=[1, 2]))[0]
    step = tree.append(
        NewNode(
            kind="action",
            parent=task.id,
            text="ab",
            tokens=[7, 8],
            offsets=[1, 2],
            logprobs=[-1, -2],
            policy="p",
        )
    )[0]
    seen = tree.append(NewNode(kind="observation", parent=step.id, text="s", tokens=[9]))[0]
    last = tree.append(NewNode(kind="action", parent=seen.id, text="c", tokens=[3], logprobs=[-0.5]))[0]
    verdict = tree.append(NewNode(kind="verdict", parent=last.id, text="good"))[0]
    fork = tree.append(NewNode(kind="action", parent=step.id, keep=1, text="x", tokens=[5], logprobs=[-3]))[0]
    old, new = (tree.add_producer(Producer("judge", version)) for version in "12")
    tree.add_scores(
        [Score(verdict.id, "ok", 0.0, old), Score(verdict.id, "ok", 1.0, new), Score(fork.id, "ok", 0.5, new)]
    )
    return tree


def test_forks_become_rows_that_trl_can_train_on(tmp_path):
    tree = grown()
    assert exported(tree, TRLWriter(), tmp_path / "a.parquet") == 2
    rows = sorted(pq.read_table(tmp_path / "a.parquet").to_pylist(), key=lambda row: row["ok"])
    assert [row["completion_ids"] for row in rows] == [[7, 5], [7, 8, 9, 3]]
    assert rows[0]["logprobs"] == [-1.0, -3.0]
    assert (rows[1]["env_mask"], rows[1]["logprobs"]) == ([1, 1, 0, 1], [-1.0, -2.0, 0.0, -0.5])
    assert [row["ok"] for row in rows] == [0.5, 1.0]
    assert rows[0]["completion"][0]["content"] == "ax"
    assert rows[0]["logprobs_t1"] is None
    data = Dataset.from_parquet(str(tmp_path / "a.parquet"), cache_dir=str(tmp_path / "cache"))
    assert data[0]["prompt"][0]["content"] == "go"


def test_a_retired_judge_is_not_exported(tmp_path):
    tree = grown()
    for producer in tree.producers():
        tree.retire(producer.id, "wrong")
    exported(tree, TRLWriter(), tmp_path / "a.parquet")
    assert "ok" not in pq.read_table(tmp_path / "a.parquet").schema.names


def test_nothing_to_write_is_said(tmp_path):
    with pytest.raises(BadInput, match="nothing to write"):
        exported(Tree.memory(), TRLWriter(), tmp_path / "x.parquet")


def test_parquet_is_read_by_row_groups(tmp_path, monkeypatch):
    from refork.formats import parquet

    rows = [{"prompt": f"q{number}", "completion": "a"} for number in range(1000)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "many.parquet", row_group_size=100)
    seen = []
    group = parquet._group
    monkeypatch.setattr(parquet, "_group", lambda file, number: seen.append(number) or group(file, number))
    records = TRL().read(tmp_path / "many.parquet")
    next(records)
    assert seen == [0]
    assert sum(isinstance(record, NewNode) for record in records) == 2000


def test_damaged_parquet_loses_its_row_group_only(tmp_path):
    rows = [{"prompt": f"q{number}", "completion": "a" * 50} for number in range(300)]
    file = tmp_path / "many.parquet"
    pq.write_table(pa.Table.from_pylist(rows), file, row_group_size=100, compression="zstd")
    data = bytearray(file.read_bytes())
    column = pq.ParquetFile(file).metadata.row_group(1).column(0)
    at = column.dictionary_page_offset or column.data_page_offset
    data[at : at + 60] = b"\xff" * 60
    file.write_bytes(data)
    tree, remarks = imported(TRL(), file)
    (said,) = [remark for remark in remarks if remark.kind == "skipped"]
    assert (said.count, len(tree)) == (100, 400)
    file.write_bytes(bytes(data[: len(data) // 2]))
    with pytest.raises(BadInput, match="no whole Parquet"):
        imported(TRL(), file)


def test_values_that_json_lacks_are_made_plain(tmp_path):
    row = {
        "prompt": "q", "completion": "a", "when": datetime(2026, 1, 2), "data": b"\x00", "r": math.nan,
        "bound": math.inf, "big": 2**62,
    }  # fmt: skip
    file = tmp_path / "odd.parquet"
    pq.write_table(pa.Table.from_pylist([row]), file)
    tree, _, _ = read(file)
    line = tree.paths(tree.leaves())[0].leaf.extra["line"]
    assert line == {
        "when": "2026-01-02T00:00:00",
        "data": "AA==",
        "r": None,
        "bound": "Infinity",
        "big": 2**62,
    }
    assert scores(tree) == set()


def test_importing_twice_changes_nothing(tmp_path):
    file = lines(tmp_path, ROLLOUT, ROLLOUT, {"prompt": "a", "chosen": "b", "rejected": "c"})
    tree, _, _ = read(file)
    before = plain(tree)
    tree.load(r for r in TRL().read(file) if type(r).__name__ not in ("Remark", "Position"))
    assert plain(tree) == before
    assert np.isfinite(next(iter(tree.scores())).value).all()
