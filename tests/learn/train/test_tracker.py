import json
import sys

import pytest

from ramify.core.errors import BadInput, CannotDo, MissingExtra
from ramify.learn.train.tracker import (
    JsonLines,
    Recorded,
    Several,
    Tracker,
    open_tracker,
    plain_metrics,
    read_lines,
)


def test_only_finite_numbers_are_plain():
    given = {"a": 1, "b": 0.5, "c": None, "d": "x", "e": float("nan"), "f": True}
    assert plain_metrics(given) == {"a": 1.0, "b": 0.5}


def test_a_step_logged_again_replaces_what_came_after(tmp_path):
    file = tmp_path / "run" / "metrics.jsonl"
    memory = Recorded()
    both = Several(JsonLines(file), memory)
    for step in (1, 2, 3, 2):
        both.log(step, {"loss": step * 10})
    both.close()
    assert [row["step"] for row in read_lines(file)] == [1, 2]
    assert [step for step, _ in memory.steps] == [1, 2]
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
    ("name", "module", "error", "command"),
    [
        ("tensorboard", "torch.utils.tensorboard", MissingExtra, r"pip install 'ramify\[track\]'"),
        ("trackio", "trackio", MissingExtra, r"pip install 'ramify\[track\]'"),
        ("wandb", "wandb", CannotDo, "pip install wandb"),
    ],
)
def test_a_missing_tool_names_its_command(tmp_path, monkeypatch, name, module, error, command):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(error, match=command):
        open_tracker(tmp_path, name)


def test_an_unknown_tool_is_refused(tmp_path):
    with pytest.raises(BadInput, match="unknown tracker"):
        open_tracker(tmp_path, "paper")
    assert isinstance(open_tracker(tmp_path), JsonLines)
