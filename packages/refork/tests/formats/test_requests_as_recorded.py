"""What a fork of an imported log sends to a chat server: what the log's own agent sent, byte for byte."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from refork.forking import Set, fork, recorded_settings
from refork.formats import import_file, reader_for
from refork.policies.base import Sampling
from refork.policies.remote import RemotePolicy
from refork.policies.sent import kept_request, sent_message
from refork.tree import Tree
from support.openai_server import Refusal, Script, serving

HERE = Path(__file__).parent / "fixtures"
#: What the chat interface has for messages; a strict server refuses any other key.
KEYS = {"role", "content", "name", "tool_calls", "tool_call_id", "refusal", "audio", "function_call"}


def log(tmp_path, name):
    file = tmp_path / f"{name}.json"
    file.write_bytes(gzip.decompress((HERE / f"{name}.json.gz").read_bytes()))
    return file


def opened(file):
    tree = Tree.memory()
    found = import_file(tree, file, reader_for(file))
    assert found.count("skipped") == 0
    assert list(tree.verify()) == []
    return tree


def strict(body):
    """A server that refuses what it does not know."""
    unknown = {key for message in body.get("messages", ()) for key in message} - KEYS
    return Refusal(400, f"unknown keys {sorted(unknown)}") if unknown else None


@pytest.fixture
def server():
    script = Script(dialect=None, fail_when=strict)
    with serving(script) as url:
        policy = RemotePolicy(url, "tiny-agent")
        script.listed = [{"id": "tiny-agent"}]
        yield script, policy
        policy.close()


def asked(server, point, **more):
    """The bodies of a fork's requests."""
    script, policy = server
    _ = policy.card
    script.seen.clear()
    arm = fork(point, policy, 2, **more)
    assert [draw.end for draw in arm.draws] == ["done", "done"]
    return script.bodies("/chat/completions")


def recorded(file):
    """The bodies that the log says its agent sent, one a call, in order."""
    for sample in json.loads(file.read_text())["samples"]:
        pool = sample["events_data"]["calls"]
        for event in sample["events"]:
            if event["event"] == "model":
                call = event["call"]
                messages = [one for first, last in call["call_refs"] for one in pool[first:last]]
                body = {**call["request"], "messages": messages}
                # Headers are no part of the body.
                yield {key: value for key, value in body.items() if key != "extra_headers"}


def canonical(body, **changed):
    return json.dumps({**body, **changed}, sort_keys=True, separators=(",", ":")).encode()


def test_a_fork_sends_what_the_agent_sent(tmp_path, server):
    """Byte for byte, but for the seed, which is the draw's own."""
    file = log(tmp_path, "inspect-server")
    tree = opened(file)
    wanted = list(recorded(file))
    assert len(wanted) == 4
    for number, trajectory in enumerate(tree.paths(tree.leaves())):
        before = [
            a.node
            for a, b in zip(trajectory.steps, trajectory.steps[1:], strict=False)
            if b.node.kind == "action"
        ]
        assert len(before) == 2
        # The epochs share their first message, whose draws are there already.
        for node, body in list(zip(before, wanted[2 * number :], strict=False))[bool(number) :]:
            sent = asked(server, tree.at(node))
            assert [canonical(one, seed=0) for one in sent] == [canonical(body, seed=0)] * 2
            assert sent[0]["seed"] != sent[1]["seed"]


def test_settings_that_differ_are_sent_and_nothing_else_changes(tmp_path, server):
    file = log(tmp_path, "inspect-server")
    tree = opened(file)
    point = tree.at(next(tree.tasks()))
    body = next(recorded(file))
    sent = asked(server, point, change=Set(temperature=0.1, max_tokens=9))
    assert canonical(sent[0], seed=0) == canonical(body, seed=0, temperature=0.1, max_tokens=9)


def test_what_the_agent_left_to_the_server_is_left_to_it(tmp_path, server):
    file = log(tmp_path, "inspect-server")
    body = json.loads(file.read_text())
    for sample in body["samples"]:
        for event in sample["events"]:
            if event["event"] == "model":
                event["config"] = {}
                for name in ("temperature", "max_tokens", "stop", "seed"):
                    del event["call"]["request"][name]
    file.write_text(json.dumps(body))
    tree = opened(file)
    (first, *_) = asked(server, tree.at(next(tree.tasks())))
    assert canonical(first, seed=0) == canonical(next(recorded(file)), seed=0)
    assert "temperature" not in first


def test_local_forks_have_the_recorded_settings_from_the_first_turn_on(tmp_path):
    tree = opened(log(tmp_path, "inspect-server"))
    point = tree.at(next(tree.tasks()))
    expected = Sampling(temperature=0.7, max_tokens=64, stop=("END",))
    assert recorded_settings(point, tree.path(point)) == expected


def test_failed_runs_are_imported_each_with_its_own_error(tmp_path):
    """Three epochs of one sample: two whose first call failed, one that failed behind a tool's result."""
    file = log(tmp_path, "inspect-failed")
    tree = opened(file)
    (task,) = tree.tasks()
    assert task.error is None
    leaves = sorted(tree.leaves(), key=lambda leaf: leaf.extra["line"]["epoch"])
    assert [leaf.extra["line"]["epoch"] for leaf in leaves] == [1, 2, 3]
    assert [(leaf.kind, leaf.finish, leaf.text) for leaf in leaves] == [("action", "error", "")] * 3
    for number, leaf in enumerate(leaves, start=1):
        assert f"failure {number}" in leaf.error
    assert [tree.path(leaf).steps[-2].node.kind for leaf in leaves] == ["task", "task", "observation"]
    # The same file again adds nothing.
    assert import_file(tree, file, reader_for(file)).nodes == 0


def test_a_failed_call_can_be_asked_again_where_it_failed(tmp_path, server):
    file = log(tmp_path, "inspect-failed")
    tree = opened(file)
    late = next(leaf for leaf in tree.leaves() if leaf.extra["line"]["epoch"] == 3)
    bodies = list(recorded(file))
    sent = asked(server, tree.at(str(late.parent)))
    assert canonical(sent[0], seed=0) == canonical(bodies[-1], seed=0)


def test_what_servers_take_of_a_message():
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    ours = {"id": "x", "tools": [], "extra": {"sent": ["cache_control"]}, "is_demo": True, "request": {}}
    taken = {"role": "assistant", "content": None, "cache_control": {"type": "ephemeral"}}
    message = {**taken, **ours, "tool_calls": [{**call, "parse_error": "no", "extra": {}}]}
    assert sent_message(message) == {**taken, "tool_calls": [call]}
    request = {"model": "m", "messages": [], "seed": 1, "extra_headers": {}, "extra_body": {"top_k": 4}}
    assert kept_request({**request, "tool_choice": "auto"}) == {"tool_choice": "auto", "top_k": 4}
