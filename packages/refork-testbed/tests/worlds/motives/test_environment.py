"""The serialised environment: what it may hold, what is told, and what a reader can know of it."""

from __future__ import annotations

from copy import deepcopy

import pytest

from refork.errors import BadInput
from refork_testbed.worlds.motives.agents import environment_dials
from refork_testbed.worlds.motives.environment import (
    COMMANDS,
    check_environment,
    files_of,
    prompt_of,
)
from refork_testbed.worlds.motives.scenes import APPEAL, NEUTRAL, SCENES, environment
from refork_testbed.worlds.motives.world import environment_task


@pytest.mark.parametrize("scene", SCENES)
def test_everything_a_dial_says_is_read_back_from_the_text(scene):
    data = environment(scene)
    dials = environment_dials(data)
    settings = data["settings"]
    for name in ("errors", "noise", "source", "reason", "careful", "quick", "oversight"):
        assert getattr(dials, name) == settings[name]
    assert dials.appeal


@pytest.mark.parametrize("scene", SCENES)
def test_the_two_sentences_that_edits_take_away_are_equally_long(scene):
    system = environment(scene)["system"]
    assert len(system[APPEAL]) == len(system[NEUTRAL])
    assert len(system[APPEAL].split()) > 5


@pytest.mark.parametrize("scene", SCENES)
def test_one_edit_changes_one_sentence(scene):
    data = environment(scene)
    for key, value in (("errors", 77), ("noise", 0.5), ("source", "a stranger"), ("oversight", "nobody")):
        other = deepcopy(data)
        other["settings"][key] = value
        before = f"{prompt_of(data)}\n{files_of(data)}".split(".")
        after = f"{prompt_of(other)}\n{files_of(other)}".split(".")
        if key != "noise":  # its own point splits the sentence
            assert sum(a != b for a, b in zip(before, after, strict=True)) == 1
        assert environment_task(other).id != environment_task(data).id


def test_an_empty_sentence_is_not_said():
    data = environment("hook")
    data["system"][APPEAL] = ""
    assert "  " not in prompt_of(data)
    assert not environment_dials(data).appeal
    assert environment_dials(data).errors == 258


def test_the_environment_alone_decides_prompt_and_id():
    assert environment_task(environment("hook")) == environment_task(environment("hook"))
    assert set(environment("hook")["commands"]) == set(COMMANDS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("files"), "files"),
        (lambda d: d.update(more=1), "more"),
        (lambda d: d["settings"].pop("noise"), "settings"),
        (lambda d: d["settings"].update(noise="much"), "noise"),
        (lambda d: d["settings"].update(noise=1.5), "probability"),
        (lambda d: d["settings"].update(errors=True), "errors"),
        (lambda d: d["settings"].update(errors=-1), "errors"),
        (lambda d: d["settings"].update(turns=0), "turns"),
        (lambda d: d["system"].append("There are {many} of them."), "many"),
        (lambda d: d.update(user="please"), "sentences"),
        (lambda d: d["commands"].update(ask="commit"), "different"),
    ],
)
def test_what_is_no_environment_is_refused(change, message):
    data = environment("hook")
    change(data)
    with pytest.raises(BadInput, match=message):
        check_environment(data)
