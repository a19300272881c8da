"""The live branches of one decoding batch: who sits in which row, and what each has said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ramify.core.policy.decoder.attention import OwnPart, Product, Step
from ramify.core.policy.decoder.backbone import Backbone
from ramify.core.policy.decoder.plan import align
from ramify.core.policy.decoder.prefill import Ints, Seat, causal_mask, gather_parts, products
from ramify.core.policy.decoder.stack import Suffix

_GROWTH = 64


@final
class Batch:
    """Rows 0 .. n - 1 are branches in the order of their traces; padding rows follow.

    ``request`` [n] says whose row it is, ``said`` [n] how many tokens it has emitted, ``alive`` [n]
    whether it goes on. A dead row is computed until :meth:`reseat` drops it.
    """

    def __init__(self, backbone: Backbone, seats: Sequence[Seat], rows: int, length: int) -> None:
        self.backbone = backbone
        self.seats = seats
        self.limit = align(length, backbone.shape.own_unit)
        self.suffix = Suffix(backbone.shape, align(rows, backbone.granule), min(_GROWTH, self.limit))
        none = np.zeros(0, dtype=np.int64)
        self.request, self.trace, self.keep, self.said = none, none, none, none
        self.alive: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self.scratch: dict[str, Tensor] = {}
        self._products: list[Product] = []
        self._columns = 0
        self._prefix = 0

    def __len__(self) -> int:
        return len(self.request)

    def reseat(self, request: Ints, trace: Ints, keep: Ints) -> None:
        """Drop the dead, move the living together, and seat newcomers behind them."""
        stay = np.flatnonzero(self.alive)
        if len(stay) < len(self) and len(stay):
            used = int(self.said[stay].max())
            self.suffix.keep(torch.from_numpy(stay).to(self.backbone.device), used)
        self.request = np.concatenate([self.request[stay], request])
        self.trace = np.concatenate([self.trace[stay], trace])
        self.keep = np.concatenate([self.keep[stay], keep])
        self.said = np.concatenate([self.said[stay], np.zeros(len(request), dtype=np.int64)])
        self.alive = np.ones(len(self.request), dtype=np.bool_)
        self._products = []
        for stack, rows, items in gather_parts(self.seats, self.trace, self.keep):
            distinct, run = np.unique(items, return_inverse=True)
            if 1 < len(distinct) < stack.count:
                # Copied once per reseating rather than gathered in every layer of every step.
                compact = stack.take(torch.from_numpy(distinct).to(self.backbone.device))
                self._products += products(compact, rows, run, self.keep[rows])
            else:
                self._products += products(stack, rows, items, self.keep[rows])
        self._prefix = align(int(self.keep.max())) if len(self) else 0
        self._columns = 0

    def step(self) -> tuple[Tensor, Step]:
        """Positions [N] and attention of the next pass, which feeds each row's newest token."""
        device, count = self.backbone.device, align(len(self), self.backbone.granule)
        lengths = np.zeros(count, dtype=np.int64)
        lengths[: len(self)] = np.maximum(self.said - 1, 0)
        keep = np.zeros(count, dtype=np.int64)
        keep[: len(self)] = self.keep
        own = torch.from_numpy(lengths).to(device)
        furthest = int(lengths.max())
        if furthest >= self._columns:
            self._widen(furthest + 1, torch.from_numpy(keep).to(device), own)
        uniform = furthest if int(lengths[: len(self)].min()) == furthest else None
        if uniform is not None:
            own = torch.full_like(own, uniform)
            self._mask[:, self._prefix + uniform] = 0.0
        else:
            self._mask[torch.arange(count, device=device), self._prefix + own] = 0.0
        where = own + torch.from_numpy(keep).to(device)
        part = OwnPart(self.suffix.store, own, uniform, self._columns)
        step = Step(
            self._mask,
            self._reach,
            where,
            int((keep + lengths).max()),
            self._products,
            own=part,
            scratch=self.scratch,
        )
        return where, step

    def _widen(self, needed: int, keep: Tensor, own: Tensor) -> None:
        """Rebuild mask and column positions with room for more own columns."""
        self._columns = align(needed, self.backbone.shape.own_unit)
        if self._columns > self.suffix.store.length:
            self.suffix.grow(min(align(self._columns, _GROWTH) * 2, max(self.limit, self._columns)))
        device, shape = self.backbone.device, self.backbone.shape
        prefix = torch.arange(self._prefix, device=device)
        mine = torch.arange(self._columns, device=device)
        self._mask = torch.cat([causal_mask(prefix, keep, shape), causal_mask(mine, own, shape)], dim=1)
        self._reach = torch.cat([prefix.expand(len(keep), -1), keep[:, None] + mine], dim=1)
