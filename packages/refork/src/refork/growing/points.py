"""The points of one task's rollouts that may be forked, counted: equal prefixes are one point.

Two rollouts that said the same so far are in the same place, whichever node records it. So points are
found by a hash of all tokens before them (and of the world's states, which tokens may not show).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from refork.forking.arm import resolved_scores
from refork.growing.selector import EVERY, Candidates
from refork.sampling.noise import stream_of
from refork.tree.node import Node, Step, Trajectory
from refork.tree.tree import Tree

UInt64 = NDArray[np.uint64]
Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
Bools = NDArray[np.bool_]

#: Below this entropy (nats) the next token is as good as certain, and a fork before it is one behind it.
_SURE = 1e-6
_ODD = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


@dataclass(frozen=True, slots=True)
class PointArrays:
    """One trajectory as arrays over its forkable places, in order.

    ``key`` hashes the prefix, ``row`` and ``token`` say where the place is (node by number in ``nodes``; -1:
    at its end). ``edge`` names the branch the trajectory takes there, ``generated`` the next token (-1:
    unknown). ``entropy`` and ``logprob`` are of that token, ``after`` the tokens sampled from there on.
    ``offer`` marks places that this trajectory proposes as candidates.
    """

    nodes: tuple[str, ...]
    key: UInt64
    row: Int64
    token: Int64
    depth: Int64
    edge: UInt64
    generated: Int64
    entropy: Float64
    logprob: Float64
    after: Int64
    offer: Bools


def _mixed(values: UInt64) -> UInt64:
    """A 64-bit hash of each value (splitmix64), so that sums of hashes name sequences."""
    with np.errstate(over="ignore"):
        x = values * np.uint64(_ODD[0])
        x = (x ^ (x >> np.uint64(30))) * np.uint64(_ODD[1])
        x = (x ^ (x >> np.uint64(27))) * np.uint64(_ODD[2])
    return x ^ (x >> np.uint64(31))


def _units(step: Step) -> int:
    """Tokens that a step adds to its trajectory; a text without token ids counts as one."""
    tokens = step.tokens
    if tokens is not None:
        return len(tokens)
    return int(bool(step.node.text) or step.node.kind == "task")


def _contents(step: Step, size: int) -> UInt64:
    node, tokens = step.node, step.tokens
    values = np.zeros(size, dtype=np.uint64)
    if tokens is not None:
        # From 1: splitmix64 maps 0 to 0, so token 0 in the first place would leave no trace in the key.
        values[:] = tokens.astype(np.uint64) + np.uint64(1)
    elif size:
        values[0] = stream_of("text", node.text)
    if size and node.state_key is not None:
        values[0] ^= np.uint64(stream_of("state", node.state_key))
    return values


def _sampled(step: Step, size: int) -> Int64:
    """Sampled tokens per unit of a step."""
    if step.node.kind != "action":
        return np.zeros(size, dtype=np.int64)
    if step.tokens is None:
        return np.full(size, step.node.cost.tokens_out or 1, dtype=np.int64)
    return np.ones(size, dtype=np.int64)


def _per_unit(array: NDArray[np.float32] | None, size: int) -> Float64:
    return np.full(size, np.nan) if array is None else np.asarray(array[:size], dtype=np.float64)


def _top(node: Node, inside: int) -> Int64:
    """Places within a node, after its first token: every one, or those of highest next-token entropy."""
    if inside == EVERY:
        return np.arange(1, node.length)
    if node.entropy is None or inside == 0:
        return np.zeros(0, dtype=np.int64)
    # Before a turn's first token stands the end of what came before, which is offered anyway.
    order = np.argsort(-node.entropy[1:], kind="stable")[:inside] + 1
    return np.asarray(order[node.entropy[order] > _SURE], dtype=np.int64)


def trace(trajectory: Trajectory, inside: int) -> PointArrays:
    """The forkable places of one trajectory: where a turn begins, and between the tokens of a turn."""
    steps = trajectory.steps
    sizes = np.array([_units(s) for s in steps])
    which = np.repeat(np.arange(len(steps)), sizes)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    total = int(starts[-1])
    offset = np.arange(total) - starts[which]
    content = np.concatenate([_contents(s, n) for s, n in zip(steps, sizes, strict=True)])
    names = np.array([stream_of(s.node.id) for s in steps], dtype=np.uint64)
    spoken = np.array([s.node.kind == "action" for s in steps])
    # A prefix's key is a running sum of hashes of (token, position): wrapping around is meant, and equal
    # prefixes get equal keys whichever nodes record them.
    with np.errstate(over="ignore"):
        place = np.arange(total, dtype=np.uint64) * np.uint64(_ODD[2])
        key = np.cumsum(_mixed(content + place), dtype=np.uint64)
        edge = _mixed(names[which] + offset.astype(np.uint64) * np.uint64(_ODD[1]))
    entropy = np.concatenate([_per_unit(s.node.entropy, n) for s, n in zip(steps, sizes, strict=True)])
    logprob = np.concatenate([_per_unit(s.node.logprobs, n) for s, n in zip(steps, sizes, strict=True)])
    # Summed from the end: what one more leaf from here would have to sample.
    after = np.cumsum(np.concatenate([_sampled(s, n) for s, n in zip(steps, sizes, strict=True)])[::-1])[::-1]
    offer = np.zeros(total + 1, dtype=bool)
    for i, step in enumerate(steps):
        if not spoken[i] and sizes[i]:
            offer[starts[i + 1]] = True
        elif spoken[i] and step.tokens is not None and sizes[i] == step.node.length:
            offer[starts[i] + _top(step.node, inside)] = True
    # Places t where unit t is spoken, with t units before it; a bare root is a place too.
    at = np.flatnonzero(spoken[which[1:]]) + 1 if total > sizes[0] else np.array([total])
    before = which[at - 1]
    stands = offset[at - 1] + 1
    whole = np.array([s.node.length or 1 for s in steps])[before] == stands
    said = np.concatenate([_token_ids(s, n) for s, n in zip(steps, sizes, strict=True)])
    return PointArrays(
        nodes=tuple(s.node.id for s in steps),
        key=key[at - 1],
        row=before,
        token=np.where(whole, -1, stands),
        depth=at,
        edge=_shift(edge, at, np.uint64(0)),
        generated=_shift(said, at, -1),
        entropy=_shift(entropy, at, np.nan),
        logprob=_shift(logprob, at, np.nan),
        after=_shift(after, at, 0),
        offer=offer[at],
    )


def _token_ids(step: Step, size: int) -> Int64:
    tokens = step.tokens
    return np.full(size, -1, dtype=np.int64) if tokens is None else tokens.astype(np.int64)


T = TypeVar("T", bound=np.generic)


def _shift(values: NDArray[T], at: Int64, nothing: object) -> NDArray[T]:
    """What follows each place; ``nothing`` at the end."""
    return np.append(values, np.asarray([nothing], dtype=values.dtype))[at]


def candidates(
    tree: Tree,
    trajectories: Sequence[Trajectory],
    score: str = "success",
    *,
    inside: int = 4,
    pending: Mapping[tuple[str, int], int] | None = None,
    known: MutableMapping[str, PointArrays] | None = None,
    outcomes: Mapping[str, float] | None = None,
) -> Candidates:
    """Every point of some rollouts of one task that can be forked, counted.

    Args:
        tree: where the rollouts are recorded.
        trajectories: paths from root to leaf of one task; the bare root where nothing was drawn yet.
        score: name of the leaf score that counts as a win.
        inside: points inside each turn: so many of the highest recorded entropy, 0, or ``EVERY``.
        pending: draws on their way, by (node id, tokens kept); they count as children.
        known: traces by leaf id, kept between calls.
        outcomes: scores by leaf id; None: the world's ``score``, else the newest.

    A point's children are the branches that begin there, so one rollout through it is one child.
    """
    held: MutableMapping[str, PointArrays] = {} if known is None else known
    traces = [_held(held, trajectory, inside) for trajectory in trajectories]
    joined = _Joined.of(traces)
    wanted = np.isin(joined.key, joined.key[joined.offer])
    first, group = _groups(joined.key[wanted])
    part = joined.only(wanted)
    scored = outcomes
    if scored is None:
        scored = resolved_scores(tree, score, [trajectory.leaf.id for trajectory in trajectories])
    value = np.array([scored.get(trajectory.leaf.id, np.nan) for trajectory in trajectories])[part.trajectory]
    size = len(first)
    graded = np.isfinite(value)
    through = np.bincount(group, minlength=size)
    node = tuple(traces[part.trajectory[i]].nodes[part.row[i]] for i in first)
    token = part.token[first]
    waiting = pending or {}
    more = np.array([waiting.get((n, int(t)), 0) for n, t in zip(node, token, strict=True)], dtype=np.int64)
    return Candidates(
        node=node,
        token=token,
        depth=part.depth[first],
        children=_children(group, part.edge, size) + more,
        leaves=np.bincount(group[graded], minlength=size).astype(np.int64),
        wins=np.bincount(group[graded], weights=value[graded], minlength=size).astype(np.float64),
        entropy=_first_known(group, part.entropy, size),
        # Budgets and scores are divided by it.
        cost=np.maximum(np.bincount(group, weights=part.after, minlength=size) / through, 1.0),
        unseen=_unseen(group, part.generated, part.logprob, size),
        surprisal=-part.logprob[first],
        drawn=len(trajectories) if joined.edge.any() else 0,
        note=entropy_note(step.node for trajectory in trajectories for step in trajectory),
    )


def entropy_note(nodes: Iterable[Node]) -> str | None:
    """Over how many tokens the recorded entropies were taken; None where a node does not say."""
    sizes = {(n.settings or {}).get("entropy_top_k") for n in nodes if n.entropy is not None}
    if not sizes or None in sizes:
        return None
    least = min(int(size) for size in sizes if size is not None)
    return (
        f"over the {least} likeliest tokens, not renormalised: a lower bound, the other tokens' mass unknown"
    )


def _held(held: MutableMapping[str, PointArrays], trajectory: Trajectory, inside: int) -> PointArrays:
    leaf = trajectory.leaf.id
    if leaf not in held:
        held[leaf] = trace(trajectory, inside)
    return held[leaf]


@dataclass(frozen=True, slots=True)
class _Joined:
    """Traces end to end; ``trajectory`` says whose entry it is."""

    trajectory: Int64
    key: UInt64
    row: Int64
    token: Int64
    depth: Int64
    edge: UInt64
    generated: Int64
    entropy: Float64
    logprob: Float64
    after: Int64
    offer: Bools

    @classmethod
    def of(cls, traces: Sequence[PointArrays]) -> _Joined:
        trajectory = np.repeat(np.arange(len(traces)), [len(t.key) for t in traces])
        names = [n for n in cls.__slots__ if n != "trajectory"]
        return cls(trajectory, *(np.concatenate([getattr(t, n) for t in traces]) for n in names))

    def only(self, mask: Bools) -> _Joined:
        return _Joined(*(getattr(self, name)[mask] for name in self.__slots__))


def _groups(keys: UInt64) -> tuple[Int64, Int64]:
    """First entry of each distinct key, in order of first entry, and the group of every entry."""
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[inverse]


def _children(group: Int64, edge: UInt64, size: int) -> Int64:
    taken = edge != 0
    pairs = np.unique(np.stack([group[taken].astype(np.uint64), edge[taken]]), axis=1)
    return np.bincount(pairs[0].astype(np.int64), minlength=size).astype(np.int64)


def _first_known(group: Int64, values: Float64, size: int) -> Float64:
    found = np.full(size, np.nan)
    np.fmax.at(found, group, values)
    return found


def _unseen(group: Int64, said: Int64, logprob: Float64, size: int) -> Float64:
    """One minus the probability of the next tokens seen at each point; NaN where one is not known."""
    pairs, first = np.unique(np.stack([group, said]), axis=1, return_index=True)
    seen = np.bincount(pairs[0], weights=np.exp(logprob[first]), minlength=size)
    return np.asarray(np.clip(1.0 - seen, 0.0, 1.0), dtype=np.float64)
