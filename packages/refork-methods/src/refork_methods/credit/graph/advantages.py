"""Node values, edge gains, and the five estimators of a step's advantage.

All work on every graph at once, without a loop over steps. R is the outcome of a trajectory, n the node
a step leaves, n' the one it reaches. Sources: GRPO arXiv 2402.03300, GiGPO 2505.10978, HGPO 2602.22817,
GraphGPO 2605.26684, G2PO 2606.22995. Published G2PO code tests outcomes for equality with 10, fixes gamma,
and gives NaN for a graph of one step; none of this is so here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refork.errors import BadInput
from refork_methods.credit.graph.anchors import last_states
from refork_methods.credit.graph.state_graph import StateGraph

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
Norm = Literal["std", "mean"]
Visit = Literal["every", "first"]
Over = Literal["steps", "trajectories"]

#: Added to a deviation, as published code does.
EPSILON = 1e-6
#: A spread below this share of the largest value is rounding, and counts as none.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditSettings:
    """Of every estimator.

    ``norm``: ``std`` divides by the deviation, ``mean`` only centres. ``step_weight``: w, the weight of the
    step parts. ``gamma``: discount per turn. ``visit``: whether a state that a trajectory saw twice counts
    ``every`` time or the ``first`` time only. ``win``: None takes each end at its outcome; a number takes
    ends of at least that outcome as worth it and all others as worth 0 (published G2PO: 10);
    of the estimators G2PO alone reads it.
    ``invalid_penalty``: taken off for an invalid action. ``over``: what the mean outcome of a group is over;
    ``steps`` lets long trajectories weigh more, as published code does. ``history``: how many earlier
    states HGPO looks at. ``length_power``: its weights are (depth + 1) to this power.
    """

    norm: Norm = "std"
    step_weight: float = 1.0
    gamma: float = 0.95
    visit: Visit = "every"
    win: float | None = None
    invalid_penalty: float = 0.1
    over: Over = "steps"
    history: int = 2
    length_power: float = 1.0

    def __post_init__(self) -> None:
        for name, kind in (("norm", Norm), ("visit", Visit), ("over", Over)):
            if getattr(self, name) not in get_args(kind):
                raise BadInput(
                    f"unknown {name} {getattr(self, name)!r}",
                    where="graph credit",
                    hint=f"known: {', '.join(get_args(kind))}",
                )
        if not 0 < self.gamma <= 1:
            raise BadInput(f"gamma is {self.gamma}; it lies in (0, 1]", where="graph credit")
        if not (np.isfinite(self.step_weight) and self.step_weight >= 0):
            raise BadInput(f"the step weight is {self.step_weight}", where="graph credit", hint="0 or more")
        if self.win is not None and not self.win > 0:
            raise BadInput(f"a win is worth {self.win}; it must be above 0", where="graph credit")
        if self.history < 0 or self.invalid_penalty < 0:
            raise BadInput("history and invalid_penalty are 0 or more", where="graph credit")


def group_mean(values: ArrayLike, groups: ArrayLike, count: int = 0) -> Float64:
    """Mean of the values of each group 0 .. count - 1 (and of higher ones there are); NaN without any."""
    member = np.asarray(groups, dtype=np.int64)
    n = np.bincount(member, minlength=count)
    sums = np.bincount(member, np.asarray(values), minlength=count)
    return np.where(n > 0, sums / np.maximum(n, 1), np.nan)


def standardise(
    values: ArrayLike,
    groups: ArrayLike,
    norm: Norm = "std",
    spare: int = 1,
    sizes: ArrayLike | None = None,
) -> Float64:
    """Values minus their group's mean, [n]; with ``std`` over the deviation plus 1e-6.

    Exactly 0 in a group of one value and in a group whose values are equal up to rounding, so rounding
    is never blown up. ``spare`` is taken off the count in the deviation.

    Args:
        values: floats [n].
        groups: integers [n].
        norm: ``std`` or ``mean``.
        spare: 1 for the sample deviation, 0 for the population's.
        sizes: how large the numbers were that the values are differences of, [n]; None: the values' own.
    """
    x, member = np.asarray(values), np.asarray(groups, dtype=np.int64)
    found = _centred(x, member, x if sizes is None else np.asarray(sizes))
    return found / (_deviation(found, member, spare)[member] + EPSILON) if norm == "std" else found


def _centred(x: Float64, member: Int64, sizes: Float64) -> Float64:
    """Values minus their group's mean; 0 where a group's values are one, or equal up to rounding."""
    centred = x - group_mean(x, member)[member]
    count = np.bincount(member)
    scale, far = np.zeros(len(count)), np.zeros(len(count))
    np.maximum.at(scale, member, np.abs(sizes))
    np.maximum.at(far, member, np.abs(centred))
    flat = (count < 2) | (far <= _ROUNDING * scale)
    return np.where(flat[member], 0.0, centred)


def _deviation(centred: Float64, member: Int64, spare: int) -> Float64:
    """Root of each group's mean square, ``spare`` taken off its count."""
    count = np.bincount(member)
    return np.sqrt(np.bincount(member, centred * centred) / np.maximum(count - spare, 1))


def returns(graph: StateGraph, gamma: float) -> Float64:
    """Discounted reward from each step on, [steps]: gamma^(turns left - 1) R, or that of rewards per step."""
    if graph.rewards is None:
        return gamma ** (graph.togo - 1) * graph.outcomes[graph.trajectories]
    same = graph.trajectories[1:] == graph.trajectories[:-1]
    passed = np.where(same, graph.togo[:-1] - graph.togo[1:], 0)
    return _recurrence(graph.rewards, np.where(same, gamma**passed, 0.0))


def _recurrence(added: Float64, passed: Float64) -> Float64:
    """Solution y [n] of y[i] = added[i] + passed[i] y[i + 1] by doubling: no step is taken alone.

    ``passed`` [n - 1] is 0 at the end of each run; there are as many rounds as the longest one asks for.
    """
    sums, share, ahead = added.copy(), passed, 1
    while share.any():
        # The right side is made whole before the addition, so the overlapping slices do not feed on each
        # other.
        sums[:-ahead] += share * sums[ahead:]
        share = share[:-ahead] * share[ahead:]
        ahead *= 2
    return sums


def end_values(graph: StateGraph, win: float | None = None) -> Float64:
    """Value of each end, [nodes]; NaN for states. See ``win`` in :class:`CreditSettings`."""
    if win is None:
        return graph.ends
    # Not ==, as published code tests it: an outcome summed from parts may miss the win by rounding.
    won = graph.ends >= win - _ROUNDING * abs(win)
    return np.where(np.isnan(graph.ends), np.nan, np.where(won, win, 0.0))


def node_values(
    graph: StateGraph, gamma: float = 0.95, visit: Visit = "every", win: float | None = None
) -> Float64:
    """V of each node, [nodes]: mean of gamma^(turns left) R over its visits; an end is worth its outcome.

    The last state of a win has turns left 1, and so gamma R, not R.

    Args:
        graph: the graph.
        gamma: discount per turn.
        visit: ``every`` visit, or the ``first`` of each trajectory.
        win: see :class:`CreditSettings`.

    Raises:
        BadInput: an unknown way to count visits, or gamma outside (0, 1].

    Source: G2PO (arXiv 2606.22995), as its code has it; its gamma is fixed at 0.95 and its win at 10.
    """
    CreditSettings(gamma=gamma, visit=visit, win=win)
    seen = gamma**graph.togo * graph.outcomes[graph.trajectories]
    nodes = graph.nodes
    if visit == "first":
        key = graph.trajectories * len(graph.graphs) + nodes
        # np.unique gives the first index of each key, and steps lie in order: the first visit.
        chosen = np.unique(key, return_index=True)[1]
        seen, nodes = seen[chosen], nodes[chosen]
    values = group_mean(seen, nodes, len(graph.graphs))
    ends = end_values(graph, win)
    return np.where(np.isnan(ends), values, ends)


def edge_gains(graph: StateGraph, values: Float64) -> Float64:
    """V(n') - V(n) of each step, [steps]; along a trajectory they sum to V(end) - V(start).

    Neither gamma nor a step's reward enters: along a win nothing else happened, V rises by the discount.
    """
    return values[graph.nexts] - values[graph.nodes]


def episode_part(graph: StateGraph, settings: CreditSettings) -> Float64:
    """A_ep of each step, [steps]: R, less the penalty of an invalid action, minus the group's mean."""
    earned = graph.outcomes[graph.trajectories] - settings.invalid_penalty * ~graph.valid
    if settings.over == "steps":
        return standardise(earned, graph.step_groups, settings.norm)
    base = group_mean(graph.outcomes, graph.groups)[graph.step_groups]
    centred = earned - base
    if settings.norm == "mean":
        return centred
    around = _centred(graph.outcomes, graph.groups, graph.outcomes)
    spread = _deviation(around, graph.groups, 1)[graph.step_groups]
    # Equal outcomes have no spread: an invalid action's penalty over EPSILON alone would outweigh every other
    # group.
    return np.divide(centred, spread + EPSILON, out=np.zeros(len(graph)), where=spread > 0)


def grpo(graph: StateGraph, settings: CreditSettings) -> Float64:
    """A_ep: every step of a trajectory gets its outcome against the group's, [steps].

    Source: GRPO (arXiv 2402.03300); the mean is over steps unless ``over`` says trajectories.
    """
    return episode_part(graph, settings)


def gigpo(graph: StateGraph, settings: CreditSettings) -> Float64:
    """A_ep + w (discounted return, against those of the other steps that leave the same state), [steps].

    Source: GiGPO (arXiv 2505.10978); a state visited once adds 0.
    """
    local = standardise(returns(graph, settings.gamma), graph.nodes, settings.norm)
    return episode_part(graph, settings) + settings.step_weight * local


def hgpo(graph: StateGraph, settings: CreditSettings) -> Float64:
    """Weighted mean over depths of the return against that of steps with the same last states, [steps].

    Depth 1 is the present state, depth ``history`` + 1 the longest. A depth counts where at least two
    steps share it, with weight (depth + 1)^``length_power``; a step that shares none gets 0. The mean is
    multiplied by w.

    Source: HGPO (arXiv 2602.22817) and its code, which has no A_ep unless asked; deviates in that an
    advantage of exactly 0 keeps its weight, where that code leaves it out of the mean.
    """
    got = returns(graph, settings.gamma)
    total, weights = np.zeros(len(graph)), np.zeros(len(graph))
    for depth in range(1, settings.history + 2):
        whole = np.flatnonzero(graph.positions >= depth - 1)
        shared = last_states(graph.nodes, graph.positions, depth)[whole]
        many = np.bincount(shared)[shared] > 1
        weight = (depth + 1.0) ** settings.length_power * many
        total[whole] += weight * standardise(got[whole], shared, settings.norm, spare=0)
        weights[whole] += weight
    shares = weights > 0
    total[shares] /= weights[shares]
    return settings.step_weight * total


def goal_distances(graph: StateGraph) -> Float64:
    """Fewest observed edges from each node to its graph's best outcome, [nodes]; inf where none leads there.

    A graph in which nothing came out above 0 has no goal.
    """
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import dijkstra

    count = len(graph.graphs)
    goals = np.flatnonzero((graph.ends > 0) & (graph.ends == _best(graph)[graph.graphs]))
    if not len(goals):
        return np.full(count, np.inf)
    back = coo_matrix((np.ones(len(graph)), (graph.nexts, graph.nodes)), shape=(count, count)).tocsr()
    # The matrix has summed repeated edges: its entries are counts and must not be read as lengths.
    found = dijkstra(back, indices=goals, unweighted=True, min_only=True)
    return np.asarray(found)


def _best(graph: StateGraph) -> Float64:
    """The best outcome of each graph, by its number."""
    best = np.full(len(graph.graphs), -np.inf)
    ends = np.isfinite(graph.ends)
    np.maximum.at(best, graph.graphs[ends], graph.ends[ends])
    return best


def graphgpo(graph: StateGraph, settings: CreditSettings) -> Float64:
    """A_ep + w (best R times gamma^distance of n' to the goal, against the other steps leaving n), [steps].

    Where no observed way leads to the goal the score is 0; a state visited once adds 0.

    Source: GraphGPO (arXiv 2605.26684), from descriptions of it and a third-party port: the text was not
    at hand, and the paper's weighting may differ.
    """
    far = goal_distances(graph)[graph.nexts]
    # Asked for by itself: with gamma 1 the power of an infinite distance would be 1, a full score.
    score = np.where(np.isinf(far), 0.0, _best(graph)[graph.step_graphs] * settings.gamma**far)
    local = standardise(score, graph.nodes, settings.norm)
    return episode_part(graph, settings) + settings.step_weight * local


def sibling_part(graph: StateGraph, values: Float64, settings: CreditSettings) -> Float64:
    """A_sib of each step, [steps]: V(n') against the other steps that leave n; 0 for a state visited once."""
    reached = values[graph.nexts] - settings.invalid_penalty * ~graph.valid
    return standardise(reached, graph.nodes, settings.norm)


def edge_part(graph: StateGraph, values: Float64, settings: CreditSettings) -> Float64:
    """A_edge of each step, [steps]: V(n') - V(n) against all steps of the graph."""
    # A gain is a difference: whether it is mere rounding shows against the values, not against the gains.
    sizes = np.maximum(np.abs(values[graph.nexts]), np.abs(values[graph.nodes]))
    return standardise(edge_gains(graph, values), graph.step_graphs, settings.norm, sizes=sizes)


def g2po(graph: StateGraph, settings: CreditSettings) -> Float64:
    """A_ep + w (A_sib + A_edge), [steps].

    Source: G2PO (arXiv 2606.22995) and its code; A_sib stands in the code only.
    """
    values = node_values(graph, settings.gamma, settings.visit, settings.win)
    local = sibling_part(graph, values, settings) + edge_part(graph, values, settings)
    return episode_part(graph, settings) + settings.step_weight * local


Estimator = Callable[[StateGraph, CreditSettings], Float64]
METHODS: dict[str, Estimator] = {
    "grpo": grpo,
    "gigpo": gigpo,
    "hgpo": hgpo,
    "graphgpo": graphgpo,
    "g2po": g2po,
}


def step_advantages(
    graph: StateGraph, method: str = "g2po", settings: CreditSettings | None = None
) -> Float64:
    """The advantage of each step, [steps], by a named estimator; finite throughout.

    Args:
        graph: the graph.
        method: ``grpo``, ``gigpo``, ``hgpo``, ``graphgpo`` or ``g2po``.
        settings: norm, step weight and so on; None: the defaults.

    Raises:
        BadInput: an unknown method.
    """
    if method not in METHODS:
        raise BadInput(
            f"unknown method {method!r}", where="graph credit", hint=f"known: {', '.join(METHODS)}"
        )
    return METHODS[method](graph, settings or CreditSettings())
