"""Prompts of a live decoder: read in bounded passes, held once for all requests that have the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, final

import numpy as np
import torch
from torch import Tensor

from refork.decoding.loop import BranchDecoder
from refork.decoding.plan import BLOCK, align, shared
from refork.decoding.prefill import CacheSlot, Forest, Ints, Pass
from refork.decoding.stack import KvShape, Stack
from refork.types import IntArray

# Keys and values of the prompts of running requests, in few stacks whatever order they came in.


_WORTH = 2 * BLOCK
"""Tokens that two prompts must share at least, to be held once for both."""

Run: TypeAlias = tuple[int, CacheSlot, IntArray]
"""A number, where it was filled, and the tokens that it and its shared prefix hold."""


@dataclass(slots=True)
class _RunGroup:
    """Runs of about equal length that continue one shared prefix; ``owners`` names them, None is a gap.

    ``head`` are the shared_prefix's tokens, ``beyond`` says for which side of the switch they were computed.
    A ``lent`` stack may be read by others, and is copied before it changes.
    """

    stack: Stack
    shared_prefix: Stack | None
    head: IntArray
    owners: list[int | None] = field(default_factory=list)
    beyond: bool = False
    lent: bool = False
    view: Stack | None = None


@dataclass(frozen=True, slots=True)
class _RunPosition:
    """Where a run comes to lie: ``filled`` positions of its old place, behind those ``skipped`` there."""

    group: _RunGroup
    item: int
    skipped: int
    filled: int


@final
class PrefixCache:
    """Runs by number. A stack has room for twice what it holds, so that requests may come one by one.

    With ``share`` prompts that begin alike continue one shared prefix, also where they come one by one; what
    is computed of them must depend on their tokens alone, and on whether they are more than ``switch``.
    """

    def __init__(self, shape: KvShape, share: bool = False, switch: int | None = None) -> None:
        self.shape = shape
        self.share = share
        self.switch = switch
        self._tokens: dict[int, IntArray] = {}
        self._groups: dict[tuple[int, int, int], _RunGroup] = {}
        self._where: dict[int, tuple[int, int, int]] = {}

    @property
    def bytes(self) -> int:
        """Memory held."""
        shared_prefixes = {
            id(s.shared_prefix): s.shared_prefix.bytes
            for s in self._groups.values()
            if s.shared_prefix is not None
        }
        return sum(s.stack.bytes for s in self._groups.values()) + sum(shared_prefixes.values())

    def put_all(self, runs: Iterable[Run]) -> None:
        """Hold runs of filled stacks, which nobody may write to any more.

        A stack of which all runs come is taken as it is, others are copied run by run.
        """
        stacks: dict[int, list[Run]] = {}
        for run in runs:
            stacks.setdefault(id(run[1].leaf), []).append(run)
        placed = [
            (self._assign(*run), run[1])
            for group in stacks.values()
            if not self._adopted(group)
            for run in group
        ]
        for place, slot in placed:
            group, item = place.group, place.item
            if group.lent or len(group.owners) > group.stack.count:
                self._resize(group, max(2 * group.stack.count, len(group.owners)))
            group.stack.copy_block(item, 0, slot.leaf, slot.item, place.skipped, place.filled)
            # What lay here before may not be finite, and 0 * NaN is NaN.
            group.stack.clear(item, place.filled)

    def _adopted(self, runs: Sequence[Run]) -> bool:
        """Take the whole stack of some runs, unless they belong to others that are here."""
        _, slot, _ = runs[0]
        leaf, shared_prefix = slot.leaf, slot.shared_prefix
        name = _name(shared_prefix, leaf.start, leaf.length)
        whole = len(runs) == leaf.count and leaf.length == _roomy(leaf.length)
        if not whole or name in self._groups or any(self._akin(s, tokens) for _, s, tokens in runs):
            return False
        beyond = self._beyond(runs[0][2])
        group = _RunGroup(
            leaf, shared_prefix, runs[0][2][: leaf.start], [None] * leaf.count, beyond, lent=True
        )
        for number, place, tokens in runs:
            group.owners[place.item] = number
            self._where[number], self._tokens[number] = name, tokens
        self._groups[name] = group
        return True

    def _akin(self, slot: CacheSlot, tokens: IntArray) -> bool:
        """Whether a run would continue another shared prefix than its own."""
        shared_prefix, length = self._known(slot, tokens)
        return shared_prefix is not slot.shared_prefix or self._alike(tokens, length) > 0

    def _assign(self, number: int, slot: CacheSlot, tokens: IntArray) -> _RunPosition:
        """Give a run its place, which may not be there yet."""
        shared_prefix, start = self._shared_prefix(slot, tokens)
        skipped = start - slot.leaf.start
        filled = min(align(max(len(tokens) - start, 0)), slot.leaf.length - skipped)
        room = _roomy(filled)
        name = _name(shared_prefix, start, room)
        group = self._groups.get(name)
        if group is None:
            nothing = Stack(self.shape, 0, start, room)
            beyond = self._beyond(tokens)
            group = self._groups[name] = _RunGroup(nothing, shared_prefix, tokens[:start], beyond=beyond)
        if None in group.owners:
            item = group.owners.index(None)
            group.owners[item] = number
        else:
            item = len(group.owners)
            group.owners.append(number)
            group.view = None
        self._where[number] = name
        self._tokens[number] = tokens
        return _RunPosition(group, item, skipped, filled)

    def _shared_prefix(self, slot: CacheSlot, tokens: IntArray) -> tuple[Stack | None, int]:
        """The shared prefix that a run continues, and its length: its own, one that is here, or a new one."""
        best, length = self._known(slot, tokens)
        alike = self._alike(tokens, length)
        if not alike:
            return best, length
        shared_prefix = Stack(self.shape, 1, 0, alike)
        own = slot.leaf.start
        if slot.shared_prefix is not None:
            shared_prefix.copy_block(0, 0, slot.shared_prefix, 0, 0, own)
        shared_prefix.copy_block(0, own, slot.leaf, slot.item, 0, alike - own)
        return shared_prefix, alike

    def _known(self, slot: CacheSlot, tokens: IntArray) -> tuple[Stack | None, int]:
        """The longest shared prefix that there is for a run, its own or one that is here."""
        best, length, beyond = slot.shared_prefix, slot.leaf.start, self._beyond(tokens)
        for group in self._groups.values() if self.share else ():
            size = len(group.head) if group.beyond == beyond else 0
            if length <= size < len(tokens) and size and shared(group.head, tokens) == size:
                best, length = group.shared_prefix, size
        return best, length

    def _alike(self, tokens: IntArray, length: int) -> int:
        """Length of a new shared prefix for a run and one that is here; 0: the one of ``length`` will do."""
        if not self.share:
            return 0
        beyond = self._beyond(tokens)
        # Contexts on either side of the switch are computed otherwise, and share nothing.
        others = (other for other in self._tokens.values() if self._beyond(other) == beyond)
        alike = max((shared(other, tokens) for other in others), default=0)
        # The last token is the run's own, so that no run is empty.
        alike = min(alike, len(tokens) - 1) // BLOCK * BLOCK
        return alike if alike >= max(_WORTH, 2 * length) else 0

    def _beyond(self, tokens: IntArray) -> bool:
        return self.switch is not None and len(tokens) > self.switch

    def drop(self, number: int) -> None:
        """Nobody needs this run any more; its memory is used again or given back by :meth:`tidy`."""
        del self._tokens[number]
        owners = self._groups[self._where.pop(number)].owners
        owners[owners.index(number)] = None

    def tidy(self) -> None:
        """Close gaps and give memory back; whoever reads must ask for its :meth:`admit` anew."""
        for name, group in list(self._groups.items()):
            used = sum(owner is not None for owner in group.owners)
            if used == 0:
                del self._groups[name]
                continue
            if 2 * used > len(group.owners):
                continue
            living = [item for item, owner in enumerate(group.owners) if owner is not None]
            group.stack = group.stack.take(torch.tensor(living, device=self.shape.device))
            group.owners = [group.owners[item] for item in living]
            group.lent, group.view = False, None

    def slot(self, number: int) -> CacheSlot:
        """Where a run lies now."""
        group = self._groups[self._where[number]]
        if group.view is None:
            group.view = group.stack.part(0, len(group.owners))
        return CacheSlot(
            group.view, group.owners.index(number), group.shared_prefix, number, self._tokens[number]
        )

    def _resize(self, group: _RunGroup, count: int) -> None:
        old = group.stack
        group.stack = Stack(self.shape, count, old.start, old.length)
        kept = min(count, old.count)
        for mine, theirs in zip(
            (*group.stack.keys, *group.stack.values), (*old.keys, *old.values), strict=True
        ):
            mine[:kept] = theirs[:kept]
        group.lent, group.view = False, None


def _name(shared_prefix: Stack | None, start: int, room: int) -> tuple[int, int, int]:
    # The group that has this name keeps the stack alive, so that its id stays its own.
    return 0 if shared_prefix is None else id(shared_prefix), start, room


def _roomy(length: int) -> int:
    """Positions of the runs that one of this length is shelved with: a power of two."""
    # Few stacks then hold prompts of all lengths, none more than half unused.
    return 1 << (max(length, BLOCK) - 1).bit_length()


@dataclass(slots=True, eq=False)
class Prompt:
    """A prompt that was read: its run on the prefix cache, the logits [V] and hidden states after it.

    ``states`` [k, layers, width] are those of its last tokens. ``users`` counts the requests that hold it.
    """

    tokens: IntArray
    run: int
    opening: Tensor
    states: Tensor
    users: int = 0


@dataclass(slots=True, eq=False)
class Reading:
    """Prompts being read together; ``asked`` [prompts] are the numbers of their last tokens' answers."""

    tokens: list[IntArray]
    owner: Ints
    forest: Forest
    passes: Iterator[Pass]
    pairs: list[Ints]
    logits: dict[int, Tensor] = field(default_factory=dict)
    states: list[Tensor] = field(default_factory=list)
    ahead: Pass | None = None

    def find_equal(self, tokens: IntArray) -> int | None:
        """The number of an equal prompt among those read."""
        for number, other in enumerate(self.tokens):
            if len(other) == len(tokens) and (other == tokens).all():
                return number
        return None

    @property
    def asked(self) -> Ints:
        """The answers after which the prompts' continuations begin."""
        return np.array([pairs[-1] for pairs in self.pairs], dtype=np.int64)

    @property
    def bytes(self) -> int:
        """Keys and values held."""
        stacks = {
            id(s): s.bytes
            for slot in self.forest.slots
            for s in (slot.leaf, slot.shared_prefix)
            if s is not None
        }
        return sum(stacks.values())


@final
class Prompts:
    """The prompts of all running requests, by their tokens.

    ``layers`` (numbered) and ``window`` say of which of their last tokens hidden states are wanted.
    ``computed`` counts the rows of all passes so far.
    """

    def __init__(self, decoder: BranchDecoder, layers: tuple[int, ...], window: int) -> None:
        self.decoder, self.layers = decoder, layers
        self.window = max(window, 1) if layers else 1
        backbone = decoder.backbone
        self.prefix_cache = PrefixCache(backbone.shape, share=not decoder.by_request, switch=backbone.switch)
        self.computed = 0
        self._known: dict[bytes, Prompt] = {}
        self._users: dict[int, int] = {}
        self._next = 0

    def find(self, tokens: IntArray) -> Prompt | None:
        """A prompt of these tokens that some request holds."""
        return self._known.get(tokens.tobytes())

    def hold(self, prompt: Prompt) -> Prompt:
        """One more request continues it."""
        prompt.users += 1
        return prompt

    def release(self, prompt: Prompt) -> None:
        """One request less; the last one takes the prompt with it."""
        prompt.users -= 1
        if prompt.users:
            return
        name = prompt.tokens.tobytes()
        if self._known.get(name) is prompt:
            del self._known[name]
        self._users[prompt.run] -= 1
        if not self._users[prompt.run]:
            del self._users[prompt.run]
            self.prefix_cache.drop(prompt.run)

    def start(self, tokens: Sequence[IntArray], limit: Callable[[], int]) -> Reading:
        """Begin to read distinct prompts, in passes of at most ``limit()`` rows."""
        decoder = self.decoder
        folded = decoder.fold(tokens, [len(item) for item in tokens])
        rows = np.bincount(folded.owner, minlength=len(folded.tokens))
        forest = Forest(decoder.backbone, folded.tokens, rows, decoder.cache, folded.ends)
        counts = np.minimum(folded.keep, self.window)
        position = np.concatenate([np.arange(k - c, k) for k, c in zip(folded.keep, counts, strict=True)])
        whose, passes = forest.fill(np.repeat(folded.owner, counts), position, limit)
        return Reading(list(tokens), folded.owner, forest, passes, np.split(whose, np.cumsum(counts)[:-1]))

    def advance(self, reading: Reading) -> list[Prompt] | None:
        """One more pass; the prompts once all are read, each held once, for the caller to release."""
        # One pass is fetched ahead: only an iterator that gives no more says that this one was the last.
        item = reading.ahead if reading.ahead is not None else next(reading.passes)
        self._run(reading, item)
        reading.ahead = next(reading.passes, None)
        if reading.ahead is not None:
            return None
        reading.forest.remember()
        return self._cache(reading)

    def _run(self, reading: Reading, item: Pass) -> None:
        """One pass: logits after the last tokens of prompts, hidden states of all that are wanted."""
        mine = np.flatnonzero(np.isin(item.answers, reading.asked))
        # A matrix product of few rows would round otherwise than one of many.
        rows = np.zeros(align(max(len(mine), 1), 8), dtype=np.int64)
        rows[: len(mine)] = mine
        asked = item.wanted[torch.from_numpy(rows).to(item.wanted.device)]
        probe = self.decoder.probe(item, self.layers)
        logits = self.decoder.backbone.run(item.tokens, item.positions, item.step, asked, probe)
        self.computed += len(item.tokens)
        for row, answer in enumerate(item.answers[mine]):
            reading.logits[int(answer)] = logits[row].clone()
        if self.layers:
            reading.states.append(probe.states()[: len(item.answers)])

    def _cache(self, reading: Reading) -> list[Prompt]:
        """Put what was read on the prefix cache."""
        runs: dict[int, int] = {}
        states = torch.cat(reading.states) if reading.states else None
        for owner in dict.fromkeys(reading.owner.tolist()):
            runs[owner] = self._next
            self._users[self._next] = 0
            self._next += 1
        forest = reading.forest
        self.prefix_cache.put_all(
            (run, forest.slots[owner], forest.tokens[owner]) for owner, run in runs.items()
        )
        found = []
        for tokens, owner, pairs in zip(reading.tokens, reading.owner.tolist(), reading.pairs, strict=True):
            opening = reading.logits[int(pairs[-1])]
            none = opening.new_zeros((0, 0, 0))
            kept = none if states is None else states[torch.from_numpy(pairs).to(states.device)]
            prompt = Prompt(tokens, runs[owner], opening, kept, users=1)
            self._users[runs[owner]] += 1
            self._known[tokens.tobytes()] = prompt
            found.append(prompt)
        return found


def begins_alike(tokens: IntArray, reading: Reading) -> bool:
    """Whether the first block of a prompt is being read right now, so that waiting saves computing it."""
    if len(tokens) < BLOCK:
        return False
    return any(len(other) >= BLOCK and (other[:BLOCK] == tokens[:BLOCK]).all() for other in reading.tokens)
