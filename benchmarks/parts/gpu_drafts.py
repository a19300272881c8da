"""Speculative draws under the coupled rule against plain draws of the same noise, on any device."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers import models as tokenizer_models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from refork.policies.base import Request, Sampling, sample_all
from refork.policies.local import LocalPolicy
from refork.sampling.noise import NoiseKey
from refork_methods.speculate.config import draft_config
from refork_methods.speculate.decoder import SpeculativeDecoder
from refork_methods.speculate.model import build_draft

VOCABULARY = 258


def tokenizer() -> PreTrainedTokenizerFast:
    """Bytes, and one token that ends a turn."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(
        tokenizer_models.BPE({"<end>": 0} | {c: i + 1 for i, c in enumerate([*letters, "ab"])}, [("a", "b")])
    )
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(["<end>"])
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<end>")


def target(device: torch.device, dtype: torch.dtype) -> LocalPolicy:
    """A model whose distribution is mostly that of its last token, so that drafts can be right."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.4,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.mul_(0.03)
    return LocalPolicy(model.to(device=device, dtype=dtype), tokenizer(), name="near-bigram")


def knowing(policy: LocalPolicy) -> Any:
    """A drafter that knows the model's distribution after every single token."""
    draft = build_draft(draft_config(policy, layers=1, block=4, rank=VOCABULARY, window=12), policy).eval()
    single = policy.next_logprobs([np.array([token], dtype=np.int32) for token in range(VOCABULARY)])
    with torch.no_grad():
        draft.head.markov_w1.weight.copy_(torch.from_numpy(np.stack(single)))
        draft.head.markov_w2.weight.copy_(torch.eye(VOCABULARY))
        draft.norm.weight.zero_()
    return draft


def compare(device: torch.device, count: int) -> dict[str, Any]:
    """Draws of both, by number format: how many are equal, and tokens said in a round of the drafter."""
    found: dict[str, Any] = {}
    rng = np.random.default_rng(0)
    prompts = [
        rng.integers(1, VOCABULARY, size=3 + 11 * (place % 9)).astype(np.int32) for place in range(count)
    ]
    requests = [Request(tokens, NoiseKey(4, 7, draw)) for draw, tokens in enumerate(prompts)]
    for dtype in (torch.float32, torch.bfloat16):
        policy = target(device, dtype)
        settings = Sampling(max_tokens=48, ignore_eos=True)
        said = sample_all(policy, requests, settings)
        decoder = SpeculativeDecoder(policy, knowing(policy), rule="coupled")
        drafted = sample_all(decoder, requests, settings)
        pairs = list(zip(said, drafted, strict=True))
        found[str(dtype).removeprefix("torch.")] = {
            "draws": count,
            "same": sum(np.array_equal(a.tokens, b.tokens) for a, b in pairs),
            "tokens_a_round": decoder.stats.tau,
        }
    return found
