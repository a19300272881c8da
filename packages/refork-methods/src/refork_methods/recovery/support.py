"""What a data set of maze moves teaches: moves per row family, and the policy it would leave behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from refork.types import Json
from refork_methods.recovery.hitting import HittingTime, expected_hitting_time
from refork_methods.recovery.rows import ROWS, Float64, RowPolicy
from refork_methods.recovery.trainers import maximum_likelihood


@final
@dataclass(frozen=True, slots=True)
class RowSupport:
    """Support of the four row families in a data set.

    ``moves`` and ``desired`` count moves per family; ``unseen`` names the rows (family and diamond)
    without any; ``predicted`` is the expected hitting time of the maximum-likelihood policy whose
    unseen rows stay frozen.
    """

    moves: dict[str, int]
    desired: dict[str, int]
    unseen: tuple[str, ...]
    predicted: HittingTime

    def to_json(self) -> Json:
        """Plain fields."""
        return {
            "moves": self.moves,
            "desired": self.desired,
            "unseen": list(self.unseen),
            "predicted_hitting_time": self.predicted.value,
            "stuck": self.predicted.stuck,
        }


def row_support(start: RowPolicy, moves: Float64) -> RowSupport:
    """The support of a table of moves [4, K, 2] and what fitting it to ``start`` would give."""
    seen = moves.sum(-1)
    unseen = tuple(
        f"{name}_{j}" for r, name in enumerate(ROWS) for j in range(moves.shape[1]) if seen[r, j] == 0
    )
    return RowSupport(
        {name: int(seen[r].sum()) for r, name in enumerate(ROWS)},
        {name: int(moves[r, :, 0].sum()) for r, name in enumerate(ROWS)},
        unseen,
        expected_hitting_time(maximum_likelihood(start, moves)),
    )
