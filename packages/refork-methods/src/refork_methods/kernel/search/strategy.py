"""Which kernel to write the next one from: a search tree, or its rival that only follows the fastest."""

from __future__ import annotations

import math
from typing import Protocol, final

from refork_methods.kernel.mcts import SearchSettings, SearchTree
from refork_methods.kernel.search.settings import KernelSearchSettings


class Strategy(Protocol):
    """Nodes by number, the root is 0. The same additions give the same choices."""

    def select(self) -> int | None:
        """The node to write a child of; None: the search is over."""
        ...

    def spend(self, number: int) -> None:
        """Say that nothing is left to try on a node."""
        ...

    def add(self, parent: int, reward: float) -> int:
        """A child with its reward; its number."""
        ...

    def closed(self, number: int) -> bool:
        """Whether a node takes no child any more."""
        ...


@final
class TreeSearch:
    """The search tree of :mod:`refork_methods.kernel.mcts`."""

    def __init__(self, root: float, settings: SearchSettings) -> None:
        self.tree = SearchTree(root, settings)

    def select(self) -> int | None:
        """By upper confidence bounds, with widening and dead ends."""
        return self.tree.select()

    def spend(self, number: int) -> None:
        """As the tree does."""
        self.tree.spend(number)

    def add(self, parent: int, reward: float) -> int:
        """As the tree does."""
        return self.tree.add(parent, reward)

    def closed(self, number: int) -> bool:
        """Pruned, or spent."""
        return self.tree.nodes[number].pruned or self.tree.nodes[number].spent


@final
class HillClimb:
    """Goes on from the fastest right kernel, and moves only for a gain over ``margin`` in reward.

    No move is made twice from a node (the writer sees to that), and there is no way back: where all moves
    from the fastest are spent, it ends.
    """

    def __init__(self, root: float, margin: float) -> None:
        self.rewards = [root]
        self.current = 0
        self._margin = margin
        self._spent: set[int] = set()

    def select(self) -> int | None:
        """The fastest."""
        return None if self.current in self._spent else self.current

    def spend(self, number: int) -> None:
        """Of the current one: the end."""
        self._spent.add(number)

    def add(self, parent: int, reward: float) -> int:
        """Another node; the fastest from now on, if it is."""
        self.rewards.append(reward)
        number = len(self.rewards) - 1
        if reward > self.rewards[self.current] + self._margin:
            self.current = number
        return number

    def closed(self, number: int) -> bool:
        """Spent. A slower one may get the rest of its round."""
        return number in self._spent


def strategy(settings: KernelSearchSettings, root: float, noise: float) -> Strategy:
    """The one that the settings name; ``root`` is the original's reward, ``noise`` a ratio of times."""
    if settings.search == "hill":
        # Of a gain of r, the reward grows by less than log(r) of its scale.
        return HillClimb(root, math.log(noise) / math.log1p(settings.most))
    return TreeSearch(root, settings.tree)
