"""Packed products: the same numbers, the model as it was, and weights followed as they change."""

import pytest
import torch

from refork.decoding import experts
from refork.decoding.packed import PackedLinears
from support import decoder_models as models


@pytest.fixture
def model():
    return models.make("llama").eval()


def logits(model, linears=None):
    ids = torch.arange(24).view(2, 12) % 50
    with torch.inference_mode():
        if linears is None:
            return model(ids).logits
        with linears.attached():
            return model(ids).logits


def test_products_are_the_models_own_to_rounding(model):
    plain = logits(model)
    linears = PackedLinears(model)
    assert linears._layers
    torch.testing.assert_close(logits(model, linears), plain, atol=1e-5, rtol=1e-5)


def test_the_model_is_left_as_it_was_even_after_an_error(model):
    linears = PackedLinears(model)
    with linears.attached():
        assert any("forward" in m.__dict__ for m in model.modules())
    with pytest.raises(IndexError), linears.attached():
        model(torch.tensor([[10**6]]))
    assert not any("forward" in m.__dict__ for m in model.modules())


def test_layers_past_the_limit_give_the_same_bits(model):
    assert torch.equal(logits(model, PackedLinears(model)), logits(model, PackedLinears(model, limit=0)))


def test_rows_do_not_depend_on_how_many_there_are(model):
    layer = max(PackedLinears(model)._layers, key=lambda m: m.weight.numel())
    linears, rows = PackedLinears(model), torch.randn(512, layer.in_features)
    with torch.inference_mode(), linears.attached():
        whole = layer(rows)
        for count in (8, 24, 64, 136, 320):
            assert torch.equal(layer(rows[:count]), whole[:count])


def test_a_few_rows_have_the_bits_of_many(model):
    linears = PackedLinears(model)
    assert linears.unit in (2, 4, 8)
    rows = torch.randn(64, 64)
    with torch.inference_mode(), linears.attached():
        for layer in linears._layers:
            if layer.in_features == 64:
                whole = layer(rows)
                for count in range(linears.unit, 25, linears.unit):
                    assert torch.equal(layer(rows[:count]), whole[:count])


def test_a_matrix_that_is_not_packed_asks_for_eight_rows_or_what_its_own_products_need(model):
    model.extra = torch.nn.Parameter(torch.zeros(256, 256))
    rows, weights = torch.randn(64, 256), torch.randn(256, 256)
    unit = PackedLinears(model).unit
    assert unit >= 8
    for weight in (weights, weights.T):
        whole = torch.nn.functional.linear(rows, weight)
        for count in range(unit, 64, unit):
            assert torch.equal(torch.nn.functional.linear(rows[:count], weight), whole[:count])
    assert PackedLinears(models.make("llama").to(torch.bfloat16)).unit == 8


@pytest.mark.parametrize("name", ["falcon", "falcon_heads", "gpt2"])
def test_products_of_other_classes_are_packed_too(name):
    """Falcon's own linear layers, with biases and without, and GPT-2's, whose weights are transposed."""
    model = models.make(name).eval()
    plain, linears = logits(model), PackedLinears(model)
    assert {type(layer).__name__ for layer in linears._layers} > {"Linear"}
    assert not linears._others()
    torch.testing.assert_close(logits(model, linears), plain, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("transposed", [False, True])
def test_an_experts_row_is_the_same_whoever_else_it_reads(transposed):
    """Widths at which PyTorch's BLAS rounds eight rows, or fewer than two hundred, otherwise than many."""
    weights = torch.randn(2, 1024, 256) if transposed else torch.randn(2, 256, 1024)
    rows, bias = torch.randn(300, 1024), torch.randn(2, 256)
    whole = experts._product(rows, weights, bias, transposed, [(1, torch.arange(300))])
    told = rows @ (weights[1] if transposed else weights[1].T) + bias[1]
    torch.testing.assert_close(whole, told, atol=1e-3, rtol=1e-5)
    for count in (1, 7, 8, 20, 64):
        few = experts._product(rows, weights, bias, transposed, [(1, torch.arange(count))])
        assert torch.equal(few[:count], whole[:count])
        assert not few[count:].any()


def test_changed_weights_are_packed_again(model):
    linears = PackedLinears(model)
    before = logits(model, linears)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    after = logits(model, linears)
    assert not torch.allclose(before, after)
    torch.testing.assert_close(after, logits(model), atol=1e-5, rtol=1e-5)


def test_refresh_speaks_for_changes_that_tensors_do_not_count(model):
    linears = PackedLinears(model)
    logits(model, linears)
    for parameter in model.parameters():
        parameter.data.mul_(1.5)
    linears.refresh()
    torch.testing.assert_close(logits(model, linears), logits(model), atol=1e-5, rtol=1e-5)


def test_other_dtypes_stay_with_pytorch(model):
    linears = PackedLinears(model.to(torch.bfloat16))
    with linears.attached():
        assert not any("forward" in m.__dict__ for m in model.modules())
