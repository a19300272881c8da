"""Tiny random-initialised models of every supported architecture, and prefixes that share in every way."""

import warnings

import numpy as np
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GemmaConfig,
    GemmaForCausalLM,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

VOCABULARY = 101
WINDOW = 24
PLAIN = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
    "initializer_range": 0.1,
}
NARROW = {"head_dim": 32, "sliding_window": WINDOW}
MIXED = ["sliding_attention", "full_attention"]


def _windowed_qwen2():
    return Qwen2Config(
        **PLAIN, num_key_value_heads=4, use_sliding_window=True, sliding_window=WINDOW, layer_types=MIXED
    )


def _gemma2():
    caps = {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 10.0}
    return Gemma2Config(**PLAIN, **NARROW, **caps, num_key_value_heads=2, layer_types=MIXED)


MAKERS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**PLAIN, num_key_value_heads=2)),
    "qwen2": lambda: Qwen2ForCausalLM(_windowed_qwen2()),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**PLAIN, num_key_value_heads=2, head_dim=32)),
    "gemma": lambda: GemmaForCausalLM(GemmaConfig(**PLAIN, num_key_value_heads=1, head_dim=16)),
    "gemma2": lambda: Gemma2ForCausalLM(_gemma2()),
    "gemma3": lambda: Gemma3ForCausalLM(
        Gemma3TextConfig(**PLAIN, **NARROW, num_key_value_heads=2, layer_types=MIXED)
    ),
    "gpt_neox": lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**PLAIN, rotary_pct=0.25)),
}
ARCHITECTURES = sorted([*MAKERS, "lora"])


def make(name):
    """A model by name; the same weights every time."""
    torch.manual_seed(0)
    if name != "lora":
        return MAKERS[name]().eval()
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=4, target_modules=["q_proj", "v_proj", "down_proj"])
    with warnings.catch_warnings():
        # peft reads a property that transformers has renamed.
        warnings.simplefilter("ignore", FutureWarning)
        model = get_peft_model(MAKERS["llama"](), config)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if "lora_B" in parameter_name:
                parameter.normal_(std=0.3)
    return model.eval()


def prefixes():
    """Points of one trace at and around block borders, traces that part in its middle, and strangers."""
    rng = np.random.default_rng(0)

    def words(count):
        return rng.integers(0, VOCABULARY, count).astype(np.int32)

    base = words(300)
    points = [base[:k] for k in (1, 5, 63, 64, 65, 130, 300)]
    parted = [np.concatenate([base[:150], words(20 + 23 * i)]) for i in range(4)]
    return points + parted + [words(90), words(7)]


def teacher_forced(model, tokens):
    """Log-probs [n - 1] of tokens given those before, by one plain forward pass."""
    ids = torch.from_numpy(np.asarray(tokens)).long()[None]
    with torch.no_grad():
        logs = torch.log_softmax(model(ids).logits[0].float(), dim=-1)
    return logs[:-1].gather(1, ids[0, 1:, None])[:, 0].numpy()


def greedy(model, prefix, count):
    """What ``generate`` says."""
    ids = torch.from_numpy(prefix).long()[None]
    out = model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=count,
        do_sample=False,
        pad_token_id=0,
    )
    return out[0, len(prefix) :].numpy()
