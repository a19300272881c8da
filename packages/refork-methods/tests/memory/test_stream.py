from __future__ import annotations

import pytest

from memory.memory_parts import QUERIES, Everybody, asks, pay_run
from refork.errors import BadInput
from refork_methods.memory.gate import RecurrenceGate
from refork_methods.memory.memory import ExperienceMemory
from refork_methods.memory.stream import Help, Outcome, StreamAgent, StreamReport, StreamTask, arms, serve

TASKS = [StreamTask(f"t{n}", asks(*one), "pay") for n, one in enumerate([*QUERIES, ("Bob May", 1, "tea")])]


class Payer:
    """Succeeds where it is given something, and keeps what it was given."""

    name = "payer"

    def __init__(self):
        self.given = []

    def work(self, task, given):
        self.given.append(given)
        number = int(task.id[1:])
        run = pay_run(task.id, *[*QUERIES, ("Bob May", 1, "tea")][number])
        called = [tool.name for tool in given.tools]
        return Outcome(run, bool(given.texts or given.tools), 2 if called else 6, tuple(called))


def run(name, **more):
    arm, agent, guard = arms()[name], Payer(), Everybody()
    memory = ExperienceMemory(gate=arm.gate, clock=lambda: 0.0) if arm.remembers else None
    report = serve(agent, TASKS, arm, memory, guard=guard, learn=arm.remembers, **more)
    return report, agent, memory


def test_each_arm_gives_what_it_says():
    assert isinstance(Payer(), StreamAgent)
    report, agent, _ = run("none")
    assert agent.given == [Help()] * 5
    assert (report.completed, report.steps, report.families) == (0.0, 6.0, 0.0)
    report, agent, memory = run("text")
    assert [bool(one.texts) for one in agent.given] == [False, True, True, True, True]
    assert not memory.state.tools
    report, agent, _ = run("code")
    assert [(len(one.texts), len(one.tools)) for one in agent.given] == [(0, 0)] + [(0, 1)] * 4
    report, agent, _ = run("eager")
    assert [len(one.tools) for one in agent.given] == [0, 1, 1, 1, 1]
    report, agent, memory = run("metis")
    assert [len(one.tools) for one in agent.given] == [0, 0, 0, 0, 1]
    assert report.rows[-1].called == tuple(memory.state.tools)
    assert report.rows[-1].steps == 2
    assert report.to_json()["completed"] == 0.8


def test_recorded_runs_take_the_agents_place():
    recorded = {task.id: Outcome(pay_run(task.id), True, 4) for task in TASKS}
    report, agent, _ = run("text", recorded=recorded)
    assert agent.given == []
    assert report.steps == 4


def test_a_frozen_memory_learns_nothing():
    arm = arms()["text"]
    memory = ExperienceMemory()
    serve(Payer(), TASKS, arm, memory)
    assert memory.state.items == {}
    assert len(memory.state.observed) == 5


def test_nothing_done_is_not_0():
    empty = StreamReport("none", ())
    assert (empty.completed, empty.families, empty.steps) == (None, None, None)


def test_what_does_not_fit_is_refused():
    text, metis = arms()["text"], arms()["metis"]
    with pytest.raises(BadInput, match="two tasks"):
        serve(Payer(), [TASKS[0], TASKS[0]], arms()["none"])
    with pytest.raises(BadInput, match="needs a memory"):
        serve(Payer(), TASKS, text)
    with pytest.raises(BadInput, match="needs a guard"):
        serve(Payer(), TASKS, metis, ExperienceMemory(), learn=True)
    with pytest.raises(BadInput, match="gate"):
        serve(Payer(), TASKS, metis, ExperienceMemory(gate=RecurrenceGate(7)))


def test_code_that_fails_is_text_again_where_that_is_asked_for():
    class Failer(Payer):
        def work(self, task, given):
            done = super().work(task, given)
            return Outcome(done.run, not given.tools, done.steps, done.called)

    arm = arms()["metis"]
    memory = ExperienceMemory(gate=arm.gate)
    serve(Payer(), TASKS, arm, memory, guard=Everybody(), learn=True)
    later = [StreamTask(f"u{n}", asks("Bob May", n, "x")) for n in range(12)]

    class Later(Failer):
        def work(self, task, given):
            return super().work(StreamTask("t1", task.query), given)

    rows = serve(Later(), later, arm, memory, demote=0.05).rows
    assert [row.tools for row in rows] == sorted((row.tools for row in rows), reverse=True)
    assert rows[0].tools == 1
    assert rows[-1].tools == 0
    assert rows[-1].success
