from __future__ import annotations

import numpy as np
import pytest
import torch

from refork.errors import BadInput, CannotDo
from refork_methods.crosscoder.model import CrossCoder
from refork_methods.crosscoder.paired import Pairs, read_pairs, row_table, trained_layer
from refork_methods.crosscoder.patch import mismatched, patch_edit, reconstruct
from refork_methods.crosscoder.trials import Trials
from support.crosscoder_pair import LAYER, tiny_pair


@pytest.fixture(scope="module")
def pair():
    return tiny_pair()


def trials(pair):
    return Trials(pair.prompts, lambda i, text: float("one" in text), short=3, long=8)


def test_a_row_table_adds_each_rows_own_delta_and_refuses_strangers():
    states, deltas = torch.eye(3) * 5, torch.arange(9.0).reshape(3, 3)
    change = row_table(states, deltas)
    assert torch.equal(change(states[[2, 0]]), (states + deltas)[[2, 0]])
    assert torch.isnan(change(torch.ones(1, 3))).all()
    with pytest.raises(BadInput, match="one shape"):
        row_table(states, deltas[:2])
    with pytest.raises(BadInput, match="finite"):
        row_table(states, deltas * float("nan"))


def test_a_patch_puts_the_reconstruction_where_the_state_was(pair):
    view = pair.a.edited(patch_edit(pair.coder, pair.pairs))
    seen = view.hidden_states(pair.prompts, [LAYER], prompts=[len(p) for p in pair.prompts])
    rebuilt = reconstruct(pair.coder, pair.pairs).numpy()
    plain = pair.a.hidden_states(pair.prompts, [LAYER])
    for row, (after, before) in enumerate(zip(seen, plain, strict=True)):
        assert after[0, -1] == pytest.approx(rebuilt[row], abs=1e-4)
        assert np.array_equal(after[0, :-1], before[0, :-1])


def test_raw_units_go_in_and_come_out(pair):
    # Twice the units of A, told to the normaliser, give twice the reconstruction; untold they do not.
    coder = pair.coder
    double = CrossCoder((16, 16), 40, 20, "topk", coder.partition, seed=3)
    double.load_state_dict(coder.state_dict())
    normalizer = coder.normalizer
    factor = np.where(np.arange(32) < 16, 2.0, 1.0).astype(np.float32)
    double.set_normalizer(type(normalizer)(normalizer.mean * factor, normalizer.scale * factor))
    stretched = Pairs(pair.pairs.a * 2, pair.pairs.b)
    assert torch.allclose(reconstruct(double, stretched), 2 * reconstruct(coder, pair.pairs), atol=1e-4)
    wrong = reconstruct(mismatched(coder), pair.pairs)
    assert not torch.allclose(wrong, reconstruct(coder, pair.pairs), atol=0.1)


def test_all_positions_patch_every_token_of_a_prompt(pair):
    everywhere = read_pairs(pair.a, pair.b, pair.prompts, LAYER, "all")
    assert len(everywhere.a) == sum(len(p) for p in pair.prompts)
    view = pair.a.edited(patch_edit(pair.coder, everywhere))
    seen = view.hidden_states(pair.prompts, [LAYER], prompts=[len(p) for p in pair.prompts])
    assert np.concatenate([s[0] for s in seen]) == pytest.approx(
        reconstruct(pair.coder, everywhere).numpy(), abs=1e-4
    )


def test_scaling_a_exclusive_features_leaves_b_token_identical_and_the_other_way_round(pair):
    for own, other in (("A", "B"), ("B", "A")):
        block = pair.coder.blocks[own]
        features = list(range(block.start, block.stop))
        policy = pair.a if other == "A" else pair.b
        plain = trials(pair).run(policy.edited(patch_edit(pair.coder, pair.pairs, other)))
        for alpha in (0.0, 6.0, 64.0):
            edit = patch_edit(pair.coder, pair.pairs, other, scaled=features, alpha=alpha)
            assert trials(pair).run(policy.edited(edit)).same_tokens(plain)
        # In its own model the same scaling is seen.
        before, after = (
            reconstruct(pair.coder, pair.pairs, own, scaled=features, alpha=alpha) for alpha in (1.0, 6.0)
        )
        assert not torch.equal(before, after)


def test_the_other_models_reconstruction_has_no_derivative_by_an_exclusive_feature(pair):
    values = pair.coder.encode(pair.pairs.a, pair.pairs.b).detach().requires_grad_()
    _, b = pair.coder.decode(values)
    (slope,) = torch.autograd.grad(b.sum(), values)
    assert float(slope[:, pair.coder.blocks["A"]].abs().max()) == 0.0
    assert float(slope[:, pair.coder.blocks["shared"]].abs().max()) > 0.0


def test_a_prompt_that_was_not_prepared_is_an_error_and_no_silent_nothing(pair):
    view = pair.a.edited(patch_edit(pair.coder, Pairs(pair.pairs.a[:6], pair.pairs.b[:6])))
    with pytest.raises(BadInput, match="not finite"):
        trials(pair).run(view)


def test_another_layer_than_the_crosscoders_is_refused(pair):
    with pytest.raises(BadInput, match="not where this crosscoder was trained"):
        patch_edit(pair.coder, pair.pairs, layer=2)
    nowhere = CrossCoder((16, 16), 40, 20, "topk")
    with pytest.raises(BadInput, match="does not say"):
        trained_layer(nowhere, "A")
    assert trained_layer(nowhere, "A", 2) == 2
    both = CrossCoder((16, 16), 40, 20, "topk", origin={"layer": [1, 2]})
    assert (trained_layer(both, "A"), trained_layer(both, "B")) == (1, 2)


def test_statistics_are_needed_and_drawn_tokens_are_refused(pair):
    with pytest.raises(BadInput, match="statistics"):
        patch_edit(CrossCoder((16, 16), 40, 20, "topk", origin={"layer": LAYER}), pair.pairs)
    with pytest.raises(CannotDo, match="both models"):
        patch_edit(pair.coder, pair.pairs, phase="decode")
    with pytest.raises(BadInput, match="no feature 40"):
        reconstruct(pair.coder, pair.pairs, scaled=[40])
