"""Which prefixes share what: pure functions over token ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    beyond = np.array([len(prefix) > switch for prefix in prefixes], dtype=np.bool_)
    owner, keep = (np.zeros(len(prefixes), dtype=np.int64) for _ in range(2))
    tokens: list[IntArray] = []
    limits: list[NDArray[np.int64]] = []
    for part in (np.flatnonzero(~beyond), np.flatnonzero(beyond)):
        places = part.tolist()
        mine = _traces([prefixes[i] for i in places], None if ends is None else [ends[i] for i in places])
        owner[part], keep[part] = mine.owner + len(tokens), mine.keep
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
        found = place.get((id(prefix), end))
        if found is None:
            # Big-endian bytes of non-negative ids sort like the ids themselves.
            name = prefix.astype(">i4").tobytes(), end
            found = names.setdefault(name, len(arrays))
            if found == len(arrays):
                arrays.append(prefix)
            place[id(prefix), end] = found
        which[row] = found
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


@dataclass(frozen=True, slots=True)
class Cluster:
    """Traces ``first .. last - 1`` (sorted order) that share their first ``shared_prefix`` tokens."""

    first: int
    last: int
    shared_prefix: int


def clusters(tokens: Sequence[IntArray], ends: NDArray[np.int64] | None = None) -> list[Cluster]:
    """Group sorted traces by their first block; the shared prefix is what the whole group shares.

    A shared prefix is a multiple of BLOCK, so that a position lies in the same block of the same sum whether
    it is shared or not. A trace alone, or one that shares less than a block, has no shared prefix. With
    ``ends`` [traces] the shared prefix stops before the last token of every prompt.
    """
    found: list[Cluster] = []
    start = 0
    heads = [array[:BLOCK].tobytes() if len(array) >= BLOCK else None for array in tokens]
    while start < len(tokens):
        end = start + 1
        while end < len(tokens) and heads[start] is not None and heads[end] == heads[start]:
            end += 1
        # The shared beginning of a sorted group is that of its first and last member.
        shared_prefix = shared(tokens[start], tokens[end - 1]) if end - start > 1 else 0
        if shared_prefix and ends is not None:
            shared_prefix = min(shared_prefix, int(ends[start:end].min()) - 1)
        shared_prefix = shared_prefix // BLOCK * BLOCK
        found.append(Cluster(start, end, shared_prefix))
        start = end
    return found


def clusters_apart(
    tokens: Sequence[IntArray], ends: NDArray[np.int64] | None = None, switch: int | None = None
) -> list[tuple[list[int], int]]:
    """Members and shared prefix of each cluster; traces longer than ``switch`` share with none shorter."""
    apart = [np.arange(len(tokens))]
    if switch is not None:
        beyond = np.array([len(array) > switch for array in tokens], dtype=np.bool_)
        apart = [np.flatnonzero(~beyond), np.flatnonzero(beyond)]
    found: list[tuple[list[int], int]] = []
    for part in apart:
        mine = clusters([tokens[i] for i in part.tolist()], None if ends is None else ends[part])
        found += [(part[c.first : c.last].tolist(), c.shared_prefix) for c in mine]
    return found


def shared(left: IntArray, right: IntArray) -> int:
    """How many tokens two arrays share from their beginning."""
    size = min(len(left), len(right))
    differs = np.flatnonzero(left[:size] != right[:size])
    return int(differs[0]) if len(differs) else size
