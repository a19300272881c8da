from __future__ import annotations

import numpy as np
import pytest
import torch

from refork.errors import BadInput, CannotDo
from refork_methods.crosscoder.patch import reconstruct
from refork_methods.crosscoder.steer import clamp_delta, projection_edit, steer_edit, steering_delta
from refork_methods.crosscoder.trials import Trials
from support.crosscoder_pair import LAYER, tiny_pair


@pytest.fixture(scope="module")
def pair():
    return tiny_pair()


def run(pair, policy):
    return Trials(pair.prompts, lambda i, text: float("one" in text), short=3, long=8).run(policy)


def test_the_delta_by_hand():
    values, directions = torch.tensor([[2.0, 0.0], [1.0, 3.0]]), torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    assert steering_delta(values, directions, 3.0).tolist() == [[4.0, 0.0], [2.0, 12.0]]
    assert steering_delta(values, directions, 0.0).tolist() == [[-2.0, 0.0], [-1.0, -6.0]]
    assert float(steering_delta(values, directions, 1.0).abs().max()) == 0.0
    # A clamp acts where the feature did not fire too.
    assert clamp_delta(values, directions, 1.0).tolist() == [[-1.0, 2.0], [0.0, -4.0]]


def test_alpha_one_is_token_identical(pair):
    live = pair.coder.encode(pair.pairs.a, pair.pairs.b).sum(0)
    top = int(live[pair.coder.blocks["A"]].argmax())
    clean = run(pair, pair.a)
    assert run(pair, pair.a.edited(steer_edit(pair.coder, pair.pairs, [top], alpha=1.0))).same_tokens(clean)
    # Strong steering is not: the model does listen to this layer.
    assert not run(pair, pair.a.edited(steer_edit(pair.coder, pair.pairs, [top], alpha=200.0))).same_tokens(
        clean
    )


@pytest.mark.parametrize("which", ["A", "B"])
def test_the_difference_of_decoded_states_is_the_delta(pair, which):
    coder = pair.coder.double()
    pairs = type(pair.pairs)(pair.pairs.a.double(), pair.pairs.b.double())
    block = coder.blocks[which]
    chosen = [block.start, block.start + 1, coder.blocks["shared"].start]
    for alpha in (0.0, 6.0, 32.0):
        scaled = reconstruct(coder, pairs, which, scaled=chosen, alpha=alpha) - reconstruct(
            coder, pairs, which
        )
        values = coder.encode(pairs.a, pairs.b)[:, chosen]
        delta = steering_delta(values, coder.directions(which)[chosen], alpha)
        assert float((scaled - delta).norm()) <= 1e-6 * float(delta.norm())
    coder.float()


def test_ablation_takes_out_what_the_feature_wrote(pair):
    feature = pair.coder.blocks["shared"].start
    view = pair.a.edited(steer_edit(pair.coder, pair.pairs, [feature], alpha=0.0))
    seen = view.hidden_states(pair.prompts, [LAYER], prompts=[len(p) for p in pair.prompts])
    value = pair.coder.encode(pair.pairs.a, pair.pairs.b)[:, [feature]]
    expected = pair.pairs.a - value * pair.coder.directions("A")[feature]
    assert np.stack([s[0, -1] for s in seen]) == pytest.approx(expected.detach().numpy(), abs=1e-4)


def test_a_feature_that_writes_nothing_is_an_error_and_not_an_effect_of_zero(pair):
    ours, theirs = pair.coder.blocks["A"].start, pair.coder.blocks["B"].start
    with pytest.raises(CannotDo, match="exclusive to B"):
        steer_edit(pair.coder, pair.pairs, [theirs], "A", alpha=6.0)
    with pytest.raises(CannotDo, match="exclusive to A"):
        steer_edit(pair.coder, pair.pairs, [ours], "B", alpha=6.0)
    with pytest.raises(CannotDo, match="writes nothing"):
        projection_edit(pair.coder, theirs, 1.0, "A")


def test_a_projection_is_replaced_at_every_position_and_phase(pair):
    feature = pair.coder.blocks["A"].start
    edit = projection_edit(pair.coder, feature, 2.5)
    assert (edit.positions, edit.phase) == ("all", "both")
    unit = pair.coder.directions("A")[feature].detach().numpy()
    unit = unit / np.linalg.norm(unit)
    for states in pair.a.edited(edit).hidden_states(pair.prompts, [LAYER]):
        assert states[0] @ unit == pytest.approx(2.5, abs=1e-3)


def test_wrong_requests_are_refused(pair):
    feature = pair.coder.blocks["A"].start
    with pytest.raises(BadInput, match="exactly one"):
        steer_edit(pair.coder, pair.pairs, [feature])
    with pytest.raises(BadInput, match="exactly one"):
        steer_edit(pair.coder, pair.pairs, [feature], alpha=1.0, clamp=1.0)
    with pytest.raises(BadInput, match="not where"):
        steer_edit(pair.coder, pair.pairs, [feature], alpha=2.0, layer=0)
    with pytest.raises(BadInput, match="no feature"):
        steer_edit(pair.coder, pair.pairs, [], alpha=2.0)
