"""Methods on trees that were imported: no state keys, no token ids, scores of other names."""

from __future__ import annotations

import json

import pytest

from refork.formats import import_file
from refork.formats.openai_chat import OpenAIChat
from refork.formats.tau_bench import TauBench
from refork.tree import Producer, Score, Tree
from refork.worlds.trajectories import trajectory_of
from refork_methods.memory.sources import read_runs
from refork_methods.recovery.surgery import erase_loops
from refork_methods.recovery.traces import Step, Trace, shorten, state_key
from support.command import refork
from support.foreign_logs import FIXTURES


@pytest.fixture
def tau(tmp_path):
    """Two tasks with two trials each, graded under ``reward``."""
    file = tmp_path / "tau.db"
    with Tree.open(file) as tree:
        import_file(tree, FIXTURES / "tau-bench.json", TauBench())
    return file


def chats(file, *runs):
    """A tree of chats whose last node has a reward."""
    lines = file.with_suffix(".jsonl")
    lines.write_text("".join(json.dumps({"messages": run}) + "\n" for run in runs))
    with Tree.open(file) as tree:
        import_file(tree, lines, OpenAIChat())
        judge = tree.add_producer(Producer("judge"))
        tree.add_scores(Score(leaf.id, "reward", float(n % 2), judge) for n, leaf in enumerate(tree.leaves()))
    return file


def turns(*texts):
    roles = ["user", "assistant"] * len(texts)
    return [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]


@pytest.mark.parametrize("line", ["collapse report {}", "credit report {}", "recovery audit {}"])
def test_a_score_that_is_not_there_is_answered_with_those_that_are(line, tau):
    said = refork(*line.format(tau).split(), status=2).stderr
    assert "this tree has: reward (4)" in said


def test_where_no_state_has_a_key_equal_texts_are_one_state(tmp_path):
    file = chats(
        tmp_path / "chats.db", turns("go", "a", "door", "b", "end"), turns("go", "c", "door", "d", "end")
    )
    found = json.loads(refork("credit", "report", file, "--score", "reward", "--json").stdout)
    assert (found["states"], found["merged_later"], found["compared"]) == (2, 1.0, 0.5)
    said = refork("credit", "report", file, "--score", "reward").stderr
    assert "equal texts are one state" in said
    said = refork("credit", "report", file, "--score", "reward", "--anchor", "tree", status=1).stderr
    assert "no state of this tree" not in said
    said = refork("credit", "graph", file, "--score", "reward", "--anchor", "state").stderr
    assert "--anchor exact compares their texts" in said
    refork("credit", "advantages", file, "--score", "reward", "--set", "write=true")
    with Tree.open(file, "r") as tree:
        (producer,) = [one for one in tree.producers() if one.name == "graph-credit"]
    assert producer.config["anchor"] == "exact"


def test_an_empty_answer_is_no_state(tmp_path):
    file = chats(tmp_path / "chats.db", turns("go", "a", "", "b", ""), turns("go", "c", "", "d", ""))
    found = json.loads(refork("credit", "report", file, "--score", "reward", "--json", status=1).stdout)
    assert (found["states"], found["merged_later"]) == (3, 0.0)
    assert erase_loops(["a", None, "b", None, "a"]).recoveries == ((0, 4, 3),)
    assert erase_loops([None, None]).excursions == ()
    for name in ("exact", "normalised", "masked"):
        key = state_key(name)
        assert key(Step(" \n", "act")) is None
        trace = Trace("t", tuple(Step(seen, "think") for seen in ("a", "", "b", "", "c")), None, 1.0)
        assert shorten(trace, key) is trace


def test_a_reward_says_whether_a_run_succeeded(tau):
    assert sorted(str(run.success) for run in read_runs(tau)) == ["False", "False", "True", "True"]


def test_a_log_is_split_by_its_own_tasks_and_by_its_prompts(tau, tmp_path):
    with Tree.open(tau, "r") as tree:
        assert {trajectory_of(path).extra["task"] for path in tree.paths(tree.leaves())} == {"0", "1"}
    file = chats(tmp_path / "chats.db", *(turns(f"go {n}", "a", "door", "b", "end") for n in range(4)))
    refork("simulate", "data", file, "--by", "task", "--out", tmp_path / "data", "--json")
    train, test = ((tmp_path / f"data/{name}.jsonl").read_text().splitlines() for name in ("train", "test"))
    assert (len(train) + len(test), bool(train), bool(test)) == (4, True, True)


def test_what_helps_is_an_option_of_the_command(tau, tmp_path):
    said = refork("probe", "ceiling", "--tree", tau, "--score", "reward", status=2).stderr
    assert "--counts FILE" in said
    assert "--prompts" not in said
    said = refork("implicit", "score", "--tree", tau, status=2).stderr
    assert "no turn of this trajectory has token ids" in said
    assert "--policy POLICY" in said
    two = ("--a", "organism:test-tiny", "--b", "organism:test-tiny")
    said = refork(
        "crosscoder", "cache", "--tree", tau, *two, "--layer", 1, "--out", tmp_path / "c", status=2
    ).stderr
    assert "refork tree import NEW.db LOG --policy POLICY" in said
    said = refork("evolve", "audit", tau, status=2).stderr
    assert "this is not the folder of a run" in said
