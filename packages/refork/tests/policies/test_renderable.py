"""Conversations with tools as templates can be shown them: their own form, or the plain one, and said so."""

from __future__ import annotations

import pytest

from refork.errors import BadInput
from refork.formats import import_file, reader_for
from refork.policies.renderable import abilities, codec_of, render_delta, renderable, turn_tokens
from refork.policies.scripted import ScriptedPolicy
from refork.tree import Tree
from support.tool_talks import (
    ALL,
    ASKED,
    CALLS,
    CHATML,
    HERMES,
    ONE,
    REFUSES,
    SAID,
    SINGLE,
    SYSTEM,
    TOOL,
    TWO,
    codec,
    policy,
    put,
)


@pytest.mark.parametrize(
    ("name", "able"),
    [
        ("hermes", (True, True, True, True)),
        ("single", (True, True, False, True)),
        ("chatml", (False, False, False, False)),
        # It names tools and calls, and writes neither.
        ("silent", (False, False, False, False)),
        ("strict", (False, False, False, False)),
        ("none", (False, False, False, False)),
    ],
)
def test_abilities_are_what_the_template_really_writes(name, able):
    found = abilities(codec(ALL[name]))
    assert (found.tools, found.call, found.calls, found.result) == able


@pytest.mark.parametrize("name", ALL)
def test_nothing_that_was_said_is_lost(name):
    made = codec(ALL[name])
    offered = [{**TWO[0], "tools": [TOOL]}, *TWO[1:]]
    found = renderable(made, offered)
    text = (
        made.template_text(found.messages, generate=False)
        if made.has_template
        else "".join(str(m["content"]) for m in found.messages)
    )
    for part in ("Be brief.", "What is there?", "Looks.", '"at": "door"', '"at": "wall"', "dark", "cold"):
        assert part in text, part
    assert (found.approximate == ()) == (name == "hermes")
    assert renderable(made, ONE[:2]).messages == (SYSTEM, ASKED) or name == "strict"


def test_a_template_that_can_do_it_is_shown_the_messages_as_they_are():
    found = renderable(codec(HERMES), TWO)
    assert found.messages == tuple(TWO)
    # Only the turn of several calls, and their results, are beyond a template of single ones.
    single = renderable(codec(SINGLE), TWO).messages
    assert single[:6] == tuple(TWO[:6])
    assert single[6]["content"].startswith("Both.\n<tool_call>\n")
    assert single[7]["content"] == (
        "<tool_response>\ndark\n</tool_response>\n<tool_response>\ncold\n</tool_response>"
    )


def test_a_template_that_refuses_everything_is_an_error():
    with pytest.raises(BadInput, match="never"):
        renderable(codec(REFUSES), ONE)


def test_pictures_are_named_where_a_template_shows_none():
    picture = {"role": "user", "content": [{"type": "text", "text": "See"}, {"type": "image_url"}]}
    found = renderable(codec(CHATML), [picture])
    assert found.messages[0]["content"] == "See[image_url]"
    assert "pictures" in found.approximate[0]
    text = renderable(codec(CHATML), [{"role": "user", "content": [{"type": "text", "text": "See"}]}])
    assert (text.messages[0]["content"], text.approximate) == ("See", ())


def walked(made, messages, tools=()):
    """The ids of a conversation as an import lays them down: deltas, and turns without their ends."""
    ids, history = [], []
    first = True
    for message in messages:
        if message["role"] == "assistant":
            ids += turn_tokens(made, message, tools).tokens.tolist()
        else:
            new = [{**message, "tools": list(tools)}] if first and tools else [message]
            rendered, _ = render_delta(made, history, ids, new)
            assert not rendered.rewrites
            ids += rendered.tokens.tolist()
            history.append(new[0])
            first = False
            continue
        history.append(message)
        first = False
    return ids


@pytest.mark.parametrize("name", ["hermes", "single", "chatml", "none"])
@pytest.mark.parametrize("messages", [ONE[1:4], ONE[1:], TWO[1:5]])
def test_the_ids_of_a_walk_spell_the_rendered_conversation(name, messages):
    """Exact: what was laid down turn by turn is what the template writes of all of it at once."""
    made = policy(ALL[name])
    ids = walked(made, messages, [TOOL])
    whole = renderable(made.codec, [{**messages[0], "tools": [TOOL]}, *messages[1:]]).messages
    if name == "none":
        expected = "".join(m["content"] + ("" if m["role"] == "assistant" else "\n") for m in whole)
    else:
        expected = made.codec.template_text(whole, generate=messages[-1]["role"] != "assistant")
    text = made.codec.raw(ids)
    assert expected.removesuffix("<|im_end|>\n") == text.removesuffix("<|im_end|>\n")


@pytest.mark.parametrize(
    ("name", "who"), [("hermes", "template"), ("chatml", "generic"), ("none", "generic")]
)
def test_a_turn_says_who_wrote_its_calls(name, who):
    made = policy(ALL[name])
    turn = turn_tokens(made, CALLS)
    assert turn.calls == who
    assert (turn.approximate == ()) == (who == "template")
    assert made.decode(turn.tokens) == turn.text
    assert turn.text == '<tool_call>\n{"name": "look", "arguments": {"at": "door"}}\n</tool_call>'
    assert turn.offsets[-1] == len(turn.text)
    plain = turn_tokens(made, SAID)
    assert (plain.text, plain.calls, plain.approximate) == ("A lamp.", None, ())


def test_a_policy_without_a_tokenizer_here_uses_the_plain_form():
    made = ScriptedPolicy.from_replies(["x"])
    assert codec_of(made) is None
    assert turn_tokens(made, CALLS).calls == "generic"


# -- imports ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["hermes", "single", "chatml", "none"])
def test_a_log_with_calls_is_tokenised_and_verified(tmp_path, name):
    made = policy(ALL[name])
    with Tree.memory() as tree:
        file = put(tmp_path, TWO)
        found = import_file(tree, file, reader_for(file, policy=made))
        assert found.count("skipped") == 0
        assert list(tree.verify({"tiny": made})) == []
        (trajectory,) = tree.paths(tree.leaves())
        assert all(step.node.tokens is not None for step in trajectory)
        assert "Looks." in made.decode(trajectory.root.tokens)  # The tools that the agent was offered.
        turn = trajectory.steps[1].node
        assert turn.message == CALLS
        assert turn.extra["token_ids"]["calls"] == ("template" if name in ("hermes", "single") else "generic")
        assert ("approximate" in turn.extra["token_ids"]) == (name in ("chatml", "none"))


def test_what_cannot_be_rendered_is_marked_where_it_stands(tmp_path):
    """A template that forgets earlier turns: ids up to there, then marks that say where to fork."""
    forgets = CHATML.replace("{% for m in messages %}", "{% for m in messages[-1:] %}")
    made = policy(forgets)
    with Tree.memory() as tree:
        file = put(tmp_path, [ASKED, SAID, ASKED, SAID], tools=False)
        found = import_file(tree, file, reader_for(file, policy=made))
        assert found.count("skipped") == 0
        (trajectory,) = tree.paths(tree.leaves())
        assert [step.node.tokens is None for step in trajectory] == [False, False, True, True]
        mark = trajectory.leaf.extra["token_ids"]
        assert "rewrites what came before" in mark["none"]
        assert "observation" in mark["fork"]
