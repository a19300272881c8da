"""Keys, values and logits of prefixes: each position of each shared beginning is computed once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from refork.decoding.attention import AttentionPlan, StackProduct, Write
from refork.decoding.backbone import Backbone
from refork.decoding.cache import BlockCache
from refork.decoding.plan import BLOCK, align, clusters
from refork.decoding.sites import Rows
from refork.decoding.stack import KvShape, Stack
from refork.types import IntArray

Ints = NDArray[np.int64]

HEAVY = 32
"""A trace with this many rows gets a matrix product of its own."""


DENSE = 16
"""Fewer rows than this are padded to a multiple of eight: 9 to 11 rows may round apart from more."""


def product(stack: Stack, rows: Ints, items: Ints, furthest: int) -> StackProduct | None:
    """The product of sorted batch ``rows`` [n] with runs ``items`` [n] of a stack, or None if none needed.

    ``furthest`` is the largest number of positions any of the rows may see.
    """
    width = min(align(max(furthest - stack.start, 0)), stack.length)
    if width == 0 or len(rows) == 0:
        return None
    distinct, run = np.unique(items, return_inverse=True)
    if 2 * len(distinct) > stack.count > len(distinct):
        # Runs that nobody reads cost less than picking out the others in every layer.
        distinct, run = np.arange(stack.count), items
    one_piece = len(distinct) == 1 and rows[-1] - rows[0] + 1 == len(rows)
    if one_piece:
        # From DENSE rows on a product rounds as a larger one does; fewer are padded until it does.
        tall = 0 if len(rows) >= DENSE else align(len(rows), stack.shape.row_unit)
        piece = slice(int(rows[0]), int(rows[-1]) + 1)
        return StackProduct(stack, width, piece, item=int(distinct[0]), tall=tall)
    device = stack.shape.device
    counts = np.bincount(run, minlength=len(distinct))
    order = np.argsort(run, kind="stable")
    place = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    tall = align(int(counts.max()), stack.shape.row_unit)
    # Padding repeats a real row: its result is computed and not taken.
    padded = np.full((len(distinct), tall), rows[0], dtype=np.int64)
    padded[run[order], place] = rows[order]
    taken = run[order] * tall + place
    whole = len(distinct) == stack.count
    return StackProduct(
        stack,
        width,
        torch.from_numpy(rows[order]).to(device),
        items=None if whole else torch.from_numpy(distinct).to(device),
        padded=torch.from_numpy(padded).to(device),
        taken=torch.from_numpy(taken).to(device),
    )


def products(stack: Stack, rows: Ints, items: Ints, keep: Ints) -> Iterator[StackProduct]:
    """Products of sorted batch ``rows`` [n] with runs ``items`` [n], each row reading ``keep`` [n] positions.

    Rows of one run that read about equally far make a product of their own, so that what is masked
    for all of them is not computed.
    """
    cuts = [0]
    if items[0] == items[-1] and len(rows) >= 2 * DENSE:
        borders = np.flatnonzero(np.diff(-(-keep // BLOCK))) + 1
        for border in borders:
            if border - cuts[-1] >= DENSE and len(rows) - border >= DENSE:
                cuts.append(int(border))
    for low, high in itertools.pairwise([*cuts, len(rows)]):
        made = product(stack, rows[low:high], items[low:high], int(keep[low:high].max()))
        if made is not None:
            yield made


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass to run: which ``answers`` [k] its first wanted rows give, tokens, positions, attention.

    ``wanted`` picks the rows to answer (padded to eight); ``rows`` says where prompts end, if that matters.
    """

    answers: Ints
    tokens: Tensor
    positions: Tensor
    step: AttentionPlan
    wanted: Tensor
    rows: Rows | None


@dataclass(frozen=True, slots=True)
class CacheSlot:
    """Where keys and values of a trace's ``tokens`` lie: the shared prefix, then run ``item`` of the leaf."""

    leaf: Stack
    item: int
    shared_prefix: Stack | None
    representative: int
    tokens: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int32))


@final
class Forest:
    """The stacks of some sorted traces, filled from the cache as far as it goes.

    ``rows`` [traces] is how many branches will read each; it decides what is stacked together. ``ends``
    [traces] is how many tokens of each are its prompt, where that matters. ``beyond`` says for which side
    of the model's switch they are computed, if their lengths do not.
    """

    def __init__(
        self,
        backbone: Backbone,
        tokens: Sequence[IntArray],
        rows: Ints,
        cache: BlockCache,
        ends: Ints | None = None,
        beyond: bool | None = None,
    ) -> None:
        self.backbone = backbone
        self.tokens = tokens
        self.ends = ends
        self.cache = cache
        self._slots: dict[int, CacheSlot] = {}
        self.filled = np.zeros(len(tokens), dtype=np.int64)
        self.shared_prefix_filled: dict[int, int] = {}
        far = [backbone.beyond(len(array)) if beyond is None else beyond for array in tokens]
        self.beyond = np.array(far, dtype=np.bool_)
        alone: list[int] = []
        for members, shared_prefix in clusters(tokens, ends, backbone.switch):
            if shared_prefix:
                self._plant(members, shared_prefix, rows)
            else:
                alone += members
        # Traces that share nothing are still stacked with each other: one product for many short prompts.
        self._plant(alone, 0, rows)
        self.slots = [self._slots[index] for index in range(len(tokens))]
        for index, slot in enumerate(self.slots):
            loaded = cache.load(tokens[index], slot.leaf, slot.item, self._root(index))
            self.filled[index] = slot.leaf.start + loaded

    def _root(self, index: int) -> int:
        """What the blocks of a trace are computed as, for the cache."""
        return -1 if self.beyond[index] else 0

    def _plant(self, members: list[int], trunk_length: int, rows: Ints) -> None:
        """Lay out traces with one shared prefix, or none: heavy ones alone, light ones stacked by length."""
        shape = self.backbone.shape
        shared_prefix = Stack(shape, 1, 0, trunk_length) if trunk_length else None
        if shared_prefix is not None:
            head = self.tokens[members[0]][:trunk_length]
            self.shared_prefix_filled[members[0]] = self.cache.load(
                head, shared_prefix, 0, self._root(members[0])
            )
        groups: dict[tuple[int, int], list[int]] = {}
        for index in members:
            length = _roomy(align(len(self.tokens[index]) - trunk_length))
            groups.setdefault((length, index if rows[index] >= HEAVY else -1), []).append(index)
        for (length, _), stacked in groups.items():
            leaf = Stack(shape, len(stacked), trunk_length, length)
            for item, index in enumerate(stacked):
                first = members[0] if shared_prefix is not None else index
                self._slots[index] = CacheSlot(leaf, item, shared_prefix, first, self.tokens[index])

    def rows(self, trace: Ints, position: Ints) -> tuple[Ints, Ints, Ints, NDArray[np.bool_], Ints]:
        """What a fill has to compute, in order.

        Returns traces, positions, and which of the wanted (trace, position) pairs each row answers
        (-1: none), which rows write; and for each wanted pair the number of its answer.
        """
        starts = np.array([slot.leaf.start for slot in self.slots], dtype=np.int64)
        representatives = np.array([slot.representative for slot in self.slots], dtype=np.int64)
        # A position in a shared beginning belongs to one trace of it, so it is computed once for all.
        owner = np.where(position < starts[trace], representatives[trace], trace)
        # (trace, position) as one number: sorting and looking up pairs is then one array operation.
        span = max((len(tokens) for tokens in self.tokens), default=0) + 1
        wanted = owner * span + position
        new = [wanted]
        for first, filled in self.shared_prefix_filled.items():
            new.append(first * span + np.arange(filled, starts[first], dtype=np.int64))
        for index, tokens in enumerate(self.tokens):
            new.append(index * span + np.arange(self.filled[index], len(tokens), dtype=np.int64))
        keys = np.unique(np.concatenate(new))
        traces, positions = keys // span, keys % span
        in_leaf = positions >= starts[traces]
        stack = np.array([id(slot.leaf) for slot in self.slots], dtype=np.int64)[traces]
        # Shared beginnings first, for leaves read them; then stack by stack, so that a pass writes to few.
        keys = keys[np.lexsort((positions, traces, stack, in_leaf))]
        traces, positions = keys // span, keys % span
        # Positions below this lie there already: they are computed for their logits only, and not written.
        known = np.where(positions < starts[traces], 0, self.filled[traces])
        for first, count in self.shared_prefix_filled.items():
            known[(traces == first) & (positions < starts[first])] = count
        asked = np.isin(keys, wanted)
        answer = np.where(asked, np.cumsum(asked) - 1, -1)
        order = np.argsort(keys)
        whose = answer[order[np.searchsorted(keys, wanted, sorter=order)]]
        return traces, positions, answer, positions >= known, whose

    def fill(
        self, trace: Ints, position: Ints, limit: int | Callable[[], int]
    ) -> tuple[Ints, Iterator[Pass]]:
        """Compute what is missing, and answer wanted (trace, position) pairs [w].

        Returns the answer number of each pair, and passes of at most ``limit`` rows (asked before each pass
        where it may change) for the caller to run on the backbone. Every pass must be run, in order; passes
        without an answer too. Then call :meth:`remember`.
        """
        traces, positions, answer, writes, whose = self.rows(trace, position)
        pieces = self._passes(traces, positions, answer, writes, limit)
        return whose, pieces

    def _passes(
        self,
        traces: Ints,
        positions: Ints,
        answer: Ints,
        writes: NDArray[np.bool_],
        limit: int | Callable[[], int],
    ) -> Iterator[Pass]:
        scratch: dict[str, Tensor] = {}
        device, end = self.backbone.device, 0
        while end < len(traces):
            at, end = end, end + (limit if isinstance(limit, int) else limit())
            part = slice(at, end)
            t, p, ask = traces[part], positions[part], answer[part]
            count = self.backbone.padded(len(t))
            ids = np.zeros(count, dtype=np.int64)
            ids[: len(t)] = [self.tokens[i][j] for i, j in zip(t, p, strict=True)]
            places = np.zeros(count, dtype=np.int64)
            places[: len(p)] = p
            step = self._step(t, places, writes[part], scratch)
            asked = np.flatnonzero(ask >= 0)
            # A matrix product of few rows would round otherwise than one of many.
            rows = np.zeros(align(max(len(asked), 1), 8), dtype=np.int64)
            rows[: len(asked)] = asked
            where = torch.from_numpy(places).to(device)
            yield Pass(
                ask[asked],
                torch.from_numpy(ids).to(device),
                where,
                step,
                torch.from_numpy(rows).to(device),
                self._prompts(t, where),
            )

    def _prompts(self, traces: Ints, places: Tensor) -> Rows | None:
        """Which rows of a pass belong to prompts, and which end them."""
        if self.ends is None:
            return None
        ends = np.zeros(len(places), dtype=np.int64)
        ends[: len(traces)] = self.ends[traces]
        end = torch.from_numpy(ends).to(places.device)
        return Rows(places, places < end, places == end - 1)

    def _step(
        self, traces: Ints, places: Ints, writes: NDArray[np.bool_], scratch: dict[str, Tensor]
    ) -> AttentionPlan:
        """The attention step of one pass: rows see their trace up to and with themselves."""
        device, positions = self.backbone.device, places[: len(traces)]
        columns = torch.arange(align(int(positions.max()) + 1), device=device)
        where = torch.from_numpy(places).to(device)
        mask = causal_mask(columns, where + 1, self.backbone.shape)
        keep = positions + 1
        parts = gather_parts(self.slots, traces, keep)
        found = [made for stack, rows, items in parts for made in products(stack, rows, items, keep[rows])]
        return AttentionPlan(
            mask,
            columns[None],
            where,
            int(positions.max()),
            found,
            [
                Write(
                    stack,
                    *(torch.from_numpy(a).to(device) for a in (rows, items, positions[rows] - stack.start)),
                )
                for stack, rows, items in self._targets(traces, positions, writes)
            ],
            scratch=scratch,
            beyond=self._beyond(traces, len(places)),
        )

    def _beyond(self, traces: Ints, count: int) -> Tensor | None:
        """Which of ``count`` rows are of traces beyond the switch, if there is one."""
        if self.backbone.switch is None:
            return None
        found = np.zeros(count, dtype=np.bool_)
        found[: len(traces)] = self.beyond[traces]
        return torch.from_numpy(found).to(self.backbone.device)

    def _targets(
        self, traces: Ints, positions: Ints, writes: NDArray[np.bool_]
    ) -> list[tuple[Stack, Ints, Ints]]:
        """Where the writing rows go: stack, rows, runs."""
        found: dict[int, tuple[Stack, list[int], list[int]]] = {}
        for row in np.flatnonzero(writes):
            slot = self.slots[traces[row]]
            shared_prefix = positions[row] < slot.leaf.start and slot.shared_prefix is not None
            stack = slot.shared_prefix if shared_prefix and slot.shared_prefix is not None else slot.leaf
            entry = found.setdefault(id(stack), (stack, [], []))
            entry[1].append(int(row))
            entry[2].append(0 if shared_prefix else slot.item)
        return [(s, np.array(r, dtype=np.int64), np.array(i, dtype=np.int64)) for s, r, i in found.values()]

    def remember(self) -> None:
        """Offer what was computed to the cache."""
        for index, (tokens, slot) in enumerate(zip(self.tokens, self.slots, strict=True)):
            self.cache.remember(tokens, slot.shared_prefix, slot.leaf, slot.item, self._root(index))
        self.cache.trim()


def gather_parts(
    slots: Sequence[CacheSlot] | Mapping[int, CacheSlot], traces: Ints, keep: Ints
) -> list[tuple[Stack, Ints, Ints]]:
    """Which rows read which runs of which stacks, shared prefixes first: stack, rows, runs."""
    found: dict[int, tuple[Stack, list[int], list[int]]] = {}
    for row, trace in enumerate(traces):
        slot = slots[trace]
        if slot.shared_prefix is not None:
            entry = found.setdefault(id(slot.shared_prefix), (slot.shared_prefix, [], []))
            entry[1].append(row)
            entry[2].append(0)
        if keep[row] > slot.leaf.start:
            entry = found.setdefault(id(slot.leaf), (slot.leaf, [], []))
            entry[1].append(row)
            entry[2].append(slot.item)
    # Sums go from left to right: what begins at position 0 comes before what continues it.
    ordered = sorted(found.values(), key=lambda entry: entry[0].start)
    return [
        (s, np.array(rows, dtype=np.int64), np.array(items, dtype=np.int64)) for s, rows, items in ordered
    ]


def causal_mask(columns: Tensor, keep: Tensor, shape: KvShape) -> Tensor:
    """0 where column < keep, -inf elsewhere: [rows, columns] in the model's dtype."""
    mask = torch.zeros((len(keep), len(columns)), dtype=shape.dtype, device=columns.device)
    return mask.masked_fill_(columns[None] >= keep[:, None], -torch.inf)


def _roomy(length: int) -> int:
    """A padded length from a coarse ladder (a quarter of a power of two), so similar traces stack."""
    if length <= 4 * BLOCK:
        return length
    rung = max(BLOCK, (1 << (length.bit_length() - 1)) // 4)
    return align(length, rung)
