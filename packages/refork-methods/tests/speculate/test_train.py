import dataclasses
import json
import math
import os
import signal

import numpy as np
import pytest
import torch

from refork.errors import BadInput, Mismatch, WrongTokenizer, WrongWeights
from refork.policies.base import Sampling
from refork.policies.weights import weights_digest
from refork.types import token_array
from refork_methods.speculate.checkpoint import load_draft, save_draft
from refork_methods.speculate.config import draft_config
from refork_methods.speculate.data import Example, Prompt, Recomputed, answers
from refork_methods.speculate.lessons import Chosen, make_lesson, parts, study
from refork_methods.speculate.loss import LossWeights, position_weights
from refork_methods.speculate.model import build_draft
from refork_methods.speculate.train import DraftTraining, split, train_draft
from support.models import tiny_policy

PLAN = DraftTraining(
    steps=8, batch=6, anchors=4, learning_rate=3e-3, held_out=0.2, measure=4, log=2, checkpoint=2
)


@pytest.fixture(scope="module")
def target():
    return tiny_policy()


@pytest.fixture(scope="module")
def data(target):
    prompts = [Prompt(text=f"ab{i}") for i in range(16)]
    return answers(target, prompts, Sampling(max_tokens=20, ignore_eos=True)).examples


@pytest.fixture(scope="module")
def config(target):
    return draft_config(target, layers=1, rank=4, block=4)


@pytest.fixture(scope="module")
def straight(target, data, config, tmp_path_factory):
    return train_draft(target, data, config, PLAN, out=tmp_path_factory.mktemp("straight"))


def test_it_learns_and_says_how(target, straight):
    lines = straight.history
    trained = [line for line in lines if "tau_prob" in line]
    assert [line["step"] for line in lines] == list(range(8))
    assert [line["step"] for line in trained] == [0, 1, 3, 5, 7]
    assert [line["step"] for line in lines if "held_out" in line] == [3, 7]
    assert trained[-1]["loss"] < trained[0]["loss"]
    assert trained[-1]["tau_prob"] > trained[0]["tau_prob"] > 1
    assert len(trained[0]["accept_rate"]) == 4
    assert {"ce", "tv", "conf", "tau_prob", "accept_rate", "confidence_cumprod_bias"} <= set(trained[0])
    assert straight.held_out is not None
    assert straight.held_out.tau_prob > 1
    written = [json.loads(line) for line in (straight.folder / "log.jsonl").read_text().splitlines()]
    assert written == list(lines)
    assert straight.to_json()["steps"] == 8


def test_answers_of_both_laws_are_measured_apart_and_kept_with_the_drafter(
    target, data, config, straight, tmp_path
):
    asked = [Prompt(text=f"cd{i}") for i in range(16)]
    cold = answers(target, asked, Sampling(max_tokens=20, ignore_eos=True, temperature=0.0)).examples
    assert all(example.greedy for example in cold)
    assert not any(example.greedy for example in data)
    assert straight.held_out.kept_greedy is None
    assert straight.draft.held_out.greedy is None

    made = train_draft(target, [*data, *cold], config, dataclasses.replace(PLAN, held_out=0.5), out=tmp_path)
    held = made.held_out
    assert made.draft.held_out.greedy[0] == held.kept_greedy[0]
    assert made.draft.held_out.drawn == held.kept_drawn
    assert load_draft(tmp_path, target).held_out == made.draft.held_out


def test_the_target_is_not_touched(target, straight):
    fresh = tiny_policy()
    assert weights_digest(target.model) == weights_digest(fresh.model)
    assert all(part.grad is None for part in target.model.parameters())


def test_a_resumed_run_ends_bit_for_bit_as_a_straight_one(target, data, config, straight, tmp_path):
    stops = 0

    def interrupt(stage, done, total, **_):
        nonlocal stops
        if stage.startswith("training") and done in (3, 6) and done != stops:
            stops = done
            os.kill(os.getpid(), signal.SIGINT)

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            train_draft(target, data, config, PLAN, out=tmp_path, progress=interrupt)
        # It finished its step and saved.
        assert (tmp_path / "checkpoints" / f"{stops:08d}").is_dir()
    again = train_draft(target, data, config, PLAN, out=tmp_path, progress=interrupt)
    assert weights_digest(again.draft) == weights_digest(straight.draft)
    assert again.history == straight.history
    # A run that is done gives its drafter again.
    done = train_draft(target, data, config, PLAN, out=tmp_path)
    assert weights_digest(done.draft) == weights_digest(straight.draft)
    assert done.held_out == straight.held_out


def test_another_run_does_not_resume_it(target, data, config, straight):
    other = dataclasses.replace(PLAN, learning_rate=1e-3)
    with pytest.raises(Mismatch, match="settings"):
        train_draft(target, data, config, other, out=straight.folder)
    with pytest.raises(Mismatch, match="data"):
        train_draft(target, data[:9], config, PLAN, out=straight.folder)
    with pytest.raises(Mismatch, match="config"):
        train_draft(target, data, config.but(rank=5), PLAN, out=straight.folder)


@pytest.mark.parametrize("less", [{"rows": 2}, {"memory": 1}])
def test_memory_parts_do_not_change_the_step(target, data, config, straight, less):
    """Two sequences, or a single block, at a time."""
    plan = dataclasses.replace(PLAN, steps=2)
    whole, parted = (
        train_draft(target, data, config, dataclasses.replace(plan, **change)) for change in ({}, less)
    )
    for one, other in zip(parted.draft.parameters(), whole.draft.parameters(), strict=True):
        assert torch.allclose(one, other, atol=2e-4)
    assert parted.held_out.tau_prob == pytest.approx(whole.held_out.tau_prob, abs=1e-4)


def test_parts_hold_what_they_may():
    chosen = [Chosen(n, np.arange(count)) for n, count in enumerate((1, 3, 9, 2))]
    for blocks, rows in ((4, 9), (1, 1), (100, 2), (100, 9)):
        made = list(parts(chosen, blocks, rows))
        assert all(len(part) <= rows for part in made)
        assert all(max(len(c.anchors) for c in part) * len(part) <= blocks for part in made)
        again = [(c.number, a) for part in made for c in part for a in c.anchors]
        assert again == [(c.number, a) for c in chosen for a in c.anchors]
    assert len(list(parts(chosen, 100, 9))) == 1


def test_cached_features_train_alike(target, data, config, straight, tmp_path):
    kept = train_draft(target, data, config, dataclasses.replace(PLAN, features="cache"), out=tmp_path)
    assert kept.held_out.tau_prob == pytest.approx(straight.held_out.tau_prob, abs=1e-3)
    with pytest.raises(BadInput, match="folder"):
        train_draft(target, data, config, dataclasses.replace(PLAN, features="cache"))


@pytest.mark.parametrize("changes", [{"kind": "dflash"}, {"head": "rnn"}, {"confidence": False}])
def test_every_shape_trains(target, data, changes):
    shape = draft_config(target, **({"layers": 1, "rank": 4, "block": 4} | changes))
    plan = dataclasses.replace(PLAN, steps=3, number="bfloat16", log=1)
    made = train_draft(target, data, shape, plan)
    assert made.history[-1]["loss"] < made.history[0]["loss"]
    assert (made.held_out.confidence is None) == (not shape.confidence)


def test_a_drafter_on_disk(target, straight, tmp_path):
    found = load_draft(straight.folder, target)
    assert weights_digest(found) == weights_digest(straight.draft)
    names = {name.name for name in straight.folder.iterdir() if name.is_file()}
    assert names == {"config.json", "draft.safetensors", "log.jsonl", "recipe.json"}
    with pytest.raises(WrongWeights):
        load_draft(straight.folder, tiny_policy(seed=1))
    body = json.loads((straight.folder / "config.json").read_text())

    def write(**changes):
        save_draft(straight.draft, straight.config, tmp_path)
        (tmp_path / "config.json").write_text(json.dumps(body | changes))

    write(draft=body["draft"] | {"tokenizer": "0" * 64})
    with pytest.raises(WrongTokenizer):
        load_draft(tmp_path, target)
    write(digest="0" * 64)
    with pytest.raises(Mismatch):
        load_draft(tmp_path, target)
    write(draft=body["draft"] | {"rank": 5})
    with pytest.raises(BadInput, match="does not fit"):
        load_draft(tmp_path, target)
    write(format="other")
    with pytest.raises(BadInput, match="not one of our"):
        load_draft(tmp_path, target)
    write(version=99)
    with pytest.raises(BadInput, match="99"):
        load_draft(tmp_path, target)
    write()
    (tmp_path / "draft.safetensors").write_bytes(b"torn")
    with pytest.raises(BadInput, match="tensors"):
        load_draft(tmp_path, target)
    with pytest.raises(BadInput, match="no drafter"):
        load_draft(tmp_path / "nowhere", target)


def test_equal_sequences_are_not_on_both_sides():
    same = [Example(token_array([1, 2, n % 4]), np.ones(3, dtype=bool)) for n in range(12)]
    none = Example(token_array([1, 2]), np.array([False, True]))
    learn, held = split([*same, none], DraftTraining(held_out=0.25))
    assert sorted(learn + held) == list(range(12))
    assert {n % 4 for n in learn}.isdisjoint({n % 4 for n in held})
    assert len(held) == 3
    with pytest.raises(BadInput, match="nothing to learn"):
        split([none], DraftTraining())
    # Nothing is held out where all are equal.
    assert split(same[:1], DraftTraining()) == ((0,), ())


def test_a_lesson_asks_for_the_targets_own_laws(target, data, config):
    """The distribution that a learned token is compared with is the model's, given all tokens before it."""
    anchors = np.array([3, 8])
    lesson, goals = make_lesson(
        data,
        [Chosen(0, anchors), Chosen(1, anchors[:1])],
        Recomputed(target, data, config),
        4,
        torch.device("cpu"),
    )
    assert lesson.states.shape == (2, 8, 2, 32)
    assert not lesson.learned[1, 1].any()
    draft = build_draft(config, target)
    distributions = torch.log_softmax(draft.ends.logits(goals.states), -1)
    for row, (n, a, k) in enumerate(lesson.learned.nonzero().tolist()):
        end = int(lesson.anchors[n, a]) + k + 1
        (wanted,) = target.next_logprobs([data[n].tokens[:end]])
        assert np.allclose(distributions[row].detach(), wanted, atol=1e-4)
        assert int(goals.tokens[row]) == data[n].tokens[end]
    with torch.no_grad():
        outcome = study(draft, lesson, goals, position_weights(4), LossWeights(), "float32")
    assert outcome.accept.shape == (3, 4)
    assert ((outcome.accept > 0) == outcome.learned).all()


def test_rates():
    plan = DraftTraining(learning_rate=1.0, warmup=0.1)
    rates = [plan.rates(100).rate(step, 100) for step in range(100)]
    assert rates[:10] == pytest.approx([(n + 1) / 10 for n in range(10)])
    assert rates[10] == 1.0
    assert rates[55] == pytest.approx(0.5 * (1 + math.cos(math.pi / 2)))
    assert rates[-1] < 0.01
    flat = dataclasses.replace(plan, schedule="constant")
    assert {flat.rates(100).rate(step, 100) for step in range(10, 100)} == {1.0}
    assert DraftTraining(epochs=3, batch=4).total(9) == 9


@pytest.mark.parametrize(
    "changes",
    [
        {"batch": 0},
        {"steps": 0},
        {"learning_rate": 0.0},
        {"clip": 0.0},
        {"weight_decay": -1.0},
        {"warmup": 1.5},
        {"held_out": 1.0},
        {"decay": 0.0},
        {"number": "int8"},
        {"features": "guess"},
        {"schedule": "steps"},
    ],
)
def test_settings_are_checked(changes):
    with pytest.raises(BadInput):
        DraftTraining(**changes)
