"""What the branching decoder does not compute is refused by name when a model is opened, never later."""

import pytest
import torch
import transformers
from torch import nn
from transformers import masking_utils

from refork.decoding import attention
from refork.decoding.attention import Rule
from refork.decoding.backbone import Backbone
from refork.errors import CannotDo
from support.decoder_models import PLAIN, VOCABULARY, make

FEW = {"num_key_value_heads": 2}
STATES = {"mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_n_groups": 1}
SPARSE = {
    "moe_intermediate_size": 32,
    "n_routed_experts": 4,
    "n_group": 1,
    "topk_group": 1,
    "num_experts_per_tok": 2,
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "qk_nope_head_dim": 16,
    "num_key_value_heads": 4,
}
REFUSED = {
    "DiffLlama": (PLAIN | FEW, "attends more than once in layer 0"),
    "Doge": (PLAIN | FEW, "its attention mask itself"),
    "FalconH1": (PLAIN | FEW | STATES, "depends on other tokens of the pass"),
    "DeepseekV32": (PLAIN | SPARSE, "its attention mask itself"),
    "GlmMoeDsa": (PLAIN | SPARSE, "its attention mask itself"),
    "Mamba": ({"vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 2}, "takes no positions"),
    "Lfm2": (PLAIN | FEW | {"layer_types": ["conv", "full_attention"]}, "1 of its 2 layers"),
    "XGLM": (
        {"vocab_size": VOCABULARY, "d_model": 64, "ffn_dim": 96, "num_layers": 2, "attention_heads": 4},
        "its attention mask itself",
    ),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_it_is_refused_by_name_when_it_is_opened(name):
    shape, reason = REFUSED[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**shape)
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    before = model.config._attn_implementation
    with pytest.raises(CannotDo, match=reason) as caught:
        Backbone(model)
    assert caught.value.what.startswith(f"{name}ForCausalLM cannot be run by the branching decoder")
    assert model.config._attn_implementation == before


def altered(change):
    """The plain Llama, with ``change`` made to its first attention layer."""
    model = make("llama")
    layer = model.model.layers[0].self_attn
    own = type(layer).forward

    def forward(*args, **given):
        return change(lambda **more: own(layer, *args, **{**given, **more}), *args, **given)

    layer.forward = forward
    return model


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"position_bias": torch.zeros(1)}, "position_bias"),
        ({"indices": torch.zeros(1, dtype=torch.long)}, "indices"),
        ({"is_causal": False}, "is_causal"),
        ({"cu_seq_lens_q": torch.zeros(1)}, "cu_seq_lens_q"),
        ({"output_attentions": True}, "output_attentions"),
        ({"attention_mask": torch.zeros(1, 1, 8, 8)}, "mask of its own"),
        ({"attention_mask": None}, "mask of its own"),
        ({"s_aux": torch.zeros(3)}, "sinks that are not one for each head"),
    ],
)
def test_an_argument_that_means_something_is_refused(more, reason):
    with pytest.raises(CannotDo, match=reason):
        Backbone(altered(lambda call, *_, **__: call(**more)))


def test_arguments_that_mean_nothing_are_not():
    nothing = {"sliding_window": 3, "is_causal": True, "position_bias": None, "output_attentions": False}
    Backbone(altered(lambda call, *_, **__: call(**nothing)))


@pytest.mark.parametrize(
    "mix",
    [
        lambda x: torch.cat([x[:, :1], (x[:, 1:] + x[:, :-1]) / 2], dim=1),  # a convolution
        lambda x: x + x.cumsum(dim=1),  # a recurrent state
        lambda x: x + x.mean(dim=1, keepdim=True),  # the same in any order
        lambda x: x * torch.arange(1, x.shape[1] + 1)[None, :, None],  # rows in place of positions
    ],
)
def test_tokens_that_meet_outside_attention_are_refused(mix):
    model = make("llama")
    model.model.layers[1].mlp.register_forward_hook(lambda _, __, out: mix(out))
    with pytest.raises(CannotDo, match="depends on other tokens of the pass"):
        Backbone(model)


def test_positions_by_the_furthest_of_a_batch_are_refused():
    model = make("llama")

    def stretched(module, args, given):
        places = given["position_ids"]
        return args, given | {"position_ids": places * (2 if int(places.max()) > 100 else 1)}

    model.model.rotary_emb.register_forward_pre_hook(stretched, with_kwargs=True)
    with pytest.raises(CannotDo, match="depends on other tokens of the pass"):
        Backbone(model)


def test_whatever_a_model_raises_is_a_refusal():
    model = make("llama")

    def fail(*_, **__):
        raise KeyError("no such thing")

    model.model.norm.forward = fail
    with pytest.raises(CannotDo, match=r"LlamaForCausalLM cannot be run .* KeyError: 'no such thing'"):
        Backbone(model)


def test_a_class_that_is_only_called_like_a_known_one_gets_no_stand_in():
    class FalconAttention(nn.Module):
        pass

    model = make("llama")
    model.extra = FalconAttention()
    Backbone(model)


def rule(**given):
    """What the decoder reads out of the function that transformers would fill a mask with."""
    config = make("llama").config
    config._attn_implementation = attention.NAME
    places = torch.tensor([[0, 5, 3, 3]])
    shape = {"config": config, "inputs_embeds": torch.zeros(1, 4, 8), "attention_mask": None}
    make_mask = given.pop("make")
    for name, value in given.pop("config", {}).items():
        setattr(config, name, value)
    return make_mask(**shape, past_key_values=None, position_ids=places, **given)


def test_rules_are_read_from_masks():
    assert rule(make=masking_utils.create_causal_mask) == Rule()
    sliding = {"sliding_window": 7}
    assert rule(make=masking_utils.create_sliding_window_causal_mask, config=sliding) == Rule(window=7)
    chunks = {"attention_chunk_size": 9}
    assert rule(make=masking_utils.create_chunked_causal_mask, config=chunks) == Rule(chunk=9)


@pytest.mark.parametrize("name", ["or_mask_function", "and_mask_function"])
def test_a_mask_with_a_function_of_its_own_is_refused(name):
    def own(batch, head, query, key):
        return key >= 0

    with pytest.raises(CannotDo, match="none that this decoder knows"):
        rule(make=masking_utils.create_causal_mask, **{name: own})


def test_a_mask_that_sees_both_ways_is_refused():
    with pytest.raises(CannotDo, match="none that this decoder knows"):
        rule(make=masking_utils.create_causal_mask, config={"is_causal": False})
