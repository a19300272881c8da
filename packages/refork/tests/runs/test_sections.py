"""Every nanosecond of a thread is some section's own; a watcher that breaks is let go."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refork.runs import sections
from refork.runs.profile import OTHER, Profile, together, trace_of
from refork.runs.sections import SectionStack


class Clock:
    """Says what the test says."""

    def __init__(self):
        self.now = 0

    def __call__(self):
        return self.now


class Heard:
    """Keeps what a watcher is told."""

    def __init__(self):
        self.opened_, self.ran_, self.closed_ = [], [], []

    def opened(self, section):
        self.opened_.append(section)

    def ran(self, section, began, ended, own):
        self.ran_.append((section.name, began, ended, own))

    def closed(self, section):
        self.closed_.append(section)


def test_nobody_watches_and_nothing_happens():
    assert sections.recorder() is None
    with sections.section("x", "model") as found:
        assert found is None


def test_own_time_leaves_out_what_ran_inside():
    clock, heard = Clock(), Heard()
    keeper = SectionStack([heard], clock)
    with keeper.section("outer") as outer:
        clock.now = 10
        with keeper.section("inner") as inner:
            clock.now = 40
        clock.now = 45
    assert (outer.spent, outer.own, inner.spent, inner.own) == (45, 15, 30, 30)
    assert inner.parent is outer
    assert heard.ran_ == [("inner", 10, 40, 30), ("outer", 0, 45, 15)]


def test_a_generator_runs_only_while_it_is_asked():
    clock = Clock()
    keeper = SectionStack([], clock)

    def items():
        for n in range(3):
            clock.now += 5
            yield n

    with keeper.section("reader") as reader:
        section, heard = keeper.open("source", "model"), []
        for _ in keeper.each(section, items(), heard.append):
            clock.now += 100
    assert (section.spent, section.runs, reader.own, heard) == (15, 4, 300, [0, 1, 2])


def test_a_generator_that_is_left_early_is_closed_and_no_failure():
    heard = Heard()
    keeper = SectionStack([heard], Clock())
    source = keeper.each(keeper.open("s"), iter([1, 2, 3]), lambda item: None)
    next(source)
    source.close()
    assert [(s.name, s.error) for s in heard.closed_] == [("s", None)]


def test_an_error_is_the_sections_and_the_stack_is_whole_after_it():
    heard = Heard()
    keeper = SectionStack([heard], Clock())

    def broken():
        with keeper.section("outer"):
            keeper.enter(keeper.open("left open"))
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        broken()
    assert type(heard.closed_[0].error) is ValueError
    assert keeper.top() is None


def test_what_lies_straight_in_a_run_lies_in_its_stage():
    keeper = SectionStack([], Clock())
    with keeper.section("run", "run") as run:
        keeper.stage = stage = keeper.open("stage a", "stage")
        inner = keeper.open("call", "model")
    assert (stage.parent, inner.parent) == (run, stage)
    assert inner.up("run") is run
    assert inner.up("world") is None


def test_a_thread_lies_in_what_runs_in_the_home_thread():
    keeper, found = SectionStack([], Clock()), []
    with keeper.section("home") as home:
        thread = threading.Thread(target=lambda: found.append(keeper.open("there").parent))
        thread.start()
        thread.join()
    assert found == [home]


def test_a_watcher_that_breaks_is_told_no_more():
    class Broken(Heard):
        def opened(self, section):
            raise RuntimeError("broken")

    good = Heard()
    keeper = SectionStack([Broken(), good], Clock())
    for _ in range(2):
        with keeper.section("x"):
            pass
    assert len(good.closed_) == 2
    assert [str(e) for e in keeper.refused] == ["broken"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(0, 4)), max_size=30))
def test_rows_add_up_to_the_whole(moves):
    """Any nesting: own times sum to the time of the outermost section."""
    clock = Clock()
    profile = Profile(0, 0.0)
    keeper = SectionStack([profile], clock)
    with keeper.section("run", "run") as run:
        stack = []
        for name, wait, leave in moves:
            clock.now += wait
            for _ in range(min(leave, len(stack))):
                keeper.leave(stack.pop())
            stack.append(keeper.open(name))
            keeper.enter(stack[-1])
        while stack:
            clock.now += 1
            keeper.leave(stack.pop())
    assert sum(round(row.seconds * 1e9) for row in profile.rows()) == run.spent
    assert {row.name for row in profile.rows()} <= {"a", "b", "c", OTHER}


def test_a_long_profile_keeps_the_longest_stretches():
    clock = Clock()
    profile = Profile(0, 0.0, most=20)
    keeper = SectionStack([profile], clock)
    for n in range(100):
        with keeper.section("long" if n % 10 == 0 else "short"):
            clock.now += 1000 if n % 10 == 0 else 1
    names = [event["name"] for event in profile.events()]
    assert names.count("long") == 10
    assert len(names) <= 20
    assert len(names) + profile.left_out == 100
    assert {row.name: row.calls for row in profile.rows()} == {"long": 10, "short": 90}


def test_the_trace_is_of_all_processes_and_begins_at_nought():
    clock = Clock()
    profile = Profile(0, 100.0)
    keeper = SectionStack([profile], clock)
    with keeper.section("call", "model", tokens=3):
        clock.now = 2_000_000
    own = profile.to_json()
    worker = own | {"pid": 7, "events": [event | {"pid": 7} for event in own["events"]]}
    trace = trace_of("refork x", own, [worker])
    complete = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert [(e["name"], e["ts"], e["dur"]) for e in complete] == [("call", 0.0, 2000.0)] * 2
    assert complete[0]["args"] == {"tokens": 3}
    assert [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"] == [
        "refork x", "worker 1",
    ]  # fmt: skip
    assert [(r.name, r.calls) for r in together([own, worker])] == [("call", 2)]
