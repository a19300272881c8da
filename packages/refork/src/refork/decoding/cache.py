"""Blocks of recent prefixes, so that the next turn of a rollout computes only what is new.

Only what a prefill computed is kept: those bits depend on the tokens alone, so a hit changes nothing
but the time. Blocks are found by their exact tokens and all tokens before them.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import final

from refork.decoding.plan import BLOCK
from refork.decoding.stack import Stack
from refork.types import IntArray


@dataclass(frozen=True, slots=True)
class _Block:
    """Where one block lies; ``id`` names the block and everything before it."""

    id: int
    stack: Stack
    item: int
    offset: int


@dataclass(slots=True)
class _Held:
    """A stack and the index keys that point into it."""

    stack: Stack
    keys: list[tuple[int, bytes]] = field(default_factory=list)


@final
class BlockCache:
    """Least recently used stacks within ``limit`` bytes, indexed by block."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.hits = 0
        self._index: dict[tuple[int, bytes], _Block] = {}
        self._held: OrderedDict[int, _Held] = OrderedDict()
        self._next = 1

    @property
    def bytes(self) -> int:
        """Memory held."""
        return sum(held.stack.bytes for held in self._held.values())

    def clear(self) -> None:
        """Forget everything: the weights changed."""
        self._index.clear()
        self._held.clear()

    def load(self, tokens: IntArray, stack: Stack, item: int, root: int = 0) -> int:
        """Copy known blocks of ``tokens`` into a run; returns how many of its positions are filled.

        ``root`` names what blocks were computed as; those of another one are not found.
        """
        parent, loaded = root, 0
        for at in range(0, len(tokens) - BLOCK + 1, BLOCK):
            block = self._index.get((parent, tokens[at : at + BLOCK].tobytes()))
            if block is None or at - stack.start + BLOCK > stack.length:
                break
            parent = block.id
            self._held.move_to_end(id(block.stack))
            if at >= stack.start:
                stack.copy_block(item, at - stack.start, block.stack, block.item, block.offset, BLOCK)
                loaded += BLOCK
                self.hits += 1
        return loaded

    def remember(
        self, tokens: IntArray, shared_prefix: Stack | None, leaf: Stack, item: int, root: int = 0
    ) -> None:
        """Index the complete blocks of a trace whose beginning may lie in a shared prefix (run 0).

        Where few blocks at the end of a run are new, only they are kept, and not the run.
        """
        leaf, item = self._compact(tokens, leaf, item, root)
        parent = root
        for at in range(0, len(tokens) - BLOCK + 1, BLOCK):
            key = (parent, tokens[at : at + BLOCK].tobytes())
            block = self._index.get(key)
            if block is None:
                stack, run = (
                    (shared_prefix, 0) if shared_prefix is not None and at < leaf.start else (leaf, item)
                )
                # It would push everything else out and still not fit.
                if stack.bytes > self.limit:
                    return
                block = _Block(self._next, stack, run, at - stack.start)
                self._next += 1
                self._index[key] = block
                # An id names a stack only while it lives; held here, no other can take its id.
                self._held.setdefault(id(stack), _Held(stack)).keys.append(key)
            parent = block.id

    def _compact(self, tokens: IntArray, leaf: Stack, item: int, root: int) -> tuple[Stack, int]:
        """A run, or a copy of its end where the blocks before it are known."""
        parent, at = root, 0
        if not self.limit:
            return leaf, item
        while at + BLOCK <= len(tokens):
            block = self._index.get((parent, tokens[at : at + BLOCK].tobytes()))
            if block is None:
                break
            parent, at = block.id, at + BLOCK
        fresh = (len(tokens) - at) // BLOCK * BLOCK
        if id(leaf) in self._held or fresh == 0 or at < leaf.start or 2 * fresh > leaf.length:
            return leaf, item
        end = Stack(leaf.shape, 1, at, fresh)
        end.copy_block(0, 0, leaf, item, at - leaf.start, fresh)
        return end, 0

    def trim(self) -> None:
        """Drop the stacks that were not used for longest until the rest fits."""
        total = self.bytes
        while self._held and total > self.limit:
            _, held = self._held.popitem(last=False)
            total -= held.stack.bytes
            for key in held.keys:
                # Blocks of other stacks that continue these stay out of reach until they fall out themselves.
                del self._index[key]
