"""A search's folder: read without computing, resumed, audited, and what is written out."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import pytest

from refork.errors import BadInput, Mismatch
from refork.sandbox import Sandbox
from refork_methods.theory.read import read_csv_trials
from refork_methods.theory.sandboxed import LIMITS
from refork_methods.theory.search.audit import _answers, audit_theories
from refork_methods.theory.search.folder import Recipe, read_theories, resume_theories, run_theories
from refork_methods.theory.search.heldout import score_held_out
from refork_methods.theory.search.settings import TheorySettings
from refork_methods.theory.search.statistic import metric_of, read_statistic
from refork_methods.theory.theory_file import Theory

RECIPE = Recipe(
    domain="cues", seeds=({"rule": "tallying"}, {"rule": "wadd"}), participants="simulated:take-the-best",
    settings=TheorySettings(rounds=1, tries=20, seed=3),
)  # fmt: skip


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(LIMITS) as one:
        yield one


@pytest.fixture(scope="module")
def run(sandbox, tmp_path_factory):
    out = tmp_path_factory.mktemp("search")
    return out, *run_theories(RECIPE, out, sandbox)


def test_what_is_written_out(run):
    out, search, outcome = run
    for label in search.theories:
        assert Theory.read(out / "theories" / f"{label}.yaml").domain == "cues"
    one = search.observed[0].observation
    read = read_csv_trials(next((out / "trials").glob("*side-1.csv"))).observations[0]
    assert (read.trials.response == one.trials.response).all()
    rows = list(csv.DictReader((out / "leaderboard.csv").read_text().splitlines()))
    assert {row["label"] for row in rows} == set(search.theories)
    assert float(rows[-1]["relative"]) == outcome.pool.replay()[-1].scores[rows[-1]["label"]]
    assert "pi_3" in (out / "leaderboard.svg").read_text()


def test_reading_computes_nothing_and_says_the_same(run, sandbox):
    out, search, outcome = run
    _, again, read = read_theories(out, sandbox)
    assert read.losses == outcome.losses
    assert again.record.digest == search.record.digest


def test_resuming_a_finished_search_changes_nothing_and_more_rounds_go_on(run, sandbox):
    out, search, _ = run
    assert resume_theories(out, sandbox)[0].record.digest == search.record.digest
    longer, outcome = resume_theories(out, sandbox, rounds=2)
    assert len(outcome.pool.rounds) == 2 or outcome.state == "undecided"
    with pytest.raises(Mismatch):
        run_theories(replace(RECIPE, noise=0.5), out, sandbox)
    assert len(longer.record) > len(search.record)


def test_held_out_and_audit(run, sandbox):
    out, *_ = run
    found = score_held_out(out, sandbox, draws=300, redraws=100)
    assert found.board.observations == ("held out 1", "held out 2")
    assert found.board.theories[0].name not in ("pi_1", "pi_2")
    told = audit_theories(out, sandbox)
    assert told.findings == ()
    assert told.checked["gates"] >= 2
    assert told.discriminating[0] == told.discriminating[1] >= 1


def test_an_audit_sees_what_was_changed(run, sandbox, tmp_path):
    out, *_ = run
    lines = (out / "events.jsonl").read_text().splitlines()
    (tmp_path / "run.json").write_text((out / "run.json").read_text())
    (tmp_path / "events.jsonl").write_text("\n".join(lines).replace('"accepted":0', '"accepted":1', 1) + "\n")
    assert "record was changed" in audit_theories(tmp_path, sandbox).findings[0]


def test_an_audit_finds_designs_that_the_people_no_longer_have(run):
    class Changed:
        def remaining_people(self, experiment, planned):
            raise BadInput("the file has no choices of this experiment")

    found = list(_answers(run[1], Changed()))
    assert len(found) == len(run[1].observed)
    assert all("no choices" in one for one in found)


def test_an_audit_sees_a_forged_chain(run, sandbox, tmp_path):
    """Predictions written anew with right digests do not come out the same."""
    from refork_methods.theory.search.record import Record

    out, search, _ = run
    forged = Record(tmp_path)
    for key, step in search.record.items():
        told = json.loads(json.dumps(step))
        if key == "1/1/values":
            told["theories"]["pi_1"]["mse_pb"] = 0.001
        forged.once(key, lambda told=told: told)
    (tmp_path / "run.json").write_text((out / "run.json").read_text())
    found = audit_theories(tmp_path, sandbox)
    assert any("pi_1 on round 1, side 1" in one for one in found.findings)


def test_no_folder(sandbox, tmp_path):
    with pytest.raises(BadInput, match="not the folder"):
        read_theories(tmp_path, sandbox)


def test_statistics_are_read_strictly_and_code_runs_alone(run, sandbox):
    one = run[1].observed[0].observation
    odd = {"kind": "code", "name": "n", "source": "def metric(trials):\n    return len(trials)\n"}
    metric = metric_of(read_statistic(odd), one.experiment, sandbox)
    assert metric(one.trials.of(0)) == len(one.trials.of(0).response)
    huge = {"kind": "code", "name": "n", "source": "def metric(trials):\n    return 10**400\n"}
    assert metric_of(read_statistic(huge), one.experiment, sandbox)(one.trials) is None
    for bad in ({"kind": "code", "name": "n", "source": "import os\n"},):
        with pytest.raises(BadInput, match="may not run"):
            metric_of(read_statistic(bad), one.experiment, sandbox)
    for bad in ({"kind": "no"}, {"kind": "share_of_b", "more": 1}, {"kind": "agreement", "name": "x"}):
        with pytest.raises(BadInput):
            read_statistic(bad)
    for bad in (
        {"kind": "share_of_b_at", "stimuli": [99]},
        {"kind": "agreement", "name": "x", "sides": [1.0]},
    ):
        with pytest.raises(BadInput):
            metric_of(read_statistic(bad), one.experiment, sandbox)
