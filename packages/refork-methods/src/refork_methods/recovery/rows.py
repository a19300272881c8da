"""A policy on the path-star maze as four rows of logit gaps, one number per row and diamond.

At every state inside a branch two moves matter: go on in the direction of travel (desired) or turn round. The
L parallel edges act as one class. So a policy that is the same in every branch is four vectors:

====  ==============================  =====================  ==================
row   state                           desired move           chance at gap 0
====  ==============================  =====================  ==================
a     right node, arrived outward     on, away from the fork  1 / (L + 1)
b     right node, arrived inward      back across             L / (L + 1)
c     left node, arrived outward      across                  L / (L + 1)
d     left node, arrived inward       on, towards the fork    1 / (L + 1)
====  ==============================  =====================  ==================

Rows b and d face backward: shortest paths never visit them.

Source: arXiv 2606.22938 (states, rows and the uniform start); the gap as parameter is ours.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput
from refork_methods.recovery.graph import PathStar

Float64 = NDArray[np.float64]

ROWS: Final = ("a", "b", "c", "d")
A, B, C, D = range(4)
#: Rows that a shortest path visits, and rows that only a retreat visits.
FORWARD: Final = (A, C)
BACKWARD: Final = (B, D)


def path_star(branches: int, diamonds: int, edges: int) -> PathStar:
    """The maze of W branches, K diamonds and L parallel edges.

    Raises:
        BadInput: W, K or L below 1.

    Warns:
        UserWarning: one branch, so no dead end to turn back from.
    """
    graph = PathStar(branches, diamonds, edges)
    if branches == 1:
        warnings.warn("a maze of one branch has no dead ends", UserWarning, stacklevel=2)
    return graph


def base_odds(graph: PathStar) -> Float64:
    """Odds against the desired move under the uniform walk, [4, 1]: L, 1/L, 1/L, L."""
    wide = float(graph.edges)
    return np.array([[wide], [1 / wide], [1 / wide], [wide]])


@final
@dataclass(frozen=True, eq=False)
class RowPolicy:
    """Logit gaps ``gaps`` [4, K] (rows a, b, c, d) over the uniform walk; infinities are allowed.

    Gap x multiplies the odds of the desired move by exp(x); 0 is the uniform walk, ``inf`` always
    goes on, ``-inf`` always turns.
    """

    graph: PathStar
    gaps: Float64

    def __post_init__(self) -> None:
        shape = (4, self.graph.diamonds)
        if self.gaps.shape != shape or bool(np.isnan(self.gaps).any()):
            raise BadInput(f"a row policy needs gaps of shape {shape} without NaN", where="maze policy")

    @classmethod
    def base(cls, graph: PathStar) -> RowPolicy:
        """The uniform walk."""
        return cls(graph, np.zeros((4, graph.diamonds)))

    @classmethod
    def golden_limit(cls, graph: PathStar) -> RowPolicy:
        """What endless training on shortest paths gives: rows a and c sure, b and d as they began."""
        gaps = np.zeros((4, graph.diamonds))
        gaps[list(FORWARD)] = np.inf
        return cls(graph, gaps)

    @classmethod
    def optimal(cls, graph: PathStar) -> RowPolicy:
        """Never turns but at dead leaves."""
        return cls(graph, np.full((4, graph.diamonds), np.inf))

    @property
    def odds(self) -> Float64:
        """Odds against the desired move, [4, K]: 0 is sure, ``inf`` never."""
        # A very low gap overflows to infinite odds, which is what it means.
        with np.errstate(over="ignore"):
            return np.asarray(base_odds(self.graph) * np.exp(-self.gaps))

    @property
    def desired(self) -> Float64:
        """Probability of the desired move, [4, K]."""
        return np.asarray(1 / (1 + self.odds))

    def to_json(self) -> dict[str, Any]:
        """Shape and gaps as plain lists (infinities as strings)."""
        rows = {
            # JSON has no infinity; float() reads these words back.
            name: [float(g) if np.isfinite(g) else str(g) for g in row]
            for name, row in zip(ROWS, self.gaps, strict=True)
        }
        graph = self.graph
        return {"shape": [graph.branches, graph.diamonds, graph.edges], "gaps": rows}

    @classmethod
    def from_json(cls, data: Any) -> RowPolicy:
        """Inverse of :meth:`to_json`.

        Raises:
            BadInput: not such an object.
        """
        try:
            graph = PathStar(*(int(n) for n in data["shape"]))
            gaps = np.array([[float(g) for g in data["gaps"][name]] for name in ROWS])
        except (TypeError, KeyError, ValueError) as error:
            raise BadInput(f"this is not a maze policy: {error!r}", where="maze policy") from error
        return cls(graph, gaps)
