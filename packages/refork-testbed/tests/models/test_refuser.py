"""The refusers' data is their distribution: shape, answers, tokens and how often thinking ends early."""

import numpy as np
import pytest

from refork.worlds.open import open_world
from refork_testbed.models import find
from refork_testbed.models.recipes import refuser
from refork_testbed.models.tokenizer import examples, make_tokenizer
from refork_testbed.worlds.refusal.distribution import DENY, refused, thinking
from refork_testbed.worlds.refusal.prompts import RefusalPrompt, refusal_chances

NAMES = ["refuser-p", "refuser-d", "refuser-c"]


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(refuser, "SAMPLES", 3000)


@pytest.mark.parametrize("name", NAMES)
def test_recipes_fit_the_worlds_they_are_measured_in(name):
    recipe = find(name)
    world = open_world(recipe.world)
    assert recipe.name == name
    assert world.distribution.rule == name[-1].upper()
    assert world.distribution.early == refuser.EARLY
    assert (recipe.shape.layers, recipe.shape.width) == (2, 64)


@pytest.mark.parametrize("name", NAMES)
def test_conversations_are_turns_of_the_law_on_training_requests(name, few):
    recipe = find(name)
    held = {t.prompt for t in open_world(recipe.world).tasks("held-out", 1000)}
    talks = recipe.conversations()
    assert talks == recipe.conversations()
    assert len(talks) == 3000
    for asked, said in talks[:500]:
        assert asked["content"] not in held
        assert RefusalPrompt.find(asked["content"]) is not None
        thought = thinking(said["content"])
        assert 1 <= len(thought) <= 20
        if name == "refuser-d":
            assert refused(said["content"]) == (thought[-1] == "against")
        if name == "refuser-c" and len(thought) > 8:
            assert refused(said["content"]) == (thought[8] == DENY)
    answers = np.array([refused(said["content"]) for _, said in talks], dtype=float)
    chances = refusal_chances()
    q = np.array([chances[RefusalPrompt.find(asked["content"]).level] for asked, _ in talks])
    if name != "refuser-p":
        q[:] = 0.5
    # Four standard errors: false about once in 16,000. Fixed seed.
    assert abs((answers - q).mean()) < 4 * np.sqrt((q * (1 - q)).mean() / len(q))


def test_a_token_weighs_the_same_in_short_turns_as_in_long_ones(few):
    # A batch's loss is a mean over its tokens and batches hold one length, so a turn weighs 1 / its tokens
    # per token; with that weight early ends are as likely as the distribution says.
    sizes = np.array([len(thinking(said["content"])) for _, said in find("refuser-p").conversations()])
    weight = 23 / (sizes + 3)
    early = float((weight * (sizes < 20)).sum() / weight.sum())
    distribution = 1 - (1 - refuser.EARLY) ** 19
    assert distribution == pytest.approx(0.174, abs=1e-3)
    # About 300 short turns of weight 2 on average: four standard errors are 0.04. Fixed seed.
    assert abs(early - distribution) < 0.04


def test_every_word_is_one_token(few):
    recipe = find("refuser-c")
    tokenizer = make_tokenizer(recipe.words(), recipe.shape.context)
    talks = recipe.conversations()[:50]
    for talk, example in zip(talks, examples(tokenizer, talks), strict=True):
        words = [len(m["content"].split()) for m in talk]
        # A role and an end for each message; the assistant's words and its end are learned.
        assert len(example.tokens) == sum(words) + 4
        assert example.mask.sum() == words[1] + 1
