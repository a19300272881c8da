"""A tiny model whose law is mostly that of its last token, and drafters for it: good, bad and malicious."""

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from refork.policies.local import LocalPolicy
from refork_methods.speculate.config import draft_config
from refork_methods.speculate.model import build_draft
from support.models import make_tokenizer


def random_llama(seed=0, **changes):
    """Three random layers of width 32 in which four query heads share two key heads."""
    torch.manual_seed(seed)
    shape = {
        "vocab_size": 258, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 160,
        "initializer_range": 0.3, "bos_token_id": None, "eos_token_id": None,
    }  # fmt: skip
    return LlamaForCausalLM(LlamaConfig(**(shape | changes))).eval()


def random_target(seed=0, **changes):
    """The policy of :func:`random_llama`."""
    return LocalPolicy(random_llama(seed, **changes), make_tokenizer(), name="random")


def shaken(module):
    """A network whose weights are nowhere at their start."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for part in module.parameters():
            part.add_(0.2 * torch.randn(part.shape, generator=generator))
        for name, part in module.named_buffers():
            if name.endswith("layer_scalar"):
                part.fill_(0.8)
    return module.eval()


def llama(seed=0):
    """Two layers whose distribution is mostly that of the last token, so that drafts can be right."""
    model = random_llama(seed, num_hidden_layers=2, initializer_range=0.4)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.mul_(0.03)
    return model


def gqa(seed=0):
    """The policy of that model: four query heads share two key heads."""
    return LocalPolicy(llama(seed), make_tokenizer(), name="gqa")


def untrained(target, rank=8):
    return build_draft(draft_config(target, layers=1, block=4, rank=rank, window=12), target).eval()


def adversarial(target):
    """Sure of the least likely tokens: it turns the signs of what the model's head would say."""
    draft = untrained(target)
    with torch.no_grad():
        draft.norm.weight.fill_(-20.0)
        draft.head.markov_w2.weight.normal_(generator=torch.Generator().manual_seed(1)).mul_(5)
    return draft


def knowing(target):
    """Knows the model's law after every single token: right often enough that several drafts are kept."""
    draft = untrained(target, rank=258)
    distribution = target.next_logprobs([np.array([t], dtype=np.int32) for t in range(258)])
    with torch.no_grad():
        draft.head.markov_w1.weight.copy_(torch.from_numpy(np.stack(distribution)))
        draft.head.markov_w2.weight.copy_(torch.eye(258))
        draft.norm.weight.zero_()
    return draft


def random_gemma(seed=0, **changes):
    """The policy of a random Gemma 4: scaled embedding, capped logits, a layer in three sees everything."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(seed)
    shape = {
        "vocab_size": 258, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "global_head_dim": 16,
        "num_global_key_value_heads": 1, "attention_k_eq_v": True, "hidden_size_per_layer_input": 0,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"], "sliding_window": 16,
        "max_position_embeddings": 160, "initializer_range": 0.3, "final_logit_softcapping": 5.0,
        "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
    }  # fmt: skip
    config = AutoConfig.for_model("gemma4_text", **(shape | changes))
    return LocalPolicy(AutoModelForCausalLM.from_config(config).eval(), make_tokenizer(), name="gemma")


#: What makes a drafter's layers those of that model.
GEMMA = {
    "family": "gemma4", "heads": 4, "kv_heads": 1, "head_dim": 16, "intermediate": 48, "shared_values": True,
    "rotary": 0.25, "rope_theta": 1e6, "qk_norm": True,
}  # fmt: skip
