"""Mixtures of experts on a processor: what an expert makes of a row does not depend on who else it reads.

Every expert reads the rows that a router gave it, so how many rows its products have depends on the batch,
and products of few rows round otherwise than those of many. Here they are products by oneDNN, as those of
linear layers are, or where there is none have a multiple of sixteen rows.
Activations act on all rows at once, in the order of the tokens, as those of plain layers do.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from refork.decoding.packed import available, linear, packs
from refork.decoding.plan import align
from refork.errors import CannotDo

NAME = "refork_experts"

_ROWS = 16
"""Products of a multiple of so many rows give each row the same bits, with either library."""


def _experts(module: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    """The function that transformers calls: rows [N, width], experts and their weights [N, K]."""
    if module._is_expert_parallel:
        raise CannotDo("its experts are spread over several devices")
    slots = top_k_index.shape[1]
    chosen = top_k_index.reshape(-1)
    rows = hidden_states.repeat_interleave(slots, dim=0)
    # One sort says which rows each expert reads; a stable one keeps them in the order of the tokens.
    order = torch.sort(chosen, stable=True).indices
    # A number beyond the last expert stands for none; sorted to the end, such rows are left at zero.
    counts = torch.bincount(chosen, minlength=module.num_experts)[: module.num_experts].tolist()
    reads = [
        (expert, mine) for expert, mine in enumerate(torch.split(order[: sum(counts)], counts)) if len(mine)
    ]
    if module.has_gate:
        first, bias = module.gate_up_proj, module.gate_up_proj_bias if module.has_bias else None
    else:
        first, bias = module.up_proj, module.up_proj_bias if module.has_bias else None
    inner = _product(rows, first, bias, module.is_transposed, reads)
    inner = module._apply_gate(inner) if module.has_gate else module.act_fn(inner)
    bias = module.down_proj_bias if module.has_bias else None
    found = _product(inner, module.down_proj, bias, module.is_transposed, reads)
    if module.has_post_expert_norm:
        found = module.post_expert_norm(found)
    found = (found * top_k_weights.reshape(-1, 1)).view(-1, slots, found.shape[-1])
    # One slot after the other: a sum over the axis may add in another order in another batch.
    total = found[:, 0]
    for slot in range(1, slots):
        total = total + found[:, slot]
    return total.to(hidden_states.dtype)


def _product(
    rows: Tensor, weights: Tensor, bias: Tensor | None, transposed: bool, reads: list[tuple[int, Tensor]]
) -> Tensor:
    """Each row times the weights of its expert [width, out]; rows that no expert reads are zero."""
    out = rows.new_zeros(len(rows), weights.shape[2] if transposed else weights.shape[1])
    multiply = linear if available() and packs(weights) else F.linear
    for expert, mine in reads:
        weight = weights[expert].T if transposed else weights[expert]
        padded = F.pad(mine, (0, align(len(mine), _ROWS) - len(mine)))
        out[mine] = multiply(rows[padded], weight, None if bias is None else bias[expert])[: len(mine)]
    return out


def register() -> None:
    """Make it known to transformers, under NAME; calling it again changes nothing."""
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

    ALL_EXPERTS_FUNCTIONS.register(NAME, _experts)
