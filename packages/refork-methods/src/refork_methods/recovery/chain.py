"""The maze as a Markov chain on 8 K + 4 states: dead branches are alike, so one stands for all.

State numbers: source, fork, dead leaf, target; then rows a, b, c, d of the target branch, diamond by diamond,
and the same rows of a dead branch. Every state has two successors, a wanted and another one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph
from scipy.sparse.linalg import splu

from refork.errors import BadInput
from refork_methods.recovery.rows import ROWS, A, B, C, D, Float64, RowPolicy

Int64 = NDArray[np.int64]

SOURCE, FORK, LEAF, TARGET = range(4)
_FIRST: Final = 4
#: Beyond this a float64 solve of the chain is not trusted.
SOLVE_LIMIT: Final = 1e10


@final
@dataclass(frozen=True, eq=False)
class Chain:
    """States of a maze with K diamonds; all arrays are [8 K + 4].

    ``wanted`` and ``other`` are the two successors (equal where there is no choice); ``row`` is
    4-row number * K + diamond where a row decides, else -1.
    """

    diamonds: int
    names: tuple[str, ...]
    wanted: Int64
    other: Int64
    row: Int64

    def chances(self, policy: RowPolicy) -> Float64:
        """Probability of the wanted successor in every state."""
        chance = np.ones(len(self.names))
        chance[FORK] = 1 / policy.graph.branches
        decides = self.row >= 0
        chance[decides] = policy.desired.reshape(-1)[self.row[decides]]
        return chance


def maze_chain(diamonds: int) -> Chain:
    """The chain of a maze with K diamonds, whatever W and L."""
    size = _FIRST + 8 * diamonds
    wanted, other, row = np.arange(size), np.arange(size), np.full(size, -1)
    names = ["source", "fork", "dead leaf", "target", *[""] * (8 * diamonds)]

    def at(dead: int, letter: int, diamond: int) -> int:
        return _FIRST + dead * 4 * diamonds + letter * diamonds + diamond

    wanted[[SOURCE, FORK, LEAF]] = FORK, at(0, C, 0), at(1, B, diamonds - 1)
    other[[SOURCE, FORK, LEAF]] = FORK, at(1, C, 0), at(1, B, diamonds - 1)
    for dead in (0, 1):
        for j in range(diamonds):
            onward = at(dead, C, j + 1) if j + 1 < diamonds else (TARGET, LEAF)[dead]
            inward = at(dead, B, j - 1) if j else FORK
            for letter, goes, turns in (
                (A, onward, at(dead, D, j)),
                (B, at(dead, D, j), onward),
                (C, at(dead, A, j), inward),
                (D, inward, at(dead, A, j)),
            ):
                here = at(dead, letter, j)
                wanted[here], other[here], row[here] = goes, turns, letter * diamonds + j
                names[here] = f"{ROWS[letter]}_{j} of {('the target', 'a dead')[dead]} branch"
    return Chain(diamonds, tuple(names), wanted, other, row)


def transition_matrix(policy: RowPolicy) -> sparse.csr_array:
    """Exact transition probabilities of the chain, sparse [8 K + 4, 8 K + 4]; the target absorbs."""
    chain = maze_chain(policy.graph.diamonds)
    chance = chain.chances(policy)
    states = np.arange(len(chance))
    entries = (np.concatenate([chance, 1 - chance]), np.tile(states, 2), chain.wanted, chain.other)
    return sparse.csr_array(
        (entries[0], (entries[1], np.concatenate(entries[2:]))), shape=(len(chance), len(chance))
    )


def _factor(matrix: sparse.csr_array, names: tuple[str, ...]) -> tuple[Any, Int64]:
    """LU factors of I - P on the states the trajectory can be in before the target, and their numbers.

    Raises BadInput where one of them absorbs.
    """
    # The search goes by what is stored: a 0 kept as an entry would be a way to a state of no chance.
    matrix.eliminate_zeros()
    reached = csgraph.breadth_first_order(matrix, SOURCE, return_predecessors=False)
    inside = np.sort(reached[reached != TARGET]).astype(np.int64)
    held = matrix.diagonal()[inside] >= 1.0
    if bool(held.any()):
        raise BadInput(
            f"the trajectory cannot leave {names[int(inside[np.argmax(held)])]}",
            where="maze chain",
            hint="a dead leaf must let the trajectory turn round",
        )
    system = sparse.eye_array(len(inside), format="csc") - matrix[inside][:, inside]
    return splu(sparse.csc_matrix(system)), inside


def solve_chain(matrix: sparse.csr_array, names: tuple[str, ...]) -> float:
    """Expected moves from the source to the target by a sparse solve of a chain numbered as here.

    Raises:
        BadInput: a state that absorbs (a dead leaf without a way back), or a result beyond 1e10, where the
            solve is no longer exact enough.
    """
    factors, inside = _factor(matrix, names)
    # The source has the lowest number of all states, so it comes first.
    value = float(factors.solve(np.ones(len(inside)))[0])
    if not value < SOLVE_LIMIT:
        raise BadInput(
            f"the solve gives {value:.3e}, beyond what float64 solves exactly",
            where="maze chain",
            hint="use the recurrence or exact rationals",
        )
    return value


def solved_hitting_time(policy: RowPolicy) -> float:
    """Expected moves from the source to the target by a sparse solve; see :func:`solve_chain`."""
    return solve_chain(transition_matrix(policy), maze_chain(policy.graph.diamonds).names)


def expected_visits(policy: RowPolicy) -> Float64:
    """Expected moves made in each row over one walk to the target, [4, K, 2]: desired ones, then turns.

    Raises:
        BadInput: as :func:`solve_chain`.
    """
    chain = maze_chain(policy.graph.diamonds)
    factors, inside = _factor(transition_matrix(policy), chain.names)
    start = np.zeros(len(inside))
    start[0] = 1.0
    visits = np.zeros(len(chain.names))
    visits[inside] = factors.solve(start, trans="T")
    chance = chain.chances(policy)
    decides = chain.row >= 0
    out = np.zeros((4 * chain.diamonds, 2))
    # Every row decides in two states, on the target branch and on a dead one: out[rows] += would lose one.
    np.add.at(out[:, 0], chain.row[decides], (visits * chance)[decides])
    np.add.at(out[:, 1], chain.row[decides], (visits * (1 - chance))[decides])
    return out.reshape(4, chain.diamonds, 2)
