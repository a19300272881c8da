"""Greedy maximisation of a monotone submodular set function, lazily, with costs.

Source: Nemhauser, Wolsey and Fisher, An analysis of approximations for maximizing submodular set functions
(1978): 1 - 1/e under a plain budget of items; Minoux (1978) for lazy evaluation; with costs, Leskovec et al.,
Cost-effective outbreak detection (KDD 2007): the better of gain per cost and best single item keeps
(1 - 1/e) / 2.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from refork.errors import BadInput

#: Value of a set of items; monotone, with diminishing returns, and 0 for the empty set.
SetFunction = Callable[[Sequence[int]], float]


@dataclass(frozen=True, slots=True)
class Greedy:
    """What was chosen, in order, the gain of each choice, the value of all, and how often F was asked.

    ``single``: one item alone was worth more than everything greedy could afford, and was taken instead.
    """

    chosen: tuple[int, ...]
    gains: tuple[float, ...]
    value: float
    cost: float
    evaluations: int
    single: bool = False


def greedy_submodular(
    value: SetFunction,
    size: int,
    budget: float,
    costs: ArrayLike | None = None,
    *,
    lazy: bool = True,
) -> Greedy:
    """Greedy choice among items ``0 .. size-1`` whose costs sum to at most ``budget``.

    Without ``costs`` each item costs 1 and the gain alone decides; with them the gain per cost does, and
    the best single affordable item is the safeguard. Ties go to the lowest item. ``lazy`` asks again only
    for items whose old gain, an upper bound, is still the largest; the choice is the same.

    Raises:
        BadInput: a budget that affords nothing, or costs that are not positive.
    """
    price = np.ones(size) if costs is None else np.asarray(costs, dtype=np.float64).reshape(-1)
    if len(price) != size or not (np.isfinite(price).all() and (price > 0).all()):
        raise BadInput("every item needs a cost above 0", where="greedy")
    if size == 0 or budget < price.min():
        raise BadInput(f"a budget of {budget:g} affords none of {size} items", where="greedy")
    asked = _Asked(value)
    chosen, gains = (_lazy if lazy else _plain)(asked, price, budget)
    total = sum(gains)
    if costs is not None:
        single = [(asked([i]), -i) for i in range(size) if price[i] <= budget]
        # With the number negated, so that of equal values the lowest item wins.
        best, index = max(single)
        if best > total:
            return Greedy((-index,), (best,), best, float(price[-index]), asked.count, single=True)
    return Greedy(tuple(chosen), tuple(gains), total, float(price[chosen].sum()), asked.count)


class _Asked:
    """A set function that counts how often it is asked and remembers single items."""

    def __init__(self, value: SetFunction) -> None:
        self._value = value
        self._alone: dict[int, float] = {}
        self.count = 0

    def __call__(self, items: Sequence[int]) -> float:
        if len(items) == 1 and items[0] in self._alone:
            return self._alone[items[0]]
        self.count += 1
        found = float(self._value(items))
        if len(items) == 1:
            self._alone[items[0]] = found
        return found


def _plain(value: _Asked, price: np.ndarray, budget: float) -> tuple[list[int], list[float]]:
    chosen: list[int] = []
    gains: list[float] = []
    held = 0.0
    while True:
        left = budget - float(price[chosen].sum())
        open_ = [i for i in range(len(price)) if i not in chosen and price[i] <= left]
        if not open_:
            return chosen, gains
        gain = {i: value([*chosen, i]) - held for i in open_}
        best = max(open_, key=lambda i: (gain[i] / price[i], -i))
        chosen.append(best)
        gains.append(gain[best])
        held += gain[best]


def _lazy(value: _Asked, price: np.ndarray, budget: float) -> tuple[list[int], list[float]]:
    chosen: list[int] = []
    gains: list[float] = []
    held, left = 0.0, budget
    heap = [(-value([i]) / price[i], i, 0) for i in range(len(price))]
    heapq.heapify(heap)
    while heap:
        bound, item, seen = heapq.heappop(heap)
        if price[item] > left:  # what is left only shrinks
            continue
        # Gains only shrink: an item whose gain is of now and still on top beats every outdated bound.
        if seen == len(chosen):
            gain = float(-bound * price[item])
            chosen.append(item)
            gains.append(gain)
            held, left = held + gain, left - float(price[item])
            continue
        gain = value([*chosen, item]) - held
        heapq.heappush(heap, (-gain / price[item], item, len(chosen)))
    return chosen, gains
