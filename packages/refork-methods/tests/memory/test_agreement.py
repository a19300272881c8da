from __future__ import annotations

import json

import pytest

from memory.memory_parts import QUERIES, Everybody, pay_run
from refork.errors import BadInput
from refork_methods.memory.agreement import Agreement, agreement
from refork_methods.memory.gate import RecurrenceGate
from refork_methods.memory.induce import only_reads, skeleton_of
from refork_methods.memory.item import MemoryItem
from refork_methods.memory.memory import ExperienceMemory, codify_due
from refork_methods.memory.trajectory import RunStep, RunTrajectory

SONGS = [
    {"song_id": 3 + n, "title": title} for n, title in enumerate(("Red Kite", "Blue River", "Last Light"))
]


PRICES = (
    ("Red Kite", "Ann Lee", 7, 7),
    ("Blue River", "Bob May", 3, 9),
    ("Last Light", "Cy Day", 8, 4),
    ("First Snow", "Dan Hill", 5, 6),
    ("Silent Sea", "Eva Ford", 9, 3),
    ("Glass House", "Ida Lake", 2, 5),
)


def plan_of(run):
    return MemoryItem("plan-1", "plan", "To do: it.", skeleton_of(run), query=run.query)


def rate(task, title, stars, *, song=None, success=True, extra=()):
    """A run that rates a song; the ids of songs are 3, 4 and 5, stars 1 to 5."""
    own = next(one["song_id"] for one in SONGS if one["title"] == title)
    steps = (
        RunStep("s1", function="music.list_songs", result=SONGS),
        *extra,
        RunStep("s2", function="music.rate", arguments={"song_id": song or own, "stars": stars}, result={}),
    )
    return RunTrajectory(task, f'Rate the song "{title}" with {stars} stars', steps, success)


def verdict(plan, run):
    return agreement(plan, run, only_reads).verdict


def test_a_number_that_meets_an_id_by_chance_agrees_with_no_other_run():
    chance = plan_of(rate("t0", "Red Kite", 3))  # the song's id is 3 too
    sound = plan_of(rate("t1", "Red Kite", 5))
    other = rate("t2", "Red Kite", 4)
    assert agreement(chance, other, only_reads).words == "the run did no such music.rate"
    assert verdict(chance, other) == "other"
    assert verdict(sound, rate("t3", "Last Light", 4)) == "same"


def test_the_run_itself_agrees():
    for one in (pay_run("x"), rate("t0", "Red Kite", 5)):
        assert verdict(plan_of(one), one) == "same"
    assert verdict(plan_of(pay_run("x")), pay_run("y", "Bob May", 35, "food", noise="n")) == "same"


def test_another_kind_of_query_and_a_plan_without_calls_say_nothing():
    plan = plan_of(pay_run("x"))
    assert agreement(plan, rate("t", "Red Kite", 5), only_reads) is None
    assert agreement(MemoryItem("plan-2", "plan", "Pay."), pay_run("x"), only_reads) is None


def test_a_run_that_called_a_tool_says_nothing():
    plan = plan_of(rate("t0", "Red Kite", 5))
    tool = RunStep("s0", function="tools.rate_by_title", arguments={"title": "Last Light"}, result={})
    assert agreement(plan, rate("t1", "Last Light", 2, extra=(tool,)), only_reads) is None


def test_what_was_not_read_and_what_was_done_beside_it_leave_it_open():
    plan = plan_of(rate("t0", "Red Kite", 5))
    run = rate("t1", "Last Light", 2)
    unread = RunTrajectory("t1", run.query, run.steps[1:], True)
    assert verdict(plan, unread) == "open"
    more = rate("t1", "Last Light", 2, extra=(RunStep("s0", function="music.buy", arguments={"song_id": 5}),))
    found = agreement(plan, more, only_reads)
    assert (found.verdict, found.words) == ("open", "the run did music.buy too")
    # A failed call did nothing.
    failed = RunStep("s0", function="music.buy", arguments={"song_id": 5}, failed=True)
    assert verdict(plan, rate("t1", "Last Light", 2, extra=(failed,))) == "same"


def test_a_list_that_was_not_read_to_its_end_leaves_it_open():
    def run(task, name, pages, user):
        steps = [
            RunStep(
                f"p{n}", function="pay.list_people", arguments={"page": n}, result={"items": one, "page": n}
            )
            for n, one in enumerate(pages)
        ]
        steps.append(RunStep("s", function="pay.thank", arguments={"user_id": user, "amount": 9}, result={}))
        return RunTrajectory(task, f"Thank {name} for 9 dollars", tuple(steps), True)

    ann, bob = [{"user_id": 5, "name": "Ann Lee"}], [{"user_id": 6, "name": "Bob May"}]
    plan = plan_of(run("a", "Ann Lee", [ann, bob], 5))
    assert verdict(plan, run("b", "Bob May", [ann, bob], 6)) == "same"
    assert verdict(plan, run("b", "Bob May", [ann], 6)) == "open"
    assert verdict(plan, run("b", "Bob May", [ann, []], 6)) == "other"


def test_an_answer_must_be_the_runs():
    def run(task, title, price, answer):
        rows = [{"song_id": 7, "title": title, "price": price}]
        steps = (
            RunStep("s", function="music.list_songs", result=rows),
            RunStep("e", arguments={"answer": answer}),
        )
        return RunTrajectory(task, f'What does the song "{title}" cost?', steps, True)

    chance = plan_of(run("a", "Red Kite", 7, 7))
    right = run("b", "Last Light", 9, 9)
    assert {verdict(chance, right), verdict(plan_of(run("c", "Red Kite", 5, 5)), right)} == {"other", "same"}


def test_each_entry_and_a_repeated_login():
    def run(task, artist, done, tokens=("T",)):
        rows = [
            {"song_id": n, "artist": name} for n, name in ((1, "Eva"), (2, "Dan"), (3, "Eva"), (4, "Dan"))
        ]
        steps = [RunStep(f"l{t}", function="music.login", result={"token": t}) for t in tokens]
        steps.insert(
            1, RunStep("s", function="music.list_songs", arguments={"token": tokens[0]}, result=rows)
        )
        steps += [
            RunStep(f"r{n}", function="music.play", arguments={"song_id": n, "token": tokens[-1]}, result={})
            for n in done
        ]
        return RunTrajectory(task, f'Play all songs of "{artist}"', tuple(steps), True)

    plan = plan_of(run("a", "Eva", [1, 3]))
    assert [step.op for step in plan.skeleton] == ["call", "call", "keep", "each"]
    assert verdict(plan, run("b", "Dan", [2, 4], ("T", "U"))) == "same"
    assert verdict(plan, run("b", "Dan", [2])) == "other"


def live(memory, runs, guard):
    for run in runs:
        memory.observe(run.task, memory.select(run.query, task=run.task), success=run.success)
        memory.reflect(run)
        codify_due(memory, guard)
    return memory.state


def priced():
    """Runs that tell the price of a song; in the first its id is the price too."""
    runs = []
    for n, (title, artist, song, price) in enumerate(PRICES):
        rows = [{"song_id": 50, "title": "Paper Moon", "artist": "Eva Berg", "price": 2}]
        rows.append({"song_id": song, "title": title, "artist": artist, "price": price})
        steps = (
            RunStep("s1", function="music.list_songs", result=rows),
            RunStep("s2", arguments={"answer": price}),
        )
        runs.append(RunTrajectory(f"t{n}", f'What does the song "{title}" by {artist} cost?', steps, True))
    return runs


def test_a_coincidence_stays_a_note_and_the_sound_plan_becomes_code():
    state = live(ExperienceMemory(), priced(), Everybody())
    (tool,) = state.live_tools()
    assert "found['price']" in tool.source
    chance = state.items["plan-1"]
    assert "found.song_id" in chance.body
    assert chance.valid
    assert state.refused["plan-1"].endswith(
        "0 of 3 other runs that had the plan made its calls: the run answered 9"
    )
    # Disproved calls do not bar those of a later run, though they are of the same functions.
    assert tool.plan == "plan-2"


def test_the_published_gate_makes_code_of_it():
    state = live(ExperienceMemory(gate=RecurrenceGate(share=0.0)), priced(), Everybody())
    (tool,) = state.live_tools()
    assert "found['song_id']" in tool.source


def test_failed_runs_count_for_the_schedule_and_confirm_nothing():
    memory, guard = ExperienceMemory(), Everybody()
    first, *others = [pay_run(f"t{n}", *one) for n, one in enumerate(QUERIES)]
    failed = [pay_run(run.task, *one, success=False) for run, one in zip(others, QUERIES[1:], strict=True)]
    state = live(memory, [first, *failed], guard)
    (event,) = [entry.body for entry in memory.log if entry.kind == "codify"]
    assert (event["tasks"], event["tools"]) == (["t1", "t2", "t3"], [])
    assert "0 of 0 other runs" in event["refused"]
    assert state.agreements == {}
    assert [tool.source for tool in guard.seen]


def test_the_log_holds_the_verdicts(tmp_path):
    memory = ExperienceMemory(tmp_path)
    live(memory, priced(), Everybody())
    assert ExperienceMemory(tmp_path).state == memory.state
    rows = [json.loads(json.dumps(entry.body)) for entry in memory.log if entry.kind == "replay"]
    assert {row["verdict"] for row in rows} == {"same", "other"}


@pytest.mark.parametrize(("share", "most"), [(0.5, 2), (1.0, 0), (0.0, 99)])
def test_the_share_is_of_the_runs_that_can_be_compared(share, most):
    good, bad, unread = Agreement("same"), Agreement("other", "it parted"), Agreement("open", "unread")
    gate = RecurrenceGate(share=share)
    assert bool(gate.unconfirmed([])) == bool(gate.unconfirmed([unread])) == (share > 0)
    assert not gate.unconfirmed([good, *[unread] * 5])
    for count in range(4):
        assert bool(gate.unconfirmed([good, good, unread, *[bad] * count])) == (count > most)


@pytest.mark.parametrize(
    ("fields", "hint"), [({"share": 1.5}, "between"), ({"theta": 0, "eager": True}, "other run")]
)
def test_a_share_must_be_one(fields, hint):
    with pytest.raises(BadInput, match=hint):
        RecurrenceGate(**fields)
