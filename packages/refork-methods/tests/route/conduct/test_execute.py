"""Running a plan: context byte for byte, errors as data, tools, and what is counted."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refork.chat import Reply, ScriptedChat
from refork.errors import BadInput, CannotDo, ServerError
from refork.policies.base import Cost
from refork.types import Json, Message
from refork_methods.route.conduct.execute import MOST_ROUNDS, OrchestrationMemory, Tool, execute
from refork_methods.route.conduct.plan import Plan
from refork_methods.route.pool import Price, Worker, WorkerPool


def echo(name: str) -> ScriptedChat:
    return ScriptedChat(lambda messages: f"{name}:{messages[-1]['content']}", name)


def pool_of(*chats: ScriptedChat) -> WorkerPool:
    return WorkerPool(tuple(Worker(chat.name, chat=chat) for chat in chats))


class Failing:
    """Gives no answer."""

    name = "B"

    def reply(self, messages: Sequence[Message], *, tools: Sequence[Json] = (), draw: int = 0) -> Reply:
        raise ServerError("out of reach")


def test_context_is_exactly_what_access_grants() -> None:
    a, b = echo("A"), echo("B")
    plan = Plan(("A", "B", "A", "B"), ("one", "two", "three", "four"), ((), (), (2, 1), (3,)))
    done = execute(plan, pool_of(a, b))
    assert a.asked[0] == ({"role": "user", "content": "one"},)
    assert b.asked[0] == ({"role": "user", "content": "two"},)
    assert a.asked[1] == (
        {"role": "user", "content": "two"},
        {"role": "assistant", "content": "B:two"},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "A:one"},
        {"role": "user", "content": "three"},
    )
    assert b.asked[1] == (
        {"role": "user", "content": "three"},
        {"role": "assistant", "content": "A:three"},
        {"role": "user", "content": "four"},
    )
    assert [one.step for one in done.steps[2].earlier_steps] == [2, 1]
    assert done.answer == "B:four"


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_the_shown_pairs_are_the_granted_set_for_any_plan(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 5))
    texts = data.draw(st.lists(st.text(min_size=1).filter(str.strip), min_size=size, max_size=size))
    access = tuple(
        tuple(data.draw(st.lists(st.integers(1, step), unique=True, max_size=step))) if step else ()
        for step in range(size)
    )
    workers = tuple(data.draw(st.lists(st.sampled_from("AB"), min_size=size, max_size=size)))
    done = execute(Plan(workers, tuple(texts), access), pool_of(echo("A"), echo("B")))
    outputs = [step.output for step in done.steps]
    for step in done.steps:
        granted = [(texts[j - 1], outputs[j - 1]) for j in access[step.step - 1]]
        sent = [m["content"] for m in step.messages]
        assert [(one.subtask, one.output) for one in step.earlier_steps] == granted
        assert sent == [part for pair in granted for part in pair] + [texts[step.step - 1]]


def test_a_failure_is_data_and_ends_only_what_rests_on_it() -> None:
    a = echo("A")
    pool = WorkerPool((Worker("A", chat=a), Worker("B", chat=Failing())))
    done = execute(Plan(("B", "A", "A"), ("x", "y", "z"), ((), (1,), ())), pool)
    assert [step.output for step in done.steps] == [None, None, "A:z"]
    assert "out of reach" in str(done.steps[0].error)
    assert done.steps[1].error == "needs the answer of step 1, which failed"
    assert len(a.asked) == 1
    assert done.calls == 1
    assert done.answer == "A:z"
    assert len(done.errors) == 2
    assert done.to_json()["steps"][0]["error"] is not None


def test_a_plan_with_a_fault_never_runs() -> None:
    a, b = echo("A"), echo("B")
    with pytest.raises(BadInput, match="cannot see step 2"):
        execute(Plan(("A", "B"), ("x", "y"), ((2,), ())), pool_of(a, b))
    with pytest.raises(BadInput, match="opted out"):
        execute(Plan(("A", "B"), ("x", "y"), ((), ())), pool_of(a, b).without("B"))
    assert not a.asked
    assert not b.asked


def test_a_worker_that_is_only_a_name_is_a_failed_step() -> None:
    done = execute(Plan(("A",), ("x",), ((),)), WorkerPool.of("A", "B"))
    assert done.answer is None
    assert "neither a policy nor a chat model" in str(done.steps[0].error)
    assert CannotDo.__name__  # the pool's own error for it


def test_costs_add_up_and_an_unknown_price_is_not_nothing() -> None:
    priced = WorkerPool(
        (Worker("A", chat=echo("A"), price=Price(0, 0, 2.0)), Worker("B", chat=echo("B"), price=None))
    )
    cheap = execute(Plan(("A", "A"), ("one two", "x"), ((), ())), priced)
    assert cheap.bill.total == 4.0
    assert cheap.cost.tokens_in == 3
    assert cheap.calls == 2
    assert cheap.cost.seconds is not None
    assert cheap.cost.seconds >= 0
    mixed = execute(Plan(("A", "B"), ("x", "y"), ((), ())), priced)
    assert mixed.bill.total is None
    assert mixed.bill.unknown == 1
    assert mixed.bill.known == 2.0
    assert mixed.to_json()["money"] is None
    assert mixed.to_json()["unpriced_calls"] == 1


def test_steps_have_draws_of_their_own_and_the_cache_saves_calls() -> None:
    seen: list[int] = []

    class Counting:
        name = "A"

        def reply(self, messages: Sequence[Message], *, tools: Sequence[Json] = (), draw: int = 0) -> Reply:
            seen.append(draw)
            return Reply({"role": "assistant", "content": str(draw)}, cost=Cost(1, 1, 0.5))

    pool = WorkerPool((Worker("A", chat=Counting()), Worker("B", chat=echo("B"))))
    plan = Plan(("A", "A"), ("x", "x"), ((), ()))
    cache: dict[tuple[str, str, int], Reply] = {}
    first = execute(plan, pool, draw=3, cache=cache)
    again = execute(plan, pool, draw=3, cache=cache)
    assert seen == [15, 16]
    assert first == again
    assert first.cost.seconds == 1.0
    execute(plan, pool, draw=3, cache=cache, uncached=frozenset({"A"}))
    assert seen == [15, 16, 15, 16]


def call(name: str, arguments: str, number: str = "1") -> Message:
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": number, "function": function}]}


def test_tools_run_and_their_faults_are_answers() -> None:
    def crash(arguments: Json) -> str:
        raise RuntimeError("the tool broke")

    replies: list[str | Message] = [
        call("look", '{"b": 1, "a": 2}'),
        call("look", "[1]"),
        call("none", "{}"),
        call("crash", "{}"),
        call("look", "[" * 100_000 + "]" * 100_000),
        "found it",
    ]
    worker = ScriptedChat(replies, "A")
    tools = [Tool("look", lambda arguments: f"saw {sorted(arguments)}"), Tool("crash", crash)]
    memory = OrchestrationMemory()
    done = execute(Plan(("A",), ("go",), ((),)), pool_of(worker, echo("B")), tools=tools, memory=memory)
    assert done.answer == "found it"
    assert done.calls == 6
    said = [m["content"] for m in worker.asked[-1] if m["role"] == "tool"]
    assert said[0] == "saw ['a', 'b']"
    assert said[1].startswith("error: arguments")
    assert "no tool 'none'" in said[2]
    assert "broke" in said[3]
    assert said[4].startswith("error: maximum recursion")
    assert [record.arguments for record in done.steps[0].tools] == ['{"a":2,"b":1}']


def test_a_worker_that_only_calls_tools_fails() -> None:
    worker = ScriptedChat(lambda messages: call("look", "{}"), "A")
    done = execute(
        Plan(("A",), ("go",), ((),)), pool_of(worker, echo("B")), tools=[Tool("look", lambda arguments: "")]
    )
    assert done.answer is None
    assert f"{MOST_ROUNDS} rounds" in str(done.steps[0].error)


def test_two_tools_of_one_name_are_refused() -> None:
    twice = [Tool("look", lambda arguments: "")] * 2
    with pytest.raises(BadInput, match="one name"):
        execute(Plan(("A",), ("go",), ((),)), pool_of(echo("A"), echo("B")), tools=twice)


@pytest.mark.parametrize(
    "raised", [ConnectionError("refused"), ValueError("no such key"), KeyError("x"), CannotDo("too long")]
)
def test_whatever_a_worker_raises_is_its_steps_failure(raised: Exception) -> None:
    def fails(messages: Sequence[Message]) -> str:
        raise raised

    pool = pool_of(echo("A"), ScriptedChat(fails, "B"))
    done = execute(Plan(("B", "A", "A"), ("one", "two", "three"), ((), (1,), ())), pool)
    assert [step.output for step in done.steps] == [None, None, "A:three"]
    assert str(raised.args[0]).split("\n")[0] in str(done.steps[0].error)
    assert isinstance(raised, CannotDo) or type(raised).__name__ in str(done.steps[0].error)
    assert "needs the answer of step 1" in str(done.steps[1].error)


class Odd:
    """Answers with something else than a reply."""

    name = "B"

    def reply(self, messages: Sequence[Message], *, tools: Sequence[Json] = (), draw: int = 0) -> Reply:
        return "text"  # type: ignore[return-value]


def test_what_is_no_reply_is_a_failure_and_so_are_calls_that_are_none() -> None:
    pool = WorkerPool((Worker("A", chat=echo("A")), Worker("B", chat=Odd())))
    done = execute(Plan(("B",), ("one",), ((),)), pool)
    assert "no reply but str" in str(done.steps[0].error)
    odd: list[Json] = [
        {"role": "assistant", "content": "", "tool_calls": calls} for calls in ([3], [{"function": "f"}])
    ]
    pool = pool_of(ScriptedChat([*odd, "done"], "A"), echo("B"))
    assert execute(Plan(("A",), ("one",), ((),)), pool, tools=[Tool("f", str)]).answer == "done"
