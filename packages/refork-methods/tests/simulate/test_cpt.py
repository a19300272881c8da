"""The first stage: what is written as tokens, what is learned of it and how much, and that a run resumes."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from refork.errors import BadInput, Mismatch
from refork_methods.simulate.cpt import encode_all, replay_sequences, train_cpt
from refork_methods.simulate.encode import Writer, encode_target, encode_trajectory
from refork_methods.simulate.prompt import Target, answer, messages
from refork_methods.train.schedule import Schedule
from refork_methods.train.weighted import (
    Weighted,
    WeightedSettings,
    fit_weighted,
    token_losses,
    weighted_loss,
)
from support.drawers import tiny, trajectory

SETTINGS = WeightedSettings(steps=4, rows=3, every=2, schedule=Schedule(peak=3e-3))


class Says(torch.nn.Module):
    """A model of these logits, whatever it is asked."""

    def __init__(self, logits):
        super().__init__()
        self.logits = torch.nn.Parameter(logits)

    def forward(self, input_ids, use_cache):
        return SimpleNamespace(logits=self.logits)


@pytest.fixture(scope="module")
def policy():
    return tiny()


def halves(turns):
    return [("full", 1.0), ("half", 0.5)][: len(turns)]


def test_masks_have_the_weighted_loss_as_their_expectation():
    """Over all coins of four turns, exactly: the sum kept is the weighted sum, the count kept its weights."""
    torch.manual_seed(0)
    logits, tokens = torch.randn(1, 9, 7, dtype=torch.float64), torch.randint(0, 7, (1, 9))
    spans, shares = [(1, 3), (3, 4), (4, 7), (7, 9)], [1.0, 0.5, 0.1, 0.05]
    losses = token_losses(logits, tokens)[0].double()
    weights = torch.zeros(1, 9, dtype=torch.float64)
    for (start, end), share in zip(spans, shares, strict=True):
        weights[0, start:end] = share
    kept = count = 0.0
    for coins in product((0, 1), repeat=4):
        chance = np.prod([s if c else 1 - s for s, c in zip(shares, coins, strict=True)])
        for (start, end), coin in zip(spans, coins, strict=True):
            kept += chance * coin * float(losses[start - 1 : end - 1].sum())
            count += chance * coin * (end - start)
    item = Weighted(tokens[0].int().numpy(), weights[0].numpy())
    assert weighted_loss(Says(logits), [item]) == pytest.approx(kept / count, rel=1e-6)
    with pytest.raises(BadInput, match="has a weight"):
        fit_weighted(Says(logits), [Weighted(item.tokens, 0 * item.weights)], SETTINGS)
    assert float(weights.sum()) == pytest.approx(count)


@pytest.mark.parametrize("template", [True, False])
def test_every_answer_is_learned_with_its_weight(template):
    codec = tiny(template=template).codec
    item = trajectory(6, turns=3)
    (found,), kept = encode_trajectory(Writer(codec), item, [1.0, 0.0, 0.25], [2, 1, 0])
    text = codec.decode(found.tokens)
    assert kept == 3
    assert all(turn.action in text and turn.observation in text for turn in item.turns)
    for weight, turn in ((1.0, item.turns[0]), (0.25, item.turns[2])):
        assert codec.decode(found.tokens[found.weights == weight]) == answer(turn.observation)
    assert found.tokens[-1] == codec.tokenizer.eos_token_id
    assert found.weights[-1] == np.float32(0.25)
    assert set(found.kinds[found.weights == 1.0]) == {2}
    # The context of the last answer is, token for token, what a simulator is asked with.
    asked = codec.render([], [], messages(item.brief, item.history(2), item.turns[2].action)).tokens
    assert (found.tokens[: len(asked)] == asked).all()
    assert not found.weights[len(asked) - 1]


def test_quick_and_stepwise_writing_agree(policy):
    writer = Writer(policy.codec)
    item = trajectory(9, turns=4)
    chat, weights = messages(item.brief, item.history()), [1.0, 0.5, 0.0, 0.1]
    (quick,), (slow,) = writer.chat(chat, weights), writer._in_steps(chat, weights, [0] * 4)
    assert (quick.tokens == slow.tokens).all()
    assert (quick.weights == slow.weights).all()
    # An action that spells an answer is not taken for one.
    chat[1]["content"] = answer(item.turns[0].observation)
    (fooled,) = writer.chat(chat, weights)
    assert (fooled.weights == 1.0).sum() == (quick.weights == 1.0).sum()
    one = encode_target(writer, Target(item, 2))
    assert policy.codec.decode(one.tokens[one.weights > 0]) == answer(item.turns[2].observation, "drawer a")
    with pytest.raises(BadInput, match="weights"):
        writer.chat(chat, [1.0])


def test_long_trajectories_lose_their_last_turns(policy):
    items = [trajectory(1, turns=8)]
    whole = encode_all(Writer(policy.codec), items)
    longest = len(whole.sequences[0].tokens)
    cut = encode_all(Writer(policy.codec), items, context=longest // 2)
    assert whole.turns == {"turn": 8}
    assert cut.cut == 8 - cut.turns["turn"] > 0
    assert len(cut.sequences[0].tokens) <= longest // 2
    assert encode_all(Writer(policy.codec), items, context=5).left_out == 1


def test_stage_logs_classes_replays_and_resumes(tmp_path):
    data = [trajectory(n) for n in range(8)]
    more = {"weigh": halves, "replay": ["look a look b"], "replay_fraction": 0.2}
    first = tiny()
    done = train_cpt(first, data, SETTINGS, folder=tmp_path / "a", **more)
    assert done.log[-1]["loss"] < done.log[0]["loss"]
    assert done.facts["turns"] == {"full": 8, "half": 8}
    assert 0.15 < done.facts["replay_share"] < 0.3
    assert {"nll.full", "tokens.half", "nll.replay"} <= set(done.log[0])
    for step in ("00000004",):
        (tmp_path / "a" / step).rename(tmp_path / "gone")
    again = tiny()
    assert train_cpt(again, data, SETTINGS, folder=tmp_path / "a", **more).log == done.log
    assert again.card.weights == first.card.weights
    with pytest.raises(Mismatch, match="another run"):
        train_cpt(tiny(), data[:4], SETTINGS, folder=tmp_path / "a", **more)
    with pytest.raises(BadInput, match="replay"):
        train_cpt(again, data, SETTINGS, replay_fraction=0.1)


def test_parts_of_a_batch_add_up(policy):
    """Whatever the micro rows, the step is the same; half precision stays near it."""
    data = encode_all(Writer(policy.codec), [trajectory(n) for n in range(4)], halves).sequences
    losses = {}
    for name, change in {"whole": {}, "parts": {"micro_rows": 1}, "half": {"half": True}}.items():
        settings = WeightedSettings(steps=1, rows=4, every=0, schedule=Schedule(peak=1e-9), **change)
        losses[name] = fit_weighted(tiny().model, data, settings)[0]["loss"]
    assert losses["parts"] == pytest.approx(losses["whole"], rel=1e-5)
    assert losses["half"] == pytest.approx(losses["whole"], rel=0.02)
    assert weighted_loss(policy.model, data) == pytest.approx(losses["whole"], rel=1e-5)
    with pytest.raises(BadInput, match="weight"):
        fit_weighted(policy.model, [Weighted(data[0].tokens, 0 * data[0].weights)], SETTINGS)


def test_replayed_conversations_learn_their_answers(policy):
    chat = [{"role": "user", "content": "look a"}, {"role": "assistant", "content": "red"}]
    talk, text = replay_sequences(policy.codec, [chat, "look b"], 3, 64)
    assert policy.codec.decode(talk.tokens[talk.weights > 0]) == "red"
    assert (text.weights == 1).all()
    assert set(talk.kinds[talk.weights > 0]) == {3}
