from __future__ import annotations

import json

import pytest

from memory.memory_parts import QUERIES, Everybody, asks, pay_run
from refork.chat import ScriptedChat
from refork.errors import BadInput, Mismatch, TreeBusy, TreeVersion
from refork.policies.base import Cost
from refork_methods.memory.events import FILE, checked_event
from refork_methods.memory.gate import RecurrenceGate
from refork_methods.memory.memory import ExperienceMemory, codify_due
from refork_methods.memory.roles.by_model import ModelReflector
from refork_methods.memory.roles.lesson import Lesson
from refork_methods.memory.roles.team import Roles
from refork_methods.memory.state import replay


def quiet(store=None, **more):
    return ExperienceMemory(store, clock=lambda: 0.0, **more)


def lived(memory, runs, guard=None):
    """The memory after a stream of runs."""
    for run in runs:
        memory.observe(
            run.task, memory.select(run.query, task=run.task), success=run.success, cost=Cost(5, 5, 1.0)
        )
        memory.reflect(run)
        if guard is not None:
            codify_due(memory, guard)
    return memory


def runs(**more):
    return [pay_run(f"t{number}", *one, **more) for number, one in enumerate(QUERIES)]


def test_a_plan_becomes_code_at_exactly_the_third_distinct_task():
    memory, guard = quiet(), Everybody()
    kinds = []
    for run in runs():
        for _ in range(2):  # twice in one task counts once
            memory.observe(run.task, memory.select(run.query, task=run.task))
        memory.reflect(run)
        codify_due(memory, guard)
        kinds.append(len(memory.state.live_tools()))
    assert kinds == [0, 0, 0, 1]
    event = next(entry for entry in memory.log if entry.kind == "codify")
    assert event.body["tasks"] == ["t1", "t2", "t3"]
    assert memory.state.recurrence["plan-1"].tasks == ()
    assert memory.state.recurrence["plan-1"].history == tuple(asks(*one) for one in QUERIES[1:])


def test_every_index_of_the_log_replays_to_the_same_memory(tmp_path):
    memory = quiet(tmp_path)
    states = [memory.state]
    record = memory.record
    memory.record = lambda kind, body: (record(kind, body), states.append(memory.state))[0]
    lived(memory, runs(), Everybody())
    memory.invalidate("plan-1", "wrong")
    assert len(states) == len(memory.log)
    again = ExperienceMemory(tmp_path)
    for number, state in enumerate(states, 1):
        assert again.at(number) == state == replay(memory.log, number)
    assert again.state == memory.state
    with pytest.raises(BadInput, match="events"):
        again.at(len(states) + 1)


def test_the_codifier_sees_no_trajectory_and_the_schedule_no_outcome():
    """Other trajectories leave the codifier's input and the tool's bytes; other labels leave the schedule."""
    reply = json.dumps({"lessons": [{"kind": "plan", "body": "Pay.", "skeleton": _skeleton()}]})

    def stream(share=1.0, **more):
        guard = Everybody()
        roles = Roles(reflector=ModelReflector(ScriptedChat(lambda _: reply)))
        memory = lived(quiet(roles=roles, gate=RecurrenceGate(share=share)), runs(**more), guard)
        codified = [entry.body for entry in memory.log if entry.kind == "codify"]
        for body in codified:
            body.pop("cost")
        return codified, [tool.source.encode() for tool in guard.seen]

    usual = stream()
    assert usual[1]
    assert stream(noise="something else altogether") == usual
    assert stream(success=None) == usual
    assert stream(share=0.0) == stream(share=0.0, success=False) == usual
    # Failed runs confirm nothing, so the code does not enter; what was due, asked and written is the same.
    (failed,), written = stream(success=False)
    (good,), _ = usual
    assert written == usual[1]
    assert {**failed, "tools": good["tools"], "refused": ""} == good
    assert failed["tools"] == []


def _skeleton():
    from refork_methods.memory.induce import skeleton_of

    return [step.to_json() for step in skeleton_of(pay_run("x"))]


def test_shuffled_trajectories_leave_the_tool():
    """The runs of the stream exchanged among its tasks: reflection reads them, the codifier never."""
    reply = json.dumps({"lessons": [{"kind": "plan", "body": "Pay.", "skeleton": _skeleton()}]})

    def tools(order):
        guard, memory = (
            Everybody(),
            quiet(roles=Roles(reflector=ModelReflector(ScriptedChat(lambda _: reply)))),
        )
        rows = runs()
        for run, other in zip(rows, (rows[place] for place in order), strict=True):
            memory.observe(run.task, memory.select(run.query))
            memory.reflect(type(run)(run.task, run.query, other.steps, other.success))
            codify_due(memory, guard)
        return [tool.digest for tool in guard.seen]

    assert tools([0, 1, 2, 3]) == tools([3, 2, 1, 0]) == tools([1, 0, 3, 2])


def test_a_superseded_item_is_never_returned():
    memory = quiet()
    (first,) = memory.add([Lesson("fact", "Page numbers of lists start at 0.")])
    (second,) = memory.add([Lesson("fact", "Page numbers of lists start at 1.", supersedes=first.id)])
    chosen = memory.select("which page numbers do lists start at")
    assert [item.id for item in chosen.items] == [second.id]
    assert first.id not in dict(chosen.candidates)["fact"]
    assert memory.state.items[first.id].valid is False
    assert memory.state.items[first.id].body == first.body  # kept in the history
    with pytest.raises(BadInput, match="never returned"):
        memory.selection("q", [first.id])
    with pytest.raises(BadInput, match="never returned"):
        memory.add([Lesson("fact", "x", supersedes=first.id)])
    with pytest.raises(BadInput, match="cannot revise"):
        memory.add([Lesson("plan", "x", supersedes=second.id)])


def test_a_selection_of_unknown_or_invalid_things_is_refused():
    memory = lived(quiet(), runs()[:1])
    with pytest.raises(BadInput, match="no item 'plan-9'"):
        memory.selection("q", ["plan-9"])
    with pytest.raises(BadInput, match="no tool 'x'"):
        memory.selection("q", tools=["x"])
    chosen = memory.select(asks())
    memory.invalidate("plan-1", "wrong")
    with pytest.raises(BadInput, match="never returned"):
        memory.observe("t9", chosen)
    with pytest.raises(BadInput, match="no tool 'y'"):
        memory.observe("t9", memory.selection("q"), called=["y"])
    with pytest.raises(BadInput, match="id and a query"):
        memory.observe(" ", memory.selection("q"))
    with pytest.raises(BadInput, match="empty"):
        memory.select(" ")


def test_a_task_is_read_once():
    memory = lived(quiet(), runs()[:1])
    with pytest.raises(BadInput, match="read before"):
        memory.reflect(runs()[0])


def test_code_of_a_plan_that_fell_is_not_called():
    memory = lived(quiet(), runs(), Everybody())
    name = memory.state.live_tools()[0].name
    assert [tool.name for tool in memory.select(asks()).tools] == [name]
    assert memory.select(asks()).callable == ("pay.list_people", "pay.login", "pay.send", f"tools.{name}")
    memory.invalidate("plan-1", "the endpoint changed")
    assert memory.state.live_tools() == ()
    assert memory.select(asks()).tools == ()


def test_a_demoted_tool_is_text_again_and_not_built_again():
    guard = Everybody()
    memory = lived(quiet(gate=RecurrenceGate(1)), runs()[:2], guard)
    memory.demote(memory.state.live_tools()[0].name, "it fails")
    lived(memory, runs()[2:], guard)
    assert memory.state.live_tools() == ()
    assert len(guard.seen) == 1
    assert [item.id for item in memory.select(asks()).items if item.kind == "plan"] == ["plan-1"]
    with pytest.raises(BadInput, match="may be called"):
        memory.demote(guard.seen[0].name, "again")


def test_a_refused_plan_waits_for_theta_more_tasks():
    guard = Everybody(reason="it does not compile")
    memory = quiet(gate=RecurrenceGate(2))
    lived(memory, [*runs(), pay_run("t4", "Bob May", 1, "x")], guard)
    kinds = [entry.kind for entry in memory.log if entry.kind in {"admit", "reject", "codify"}]
    assert kinds == ["reject", "codify", "reject", "codify"]
    assert "does not compile" in memory.state.refused["plan-1"]
    assert memory.state.tools == {}


def test_eager_code_comes_with_the_plan_and_is_tried_once():
    guard = Everybody()
    memory = lived(quiet(gate=RecurrenceGate.at_once()), runs(), guard)
    assert [tool.plan for tool in guard.seen] == ["plan-1"]
    event = next(entry for entry in memory.log if entry.kind == "codify")
    assert event.body["tasks"] == []


def test_the_accounts_are_apart_and_unknown_is_not_nothing():
    memory = lived(quiet(), runs(), Everybody())
    accounts = memory.state.accounts
    assert accounts.execution.tokens == 40
    assert accounts.execution.seconds.total == 4.0
    assert (accounts.selection.tokens, accounts.selection.entries) == (0, 4)
    assert accounts.build.tokens == 0
    memory.observe("t9", memory.selection("q"))
    assert memory.state.accounts.execution.tokens is None
    assert memory.state.accounts.execution.tokens_in.unknown == 1


def test_a_torn_last_line_is_recovered_and_told(tmp_path):
    lived(quiet(tmp_path), runs()[:2])
    file = tmp_path / FILE
    whole = file.read_bytes()
    state = ExperienceMemory(tmp_path).state
    file.write_bytes(whole + b'{"n": 99, "kind": "refl')
    memory = quiet(tmp_path)
    assert (memory.torn, memory.state) == (len(b'{"n": 99, "kind": "refl'), state)
    memory.invalidate("plan-1", "wrong")
    assert ExperienceMemory(tmp_path).torn == 0
    assert file.read_bytes().startswith(whole)


def test_a_changed_line_is_found(tmp_path):
    lived(quiet(tmp_path), runs()[:1])
    file = tmp_path / FILE
    file.write_text(file.read_text().replace("rent", "rant", 1))
    with pytest.raises(Mismatch, match="changed"):
        ExperienceMemory(tmp_path)


def test_two_writers_are_told(tmp_path):
    one, other = quiet(tmp_path), quiet(tmp_path)
    one.add([Lesson("fact", "x")])
    with pytest.raises(TreeBusy, match="another process wrote to this memory"):
        other.add([Lesson("fact", "y")])


def test_another_version_is_refused(tmp_path):
    memory = quiet(tmp_path)
    del memory
    from refork_methods.journal import Journal

    other = Journal.create(tmp_path / "other" / FILE)
    other.append("begin", {"schema": 99})
    with pytest.raises(TreeVersion, match="schema 99"):
        ExperienceMemory(tmp_path / "other")


def test_events_are_checked():
    with pytest.raises(BadInput, match="no event"):
        checked_event("eat", {})
    with pytest.raises(BadInput, match="'reason'"):
        checked_event("invalidate", {"item": "x"})


def test_two_items_merge_into_one():
    memory = quiet()
    memory.add(
        [
            Lesson("fact", "Lists are paged.", ("s1",)),
            Lesson("fact", "Read every page.", ("s2",)),
            Lesson("plan", "x"),
        ]
    )
    merged = memory.merge("fact-1", "fact-2", "Lists are paged: read every page.")
    assert (merged.id, merged.supersedes, merged.evidence) == ("fact-3", "fact-1", ("s1", "s2"))
    assert [item.id for item in memory.state.texts("fact")] == ["fact-3"]
    for first, second in (("fact-3", "plan-1"), ("fact-3", "fact-3"), ("fact-1", "fact-3")):
        with pytest.raises(BadInput):
            memory.merge(first, second, "x")


def test_what_reflect_returns_is_what_the_log_holds():
    memory = quiet()
    found = memory.reflect(runs()[0])
    assert found == memory.state.texts()
