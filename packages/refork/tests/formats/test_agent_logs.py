"""Logs of SWE-agent, mini-swe-agent and ART: real ones where they are, and what the packages write."""

from __future__ import annotations

import json

import pytest

from refork.formats import reader_for
from refork.worlds.trajectories import trajectory_of
from support.foreign_logs import FIXTURES, REAL, imported, kinds, plain, whats


def read(file):
    reader = reader_for(file)
    return (*imported(reader, file), reader.name)


def only(tree):
    (trajectory,) = tree.paths(tree.leaves())
    return trajectory


def real(name):
    if not (REAL / name).exists():
        pytest.skip(f"no real log {name} in {REAL}; REFORK_REAL_LOGS names a folder that has it")
    return REAL / name


@pytest.mark.parametrize(("name", "steps"), [("swe-agent-demo.traj", 7), ("swe-agent-test-repo-i1.traj", 5)])
def test_real_trajectories_of_swe_agent(name, steps):
    body = json.loads(real(name).read_text())
    tree, remarks, format_ = read(real(name))
    trajectory = only(tree)
    actions = [s.node for s in trajectory if s.node.kind == "action"]
    assert (format_, len(actions), len(body["trajectory"])) == ("swe-agent", steps, steps)
    assert [a.text for a in actions] == [step["response"] for step in body["trajectory"]]
    assert [a.message["action"] for a in actions] == [step["action"] for step in body["trajectory"]]
    assert [a.extra["step"]["state"] for a in actions] == [step["state"] for step in body["trajectory"]]
    shown = [s.text for s in trajectory if s.node.kind == "observation"]
    for text, step in zip(shown, body["trajectory"], strict=False):
        assert step["observation"].strip()[:200] in text
    # The last command's output is in no message.
    assert trajectory.leaf.extra["step"].get("observation", "") == body["trajectory"][-1]["observation"]
    assert trajectory.leaf.extra["line"]["info"] == body["info"]
    assert whats(remarks, "lost") == ["token ids, log-probs and times: the file has none"]
    assert len(trajectory_of(trajectory).turns) == steps - 1


def test_a_real_trajectory_of_mini_swe_agent():
    file = real("mini-swe-agent-local.traj.json")
    body = json.loads(file.read_text())
    tree, _, format_ = read(file)
    trajectory = only(tree)
    assert format_ == "mini-swe-agent"
    said = [m["content"] for m in body if m["role"] == "assistant"]
    assert [s.text for s in trajectory if s.node.kind == "action"] == said


NEWER = {
    "environment": "swe_main",
    "trajectory": [
        {
            "action": "ls", "observation": "a.py", "response": "I look.", "thought": "I look.",
            "execution_time": 0.5, "state": {"working_dir": "/r"}, "extra_info": {"k": 1},
            "query": [{"role": "system", "content": "s"}],
        },
        {
            "action": "submit", "observation": "diff", "response": "", "thought": "", "state": {},
            "query": [{}, {}],
        },
    ],
    "history": [
        {"role": "system", "content": "s", "agent": "main", "message_type": "system_prompt"},
        {"role": "user", "content": "demo", "agent": "main", "is_demo": True},
        {"role": "user", "content": [{"type": "text", "text": "fix it"}], "agent": "main"},
        {
            "role": "assistant", "content": "I look.", "thought": "I look.", "action": "ls", "agent": "main",
            "tool_calls": [{"id": "c1", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}],
            "thinking_blocks": None,
        },
        {"role": "tool", "content": "a.py", "agent": "main", "tool_call_ids": ["c1"]},
        {"role": "assistant", "content": "", "thought": "", "action": "submit", "agent": "main"},
    ],
    "info": {"exit_status": "exit_cost", "submission": None, "swe_agent_version": "1.1.0"},
    "replay_config": json.dumps({"agent": {"model": {"name": "m-1"}}}),
}  # fmt: skip


def put(folder, body, name="x.traj"):
    file = folder / name
    file.write_text(json.dumps(body, indent=2), encoding="utf-8")
    return file


def test_the_newer_form_with_tool_calls(tmp_path):
    tree, _, name = read(put(tmp_path, NEWER))
    trajectory = only(tree)
    first, last = (s.node for s in trajectory if s.node.kind == "action")
    assert (name, [s.node.kind for s in trajectory]) == (
        "swe-agent",
        ["task", "action", "observation", "action"],
    )
    assert trajectory.steps[2].node.message["tool_call_id"] == "c1"
    assert first.policy == "m-1"
    assert first.extra["step"] == {
        "query_messages": 1,
        "execution_time": 0.5,
        "state": {"working_dir": "/r"},
        "extra_info": {"k": 1},
    }
    assert (last.error, last.extra["step"]["observation"]) == ("exit: exit_cost", "diff")


def test_attempts_subagents_and_files_without_a_history(tmp_path):
    attempts = {"attempts": [NEWER, NEWER], **NEWER}
    tree, _, _ = read(put(tmp_path, attempts))
    assert [w.leaf.extra["line"]["attempt"] for w in tree.paths(tree.leaves())] == [0, 1]
    assert len(list(tree.tasks())) == 1
    old = {**NEWER, "history": [*NEWER["history"], {"role": "system", "content": "sub", "agent": "sub"}]}
    tree, _, _ = read(put(tmp_path, old))
    assert len(list(tree.tasks())) == 2
    answered = {**NEWER, "history": [*old["history"], {"role": "assistant", "content": "ok", "agent": "sub"}]}
    tree, _, _ = read(put(tmp_path, answered))
    assert {leaf.text: leaf.error for leaf in tree.leaves()} == {"": "exit: exit_cost", "ok": None}
    bare = {key: value for key, value in NEWER.items() if key != "history"}
    tree, _, _ = read(put(tmp_path, bare))
    assert [s.text for s in only(tree)] == ["s", "I look.", "a.py", "", "diff"]
    short = {**NEWER, "trajectory": NEWER["trajectory"][:1]}
    tree, remarks, _ = read(put(tmp_path, short))
    assert any("another number of turns" in one for one in whats(remarks, "lost"))
    assert only(tree).leaf.extra["line"]["steps"][0]["execution_time"] == 0.5


@pytest.mark.parametrize("kind", ["text", "tools", "responses"])
def test_mini_swe_agent_writes_what_we_read(kind):
    """``mini-*.traj.json`` is what mini-swe-agent 2.4 wrote with its scripted models."""
    tree, remarks, name = read(FIXTURES / f"mini-{kind}.traj.json")
    trajectory = only(tree)
    first, last = (s.node for s in trajectory if s.node.kind == "action")
    seen = trajectory.steps[2].node
    assert (name, [s.node.kind for s in trajectory]) == (
        "mini-swe-agent",
        ["task", "action", "observation", "action"],
    )
    assert trajectory.root.text.startswith("You are a helpful assistant.")
    assert "a.txt" in seen.text
    assert seen.message["extra"]["returncode"] == 0
    assert first.policy.startswith("deterministic")
    assert first.cost.money == (0.25 if kind == "text" else 1.0)
    if kind != "text":
        call = first.message["tool_calls"][0]
        assert json.loads(call["function"]["arguments"]) == {"command": "echo a.txt"}
        assert seen.message["tool_call_id"] == call["id"] == "c1"
    assert last.extra["line"]["exit"]["extra"]["exit_status"] == "Submitted"
    assert last.error is None
    assert whats(remarks, "skipped") == []


def test_an_exit_that_is_no_submission_is_an_error(tmp_path):
    body = {
        "info": {"exit_status": "LimitsExceeded"}, "trajectory_format": "mini-swe-agent-1",
        "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
    }  # fmt: skip
    tree, _, name = read(put(tmp_path, body, "m.json"))
    assert (name, only(tree).leaf.error) == ("mini-swe-agent", "exit: LimitsExceeded")


def art_walks(tree):
    return {trajectory.leaf.text: trajectory for trajectory in tree.paths(tree.leaves())}


def test_art_groups_share_their_prompt_and_keep_ids():
    """``art.jsonl`` is ART's own dump of its groups."""
    tree, remarks, name = read(FIXTURES / "art.jsonl")
    trajectories = art_walks(tree)
    assert (name, sorted(trajectories)) == ("art", ["aside", "here", "nowhere", "said by hand"])
    assert len(list(tree.tasks())) == 2  # The same question with tools and without them.
    here, nowhere = trajectories["here"].leaf, trajectories["nowhere"].leaf
    assert (here.tokens.tolist(), here.logprobs.tolist(), here.finish) == ([5, 6], [-0.5, -0.5], "stop")
    assert here.extra["trainable"] is True
    assert here.extra["line"]["group"] == {"metadata": {"step": 3}}
    assert here.extra["line"]["metadata"] == {"scenario": "s1"}
    assert {s.name: s.value for s in tree.scores(here)} == {"reward": 1.0, "correct": 1.0, "turns": 1.0}
    assert {s.name: s.value for s in tree.scores(nowhere)} == {"reward": 0.0}
    assert [s.node.kind for s in trajectories["nowhere"]] == ["task", "action", "observation", "action"]
    assert "trainable" not in trajectories["said by hand"].leaf.extra
    assert list(tree.scores(trajectories["aside"].leaf)) == []
    assert sorted(whats(remarks, "lost")) == [
        *["times: the file has none"] * 2,
        *["token ids, log-probs and times: the file has none"] * 2,
    ]


def test_art_logs_without_log_probs_and_its_parquet():
    logged, _, name = read(FIXTURES / "art-logged.jsonl")
    assert (name, sorted(art_walks(logged))) == ("art", ["aside", "here", "nowhere", "said by hand"])
    assert all(node.tokens is None for node in logged.walk())
    packed, _, name = read(FIXTURES / "art.parquet")
    trajectories = art_walks(packed)
    assert (name, sorted(trajectories)) == ("parquet", ["here", "nowhere", "said by hand"])
    assert trajectories["nowhere"].steps[1].node.message["tool_calls"][0]["function"]["name"] == "look"
    assert trajectories["nowhere"].root.extra["tools"][0]["function"]["name"] == "look"
    assert trajectories["here"].leaf.extra["line"]["group_metadata"] == {"step": 3}
    assert kinds(packed) == [
        ["task", "action"],
        ["task", "action"],
        ["task", "action", "observation", "action"],
    ]


def test_art_names_of_tokens_that_are_no_ids(tmp_path):
    choice = {
        "finish_reason": "stop", "index": 0, "message": {"role": "assistant", "content": "a"},
        "logprobs": {"content": [{"token": "a", "logprob": -1.0}]},
    }  # fmt: skip
    one = {
        "messages_and_choices": [{"role": "user", "content": "q"}, choice],
        "reward": None,
        "own": {"k": 1},
    }
    file = tmp_path / "t.jsonl"
    vast = json.loads(json.dumps(one))
    vast["messages_and_choices"][1]["logprobs"]["content"][0]["token"] = "token_id:99999999999"
    file.write_text(json.dumps(one) + "\n" + json.dumps(vast) + "\n")
    tree, remarks, _ = read(file)
    assert whats(remarks, "lost") == ["log-probs of tokens without ids"]
    assert "32 bits" in whats(remarks, "skipped")[0]
    assert only(tree).leaf.extra["line"]["own"] == {"k": 1}
    assert list(tree.scores()) == []


def test_importing_twice_changes_nothing(tmp_path):
    for name in ("art.jsonl", "mini-tools.traj.json"):
        tree, _, _ = read(FIXTURES / name)
        before = plain(tree)
        records = reader_for(FIXTURES / name).read(FIXTURES / name)
        tree.load(r for r in records if type(r).__name__ not in ("Remark", "Position"))
        assert plain(tree) == before
