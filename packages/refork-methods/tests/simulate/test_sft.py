"""The second stage: who demonstrates, what is kept of it, and that a stopped draw goes on."""

import json
from dataclasses import replace

import pytest

from refork.chat import ScriptedChat
from refork.errors import Mismatch, ServerError
from refork.policies.scripted import ScriptedPolicy
from refork_methods.simulate.encode import Writer
from refork_methods.simulate.prompt import Target, answer, targets
from refork_methods.simulate.reward import HybridReward
from refork_methods.simulate.rubric import RuleRubric
from refork_methods.simulate.sft import (
    Candidates,
    demonstrations,
    encode_demonstrations,
    rejection_sample,
    train_sft,
)
from refork_methods.train.weighted import WeightedSettings
from support.drawers import tiny, trajectory

REWARD = HybridReward(RuleRubric())
ITEMS = targets([trajectory(n) for n in range(3)])


def knowing(messages):
    """Knows drawer a and reasons; says nonsense about b."""
    state = dict(zip(*[iter(messages[0]["content"].split("\n")[1].split())] * 2, strict=False))
    asked = messages[-1]["content"].split()[-1]
    return answer(state["a"], "drawer a is known") if asked == "a" else "no idea"


def test_teacher_is_judged_and_only_the_good_is_kept(tmp_path):
    file = tmp_path / "candidates.jsonl"
    teacher = ScriptedChat(knowing)
    settings = Candidates(draws=2, batch=2)
    kept = rejection_sample(teacher, ITEMS, REWARD, settings, file=file, instruction="Answer in tags.")
    assert kept.share == 0.5
    assert len(teacher.asked) == 12
    assert kept.domains == {"tools": {"total": 6, "kept": 3, "failed": 0, "unreadable": 6, "ungraded": 0}}
    assert [(d.prediction, d.note) for d in kept.demonstrations] == [
        (item.truth, "drawer a is known") for item in ITEMS if item.action == "look a"
    ]
    assert teacher.asked[0][0]["content"].endswith("Answer in tags.")
    # A line that was cut short is drawn again, what is whole is not.
    lines = file.read_text().splitlines()
    file.write_text("\n".join(lines[:3]) + "\n" + lines[3][:20])
    again = ScriptedChat(knowing)
    assert rejection_sample(again, ITEMS, REWARD, settings, file=file, instruction="Answer in tags.") == kept
    assert len(again.asked) == 6
    assert len([json.loads(line) for line in file.read_text().splitlines()]) == 6
    with pytest.raises(Mismatch, match="candidates of another"):
        rejection_sample(again, ITEMS, REWARD, Candidates(draws=3), file=file)


def test_what_the_server_did_not_answer_is_asked_again(tmp_path):
    file, up = tmp_path / "candidates.jsonl", []

    def teach(messages):
        if not up:
            raise ServerError("down")
        return knowing(messages)

    down = rejection_sample(ScriptedChat(teach), ITEMS, REWARD, Candidates(draws=2), file=file)
    assert down.domains == {"tools": {"total": 6, "kept": 0, "failed": 12, "unreadable": 0, "ungraded": 0}}
    assert not file.exists() or not file.read_text()
    up.append(True)
    assert rejection_sample(ScriptedChat(teach), ITEMS, REWARD, Candidates(draws=2), file=file).share == 0.5


def test_a_target_whose_data_changed_is_drawn_anew(tmp_path):
    file, settings = tmp_path / "candidates.jsonl", Candidates(draws=1)
    rejection_sample(ScriptedChat(knowing), ITEMS, REWARD, settings, file=file)
    first = ITEMS[0].trajectory
    turns = (replace(first.turns[0], observation="green"), *first.turns[1:])
    changed = [Target(replace(first, turns=turns), 0), *ITEMS[2:]]
    again = ScriptedChat(knowing)
    kept = rejection_sample(again, changed, REWARD, settings, file=file)
    assert len(again.asked) == 1
    assert changed[0] not in [one.target for one in kept.demonstrations]
    # An answer that is kept though it is not the observed one is not taught with the note of that.
    loose = Candidates(draws=1, least=0.0)
    shown = rejection_sample(ScriptedChat(lambda m: answer("red")), changed[:1], REWARD, loose).demonstrations
    assert [(one.prediction, one.note) for one in shown] == [("red", None)]


def test_policies_teach_in_one_batch_and_the_best_is_taken():
    replies = {answer("red"): 0.5, answer("blue"): 0.5}
    teacher = ScriptedPolicy.from_replies(replies)
    kept = rejection_sample(teacher, ITEMS[:1], REWARD, Candidates(draws=8))
    assert [d.prediction for d in kept.demonstrations] == ["red"]  # drawer a of the first is red
    assert kept.demonstrations[0].note == "drawer a"  # without reasoning of its own, the turn's note


def test_notes_are_demonstrations_too():
    shown = demonstrations(ITEMS)
    assert [d.note for d in shown] == [item.turn.note for item in ITEMS]
    assert demonstrations(targets([trajectory(0)]), noted_only=True) == shown[:2]


def test_answers_are_learned_and_nothing_else():
    policy = tiny()
    shown = demonstrations(ITEMS)
    encoded = encode_demonstrations(Writer(policy.codec), shown)
    for one, item in zip(encoded.sequences, shown, strict=True):
        assert policy.codec.decode(one.tokens[one.weights > 0]) == answer(item.prediction, item.note)
    assert encode_demonstrations(Writer(policy.codec), shown, context=10).left_out == len(shown)
    done = train_sft(policy, shown, WeightedSettings(steps=3, rows=6))
    assert done.log[-1]["loss"] < done.log[0]["loss"]
    assert done.facts["loss_by_class"]["tools"] > 0
