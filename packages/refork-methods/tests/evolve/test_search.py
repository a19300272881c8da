import itertools
import json

import numpy as np
import pytest

from evolve.toy_search import SECRETS, SETTINGS, SLOTS, START, runtime
from refork.errors import BadInput, Mismatch, ReplayDiverged
from refork.plain import canonical
from refork_methods.evolve.archive import fold
from refork_methods.evolve.erase import selective_erasure
from refork_methods.evolve.promote import Gate
from refork_methods.evolve.records import Cell, own_counts
from refork_methods.evolve.replay import replay, resume
from refork_methods.evolve.schedule import checkpoints
from refork_methods.evolve.search import Settings, run
from refork_methods.journal import Journal


def ticking():
    return map(float, itertools.count(5)).__next__


@pytest.fixture(scope="module")
def done():
    log = Journal(clock=ticking())
    return run(SETTINGS, START, SLOTS, runtime()[0], log), log


def test_the_run_replaces_judges_and_spends_its_budget(done):
    archive, log = done
    assert archive.outcomes == SETTINGS.budget == len(archive.records) + len(archive.erased)
    assert all(slot.epoch > 0 for slot in archive.slots.values())
    assert archive.erased
    assert list(log)[-1].body["reason"] == "budget"
    assert len(archive.decisions) == len(checkpoints(8, 300))


def test_a_paired_gate_looks_as_often_as_there_are_checkpoints():
    points = len(checkpoints(64, 2048))
    assert (points, Settings(2048).gate.looks, Settings(2048, gate=Gate(looks=9)).gate.looks) == (5, 5, 9)
    assert Settings(50, first=64).gate.looks == 1
    with pytest.raises(BadInput, match="4 looks at the anchor, and there are 5 checkpoints"):
        run(Settings(2048, gate=Gate(looks=4)), START, SLOTS, runtime()[0])


def test_the_archive_never_outgrows_the_gate(done):
    outcomes, size = 0, 1
    for entry in done[1]:
        outcomes += entry.kind == "measure"
        size += entry.kind == "expand" and entry.body["workspace"] is not None
        assert size <= 1 + outcomes**0.6 + 1e-9
    assert any(e.kind == "expand" and e.body["workspace"] is None for e in done[1])


def test_a_role_that_a_node_was_measured_least_in_comes_next(done):
    entries = [(entry.kind, entry.body) for entry in done[1]]
    archive, measured = fold(entries[:1]), 0
    for kind, body in entries[1:]:
        if kind == "measure":
            node, role = body["node"], body["cell"]["role"]
            assert archive.done(node, role) == min(archive.done(node, r) for r in archive.roles(node))
            measured += 1
        archive.apply(kind, body)
    assert measured == len(done[0].records) + len(done[0].erased)


def test_no_record_crosses_a_checkpoint(done):
    outcomes, at, epochs = 0, [], dict.fromkeys(("style", "proof"), 0)
    records = {r.n: r for r in (*done[0].records, *done[0].erased)}
    for entry in done[1]:
        if entry.kind == "measure":
            assert dict(records[outcomes].epochs) == epochs
            outcomes += 1
        if entry.kind == "checkpoint":
            at.append(outcomes)
            for name, one in entry.body["decisions"].items():
                chosen = one["by_best_belief"]
                epochs[name] += chosen is not None
    assert tuple(at) == checkpoints(8, 300)


def test_erased_records_are_those_of_changed_slots_and_no_more(done):
    archive = done[0]
    for record in (*archive.records, *archive.erased):
        slot = archive.slots.get(record.cell.slot)
        stale = slot is not None and record.epoch < slot.epoch
        assert (record in archive.erased) == stale
    assert len(archive.erased) <= SETTINGS.budget
    assert selective_erasure(archive.records, archive.slots.values()).erased == ()


def test_own_counts_are_those_of_valid_records_alone(done):
    archive = done[0]
    good, bad = own_counts(archive.records, len(archive))
    assert np.array_equal(good, archive.successes)
    assert np.array_equal(bad, archive.failures)
    verdicts = [(r.artifact, r.cell, r.judge, r.epoch) for r in archive.records]
    assert len(set(verdicts)) == len(verdicts)  # one artifact under one judge is one outcome


def test_a_cached_artifact_is_judged_again_and_never_made_again(done):
    archive, log = done
    made: dict = {}
    again = 0
    for entry in log:
        if entry.kind == "measure":
            key = (entry.body["node"], canonical(entry.body["cell"]))
            assert entry.body["cached"] == (key in made)
            again += key in made
            assert made.setdefault(key, entry.body["artifact"]) == entry.body["artifact"]
    assert again > 0
    assert archive.records


def test_erasing_and_rescoring_all_is_a_fresh_run_under_the_new_judge(done):
    archive = done[0]
    _, toy = runtime()
    for record in (*archive.records, *archive.erased):
        outcome, judge, _ = toy.evaluate(archive, record.node, record.cell, record.artifact)
        fresh = toy.evaluate(archive, record.node, record.cell, None)
        assert (outcome, judge) == fresh[:2]
        if record in archive.records:
            assert outcome == record.outcome


def test_the_anchor_is_in_no_event_and_no_state(done):
    archive, log = done
    text = "".join(canonical([e.kind, e.body]) for e in log)
    state = json.dumps({k: repr(v) for k, v in vars(archive).items()})
    for secret in SECRETS:
        assert secret not in text
        assert secret not in state


def test_events_fold_into_the_same_archive(done):
    archive, log = done
    assert vars(fold((e.kind, e.body) for e in log)).keys() == vars(archive).keys()
    assert fold((e.kind, e.body) for e in log).records == archive.records


def test_the_same_seed_is_the_same_log_and_another_is_not(done):
    again = Journal(clock=ticking())
    run(SETTINGS, START, list(reversed(SLOTS)), runtime()[0], again)
    assert again.head == done[1].head
    other = Journal(clock=ticking())
    run(Settings(300, first=8, seed=5, gate=SETTINGS.gate), START, SLOTS, runtime()[0], other)
    assert other.head != done[1].head


def test_a_log_replays_bit_for_bit_without_asking_anybody(done):
    archive = replay(done[1])
    assert archive.records == done[0].records
    assert archive.erased == done[0].erased
    assert archive.decisions == done[0].decisions
    assert archive.ended


@pytest.mark.parametrize("field", ["node", "outcome"])
def test_an_altered_answer_diverges_and_the_entry_is_named(done, field):
    forged = Journal(clock=ticking())
    entries = list(done[1])
    at = next(e.n for e in entries if e.kind == "measure" and e.n > 40 and e.body["node"] > 0)
    for entry in entries:
        body = dict(entry.body)
        if entry.n == at:
            body[field] = 1 - body[field] if field == "outcome" else 0
        forged.append(entry.kind, body)
    with pytest.raises((ReplayDiverged, Mismatch)) as caught:
        replay(forged)
    if field == "node":
        assert f"entry {at}" in str(caught.value)


@pytest.mark.parametrize("stop", [1, 40, 320])
def test_a_run_that_was_cut_resumes_to_the_same_end(done, tmp_path, stop):
    file = tmp_path / "log.jsonl"
    log = Journal.create(file, clock=lambda: 0.0)
    with pytest.raises(KeyboardInterrupt):
        run(SETTINGS, START, SLOTS, runtime(stop=stop)[0], log)
    part = Journal(file, clock=lambda: 0.0)
    assert not replay(part).ended
    ports, toy = runtime()
    archive = resume(part, ports)
    assert [(e.kind, e.body) for e in part] == [(e.kind, e.body) for e in done[1]]
    assert archive.records == done[0].records
    assert toy.calls > 0
    ports, toy = runtime()
    resume(Journal(file, clock=lambda: 0.0), ports)
    assert toy.calls == 0


def test_resuming_on_another_anchor_or_nothing_is_refused(done):
    ports, toy = runtime()
    toy.fingerprint = "another"
    with pytest.raises(Mismatch, match="another anchor"):
        resume(done[1], ports)
    with pytest.raises(Mismatch, match="empty"):
        resume(Journal(), runtime()[0])
    with pytest.raises(Mismatch, match="does not begin"):
        replay(Journal())
    with pytest.raises(BadInput, match="resume it"):
        run(SETTINGS, START, SLOTS, runtime()[0], done[1])


def test_a_search_with_nothing_left_to_measure_ends_and_says_so():
    ports, toy = runtime(growing=False)
    toy.cells = lambda archive: [Cell("code", "only")]
    log = Journal()
    archive = run(Settings(50, first=100), START, SLOTS, ports, log)
    assert list(log)[-1].body["reason"] == "exhausted"
    assert archive.outcomes == len(archive)


def test_answers_that_contradict_the_archive_are_refused():
    for answer, words in (((1, "j9", "a"), "not held by 'j9'"), ((2, "j5", "a"), "not 0 or 1")):
        ports, toy = runtime()
        toy.cells = lambda archive: [Cell("write", "w", "style")]
        toy.evaluate = lambda *_, answer=answer: answer
        with pytest.raises((Mismatch, BadInput), match=words):
            run(SETTINGS, START, SLOTS, ports)
    ports, toy = runtime()
    toy.cells = lambda archive: [Cell("write", "w", "nowhere")]
    with pytest.raises(Mismatch, match="unknown"):
        run(SETTINGS, START, SLOTS, ports)


def test_the_endpoint_ignores_what_was_erased(done):
    archive = done[0]
    best = archive.endpoint(0.05)
    erased_only = [r for r in archive.erased if r.node != best.generalist]
    assert erased_only
    assert dict(best.specialists).keys() == {"code", "prove", "write"}
    with pytest.raises(BadInput, match="no valid record"):
        fold([(e.kind, e.body) for e in list(done[1])[:2]]).endpoint(0.05)
