"""Per-token credit from potentials: what each token gained or lost, ready for a trainer."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import ArrayLike

from refork.errors import BadInput
from refork.forking.potential import action_steps
from refork.tree.node import Trajectory
from refork_methods.cliff.curve import Floats


def potential_gains(values: ArrayLike, outcome: float) -> Floats:
    """V after minus V before each token, [T]; they sum to ``outcome`` minus the first value.

    ``values`` [T]: the value before each token, NaN where not known. The last token's value after it is the
    outcome. Where one of the two is not known, the gain is NaN.
    """
    before = np.asarray(values, dtype=np.float64)
    return np.asarray(np.diff(np.append(before, outcome)))


def cliff_advantages(
    trajectories: Sequence[Trajectory],
    outcomes: ArrayLike,
    values: Sequence[ArrayLike | None],
    cliffs: Sequence[Collection[int]] | None = None,
) -> list[Floats]:
    """Advantages per token of each trajectory (verdicts left out): the gain of the potential at that token.

    Args:
        trajectories: paths from root to leaf.
        outcomes: their scores [trajectories]; NaN: ungraded.
        values: for each trajectory the value before each of the policy's tokens [T]; None: never computed.
        cliffs: numbers of the tokens that count; all others get 0. None: all tokens count.

    What is not known is NaN and so not learned: tokens that the policy did not say, and tokens beside an
    unknown value.

    Raises: BadInput where lengths differ.
    """
    graded = np.asarray(outcomes, dtype=np.float64).reshape(-1)
    if not len(trajectories) == len(graded) == len(values) or (
        cliffs is not None and len(cliffs) != len(trajectories)
    ):
        counts = f"{len(trajectories)} trajectories, {len(graded)} outcomes"
        raise BadInput(f"{counts} and {len(values)} potentials do not fit")
    found = []
    for number, (trajectory, outcome, given) in enumerate(zip(trajectories, graded, values, strict=True)):
        gains = None if given is None else potential_gains(given, float(outcome))
        if gains is not None and cliffs is not None:
            keep = np.zeros(len(gains), dtype=bool)
            keep[list(cliffs[number])] = True
            # What is unknown stays NaN: as a 0 it would be learned as "this token changed nothing".
            gains = np.where(keep | np.isnan(gains), gains, 0.0)
        found.append(_along(trajectory, gains))
    return found


def _along(trajectory: Trajectory, gains: Floats | None) -> Floats:
    """Gains of the policy's tokens laid over all tokens of a trajectory."""
    steps = [s for s in trajectory if s.node.kind != "verdict" and s.tokens is not None]
    rows = {s.node.id: np.full(0 if s.tokens is None else len(s.tokens), np.nan) for s in steps}
    said = action_steps(trajectory)
    if gains is not None:
        if sum(keep for _, keep in said) != len(gains):
            raise BadInput(
                f"{len(gains)} values for {sum(keep for _, keep in said)} sampled tokens",
                where=f"trajectory to {trajectory.leaf.id[:12]}",
            )
        first = 0
        for node, keep in said:
            rows[node.id][:keep] = gains[first : first + keep]
            first += keep
    return np.concatenate([rows[s.node.id] for s in steps] or [np.zeros(0)])
