from __future__ import annotations

import json
import threading
from dataclasses import replace

import pytest

from refork.errors import BadInput, Mismatch
from refork.worlds import open_world
from refork_worlds.reasoning_gym import Extraction, score_in_time

SUMS = "reasoning-gym:chain_sum?min_terms=2&max_terms=3&min_digits=1&max_digits=2"


def test_answers_are_graded_by_the_dataset():
    world = open_world(SUMS)
    for task in world.tasks("train", 10):
        entry = world.entry(task)
        assert task.prompt == entry["question"]
        right = world.start(task, 0).step(f" {entry['answer']}\n")
        assert (right.done, right.reward) == (True, 1.0)
        assert world.start(task, 0).step("no idea").reward < 1.0
        assert world.start(task, 0).step("").reward == 0.0


@pytest.mark.parametrize(
    ("extraction", "action", "answer"),
    [
        (Extraction(), " 4 2\n", "4 2"),
        (Extraction(compact=True), " - 4 2\n", "-42"),
        (Extraction(tag=True), "so <answer>1</answer> no <answer> 42 </answer>", "42"),
        (Extraction(tag=True), "<answer>4\n2</answer>", "4\n2"),
        (Extraction(tag=True), "42", None),
        (Extraction(after="answer"), "3 + 4 = 7 answer 6 answer 7", "7"),
        (Extraction(after="answer", compact=True), "answer - 1 2", "-12"),
        (Extraction(after="answer"), "7", None),
        (Extraction(after="answer"), "answer", ""),
    ],
)
def test_extraction(extraction, action, answer):
    assert extraction(action) == answer


def test_extraction_options():
    world = open_world(SUMS + "&after=answer&compact=true")
    task = world.tasks("train", 1)[0]
    answer = world.entry(task)["answer"]
    spelled = " ".join(answer)
    assert world.start(task, 0).step(f"first this then that answer {spelled}").reward == 1.0
    assert world.start(task, 0).step(spelled).reward == 0.0
    tagged = open_world(SUMS + "&extract=tag")
    task = tagged.tasks("train", 1)[0]
    assert "<answer>" in task.prompt
    seen = tagged.start(task, 0).step(f"<answer>{answer}</answer>")
    assert seen.info == {"answer": answer}


def test_a_grader_that_fails_leaves_the_reward_unknown(monkeypatch):
    world = open_world(SUMS)
    task = world.tasks("train", 1)[0]
    dataset = world._dataset(task.data["settings"], task.data["seed"])

    def broken(answer, entry):
        raise RuntimeError("out of ink")

    monkeypatch.setattr(dataset, "score_answer", broken, raising=False)
    seen = world.start(task, 0).step("3")
    assert seen.done
    assert seen.reward is None
    assert "out of ink" in seen.info["ungraded"]


def test_a_grader_that_hangs_leaves_the_reward_unknown():
    stop = threading.Event()
    reward, reason = score_in_time(stop.wait, 0.01)
    stop.set()
    assert reward is None
    assert "longer than 0.01 s" in str(reason)


def test_a_grader_that_gives_no_number_leaves_the_reward_unknown():
    assert score_in_time(lambda: float("nan"), 5) == (None, "the grader gave nan")
    assert score_in_time(lambda: "four", 5)[0] is None
    assert score_in_time(lambda: 0, 5) == (0.0, None)


def test_equal_questions_stand_in_one_split():
    tiny = open_world("reasoning-gym:chain_sum?min_terms=2&max_terms=2&min_digits=1&max_digits=1")
    train, held = tiny.tasks("train", 60), tiny.tasks("held-out", 20)
    other = tiny.tasks("held-out", 20, seed=5)
    assert {t.prompt for t in train}.isdisjoint(t.prompt for t in [*held, *other])
    assert len({t.prompt for t in train}) == 60
    with pytest.raises(BadInput, match="found only"):
        tiny.tasks("held-out", 500)


def test_a_changed_question_is_a_mismatch():
    world = open_world(SUMS)
    task = world.tasks("train", 1)[0]
    changed = replace(task, data=task.data | {"question": "what?"})
    with pytest.raises(Mismatch, match="what\\?"):
        world.start(changed, 0)


@pytest.mark.parametrize("dataset", ["basic_arithmetic", "leg_counting", "spell_backward", "number_sorting"])
def test_other_datasets(dataset):
    world = open_world(f"reasoning-gym:{dataset}")
    task = world.tasks("held-out", 1)[0]
    assert world.start(task, 0).step(world.entry(task)["answer"]).reward == 1.0


def test_lists_are_settings_too_and_survive_json():
    world = open_world('reasoning-gym:basic_arithmetic?operators=["+"]&allow_parentheses=false')
    task = world.tasks("train", 1)[0]
    assert json.loads(json.dumps(task.data)) == task.data
    assert not set(task.prompt) & set("*/")
    assert open_world(task.world).start(task, 0).step(world.entry(task)["answer"]).reward == 1.0
