"""A tiny random model with a byte tokenizer."""

import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers import models as tokenizer_models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from refork.policies.local import LocalPolicy

CONTEXT = 160


def make_tokenizer(extra=()):
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<end>": 0} | {c: i + 1 for i, c in enumerate([*letters, "ab", *extra])}
    inner = Tokenizer(tokenizer_models.BPE(vocabulary, [("a", "b")]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(["<end>"])
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<end>")


def make_model(seed=0, size=258, spread=0.3):
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=size,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=CONTEXT,
        initializer_range=spread,
        bos_token_id=None,
        eos_token_id=None,
    )
    return LlamaForCausalLM(config).eval()


def tiny_policy(seed=0):
    """Two blocks of width 32, 258 tokens."""
    return LocalPolicy(make_model(seed), make_tokenizer(), name="tiny")
