"""A conductor as a model: planning, running, recursion."""

from __future__ import annotations

import pytest

from refork.chat import ChatModel, ScriptedChat
from refork.errors import BadInput, ServerError
from refork_methods.route.conduct.conductor import Conductor
from refork_methods.route.conduct.execute import OrchestrationMemory
from refork_methods.route.pool import Price, Worker, WorkerPool


def said_by(name: str) -> ScriptedChat:
    return ScriptedChat(lambda messages: f"{name}({messages[-1]['content']})", name)


def pool() -> WorkerPool:
    chats = [said_by(name) for name in "AB"]
    return WorkerPool(tuple(Worker(c.name, chat=c, price=Price(0, 0, 1.0)) for c in chats))


def test_it_plans_runs_and_answers() -> None:
    writer = ScriptedChat(["I think.\n[A,B][x,y][[],[1]]"] * 2, "writer")
    conductor = Conductor(writer, pool(), price=Price(0, 0, 0.5))
    done = conductor.run("the query")
    assert writer.asked[0] == ({"role": "user", "content": "A,B\nthe query"},)
    assert done.answer == "B(y)"
    assert done.plan is not None
    assert done.fault is None
    assert done.to_json()["workflow"]["model_id"] == ["A", "B"]
    assert done.to_json()["money"] == 2.0
    assert isinstance(conductor, ChatModel)
    assert conductor.name == "conductor:writer"
    reply = conductor.reply([{"role": "user", "content": "the query"}])
    assert reply.text == "B(y)"
    assert reply.cost.money == 2.5  # the planning is paid too
    assert reply.cost.seconds is not None
    assert reply.note["workflow"]["calls"] == 2
    assert reply.message == {"role": "assistant", "content": "B(y)"}  # what is sent back has no more in it


def test_a_plan_that_cannot_run_is_a_result() -> None:
    done = Conductor(ScriptedChat(["[Z][x][[]]", "no"]), pool()).run("q")
    assert done.answer is None
    assert "no worker 'Z'" in str(done.fault)
    assert done.to_json()["fault"]
    with pytest.raises(ServerError, match="no plan was found"):
        Conductor(ScriptedChat(["no plan"]), pool()).reply([{"role": "user", "content": "q"}])


def test_opted_out_workers_are_not_offered_and_not_called() -> None:
    writer = ScriptedChat(["[B][x][[]]"])
    done = Conductor(writer, pool().without("B")).run("q")
    assert writer.asked[0][0]["content"] == "A\nq"
    assert done.fault is not None
    assert "opted out" in done.fault


def test_it_may_ask_itself_as_deep_as_it_is_let() -> None:
    writer = ScriptedChat(["[A,self][x,again][[],[1]]", "[B][inner][[]]"])
    done = Conductor(writer, pool(), rounds=2, price=Price(0, 0, 0.5)).run("q")
    assert [m[0]["content"] for m in writer.asked] == ["A,B,self\nq", "A,B\nx\nA(x)\nagain"]
    assert done.answer == "B(inner)"
    assert done.execution is not None
    assert done.execution.calls == 2
    assert done.execution.bill.total == 2.5
    assert done.execution.steps[1].to_json()["inside"]["answer"] == "B(inner)"
    deep = ScriptedChat(["[self][x][[]]"] * 3)
    stopped = Conductor(deep, pool(), rounds=3).run("q")
    assert len(deep.asked) == 3
    assert stopped.answer is None
    assert "no worker 'self'" in str(stopped.why)
    assert stopped.execution is not None
    assert stopped.execution.bill.unknown == 1
    with pytest.raises(BadInput):
        Conductor(writer, pool(), rounds=0)
    with pytest.raises(BadInput, match="self"):
        Conductor(writer, WorkerPool.of("self", "B"), rounds=2)


def test_memory_goes_through_the_workflows_of_a_conversation() -> None:
    memory = OrchestrationMemory()
    conductor = Conductor(ScriptedChat(["[A][x][[]]"] * 2), pool(), memory=memory)
    conductor.run("one")
    conductor.run("two")
    assert memory.begin() == 3
