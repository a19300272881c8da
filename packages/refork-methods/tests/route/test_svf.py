import numpy as np
import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from refork.errors import BadInput, CannotDo
from refork_methods.route.svf import SvfAdapter, adapted, factor, offset_counts


def qwen(tied=True, **changes):
    shape = {
        "hidden_size": 16,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "intermediate_size": 24,
        "vocab_size": 50,
        "tie_word_embeddings": tied,
    }
    return Qwen3ForCausalLM(Qwen3Config(**(shape | changes)))


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return qwen().double().eval()


TOKENS = torch.tensor([[1, 2, 3, 4], [4, 5, 6, 0]])
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])


def plain(model):
    with torch.no_grad():
        return model(input_ids=TOKENS, attention_mask=MASK, output_hidden_states=True)


def offsets_of(adapter, seed=0, size=0.1):
    rng = np.random.default_rng(seed)
    return torch.as_tensor(size * rng.normal(size=adapter.count))


@pytest.mark.parametrize("shape", [(7, 4), (4, 7), (5, 5)])
def test_is_the_formula_with_both_singular_bases(shape):
    rng = np.random.default_rng(0)
    w, step = torch.as_tensor(rng.normal(size=shape)), torch.as_tensor(0.3 * rng.normal(size=min(shape)))
    u, s, v = torch.linalg.svd(w, full_matrices=False)
    moved = (1 + step) * s
    expected = u @ torch.diag(moved) @ v * s.sum() / moved.sum()
    got = adapted(w, factor(w), step)
    assert torch.allclose(got, expected, atol=1e-12)
    assert abs(float(torch.linalg.svdvals(got).sum() - s.sum())) < 1e-9
    inside = u.T @ got @ v.T  # diagonal: the singular vectors are those of before
    assert float((inside - torch.diag(torch.diag(inside))).abs().max()) < 1e-12


def test_offsets_of_zero_change_nothing(model):
    adapter = SvfAdapter(model)
    for name, weight in adapter.weights(adapter.zeros()).items():
        assert torch.equal(weight, model.get_submodule(name.removesuffix(".weight")).weight)
    states = adapter.states(adapter.zeros(), TOKENS, MASK, -1)
    assert float((states - plain(model).hidden_states[-1]).abs().max()) < 1e-10


def test_counts_of_the_published_checkpoint_without_its_weights():
    with torch.device("meta"):
        big = qwen(
            hidden_size=1024, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8,
            head_dim=128, intermediate_size=3072, vocab_size=151_936,
        )  # fmt: skip
    counts = offset_counts(big)
    assert len(counts) == 9
    assert {name.split(".")[2] for name in counts if ".layers." in name} == {"26"}
    assert sum(counts.values()) + 10 * 1024 == 19_456
    with pytest.raises(CannotDo, match="meta"):
        SvfAdapter(big)


@pytest.mark.parametrize("tied", [True, False])
def test_applied_is_what_states_computes_and_is_undone(tied):
    torch.manual_seed(1)
    model = qwen(tied).double().eval()
    before, first = plain(model), model.lm_head.weight
    adapter = SvfAdapter(model)
    step = offsets_of(adapter)
    states = adapter.states(step, TOKENS, MASK, -1)
    with adapter.applied(step):
        inside = plain(model)
        made = model.model.embed_tokens.weight, model.lm_head.weight
    assert torch.equal(inside.hidden_states[-1], states)
    assert not torch.allclose(inside.logits, before.logits)
    assert not torch.allclose(made[0], made[1])  # a shared tensor got offsets of its own at either end
    assert torch.equal(plain(model).logits, before.logits)
    assert model.lm_head.weight is first
    assert (model.model.embed_tokens.weight is first) is tied


def test_a_matrix_that_is_not_named_keeps_the_shared_tensor(model):
    adapter = SvfAdapter(model, ["model.embed_tokens"])
    with adapter.applied(offsets_of(adapter)):
        assert model.lm_head.weight is adapter._originals["model.embed_tokens"]
        assert model.model.embed_tokens.weight is not model.lm_head.weight


def test_training_leaves_bases_and_weights_bit_for_bit(model):
    adapter = SvfAdapter(model)
    bases = {name: (one.basis.clone(), one.sigma.clone()) for name, one in adapter.factors.items()}
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    step = adapter.zeros().requires_grad_(True)
    optimizer = torch.optim.Adam([step], lr=0.05)
    losses = []
    for _ in range(5):
        loss = adapter.states(step, TOKENS, MASK, -1)[:, 0, 0].sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    assert all(torch.equal(one.basis, bases[name][0]) for name, one in adapter.factors.items())
    assert all(torch.equal(one.sigma, bases[name][1]) for name, one in adapter.factors.items())
    assert all(torch.equal(p, weights[name]) for name, p in model.named_parameters())
    assert all(p.grad is None for p in model.parameters())
    for name, weight in adapter.weights(step.detach()).items():
        own = model.get_submodule(name.removesuffix(".weight")).weight
        total = torch.linalg.svdvals(own.detach()).sum()
        assert abs(float(torch.linalg.svdvals(weight).sum() - total)) < 1e-9
    # The output head comes after the state that is read: no gradient reaches its offsets.
    parts = dict(zip(adapter.counts, torch.split(step.detach(), list(adapter.counts.values())), strict=True))
    assert not parts["lm_head"].any()
    assert parts["model.embed_tokens"].any()


def test_half_precision_is_moved_in_float32():
    weight = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)).bfloat16()
    factors = factor(weight)
    assert factors.sigma.dtype == torch.float32
    assert torch.equal(adapted(weight, factors, torch.zeros(4)), weight)


def test_refusals(model):
    with pytest.raises(BadInput, match="take"):
        SvfAdapter(model).weights(torch.zeros(3))
    weight = torch.eye(3)
    with pytest.raises(BadInput, match="-1 or less"):
        adapted(weight, factor(weight), torch.tensor([0.0, -1.0, 0.0]))
    with pytest.raises(BadInput, match="3 singular"):
        adapted(weight, factor(weight), torch.zeros(2))
    with pytest.raises(BadInput, match="zeros"):
        factor(torch.zeros(3, 3))
    with pytest.raises(BadInput, match="no matrix"):
        factor(torch.ones(3))
    with pytest.raises(CannotDo, match="int64"):
        factor(torch.ones(3, 3, dtype=torch.int64))
    for names in (["model.norm"], ["nowhere"]):
        with pytest.raises(BadInput, match="no linear map"):
            offset_counts(model, names)
    with pytest.raises(BadInput, match="distinct"):
        offset_counts(model, ["lm_head", "lm_head"])
