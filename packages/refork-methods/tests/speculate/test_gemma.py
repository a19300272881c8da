"""Drafters of Gemma 4's layers beside transformers' own layer, and under the speculative decoder."""

import pytest
import torch
from transformers import AutoConfig
from transformers.models.gemma4.modeling_gemma4 import (
    Gemma4TextDecoderLayer,
    Gemma4TextRotaryEmbedding,
)

from refork.policies.base import Request, Sampling, sample_all
from refork.sampling.noise import NoiseKey
from refork.types import token_array
from refork_methods.speculate.config import draft_config
from refork_methods.speculate.context import as_proposer
from refork_methods.speculate.decoder import SpeculativeDecoder
from refork_methods.speculate.layouts import write_shape
from refork_methods.speculate.model import build_draft
from support.drafters import GEMMA, random_gemma, shaken

OWN = {"shared_values": False, "kv_heads": 2, "rotary": 0.5}


@pytest.fixture(scope="module")
def target():
    return random_gemma()


@pytest.mark.parametrize("changes", [{}, OWN])
def test_layers_are_those_of_transformers(target, changes):
    """A block without context is a text that its own slots see both ways: what the layer does is the same."""
    config = draft_config(target, "dspark", mask_token=257, block=5, layers=2, rank=6, **(GEMMA | changes))
    draft = shaken(build_draft(config, target, seed=1))
    theirs = AutoConfig.for_model(**write_shape(config), attn_implementation="eager")
    turns = Gemma4TextRotaryEmbedding(theirs)
    anchors, positions = torch.tensor([3, 200]), torch.tensor([0, 9])
    nothing = [(torch.zeros(2, config.kv_heads, 0, config.head_dim),) * 2] * 2
    with torch.no_grad():
        x, at = draft.inputs(anchors), positions[:, None] + torch.arange(5)
        cos_sin = turns(x, at, "full_attention")
        for number, own in enumerate(draft.layers):
            layer = Gemma4TextDecoderLayer(theirs, number)
            told = layer.load_state_dict(own.state_dict(), strict=False)
            assert not any(told), told
            x = layer(x, position_embeddings=cos_sin, attention_mask=None, shared_kv_states={})
        assert (draft.norm(x) - draft.block(anchors, positions, nothing)).abs().max() < 1e-5


@pytest.mark.parametrize("kind", ["dspark", "eagle"])
def test_greedy_output_is_plain_decoding(target, kind):
    shape = {} if kind == "eagle" else {"layers": 2, "rank": 6, "mask_token": 257}
    draft = shaken(build_draft(draft_config(target, kind, block=3, **(shape | GEMMA)), target))
    decoder = SpeculativeDecoder(target, as_proposer(draft), width=2)
    requests = [
        Request(token_array(target.encode(t)), NoiseKey(0, 1, i)) for i, t in enumerate(("ab", "longer"))
    ]
    greedy = Sampling(max_tokens=10, temperature=0.0)
    plain = [item.tokens.tolist() for item in sample_all(target, requests, greedy)]
    found = {item.index: item.tokens.tolist() for item in decoder.sample(requests, greedy)}
    assert [found[i] for i in range(2)] == plain
    assert decoder.stats.drafted > 0


def test_a_plain_drafter_takes_its_widths_from_the_last_layer(target):
    """Transformers names no one value for layers that have several."""
    config = draft_config(target)
    assert (config.family, config.heads, config.kv_heads, config.head_dim) == ("llama", 4, 1, 16)
