import json

import pytest
from typer.testing import CliRunner

from refork.errors import BadInput
from refork.policies.load import quiet
from refork_methods.speculate.checkpoint import save_draft
from refork_methods.speculate.commands import app
from refork_methods.speculate.rounds import read_rounds
from support.drafters import gqa, knowing


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    target, place = gqa(), tmp_path_factory.mktemp("bench")
    with quiet():
        target.model.save_pretrained(place / "target")
    target.codec.tokenizer.save_pretrained(place / "target")
    draft = knowing(target)
    save_draft(draft, draft.config, place / "draft")
    (place / "prompts.jsonl").write_text('{"text": "ab"}\n{"turns": ["c"]}\n')
    return place


def bench(place, *arguments):
    told = ["bench", place / "prompts.jsonl", "--model", place / "target", "--drafter", place / "draft"]
    return CliRunner().invoke(app, [str(a) for a in (*told, *arguments)], catch_exceptions=False)


def test_the_bench_prints_figures_and_logs_rounds(folders, tmp_path):
    few = ("--batch", 2, "--repeats", 1, "--max-tokens", 10)
    done = bench(folders, *few, "--rounds", tmp_path / "rounds.jsonl", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    [figures] = told["batches"]
    assert (told["rule"], figures["batch"], figures["other_tokens"]) == ("coupled", 2, 0)
    assert figures["rounds"] > 0
    assert len(figures["accept_rate"]) == 4
    rounds, cut_off = read_rounds(tmp_path / "rounds.jsonl")
    assert cut_off == 0
    assert all(len(r.logits) == 4 and r.schedule is None for r in rounds)
    shown = bench(folders, *few, "--rule", "rejection", "--set", "temperature=0.5").stdout
    assert "same distribution" in shown
    assert "log-probs differ" in shown


def test_a_missing_drafter_is_named(folders, tmp_path):
    with pytest.raises(BadInput, match="there is no"):
        bench(folders, "--drafter", tmp_path / "nothing")
