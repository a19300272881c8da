import numpy as np
import pytest
import torch
from torch.nn import functional as F

from refork.errors import BadInput, CannotDo
from refork.policies.base import Request, Sampling, sample_all
from refork.sampling.noise import NoiseKey
from refork.types import token_array
from refork_methods.speculate.checkpoint import load_draft, save_draft
from refork_methods.speculate.config import draft_config, eagle_layers
from refork_methods.speculate.context import as_proposer
from refork_methods.speculate.decoder import SpeculativeDecoder
from refork_methods.speculate.model import Lesson, build_draft
from refork_methods.speculate.policy import open_speculator
from refork_methods.speculate.profile import profile
from support.drafters import GEMMA, random_target, shaken

WIDTH, LENGTH, BLOCK = 32, 24, 4
OWN_VALUES = {"shared_values": False, "kv_heads": 2, "head_dim": 8, "rotary": 1.0}


@pytest.fixture(scope="module")
def target():
    return random_target()


def eagle(target, **changes):
    config = draft_config(target, "eagle", block=BLOCK, **changes)
    return shaken(build_draft(config, target, seed=1))


@pytest.fixture(scope="module")
def text(target):
    """Tokens of two texts, and the states that the drafter reads of them."""
    tokens = np.random.default_rng(0).integers(256, size=(2, LENGTH)).astype(np.int32)
    states = target.hidden_states(list(tokens), eagle_layers(3))
    return torch.from_numpy(tokens).long(), torch.from_numpy(np.stack(states).transpose(0, 2, 1, 3))


def rope(x, places, config):
    """Rotary positions, written as a turn of complex numbers."""
    half = x.shape[-1] // 2
    speed = config.rope_theta ** (-torch.arange(half) / half)
    speed[int(config.rotary * half) :] = 0.0
    turned = torch.complex(x[..., :half], x[..., half:]) * torch.polar(
        torch.ones(1), places[:, None, None] * speed
    )
    return torch.cat([turned.real, turned.imag], -1)


def reference(draft, tokens, states, anchor):
    """EAGLE-3 by the book: one causal pass over true pairs, then one pair more per drafted token."""
    weights, config = draft.state_dict(), draft.config
    heads, kv, size = config.heads, config.kv_heads, config.head_dim
    gemma = config.family == "gemma4"

    def norm(x, name=None):
        found = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + config.norm_eps)
        return found if name is None else found * weights[f"{name}.weight"]

    def linear(x, name):
        return x @ weights[f"{name}.weight"].T

    true = linear(states[:, 1:].flatten(1), "fc")
    features, logits = [true[place] for place in range(anchor)], []
    for k in range(config.block):
        said = torch.arange(1, anchor + k + 1)
        pair = torch.cat([
            norm(draft.ends.embed(tokens[said]), "layers.0.input_layernorm"),
            norm(torch.stack(features), "layers.0.hidden_norm"),
        ], -1)  # fmt: skip
        made = "qkk" if config.shared_values else "qkv"
        q, key, v = (linear(pair, f"layers.0.self_attn.{n}_proj") for n in made)
        q, key, v = (x.unflatten(-1, (-1, size)) for x in (q, key, v))
        if config.qk_norm:
            q, key = norm(q, "layers.0.self_attn.q_norm"), norm(key, "layers.0.self_attn.k_norm")
        v = norm(v) if gemma else v
        q = rope(q[-1:], said[-1:].float(), config)[0].view(kv, heads // kv, size)
        scores = torch.einsum("kge,tke->kgt", q, rope(key, said.float(), config))
        scores = scores if gemma else scores / size**0.5
        seen = torch.einsum("kgt,tke->kge", scores.softmax(-1), v).flatten()
        said = linear(seen, "layers.0.self_attn.o_proj")
        x = features[-1] + (norm(said, "layers.0.post_attention_layernorm") if gemma else said)
        inner = norm(x, f"layers.0.{'pre_feedforward' if gemma else 'post_attention'}_layernorm")
        gate = linear(inner, "layers.0.mlp.gate_proj")
        gate = F.gelu(gate, approximate="tanh") if gemma else F.silu(gate)
        said = linear(gate * linear(inner, "layers.0.mlp.up_proj"), "layers.0.mlp.down_proj")
        x = x + (norm(said, "layers.0.post_feedforward_layernorm") if gemma else said)
        x = x * weights["layers.0.layer_scalar"] if gemma else x
        logits.append(draft.ends.logits(norm(x, "norm")))
        features.append(x)
    return torch.stack(logits)


@pytest.mark.parametrize("changes", [{}, {"qk_norm": True, "kv_heads": 1}, GEMMA, GEMMA | OWN_VALUES])
def test_a_draft_is_eagle_by_the_book(target, text, changes):
    tokens, states = text
    draft = eagle(target, **changes)
    kept = draft.keys_values(draft.context(states), torch.arange(LENGTH).expand(2, -1))
    places = torch.tensor([7, 15])
    with torch.no_grad():
        chain = draft.start(places, kept)
        # Rows of a chain are independent: the second alone says what it says beside the first.
        alone = chain.rows(torch.tensor([1]))
        for k in range(BLOCK):
            found, chain = draft.next_logits(k, None, None, tokens[[0, 1], places + k], chain)
            single, alone = draft.next_logits(k, None, None, tokens[1:, 15 + k], alone)
            for row, place in enumerate(places.tolist()):
                expected = reference(draft, tokens[row], states[row], place)[k]
                assert (found[row] - expected).abs().max() < 1e-4
            assert (single[0] - found[1]).abs().max() < 1e-5


def test_what_is_taught_is_what_is_drafted(target, text):
    tokens, states = text
    draft = eagle(target)
    anchors = torch.tensor([[1, 9], [19, 4]])
    blocks = tokens[torch.arange(2)[:, None, None], anchors[..., None] + torch.arange(BLOCK + 1)]
    learned = torch.ones(2, 2, BLOCK, dtype=torch.bool)
    learned[0, 1, 2:] = False
    with torch.no_grad():
        taught = draft.teach(Lesson(states, anchors, blocks, learned))
        expected = torch.stack([
            reference(draft, tokens[row], states[row], int(anchors[row, a]))[k]
            for row, a, k in learned.nonzero().tolist()
        ])  # fmt: skip
    assert taught.confidence is None
    assert (taught.logits - expected).abs().max() < 1e-4


@pytest.mark.parametrize("rule", ["rejection", "coupled"])
def test_it_drafts_for_the_speculative_decoder(target, rule, tmp_path):
    save_draft(draft := eagle(target), draft.config, tmp_path)
    decoder = SpeculativeDecoder(target, as_proposer(load_draft(tmp_path, target)), rule=rule, width=3)
    prompts = [target.encode(text) for text in ("ab", "longer one", "ab", "c")]
    requests = [Request(token_array(p), NoiseKey(0, 1, i)) for i, p in enumerate(prompts)]
    greedy = Sampling(max_tokens=12, temperature=0.0)
    plain = [item.tokens.tolist() for item in sample_all(target, requests, greedy)]
    found = {item.index: item.tokens.tolist() for item in decoder.sample(requests, greedy)}
    assert [found[i] for i in range(4)] == plain
    if rule == "coupled":
        free = Sampling(max_tokens=12)
        plain = [item.tokens.tolist() for item in sample_all(target, requests, free)]
        found = {item.index: item.tokens.tolist() for item in decoder.sample(requests, free)}
        assert [found[i] for i in range(4)] == plain
    assert decoder.stats.drafted > 0


def test_a_server_drafts_with_it_for_a_batch(target, tmp_path):
    save_draft(draft := eagle(target), draft.config, tmp_path)
    found = open_speculator(tmp_path, target, rule="coupled", cost=None, calibration=None, most=None)
    cost = profile(target, found, tokens=[1, 2, 4], requests=[1, 2], repeats=1, sweeps=1, context=8)
    assert cost.requests.tolist() == [1, 2]


def test_what_is_no_eagle_is_refused(target):
    for wrong in (
        {"layers": 2},
        {"window": 8},
        {"head": "markov", "rank": 4},
        {"confidence": True},
        {"target_layers": (1, 2)},
        {"target_layers": (0,)},
    ):
        with pytest.raises(BadInput):
            eagle(target, **wrong)
    draft = eagle(target)
    with pytest.raises(BadInput, match="goes on from a chain"):
        draft.next_logits(0, None, None, torch.tensor([1]))
    with pytest.raises(CannotDo, match="no confidence head"):
        draft.confidence(torch.zeros(1, WIDTH), torch.tensor([1]))
    kept = draft.keys_values(torch.zeros(1, 5, 2 * WIDTH), torch.arange(5)[None])
    with pytest.raises(CannotDo, match="all positions"):
        draft.start(torch.tensor([6]), kept)


def test_layers_of_a_target():
    assert eagle_layers(36) == (0, 2, 18, 33)
    assert eagle_layers(2) == (0, 1)
    assert eagle_layers(3) == (0, 1, 2)
