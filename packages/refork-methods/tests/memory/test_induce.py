from __future__ import annotations

from memory.memory_parts import PEOPLE, pay_run
from refork_methods.memory.codifier import emit
from refork_methods.memory.induce import only_reads, skeleton_of
from refork_methods.memory.skeleton import checked, slots_of
from refork_methods.memory.trajectory import RunStep, RunTrajectory

MAIL = [{"id": n, "sender": name} for n, name in enumerate(["Bob May", "Ann Lee", "Cy Day", "Ann Lee"])]


def run(query, *steps, answer=None, context=""):
    made = [RunStep(f"s{n}", "", *step) for n, step in enumerate(steps)]
    last = [] if answer is None else [RunStep("end", "done", arguments={"answer": answer})]
    return RunTrajectory("t", query, (*made, *last), True, context=context)


def ops(skeleton):
    return [step.op for step in skeleton]


def test_calls_pages_and_finds():
    skeleton = skeleton_of(pay_run("1"))
    assert ops(skeleton) == ["call", "pages", "find", "call"]
    assert [slot.name for slot in slots_of(skeleton)] == ["name", "amount", "note"]
    assert (skeleton[1].page, skeleton[1].first, skeleton[1].items) == ("page", 0, "items")
    assert [step.function for step in skeleton] == ["pay.login", "pay.list_people", "", "pay.send"]


def test_what_is_never_used_is_left_out():
    assert "pay.list_history" not in {step.function for step in skeleton_of(pay_run("1"))}
    assert "pay.list_history" in {
        step.function for step in skeleton_of(pay_run("1"), lambda name: name == "pay.list_people")
    }


def test_a_read_by_the_callers_word_is_done_once():
    steps = [
        ("x.peek", {"box": 5}, {"id": "q77"}), ("y.send", {"id": "q77", "to": "Bob Ray"}, {}),
        ("x.peek", {"box": 5}, {"id": "q77", "n": "z9"}), ("y.mark", {"n": "z9"}, {}),
    ]  # fmt: skip
    found = skeleton_of(run("Peek box 5 then send it to Bob Ray.", *steps), lambda name: name == "x.peek")
    assert [step.function for step in found] == ["x.peek", "y.send", "y.mark"]
    twice = skeleton_of(run("Peek box 5 then send it to Bob Ray.", *steps), lambda _: False)
    assert [step.function for step in twice].count("x.peek") == 2


def test_a_value_from_nowhere_leaves_no_skeleton():
    assert skeleton_of(run("Close account", ("bank.close", {"account": 7731}, {}))) == ()
    known = run("Close account", ("bank.close", {"account": 7731}, {}), context="Your account is 7731.")
    assert ops(skeleton_of(known)) == ["call"]
    assert skeleton_of(run("Do it", ("a.b", {"key": [1]}, {}))) == ()


def test_amounts_are_found_with_all_their_digits():
    for amount in (1234567, 12345.67, 1234567.0, 50.0):
        text = repr(int(amount) if amount == int(amount) else amount)
        found = skeleton_of(run(f"Pay {text} dollars", ("bank.pay", {"amount": amount}, {})))
        assert [slot.text for slot in slots_of(found)] == [text]


def test_a_page_that_is_no_number_leaves_no_skeleton():
    archive = ("mail.archive", {"message_id": 1}, {})
    for page in ("first", None):
        told = ("mail.list", {"page": page}, {"items": MAIL, "page": 0})
        assert skeleton_of(run("Archive all mail of Ann Lee", told, archive)) == ()


def test_a_run_that_did_nothing_has_none():
    assert skeleton_of(run("Look", ("a.list_all", {}, []))) == ()
    assert skeleton_of(run("Look")) == ()


def test_one_call_per_kept_entry():
    archive = [("mail.archive", {"message_id": n}, {}) for n in (1, 3)]
    found = skeleton_of(
        run("Archive all mail of Ann Lee", ("mail.list", {"page": 0}, {"items": MAIL, "page": 0}), *archive)
    )
    assert ops(found) == ["pages", "keep", "each"]
    checked(found)
    everything = [("mail.archive", {"message_id": n}, {}) for n in range(4)]
    found = skeleton_of(run("Archive all mail", ("mail.list", {}, MAIL), *everything))
    assert ops(found) == ["call", "each"]


def test_entries_that_no_query_tells_apart_leave_no_skeleton():
    archive = [("mail.archive", {"message_id": n}, {}) for n in (0, 2)]
    assert skeleton_of(run("Archive some mail", ("mail.list", {}, MAIL), *archive)) == ()


def test_an_answer_is_returned():
    found = skeleton_of(run("Which id has Cy Day?", ("pay.list_people", {}, PEOPLE), answer=6))
    assert ops(found) == ["call", "find", "return"]
    assert skeleton_of(run("How many?", ("pay.list_people", {}, PEOPLE), answer="17 or so")) == ()


def test_an_entry_that_is_not_the_first_of_its_name_leaves_no_skeleton():
    twins = [{"id": 1, "name": "Ann Lee"}, {"id": 2, "name": "Ann Lee"}]
    assert skeleton_of(run("Greet Ann Lee", ("a.list_all", {}, twins), ("a.greet", {"id": 2}, {}))) == ()
    assert ops(skeleton_of(run("Greet Ann Lee", ("a.list_all", {}, twins), ("a.greet", {"id": 1}, {})))) == [
        "call", "find", "call",
    ]  # fmt: skip


def test_a_repeated_read_is_one_step():
    steps = [
        ("a.list_all", {}, PEOPLE),
        ("a.list_all", {}, PEOPLE),
        ("a.greet", {"id": 6, "name": "Cy Day"}, {}),
    ]
    found = skeleton_of(run("Greet Cy Day", steps[0], ("b.note", {"text": "hello"}, {}), steps[1], steps[2]))
    assert sum(step.function == "a.list_all" for step in found) == 1


def test_names_stay_usable_in_source():
    found = skeleton_of(run('Set "x y"', ("a.set", {"from": "x y", "a-b": "x y"}, {})))
    source = emit("tool", found, slots_of(found), "Doc.")
    compile(source, "tool", "exec")
    assert "from_2: str" in source
    assert "**{'from': from_2}" in source
    assert "**{'a-b': from_2}" in source


def test_what_reads_is_told_by_name():
    assert only_reads("mail.list_inbox")
    assert not only_reads("mail.archive")
