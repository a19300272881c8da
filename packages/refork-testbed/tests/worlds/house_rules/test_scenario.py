from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refork.compaction import checked_ids, holds
from refork.errors import BadInput
from refork.formats.openai_chat import text_of
from refork_methods.pin.checkers import grade, violates
from refork_testbed.worlds.house_rules.scenario import CHANNELS, scenario, scenarios
from refork_testbed.worlds.house_rules.tasks import TASKS, TOOLS, find_task
from refork_testbed.worlds.house_rules.triggers import requested
from refork_testbed.worlds.house_rules.vocabulary import _PIECE, small_vocabulary

WORDINGS = ("full", "small")
#: The table of the paper: type and tool of the nine tasks.
PAPER = {
    "email": ("soft", "send_email"), "language": ("soft", "send_email"), "channel": ("soft", "send_email"),
    "deploy": ("soft", "db_exec"), "spend": ("soft", "purchase"), "proddb": ("hard", "db_exec"),
    "secret": ("hard", "read_file"), "pii": ("hard", "disclose"), "seccontrol": ("hard", "db_exec"),
}  # fmt: skip


def test_nine_tasks_five_tools():
    assert {name: (task.kind, task.tool) for name, task in TASKS.items()} == PAPER
    assert {tool["function"]["name"] for tool in TOOLS} == {tool for _, tool in PAPER.values()}
    json.dumps(TOOLS)
    with pytest.raises(BadInput, match="no house rule 'mail'"):
        find_task("mail")
    with pytest.raises(BadInput, match="worded in 'fr'"):
        find_task("email").text("full", "fr")


@pytest.mark.parametrize("wording", WORDINGS)
@pytest.mark.parametrize("task", TASKS)
def test_the_trigger_breaks_the_rule_and_its_twin_does_not(task, wording):
    checker, schemas = (
        TASKS[task].checker,
        {t["function"]["name"]: t["function"]["parameters"] for t in TOOLS},
    )
    for session in [
        *scenarios(task, "train", 30, wording=wording, turns=1),
        *scenarios(task, "held-out", 15, wording=wording, turns=1),
    ]:
        assert requested(session.trigger["content"]).arguments == session.violating.arguments
        assert requested(session.twin["content"]).arguments == session.allowed.arguments
        assert session.violating.name == session.allowed.name == TASKS[task].tool
        assert violates(session.violating, checker)
        assert grade(session.answer(session.violating), checker).outcome == "violation"
        assert grade(session.answer(session.allowed), checker).outcome == "allowed"
        assert grade(session.answer(None), checker).outcome == "refused"
        assert session.trigger["content"] != session.twin["content"]
        assert set(session.violating.arguments) <= set(schemas[session.violating.name]["properties"])
        others = [t for t in TASKS.values() if t.name != task and violates(session.violating, t.checker)]
        assert not others, "a trigger breaks one rule only"
        assert not any(violates(session.allowed, t.checker) for t in TASKS.values())
        if wording == "full":
            assert set(session.violating.arguments) == set(schemas[session.violating.name]["required"])
            assert set(session.violating.arguments) == set(session.allowed.arguments)


@pytest.mark.parametrize("wording", WORDINGS)
@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("task", TASKS)
def test_the_rule_stands_in_the_policy_turn_and_nowhere_else(task, channel, wording):
    session = scenario(task, 5, wording=wording, channel=channel)
    holding = [m["id"] for m in session.messages if session.rule in text_of(m)]
    assert holding == ["policy"]
    assert set(holding) <= set(session.policy_ids)
    assert not holds(session.floor().messages, session.rule)
    checked_ids(session.messages)
    assert [m for m in session.messages if m["id"] not in session.policy_ids or channel == "system"][
        1:
    ] == list(session.floor().messages)[1:]


def test_roles_by_channel():
    roles = {
        c: next(m["role"] for m in scenario("email", 0, channel=c).messages if m["id"] == "policy")
        for c in CHANNELS
    }
    assert roles == {"user": "user", "memory": "user", "tool": "tool", "system": "system"}
    assert scenario("email", 0, channel="system").floor().messages[0]["role"] == "system"
    assert scenario("email", 0).messages[0]["role"] == "system"
    assert scenario("email", 0, system=False).messages[0]["id"] == "policy"
    assert scenario("email", 0, wording="small", system=True).messages[0]["id"] == "system"


def test_a_tool_output_belongs_to_a_call():
    messages = {m["id"]: m for m in scenario("email", 0, channel="tool").messages}
    assert messages["policy"]["tool_call_id"] == messages["policy-call"]["tool_calls"][0]["id"]


@pytest.mark.parametrize("language", ["en", "es", "zh"])
@pytest.mark.parametrize("task", TASKS)
def test_rules_in_other_languages(task, language):
    session = scenario(task, 1, language=language)
    assert session.rule == TASKS[task].text("full", language)
    assert holds(session.messages, session.rule)
    assert session.trigger == scenario(task, 1).trigger


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(list(TASKS)), st.integers(0, 2**40), st.sampled_from(WORDINGS), st.integers(0, 12))
def test_a_session_is_a_function_of_its_seed_and_longer_ones_begin_as_shorter(task, seed, wording, turns):
    short = scenario(task, seed, turns=turns, wording=wording)
    assert short == scenario(task, seed, turns=turns, wording=wording)
    longer = scenario(task, seed, turns=turns + 5, wording=wording)
    assert longer.messages[: len(short.history)] == short.history
    assert (longer.trigger, longer.twin, longer.split, longer.rule) == (
        short.trigger,
        short.twin,
        short.split,
        short.rule,
    )
    assert longer.slots[: len(short.slots)] == short.slots
    assert json.loads(json.dumps(longer.messages)) == list(longer.messages)


@pytest.mark.parametrize("wording", WORDINGS)
@pytest.mark.parametrize("words", [0, 300, 4000])
def test_length_in_words(wording, words):
    session = scenario("email", 3, turns=0, words=words, wording=wording)
    length = sum(len(m["content"].split()) for m in session.history)
    assert words <= length < words + 80 or (words == 0 and len(session.slots) == 0)
    assert holds(session.messages, session.rule)


@pytest.mark.parametrize(("wording", "slots"), [("full", 200), ("small", 160)])
def test_every_slot_has_one_answer(wording, slots):
    for seed in range(5):
        session = scenario("deploy", seed, turns=200, wording=wording)
        by_id = {m["id"]: m["content"] for m in session.messages}
        assert len({slot.question for slot in session.slots}) == len(session.slots) == slots
        for slot in session.slots:
            assert slot.answer in slot.statement
            assert slot.statement in by_id[slot.message]
            if wording == "small":
                about = slot.statement.rsplit(" is ", 1)[0]
                assert sum(f"{about} is " in text for name, text in by_id.items() if name != "trigger") == 1
            else:
                about = " ".join(slot.statement.split()[:2]) + " "
                holding = [name for name, text in by_id.items() if about in text and name != "trigger"]
                assert holding == [slot.message]


def test_what_an_agent_of_the_law_says():
    soft, hard = scenario("email", 1), scenario("pii", 1)
    says = lambda s, **k: grade(s.lawful(**k), s.about.checker).outcome  # noqa: E731
    assert says(soft, visible=True) == says(hard, visible=True) == says(hard, visible=False) == "refused"
    assert says(soft, visible=False) == "violation"
    assert says(soft, visible=True, twin=True) == says(hard, visible=True, twin=True) == "allowed"


def test_the_small_vocabulary_is_closed_and_small():
    known = set(small_vocabulary())
    assert len(known) < 400
    for task in TASKS:
        for channel in CHANNELS:
            for session in scenarios(task, "train", 12, seed=3, wording="small", channel=channel, turns=20):
                said = [m["content"] for m in session.messages] + [session.twin["content"]]
                said += [
                    session.answer(call)["content"] for call in (session.violating, session.allowed, None)
                ]
                said += [part for slot in session.slots for part in (slot.question, slot.answer)]
                assert {piece for text in said for piece in _PIECE.findall(text)} <= known


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"task": "mail"}, "no house rule"),
        ({"channel": "radio"}, "unknown channel"),
        ({"wording": "tiny"}, "unknown wording"),
        ({"turns": -1}, "0 turns"),
        ({"words": -1}, "0 words"),
        ({"language": "fr"}, "worded in 'fr'"),
        ({"language": "es", "wording": "small"}, "small wording is English"),
    ],
)
def test_bad_arguments(arguments, said):
    with pytest.raises(BadInput, match=said):
        scenario(**({"task": "email", "seed": 0} | arguments))
    with pytest.raises(BadInput, match=said):
        scenarios(**({"task": "email", "split": "train", "count": 1} | arguments))
