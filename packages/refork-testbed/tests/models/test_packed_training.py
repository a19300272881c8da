from dataclasses import replace

import numpy as np
import pytest
import torch

from refork.errors import BadInput
from refork.policies.chat import Codec
from refork.policies.local import LocalPolicy
from refork.worlds.environment import Brief, EnvTrajectory, Transition
from refork_methods.simulate.cpt import encode_all
from refork_methods.simulate.encode import Writer, encode_target, encode_trajectory
from refork_methods.simulate.prompt import pick, targets
from refork_methods.train.schedule import Schedule
from refork_methods.train.weighted import WeightedSettings, pad_weighted, token_losses
from refork_testbed.models.packed_training import pack, packed_losses, sources, train_packed, visible
from refork_testbed.models.planted import Planted, planted_model
from refork_testbed.models.tokenizer import make_tokenizer

BRIEF = Brief(initial_state="file a\nred")
TURNS = (
    Transition("cat a", "red", True, "a is red"),
    Transition("echo blue > a", "", True, "a is red"),
    Transition("cat a", "blue", True, None),
)
ITEM = EnvTrajectory(id="one", source="toy", brief=BRIEF, turns=TURNS, domain="terminal")


@pytest.fixture(scope="module")
def policy():
    torch.manual_seed(0)
    tokenizer = make_tokenizer(["file", "cat", "echo", "red", "blue", "is", "prediction", "think"], 128)
    shape = Planted(layers=2, width=64, heads=2, hidden=64, context=128)
    return LocalPolicy(planted_model(shape, tokenizer), tokenizer, name="tiny")


def test_losses_are_those_of_one_sequence_per_target(policy):
    writer = Writer(policy.codec)
    packed = pack(writer, ITEM)
    separate = []
    for target in targets([ITEM]):
        tokens, weights, _ = pad_weighted([encode_target(writer, target)])
        losses = token_losses(policy.model(input_ids=tokens).logits, tokens)[0]
        separate.append(losses[weights[0, 1:] > 0])
    # Another trajectory beside it pads it and changes nothing.
    longer = pack(writer, EnvTrajectory(id="two", source="toy", brief=BRIEF, turns=TURNS * 2))
    found = packed_losses(policy.model, [packed, longer])[: packed.learned]
    torch.testing.assert_close(found, torch.cat(separate), rtol=1e-4, atol=1e-5)


def test_what_is_context_only_is_learned_nowhere(policy):
    writer = Writer(policy.codec)
    turns = (TURNS[0], replace(TURNS[1], target=False), TURNS[2])
    item = replace(ITEM, turns=turns)
    packed = pack(writer, item)
    assert set(packed.branch.tolist()) == {-1, 0, 2}
    assert packed.learned == sum(
        int((encode_target(writer, target).weights > 0).sum()) for target in targets([item])
    )
    whole, alike = encode_trajectory(writer, item)[0][0], encode_trajectory(writer, item, [1.0] * 3)[0][0]
    assert (whole.weights == alike.weights).all()
    assert whole.total < encode_trajectory(writer, ITEM)[0][0].total
    assert encode_all(writer, [item]).sequences[0].total == whole.total
    assert pick([replace(item, turns=(turns[1],))], 0) == []
    assert pack(writer, replace(item, turns=(turns[1],))) is None


def test_a_branch_sees_its_past_and_no_other_branch(policy):
    item = pack(Writer(policy.codec), ITEM)
    sees = visible(item)
    last = len(item.tokens) - 1
    assert sees[last, item.branch == 2].all()
    assert not sees[last, (item.branch >= 0) & (item.branch != 2)].any()
    assert sees[last, : item.stem[last] + 1].all()
    assert not sees[: item.chain, item.chain :].any()
    before, own = sources(item)
    firsts = np.flatnonzero(np.diff(item.branch[own], prepend=-1))
    assert (before[firsts] == item.stem[own[firsts]]).all()
    assert (item.positions[own] == item.positions[before] + 1).all()


def test_what_does_not_fit_is_left_out(policy):
    writer = Writer(policy.codec)
    assert pack(writer, ITEM, context=8) is None
    shorter = pack(writer, ITEM, context=pack(writer, ITEM).chain)
    assert set(shorter.branch) < {-1, 0, 1, 2}
    with pytest.raises(BadInput, match="nothing to train on"):
        train_packed(policy, [ITEM], WeightedSettings(steps=1), context=8)


def test_training_lowers_the_loss(policy):
    settings = WeightedSettings(steps=15, rows=1, schedule=Schedule(peak=3e-3))
    done = train_packed(policy, [ITEM], settings)
    assert done.facts["targets"] == 3
    assert done.log[-1]["loss"] < done.log[0]["loss"] / 2
    assert isinstance(policy.codec, Codec)
