from __future__ import annotations

import pytest

from memory.memory_parts import pay_run
from refork.errors import BadInput
from refork_methods.memory.induce import skeleton_of
from refork_methods.memory.item import MemoryItem
from refork_methods.memory.skeleton import CallStep, Constant, Result, Slot, argument_of, checked
from refork_methods.memory.tool import Tool


def test_steps_and_items_go_to_json_and_back():
    skeleton = skeleton_of(pay_run("1"))
    assert tuple(CallStep.from_json(step.to_json()) for step in skeleton) == skeleton
    item = MemoryItem("plan-1", "plan", "Pay.", skeleton, evidence=("s1",), refs=("x",), created=3, query="q")
    assert MemoryItem.from_json(item.to_json()) == item


@pytest.mark.parametrize(
    "data", [{}, {"constant": [1]}, {"slot": "x", "type": "list"}, {"result": "x", "path": [1.5]}, 3]
)
def test_an_argument_is_one_of_three(data):
    with pytest.raises(BadInput, match="no argument"):
        argument_of(data)


@pytest.mark.parametrize(
    "data",
    [
        {"op": "jump"},
        {"op": "call", "why": 1},
        {"op": "each", "over": {"constant": 1}},
        {"op": "call", "arguments": [1]},
    ],
)
def test_a_step_has_known_fields(data):
    with pytest.raises(BadInput):
        CallStep.from_json(data)


@pytest.mark.parametrize(
    "steps",
    [
        (CallStep("call", "x", "nodots"),),
        (CallStep("call", "x"),),
        (CallStep("pages", "x", "a.b"),),
        (CallStep("find", "x", over=Result("y"), where=(("k", Constant(1)),)),),
        (CallStep("call", "x", "a.b"), CallStep("call", "x", "a.b")),
        (CallStep("call", "entry", "a.b"),),
        (CallStep("call", "while", "a.b"),),
        (CallStep("call", "apis", "a.b"),),
        (CallStep("call", "x", "a.b", (("k", Slot("x", "t")),)),),
        (CallStep("call", "x", "a.b", (("k", Slot("s", "t")), ("l", Slot("s", "u")))),),
        (CallStep("call", "é", "a.b"),),
        (CallStep("return"),),
        (CallStep("pages", "x", "a.b", page="p"), CallStep("call", "x_part", "a.b")),
    ],
)
def test_an_incomplete_or_badly_named_skeleton_is_refused(steps):
    with pytest.raises(BadInput):
        checked(steps)


def test_only_plans_have_skeletons():
    with pytest.raises(BadInput, match="only plans"):
        MemoryItem("f", "fact", "x", (CallStep("call", "x", "a.b"),))
    with pytest.raises(BadInput, match="no text"):
        MemoryItem("f", "fact", " ")
    with pytest.raises(BadInput, match="no kind"):
        MemoryItem("f", "wish", "x")
    with pytest.raises(BadInput, match="lacks"):
        MemoryItem.from_json({"id": "x"})


def tool(**more):
    fields = {
        "id": "t",
        "name": "pay",
        "source": "",
        "doc": "",
        "parameters": {},
        "needs": (),
        "plan": "p",
        "queries": (),
    }
    return Tool(**fields | more)


@pytest.mark.parametrize("name", ["pаy", "pay me", "", "1st", "païs"])
def test_a_tool_has_a_plain_ascii_name(name):
    with pytest.raises(BadInput, match="cannot name a tool"):
        tool(name=name)


def test_a_tool_tells_its_needs_apart():
    made = tool(needs=("tools.other", "pay.send"))
    assert (made.dependencies, made.functions) == (("other",), ("pay.send",))
    assert Tool.from_json(made.to_json()) == made
    assert made.digest != tool().digest
    with pytest.raises(BadInput, match="no name of a function"):
        tool(needs=("send",))
    with pytest.raises(BadInput, match="Tool name: Field required"):
        Tool.from_json({"id": "t"})
