from __future__ import annotations

import ast
from dataclasses import fields, replace

import pytest

from memory.memory_parts import CATALOGUE, PEOPLE, asks, pay_run
from refork.errors import BadInput
from refork_methods.memory.admission import AdmissionGuard
from refork_methods.memory.codifier import CodifierInput, SkeletonCodifier, codifier_input
from refork_methods.memory.induce import skeleton_of
from refork_methods.memory.item import MemoryItem
from refork_methods.memory.skeleton import CallStep, Constant, Slot

SKELETON = skeleton_of(pay_run("0"))
SECOND = asks("Bob May", 35, "food")


def given(*queries, skeleton=SKELETON, own=None, **more):
    return CodifierInput("plan-1", "Pay somebody.", skeleton, own or asks(), queries, **more)


class Apis:
    """The environment of a tool that runs in the open."""

    def __init__(self):
        self.pay, self.sent = self, []

    def login(self, *, password):
        return {"token": f"token of {password}"}

    def list_people(self, *, token, page):
        return {"items": PEOPLE[2 * page : 2 * page + 2], "page": page}

    def send(self, **arguments):
        self.sent.append(arguments)
        return {"id": len(self.sent)}


def run(tool, **arguments):
    apis, space = Apis(), {}
    exec(compile(tool.source, "tool", "exec"), space)
    return space[tool.name](apis, None, **arguments), apis.sent


def test_the_input_holds_no_trajectory():
    assert {one.name for one in fields(CodifierInput)} == {
        "plan", "body", "skeleton", "query", "queries", "history", "support", "taken",
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["fact", "pitfall"])
def test_facts_and_pitfalls_never_reach_it(kind):
    with pytest.raises(BadInput, match="never made into code"):
        codifier_input(MemoryItem("x", kind, "text"), (asks(),))


def test_an_invalid_plan_never_reaches_it():
    with pytest.raises(BadInput, match="superseded"):
        codifier_input(MemoryItem("x", "plan", "text", valid=False), (asks(),))


def test_the_tool_does_what_the_plan_says_for_anybody():
    tool = SkeletonCodifier().codify(given(SECOND)).tools[0]
    value, sent = run(tool, amount=9, name="Ann Lo", note="cake")
    assert value == {"id": 1}
    assert sent == [{"token": "token of p-1", "user_id": 8, "amount": 9, "note": "cake"}]
    with pytest.raises(LookupError, match="nothing has name 'Eve'"):
        run(tool, amount=9, name="Eve", note="cake")


def test_the_tool_follows_the_calling_convention():
    tool = SkeletonCodifier().codify(given(SECOND, asks("Cy Day", "1.5", "tea"))).tools[0]
    function = ast.parse(tool.source).body[0]
    assert isinstance(function, ast.FunctionDef)
    assert [one.arg for one in function.args.args] == ["apis", "tools"]
    assert {one.arg: ast.unparse(one.annotation) for one in function.args.kwonlyargs} == {
        "amount": "float", "name": "str", "note": "str",
    }  # fmt: skip
    assert ast.get_docstring(function).startswith('Send {amount} dollars to {name} for "{note}".')
    assert tool.needs == ("pay.login", "pay.list_people", "pay.send")
    assert tool.parameters["properties"]["amount"]["type"] == "number"
    assert tool.queries == (asks(), SECOND, asks("Cy Day", "1.5", "tea"))


def test_the_guard_admits_it():
    tool = SkeletonCodifier().codify(given(SECOND)).tools[0]
    ruling = AdmissionGuard(CATALOGUE).admit(tool, ())
    assert (ruling.admitted, ruling.reason) == (True, "")


def test_the_same_input_gives_the_same_bytes():
    one, other = (SkeletonCodifier().codify(given(SECOND)).tools[0] for _ in range(2))
    assert one == other


@pytest.mark.parametrize(
    ("queries", "why"),
    [
        ((), "no two of them are structurally different"),
        ((asks(amount=30),), "no two of them are structurally different"),
        (("List my notes",), "1 of 2 queries carry it"),
        ((SECOND.replace("dollars", "euros"),), "dollars / euros"),
        ((SECOND + " on 2024-01-01",), "2024-01-01"),
    ],
)
def test_it_refuses_what_is_not_supported(queries, why):
    found = SkeletonCodifier().codify(given(*queries))
    assert not found.tools
    assert why in found.refused


def test_a_literal_of_a_single_query_is_refused():
    skeleton = tuple(
        replace(s, arguments=tuple((k, Constant("rent") if k == "note" else a) for k, a in s.arguments))
        for s in SKELETON
    )  # fmt: skip
    found = SkeletonCodifier().codify(given(asks("Bob May", 35), SECOND, skeleton=skeleton))
    assert "varies" in found.refused or "literal 'rent'" in found.refused
    words = given("Send 35 dollars to Bob May for food today", own="Send 20 dollars to Ann Lee for rent",
                  skeleton=skeleton)  # fmt: skip
    assert not SkeletonCodifier().codify(words).tools


def test_a_slot_that_is_nowhere_in_the_query_is_refused():
    step = CallStep("call", "x", "a.b", (("key", Slot("key", "nowhere")),))
    assert "nowhere" in SkeletonCodifier().codify(given(skeleton=(step,))).refused
    assert "no call skeleton" in SkeletonCodifier().codify(given(skeleton=())).refused


def test_one_query_is_enough_only_where_code_is_made_at_once():
    assert SkeletonCodifier().codify(given(support=1)).tools
    assert not SkeletonCodifier().codify(given()).tools


def test_the_history_supports_too():
    assert SkeletonCodifier().codify(given(history=(SECOND,))).tools


def test_a_taken_name_is_not_given_again():
    first = SkeletonCodifier().codify(given(SECOND)).tools[0]
    second = SkeletonCodifier().codify(given(SECOND, taken=(first.name,))).tools[0]
    assert second.name == f"{first.name}_2"


def test_queries_that_differ_in_no_slot_do_not_differ():
    with pytest.raises(BadInput, match="differ"):
        SkeletonCodifier(differing=0)
