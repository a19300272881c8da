from __future__ import annotations

import json

import pytest

from memory.memory_parts import PEOPLE, asks, pay_run
from refork.chat import ScriptedChat
from refork.errors import ServerError
from refork_methods.memory.item import MemoryItem
from refork_methods.memory.retrieve import Candidate, Document
from refork_methods.memory.roles.by_model import ModelManager, ModelReflector, ModelScreener
from refork_methods.memory.roles.lesson import Lesson, Most
from refork_methods.memory.roles.team import roles_by

GIVEN = [MemoryItem("plan-1", "plan", "Pay.")]


def said(*replies):
    return ScriptedChat([reply if isinstance(reply, str) else json.dumps(reply) for reply in replies])


def asked(chat, number=-1):
    return "\n".join(message["content"] for message in chat.asked[number])


def test_the_reflector_reads_a_compact_view_and_opens_steps():
    plan = {"kind": "plan", "body": "Pay.", "evidence": ["s5"], "supersedes": "plan-1", "skeleton": []}
    chat = said({"open": ["s2"]}, {"lessons": [plan]})
    found = ModelReflector(chat).reflect(pay_run("1"), GIVEN)
    assert found.lessons == (Lesson("plan", "Pay.", ("s5",), supersedes="plan-1"),)
    assert found.cost.tokens_in > 0
    assert "[s2] in full" not in asked(chat, 0)
    assert "[s2] in full" in asked(chat, 1)
    assert str(PEOPLE[3]["user_id"]) in asked(chat, 1)


def test_a_fence_around_the_reply_is_taken_off():
    found = ModelReflector(said('```json\n{"lessons": []}\n```')).reflect(pay_run("1"), ())
    assert found.lessons == ()


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("no JSON", "Invalid JSON"),
        ({"lessons": [], "open": ["s1"]}, 'either "open" or "lessons"'),
        ({"lessons": [{"kind": "wish", "body": "x"}]}, "lessons.0.kind"),
        ({"lessons": [{"kind": "fact", "body": "x", "extra": 1}]}, "Extra inputs"),
        ({"lessons": [{"kind": "fact", "body": "x", "evidence": ["s99"]}]}, "no step 's99'"),
        ({"lessons": [{"kind": "fact", "body": "x", "supersedes": "plan-7"}]}, "was not given 'plan-7'"),
        ({"lessons": [{"kind": "fact", "body": "x", "skeleton": [{"op": "call"}]}]}, "only a plan"),
        ({"lessons": [{"kind": "plan", "body": "x", "skeleton": [{"op": "call"}]}]}, "no 'function'"),
        ({"open": ["s99"]}, "no step 's99'"),
        ({"open": []}, "name a step"),
    ],
)
def test_a_bad_reply_is_asked_again_once(reply, why):
    good = {"lessons": []}
    chat = said(reply, good)
    assert ModelReflector(chat).reflect(pay_run("1"), GIVEN).lessons == ()
    assert why in chat.asked[1][-1]["content"]
    with pytest.raises(ServerError, match="reflector gave no usable reply in two"):
        ModelReflector(said(reply, reply)).reflect(pay_run("1"), GIVEN)


def test_openings_end():
    more = {"open": ["s1"]}
    with pytest.raises(ServerError, match="no more steps"):
        ModelReflector(said(more, more, more, more, more)).reflect(pay_run("1"), ())


def test_the_screener_sees_no_run():
    chat = said({"verdicts": [{"lesson": 0, "keep": True}, {"lesson": 1, "keep": False, "reason": "known"}]})
    lessons = [Lesson("plan", "Pay.", ("s5",)), Lesson("fact", "x")]
    known = [MemoryItem("pitfall-1", "pitfall", "Watch out."), *GIVEN]
    found = ModelScreener(chat).screen(lessons, known)
    assert found.reasons == (None, "known")
    assert "Watch out" not in asked(chat)  # of another kind
    assert "s5" not in asked(chat)
    assert ModelScreener(said()).screen([], known).reasons == ()
    with pytest.raises(ServerError, match="one verdict for each"):
        ModelScreener(said({"verdicts": []}, {"verdicts": []})).screen(lessons, known)


def candidates(*documents):
    found = {}
    for one in documents:
        found.setdefault(one.kind, []).append(Candidate(one, 1.0, 1, None))
    return found


ROW = candidates(
    *(Document(f"plan-{n}", "plan", "text") for n in range(1, 6)), Document("send", "tool", "send money")
)


def test_the_manager_names_ids_of_candidates():
    chat = said({"texts": ["plan-2", "plan-2"], "tools": ["send"]})
    found = ModelManager(chat).choose(
        asks(), ROW, {item.id: item for item in GIVEN}, {"send": "plan-1"}, Most()
    )
    assert (found.items, found.tools) == (("plan-2",), ("send",))
    assert "Pay." in asked(chat)
    assert ModelManager(said()).choose("q", {"plan": []}, {}, {}, Most()).items == ()


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ({"texts": ["plan-9"]}, "not among the candidates"),
        ({"tools": ["plan-1"]}, "not among the candidates"),
        ({"texts": ["plan-1", "plan-2", "plan-3", "plan-4"]}, "at most 3"),
    ],
)
def test_the_manager_may_name_nothing_else(reply, why):
    with pytest.raises(ServerError, match=why):
        ModelManager(said(reply, reply)).choose("q", ROW, {}, {}, Most())


def test_limits_can_be_set():
    one = {"tools": ["send"]}
    manager = ModelManager(said(one, one))
    with pytest.raises(ServerError, match="at most 0 tools"):
        manager.choose("q", ROW, {}, {}, Most(tool=0))


def test_one_model_can_have_all_roles():
    roles = roles_by(said())
    assert roles.reflector.name == roles.manager.name == roles.codifier.name == "scripted"
