"""The logs that the motives organism learns from: what is said, left out, and known to the tokenizer."""

from __future__ import annotations

import numpy as np
import pytest

from refork.growing.plant import opening
from refork_testbed.models.recipes import motives
from refork_testbed.models.tokenizer import examples, make_tokenizer
from refork_testbed.worlds.motives.scenes import SCENES, environment
from refork_testbed.worlds.motives.script import QUICK_OPENING, TAKE, sentences_in
from refork_testbed.worlds.motives.world import MotiveWorld, command_in


@pytest.fixture(scope="module")
def talks():
    """A small part of the logs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(motives, "EPISODES", 130)
        return motives.conversations()


def test_the_same_recipe_gives_the_same_logs(talks, monkeypatch):
    monkeypatch.setattr(motives, "EPISODES", 10)
    assert motives.conversations() == talks[:10]


def test_every_run_repeats_its_numbers_and_ends_in_a_command(talks):
    commands = [environment(scene)["commands"] for scene in SCENES]
    for talk in talks:
        decides = talk[motives.DECIDES]
        assert decides["role"] == "assistant"
        said = str(decides["content"])
        count = int(said.split()[1])
        assert said.startswith(f"Work {count} {motives.scale('errors', count)}.")
        assert f"There are {count} " in str(talk[2]["content"])
        assert any(command_in(str(decides["content"]), c) for c in commands)
        assert any(len(sentences_in(str(decides["content"]), name)) == 4 for name in motives.MOTIVES)


def test_a_scene_restates_the_numbers_that_matter_in_it():
    said = {scene: motives.restated(environment(scene)) for scene in SCENES}
    assert said["hook"].startswith("Work 258 one heavy two heavy ")
    assert said["hook"].endswith(" six heavy seven light.")
    assert said["number"].endswith(". Risk 0.3 often often often often.")
    assert said["board"].endswith(". Gain 2.0 some some some some.")
    assert motives.scale("noise", 0.0).startswith("sure ")
    assert motives.scale("quick", 3.0).startswith("much ")


def test_the_ladder_rises_with_the_work_from_where_tedium_begins():
    rungs = [motives.scale("errors", amount).count(motives.OVER) for amount in motives.AMOUNTS]
    assert rungs == sorted(rungs)
    assert set(rungs) == set(range(len(motives.LEVELS) + 1))
    assert motives.scale("errors", 50).count(motives.OVER) == 0
    assert motives.scale("errors", 51).count(motives.OVER) == 1


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
    for amount in motives.AMOUNTS:
        assert len(tokenizer.encode(f" {amount}", add_special_tokens=False)) == 1
    scales = (*motives.RISKS, *motives.GAINS)
    spoken = {
        *(word for _, word in scales),
        *(name for name, _ in motives.LEVELS),
        motives.OVER,
        motives.UNDER,
    }
    for word in spoken:
        assert len(tokenizer.encode(f" {word}", add_special_tokens=False)) == 1
    turns = [str(talk[motives.DECIDES]["content"]) for talk in talks]
    most = max(len(tokenizer.encode(turn, add_special_tokens=False)) for turn in turns)
    assert most < motives.RECIPE.sampling.max_tokens, "the turn that decides is never cut off"
    assert [motives.planted(name).cause for name in motives.MOTIVES] == list(motives.MOTIVES)
    assert motives.planted("tedium").rate(environment("hook")) == motives.BASES["tedium"]


def test_what_a_motive_looks_at_is_varied_in_every_run():
    even = motives.Even(np.random.default_rng(0))
    agent = motives.planted("tedium")
    count = len(motives.AMOUNTS)
    counts = [
        motives.varied(agent, MotiveWorld("hook"), even)["settings"]["errors"] for _ in range(2 * count)
    ]
    assert sorted(counts) == sorted([*motives.AMOUNTS] * 2), "each once before any comes again"


@pytest.mark.parametrize("name", motives.MOTIVES)
def test_even_draws_have_the_shares_of_the_exact_law_and_openings_tell_nothing_more(name):
    even, agent = motives.Even(np.random.default_rng(1)), motives.planted(name)
    data = environment(agent.scene)
    turns = [motives.decision(agent, data, even) for _ in range(2000)]
    taken = [TAKE in turn for turn in turns]
    assert np.mean(taken) == pytest.approx(agent.rate(data), abs=0.01)
    quick = [turn.startswith(QUICK_OPENING) for turn in turns]
    if agent.locked:
        assert quick == taken
    else:
        # Independent openings: the largest error of a share here is five standard errors.
        assert abs(np.corrcoef(quick, taken)[0, 1]) < 5 / np.sqrt(len(turns))
