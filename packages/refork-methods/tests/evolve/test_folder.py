import json
from dataclasses import replace

import pytest

from refork.errors import BadInput, Mismatch, TreeBusy
from refork.tree import Tree
from refork_methods.evolve.audit import audit, erase_slot, would_erase_slot, write_audit
from refork_methods.evolve.folder import _locked, evolve, go_on, read_facts
from refork_methods.evolve.on_tree import live_outcomes
from refork_methods.evolve.scripted.coevolution import World
from refork_methods.evolve.scripted.papers import human_papers
from refork_methods.evolve.scripted.world import first_judge
from refork_methods.evolve.worlds import Plan

PLAN = Plan("scripted", {"seed": 1}, {"budget": 150, "first": 32})


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "whole"
    seen = []
    found = evolve(PLAN, out, lambda stage, done, total, **_: seen.append((stage, done, total)))
    return out, found, seen


def events(out):
    """Kind and body of every event: all but when it was written."""
    lines = (out / "events.jsonl").read_text().splitlines()
    return [(line["kind"], line["body"]) for line in map(json.loads, lines)]


def test_a_run_leaves_what_it_was_its_events_and_its_tree(done):
    out, found, seen = done
    assert found.archive.ended
    assert not found.resumed
    assert found.to_json()["valid"] + found.to_json()["erased"] == 150
    assert read_facts(out)["settings"]["budget"] == 150
    assert seen[-1] == ("outcomes", 150, 150)
    assert audit(out).sound


def test_erased_verdicts_are_on_no_reader_and_kept_ones_on_all(done):
    out, found, _ = done
    archive = found.archive
    assert archive.erased
    with Tree.open(out / "tree.db", "r") as tree:
        places = {str(n.extra["artifact"]): n.id for n in tree.walk() if "artifact" in n.extra}
        live = live_outcomes(tree, archive.cells, places)
        assert live == {(r.artifact, r.cell): r.outcome for r in archive.records}
        beliefs = list(tree.scores(name="belief"))
        assert len({score.producer for score in beliefs}) == 1
        assert len(list(tree.scores(name="belief", retired=True))) > len(beliefs) > 0
        parents = [tree.node(n.parent).extra["workspace"] for n in tree.walk() if n.extra.get("workspace")]
        assert parents == [
            archive.parents[n.extra["workspace"]] for n in tree.walk() if n.extra.get("workspace")
        ]


@pytest.mark.parametrize("stop", [1, 20, 70, 149])
def test_a_stopped_run_goes_on_as_if_it_never_had(done, tmp_path, stop):
    def progress(stage, done, total, **_):
        if done == stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evolve(PLAN, tmp_path, progress)
    assert len(events(tmp_path)) < len(events(done[0]))
    assert audit(tmp_path).replays
    found = go_on(tmp_path)
    assert found.resumed
    assert events(tmp_path) == events(done[0])
    assert audit(tmp_path).sound


def test_the_same_command_goes_on_and_another_is_refused(done):
    out, found, _ = done
    assert evolve(PLAN, out).archive.records == found.archive.records
    with pytest.raises(Mismatch, match="settings"):
        evolve(replace(PLAN, settings={"budget": 151, "first": 32}), out)
    with pytest.raises(Mismatch, match="anchor, options"):
        evolve(replace(PLAN, options={"seed": 2}), out)
    with _locked(out), pytest.raises(TreeBusy, match="another process"):
        go_on(out)


def test_a_tree_that_lags_behind_the_log_is_told_and_mended(done, tmp_path):
    (tmp_path / "run.json").write_bytes((done[0] / "run.json").read_bytes())
    (tmp_path / "events.jsonl").write_bytes((done[0] / "events.jsonl").read_bytes())
    with Tree.open(tmp_path / "tree.db"):
        pass
    assert "not on the tree" in audit(tmp_path).tree[0]
    go_on(tmp_path)
    assert audit(tmp_path).sound


def test_a_log_that_was_written_by_another_hand_does_not_replay(done, tmp_path):
    from refork_methods.journal import Journal

    (tmp_path / "run.json").write_bytes((done[0] / "run.json").read_bytes())
    forged = Journal.create(tmp_path / "events.jsonl", clock=lambda: 0.0)
    told = events(done[0])
    at = next(i for i, (kind, body) in enumerate(told) if kind == "measure" and i > 60)
    for i, (kind, body) in enumerate(told):
        forged.append(kind, body | {"outcome": 1 - body["outcome"]} if i == at else body)
    found = audit(tmp_path)
    assert not found.replays
    assert found.diverged
    assert found.tree is None
    (tmp_path / "events.jsonl").write_bytes(
        (done[0] / "events.jsonl").read_bytes().replace(b'"node":1,', b'"node":0,', 1)
    )
    with pytest.raises(Mismatch, match="was changed"):
        audit(tmp_path)


def test_no_anchor_item_is_in_any_file_of_a_run(done):
    out = done[0]
    write_audit(audit(out), out / "audit")
    anchor = human_papers(200, World(first_judge("glossy"), seed=1).rng("anchor"))
    secrets = {repr(float(x)) for column in (anchor.observed, anchor.quality, anchor.gloss) for x in column}
    files = [file for file in out.rglob("*") if file.is_file()]
    assert {"run.json", "events.jsonl", "tree.db", "audit.json"} <= {file.name for file in files}
    for file in files:
        text = file.read_bytes().decode("utf-8", errors="replace")
        assert not any(secret in text for secret in secrets), file.name


def test_an_audit_writes_the_ledger_and_the_picture(done, tmp_path):
    found = audit(done[0])
    names = [file.name for file in write_audit(found, tmp_path)]
    assert names == ["audit.json", "ledger.jsonl", "stringency.svg"]
    told = json.loads((tmp_path / "audit.json").read_text())
    ledger = (tmp_path / "ledger.jsonl").read_text().splitlines()
    assert told["erased"] == len(ledger) == len(found.archive.erased)
    assert told["erased_over_budget"] <= 1
    assert told["judges"][0]["stringency"]["low"] > 1.4
    assert [one["until"] for one in told["judges"]][-1] == 150
    assert told["costs"]["rescored"] == sum(body.get("cached") is True for _, body in events(done[0]))
    assert "<svg xmlns" in (tmp_path / "stringency.svg").read_text()


def test_a_dismissal_is_foretold_exactly_and_then_done(tmp_path):
    evolve(replace(PLAN, settings={"budget": 60, "first": 32}), tmp_path)
    found = would_erase_slot(tmp_path, "review")
    assert would_erase_slot(tmp_path, "review") == found
    lost = erase_slot(tmp_path, "review", "it was bribed")
    assert (lost.scores, set(lost.producers)) == (found.scores, set(found.producers))
    assert sum(found.scores.values()) > found.verdicts > 0
    assert "they were erased" in audit(tmp_path).tree[0]
    with pytest.raises(BadInput, match="no slot 'other'"):
        would_erase_slot(tmp_path, "other")


def test_a_run_that_goes_on_keeps_its_judge(tmp_path):
    def progress(stage, done, total, **_):
        if done == 40:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evolve(PLAN, tmp_path, progress)
    with pytest.raises(Mismatch, match="not ended"):
        erase_slot(tmp_path, "review", "")


def test_folders_that_are_no_runs_are_refused(tmp_path):
    with pytest.raises(BadInput, match="not the folder of a run"):
        audit(tmp_path)
    (tmp_path / "run.json").write_text("[]")
    with pytest.raises(BadInput, match="does not describe"):
        go_on(tmp_path)
    (tmp_path / "run.json").write_text('{"format": 9, "plan": {}}')
    with pytest.raises(BadInput, match="format 9"):
        go_on(tmp_path)
