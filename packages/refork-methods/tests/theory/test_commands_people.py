"""``refork theory serve|export|people``: what they write, print and refuse."""

from __future__ import annotations

import json

import pytest
import yaml
from typer.testing import CliRunner

from refork.errors import BadInput, Mismatch
from refork_methods.theory.commands import app
from refork_methods.theory.cues.experiment import CueExperiment
from refork_methods.theory.people import Conduct, Study, read_results

CUES = CueExperiment.of([0.9, 0.6], [[1, 0], [0, 1]], [[0, 1], [1, 1]])


@pytest.fixture
def files(tmp_path):
    (tmp_path / "pairs.json").write_text(json.dumps(CUES.to_json()))
    return tmp_path


def run(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def test_export_writes_a_page_and_its_texts(files):
    assert run("export", files / "pairs.json", "--write-texts", files / "t.yaml").exit_code == 0
    texts = yaml.safe_load((files / "t.yaml").read_text())
    (files / "t.yaml").write_text(yaml.safe_dump(texts | {"title": "My own title"}))
    out = ("--out", files / "page", "--texts", files / "t.yaml", "--trials", 4)
    told = json.loads(run("export", files / "pairs.json", *out, "--json").stdout)
    assert "<title>My own title</title>" in (files / "page" / "index.html").read_text()
    assert json.loads((files / "page" / "study.json").read_text())["total"] == 4
    assert set(told["files"]) >= {"index.html", "assets/page.css"}
    assert "KiB" in run("export", files / "pairs.json", *out).stdout
    for words in ((), ("--write-texts", files / "t.yaml"), ("--out", files)):
        with pytest.raises(BadInput):
            run("export", files / "pairs.json", *words)


def test_a_rehearsal_is_read_like_results_and_says_what_it_is(files):
    out = files / "r.jsonl"
    run("serve", files / "pairs.json", "--out", out, "--trials", 24, "--seed", 2, "--rehearse", 3)
    shown = run("people", out, "--kept", files / "kept.csv", "--excluded", files / "out.csv")
    assert "a rehearsal" in shown.stdout
    told = json.loads(run("people", out, "--json").stdout)
    rows = (files / "kept.csv").read_text().splitlines(), (files / "out.csv").read_text().splitlines()
    assert (len(rows[0]) - 1, len(rows[1]) - 1) == (24 * told["kept"], 24 * told["left_out"])
    assert told["kept"] + told["left_out"] == 3
    assert "rehearsal" in read_results(out).observation().name
    with pytest.raises(BadInput, match="already"):
        run("serve", files / "pairs.json", "--out", out, "--rehearse", 3)
    with pytest.raises(Mismatch, match="another study"):
        Conduct.open(Study.of(CUES, trials=24, seed=2), out)


def test_people_of_an_empty_study_is_found_to_be_nobody(files):
    Conduct.open(Study.of(CUES), files / "r.jsonl").close()
    assert run("people", files / "r.jsonl").exit_code == 1
    with pytest.raises(BadInput):
        run("people", files / "gone.jsonl")
