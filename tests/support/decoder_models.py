"""Tiny random-initialised models of every supported architecture, and prefixes that share in every way."""

import warnings

import numpy as np
import torch
from transformers import (
    BioGptConfig,
    BioGptForCausalLM,
    BloomConfig,
    BloomForCausalLM,
    CodeGenConfig,
    CodeGenForCausalLM,
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    FalconConfig,
    FalconForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GemmaConfig,
    GemmaForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTJConfig,
    GPTJForCausalLM,
    GPTNeoConfig,
    GPTNeoForCausalLM,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    GptOssConfig,
    GptOssForCausalLM,
    Llama4ForCausalLM,
    Llama4TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MptConfig,
    MptForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    StableLmConfig,
    StableLmForCausalLM,
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


def _gemma2(**other):
    caps = {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 10.0}
    return Gemma2Config(**(PLAIN | NARROW | caps | {"num_key_value_heads": 2} | other), layer_types=MIXED)


OLDER = {
    "vocab_size": VOCABULARY,
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 512,
    "bos_token_id": None,
    "eos_token_id": None,
    "initializer_range": 0.1,
}
ROUTED = {"num_key_value_heads": 2, "head_dim": 16, "num_experts_per_tok": 2}


def _without(*names):
    return {name: value for name, value in PLAIN.items() if name not in names}


def _falcon(**kind):
    return lambda: FalconForCausalLM(FalconConfig(**_without("intermediate_size"), **kind))


def _gpt_oss():
    """Sinks are drawn, for as they are initialised they are all alike."""
    rope = {"rope_type": "default", "rope_theta": 1e4}
    config = GptOssConfig(
        **PLAIN, **ROUTED, num_local_experts=4, sliding_window=WINDOW, rope_parameters=rope, layer_types=MIXED
    )
    model = GptOssForCausalLM(config)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.sinks.normal_(std=2)
    return model


def _llama4():
    """Chunks and steps of the temperature by place are shorter than most prefixes."""
    return Llama4TextConfig(
        **PLAIN,
        **(ROUTED | {"num_experts_per_tok": 1}),
        intermediate_size_mlp=96,
        num_local_experts=4,
        attention_chunk_size=WINDOW,
        floor_scale=16,
        no_rope_layers=[1, 0],
        layer_types=["chunked_attention", "full_attention"],
    )


def _deepseek_v3():
    ranks = {"kv_lora_rank": 16, "q_lora_rank": 16}
    widths = {"qk_rope_head_dim": 8, "v_head_dim": 24, "qk_nope_head_dim": 16}
    experts = {"moe_intermediate_size": 32, "n_routed_experts": 4, "n_group": 1, "topk_group": 1}
    return DeepseekV3Config(
        **PLAIN,
        **ranks,
        **widths,
        **experts,
        num_key_value_heads=4,
        num_experts_per_tok=2,
        first_k_dense_replace=1,
    )


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
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(**OLDER)),
    "gpt2_by_layer": lambda: GPT2LMHeadModel(GPT2Config(**OLDER, scale_attn_by_inverse_layer_idx=True)),
    "gptj": lambda: GPTJForCausalLM(GPTJConfig(**OLDER, rotary_dim=8)),
    "codegen": lambda: CodeGenForCausalLM(CodeGenConfig(**OLDER, rotary_dim=8)),
    "gpt_neo": lambda: GPTNeoForCausalLM(
        GPTNeoConfig(
            **_without("num_hidden_layers", "num_attention_heads"),
            num_layers=2,
            num_heads=4,
            attention_types=[[["global", "local"], 1]],
            window_size=WINDOW,
        )
    ),
    "opt": lambda: OPTForCausalLM(
        OPTConfig(
            **_without("intermediate_size", "initializer_range", "pad_token_id"),
            ffn_dim=96,
            init_std=0.1,
            word_embed_proj_dim=64,
            pad_token_id=1,
        )
    ),
    "biogpt": lambda: BioGptForCausalLM(BioGptConfig(**(PLAIN | {"pad_token_id": 1}))),
    "stablelm": lambda: StableLmForCausalLM(StableLmConfig(**PLAIN, num_key_value_heads=4)),
    "falcon": _falcon(multi_query=True),
    "falcon_new": _falcon(new_decoder_architecture=True, num_kv_heads=2),
    "falcon_heads": _falcon(multi_query=False, parallel_attn=False, bias=True),
    "falcon_alibi": _falcon(alibi=True, multi_query=False, parallel_attn=False),
    "falcon_alibi_new": _falcon(alibi=True, new_decoder_architecture=True, num_kv_heads=2),
    "bloom": lambda: BloomForCausalLM(
        BloomConfig(vocab_size=VOCABULARY, hidden_size=64, n_layer=2, n_head=4, initializer_range=0.1)
    ),
    "mpt": lambda: MptForCausalLM(
        MptConfig(
            vocab_size=VOCABULARY, d_model=64, n_layers=2, n_heads=4, max_seq_len=512, initializer_range=0.1
        )
    ),
    # Widths at which PyTorch's BLAS has its own way with eight rows, on some processors.
    "gemma2_wide": lambda: Gemma2ForCausalLM(
        _gemma2(head_dim=256, num_attention_heads=2, num_key_value_heads=1)
    ),
    "gpt_oss": _gpt_oss,
    "llama4": lambda: Llama4ForCausalLM(_llama4()),
    "phi3": lambda: Phi3ForCausalLM(Phi3Config(**(PLAIN | {"pad_token_id": 0}), num_key_value_heads=2)),
    "qwen3_moe": lambda: Qwen3MoeForCausalLM(
        Qwen3MoeConfig(**PLAIN, **ROUTED, moe_intermediate_size=32, num_experts=8)
    ),
    "deepseek_v3": lambda: DeepseekV3ForCausalLM(_deepseek_v3()),
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


def plain_logprobs(model, tokens):
    """Log-probs [n, vocabulary] of what may follow each token, by one plain forward pass."""
    ids = torch.from_numpy(np.asarray(tokens)).long()[None]
    with torch.no_grad():
        return torch.log_softmax(model(ids).logits[0].float(), dim=-1).numpy()


def teacher_forced(model, tokens):
    """Log-probs [n - 1] of tokens given those before, by one plain forward pass."""
    following = np.asarray(tokens)[1:, None].astype(np.int64)
    return np.take_along_axis(plain_logprobs(model, tokens)[:-1], following, 1)[:, 0]


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
