import json

import numpy as np
import pytest
from typer.testing import CliRunner

from refork.errors import UserError
from refork_methods.speculate.calibrate import SequentialTemperatureScaling
from refork_methods.speculate.checkpoint import save_draft
from refork_methods.speculate.commands import app
from refork_methods.speculate.config import draft_config
from refork_methods.speculate.model import build_draft
from refork_methods.speculate.replay import log, serve, traffic
from refork_methods.speculate.rounds import RoundLog
from refork_methods.speculate.schedule import PrefixScheduler
from refork_methods.speculate.step_cost import StepCost, shapes
from support.models import tiny_policy

COST = StepCost.of({b: max(1.0, b / 16) for b in shapes(128)})


def run(*arguments, status=0):
    done = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert done.exit_code == status, done.output
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A log of whole blocks at two loads, and the table it was served with."""
    place = tmp_path_factory.mktemp("log")
    first = 0
    for requests in (4, 12):
        what = traffic(requests, 60, seed=1)
        _, lengths = serve(what, COST, PrefixScheduler(None, "fixed", length=7), may_skip=False)
        RoundLog(place / "rounds.jsonl").append(log(what, COST, lengths, "fixed", first))
        first += 60
    COST.save(place / "cost.json")
    return place


def test_calibrate(folder, tmp_path):
    out = tmp_path / "calibration.json"
    told = json.loads(run("calibrate", folder / "rounds.jsonl", "--out", out, "--fewest", 100, "--json"))
    assert told["fitted_rounds"] == 480
    assert len(told["after"]) == len(told["temperatures"]) == 7
    assert SequentialTemperatureScaling.load(out).temperatures == tuple(told["temperatures"])
    words = run("calibrate", folder / "rounds.jsonl", "--held-out", 0.25)
    assert "fitted on 720 rounds, the rest of the table is of 240 others" in words


def test_calibrate_says_what_a_crash_cut_off(folder, tmp_path):
    file = tmp_path / "torn.jsonl"
    file.write_bytes((folder / "rounds.jsonl").read_bytes()[:-9])
    done = CliRunner().invoke(app, ["calibrate", str(file)], catch_exceptions=False)
    assert done.exit_code == 0
    assert "1 lines that a crash cut off" in done.stderr


def test_replay(folder, tmp_path):
    picture = tmp_path / "load.svg"
    SequentialTemperatureScaling((1.0,) * 7, (900,) * 7).save(tmp_path / "c.json")
    told = json.loads(
        run(
            "replay", folder / "rounds.jsonl", "--cost", folder / "cost.json",
            "--calibration", tmp_path / "c.json", "--schedule", "early_stop",
            "--schedule", "fixed:2", "--svg", picture, "--json",
        )
    )  # fmt: skip
    assert [one["name"] for one in told["schedules"]] == ["logged", "early_stop", "fixed:2"]
    assert told["schedules"][1]["realised"] > told["schedules"][0]["realised"]
    assert picture.read_text().startswith("<svg")
    words = run("replay", folder / "rounds.jsonl", "--cost", folder / "cost.json")
    assert "measured over modelled time of what was logged: 1.000" in words
    assert "vllm" in words


def test_check_lossless_of_rules():
    words = run("check-lossless", "--schedule", "early_stop")
    assert "early_stop: lossless; largest total variation" in words
    told = json.loads(run("check-lossless", "--schedule", "retrospective", "--json", status=1))
    assert told[0]["max_tv"] > 0.05


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A tiny target on disk, and a drafter that was never trained."""
    from refork.policies.local import LocalPolicy

    place = tmp_path_factory.mktemp("models")
    policy = tiny_policy()
    policy.model.save_pretrained(place / "target")
    policy.codec.tokenizer.save_pretrained(place / "target")
    target = LocalPolicy.load(str(place / "target"))
    draft = build_draft(draft_config(target, layers=1, rank=4, block=3), target)
    save_draft(draft, draft.config, place / "drafter")
    return place


def test_profile(models, tmp_path):
    out = tmp_path / "cost.json"
    options = ["--tokens", 4, "--requests", 2, "--repeats", 1, "--context", 8]
    told = json.loads(
        run(
            "profile",
            "--model",
            models / "target",
            "--drafter",
            models / "drafter",
            *options,
            "--out",
            out,
            "--json",
        )
    )
    assert StepCost.load(out).to_json() == told
    assert [b for b, _ in told["verify"]] == [1, 2, 3, 4]
    assert [r for r, _ in told["draft"]] == [1, 2]
    assert "pass of     4 tokens" in run("profile", "--model", models / "target", *options)


def test_check_lossless_of_a_decoder(models):
    """Level 0.001 over five settings, fixed seed."""
    words = run(
        "check-lossless", "--model", models / "target", "--drafter", models / "drafter", "--rule", "coupled",
        "--prompt", "ab", "--samples", 120, status=1,
    )  # fmt: skip
    # A random model says nearly every token equally often: under two settings the samples test nothing.
    assert ": not certified; least corrected p" in words
    assert "over 3 distributions" in words
    assert words.count("not tested, too few samples") == 2
    assert "greedy answers that differ: 0" in words
    assert "an exact one fails once in 1000" in words
    assert words.count("samples") == 5


def test_what_cannot_be_asked(models):
    from refork.errors import BadInput

    for arguments, words in (
        (["check-lossless", "--model", models / "target"], "needs its drafter"),
        (["check-lossless", "--schedule", "best"], "no schedule"),
        (["check-lossless", "--model", models / "none"], "no such folder"),
        (["replay", models / "none", "--cost", models / "none"], "no such file"),
    ):
        with pytest.raises(BadInput, match=words):
            run(*arguments)


def test_numbers_stay_numbers(folder):
    """JSON holds no NaN: what was never computed is null."""
    told = run("calibrate", folder / "rounds.jsonl", "--json")
    assert "NaN" not in told
    assert np.isfinite(json.loads(told)["ece_after"])


def test_a_calibration_that_fitted_nothing_says_so(folder):
    assert "nothing was fitted" in run("calibrate", folder / "rounds.jsonl", "--fewest", 10_000)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("calibrate", "rounds.jsonl", "--out", "rounds.jsonl/c.json"), "could not be written"),
        (("replay", "rounds.jsonl", "--cost", "nan.jsonl"), "speculate profile --out"),
        (("calibrate", "nan.jsonl"), "nan.jsonl:1"),
    ],
)
def test_what_cannot_be_read_or_written_is_named(folder, arguments, said, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "nan.jsonl").write_text('{"logits":[NaN],"drafted":1,"accepted":0}\n')
    with pytest.raises(UserError, match=said):
        run(*arguments)
