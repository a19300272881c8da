from __future__ import annotations

import pytest

from memory.memory_parts import CATALOGUE, Everybody, asks, pay_run
from memory.test_memory import lived, quiet, runs
from refork.errors import BadInput
from refork.policies.base import Cost
from refork_methods.memory.report import gate_rows, overview
from refork_methods.memory.roles.lesson import Lesson
from refork_methods.memory.state import Account, Accounts, break_even
from refork_methods.memory.usage import audit, changed, demote_changed, demote_failing, failing, ledger


def with_tool():
    memory = lived(quiet(), runs(), Everybody())
    return memory, memory.state.live_tools()[0].name


def serve(memory, name, first, count, *, called, success):
    for number in range(first, first + count):
        chosen = memory.selection(asks(), ["plan-1"], [name])
        memory.observe(f"u{number}", chosen, called=[name] if called else [], success=success)


def test_the_ledger_counts_tasks():
    memory, name = with_tool()
    serve(memory, name, 0, 3, called=True, success=True)
    serve(memory, name, 3, 2, called=False, success=False)
    uses = {use.name: use for use in ledger(memory.state)}
    assert (uses[name].given, uses[name].called, uses[name].judged, uses[name].succeeded) == (5, 3, 3, 3)
    assert (uses["plan-1"].given, uses["plan-1"].called, uses["plan-1"].last) == (8, None, "u4")
    assert overview(memory.state)["uses"][0]["name"] == next(iter(memory.state.items))


def test_a_tool_whose_callers_fail_more_is_demoted():
    memory, name = with_tool()
    serve(memory, name, 0, 12, called=True, success=False)
    assert demote_failing(memory)[0].callers == (12, 12)
    assert memory.state.live_tools() == ()
    assert "12 of 12 callers failed, 0 of 3 others" in memory.state.demoted[name]


def test_few_or_no_failures_demote_nothing():
    memory, name = with_tool()
    assert failing(memory.state, name).test is None
    serve(memory, name, 0, 1, called=True, success=False)
    assert demote_failing(memory) == []  # one caller is too few
    serve(memory, name, 1, 12, called=False, success=False)
    serve(memory, name, 20, 12, called=True, success=True)
    assert not failing(memory.state, name).worse
    assert demote_failing(memory) == []


def test_the_audit_finds_what_to_look_at():
    memory, name = with_tool()
    memory.add(
        [
            Lesson("fact", "Lists are paged."),
            Lesson("fact", "Lists are paged."),
            Lesson("pitfall", "x", refs=("gone",)),
        ]
    )
    found = audit(memory.state, idle=4, catalogue={"pay.login": CATALOGUE["pay.login"]})
    kinds = {(one.kind, one.name) for one in found}
    assert ("unused tool", name) in kinds
    assert ("merge", "fact-1") in kinds
    assert ("lost mention", "pitfall-2") in kinds
    assert ("lost function", name) in kinds
    assert "secret" not in {kind for kind, _ in kinds}
    serve(memory, name, 0, 1, called=True, success=True)
    assert "unused tool" not in {one.kind for one in audit(memory.state, catalogue=CATALOGUE)}


def test_a_text_is_stale_once_so_many_tasks_went_without_it():
    memory, name = with_tool()
    memory.add([Lesson("fact", "Lists are paged.")])
    for served in range(6):
        stale = {one.name for one in audit(memory.state, idle=4) if one.kind == "stale fact"}
        assert stale == ({"fact-1"} if served >= 4 else set())
        serve(memory, name, served, 1, called=True, success=True)


def test_a_refused_plan_is_told():
    memory = lived(quiet(), runs(), Everybody(reason="no"))
    assert [(one.kind, one.name) for one in audit(memory.state) if one.kind == "refused code"] == [
        ("refused code", "plan-1")
    ]
    assert gate_rows(memory)["plans"][0]["refused"].endswith("no")


def test_the_gate_is_told():
    memory = lived(quiet(), runs())
    row = gate_rows(memory)["plans"][0]
    assert (row["plan"], row["tasks"], row["due"], row["tool"]) == ("plan-1", 3, True, None)


def test_an_account_knows_what_it_does_not_know():
    account = Account().booked(Cost(tokens_in=3, tokens_out=0, seconds=1.0))
    assert (account.tokens, account.seconds.total) == (3, 1.0)
    unknown = account.booked(Cost(tokens_in=4))
    assert (unknown.tokens_in.total, unknown.tokens_out.total, unknown.tokens) == (7, None, None)
    assert unknown.to_json()["unknown"] == {"tokens_in": 0, "tokens_out": 1, "seconds": 1}
    assert Accounts().build.tokens == 0
    assert Accounts().booked("invalidate", Cost(1, 1)) == Accounts()


def test_break_even():
    assert break_even(100, 10, 6, 1) == 34
    assert break_even(0, 10, 6) == 0
    assert break_even(0, 10, 10) == 0
    assert break_even(100, 10, 10, 1) is None
    with pytest.raises(BadInput, match="0 or more"):
        break_even(-1, 1, 1)


def test_the_run_of_another_task_is_not_lost():
    memory = lived(quiet(), [*runs(), pay_run("t9")])
    assert len(memory.state.observed) == 5


def test_code_whose_functions_changed_is_text_again():
    memory, name = with_tool()
    assert changed(memory.state, CATALOGUE) == {}
    assert demote_changed(memory, CATALOGUE) == {}
    now = CATALOGUE | {"pay.send": CATALOGUE["pay.send"] | {"description": "Amounts are in cents."}}
    assert ("changed function", name) in {(one.kind, one.name) for one in audit(memory.state, catalogue=now)}
    assert demote_changed(memory, now) == {name: ["pay.send"]}
    assert memory.state.live_tools() == ()
    assert memory.state.demoted[name] == "pay.send changed"
    assert memory.state.items["plan-1"].valid
