"""The live branches of one decoding batch: who sits in which row, and what each has said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ramify.core.policy.decoder.alone import Alone
from ramify.core.policy.decoder.attention import OwnPart, Product, Step
from ramify.core.policy.decoder.backbone import Backbone
from ramify.core.policy.decoder.plan import align
from ramify.core.policy.decoder.prefill import Ints, Seat, causal_mask, gather_parts, products
from ramify.core.policy.decoder.spread import Spread, runs_of, spread_pass
from ramify.core.policy.decoder.stack import Stack, Suffix

_GROWTH = 64
_PLANS = 64
"""Passes of several tokens per branch that are remembered until the next change of rows."""


@final
class Batch:
    """Row i is a branch; padding rows follow the last one.

    ``request`` [n] says whose row it is, ``said`` [n] how many tokens it has emitted, ``alive`` [n]
    whether it goes on. A dead row is computed until :meth:`reseat` or :meth:`place` drops it.
    ``compact`` copies the runs that are read out of stacks of which others are not, once per change of rows;
    otherwise stacks are read where they lie.
    """

    def __init__(
        self,
        backbone: Backbone,
        seats: Sequence[Seat] | Mapping[int, Seat],
        rows: int,
        length: int,
        *,
        compact: bool = True,
    ) -> None:
        self.backbone = backbone
        self.seats = seats
        self.limit = align(length, backbone.shape.own_unit)
        self.suffix = Suffix(backbone.shape, align(rows, backbone.granule), min(_GROWTH, self.limit))
        none = np.zeros(0, dtype=np.int64)
        self.request, self.trace, self.keep, self.said = none, none, none, none
        self.alive: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self.scratch: dict[str, Tensor] = {}
        self._compact = compact
        self._parts: list[tuple[Stack, Ints, Ints]] = []
        self._products: list[Product] = []
        self._plans: dict[bytes, Spread] = {}
        self._columns = 0
        self._prefix = 0

    def __len__(self) -> int:
        return len(self.request)

    def reseat(self, request: Ints, trace: Ints, keep: Ints) -> None:
        """Drop the dead, move the living together, and seat newcomers behind them."""
        stay = np.flatnonzero(self.alive)
        self.place(np.concatenate([stay, np.full(len(request), -1)]), request, trace, keep)

    def place(self, source: Ints, request: Ints, trace: Ints, keep: Ints) -> None:
        """Row i becomes what row ``source[i]`` was, or the next newcomer where that is -1.

        Whoever is not named leaves.
        """
        new = source < 0
        moved = np.flatnonzero(~new & (source != np.arange(len(source))))
        if len(moved):
            device, used = self.backbone.device, int(self.said[source[moved]].max())
            rows, former = torch.from_numpy(moved), torch.from_numpy(source[moved])
            self.suffix.move(rows.to(device), former.to(device), used)
        old = self.request, self.trace, self.keep, self.said
        arriving = request, trace, keep, np.zeros(len(request), dtype=np.int64)
        self.request, self.trace, self.keep, self.said = (
            _merged(before, source, new, fresh) for before, fresh in zip(old, arriving, strict=True)
        )
        self.alive = np.ones(len(source), dtype=np.bool_)
        parts = gather_parts(self.seats, self.trace, self.keep)
        self._parts = [part for whole in parts for part in self._split(*whole)]
        self._products = [
            made
            for stack, rows, items in self._parts
            for made in products(stack, rows, items, self.keep[rows])
        ]
        self._plans.clear()
        self._prefix = align(int(self.keep.max())) if len(self) else 0
        self._columns = 0

    def _split(self, stack: Stack, rows: Ints, items: Ints) -> list[tuple[Stack, Ints, Ints]]:
        """A part as the parts whose products are made together."""
        distinct, run, counts = np.unique(items, return_inverse=True, return_counts=True)
        if self._compact:
            if 1 < len(distinct) < stack.count:
                # Copied once per reseating rather than gathered in every layer of every step.
                return [(stack.take(torch.from_numpy(distinct).to(self.backbone.device)), rows, run)]
            return [(stack, rows, items)]
        light = counts <= stack.shape.row_unit
        if 2 * int(light.sum()) <= stack.count:
            light[:] = False
        found = [(stack, rows[light[run]], items[light[run]])] if light.any() else []
        for item, mine in [(int(distinct[i]), rows[run == i]) for i in np.flatnonzero(~light)]:
            found.append((stack.part(item, item + 1), mine, np.zeros(len(mine), dtype=np.int64)))
        return found

    def step(self) -> tuple[Tensor, Step]:
        """Positions [N] and attention of the next pass, which feeds each row's newest token."""
        device, count = self.backbone.device, self.backbone.padded(len(self))
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
        step = Step(
            self._mask,
            self._reach,
            where,
            int((keep + lengths).max()),
            self._products,
            scratch=self.scratch,
        )
        runs = (
            None
            if len(self) > 1
            else runs_of(self._products, np.zeros(1, dtype=np.int64), self.backbone.shape)
        )
        if runs is None:
            step.own = OwnPart(self.suffix.store, own, uniform, self._columns)
        else:
            step.alone = Alone(runs, self.suffix.store, 0, 1, furthest, self._columns)
        return where, step

    def spread(self, lengths: Ints) -> tuple[Tensor, Step]:
        """Positions [N] and attention of a pass over the newest token of each row and those that follow it.

        ``lengths`` [n] says how many tokens of each row are fed, 0 for none. They are packed row after row;
        padding follows the last.
        """
        name = lengths.tobytes()
        plan = self._plans.get(name)
        if plan is None:
            if len(self._plans) >= _PLANS:
                self._plans.clear()
            plan = Spread(self.backbone, self._parts, self.keep, lengths)
            self._plans[name] = plan
        own = plan.place + (self.said - 1)[plan.row]
        columns = align(int(own.max()) + 1, self.backbone.shape.own_unit)
        self._room(columns)
        # What the rows see of themselves no longer grows by one column per pass.
        self._columns = 0
        return spread_pass(plan, own, self._prefix, columns, self.suffix.store, self.scratch)

    def _room(self, columns: int) -> None:
        """Room for so many own columns."""
        if columns > self.suffix.store.length:
            length = min(align(columns, _GROWTH) * 2, max(self.limit, columns))
            store = self.suffix.store
            self.suffix.fit(store.count, length, store.length)

    def _widen(self, needed: int, keep: Tensor, own: Tensor) -> None:
        """Rebuild mask and column positions with room for more own columns."""
        self._columns = align(needed, self.backbone.shape.own_unit)
        self._room(self._columns)
        device, shape = self.backbone.device, self.backbone.shape
        prefix = torch.arange(self._prefix, device=device)
        mine = torch.arange(self._columns, device=device)
        self._mask = torch.cat([causal_mask(prefix, keep, shape), causal_mask(mine, own, shape)], dim=1)
        self._reach = torch.cat([prefix.expand(len(keep), -1), keep[:, None] + mine], dim=1)


def _merged(before: Ints, source: Ints, new: NDArray[np.bool_], fresh: Ints) -> Ints:
    """Values of the rows that stay, and those of newcomers in their places."""
    found = np.empty(len(source), dtype=np.int64)
    found[~new] = before[source[~new]]
    found[new] = fresh
    return found
