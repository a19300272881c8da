"""Which kernel to write the next one from: a search tree, or its rival that only follows the fastest."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, final

if TYPE_CHECKING:
    from refork_methods.kernel.search.model import KernelSearchSettings


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """``explore`` weighs what was seldom tried. A node may have ceil(k sqrt(visits)) children.

    k is ``wide_working`` below a kernel that is right and ``wide_failing`` below another one. A subtree ends
    after ``dead_after`` failing children in a row if nothing in it works. ``value`` of a node: the mean of
    the rewards below it, or their largest.
    """

    explore: float = 0.7
    wide_working: float = 2.0
    wide_failing: float = 1.0
    dead_after: int = 3
    value: Literal["mean", "max"] = "mean"


@final
@dataclass(slots=True)
class Branch:
    """One kernel: its parent (-1: the root), its own reward in [0, 1] (0: it fails), and what is below it."""

    parent: int
    reward: float
    children: list[int] = field(default_factory=list)
    visits: int = 1
    total: float = 0.0
    best: float = 0.0
    pruned: bool = False
    #: Nothing is left to try on it.
    spent: bool = False

    @property
    def works(self) -> bool:
        """Whether it is right."""
        return self.reward > 0


@final
class SearchTree:
    """Nodes by number, the root first. The same additions give the same tree, and the same choices."""

    def __init__(self, root_reward: float, settings: SearchSettings | None = None) -> None:
        self.settings = settings or SearchSettings()
        self.nodes: list[Branch] = []
        self._append(-1, root_reward)

    def select(self) -> int | None:
        """The node to write a child of; None where all that is left has been pruned.

        From the root down: a node that has room for a child is taken, else its best open child is next.
        """
        at = 0
        while True:
            if not self.closed(at) and len(self.nodes[at].children) < self.width(at):
                return at
            ways = [child for child in self.nodes[at].children if self._leads(child)]
            if not ways:
                # Every way down is shut: widening gives way, or a search would end with moves left to try.
                return None if self.closed(at) else at
            # Of equals the oldest: the same additions must give the same choices.
            at = max(ways, key=lambda child: (self.score(child), -child))

    def spend(self, number: int) -> None:
        """Say that nothing is left to try on a node."""
        self.nodes[number].spent = True

    def add(self, parent: int, reward: float) -> int:
        """A child with its reward in [0, 1] (0 where it fails), told to all above it; its number."""
        number = self._append(parent, reward)
        self.nodes[parent].children.append(number)
        above = parent
        while above >= 0:
            node = self.nodes[above]
            node.visits += 1
            node.total += reward
            node.best = max(node.best, reward)
            above = node.parent
        self._prune(parent)
        return number

    def closed(self, number: int) -> bool:
        """Pruned, or spent."""
        return self.nodes[number].pruned or self.nodes[number].spent

    def score(self, number: int) -> float:
        """Upper confidence bound of a child: its value and what is not known of it."""
        node = self.nodes[number]
        seen = self.nodes[node.parent].visits
        value = node.best if self.settings.value == "max" else node.total / node.visits
        return value + self.settings.explore * math.sqrt(math.log(seen + 1) / node.visits)

    def width(self, number: int) -> int:
        """How many children a node may have by now."""
        node = self.nodes[number]
        wide = self.settings.wide_working if node.works else self.settings.wide_failing
        return math.ceil(wide * math.sqrt(node.visits))

    def _append(self, parent: int, reward: float) -> int:
        self.nodes.append(Branch(parent, reward, total=reward, best=reward))
        return len(self.nodes) - 1

    def _leads(self, number: int) -> bool:
        """Whether a node or one below it may have one more child."""
        waiting = [number]
        while waiting:
            one = waiting.pop()
            if not self.closed(one):
                return True
            # Below a spent node the search goes on, below a pruned one it does not.
            if not self.nodes[one].pruned:
                waiting += self.nodes[one].children
        return False

    def _prune(self, parent: int) -> None:
        """Shut the parent if its last children all fail and nothing in its subtree works; the root stays."""
        node = self.nodes[parent]
        last = node.children[-self.settings.dead_after :]
        failing = len(last) == self.settings.dead_after and all(not self.nodes[one].works for one in last)
        if failing and node.best == 0 and node.parent >= 0:
            node.pruned = True


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
    return SearchTree(root, settings.tree)


#: The speed-up that earns 1, and more does not earn more.
MOST = 100.0


def reward(speedup: float | None, most: float = MOST) -> float:
    """Log reward in [0, 1] of a speed-up (reference seconds over own); None is a kernel that is not right.

    0 for a wrong one, ln(1 + s) / ln(1 + most) else: about .15 at the reference's own speed, so that any
    right kernel beats any wrong one.
    """
    return 0.0 if speedup is None else min(1.0, math.log1p(speedup) / math.log1p(most))
