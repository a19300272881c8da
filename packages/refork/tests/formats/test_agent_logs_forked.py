"""Real logs of agents with tools, imported as they are and with a policy, and forked by a local model."""

from __future__ import annotations

import gzip

import pytest

from refork.forking import fork
from refork.formats import import_file, reader_for
from refork.policies.base import Sampling
from refork.policies.renderable import renderable
from refork.tree import Tree
from support.foreign_logs import FIXTURES, REAL
from support.tool_talks import ALL, policy

SHORT = Sampling(max_tokens=2)
#: Made by the packages themselves (``fixtures/generate_*.py``).
MADE = (
    "inspect-server.json", "inspect-failed.json", "inspect.eval", "openai-agents.json", "langgraph.json",
    "mini-tools.traj.json", "mini-responses.traj.json", "mini-text.traj.json",
    "claude-code-compacted.jsonl", "codex-compacted.jsonl", "opencode-compacted.json",
)  # fmt: skip
GIVEN = (
    "swe-agent-demo.traj", "swe-agent-test-repo-i1.traj", "mini-swe-agent-local.traj.json",
    "inspect-log_streaming.eval", "inspect-log_message_deduplication.eval",
    "inspect-2025-02-11T15-17-00-05-00_popularity_dPiJifoWeEQBrfWsAopzWr.eval",
)  # fmt: skip
#: Prompts that are rendered in full and read by the model: longer ones only take longer.
LONGEST = 3000


def file_of(name, folder):
    if name in GIVEN:
        if not (REAL / name).exists():
            pytest.skip(f"no real log {name} in {REAL}; REFORK_REAL_LOGS names a folder that has it")
        return REAL / name
    packed = FIXTURES / f"{name}.gz"
    if not packed.exists():
        return FIXTURES / name
    file = folder / name
    file.write_bytes(gzip.decompress(packed.read_bytes()))
    return file


def opened(name, folder, made=None):
    file = file_of(name, folder)
    tree = Tree.memory()
    found = import_file(tree, file, reader_for(file, policy=made))
    assert found.count("skipped") == 0, found.remarks
    return tree


@pytest.fixture(scope="module")
def actors():
    return {name: policy(ALL[name]) for name in ("hermes", "chatml", "none")}


@pytest.mark.parametrize("name", [*MADE, *GIVEN])
def test_every_boundary_of_a_log_can_be_forked(name, tmp_path, actors):
    tree = opened(name, tmp_path)
    trajectories = sorted(tree.paths(tree.leaves()), key=len)
    trajectory = trajectories[-1]
    count = 0
    for before, step in zip(trajectory.steps, trajectory.steps[1:], strict=False):
        if step.node.kind != "action" or before.node.kind == "action" or count == 3:
            continue
        if sum(len(s.text) for s in trajectory.steps[: trajectory.steps.index(step)]) > LONGEST:
            break
        for actor in actors.values() if count == 0 else [actors["hermes"]]:
            (draw,) = fork(tree.at(before.node), actor, 1, settings=SHORT).draws
            assert draw.end != "error", draw.error
        count += 1
    assert count or len(trajectory.root.text) > LONGEST
    assert list(tree.verify()) == []


@pytest.mark.parametrize("name", [*MADE, *GIVEN])
@pytest.mark.parametrize("template", ["hermes", "chatml", "none"])
def test_with_a_policy_every_node_has_ids_or_says_why_not(name, template, tmp_path, actors):
    actor = actors[template]
    tree = opened(name, tmp_path, actor)
    assert list(tree.verify({"tiny": actor})) == []
    for trajectory in tree.paths(tree.leaves()):
        for step in trajectory:
            node = step.node
            mark = node.extra.get("token_ids", {})
            if node.kind == "verdict" or not (node.text or node.tokens is not None):
                continue
            assert (node.tokens is None) == ("none" in mark), node
            calls = (node.message or {}).get("tool_calls")
            if node.kind == "action" and calls and node.tokens is not None:
                able = template == "hermes"
                assert mark["calls"] == ("template" if able else "generic")
                assert actor.decode(node.tokens) == node.text
        if all(step.node.tokens is not None for step in trajectory if step.node.kind == "task"):
            root = trajectory.root
            messages = root.extra.get("messages") or ([root.message] if root.message else [])
            if messages:
                offered = root.extra.get("tools")
                first = {**messages[0], "tools": offered} if offered else messages[0]
                whole = renderable(actor.codec, [first, *messages[1:]]).messages
                expected = actor.render([], [], list(whole)).tokens
                assert root.tokens.tolist() == expected.tolist()


def test_a_trace_of_the_agents_sdk(tmp_path):
    tree = opened("openai-agents.json", tmp_path)
    (trajectory,) = tree.paths(tree.leaves())
    assert [s.node.kind for s in trajectory] == ["task", "action", "observation", "action"]
    first, last = trajectory.steps[1].node, trajectory.leaf
    assert first.message["tool_calls"][0]["function"]["name"] == "look"
    assert (first.policy, first.settings) == ("tiny-agent", {"temperature": 0.4, "max_tokens": 50})
    assert first.extra["request"] == {"temperature": 0.4, "max_tokens": 50}
    assert first.extra["span"]["agents"] == ["Finder"]
    assert (first.cost.tokens_in, first.cost.tokens_out) == (20, 5)
    assert trajectory.steps[2].text == "You look at the door."
    assert last.text == "It is a lamp."
    assert trajectory.root.extra["origin"]["workflow"] == "Agent workflow"
    assert last.extra["trace"]["tools"][0]["span_data"]["name"] == "look"


def test_a_trace_of_langgraph(tmp_path):
    tree = opened("langgraph.json", tmp_path)
    (trajectory,) = tree.paths(tree.leaves())
    assert [s.node.kind for s in trajectory] == ["task", "action", "observation", "action"]
    assert trajectory.root.extra["tools"][0]["function"]["name"] == "look"
    assert trajectory.steps[1].node.settings == {"temperature": 0.3}
    assert trajectory.steps[2].text == "You look at the door."
