"""What a worker sees within and across workflows."""

from __future__ import annotations

import pytest

from refork.chat import ScriptedChat
from refork.errors import BadInput
from refork.types import Message
from refork_methods.route.conduct.execute import OrchestrationMemory, Tool, canonical, execute, visible
from refork_methods.route.conduct.plan import Plan
from refork_methods.route.pool import Worker, WorkerPool

PLAN = Plan(("A", "B", "A"), ("one", "two", "three"), ((), (), (2,)))
OUTPUTS = {1: "o1", 2: "o2"}


def test_isolation_decides_what_a_step_sees() -> None:
    def seen(isolation: str, step: int = 3) -> list[int]:
        return [one.step for one in visible(PLAN, step, OUTPUTS, isolation)]  # type: ignore[arg-type]

    assert seen("granted") == [2]
    assert seen("workflow") == [1, 2]  # its own first step, and what it was granted
    assert seen("shared") == [1, 2]
    assert seen("granted", 2) == []
    assert seen("workflow", 2) == []
    assert seen("shared", 2) == [1]
    with pytest.raises(BadInput, match="isolation"):
        seen("open")


def test_own_history_stands_in_the_order_of_the_steps() -> None:
    plan = Plan(("A", "B", "A"), ("one", "two", "three"), ((), (), (2, 1)))
    assert [s.step for s in visible(plan, 3, OUTPUTS)] == [2, 1]
    assert [s.step for s in visible(plan, 3, OUTPUTS, "workflow")] == [1, 2]


def test_memory_is_keyed_by_tool_arguments_and_workflow() -> None:
    memory = OrchestrationMemory()
    first = memory.begin()
    memory.remember(first, "look", {"b": 1, "a": 2}, "old")
    memory.remember(first, "look", {"a": 2, "b": 1}, "new")
    second = memory.begin()
    memory.remember(second, "look", {"a": 2, "b": 1}, "later")
    assert [(r.result, r.workflow) for r in memory.before(second)] == [("new", 1)]
    assert memory.before(first) == ()
    assert [r.result for r in memory.before(memory.begin())] == ["new", "later"]
    assert canonical({"b": 1, "a": "é"}) == '{"a":"é","b":1}'


def test_the_byte_cap_forgets_the_oldest_and_counts_them() -> None:
    memory = OrchestrationMemory(most_bytes=20)
    number = memory.begin()
    memory.remember(number, "t", {}, "x" * 7)
    memory.remember(number, "t", {"a": 1}, "y" * 5)
    assert memory.forgotten == 1
    assert memory.bytes <= 20
    memory.remember(number, "t", {"b": 1}, "z" * 50)
    assert memory.forgotten == 3
    assert memory.bytes == 0


def test_bad_settings_are_refused() -> None:
    with pytest.raises(BadInput):
        OrchestrationMemory("open")  # type: ignore[arg-type]
    with pytest.raises(BadInput):
        OrchestrationMemory(share="all")  # type: ignore[arg-type]
    with pytest.raises(BadInput):
        OrchestrationMemory(most_bytes=-1)
    with pytest.raises(BadInput, match="not begun"):
        OrchestrationMemory().remember(1, "t", {}, "")


def test_a_workflow_sees_tools_of_earlier_workflows_never_of_its_own() -> None:
    def reply(messages: object) -> str | Message:
        assert isinstance(messages, (list, tuple))
        if messages[-1]["role"] == "tool":
            return "done"
        function = {"name": "look", "arguments": '{"at": "x"}'}
        return {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": function}]}

    a, b = ScriptedChat(reply, "A"), ScriptedChat(lambda messages: "ok", "B")
    pool = WorkerPool((Worker("A", chat=a), Worker("B", chat=b)))
    tools = [Tool("look", lambda arguments: "seen")]
    plan = Plan(("A", "B"), ("one", "two"), ((), ()))
    memory = OrchestrationMemory()
    execute(plan, pool, memory=memory, tools=tools)
    assert b.asked[0] == ({"role": "user", "content": "two"},)
    execute(plan, pool, memory=memory, tools=tools)
    assert b.asked[1][0]["role"] == "system"
    assert b.asked[1][0]["content"].count('"tool": "look"') == 1
    assert b.asked[1][1:] == ({"role": "user", "content": "two"},)
    execute(plan, pool, memory=OrchestrationMemory(share="nothing"), tools=tools)
    assert b.asked[2] == ({"role": "user", "content": "two"},)
