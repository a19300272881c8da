import json

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from refork.errors import BadInput, CannotDo
from refork.policies.load import quiet
from refork.policies.local import LocalPolicy
from refork_methods.speculate.checkpoint import load_draft, save_draft
from refork_methods.speculate.commands import app
from refork_methods.speculate.config import draft_config
from refork_methods.speculate.model import build_draft
from support.models import make_model, make_tokenizer


def call(*arguments):
    done = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    place = tmp_path_factory.mktemp("target")
    with quiet():
        make_model().save_pretrained(place)
    make_tokenizer().save_pretrained(place)
    return place


@pytest.fixture(scope="module")
def ours(model, tmp_path_factory):
    """A drafter of each kind, in folders."""
    place, target = tmp_path_factory.mktemp("drafts"), LocalPolicy.load(str(model))
    for kind in ("dspark", "dflash"):
        config = draft_config(target, kind, layers=1, rank=4, block=3, mask_token=5)
        save_draft(build_draft(config, target), config, place / kind)
    return place


def test_there_and_back(model, ours, tmp_path):
    given = ("--model", model, "--json")
    told = json.loads(
        call("export", ours / "dspark", *given, "--layout", "speculators", "--out", tmp_path / "theirs")
    )
    assert told == {"layout": "speculators", "folder": str(tmp_path / "theirs"), "kind": "dspark"}
    config = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert config["speculators_config"]["verifier"]["name_or_path"] == str(model)
    told = json.loads(call("import", tmp_path / "theirs", *given, "--out", tmp_path / "back"))
    assert told["layout"] == "speculators"
    assert told["draft"]["kind"] == "dspark"
    target = LocalPolicy.load(str(model))
    before, after = (load_draft(f, target).state_dict() for f in (ours / "dspark", tmp_path / "back"))
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_in_words(model, ours, tmp_path):
    said = call(
        "export", ours / "dflash", "--model", model, "--layout", "transformers", "--out", tmp_path / "hf"
    )
    assert "transformers" in said
    assert "encoder.fc.weight" in load_file(tmp_path / "hf" / "model.safetensors")
    call("export", ours / "dflash", "--model", model, "--layout", "speculators", "--out", tmp_path / "z")
    said = call("import", tmp_path / "z", "--model", model, "--out", tmp_path / "back")
    assert "speculators: dflash drafter of 1 layers, 3 tokens a round, head none" in said


def test_what_cannot_be_is_refused(model, ours, tmp_path):
    arguments = ["--model", str(model), "--out", str(tmp_path / "out")]
    for verb, folder, rest, error in (
        ("export", ours / "dflash", ["--layout", "deepspec"], CannotDo),
        ("import", ours / "dflash", [], BadInput),
        ("import", tmp_path / "nowhere", [], BadInput),
    ):
        with pytest.raises(error):
            CliRunner().invoke(app, [verb, str(folder), *arguments, *rest], catch_exceptions=False)
        assert not (tmp_path / "out").exists()


def test_an_import_never_writes_over_a_folder(model, ours, tmp_path):
    theirs = tmp_path / "theirs"
    call("export", ours / "dflash", "--model", model, "--layout", "speculators", "--out", theirs)
    before = (ours / "dspark" / "draft.safetensors").read_bytes()
    with pytest.raises(BadInput, match="holds something"):
        call("import", theirs, "--model", model, "--out", ours / "dspark")
    assert (ours / "dspark" / "draft.safetensors").read_bytes() == before
