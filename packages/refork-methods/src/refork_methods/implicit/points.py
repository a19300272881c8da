"""Values of points from implicit advantages, for selectors that choose where to fork."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, final

import numpy as np

from refork.errors import BadInput
from refork.growing.selector import Candidates
from refork.tree.node import Trajectory
from refork.tree.tree import Tree
from refork_methods.implicit.aggregate import token_advantages
from refork_methods.implicit.on_tree import model_pairs, recorded_pair, walk_steps
from refork_methods.implicit.signal import win_chance
from refork_methods.implicit.soft_values import Floats

if TYPE_CHECKING:
    from refork_methods.implicit.pair import ImplicitPair


@final
@dataclass(frozen=True)
class ImplicitValues:
    """A :class:`~refork.growing.selector.PointValues`: needs no graded leaf below a point.

    The sum of implicit advantages from the task to a point is, up to luck, the value gained so far. It
    becomes a chance p of success (``prior`` at the task, see :func:`win_chance`). ``mixed`` is then
    4 p (1 - p), since outcomes differ most where success and failure are equally likely; ``win_rate`` is p.

    Args:
        tree: where the points lie.
        pair: who scores; None: the log-probs of sampler and reference as recorded.
        beta: price of one nat where ``pair`` is None.
        prior: chance of success at the task, in (0, 1).
        scale: advantage, in its unit, that changes the log-odds by 1.
        value: ``mixed`` or ``win_rate``.

    Raises BadInput for an unknown value, and later what :func:`recorded_pair` or :func:`model_pairs` raise.
    """

    tree: Tree
    pair: ImplicitPair | None = None
    beta: float = 1.0
    prior: float = 0.5
    scale: float = 1.0
    value: Literal["mixed", "win_rate"] = "mixed"
    _known: dict[tuple[str, int], float] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.value not in ("mixed", "win_rate"):
            raise BadInput(f"unknown value {self.value!r}", hint="known: mixed, win_rate")
        win_chance(0.0, self.prior, self.scale)

    @property
    def name(self) -> str:
        """Name and settings; the reference by its weights."""
        who = "recorded" if self.pair is None else str(self.pair.reference.card.weights)[:12]
        beta = self.beta if self.pair is None else self.pair.beta
        return (
            f"implicit({self.value}, reference={who}, beta={beta:g}, prior={self.prior:g}, "
            f"scale={self.scale:g})"
        )

    def totals(self, candidates: Candidates) -> Floats:
        """Sum of the implicit advantages from the task to each point, [n], in units of beta."""
        keys = list(zip(candidates.node, candidates.token.tolist(), strict=True))
        new = [key for key in dict.fromkeys(keys) if key not in self._known]
        trajectories = self.tree.paths(
            [self.tree.at(node, None if token < 0 else token) for node, token in new]
        )
        acted = [
            i for i, trajectory in enumerate(trajectories) if (walk_steps(trajectory).step_id >= 0).any()
        ]
        sums = np.zeros(len(trajectories))
        sums[acted] = self._sums([trajectories[i] for i in acted])
        self._known.update(zip(new, sums.tolist(), strict=True))
        return np.array([self._known[key] for key in keys])

    def _sums(self, trajectories: list[Trajectory]) -> list[float]:
        if self.pair is None:
            return [float(np.nansum(token_advantages(recorded_pair(w), self.beta))) for w in trajectories]
        pairs = model_pairs(trajectories, self.pair)
        return [float(np.nansum(token_advantages(pair, self.pair.beta))) for pair in pairs]

    def values(self, candidates: Candidates) -> Floats:
        """Usefulness of one more rollout from each point, [n] in [0, 1]."""
        chance = win_chance(self.totals(candidates), self.prior, self.scale)
        return np.asarray(4 * chance * (1 - chance) if self.value == "mixed" else chance)
