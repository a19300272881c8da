"""Loop erasure, the audit of traces in three formats, surgery and doses."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refork.errors import BadInput
from refork.growing import grow
from refork.policies.base import Sampling
from refork.policies.open import open_policy
from refork.tree.node import NewNode
from refork.tree.score import Producer, Score
from refork.tree.tree import Tree
from refork_methods.recovery.audit import recovery_audit
from refork_methods.recovery.distillation import build_distillation_set, mix_traces
from refork_methods.recovery.events import event_rule
from refork_methods.recovery.graph import PathStar
from refork_methods.recovery.maze import maze_world
from refork_methods.recovery.on_tree import read_traces, tree_traces
from refork_methods.recovery.render import maze_traces
from refork_methods.recovery.rows import RowPolicy
from refork_methods.recovery.sample import sample_paths
from refork_methods.recovery.surgery import Excursion, erase_loops
from refork_methods.recovery.traces import Step, Trace, pattern_key, shorten, state_key

# The place without the direction of arrival, so that going back meets it again.
PLACE = pattern_key(r"^[^;]+")


def trace(states, actions=None, outcome=1.0, end=None, name="t"):
    said = actions or [f"act {i}" for i in range(len(states))]
    steps = tuple(Step(s, a) for s, a in zip(states, said, strict=True))
    return Trace(name, steps, None if end is None else Step(end, ""), outcome)


def walks(count=60, seed=0, gap=1.5, cap=400):
    graph = PathStar(3, 2, 2)
    rng = np.random.default_rng(seed)
    sampled = sample_paths(RowPolicy(graph, np.full((4, 2), gap)), count, cap, rng)
    return maze_traces(graph, sampled, rng)


def test_loops_by_hand():
    found = erase_loops("abcbadd")
    # a .. a went two ahead; d d changed nothing.
    assert found.excursions == (Excursion(0, 4, 2), Excursion(5, 6, 0))
    assert found.recoveries == (Excursion(0, 4, 2),)
    assert found.first.tolist() == [0, 5]
    assert found.last.tolist() == [4, 6]
    assert found.back.tolist() == [False, False, False, True, True, False, False]
    assert erase_loops("").excursions == ()


@given(st.lists(st.integers(0, 5), min_size=1, max_size=60))
def test_loop_erasure_keeps_a_path_and_accounts_for_every_step(states):
    found = erase_loops(states)
    kept = [states[i] for i in found.first]
    assert len(set(kept)) == len(kept)
    assert (kept[0], kept[-1]) == (states[0], states[-1])
    assert [states[i] for i in found.last] == kept
    assert found.first[1:].tolist() == (found.last[:-1] + 1).tolist()
    assert len(states) - 1 == len(kept) - 1 + sum(e.lost for e in found.excursions)
    assert all(states[e.start] == states[e.end] for e in found.excursions)
    again = erase_loops(kept)
    assert not again.excursions
    assert not again.back.any()


def test_a_shortened_maze_walk_is_the_shortest_path_and_walks_in_the_world():
    world = maze_world(3, 2, 2)
    for one in build_distillation_set(walks(), key=PLACE, keep_recoveries=False):
        assert len(one.steps) == 2 * 2 + 2
        target = int(one.end.state.split()[1])
        data = {"shape": [3, 2, 2], "names": [0, 1, 2], "target": target}
        game = world.family.game(data)
        here = game.begin
        for step in one.steps:
            assert game.view(here) == step.state
            here = game.act(here, step.action)
        assert game.grade(here) == 1.0


def test_rendered_walks_replay_in_the_world():
    world = maze_world(3, 2, 2)
    for one in walks(20, gap=0.5, cap=60):
        possible = []
        for target in range(3):
            game = world.family.game({"shape": [3, 2, 2], "names": [0, 1, 2], "target": target})
            here, fits = game.begin, True
            for step in one.steps:
                fits = fits and here is not None and game.view(here) == step.state
                here = game.act(here, step.action) if fits else None
            possible.append(fits and (game.grade(here) == 1.0) == (one.outcome == 1.0))
        assert any(possible)


def test_the_audit_counts_what_was_made():
    straight = trace(["s", "x", "y"], end="done")
    detour = trace(["s", "x", "z", "x", "y"], end="done")
    lost = trace(["s", "z", "z"], outcome=0.0, end="z")
    found = recovery_audit([straight, detour, lost])
    assert (found.traces, found.succeeded) == (3, 2)
    assert found.with_recovery.estimate == pytest.approx(1 / 3)
    assert found.recovered_and_succeeded == 1
    assert (found.depth.count, found.depth.most, found.lost.most) == (1, 1.0, 2.0)
    assert found.lost_share == pytest.approx(2 / 11)
    assert found.stalls == 2
    assert found.raw.decisions == 11
    assert found.raw.facing_back == 1
    assert (found.shortened.decisions, found.shortened.facing_back) == (6, 0)
    assert found.unsupervised == (("z", False, 3), ("x", True, 1))
    assert found.removes_ways_back


def test_the_audit_tells_whole_from_cleaned_maze_traces():
    raw = walks()
    clean = build_distillation_set(raw, key=PLACE, keep_recoveries=False)
    whole = recovery_audit(raw, key=PLACE)
    golden = recovery_audit(clean, key=PLACE)
    assert whole.with_recovery.estimate > 0.5
    assert golden.with_recovery.estimate == 0
    assert golden.raw == whole.shortened
    assert not golden.removes_ways_back
    assert any("too fine" in text for text in golden.warnings)
    # With the direction in the key, a way back is never the same state again, and the audit says so.
    fine = recovery_audit(clean, key=state_key("exact"))
    assert any("too fine" in text for text in fine.warnings)


def test_rules_and_labels():
    steps = (
        Step("a", "git checkout file", label=False),
        Step("b", "Wait, that's not right. Let me go back.", label=True),
        Step("c", "go on", label=False),
    )
    one = Trace("t", steps, None, 1.0)
    key = state_key("exact")
    names = ("tool", "phrase", "label", "phrase:go on", "revisit")
    found = recovery_audit([one], key=key, rules={name: event_rule(name, key) for name in names})
    assert found.events == dict.fromkeys(names, (1, 1)) | {"revisit": (0, 0)}
    assert event_rule("revisit", key)(trace("aba")) == [2]
    with pytest.raises(BadInput, match="carries backtrack labels"):
        recovery_audit([trace(["a"])], rules={"label": event_rule("label", key)})
    with pytest.raises(BadInput, match="unknown rule"):
        event_rule("feeling", key)
    with pytest.raises(BadInput, match="not a pattern"):
        event_rule("phrase:(", key)


def test_state_keys():
    step = Step("  Room 7\n DOOR", "", recorded="k")
    keys = {name: state_key(name)(step) for name in ("exact", "normalised", "masked", "recorded")}
    assert keys == {
        "exact": "  Room 7\n DOOR",
        "normalised": "room 7 door",
        "masked": "room # door",
        "recorded": "k",
    }
    assert state_key(r"regex:Room (\d+)")(step) == "7"
    own = recovery_audit([trace(["a1", "b", "a2"])], key=lambda s: s.state[0])
    assert own.with_recovery.estimate == 1
    for name, where in (("colour", "unknown state key"), ("regex:(", "not a pattern")):
        with pytest.raises(BadInput, match=where):
            state_key(name)
    with pytest.raises(BadInput, match="finds no state"):
        state_key("regex:cellar")(step)
    with pytest.raises(BadInput, match="no state keys"):
        state_key("recorded")(Step("a", "b"))


def test_mixes_hold_the_share_they_say():
    raw = walks(100)
    for fraction in (0.0, 0.05, 0.3):
        mixed = mix_traces(raw, fraction, key=PLACE, seed=3)
        found = recovery_audit(mixed, key=PLACE)
        assert found.with_recovery.estimate == pytest.approx(fraction, abs=0.005)
    assert mix_traces(raw, 0.05, key=PLACE, seed=3) == mix_traces(raw, 0.05, key=PLACE, seed=3)
    with pytest.raises(BadInput, match="use a fraction of at most"):
        mix_traces(raw, 1.0, key=PLACE)
    with pytest.raises(BadInput, match=r"\[0, 1\]"):
        mix_traces(raw, 1.1, key=PLACE)
    with pytest.raises(BadInput, match="none of 1 traces"):
        mix_traces([trace(["a"], outcome=0.0)], 0.0)


def write_lines(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def chat(states, outcome=1):
    messages = [{"role": "system", "content": "be good"}]
    for i, state in enumerate(states):
        messages += [{"role": "user", "content": state}, {"role": "assistant", "content": f"act {i}"}]
    return {"messages": [*messages, {"role": "user", "content": "done"}], "outcome": outcome, "id": 7}


def test_chats_are_read_shortened_and_written_as_chats(tmp_path):
    file = write_lines(tmp_path / "chat.jsonl", [chat(["s", "x", "z", "x", "y"]), chat(["s"], outcome=False)])
    read = read_traces(file)
    assert [t.outcome for t in read.traces] == [1.0, 0.0]
    assert [s.state for s in read.traces[0].steps] == ["s", "x", "z", "x", "y"]
    short = build_distillation_set(read.traces, keep_recoveries=False)
    read.write(short, tmp_path / "out.jsonl")
    (line,) = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert line["id"] == 7
    assert [m["content"] for m in line["messages"]] == [
        "be good", "s", "act 0", "x", "act 3", "y", "act 4", "done",
    ]  # fmt: skip
    read.write(build_distillation_set(read.traces), tmp_path / "whole.jsonl")
    assert (tmp_path / "whole.jsonl").read_text().splitlines() == file.read_text().splitlines()[:1]
    with pytest.raises(BadInput, match="exists already"):
        read.write(short, tmp_path / "out.jsonl")


def test_assistant_messages_in_a_row_are_one_step(tmp_path):
    roles = ("user", "assistant", "assistant", "user", "assistant", "assistant", "user")
    messages = [{"role": role, "content": word} for role, word in zip(roles, "uabvcde", strict=True)]
    messages[2]["backtrack"] = True
    file = write_lines(tmp_path / "chat.jsonl", [{"messages": messages, "outcome": 1}])
    read = read_traces(file)
    (one,) = read.traces
    assert [(s.state, s.action, s.label) for s in one.steps] == [("u", "a\nb", True), ("v", "c\nd", None)]
    assert shorten(one, state_key("exact")).steps == one.steps
    assert shorten(one, pattern_key("(.)")).steps == one.steps
    read.write([one], tmp_path / "same.jsonl")
    assert (tmp_path / "same.jsonl").read_text() == file.read_text()


def test_parts_of_one_turn_on_a_tree_are_one_step():
    with Tree.memory() as tree:
        parent = tree.append([NewNode(kind="task", key="t", text="go")])[0].id
        for number, (kind, text) in enumerate(
            (("action", "one "), ("action", "two"), ("observation", "seen"))
        ):
            parent = tree.append([NewNode(kind=kind, parent=parent, key=str(number), text=text)])[0].id
        producer = tree.add_producer(Producer("judge", "1"))
        tree.add_scores([Score(parent, "success", 1.0, producer)])
        (one,) = tree_traces(tree)
        world = tree.add_producer(Producer("world:w", "1"))
        tree.add_scores([Score(parent, "success", 0.0, world)])
        later = tree.add_producer(Producer("later", "1"))
        tree.add_scores([Score(parent, "success", 0.5, later)])
        (again,) = tree_traces(tree)
    assert [(s.state, s.action) for s in one.steps] == [("go", "one two")]
    assert one.end.state == "seen"
    assert (one.outcome, again.outcome) == (1.0, 0.0), "the world's grade, whoever grades later"


def test_step_lists_are_written_as_step_lists(tmp_path):
    states = [{"at": "s"}, {"at": "x"}, {"at": "s"}]
    steps = [{"observation": s, "action": f"act {i}", "cost": i} for i, s in enumerate(states)]
    line = {"steps": steps, "end": "done", "reward": 1.0, "run": "r"}
    read = read_traces(write_lines(tmp_path / "s.jsonl", [line]))
    read.write([shorten(t, state_key("exact")) for t in read.traces], tmp_path / "o.jsonl")
    kept = json.loads((tmp_path / "o.jsonl").read_text())
    assert kept == line | {"steps": [{"observation": {"at": "s"}, "action": "act 2", "cost": 2}]}


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ({"messages": [{"role": "assistant", "content": "a"}]}, "no outcome"),
        ({"steps": [{"state": "a", "action": "b"}], "outcome": "good"}, "no outcome"),
        ({"steps": [{"state": "a"}], "outcome": 1}, "a state and an action"),
        ({"steps": [], "outcome": 1}, "at least one step"),
        ({"messages": [{"role": "user", "content": "a"}], "outcome": 1}, "no assistant turn"),
        ({"messages": [1], "outcome": 1}, "with a role"),
        ({"text": "a", "outcome": 1}, "no trace"),
    ],
)
def test_bad_lines_are_named(tmp_path, line, what):
    with pytest.raises(BadInput, match=what) as caught:
        read_traces(write_lines(tmp_path / "bad.jsonl", [line]))
    assert "bad.jsonl:1" in str(caught.value)


def test_other_bad_files(tmp_path):
    (tmp_path / "x").write_text("{not json\n")
    (tmp_path / "empty").write_text("\n")
    for name, what in (("x", "not JSON"), ("empty", "no trace"), ("gone", "no such file")):
        with pytest.raises(BadInput, match=what):
            read_traces(tmp_path / name)
    with pytest.raises(BadInput, match="no traces"):
        recovery_audit([])
    with pytest.raises(BadInput, match="must be a number"):
        recovery_audit([trace(["a"], outcome=float("nan"))])
    named = write_lines(tmp_path / "named", [{"steps": [{"state": "a", "action": "b"}], "won": 1}])
    assert read_traces(named, outcome="won").traces[0].outcome == 1.0


@pytest.fixture(scope="module")
def rollouts(tmp_path_factory):
    file = tmp_path_factory.mktemp("tree") / "tree.db"
    world = maze_world(2, 1, 2)
    with Tree.open(file) as tree:
        grow(
            tree, open_policy("scripted:walker"), world, world.tasks("train", 2), draws=12,
            settings=Sampling(max_tokens=12),
        )  # fmt: skip
    return file


def test_a_tree_is_read_shortened_and_written_as_a_tree(rollouts, tmp_path):
    read = read_traces(rollouts)
    assert len(read.traces) == 24
    found = recovery_audit(read.traces, key=PLACE)
    assert found.with_recovery.estimate > 0.5
    short = build_distillation_set(read.traces, key=PLACE, keep_recoveries=False)
    read.write(short, tmp_path / "short.db")
    again = read_traces(tmp_path / "short.db")
    assert len(again.traces) == found.succeeded
    assert {len(t.steps) for t in again.traces} == {4}
    assert {t.outcome for t in again.traces} == {1.0}
    with Tree.open(tmp_path / "short.db", "r") as tree:
        assert list(tree.verify()) == []
        made = [n for n in tree.walk() if "shortened_from" in n.extra]
        assert made
        assert all(n.logprobs is None and n.policy is None for n in made)


def test_whole_walks_of_a_tree_keep_ids_scores_and_log_probs(rollouts, tmp_path):
    read = read_traces(rollouts)
    kept = build_distillation_set(read.traces)
    read.write(kept, tmp_path / "kept.db")
    again = read_traces(tmp_path / "kept.db")
    assert {t.name for t in again.traces} == {t.name for t in kept}
    with Tree.open(tmp_path / "kept.db", "r") as tree, Tree.open(rollouts, "r") as source:
        assert list(tree.verify({"scripted:walker": open_policy("scripted:walker")})) == []
        for leaf in (t.name for t in kept):
            assert len(tree.path(leaf)) == len(source.path(leaf))


def test_a_tree_without_outcomes_is_refused(tmp_path):
    with Tree.open(tmp_path / "t.db") as tree:
        world = maze_world(2, 1, 2)
        from refork.growing.plant import plant

        plant(tree, open_policy("scripted:walker"), world, world.tasks("train", 1))
    with pytest.raises(BadInput, match="no leaf of this tree"):
        read_traces(tmp_path / "t.db")


def test_too_few_states_are_counted_as_states_however_they_were_arrived_at():
    # Both are met ahead and on the way back: four pairs, two states.
    found = recovery_audit([trace("abababab")], key=state_key("exact"))
    assert found.raw.states > 2
    assert "only 2 states in 8 decisions: the state key may be too coarse" in found.warnings
