"""Anchors: what makes two observations the same state.

An anchor turns observations into labels; equal labels merge. Labels are made once per different
observation, so a million steps cost what their different observations cost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput

Int64 = NDArray[np.int64]
Anchor: TypeAlias = Callable[[Any], str]
Named = Literal["exact", "normalised", "state"]

#: More different observations than this are not compared with each other one by one.
_MOST_FUZZY = 20_000

# The order matters: whole dates before times, UUIDs before the hexadecimal words that they are made of. The
# lookahead asks a hexadecimal word for a digit, so that words of the letters a to f stay as they are.
_NOISE = (
    (re.compile(r"\b\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?"), "<time>"),
    (re.compile(r"\b\d{1,2}:\d\d(:\d\d(\.\d+)?)?\b"), "<time>"),
    (re.compile(r"\b[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), "<id>"),
    (re.compile(r"\b(0x)?(?=[0-9a-fA-F]*\d)[0-9a-fA-F]{8,}\b"), "<id>"),
    (re.compile(r"\b\d{6,}\b"), "<id>"),
    (re.compile(r"(?<![\w.])(-?\d+\.\d{3})\d+\b"), r"\1"),
    (re.compile(r"\s+"), " "),
)


def exact(observation: Any) -> str:
    """The observation itself: text as it is, other data as JSON with sorted keys.

    Raises:
        BadInput: a number with a fraction (two visits would hardly ever be equal), or what is not JSON data.
    """
    if isinstance(observation, str):
        return observation
    if _noisy(observation):
        raise BadInput(
            "an observation holds numbers with fractions: equal states would not be equal",
            where="anchor exact",
            hint="give every step an `anchor` (a hash of the rounded state), or use --anchor normalised",
        )
    return _as_json(observation)


def _as_json(observation: Any) -> str:
    try:
        return json.dumps(observation, sort_keys=True, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise BadInput(
            f"an observation of type {type(observation).__name__} cannot be compared",
            where="anchor",
            hint="give text, JSON data, or an `anchor` for every step",
        ) from error


def _noisy(data: Any) -> bool:
    if isinstance(data, float):
        return not data.is_integer()
    if isinstance(data, dict):
        return any(map(_noisy, data.values()))
    return isinstance(data, (list, tuple)) and any(map(_noisy, data))


def normalised(observation: Any) -> str:
    """The observation with times, ids and spacing taken out, and fractions cut to three digits.

    Ids are UUIDs, hexadecimal words of eight characters or more with a digit, and numbers of six digits
    or more: what differs between two visits to one state. Which words vary is ours to guess; look at
    ``collision_report`` before and after.
    """
    text = observation if isinstance(observation, str) else _as_json(observation)
    for pattern, stands in _NOISE:
        text = pattern.sub(stands, text)
    return text.strip()


ANCHORS: dict[str, Anchor] = {"exact": exact, "normalised": normalised}


def anchor_named(name: str) -> Anchor:
    """An anchor by name; raises BadInput for an unknown one."""
    if name not in ANCHORS:
        raise BadInput(f"unknown anchor {name!r}", hint=f"known: {', '.join(ANCHORS)}, state")
    return ANCHORS[name]


def codes(labels: Iterable[Any]) -> tuple[Int64, list[Any]]:
    """Numbers of labels in order of first appearance, [n], and the different labels.

    Raises:
        BadInput: a label that cannot be hashed.
    """
    given = labels if isinstance(labels, list) else list(labels)
    try:
        names = list(dict.fromkeys(given))
        number = dict(zip(names, range(len(names)), strict=True))
        return np.fromiter(map(number.__getitem__, given), dtype=np.int64, count=len(given)), names
    except TypeError as error:
        raise BadInput(
            f"a state cannot be hashed: {error}", where="anchor", hint="return text, a number or a tuple"
        ) from error


def apply_anchor(observations: Sequence[Any], anchor: Anchor) -> tuple[Int64, list[str]]:
    """Labels of observations [n] and their names; the anchor is called once per different text."""
    texts = [item if isinstance(item, str) else _as_json(item) for item in observations]
    numbers, different = codes(texts)
    first = np.full(len(different), -1, dtype=np.int64)
    # NumPy keeps what is written last to a repeated index: written backwards, that is the first occurrence.
    first[numbers[::-1]] = np.arange(len(texts))[::-1]
    labels, names = codes([anchor(observations[i]) for i in first.tolist()])
    return labels[numbers], names


def last_states(labels: Int64, positions: Int64, depth: int) -> Int64:
    """Numbers of the last ``depth`` labels together, [n]; at a trajectory's start fewer, which is different.

    Args:
        labels: integers of at least 0, trajectory by trajectory, [n].
        positions: each step's place in its trajectory, from 0, [n].
        depth: 1 is the present label alone.

    Raises:
        BadInput: a depth below 1.
    """
    if depth < 1:
        raise BadInput(f"a history of {depth} states", hint="1 is the present state alone")
    found = labels
    for back in range(1, depth):
        before = np.full(len(labels), -1, dtype=np.int64)
        before[back:] = labels[:-back]
        # 0 stands for no state so far back; it must differ from every label, and _pairs takes no negative
        # number.
        found = _pairs(found, np.where(positions >= back, before, -1) + 1)
    return found


def _pairs(high: Int64, low: Int64) -> Int64:
    """One number per different pair, [n]."""
    if not len(low):
        return low
    both = high * (np.int64(low.max()) + 1) + low
    return np.asarray(np.unique(both, return_inverse=True)[1], dtype=np.int64)


def merge_similar(names: Sequence[str], least: float) -> Int64:
    """Labels of texts, [n], where texts that share at least this part of their words are one.

    Similarity is the Jaccard index of the sets of words. Likeness is passed on (a like b, b like c: one
    state), so the result does not depend on order; that can chain unlike texts, hence the high default of
    the command line. The sequence matching of published code depends on order and costs a loop over pairs.

    Raises:
        BadInput: a threshold outside (0, 1], or more than 20,000 different texts.
    """
    from scipy.sparse.csgraph import connected_components
    from sklearn.feature_extraction.text import CountVectorizer

    if not 0 < least <= 1:
        raise BadInput(f"a similarity of {least}", where="fuzzy anchor", hint="between 0 and 1, e.g. 0.95")
    if len(names) > _MOST_FUZZY:
        raise BadInput(
            f"{len(names):,} different observations are too many to compare",
            where="fuzzy anchor",
            hint=f"at most {_MOST_FUZZY:,}; normalise them first",
        )
    # CountVectorizer refuses a set of texts without a single word.
    if not names or not any(re.search(r"\S", name) for name in names):
        return np.arange(len(names), dtype=np.int64)
    words = CountVectorizer(token_pattern=r"\S+", lowercase=False, binary=True, dtype=np.float64)
    sets = words.fit_transform(names).tocsr()
    shared = (sets @ sets.T).tocoo()
    sizes = np.asarray(sets.sum(axis=1)).reshape(-1)
    either = sizes[shared.row] + sizes[shared.col] - shared.data
    shared.data = (shared.data >= least * either).astype(np.float64)
    shared.eliminate_zeros()
    _, labels = connected_components(shared, directed=False)
    return np.asarray(labels, dtype=np.int64)
