from __future__ import annotations

from memory.memory_parts import asks, pay_run
from refork_methods.memory.item import MemoryItem
from refork_methods.memory.retrieve import Candidate, Document
from refork_methods.memory.roles.by_rule import RuleManager, RuleReflector, RuleScreener
from refork_methods.memory.roles.lesson import Lesson, Most


def lessons(**more):
    return RuleReflector().reflect(pay_run("1", **more), ()).lessons


def plan(number=1):
    found = next(one for one in lessons() if one.kind == "plan")
    return MemoryItem(f"plan-{number}", "plan", found.body, found.skeleton, query=asks())


def test_a_run_gives_a_plan_and_the_pitfall_of_a_mended_call():
    pitfall, made = lessons()
    assert (pitfall.kind, made.kind) == ("pitfall", "plan")
    assert "pay.send" in pitfall.body
    assert "user_id as str instead of int" in pitfall.body
    assert pitfall.evidence == ("s4", "s5")
    assert made.body.startswith('To do: Send {amount} dollars to {name} for "{note}".\n1. call pay.login')
    assert "Ann Lee" not in made.body
    assert made.evidence == ("s0", "s1", "s2", "s5")


def test_a_failed_run_gives_no_plan():
    assert [one.kind for one in lessons(success=False)] == ["pitfall"]
    assert [one.kind for one in lessons(success=None)] == ["pitfall", "plan"]


def test_what_is_known_is_dropped():
    known = [plan(), MemoryItem("fact-1", "fact", "Lists of people are read in pages.")]
    near = Lesson("fact", "lists of people are read in page")
    rows = [
        *lessons(),
        near,
        Lesson("fact", "Amounts are in dollars."),
        Lesson("fact", "Amounts are in dollars."),
    ]
    reasons = RuleScreener().screen(rows, known).reasons
    assert reasons == (
        None,
        "plan-1 says the same",
        "fact-1 says nearly the same",
        None,
        "this run says the same",
    )


def test_the_same_calls_for_the_same_kind_of_query_are_one_plan():
    found = next(one for one in lessons(name="Bob May", amount=3) if one.kind == "plan")
    changed = Lesson("plan", found.body.replace("for every page", "for each page"), (), found.skeleton)
    assert RuleScreener().screen([changed], [plan()]).reasons == ("plan-1 is the same plan",)


def choose(query, *items, tools=()):
    found = {}
    for item in items:
        found.setdefault(item.kind, []).append(
            Candidate(Document(item.id, item.kind, item.body), 1.0, 1, None)
        )
    found["tool"] = [Candidate(Document(name, "tool", name), 1.0, 1, None) for name in tools]
    return RuleManager().choose(
        query, found, {one.id: one for one in items}, dict.fromkeys(tools, "plan-1"), Most()
    )


def test_plans_that_fit_are_chosen_with_their_tools():
    chosen = choose(asks("Bob May", 5, "x"), plan(), tools=["pay"])
    assert (chosen.items, chosen.tools) == (("plan-1",), ("pay",))
    assert choose("Send all notes to Bob May", plan(), tools=["pay"]).items == ()
    assert choose("Send all notes to Bob May", plan(), tools=["pay"]).tools == ()
    assert choose("Archive all. Then: " + asks("Bob May", 5, "x"), plan()).items == ("plan-1",)


def test_plans_without_a_skeleton_go_by_words():
    item = MemoryItem("plan-1", "plan", "Archive old mail", query="Archive all old mail")
    assert choose("Please archive all old mail", item).items == ("plan-1",)
    assert choose("List notes", item).items == ()


def test_limits_hold():
    facts = [MemoryItem(f"fact-{n}", "fact", "x") for n in range(8)]
    assert choose("q", *facts).items == tuple(f"fact-{n}" for n in range(5))
    plans = [plan(number) for number in range(1, 6)]
    assert choose(asks(), *plans).items == ("plan-1", "plan-2", "plan-3")
