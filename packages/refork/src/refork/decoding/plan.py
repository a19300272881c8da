"""Which prefixes share what: pure functions over token ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from refork.types import IntArray

BLOCK = 64
"""Positions per block: the unit in which keys and values are shared, padded and summed over."""


def align(length: int, unit: int = BLOCK) -> int:
    """The next multiple of ``unit``, at least ``length``."""
    return -(-length // unit) * unit


@dataclass(frozen=True, slots=True)
class Traces:
    """Distinct longest prefixes, sorted, and which beginning of which one each request needs.

    Request ``i`` has the tokens ``tokens[owner[i]][:keep[i]]``. Where it matters, ``ends`` [traces]
    is how many tokens of each are its prompt.
    """

    tokens: list[IntArray]
    owner: NDArray[np.int64]
    keep: NDArray[np.int64]
    ends: NDArray[np.int64] | None = None


def traces(
    prefixes: Sequence[IntArray], ends: Sequence[int] | None = None, switch: int | None = None
) -> Traces:
    """Fold prefixes that begin one another into traces; n prefixes cost one sort.

    ``ends`` says how many tokens of each are its prompt, where that changes what is computed: then only
    prefixes that are equal in both are one trace. Prefixes of more than ``switch`` tokens are computed
    otherwise than shorter ones and share nothing with them.
    """
    if switch is None:
        return _traces(prefixes, ends)
    owner, keep = (np.zeros(len(prefixes), dtype=np.int64) for _ in range(2))
    tokens: list[IntArray] = []
    limits: list[NDArray[np.int64]] = []
    for side in _sides(prefixes, switch):
        mine = _traces([prefixes[i] for i in side], None if ends is None else [ends[i] for i in side])
        owner[side], keep[side] = mine.owner + len(tokens), mine.keep
        tokens += mine.tokens
        limits += [] if mine.ends is None else [mine.ends]
    return Traces(tokens, owner, keep, None if ends is None else np.concatenate(limits))


def _traces(prefixes: Sequence[IntArray], ends: Sequence[int] | None) -> Traces:
    place: dict[tuple[int, int], int] = {}
    names: dict[tuple[bytes, int], int] = {}
    arrays: list[IntArray] = []
    which = np.empty(len(prefixes), dtype=np.int64)
    for row, prefix in enumerate(prefixes):
        end = 0 if ends is None else int(ends[row])
        # Requests of one fork share the array itself, which spares all but the first its bytes.
        found = place.get((id(prefix), end))
        if found is None:
            # Big-endian bytes of non-negative ids sort like the ids themselves.
            name = prefix.astype(">i4").tobytes(), end
            found = names.setdefault(name, len(arrays))
            if found == len(arrays):
                arrays.append(prefix)
            place[id(prefix), end] = found
        which[row] = found
    # Backwards, so that of prefixes that begin one another the longest comes first.
    ordered = sorted(names.items(), reverse=True)
    tokens: list[IntArray] = []
    prompts: list[int] = []
    owner = np.empty(len(arrays), dtype=np.int64)
    current: bytes | None = None
    for (content, end), index in ordered:
        # Whatever begins another prefix begins the next one in sorted order.
        if current is None or ends is not None or not current.startswith(content):
            current = content
            tokens.append(arrays[index])
            prompts.append(end)
        owner[index] = len(tokens) - 1
    tokens.reverse()
    owner = len(tokens) - 1 - owner
    lengths = np.array([len(array) for array in arrays], dtype=np.int64)
    limits = None if ends is None else np.array(prompts[::-1], dtype=np.int64)
    return Traces(tokens, owner[which], lengths[which], limits)


def clusters(
    tokens: Sequence[IntArray], ends: NDArray[np.int64] | None = None, switch: int | None = None
) -> list[tuple[list[int], int]]:
    """Sorted traces by their first block: the members of each group, and how many tokens all of them share.

    A shared prefix is a multiple of BLOCK, so that a position lies in the same block of the same sum whether
    it is shared or not. A trace alone, or one that shares less than a block, has no shared prefix. With
    ``ends`` [traces] the shared prefix stops before the last token of every prompt. Traces longer than
    ``switch`` share with none shorter.
    """
    found: list[tuple[list[int], int]] = []
    heads = [array[:BLOCK].tobytes() if len(array) >= BLOCK else None for array in tokens]
    for side in _sides(tokens, switch):
        for _, group in groupby(side, lambda i: i if heads[i] is None else heads[i]):
            members = list(group)
            # The shared beginning of a sorted group is that of its first and last member.
            size = shared(tokens[members[0]], tokens[members[-1]]) if len(members) > 1 else 0
            if size and ends is not None:
                size = min(size, int(ends[members].min()) - 1)
            found.append((members, size // BLOCK * BLOCK))
    return found


def _sides(tokens: Sequence[IntArray], switch: int | None) -> list[list[int]]:
    """Places of those with at most ``switch`` tokens, and of those with more; None: all together."""
    every = range(len(tokens))
    if switch is None:
        return [list(every)]
    return [[i for i in every if len(tokens[i]) <= switch], [i for i in every if len(tokens[i]) > switch]]


def shared(left: IntArray, right: IntArray) -> int:
    """How many tokens two arrays share from their beginning."""
    size = min(len(left), len(right))
    differs = np.flatnonzero(left[:size] != right[:size])
    return int(differs[0]) if len(differs) else size
