"""The live branches of one decoding batch: who sits in which row, and what each has said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from refork.decoding.alone import Alone
from refork.decoding.attention import AttentionPlan, OwnPart, StackProduct
from refork.decoding.backbone import Backbone
from refork.decoding.cache import BlockCache
from refork.decoding.plan import align, traces
from refork.decoding.prefill import CacheSlot, Forest, Ints, causal_mask, gather_parts, products
from refork.decoding.sites import PassProbe, Rows, all_prompt
from refork.decoding.spread import Spread, runs_of, spread_pass
from refork.decoding.stack import Stack, Suffix
from refork.decoding.states import Edit
from refork.errors import CannotDo
from refork.types import IntArray

_GROWTH = 64
_ANEW = 512
"""Rows of a pass over contexts that are computed anew."""

_PLANS = 64
"""Passes of several tokens per branch that are remembered until the next change of rows."""


@final
class Batch:
    """Row i is a branch; padding rows follow the last one.

    ``request`` [n] says whose row it is, ``generated`` [n] how many tokens it has emitted, ``alive`` [n]
    whether it goes on. A dead row is computed until :meth:`reseat` or :meth:`column_of` drops it.
    ``compact`` copies the runs that are read out of stacks of which others are not, once per change of rows;
    otherwise stacks are read where they lie.

    Where the model computes contexts beyond a length otherwise than shorter ones, a row that grows past it
    has all that it holds computed anew: then ``base`` [n] of its own tokens lie in the trace that it reads.
    """

    def __init__(
        self,
        backbone: Backbone,
        slots: Sequence[CacheSlot] | Mapping[int, CacheSlot],
        rows: int,
        length: int,
        *,
        compact: bool = True,
    ) -> None:
        self.backbone = backbone
        self.slots = slots
        self.limit = align(length, backbone.shape.own_unit)
        self.suffix = Suffix(backbone.shape, align(rows, backbone.granule), min(_GROWTH, self.limit))
        none = np.zeros(0, dtype=np.int64)
        self.request, self.trace, self.keep, self.generated, self.base = none, none, none, none, none
        self.alive: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self.scratch: dict[str, Tensor] = {}
        self._beyond: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self._heard: IntArray = np.zeros((0, _GROWTH), dtype=np.int32)
        self._crossed: dict[int, CacheSlot] = {}
        self._compact = compact
        self._parts: list[tuple[Stack, Ints, Ints]] = []
        self._products: list[StackProduct] = []
        self._plans: dict[bytes, Spread] = {}
        self._columns = 0
        self._prefix = 0

    def __len__(self) -> int:
        return len(self.request)

    def reseat(self, request: Ints, trace: Ints, keep: Ints) -> None:
        """Drop the dead, move the living together, and seat newcomers behind them."""
        stay = np.flatnonzero(self.alive)
        self.move_rows(np.concatenate([stay, np.full(len(request), -1)]), request, trace, keep)

    def move_rows(self, source: Ints, request: Ints, trace: Ints, keep: Ints) -> None:
        """Row i becomes what row ``source[i]`` was, or the next newcomer where that is -1.

        Whoever is not named leaves.
        """
        new = source < 0
        moved = np.flatnonzero(~new & (source != np.arange(len(source))))
        if len(moved):
            device, used = self.backbone.device, int(self.generated[source[moved]].max())
            rows, former = torch.from_numpy(moved), torch.from_numpy(source[moved])
            self.suffix.move(rows.to(device), former.to(device), used)
        old = self.request, self.trace, self.keep, self.generated, self.base
        zeros = np.zeros(len(request), dtype=np.int64)
        arriving = request, trace, keep, zeros, zeros
        self.request, self.trace, self.keep, self.generated, self.base = (
            _merged(before, source, new, fresh) for before, fresh in zip(old, arriving, strict=True)
        )
        if self.backbone.switch is not None:
            self._remember(source, keep)
        # Only the living and newcomers are named in ``source``.
        self.alive = np.ones(len(source), dtype=np.bool_)
        self._arrange()

    def _arrange(self) -> None:
        """Find what the rows read, and forget what was made for the rows that were here before."""
        slots = _Both(self.slots, self._crossed) if self._crossed else self.slots
        parts = gather_parts(slots, self.trace, self.keep)
        self._parts = [part for whole in parts for part in self._split(*whole)]
        self._products = [
            made
            for stack, rows, items in self._parts
            for made in products(stack, rows, items, self.keep[rows])
        ]
        # Plans of spread passes hold row numbers, which now mean other branches.
        self._plans.clear()
        self._prefix = align(int(self.keep.max())) if len(self) else 0
        self._columns = 0

    def _remember(self, source: Ints, keep: Ints) -> None:
        """Move what is known of rows and their tokens as rows move; ``keep`` are the newcomers' prefixes."""
        new = source < 0
        arriving = np.array([self.backbone.beyond(int(count)) for count in keep], dtype=np.bool_)
        beyond = np.empty(len(source), dtype=np.bool_)
        beyond[~new], beyond[new] = self._beyond[source[~new]], arriving
        heard = np.zeros((len(source), self._heard.shape[1]), dtype=np.int32)
        heard[~new] = self._heard[source[~new]]
        self._beyond, self._heard = beyond, heard
        self._crossed = {name: self._crossed[name] for name in set(self.trace.tolist()) & set(self._crossed)}

    def _hear(self, newest: NDArray[np.integer[Any]], edits: tuple[Edit, ...], switch: int) -> None:
        """Note the tokens that are fed next; rows that grow past ``switch`` with them are computed anew."""
        # The newest token is counted already, before it is fed.
        said = np.maximum(self.generated, 1)
        if int(said.max()) > self._heard.shape[1]:
            wider = np.zeros((len(self), 2 * int(said.max())), dtype=np.int32)
            wider[:, : self._heard.shape[1]] = self._heard
            self._heard = wider
        self._heard[np.arange(len(self)), said - 1] = newest
        places = self.keep + said - 1 - self.base
        crossing = np.flatnonzero(~self._beyond & self.alive & (places >= switch))
        if len(crossing):
            self._cross(crossing, edits)

    def _cross(self, rows: Ints, edits: tuple[Edit, ...]) -> None:
        """Compute all that some rows have read and said as a long context."""
        before = [
            np.concatenate(
                [self.slots[self.trace[row]].tokens[: self.keep[row]], self._heard[row, : said - 1]]
            )
            for row, said in zip(rows, self.generated[rows], strict=True)
        ]
        folded = traces([tokens.astype(np.int32) for tokens in before])
        counts = np.bincount(folded.owner, minlength=len(folded.tokens))
        forest = Forest(self.backbone, folded.tokens, counts, BlockCache(0), beyond=True)
        nothing = np.zeros(0, dtype=np.int64)
        _, passes = forest.fill(nothing, nothing, align(_ANEW, self.backbone.granule))
        for item in passes:
            probe = PassProbe(edits, (), all_prompt(item.positions)) if edits else None
            self.backbone.run(item.tokens, item.positions, item.step, item.wanted[:8], probe)
        for row, owner in zip(rows.tolist(), folded.owner.tolist(), strict=True):
            # Negative names: those of traces count from 0 and stay what they are.
            name = min(self._crossed, default=0) - 1
            self._crossed[name] = forest.slots[owner]
            self.trace[row] = name
        # What was said so far is prefix now; the newest token is not, it is fed by the next pass.
        self.base[rows] = self.generated[rows] - 1
        self.keep[rows] += self.base[rows]
        self._beyond[rows] = True
        self._arrange()

    def _split(self, stack: Stack, rows: Ints, items: Ints) -> list[tuple[Stack, Ints, Ints]]:
        """A part as the parts whose products are made together."""
        distinct, run, counts = np.unique(items, return_inverse=True, return_counts=True)
        if self._compact:
            if 1 < len(distinct) < stack.count:
                # Copied once per reseating rather than gathered in every layer of every step.
                return [(stack.take(torch.from_numpy(distinct).to(self.backbone.device)), rows, run)]
            return [(stack, rows, items)]
        # A run that many rows read gets a product of its own; the others are stacked.
        light = counts <= stack.shape.row_unit
        if 2 * int(light.sum()) <= stack.count:
            light[:] = False
        found = [(stack, rows[light[run]], items[light[run]])] if light.any() else []
        for item, mine in [(int(distinct[i]), rows[run == i]) for i in np.flatnonzero(~light)]:
            found.append((stack.part(item, item + 1), mine, np.zeros(len(mine), dtype=np.int64)))
        return found

    def step(self) -> tuple[Tensor, AttentionPlan]:
        """Positions [N] and attention of the next pass, which feeds each row's newest token."""
        device, count = self.backbone.device, self.backbone.padded(len(self))
        lengths = np.zeros(count, dtype=np.int64)
        # The newest token counts as said and is fed only now, so its column lies one before its number.
        lengths[: len(self)] = np.maximum(self.generated - 1 - self.base, 0)
        keep = np.zeros(count, dtype=np.int64)
        keep[: len(self)] = self.keep
        own = torch.from_numpy(lengths).to(device)
        furthest = int(lengths.max())
        # The mask is built for some columns ahead and opened one by one, not made anew for every token.
        if furthest >= self._columns:
            self._widen(furthest + 1, torch.from_numpy(keep).to(device), own)
        # Rows of equal length (a fork's, mostly) share one column, which is a slice instead of an index.
        uniform = furthest if int(lengths[: len(self)].min()) == furthest else None
        if uniform is not None:
            own = torch.full_like(own, uniform)
            self._mask[:, self._prefix + uniform] = 0.0
        else:
            self._mask[torch.arange(count, device=device), self._prefix + own] = 0.0
        where = own + torch.from_numpy(keep).to(device)
        step = AttentionPlan(
            self._mask,
            self._reach,
            where,
            int((keep + lengths).max()),
            self._products,
            scratch=self.scratch,
            beyond=self._sides(count),
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

    def _sides(self, count: int) -> Tensor | None:
        """Which of ``count`` rows are past the switch, where there is one."""
        if self.backbone.switch is None:
            return None
        found = np.zeros(count, dtype=np.bool_)
        found[: len(self)] = self._beyond
        return torch.from_numpy(found).to(self.backbone.device)

    def feed(
        self, newest: NDArray[np.integer[Any]], edits: tuple[Edit, ...] = (), layers: tuple[int, ...] = ()
    ) -> tuple[Tensor, Tensor | None]:
        """Feed every row's newest token [n]: logits [n, V], and states [n, layers, width] if wanted."""
        if self.backbone.switch is not None:
            self._hear(newest, edits, self.backbone.switch)
        return self._run(newest, *self.step(), edits, layers)

    def feed_several(
        self, tokens: Ints, lengths: Ints, edits: tuple[Edit, ...] = (), layers: tuple[int, ...] = ()
    ) -> tuple[Tensor, Tensor | None]:
        """Feed ``lengths`` [n] tokens of each row, in all ``tokens`` [T]: as :meth:`feed`, by token.

        Raises:
            CannotDo: the model computes long contexts otherwise, which one pass cannot change in the middle.
        """
        if self.backbone.switch is not None:
            raise CannotDo("several tokens of a branch cannot be fed at once where rotary factors change")
        return self._run(tokens, *self.spread(lengths), edits, layers)

    def _run(
        self,
        fed: NDArray[np.integer[Any]],
        places: Tensor,
        step: AttentionPlan,
        edits: tuple[Edit, ...],
        layers: tuple[int, ...],
    ) -> tuple[Tensor, Tensor | None]:
        ids = np.zeros(len(places), dtype=np.int64)
        ids[: len(fed)] = fed
        probe = None
        if edits or layers:
            none = torch.zeros_like(places, dtype=torch.bool)
            probe = PassProbe(edits, layers, Rows(places, none, none))
        logits = self.backbone.run(torch.from_numpy(ids).to(self.backbone.device), places, step, probe=probe)
        states = probe.states()[: len(fed)] if probe is not None and layers else None
        return logits[: len(fed)], states

    def padded(self, count: int) -> int:
        """How many rows a pass over ``count`` rows computes."""
        return self.backbone.padded(count)

    def spread(self, lengths: Ints) -> tuple[Tensor, AttentionPlan]:
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
        own = plan.position + (self.generated - 1 - self.base)[plan.row]
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


@final
class _Both(Mapping[int, CacheSlot]):
    """Where traces lie, and where those lie that were computed anew."""

    def __init__(
        self, slots: Sequence[CacheSlot] | Mapping[int, CacheSlot], crossed: Mapping[int, CacheSlot]
    ) -> None:
        self._slots, self._crossed = slots, crossed

    def __getitem__(self, name: int) -> CacheSlot:
        return self._crossed[name] if name < 0 else self._slots[name]

    def __iter__(self) -> Iterator[int]:
        return iter(self._crossed)

    def __len__(self) -> int:
        return len(self._crossed)


def _merged(before: Ints, source: Ints, new: NDArray[np.bool_], fresh: Ints) -> Ints:
    """Values of the rows that stay, and those of newcomers in their places."""
    found = np.empty(len(source), dtype=np.int64)
    found[~new] = before[source[~new]]
    found[new] = fresh
    return found
