import pytest

from refork.errors import BadInput
from refork.plain import to_json
from refork_methods.evolve.history import JudgeHistory, judge_history, panel_ratio
from refork_methods.evolve.pictures import stringency_figure
from refork_methods.evolve.promote import Gate, Tally, promote
from refork_methods.evolve.records import Cell, EvaluatorSlot

SLOT = EvaluatorSlot("review", "first")
RIVAL = Tally("second", (70, 30), 15, 10, (9, 3), (4, 2))


def measured(slot="review"):
    return ("measure", {"cell": to_json(Cell("writer", "t", slot))})


def checkpoint(at, incumbent, rivals, panels):
    decision = promote(incumbent, rivals, Gate("best_belief"))
    return ("checkpoint", {
        "at": at, "decisions": {"review": to_json(decision)}, "notes": {"review": {"panels": panels}},
    })  # fmt: skip


PANELS = {
    "first": {"ai": [60, 100], "human": [30, 100]},
    "second": {"ai": [31, 100], "human": [30, 100]},
}
EVENTS = [
    ("begin", {"slots": [to_json(SLOT)]}),
    *[measured()] * 4, measured(None),
    checkpoint(5, Tally("first", (60, 40)), [RIVAL], PANELS),
    *[measured()] * 3,
    checkpoint(8, RIVAL, [Tally("third", (10, 90))], {}),
    measured(),
]  # fmt: skip


def test_tenures_follow_the_events():
    found = judge_history(EVENTS)
    first, second = found.tenures
    assert (first.judge, first.epoch, first.since, first.until, first.decided) == ("first", 0, 0, 5, 4)
    assert (second.judge, second.epoch, second.since, second.until, second.decided) == ("second", 1, 5, 9, 4)
    assert (first.anchor.estimate, second.anchor.estimate) == (0.6, 0.7)
    assert first.stringency.estimate == pytest.approx(2)
    assert second.stringency.low < 31 / 30 < second.stringency.high
    assert (first.traps, second.traps, second.controls) == (None, (9, 3), (4, 2))
    assert found.anchor_queries == 400
    assert [one.differs for one in found.examinations] == [True, False]


def test_a_panel_without_a_denominator_or_a_source_has_no_ratio():
    assert panel_ratio({"ai": [1, 2], "human": [0, 4]}) is None
    assert panel_ratio({"ai": [1, 2]}) is None


def test_events_that_do_not_begin_are_refused():
    with pytest.raises(BadInput, match="not the events"):
        judge_history(EVENTS[1:])


def test_the_picture_says_what_is_known():
    found = judge_history(EVENTS)
    ratios = stringency_figure(found)
    assert ratios.columns == ("outcomes", "acceptance of machine-made over human work", "Interval", "Note")
    assert "2×" in [row[1] for row in ratios.rows]
    assert ratios.rows[-1][0] == "even-handed"
    blind = judge_history([event for event in EVENTS if event[0] != "checkpoint"])
    assert stringency_figure(blind) is None
    assert stringency_figure(JudgeHistory((), (), 0)) is None
