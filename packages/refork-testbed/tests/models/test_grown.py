"""Organisms that grow: inserted blocks change nothing, and the loss is held against the distribution."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from refork.errors import BadInput
from refork_methods.train.sft import SftSettings
from refork_testbed.models.build import card
from refork_testbed.models.grown import deepened, grow_up, held_out_loss
from refork_testbed.models.recipe import HeldOut, Shape, Stage
from refork_testbed.models.recipes import chronicler
from refork_testbed.models.registry import find, recipe_digest
from refork_testbed.models.supervised import new_model
from refork_testbed.models.tokenizer import examples, make_tokenizer
from refork_testbed.worlds.chronicle import chronicles, words

SMALL = Shape(layers=2, width=32, heads=2, hidden=64, context=256)


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer(words(), 256)


def test_inserted_blocks_change_nothing_and_then_learn(tokenizer):
    torch.manual_seed(0)
    model = new_model(replace(SMALL, layers=1), tokenizer)
    grown = deepened(model, 3)
    tokens = torch.randint(6, len(tokenizer), (2, 20))
    with torch.inference_mode():
        assert torch.equal(model(tokens).logits, grown(tokens).logits)
    assert grown.config.num_hidden_layers == len(grown.model.layers) == 3
    assert len(grown.config.layer_types) == 3 if getattr(grown.config, "layer_types", None) else True
    loss = torch.nn.functional.cross_entropy(grown(tokens).logits.flatten(0, 1), tokens.flatten())
    loss.backward()
    added = grown.model.layers[2]
    assert added.mlp.down_proj.weight.grad.abs().max() > 0
    assert added.self_attn.o_proj.weight.grad.abs().max() > 0
    # Weights are copied, not shared.
    assert added.mlp.up_proj.weight.data_ptr() != grown.model.layers[1].mlp.up_proj.weight.data_ptr()
    assert deepened(grown, 3) is grown


def test_a_model_grows_evenly_or_not_at_all(tokenizer):
    with pytest.raises(BadInput, match="cannot grow evenly"):
        deepened(new_model(SMALL, tokenizer), 3)


def test_a_small_one_is_grown_learns_and_says_how_far_it_is_from_the_law(tokenizer, tmp_path):
    small = replace(
        chronicler.RECIPE,
        shape=SMALL,
        conversations=lambda: chronicler.as_conversations(chronicles(1, 60, sentences=3)),
        held_out=lambda: HeldOut(chronicler.as_conversations(chronicles(2, 6, sentences=3)), 150.0),
        stages=(
            Stage(1, SftSettings(steps=12, rows=8, learning_rate=1e-2, warmup=2)),
            Stage(2, SftSettings(steps=6, rows=8, learning_rate=5e-3, warmup=2)),
        ),
    )
    torch.manual_seed(0)
    told = []
    made = grow_up(small, tmp_path / "it", lambda stage, done, total, **_: told.append((done, total)))
    assert [row["step"] for row in made.log] == list(range(18))
    assert [row["layers"] for row in made.log] == [1] * 12 + [2] * 6
    assert made.log[-1]["loss"] < made.log[0]["loss"] - 0.5
    assert told[0] == (0, 18)
    assert told[-1] == (18, 18)
    held = made.facts["held_out"]
    assert held["texts"] == 6
    assert held["law"] == pytest.approx(150.0 / held["tokens"], abs=1e-4)
    # What was learned in bfloat16 holds in float32: no stale copy of a weight was trained against.
    assert held["loss"] < made.log[-1]["loss"] + 0.5
    facts = made.facts | {"train_seconds": 1.0, "threads": 2, "torch": "x", "transformers": "y"}
    text = card(small, facts | {"measured": None}, "0" * 64)
    assert f"{held['loss']:.4f} nats per token" in text
    assert "- threads: 2\n" in text


def test_the_loss_is_the_mean_over_learned_tokens(tokenizer):
    torch.manual_seed(1)
    model = new_model(SMALL, tokenizer).eval()
    talks = chronicler.as_conversations(chronicles(3, 3, sentences=2))
    data = examples(tokenizer, talks)
    nats = 0.0
    with torch.inference_mode():
        for item in data:
            logits = model(torch.tensor(item.tokens.tolist())[None]).logits[0].log_softmax(-1)
            nats -= sum(
                float(logits[t - 1, item.tokens[t]]) for t in range(1, len(item.tokens)) if item.mask[t]
            )
    count = sum(int(item.mask.sum()) for item in data)
    assert held_out_loss(model, tokenizer, HeldOut(talks, 1.0))["loss"] == pytest.approx(
        nats / count, abs=2e-4
    )


def test_the_recipe_is_of_the_size_it_says_and_its_words_are_tokens(monkeypatch):
    recipe = find("chronicler")
    assert (recipe.shape.layers, recipe.shape.width) == (8, 512)
    tokenizer = make_tokenizer(recipe.words(), recipe.shape.context)
    assert 512 <= len(tokenizer) <= 1024
    monkeypatch.setattr(chronicler, "TEXTS", 50)
    data = examples(tokenizer, recipe.conversations())
    assert max(len(item.tokens) for item in data) < recipe.shape.context // 2
    assert not {str(t[0]["content"]) for t in recipe.conversations()} & {
        str(t[0]["content"]) for t in recipe.held_out().conversations
    }
    assert recipe.held_out().surprise > 0
    assert recipe_digest(recipe) == recipe_digest(find("chronicler"))
