"""What is refused, what is filtered, and that train and test stay apart."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from refork.errors import BadInput
from refork.worlds.environment import Brief, EnvTrajectory, Transition
from refork_methods.simulate.commands import app
from refork_methods.simulate.data import (
    Choices,
    accepted,
    check,
    filtered,
    mixture,
    prepare,
    read_source,
    refuse_overlap,
    split_sources,
)

BRIEF = Brief(initial_state="a.txt b.txt")


def made(name, *turns, source="s", domain="terminal", **more):
    turns = tuple(turn if isinstance(turn, Transition) else Transition(*turn) for turn in turns)
    return EnvTrajectory(
        id=name, source=source, brief=more.pop("brief", BRIEF), turns=turns, domain=domain, **more
    )


LS = ("ls", "a.txt")


@pytest.mark.parametrize(
    ("item", "kind", "turn"),
    [
        (made("x"), "no turns", None),
        (made("x", LS, extra={"simulated": 1}), "simulated", None),
        (made("x", LS, ("<think>hm</think>ls", "a.txt")), "reasoning", 2),
        (made("x", ("Thought: I look\nls", "a.txt")), "reasoning", 1),
        (made("x", ('{"reasoning_content": "hm"}', "a.txt")), "reasoning", 1),
        (made("x", ('{"name":"get","arguments":{}}', "")), "unanswered call", 1),
        (made("x", ("search: a", " "), domain="search"), "missing observation", 1),
    ],
)
def test_what_cannot_be_trained_on_is_refused(item, kind, turn):
    (problem,) = check([item])
    assert (problem.kind, problem.turn, problem.refused) == (kind, turn, True)
    assert accepted([item], [problem]) == []


def test_copies_go_and_an_empty_state_is_a_warning():
    items = [made("a", LS), made("b", LS), made("c", LS, brief=Brief())]
    problems = check(items)
    assert [(p.kind, p.trajectory, p.refused) for p in problems] == [
        ("doubled", "s/b", True),
        ("empty initial state", "s/c", False),
    ]
    assert [item.id for item in accepted(items, problems)] == ["a", "c"]
    assert check([made("a", ("cd x", ""))]) == []
    # Two of one name: only the bad one goes.
    twins = [made("a", LS), made("a", ("<think>hm</think>ls", "a.txt"))]
    assert accepted(twins, check(twins)) == twins[:1]


def test_retry_loops_go_where_the_state_chain_is_kept():
    failed = Transition("run", "error", state_key="1")
    moved = Transition("add", "ok", state_key="2")
    kept = filtered([made("a", failed, failed, failed, moved, Transition("add", "ok", state_key="3"))])
    (item,) = kept.trajectories
    assert (kept.dropped, kept.context_only) == (2, 0)
    assert [(turn.action, turn.state_key) for turn in item.turns] == [
        ("run", "1"),
        ("add", "2"),
        ("add", "3"),
    ]
    cycle = [Transition("a", "x", state_key="1"), Transition("b", "y", state_key="1")]
    assert filtered([made("a", *cycle * 3)]).trajectories[0].turns == tuple(cycle)
    unknown = filtered([made("a", ("add", "ok"), ("add", "ok"), LS)])
    assert [turn.target for turn in unknown.trajectories[0].turns] == [None, False, None]
    assert (unknown.dropped, unknown.context_only) == (0, 1)


def test_a_screen_that_did_not_change_is_context_only():
    screen = [
        Transition("tap 1", "A", state_key="1"),
        Transition("tap 2", "A", state_key="2"),
        Transition("tap 1", "B"),
    ]
    for domain, targets in (("phone", [None, False, None]), ("terminal", [None, None, None])):
        (item,) = filtered([made("a", *screen, domain=domain)]).trajectories
        assert [turn.target for turn in item.turns] == targets


def test_train_and_test_share_no_source_and_within_a_world_no_task():
    with pytest.raises(BadInput, match="share a source"):
        refuse_overlap([made("a", LS)], [made("b", LS)])
    with pytest.raises(BadInput, match="share a task: w, 1"):
        refuse_overlap(
            [made("a", LS, source="w", extra={"task": {"id": "1"}})],
            [made("b", ("pwd", "/"), source="w", extra={"task": "1"})],
        )
    with pytest.raises(BadInput, match="copy"):
        refuse_overlap([made("a", LS)], [made("b", LS, source="t")])
    refuse_overlap(
        [made("a", LS, source="w", extra={"task": "1"})],
        [made("b", ("pwd", "/"), source="w", extra={"task": "2"})],
    )


def test_whole_sources_are_split_and_recorded_splits_stay():
    items = [made(f"{s}{n}", ("echo", f"{s} {n}"), source=s) for s in "abcdefghij" for n in range(3)]
    split = split_sources(items, 0.2, seed=1)
    tests = {item.source for item in split.test}
    assert len(tests) == 2
    assert not tests & {item.source for item in split.train}
    assert split_sources(items, 0.2, seed=1) == split
    world = [
        made(str(n), ("echo", str(n)), source="w", split=s, extra={"task": n})
        for n, s in enumerate(("train", "held-out", "train"))
    ]
    assert [item.id for item in split_sources(world).test] == ["1"]
    by_task = split_sources(
        [made(str(n), ("e", str(n)), extra={"task": n}) for n in range(10)], 0.2, by="task"
    )
    assert len(by_task.test) == 2
    with pytest.raises(BadInput, match="one source only"):
        split_sources([made("a", LS), made("b", ("pwd", "/"))])
    two = [replace(made("a", LS), source="x"), replace(made("b", ("pwd", "/")), source="y")]
    for fraction in (0.1, 0.8, 0.99):
        parts = split_sources(two, fraction)
        assert (len(parts.train), len(parts.test)) == (1, 1)


def test_replay_has_its_share():
    found = mixture([100] * 9, [30, 70], 0.1, seed=3)
    assert found == mixture([100] * 9, [30, 70], 0.1, seed=3)
    assert (sum((30, 70)[i] for i in found.replay), found.fraction) == (100, 0.1)
    assert mixture([100], [], 0.0).replay == []
    for sizes, fraction in (([], 0.1), ([1], 1.0)):
        with pytest.raises(BadInput):
            mixture([100], sizes, fraction)


@pytest.fixture
def sources(tmp_path):
    def write(name, items):
        (tmp_path / name).write_text("".join(json.dumps(item.to_json()) + "\n" for item in items))
        return tmp_path / name

    train = [made(str(n), ("echo", str(n)), ("cat x", "no x")) for n in range(4)]
    bad = made("bad", ("<think>x</think>ls", "a"))
    test = [made("t", ("pwd", "/home"), source="other")]
    return write("train.jsonl", [*train, bad]), write("test.jsonl", test)


def test_a_folder_is_prepared_from_the_command_line(sources, tmp_path):
    out = tmp_path / "out"
    arguments = ["data", str(sources[0]), "--test-source", str(sources[1]), "--out", str(out), "--json"]
    more = ["--thresholds", "action_observation=1"]
    done = CliRunner().invoke(app, arguments + more, catch_exceptions=False)
    assert done.exit_code == 0
    facts = json.loads(done.stdout)
    assert (facts["train"], facts["test"], facts["refused"]) == (4, 1, ["s/bad"])
    assert facts["problems"] == {"reasoning": 1}
    assert facts["thresholds"]["action_observation"] == 1
    turns = [json.loads(line) for line in (out / "turns.jsonl").read_text().splitlines()]
    assert len(turns) == 8
    assert {"class", "weight", "overlap", "novelty", "jaccard", "ratio"} <= set(turns[0])
    (row,) = facts["table"]
    assert (row["turns"], row["trajectories"], sum(row["shares"].values())) == (8, 4, pytest.approx(1.0))
    assert [item.id for item in read_source(out / "train.jsonl", [])] == ["0", "1", "2", "3"]
    plain = CliRunner().invoke(app, arguments[:-1], catch_exceptions=False)
    assert "4 trajectories to train on, 1 to test on" in plain.stdout


def test_logs_are_read_and_what_has_no_answer_is_told(sources, tmp_path):
    call = {"id": "c", "function": {"name": "get", "arguments": "{}"}}
    asked = [{"role": "user", "content": "go"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    answered = [*asked, {"role": "tool", "tool_call_id": "c", "content": "1"}]
    log = tmp_path / "log.jsonl"
    ended = [asked[0], {"role": "assistant", "content": "ls"}, {"role": "user", "content": "a"}, asked[1]]
    log.write_text("\n".join(json.dumps({"messages": chat}) for chat in (asked, answered, ended)))
    prepared = prepare([log], [sources[1]], choices=Choices())
    assert [item.source for item in prepared.split.train] == ["log", "log"]
    assert [[turn.observation for turn in item.turns] for item in prepared.split.train] == [["1"], ["a"]]
    first, second = prepared.unread
    assert "no observation" in first
    assert second.endswith("the turns before it are used")
    bad = tmp_path / "bad.jsonl"
    bad.write_text(json.dumps(made("bad", ("<think>x</think>ls", "a")).to_json()))
    with pytest.raises(BadInput, match="nothing to train on: reasoning"):
        prepare([bad], [sources[1]])
