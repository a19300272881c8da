"""Texts of an imported chat have token offsets, so a log can be forked inside a turn."""

import json

import pytest

from refork.errors import BadInput
from refork.forking import fork
from refork.formats import import_file
from refork.formats.conversation import message_of
from refork.formats.openai_chat import OpenAIChat
from refork.judge import MatchJudge
from refork.policies.scripted import ScriptedPolicy
from refork.tree.tree import Tree


def imported(policy, text, tmp_path):
    """The action node of a one-turn chat."""
    talk = {"messages": [{"role": "user", "content": "Well?"}, {"role": "assistant", "content": text}]}
    path = tmp_path / "chat.jsonl"
    path.write_text(json.dumps(talk) + "\n")
    tree = Tree.memory()
    tree.load(OpenAIChat(policy).read(path))
    return tree, next(tree.leaves())


def chain():
    """A policy that says ` go`, then ` on` half of the time."""
    return ScriptedPolicy.from_chain({"": {" go": 1.0}, " go": {" on": 0.5, "": 0.5}, " on": {"": 1.0}})


@pytest.mark.parametrize("text", [" go on", " go, déjà vu 🙂", "", "🙂🙂"])
def test_offsets_end_each_token(text, tmp_path):
    """They never fall, end with the text, and cut it as the policy decodes whole characters."""
    policy = chain()
    _, said = imported(policy, text, tmp_path)
    assert said.offsets is not None
    assert len(said.offsets) == len(said.tokens)
    assert (list(said.offsets) or [0])[-1] == len(text)
    for token, end in enumerate(said.offsets, 1):
        decoded = policy.decode(said.tokens[:token])
        if "\N{REPLACEMENT CHARACTER}" not in decoded:
            assert decoded == text[:end]
        assert said.text_upto(token) == text[:end]


def test_a_log_is_forked_inside_a_turn(tmp_path):
    """Behind the first token of an imported answer the policy runs on."""
    policy = chain()
    tree, said = imported(policy, " go on", tmp_path)
    arm = fork(tree.at(said, 1), policy, 16, judge=MatchJudge("on"))
    assert {trajectory.leaf.text for trajectory in arm.leaves()} <= {" on", ""}
    assert 0 < sum(arm.values()) < 16


def test_a_policy_that_asks_a_server_is_not_asked(tmp_path):
    """Offsets would cost a request for each token: there are none."""

    class Far(ScriptedPolicy):
        @property
        def card(self):
            from dataclasses import replace

            return replace(super().card, kind="remote")

        def decode(self, tokens):
            raise AssertionError("asked")

    near = chain()
    far = object.__new__(Far)
    far.__dict__.update(near.__dict__)
    _, said = imported(far, " go on", tmp_path)
    assert said.offsets is None


@pytest.mark.parametrize("calls", ["abc", [1], {"a": 1}, 5])
def test_tool_calls_that_are_none_are_skipped_and_said(calls, tmp_path):
    said = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "x", "tool_calls": calls}]
    file = tmp_path / "chats.jsonl"
    file.write_text("".join(json.dumps({"messages": one}) + "\n" for one in (said, said[:1])))
    with Tree.memory() as tree:
        found = import_file(tree, file, OpenAIChat())
        assert [node.text for node in tree.walk()] == ["q"]
    assert [(note.kind, note.what) for note in found.remarks if note.kind == "skipped"] == [
        ("skipped", "the tool calls of a message are no list of objects")
    ]


@pytest.mark.parametrize(("said", "kept"), [("developer", "system"), ("text", "user"), ("tool", "tool")])
def test_a_developers_instructions_are_the_systems(said, kept):
    assert message_of({"role": said, "content": "Be brief."}, "here")["role"] == kept


@pytest.mark.parametrize("role", ["oracle", None, ["user"]])
def test_a_role_that_nobody_knows_is_refused(role):
    with pytest.raises(BadInput, match="a message has the role"):
        message_of({"role": role, "content": "Be brief."}, "here")
