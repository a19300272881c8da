import json
import sys

import pytest

from refork.errors import BadInput, MissingExtra
from refork_methods.train.tracker import (
    JsonLines,
    Several,
    Tracker,
    open_tracker,
    read_lines,
)


def test_a_step_logged_again_replaces_what_came_after(tmp_path):
    file = tmp_path / "run" / "metrics.jsonl"
    both = Several(JsonLines(file), JsonLines(tmp_path / "other.jsonl"))
    for step in (1, 2, 3, 2):
        both.log(step, {"loss": step * 10})
    both.close()
    assert [row["step"] for row in read_lines(file)] == [1, 2]
    assert read_lines(tmp_path / "other.jsonl") == read_lines(file)
    with file.open("a") as out:
        out.write('{"step": 3, "lo')
    assert len(read_lines(file)) == 2
    assert isinstance(both, Tracker)


def test_tensorboard_is_told_too(tmp_path):
    told = open_tracker(tmp_path, "tensorboard")
    told.log(1, {"loss": 0.5, "kl": None})
    told.close()
    assert list((tmp_path / "tensorboard").iterdir())
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == {"step": 1, "loss": 0.5, "kl": None}


@pytest.mark.parametrize(
    ("name", "module", "command"),
    [
        ("tensorboard", "torch.utils.tensorboard", "pip install 'tensorboard>="),
        ("wandb:team/project", "wandb", "pip install 'wandb>="),
    ],
)
def test_a_missing_tool_names_its_command(tmp_path, monkeypatch, name, module, command):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=command):
        open_tracker(tmp_path, name)


def test_an_unknown_tool_is_refused(tmp_path):
    with pytest.raises(BadInput, match="names no tracker"):
        open_tracker(tmp_path, "paper")
    assert isinstance(open_tracker(tmp_path), JsonLines)
