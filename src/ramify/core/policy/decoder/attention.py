"""Attention of packed branches over shared prefixes and their own suffixes.

A forward pass is one row of N packed tokens; a row of the packed batch is one query. Its keys are the
first ``keep`` positions of its trace (shared: column j of the scores is absolute position j) and, while
decoding, what the branch said since (own columns, after all prefix columns). One softmax runs over both.

What makes a row's bits independent of its neighbours: matrix products have a multiple of eight rows or
many, products with values are summed in blocks of BLOCK absolute positions in one order, and whatever
is padded adds exact zeros at the end of a sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, final

import torch
from torch import Tensor

from ramify.core.errors import CannotDo, InternalError
from ramify.core.policy.decoder.alone import Alone, softmax
from ramify.core.policy.decoder.plan import BLOCK
from ramify.core.policy.decoder.stack import LayerShape, Stack

NAME = "ramify_branches"


@dataclass(frozen=True, slots=True)
class Product:
    """Rows of the batch against one stack's first ``width`` positions.

    Dense: ``rows`` is a slice of many rows that all read run ``item``; with ``tall`` a few, computed with
    those behind them, so many in all. Stacked: run ``items[i]`` (None: run i) is read by rows ``padded[i]``
    [M], of which the flat places ``taken`` are real and belong to batch rows ``rows``.
    """

    stack: Stack
    width: int
    rows: slice | Tensor
    item: int = 0
    tall: int = 0
    items: Tensor | None = None
    padded: Tensor | None = None
    taken: Tensor | None = None

    def score(self, layer: int, query: Tensor, scores: Tensor) -> None:
        """Add query-key products to ``scores`` [N, H, C]; ``query`` is [N, H, d], scaled."""
        start = self.stack.start
        part = scores[:, :, start : start + self.width]
        keys = self._run(self.stack.keys[layer])
        if not isinstance(self.rows, slice):
            self._stacked(part, query, keys.transpose(-1, -2))
        elif not self.tall:
            self._dense(part[self.rows], query[self.rows], keys.transpose(-1, -2))
        else:
            found = torch.bmm(self._few(query, keys.shape[0]), keys.transpose(-1, -2))
            part[self.rows].add_(self._whole(found, query.shape[1]))

    def mix(self, layer: int, weights: Tensor, out: Tensor) -> None:
        """Add weighted values to ``out`` [N, H, d], block after block of absolute positions."""
        values = self._run(self.stack.values[layer])
        start = self.stack.start
        part = weights[:, :, start : start + self.width]
        if not isinstance(self.rows, slice):
            self._stacked(out, part, values, BLOCK)
        elif not self.tall:
            for at in range(0, self.width, BLOCK):
                block = slice(at, at + BLOCK)
                self._dense(out[self.rows], part[self.rows][..., block], values[..., block, :])
        else:
            heads = values.shape[0]
            total, mine = self._few(out, heads), self._few(part, heads)
            for at in range(0, self.width, BLOCK):
                total.baddbmm_(mine[:, :, at : at + BLOCK], values[:, at : at + BLOCK])
            out[self.rows] = self._whole(total, out.shape[1])

    def _run(self, tensor: Tensor) -> Tensor:
        if isinstance(self.rows, slice):
            return tensor[self.item, :, : self.width]
        return (tensor if self.items is None else tensor[self.items])[:, :, : self.width]

    def _few(self, tensor: Tensor, heads: int) -> Tensor:
        """A copy [heads, tall * group, k] of some rows of [N, H, k] and those behind them."""
        first, tall = self.rows.start, self.tall  # type: ignore[union-attr]
        rows = tensor[first : first + tall]
        if len(rows) < tall:
            rows = torch.nn.functional.pad(rows, (0, 0, 0, 0, 0, tall - len(rows)))
        split = rows.view(tall, heads, rows.shape[1] // heads, rows.shape[2])
        return (
            split.transpose(0, 1).clone(memory_format=torch.contiguous_format).view(heads, -1, rows.shape[2])
        )

    def _whole(self, tensor: Tensor, heads: int) -> Tensor:
        """The inverse, without the rows behind: [rows, H, k] of [kv heads, tall * group, k]."""
        split = tensor.view(tensor.shape[0], self.tall, -1, tensor.shape[2]).transpose(0, 1)
        count = self.rows.stop - self.rows.start  # type: ignore[union-attr]
        return split[:count].reshape(count, heads, tensor.shape[2])

    @staticmethod
    def _dense(out: Tensor, left: Tensor, right: Tensor) -> None:
        """Out [M, H, n] += left [M, H, k] @ right [heads, k, n], grouped heads one at a time."""
        group = out.shape[1] // right.shape[0]
        for g in range(group):
            out[:, g::group].transpose(0, 1).baddbmm_(left[:, g::group].transpose(0, 1), right)

    def _stacked(self, out: Tensor, left: Tensor, right: Tensor, unit: int | None = None) -> None:
        """Out [N, H, n] += left [N, H, k] @ right [runs, heads, k, n], for the rows of each run.

        The sum over k is made ``unit`` after unit.
        """
        if self.padded is None or self.taken is None or isinstance(self.rows, slice):
            raise InternalError("a stacked product needs its row table")
        runs, heads = right.shape[:2]
        tall, group = self.padded.shape[1], out.shape[1] // heads
        flat = (runs * heads, tall * group, -1)

        def gather(tensor: Tensor) -> Tensor:
            picked = tensor[self.padded].view(runs, tall, heads, group, tensor.shape[-1])
            # A view, where it would do, is ten times slower: products into strided memory go head by head.
            return picked.transpose(1, 2).reshape(flat).contiguous()

        right = right.reshape(runs * heads, right.shape[2], right.shape[3])
        total, mine = gather(out), gather(left)
        size = mine.shape[2]
        for at in range(0, size, unit or size):
            piece = slice(at, at + (unit or size))
            total.baddbmm_(mine[:, :, piece], right[:, piece])
        total = (
            total.view(runs, heads, tall, group, -1).transpose(1, 2).reshape(runs * tall, -1, out.shape[-1])
        )
        out[self.rows] = total[self.taken]


class Own(Protocol):
    """What branches said themselves, as the attention of one pass reads and extends it."""

    def write(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Put the pass's keys and values [N, heads, width] where they belong."""
        ...

    def score(self, layer: int, query: Tensor, scores: Tensor) -> None:
        """Add query-key products to the own columns of ``scores`` [N, H, C]."""
        ...

    def mix(self, layer: int, weights: Tensor, out: Tensor) -> None:
        """Add weighted values to ``out`` [N, H, d]."""
        ...


@final
@dataclass(slots=True)
class OwnPart:
    """What N branches said themselves: where each writes now, and how many columns are in use."""

    stack: Stack
    lengths: Tensor
    uniform: int | None
    columns: int

    def write(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Put this step's keys and values [N, heads, width] behind each branch's own tokens."""
        rows = keys.shape[0]
        store_k, store_v = self.stack.keys[layer], self.stack.values[layer]
        if self.uniform is not None:
            store_k[:rows, :, self.uniform] = keys
            store_v[:rows, :, self.uniform] = values
        else:
            index = torch.arange(rows, device=keys.device)
            store_k[index, :, self.lengths] = keys
            store_v[index, :, self.lengths] = values

    def score(self, layer: int, query: Tensor, scores: Tensor) -> None:
        """Add query-key products to the own columns of ``scores`` [N, H, C]."""
        rows, heads, width = query.shape
        keys = self.stack.keys[layer][:rows].flatten(0, 1)[:, : self.columns]
        flat = query.reshape(keys.shape[0], -1, width)
        # Straight into the strided scores this product is ten times slower.
        own = torch.bmm(flat, keys.transpose(1, 2)).view(rows, heads, self.columns)
        scores[:, :, scores.shape[-1] - self.columns :].add_(own)

    def mix(self, layer: int, weights: Tensor, out: Tensor) -> None:
        """Add weighted values to ``out`` [N, H, d], block after block."""
        rows = out.shape[0]
        values = self.stack.values[layer][:rows].flatten(0, 1)[:, : self.columns]
        flat = out.view(values.shape[0], -1, out.shape[-1])
        mine = weights.view(values.shape[0], flat.shape[1], -1)[:, :, weights.shape[-1] - self.columns :]
        for at in range(0, self.columns, BLOCK):
            flat.baddbmm_(mine[:, :, at : at + BLOCK], values[:, at : at + BLOCK])


@final
@dataclass(slots=True)
class Write:
    """Rows of the batch whose keys and values go to a stack."""

    stack: Stack
    rows: Tensor
    items: Tensor
    offsets: Tensor


@final
@dataclass(slots=True)
class Step:
    """All that attention needs to know in one forward pass of N packed rows.

    ``mask`` [N, C] is 0 where a row may look and -inf elsewhere. ``reach`` [N, C] holds the absolute
    position of each column and ``positions`` [N] those of the queries, for sliding windows. ``alone``: all
    tokens are one branch's.
    """

    mask: Tensor
    reach: Tensor
    positions: Tensor
    furthest: int
    products: Sequence[Product]
    writes: Sequence[Write] = ()
    own: Own | None = None
    alone: Alone | None = None
    scratch: dict[str, Tensor] = field(default_factory=dict)
    seen: dict[int, LayerShape] | None = None
    _windows: dict[int, Tensor] = field(default_factory=dict)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, how: _How) -> Tensor:
        """Attention output [N, H, d] of packed query [N, H, d], key and value [N, heads, d]."""
        for item in self.writes:
            item.stack.write(layer, item.items, item.offsets, key[item.rows], value[item.rows])
        if self.own is not None:
            self.own.write(layer, key, value)
        mask = self._visible(how.window)
        size = query.shape[:2]
        scores = self._buffer("scores", (*size, self.mask.shape[1]), query)
        if how.softcap is None:
            scores.copy_(mask[:, None, :])
        else:
            scores.zero_()
        for product in self.products:
            product.score(layer, query, scores)
        if self.own is not None:
            self.own.score(layer, query, scores)
        if how.softcap is not None:
            scores.div_(how.softcap).tanh_().mul_(how.softcap).add_(mask[:, None, :])
        weights = softmax(scores)
        out = self._buffer("out", (*size, value.shape[2]), value).zero_()
        for product in self.products:
            product.mix(layer, weights, out)
        if self.own is not None:
            self.own.mix(layer, weights, out)
        return out

    def attend_alone(
        self, alone: Alone, layer: int, heads: tuple[Tensor, Tensor, Tensor], how: _How
    ) -> Tensor:
        """Attention output [N, H, d] of one branch's heads."""
        query, key, value = heads
        alone.write(layer, key, value)
        return alone.attend(layer, query, self._visible(how.window), how.softcap)

    def _visible(self, window: int | None) -> Tensor:
        """The mask, narrowed to a sliding window where one is set and some row is past it."""
        if window is None or self.furthest < window:
            return self.mask
        if window not in self._windows:
            hidden = self.reach <= (self.positions - window)[:, None]
            self._windows[window] = self.mask.masked_fill(hidden, -torch.inf)
        return self._windows[window]

    def _buffer(self, name: str, size: tuple[int, ...], like: Tensor) -> Tensor:
        """Memory that all layers and steps share: fresh pages cost more than what is written to them."""
        count = math.prod(size)
        buffer = self.scratch.get(name)
        if buffer is None or buffer.numel() < count:
            buffer = like.new_empty(count)
            self.scratch[name] = buffer
        return buffer[:count].view(size)


@dataclass(frozen=True, slots=True)
class _How:
    """Layer settings: sliding window in positions, soft cap of the scores."""

    window: int | None
    softcap: float | None


def _attention(  # noqa: PLR0917 - transformers decides the signature
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    branches: Step | None = None,
    **rest: Any,
) -> tuple[Tensor, None]:
    """The function that transformers calls; query [1, H, N, d], key and value [1, heads, N, d]."""
    if branches is None:
        raise CannotDo(f"{type(module).__name__} does not pass keyword arguments on to its attention")
    if rest.get("s_aux") is not None:
        raise CannotDo(f"{type(module).__name__} uses attention sinks, which this decoder does not know")
    layer = module.layer_idx
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    how = _How(sliding_window, softcap)
    if branches.alone is not None:
        heads = query[0] * scale, key[0], value[0]
        return branches.attend_alone(branches.alone, layer, heads, how).unsqueeze(0), None
    rows = (query[0].transpose(0, 1) * scale).contiguous()
    keys, values = key[0].transpose(0, 1), value[0].transpose(0, 1)
    if branches.seen is not None:
        branches.seen[layer] = _shape_of(rows, keys, values)
        return values.new_zeros((1, rows.shape[0], rows.shape[1], values.shape[2])), None
    return branches.attend(layer, rows, keys, values, how).unsqueeze(0), None


def _shape_of(query: Tensor, key: Tensor, value: Tensor) -> LayerShape:
    """What a layer's tensors [N, heads, width] say about it."""
    heads = key.shape[1]
    return LayerShape(heads, query.shape[1] // heads, key.shape[2], value.shape[2])


def register() -> None:
    """Make the attention known to transformers, under NAME; calling it again changes nothing."""
    # Half the time of importing this package is this import, which commands that load no model do without.
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register(NAME, _attention)
