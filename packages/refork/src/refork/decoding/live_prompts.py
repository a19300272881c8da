"""Prompts of a live decoder: read in bounded passes, shared by all requests that have the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np
import torch
from torch import Tensor

from refork.decoding.live_prefix_cache import PrefixCache
from refork.decoding.loop import BranchDecoder
from refork.decoding.plan import BLOCK, align
from refork.decoding.prefill import Forest, Ints, Pass
from refork.types import IntArray


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

    def place(self, tokens: IntArray) -> int | None:
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
        logits = self.decoder.backbone.run(item.tokens, item.places, item.step, asked, probe)
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
