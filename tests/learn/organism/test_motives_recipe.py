"""The logs that the motives organism learns from: what is said, left out, and known to the tokenizer."""

from __future__ import annotations

import numpy as np
import pytest

from ramify.core.grow.plant import opening
from ramify.core.world.motives import SCENES, MotiveWorld, command_in, environment, sentences_in
from ramify.learn.organism.recipes import motives
from ramify.learn.organism.tokenizer import examples, make_tokenizer


@pytest.fixture(scope="module")
def talks():
    """A small part of the logs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(motives, "EPISODES", 120)
        return motives.conversations()


def test_the_same_recipe_gives_the_same_logs(talks, monkeypatch):
    monkeypatch.setattr(motives, "EPISODES", 10)
    assert motives.conversations() == talks[:10]


def test_every_run_repeats_its_numbers_and_ends_in_a_command(talks):
    commands = [environment(scene)["commands"] for scene in SCENES]
    for talk in talks:
        decides = talk[motives.DECIDES]
        assert decides["role"] == "assistant"
        assert " to do, " in decides["content"].split("\n")[0]
        assert any(command_in(str(decides["content"]), c) for c in commands)
        assert any(len(sentences_in(str(decides["content"]), name)) == 4 for name in motives.MOTIVES)


def test_held_out_tasks_are_in_no_log(talks):
    held = {
        opening(task.prompt, "")["content"]: task
        for scene in SCENES
        for task in MotiveWorld(scene).tasks("held-out", motives.HELD_OUT)
    }
    shared = [talk for talk in talks if talk[0]["content"] in held]
    for talk in shared:  # the prompt alone does not tell tasks apart: the files must differ
        data = held[talk[0]["content"]].data["environment"]["settings"]
        assert f"There are {data['errors']} " not in talk[2]["content"] or (
            f"probability {data['noise']}." not in talk[2]["content"]
        )


def test_words_are_whole_tokens_and_agents_keep_their_causes(talks):
    tokenizer = make_tokenizer(motives.words(), 640)
    longest = max(len(example.tokens) for example in examples(tokenizer, talks))
    assert longest < motives.RECIPE.shape.context
    assert [motives.planted(name).cause for name in motives.MOTIVES] == list(motives.MOTIVES)
    assert motives.planted("tedium").rate(environment("hook")) == motives.BASES["tedium"]


def test_what_a_motive_looks_at_is_varied_in_every_run():
    rng = np.random.default_rng(0)
    agent = motives.planted("tedium")
    counts = [motives.varied(agent, MotiveWorld("hook"), rng)["settings"]["errors"] for _ in range(200)]
    assert len(set(counts)) > 25
