"""Log-probs of given tokens without a matrix of all logits: the vocabulary is read in chunks.

16,384 tokens times 150,000 words are 10 GB of float32 logits. Here a block of tokens meets a block of the
vocabulary at a time, and only a running maximum and sum are kept, so memory does not grow with either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from refork.errors import CannotDo
from refork.policies.local import LocalPolicy
from refork.types import FloatArray, IntArray

ROWS, WORDS = 2048, 8192
_AGREE = 1e-3


@dataclass(frozen=True, slots=True)
class Head:
    """The last layer: ``weight`` [V, d], ``bias`` [V] or None; logits are times ``scale``, then capped."""

    weight: Tensor
    bias: Tensor | None = None
    scale: float = 1.0
    softcap: float | None = None

    def logits(self, hidden: Tensor, words: slice) -> Tensor:
        """Logits [n, words] in float32 of hidden states [n, d]."""
        bias = None if self.bias is None else self.bias[words]
        # As the model itself: the product in the model's precision, the rest in float32.
        found = torch.nn.functional.linear(hidden, self.weight[words], bias).float()
        if self.scale != 1.0:
            found = found * self.scale
        if self.softcap is not None:
            found = torch.tanh(found / self.softcap) * self.softcap
        return found


def chunked_logprobs(
    hidden: Tensor, head: Head, targets: Tensor, *, rows: int = ROWS, words: int = WORDS
) -> Tensor:
    """Log-probs in nats [n] (float64) of ``targets`` [n] under the logits of hidden states [n, d].

    Holds at most ``rows * words`` logits at a time.
    """
    size = head.weight.shape[0]
    out = torch.empty(len(hidden), dtype=torch.float64, device=hidden.device)
    for top in range(0, len(hidden), rows):
        part, wanted = hidden[top : top + rows], targets[top : top + rows]
        peak = torch.full((len(part),), -torch.inf, device=hidden.device)
        total = torch.zeros(len(part), dtype=torch.float64, device=hidden.device)
        chosen = torch.zeros(len(part), device=hidden.device)
        for low in range(0, size, words):
            logits = head.logits(part, slice(low, low + words))
            high = torch.maximum(peak, logits.amax(-1))
            inside = (wanted >= low) & (wanted < low + logits.shape[1])
            place = (wanted - low).clamp(0, logits.shape[1] - 1)
            # Read before the line below, which overwrites the logits to save their memory.
            chosen = torch.where(inside, logits.gather(1, place[:, None])[:, 0], chosen)
            mass = logits.sub_(high[:, None]).exp_().sum(-1)
            # What was summed under the old maximum is scaled to the new one; the first factor is exp(-inf),
            # 0.
            total = total * torch.exp((peak - high).double()) + mass.double()
            peak = high
        out[top : top + rows] = chosen.double() - peak.double() - total.log()
    return out


def head_of(model: Any) -> Head:
    """The head of a Hugging Face causal model.

    Raises:
        CannotDo: its head is no linear layer.
    """
    layer = model.get_output_embeddings()
    if not isinstance(layer, torch.nn.Linear):
        raise CannotDo(f"{type(model).__name__} has no linear head to read in chunks", hint="score without")
    config = model.config.get_text_config()
    # Two families scale their logits: one multiplies by logit_scale, the other divides by logits_scaling.
    scale = float(getattr(config, "logit_scale", None) or 1.0)
    scale /= float(getattr(config, "logits_scaling", None) or 1.0)
    return Head(layer.weight, layer.bias, scale, getattr(config, "final_logit_softcapping", None))


def model_logprobs(policy: LocalPolicy, sequences: Sequence[IntArray]) -> list[FloatArray]:
    """What ``policy.logprobs`` gives, one sequence at a time and chunked over the vocabulary: [n - 1] each.

    Raises:
        CannotDo: the head does something to its logits that is not known here (it is tried on a few
            tokens first).
    """
    model = policy.decoder.backbone.model
    device = policy.decoder.backbone.device
    head = head_of(model)
    found: list[FloatArray] = []
    with torch.inference_mode():
        for number, sequence in enumerate(sequences):
            tokens = torch.from_numpy(np.array(sequence, dtype=np.int64)).to(device)
            if number == 0:
                _try(model, head, tokens[:8])
            states = model.base_model(input_ids=tokens[None], use_cache=False).last_hidden_state[0]
            values = chunked_logprobs(states[:-1], head, tokens[1:])
            found.append(values.float().cpu().numpy())
    return found


def _try(model: Any, head: Head, tokens: Tensor) -> None:
    """Compare the head as understood here with the model's own on a few tokens."""
    own = torch.log_softmax(model(input_ids=tokens[None], use_cache=False).logits[0].float(), -1)
    states = model.base_model(input_ids=tokens[None], use_cache=False).last_hidden_state[0]
    ours = torch.log_softmax(head.logits(states, slice(None)), -1)
    if ours.shape != own.shape or float((ours - own).abs().max()) > _AGREE:
        raise CannotDo(
            f"the head of {type(model).__name__} does more than a linear layer, a scale and a soft cap",
            hint="score without chunks: memory is bounded there too, by rows",
        )
