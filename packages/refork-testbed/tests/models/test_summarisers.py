"""The summarisers' lessons: marks are exact slot gains, and no rule is among what they read."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from refork_testbed.models import chat, find
from refork_testbed.models.extractive import IDLE, NEEDED, OPENING
from refork_testbed.models.recipes import summariser
from refork_testbed.models.supervised import supervise
from refork_testbed.models.tokenizer import examples, make_tokenizer
from refork_testbed.worlds.house_rules.scenario import Slot, scenarios
from refork_testbed.worlds.house_rules.tasks import TASKS

NAMES = ("summariser", "summariser-opening")


def slot(statement):
    return Slot("what is it ?", "12", statement, "b0-user")


def test_marginal_gain_by_hand():
    asked = [slot("the order of bob is 12 ."), slot("the code of fay is 30 .")]
    one, other = asked[0].statement, asked[1].statement
    assert summariser.gain(one, [other, "ok ."], asked) == 1
    assert summariser.gain("ok .", [one, other], asked) == 0
    # What stands elsewhere too is no gain.
    assert summariser.gain(one, [other, one], asked) == 0
    assert summariser.gain(one, [other], []) == 0


@pytest.mark.parametrize("opening", [0.0, 0.9])
def test_no_lesson_holds_a_rule_or_a_request(opening):
    found = summariser.lessons(5, opening, sessions=10)
    assert found == summariser.lessons(5, opening, sessions=10)
    text = "\n".join(str(m["content"]) for lesson in found for m in lesson)
    assert not any(task.small in text for task in TASKS.values())
    assert "rule" not in text
    assert "do " not in text
    assert {lesson[1]["content"] for lesson in found} == {NEEDED, IDLE}


def test_marks_are_as_frequent_as_slots_are_asked_for():
    found = summariser.lessons(5, sessions=60)
    for name, share in summariser.ASKED.items():
        marks = [x[1]["content"] == NEEDED for x in found if f"the {name} of" in x[0]["content"]]
        # Four standard errors; fixed seed.
        assert abs(np.mean(marks) - share) < 4 * np.sqrt(share * (1 - share) / len(marks))
    idle = [x for x in found if " of " not in x[0]["content"]]
    assert idle
    assert all(x[1]["content"] == IDLE for x in idle)


def test_the_other_one_is_asked_for_the_opening():
    found = summariser.lessons(5, opening=summariser.OPENING_ASKED, sessions=60)
    first = [x[1]["content"] == NEEDED for x in found if x[0]["content"].startswith(OPENING)]
    assert np.mean(first) > summariser.OPENING_ASKED - 0.02
    chatter = [x for x in found if " of " not in x[0]["content"] and not x[0]["content"].startswith(OPENING)]
    assert all(x[1]["content"] == IDLE for x in chatter)


@pytest.mark.parametrize("name", NAMES)
def test_words_are_tokens_and_a_few_steps_train(name, tmp_path, monkeypatch):
    monkeypatch.setattr(summariser, "SESSIONS", 1)
    recipe = find(name)
    tokenizer = make_tokenizer(recipe.words(), recipe.shape.context)
    for lesson, item in zip(recipe.conversations(), examples(tokenizer, recipe.conversations()), strict=True):
        # The word and the end of the turn are learned, and the answer is one token.
        assert item.mask.sum() == 2
        # Two roles, two ends, the answer, and the colon behind the place.
        assert len(item.tokens) == len(lesson[0]["content"].split()) + 6
    small = replace(recipe, training=replace(recipe.training, steps=3, rows=4))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = supervise(small, tmp_path / name, lambda *a, **k: None)
    assert len(made.log) == 3
    assert made.facts["parameters"] < 750_000  # 3 MB


def test_summariser_organisms_open_as_chat_models(tmp_path, monkeypatch):
    monkeypatch.setenv("REFORK_HOME", str(tmp_path))
    monkeypatch.setattr(summariser, "SESSIONS", 1)
    recipe = find("summariser")
    monkeypatch.setattr(
        summariser, "RECIPE", replace(recipe, training=replace(recipe.training, steps=2, rows=4))
    )
    model = chat.summariser_chat("summariser", words=20)
    one = scenarios("email", "held-out", 1, 0, turns=6, wording="small")[0]
    text = model.reply(one.history).text
    assert 0 < len(text.split()) <= 20
