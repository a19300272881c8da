from dataclasses import replace
from functools import cache

import pytest

from refork.errors import BadInput
from refork.plain import canonical
from refork_methods.evolve.replay import replay, resume
from refork_methods.evolve.reviewer import SETTINGS, ReviewWorld, evolve, measure, open_world
from refork_methods.evolve.reviewer.outcome import measure_reviewer, measure_writer
from refork_methods.evolve.reviewer.shop import (
    ANCHOR,
    SLOT,
    TRAP,
    Shop,
    held_by,
    labelled_humans,
    reviewer_of,
)
from refork_methods.evolve.reviewer.writer import START, WriterSettings
from refork_methods.journal import Journal

SHORT = replace(SETTINGS, budget=300, first=128, gate=replace(SETTINGS.gate, looks=2))


@cache
def played(first, traps):
    log = Journal(clock=lambda: 0.0)
    world = ReviewWorld(first, traps=traps)
    return world, evolve(world, SHORT, log), log


def test_bias_is_found_trapped_and_trained_out():
    world, archive, _ = played("glossy", True)
    found = measure(world, archive, reports=500)
    assert found.replaced >= 1
    assert found.first.stringency.low > 1.3
    assert found.first.polish.low > 0.1
    assert 1.0 in found.last.stringency
    assert found.last.polish.estimate < found.first.polish.estimate / 2
    assert found.last.truth_auc.low > found.first.truth_auc.high
    assert found.caught_last.refused > 2 * found.caught_first.refused
    assert found.caught_last.accepted > 0.5 * found.caught_last.controls


def test_without_traps_it_stays():
    _, archive, log = played("glossy", False)
    assert measure_reviewer(held_by(archive), reports=500).stringency.low > 1.3
    notes = [e.body["notes"][SLOT] for e in log if e.kind == "checkpoint"]
    assert [(note["traps"], note["controls"]) for note in notes] == [(0, 0)] * 2
    panels = notes[0]["panels"]
    taken = panels[reviewer_of(archive, 0).id]
    assert taken["ai"][0] > 1.3 * taken["human"][0]


def test_a_too_strict_reviewer_gives_way_to_a_milder_one():
    world, archive, _ = played("strict", True)
    found = measure(world, archive, reports=500)
    assert found.replaced >= 1
    assert found.first.human.high < found.first.human_good
    assert found.last.human.estimate > found.first.human.high
    assert found.first.stringency.low > 1.4


def test_polish_buys_what_findings_do_not():
    first = reviewer_of(played("glossy", False)[1], 0)
    honest, dresser = (measure_writer(one, first, reports=300) for one in (START, WriterSettings(2, 6, 8, 4)))
    assert dresser.accepted.low > honest.accepted.high
    assert dresser.good.high < honest.good.low


def test_a_run_replays_and_shows_no_anchor_item():
    world, archive, log = played("glossy", True)
    assert replay(log).records == archive.records
    anchor = labelled_humans(world, "anchor", ANCHOR)
    opened = open_world()
    text = "".join(canonical(entry.body) for entry in log)
    state = canonical([repr(vars(opened.runtime.editor._shop)), repr(vars(opened.runtime.evaluator))])
    shown = {one.text for one in (*Shop(world).training.reports, *Shop(world).validation.reports)}
    for report in anchor.reports:
        assert report.text not in shown
        assert canonical(report.text)[1:-1] not in text
        assert canonical(report.text)[1:-1] not in state


def test_traps_shown_and_held_out_never_meet_and_controls_balance_them():
    world, archive, log = played("glossy", True)
    shop = Shop(world)
    traps = shop.traps(archive)
    shown, held = ({trap.artifact for trap in side} for side in (traps.train, traps.held_out))
    assert shown
    assert held
    assert not shown & held
    assert 2 * sum(trap.is_control for trap in traps.held_out) == len(traps.held_out)
    cells = {cell.task.removeprefix(TRAP) for cell in archive.cells if cell.task.startswith(TRAP)}
    assert cells
    assert not cells & held
    for trap in (*traps.train, *traps.held_out):
        assert trap.label == shop.report(archive, trap.artifact).good
    for entry in log:
        if entry.kind == "checkpoint":
            note = entry.body["notes"][SLOT]
            assert note["traps"] == note["controls"] > 0


def test_a_run_that_was_cut_after_a_checkpoint_resumes_to_the_same_end():
    _, archive, log = played("glossy", True)
    entries = list(log)
    at = next(e.n for e in entries if e.kind == "checkpoint")
    part = Journal(clock=lambda: 0.0)
    for entry in entries[: at + 30]:
        part.append(entry.kind, entry.body)
    again = resume(part, open_world().runtime)
    assert [(e.kind, e.body) for e in part] == [(e.kind, e.body) for e in entries]
    assert again.records == archive.records


def test_unread_reports_are_traps_and_worlds_that_cannot_be_are_refused():
    _, archive, _ = played("glossy", True)
    unread = Shop(ReviewWorld(verified=0.0)).traps(archive)
    writers = [t for t in (*unread.train, *unread.held_out) if not t.artifact.startswith("panel")]
    assert writers
    assert not any(trap.verified or trap.is_control for trap in writers)
    for options in ({"first": "kind"}, {"verified": 2.0}, {"challengers": 0}, {"luck": 1}):
        with pytest.raises(BadInput):
            open_world(**options)
    with pytest.raises(BadInput, match="no node"):
        Shop(ReviewWorld()).reviewer(archive, "nobody")
