"""Passes that feed several tokens of a branch: its newest one and what is proposed to follow it.

All tokens of all branches are packed behind one another, so linear layers compute no padded rows. Only what
branches said themselves is multiplied branch by branch, padded to the longest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np
import torch
from torch import Tensor

from refork.decoding.alone import Alone, exact, mix_each, score_each
from refork.decoding.attention import AttentionPlan, StackProduct
from refork.decoding.backbone import Backbone
from refork.decoding.plan import BLOCK, align
from refork.decoding.prefill import Ints, causal_mask, products
from refork.decoding.stack import KvShape, LayerShape, Stack

LIGHT = 4 << 20
"""Bytes of keys that the tokens of a pass read, one by one, up to which each has a product of its own."""


@final
class Spread:
    """The part of such passes that depends on ``lengths`` [n] only: how many tokens of each row are fed.

    ``row`` and ``position`` [T] say of each token whose it is and the how-manieth; ``reads`` lists stacks,
    the rows that read them, and which runs.
    """

    def __init__(
        self, backbone: Backbone, reads: Sequence[tuple[Stack, Ints, Ints]], keep: Ints, lengths: Ints
    ) -> None:
        shape, device = backbone.shape, backbone.device
        starts = np.cumsum(lengths) - lengths
        self.backbone, self.rows = backbone, len(lengths)
        self.row = np.repeat(np.arange(len(lengths)), lengths)
        self.position = np.arange(len(self.row)) - starts[self.row]
        count = backbone.padded(len(self.row))
        self.keep = np.zeros(count, dtype=np.int64)
        self.keep[: len(self.row)] = keep[self.row]
        self.kept_tokens = torch.from_numpy(self.keep).to(device)
        self.products: list[StackProduct] = []
        for stack, rows, items in reads:
            mine = lengths[rows]
            within = np.arange(int(mine.sum())) - np.repeat(np.cumsum(mine) - mine, mine)
            if not len(within):
                continue
            tokens = np.repeat(starts[rows], mine) + within
            self.products += products(stack, tokens, np.repeat(items, mine), self.keep[tokens])
        # Products of too few rows round otherwise than those of a plain step.
        tall = align(int(lengths.max()), shape.row_unit)
        padded = np.zeros((len(lengths), tall), dtype=np.int64)
        padded[self.row, self.position] = np.arange(len(self.row))
        self.table = Table(
            torch.from_numpy(self.row).to(device),
            self.row.tolist(),
            torch.from_numpy(padded).to(device),
            torch.from_numpy(self.row * tall + self.position).to(device),
            int(lengths.max()),
        )
        self.runs = runs_of(self.products, self.row, shape)
        self.mask = self.reach = torch.zeros(0)
        self.columns = -1

    def visible(self, own: Tensor, prefix: int, columns: int) -> None:
        """Set mask and column positions for tokens whose own columns are ``own`` [T]."""
        shape, device, count = self.backbone.shape, self.backbone.device, len(self.row)
        mine = torch.arange(columns, device=device)
        if columns != self.columns:
            self.columns = columns
            before = torch.arange(prefix, device=device)
            size = (len(self.kept_tokens), columns)
            nothing = torch.full(size, -torch.inf, dtype=shape.dtype, device=device)
            self.mask = torch.cat([causal_mask(before, self.kept_tokens, shape), nothing], dim=1)
            # Padding looks at one column that holds nothing but zeros, for a softmax needs something.
            self.mask[count:, 0] = 0.0
            self.reach = torch.cat(
                [before.expand(len(self.kept_tokens), -1), self.kept_tokens[:, None] + mine], dim=1
            )
        # Anew in every pass: a plan is kept for its lengths, while what the rows have said grows.
        self.mask[:count, prefix:] = causal_mask(mine, own + 1, shape)


def spread_pass(
    plan: Spread, own: Ints, prefix: int, columns: int, store: Stack, scratch: dict[str, Tensor]
) -> tuple[Tensor, AttentionPlan]:
    """Positions [N] and attention of one pass whose tokens write to own columns ``own`` [T]."""
    device = plan.backbone.device
    column = torch.from_numpy(own).to(device)
    plan.visible(column, prefix, columns)
    places = plan.keep.copy()
    places[: len(own)] += own
    where = torch.from_numpy(places).to(device)
    step = AttentionPlan(plan.mask, plan.reach, where, int(places.max()), plan.products, scratch=scratch)
    if plan.runs is None:
        step.own = SpreadPart(store, plan.table, column, columns, plan.rows)
    else:
        step.alone = Alone(plan.runs, store, int(plan.row[0]), len(own), int(own[0]), columns)
    return where, step


def runs_of(
    result: Sequence[StackProduct], rows: Ints, shape: KvShape
) -> list[tuple[Stack, int, int]] | None:
    """What one branch's tokens read (stack, run, width); None for several branches, or for tall groups."""
    one = len(rows) > 0 and rows[0] == rows[-1]
    whole = all(isinstance(item.rows, slice) and item.rows == slice(0, len(rows)) for item in result)
    if not one or not whole or any(layer.group >= layer.enough for layer in shape.layers):
        return None
    return [(item.stack, item.item, item.width) for item in result]


@dataclass(frozen=True, slots=True)
class Table:
    """Packed tokens [T] as a padded table [n, S] of branches: ``padded`` holds their numbers.

    ``taken`` [T] are the flat places of the real ones, ``row`` [T] (and the list ``whose``) whose they are,
    ``most`` the longest row.
    """

    row: Tensor
    whose: list[int]
    padded: Tensor
    taken: Tensor
    most: int
    _turns: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)

    def turns(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """For the first, second, ... token of each branch: numbers [n], real rows, and their numbers."""
        if not self._turns:
            tall = self.padded.shape[1]
            for place in range(self.most):
                real = self.taken % tall == place
                self._turns.append((self.padded[:, place], self.row[real], torch.nonzero(real)[:, 0]))
        return self._turns


@final
@dataclass(frozen=True, slots=True)
class SpreadPart:
    """What n branches said themselves, read by several tokens of each, which write to ``column`` [T]."""

    stack: Stack
    table: Table
    column: Tensor
    columns: int
    rows: int

    def write(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Put the pass's keys and values [N, heads, width] behind what each branch said."""
        count = len(self.column)
        self.stack.keys[layer][self.table.row, :, self.column] = keys[:count]
        self.stack.values[layer][self.table.row, :, self.column] = values[:count]

    def score(self, layer: int, query: Tensor, scores: Tensor) -> None:
        """Add query-key products to the own columns of ``scores`` [N, H, C]."""
        shape = self.stack.shape.layers[layer]
        keys = exact(self.stack.keys[layer][: self.rows].flatten(0, 1)[:, : self.columns]).transpose(1, 2)
        mine = scores[:, :, scores.shape[-1] - self.columns :]
        if shape.group >= shape.enough:
            found = torch.bmm(self._gather(query, shape), keys)
            mine[: len(self.column)].add_(self._spread(found, shape)[self.table.taken])
            return
        if self._light(shape, shape.key):
            stores, count = self._stores(self.stack.keys[layer]), len(self.column)
            parts = query[:count].reshape(count, shape.heads, shape.group, -1)
            mine[:count].add_(score_each(parts.unbind(0), stores).flatten(1, 2))
            return
        for numbers, rows, tokens in self.table.turns():
            found = torch.bmm(query[numbers].view(keys.shape[0], shape.group, -1), keys)
            mine[tokens] += found.view(self.rows, -1, self.columns)[rows]

    def mix(self, layer: int, weights: Tensor, out: Tensor) -> None:
        """Add weighted values to ``out`` [N, H, d], block after block."""
        shape = self.stack.shape.layers[layer]
        values = exact(self.stack.values[layer][: self.rows].flatten(0, 1)[:, : self.columns])
        mine = weights[:, :, weights.shape[-1] - self.columns :]
        if shape.group >= shape.enough:
            total = self._sum(self._gather(out, shape), self._gather(mine, shape), values)
            out[: len(self.column)] = self._spread(total, shape)[self.table.taken]
            return
        if self._light(shape, shape.value):
            stores, count = self._stores(self.stack.values[layer]), len(self.column)
            parts = out[:count].view(count, shape.heads, shape.group, -1)
            weighed = mine[:count].view(count, shape.heads, shape.group, -1)
            mix_each(parts, weighed, stores)
            return
        for numbers, rows, tokens in self.table.turns():
            flat = (values.shape[0], shape.group, -1)
            total = self._sum(out[numbers].view(flat), mine[numbers].view(flat), values)
            out[tokens] = total.view(self.rows, *out.shape[1:])[rows]

    def _light(self, shape: LayerShape, width: int) -> bool:
        return len(self.column) * shape.heads * self.columns * width * 4 <= LIGHT

    def _stores(self, store: Tensor) -> list[Tensor]:
        """What the branch of each token said, [heads, columns, width] of each of T."""
        branches = exact(store[: self.rows, :, : self.columns]).unbind(0)
        return [branches[row] for row in self.table.whose]

    def _sum(self, total: Tensor, weights: Tensor, values: Tensor) -> Tensor:
        for at in range(0, self.columns, BLOCK):
            total.baddbmm_(weights[:, :, at : at + BLOCK], values[:, at : at + BLOCK])
        return total

    def _gather(self, tensor: Tensor, shape: LayerShape) -> Tensor:
        """Packed [N, H, k] as [n * heads, S * group, k]."""
        rows, tall = self.table.padded.shape
        picked = tensor[self.table.padded].view(rows, tall, shape.heads, shape.group, -1)
        return picked.transpose(1, 2).reshape(rows * shape.heads, tall * shape.group, -1)

    def _spread(self, tensor: Tensor, shape: LayerShape) -> Tensor:
        """The inverse: [n * S, H, k]."""
        rows, tall = self.table.padded.shape
        split = tensor.view(rows, shape.heads, tall, shape.group, -1)
        return split.transpose(1, 2).reshape(rows * tall, shape.heads * shape.group, -1)
