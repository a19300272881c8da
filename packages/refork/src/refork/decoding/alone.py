"""Attention of a pass over several tokens of one branch, heads first as the model hands them over.

The general path (:class:`Step` of attention.py) lays queries out row by row, and copies them head by head for
every product. Where all tokens belong to one branch nothing needs to be copied. The bits are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

import torch
from torch import Tensor
from torch.nn import functional as F

from refork.decoding.plan import BLOCK, align
from refork.decoding.stack import Stack

Bias: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""What is added to scores [H, N or 1, C], of the columns' positions [N or 1, C] and the queries' [N]."""

_SINK = 16
"""Columns behind the scores for a sink: a whole vector, so that sums over a row keep their order."""


EXACT = ("cuda",)
"""Kinds of devices on which attention is computed in float64."""


def exact(tensor: Tensor) -> Tensor:
    """What attention multiplies: the tensor itself on a processor, in float64 on a GPU.

    A GPU's library chooses a kernel by all sizes of a product, and so the order of a sum by what else is in a
    batch. In float64 the orders differ by so little that rounding to the model's own format leaves nothing
    of it.
    """
    return tensor.double() if tensor.device.type in EXACT else tensor


def with_sinks(sinks: Tensor | None) -> int:
    """How many columns more than the scores have take part in the softmax."""
    return 0 if sinks is None else _SINK


def softmax(scores: Tensor) -> Tensor:
    """Softmax over the last axis, in place where the dtype is float32 or float64."""
    if scores.dtype in (torch.float32, torch.float64):
        return torch.softmax(scores, dim=-1, out=scores)
    # In float32 and back, as the models' own attention does.
    return torch.softmax(scores, dim=-1, dtype=torch.float32).to(scores.dtype)


def copies(device: torch.device) -> bool:
    """Whether there one product over copies of what each token reads costs less than one for each token."""
    return device.type != "cpu"


def score_each(queries: Sequence[Tensor], stores: Sequence[Tensor]) -> Tensor:
    """Products [T, heads, group, columns] of each token's queries [heads, group, d] with keys of its own.

    ``stores`` [heads, columns, d] are views. Products of few rows, token by token, have the bits of a plain
    step.
    """
    heads, group, _ = queries[0].shape
    if copies(queries[0].device):
        return torch.stack(list(queries)) @ torch.stack(list(stores)).transpose(-1, -2)
    found = queries[0].new_empty(len(stores), heads, group, stores[0].shape[1])
    # One view for all tokens of a branch: making it anew costs as much as a small product.
    turned = {name: keys.transpose(1, 2) for name, keys in _distinct(stores)}
    for query, keys, out in zip(queries, stores, found.unbind(0), strict=True):
        torch.bmm(query, turned[id(keys)], out=out)
    return found


def mix_each(out: Tensor, weights: Tensor, stores: Sequence[Tensor]) -> None:
    """Add weighted values to ``out`` [T, heads, group, d], block after block.

    ``weights`` [T, heads, group, columns]; ``stores`` [heads, columns, d], a token's each, are views.
    """
    whole = torch.stack(list(stores)).flatten(0, 1) if copies(out.device) else None
    for at in range(0, weights.shape[-1], BLOCK):
        block = slice(at, at + BLOCK)
        if whole is not None:
            out.view(-1, *out.shape[2:]).baddbmm_(weights[..., block].flatten(0, 1), whole[:, block])
            continue
        parts = {name: values[:, block] for name, values in _distinct(stores)}
        for total, mine, values in zip(out.unbind(0), weights[..., block].unbind(0), stores, strict=True):
            total.baddbmm_(mine, parts[id(values)])


@final
@dataclass(frozen=True, slots=True)
class Alone:
    """One branch's ``count`` tokens in a pass: they read ``runs`` (stack, run, width) and what it said.

    What it said lies in row ``row`` of ``own``; the tokens write to columns ``first`` and on, of ``columns``.
    """

    runs: Sequence[tuple[Stack, int, int]]
    own: Stack
    row: int
    count: int
    first: int
    columns: int

    def write(self, layer: int, key: Tensor, value: Tensor) -> None:
        """Put the pass's keys and values [heads, N, width] behind what the branch said."""
        there = slice(self.first, self.first + self.count)
        self.own.keys[layer][self.row, :, there] = key[:, : self.count]
        self.own.values[layer][self.row, :, there] = value[:, : self.count]

    def attend(
        self,
        layer: int,
        query: Tensor,
        mask: Tensor,
        softcap: float | None,
        bias: Tensor | None = None,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """Attention output [N, H, d] of scaled queries [H, N, d].

        ``mask`` [N, C], ``bias`` [H, N or 1, C], ``sinks`` [H].
        """
        shape, rows = self.own.shape.layers[layer], query.shape[1]
        query = _tall(query, self.own.shape.row_unit)
        heads, group, tall = shape.heads, shape.group, query.shape[1]
        width = mask.shape[1]
        whole = query.new_zeros(query.shape[0], tall, width + with_sinks(sinks))
        scores = whole[..., :width]
        self._score(layer, query, scores)
        if softcap is not None:
            # Before the mask is added: tanh makes a hidden column's -inf a finite score, which would be seen.
            scores.div_(softcap).tanh_().mul_(softcap)
        scores[:, :rows].add_(mask)
        if bias is not None:
            scores[:, :rows].add_(bias)
        if sinks is not None:
            whole[..., width] = sinks[:, None]
            whole[..., width + 1 :] = -torch.inf
        weights = softmax(whole)[..., :width]
        folded = weights.view(heads, group * tall, -1)
        out = folded.new_zeros(heads, group * tall, shape.value)
        for stack, run, width in self.runs:
            values = exact(stack.values[layer][run, :, :width])
            for at in range(0, width, BLOCK):
                there = stack.start + at
                out.baddbmm_(folded[:, :, there : there + BLOCK], values[:, at : at + BLOCK])
        parts = out.view(heads, group, tall, -1).permute(2, 0, 1, 3).contiguous()
        mine = weights.view(heads, group, tall, -1)[..., weights.shape[-1] - self.columns :]
        values = exact(self.own.values[layer][self.row, :, : self.columns])
        mix_each(parts[: self.count], mine[:, :, : self.count].permute(2, 0, 1, 3), [values] * self.count)
        return parts[:rows].flatten(1, 2)

    def _score(self, layer: int, query: Tensor, scores: Tensor) -> None:
        """Put query-key products, with the runs and with what was said, into ``scores`` [H, tall, C]."""
        shape, tall, width = self.own.shape.layers[layer], query.shape[1], scores.shape[2]
        heads, group = shape.heads, shape.group
        folded = query.reshape(heads, group * tall, -1)
        for stack, run, size in self.runs:
            found = torch.bmm(folded, exact(stack.keys[layer][run, :, :size]).transpose(1, 2))
            scores[:, :, stack.start : stack.start + size] = found.view(heads * group, tall, size)
        keys = exact(self.own.keys[layer][self.row, :, : self.columns])
        queries = query.view(heads, group, tall, -1)[:, :, : self.count].unbind(2)
        own = score_each(queries, [keys] * self.count).permute(1, 2, 0, 3)
        there = scores.view(heads, group, tall, width)[:, :, : self.count, width - self.columns :]
        there.copy_(own)


def _distinct(stores: Sequence[Tensor]) -> Iterable[tuple[int, Tensor]]:
    return {id(store): store for store in stores}.items()


def _tall(query: Tensor, unit: int) -> Tensor:
    """Queries [H, N, d] with zeros behind them, so that products have a multiple of ``unit`` rows."""
    missing = align(query.shape[1], unit) - query.shape[1]
    return query if missing == 0 else F.pad(query, (0, 0, 0, missing))
