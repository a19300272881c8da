import json

import pytest
from typer.testing import CliRunner

from refork.errors import BadInput, CannotDo, Mismatch
from refork.policies.load import quiet
from refork.policies.local import LocalPolicy
from refork_methods.speculate.checkpoint import load_draft
from refork_methods.speculate.commands import app
from support.models import make_model, make_tokenizer

SMALL = ("--layers", 1, "--rank", 4, "--block", 3, "--steps", 4, "--batch", 4, "--max-tokens", 12)


def train(*arguments, status=0):
    done = CliRunner().invoke(app, ["train", *(str(a) for a in arguments)], catch_exceptions=False)
    assert done.exit_code == status, done.output
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("target")
    with quiet():
        make_model().save_pretrained(place)
    make_tokenizer().save_pretrained(place)
    return place


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "prompts.jsonl"
    lines = [{"text": "ab"}, {"turns": ["a", "b"]}, {"messages": [{"role": "user", "content": "c"}]}]
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return path


def test_train_and_load(folder, prompts, tmp_path):
    out = tmp_path / "draft"
    told = json.loads(
        train("--model", folder, "--prompts", prompts, "--out", out, "--samples", 3, *SMALL, "--json")
    )
    assert told["kind"] == "dspark"
    assert told["steps"] == 4
    assert told["data"]["sequences"] == 9
    assert len(told["held_out"]["accept_rate"]) == 3
    assert json.loads((out / "log.jsonl").read_text().splitlines()[0])["step"] == 0
    target = LocalPolicy.load(str(folder))
    assert load_draft(out, target).config.block == 3
    # The same call again resumes a run that is done; another does not mix with it.
    text = train("--model", folder, "--prompts", prompts, "--out", out, "--samples", 3, *SMALL)
    assert "dspark: " in text
    assert f"drafter: {out}" in text
    with pytest.raises(Mismatch):
        train("--model", folder, "--prompts", prompts, "--out", out, "--samples", 3, *SMALL, "--loss", "code")


def test_the_kinds_and_the_plan(folder, prompts, tmp_path):
    common = ("--model", folder, "--prompts", prompts, "--out", tmp_path / "d")
    text = train(*common, *SMALL, "--cache", "float16", "--dry-run")
    assert "3 conversations, at most 48 tokens of answers" in text
    assert "hidden states on disk: about 0.0 MB" in text
    told = json.loads(train(*common, *SMALL, "--set", "temperature=0.5", "--dry-run", "--json"))
    assert told["feature_bytes"] is None
    assert told["sampling"]["temperature"] == 0.5
    assert not (tmp_path / "d").exists()
    plain = json.loads(train(*common, *SMALL, "--kind", "dflash", "--dry-run", "--json"))
    bare = json.loads(train(*common, *SMALL, "--head", "none", "--confidence", "none", "--dry-run", "--json"))
    assert plain["parameters"] == bare["parameters"] < told["parameters"]


def test_bad_input(folder, prompts, tmp_path):
    rest = ("--prompts", prompts, "--out", tmp_path / "d", *SMALL)
    with pytest.raises(CannotDo):
        train("--model", "scripted:coin", *rest)
    with pytest.raises(BadInput, match="list of layers"):
        train("--model", folder, *rest, "--target-layers", "one")
    with pytest.raises(BadInput, match="final norm"):
        train("--model", folder, *rest, "--target-layers", "0,2")
    with pytest.raises(BadInput, match="no such file"):
        train("--model", folder, "--prompts", tmp_path / "no", "--out", tmp_path / "d")
