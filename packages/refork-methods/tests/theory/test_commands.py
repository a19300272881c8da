"""``refork theory``: what its verbs print, and how they end."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from refork.errors import BadInput
from refork_methods.theory.chooser import Rule
from refork_methods.theory.commands import app
from refork_methods.theory.cues.designs import random_design
from refork_methods.theory.cues.experiment import CueExperiment
from refork_methods.theory.cues.rules import RULES
from refork_methods.theory.domains import domain_named
from refork_methods.theory.simulate import simulate


def invoke(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    return done.exit_code, done.stdout


def choices(path: Path, rule: Rule, count: int = 6, people: int = 40) -> Path:
    """A CSV of simulated people's trials of several designs."""
    rng = np.random.default_rng(3)
    lines = ["observation,subject_id,option_a_ratings,option_b_ratings,response,validities"]
    for number in range(count):
        design = random_design(rng, cues=(4, 4))
        trials = simulate(rule, design, people, number)
        lines += [
            f'{number},{person},"{list(design.a[at])}","{list(design.b[at])}",{response},"{list(design.validities)}"'
            for person, at, response in zip(trials.person, trials.stimulus, trials.response, strict=True)
        ]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return choices(tmp_path_factory.mktemp("people") / "choices.csv", RULES["take-the-best"])


@pytest.fixture(scope="module")
def folder(people: Path) -> tuple[Path, dict[str, object]]:
    out = people.parent / "run"
    code, said = invoke(
        "run", "--participants", f"csv:{people}", "--theory", "tallying", "--theory", "wadd", "--rounds", "2",
        "--out", str(out), "--json",
    )  # fmt: skip
    assert code == 0
    return out, json.loads(said)


def test_score_ranks_and_draws(people: Path, tmp_path: Path) -> None:
    code, said = invoke(
        "score", str(people), "--draws", "300", "--redraws", "100", "--pictures", str(tmp_path)
    )
    assert code == 0
    assert said.splitlines()[2].startswith("take-the-best")
    assert "winner: take-the-best" in said
    assert (tmp_path / "dial.svg").exists()
    assert not (tmp_path / "utility.svg").exists()
    named = ("--theory", "seed:tallying", "--theory", "wadd")
    code, said = invoke("score", str(people), *named, "--redraws", "100", "--draws", "100", "--json")
    told = json.loads(said)
    assert {one["name"] for one in told["theories"]} == {"tallying", "wadd"}
    assert told["people"] == 240


def test_score_names_no_winner_where_none_fits_and_where_the_first_are_not_told_apart(
    people: Path, tmp_path: Path
) -> None:
    """Wrong theories that beat a coin, one of them twice under two names: an answer, and no winner."""
    text = "form:personal,identity,none,any,some"
    code, said = invoke("score", str(people), "--theory", "wadd", "--theory", "dial", "--draws", "300",
                        "--redraws", "100")  # fmt: skip
    assert code == 0
    assert "nearest, does not fit: dial (error 0." in said
    assert "each at its best strength" in said
    assert "winner" not in said
    mine = tmp_path / "mine.yaml"
    mine.write_text(
        domain_named("cues").grammar.theory(text.removeprefix("form:").split(","), "mine").to_yaml()
    )
    told = json.loads(
        invoke("score", str(people), "--theory", "wadd", "--theory", str(mine), "--draws", "300", "--redraws",
               "100", "--json")[1]
    )  # fmt: skip
    assert told["winner"] is None
    assert set(told["decision"]["nearest"]) == {"wadd", "mine"}
    assert told["decision"]["claim"] == "does not fit"
    assert set(told["differences_at_strength"]) == set(told["differences"])


def test_score_says_where_nothing_is_better_than_a_coin(tmp_path: Path) -> None:
    file = choices(tmp_path / "coins.csv", RULES["random"], 2)
    code, said = invoke("score", str(file), "--draws", "100", "--redraws", "100")
    assert code == 1
    assert "no theory is better than a coin" in said


def test_run_and_resume(folder: tuple[Path, dict[str, object]]) -> None:
    out, told = folder
    assert told["state"] == "done"
    code, said = invoke("resume", str(out))
    assert code == 0
    assert "pi_3" in said
    assert json.loads(invoke("resume", str(out), "--json")[1])["digest"] == told["digest"]


def test_heldout_and_audit(folder: tuple[Path, dict[str, object]], people: Path) -> None:
    out, _ = folder
    code, said = invoke("heldout", str(out))
    assert code == 0
    assert "chosen by the search" in said
    told = json.loads(invoke("heldout", str(out), "--choices", str(people), "--json")[1])
    assert len(told["observations"]) == 6
    code, said = invoke("audit", str(out))
    assert code == 0
    assert "everything comes out the same" in said
    assert json.loads(invoke("audit", str(out), "--json")[1])["findings"] == []


def test_an_audit_that_finds_something_ends_with_1(
    folder: tuple[Path, dict[str, object]], people: Path
) -> None:
    out, _ = folder
    events = out / "events.jsonl"
    kept = events.read_text()
    events.write_text(kept.replace('"fault"', '"fault_"').replace('"why":"', '"why":"!', 1))
    code, said = invoke("audit", str(out))
    events.write_text(kept)
    assert code == 1
    assert "the record was changed" in said


def test_power(tmp_path: Path) -> None:
    apart = CueExperiment.of((0.9, 0.8, 0.7), [[1, 0, 0]], [[0, 1, 1]])
    (tmp_path / "one.json").write_text(json.dumps(apart.to_json()))
    code, said = invoke("power", "take-the-best", "tallying", "--design", str(tmp_path / "one.json"))
    assert code == 0
    assert "100% of the designs" in said
    code, said = invoke("power", "take-the-best", "take-the-best", "--designs", "1", "--json")
    assert code == 1
    assert json.loads(said)["passing"]["estimate"] == 0
    (tmp_path / "bad.json").write_text("[]")
    with pytest.raises(BadInput):
        invoke("power", "wadd", "tallying", "--design", str(tmp_path / "bad.json"))


def test_what_is_refused(people: Path, tmp_path: Path) -> None:
    for bad in (
        ("score", str(tmp_path / "none.csv")),
        ("score", str(people), "--theory", "nobody"),
        ("score", str(people), "--validities", "a,b"),
        ("run", "--participants", "wadd", "--out", str(tmp_path / "x")),
        ("run", "--participants", "simulated:wadd", "--out", str(tmp_path / "x"), "--theory", "wadd"),
        ("run", "--participants", "simulated:wadd", "--out", str(tmp_path / "x"), "--scientist", "me"),
        ("resume", str(tmp_path)),
        ("audit", str(tmp_path)),
    ):
        with pytest.raises(BadInput):
            invoke(*bad)
