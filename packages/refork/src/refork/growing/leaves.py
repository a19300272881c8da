"""The leaves of a grown tree as one group for a trainer: padded arrays, shared prefixes counted.

A token that several leaves share was sampled once. ``multiplicity`` says how many leaves hold it, so a loss
that sums over leaves may divide by it and count every sampled token once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refork.errors import BadInput
from refork.growing.mass import Norm, group_advantages
from refork.growing.rollouts import Group
from refork.tree.node import Step, Trajectory

Float64 = NDArray[np.float64]


def path_weights(trajectories: Sequence[Trajectory]) -> Float64:
    """The chance of each leaf if at every branching one child were taken with equal chance, [leaves].

    One over the number of children, multiplied along the trajectory; sums to 1 where no leaf is left out. The
    weighted mean of outcomes is the recursion "value of a node = mean of its children's values".
    """
    hanging: dict[tuple[str, int], set[str]] = {}
    furthest: dict[str, int] = {}
    for trajectory in trajectories:
        for step, after in _pairs(trajectory):
            furthest[step.node.id] = max(furthest.get(step.node.id, 0), _kept_tokens(step))
            if after is not None:
                hanging.setdefault((step.node.id, _kept_tokens(step)), set()).add(after.node.id)
    forks: dict[str, list[int]] = {}
    for node, keep in hanging:
        forks.setdefault(node, []).append(keep)
    weights = []
    for trajectory in trajectories:
        weight = 1.0
        for step, after in _pairs(trajectory):
            for keep in forks.get(step.node.id, ()):
                passes_on = keep < _kept_tokens(step)
                if passes_on or (after is not None and keep == _kept_tokens(step)):
                    # Whatever goes on inside the node is one child more, by however many leaves.
                    others = len(hanging[step.node.id, keep]) + (keep < furthest[step.node.id])
                    weight /= others
        weights.append(weight)
    return np.array(weights, dtype=np.float64)


def _pairs(trajectory: Trajectory) -> list[tuple[Step, Step | None]]:
    following: list[Step | None] = [*trajectory.steps[1:], None]
    return list(zip(trajectory.steps, following, strict=True))


def _kept_tokens(step: Step) -> int:
    return step.node.length if step.keep is None else step.keep


def weighted_value(weights: ArrayLike, rewards: ArrayLike) -> float:
    """Weighted mean of rewards, weights scaled to sum to 1 over those that are known (not NaN)."""
    w, r = np.asarray(weights, dtype=np.float64), np.asarray(rewards, dtype=np.float64)
    known = np.isfinite(r)
    if not known.any():
        raise BadInput("no leaf of this group is graded", where="group")
    return float((w[known] * r[known]).sum() / w[known].sum())


@dataclass(frozen=True, slots=True, eq=False)
class LeafBatch:
    """One group, ready for a group-relative trainer: L graded leaves, T tokens of the longest.

    ``tokens``, ``loss_mask`` (sampled by the policy), ``logprobs`` (under the distribution sampled from, 0
    off the mask), ``multiplicity`` (leaves that share the token, 0 on padding) are [L, T]; ``rewards``,
    ``advantages`` and ``weights`` (of paths) are [L]. ``value`` is the task's, by node means; ``biased``
    says why it is not unbiased, None where it is.
    """

    group: str
    trajectories: tuple[Trajectory, ...]
    tokens: NDArray[np.int32]
    loss_mask: NDArray[np.bool_]
    logprobs: NDArray[np.float32]
    multiplicity: NDArray[np.int64]
    rewards: Float64
    advantages: Float64
    weights: Float64
    value: float
    biased: str | None

    @property
    def sampled(self) -> float:
        """Different sampled tokens of the group: each counted once, however many leaves share it."""
        return float((self.loss_mask / np.maximum(self.multiplicity, 1)).sum())


def leaf_batch(group: Group, norm: Norm = "std", *, score: str = "success", pad_id: int = 0) -> LeafBatch:
    """A grown group as arrays; leaves that failed or were not graded are left out.

    Raises:
        BadInput: fewer than two graded leaves, or a trajectory without token ids or log-probs.
    Source: the batch layout is ours; advantages as in arXiv 2402.03300.
    """
    trajectories: list[Trajectory] = []
    rewards: list[float] = []
    for arm in group.forks:
        for trajectory, value in zip(arm.leaves(), arm.values(score), strict=True):
            if value is not None:
                trajectories.append(trajectory)
                rewards.append(value)
    advantages = group_advantages(rewards, norm)
    rows = [_row(trajectory) for trajectory in trajectories]
    weights = path_weights(trajectories)
    shape = (len(rows), max(len(row.tokens) for row in rows))
    tokens = np.full(shape, pad_id, dtype=np.int32)
    mask = np.zeros(shape, dtype=bool)
    logprobs = np.zeros(shape, dtype=np.float32)
    multiplicity = np.zeros(shape, dtype=np.int64)
    _, index, counts = np.unique(
        np.concatenate([r.units for r in rows]), axis=0, return_inverse=True, return_counts=True
    )
    shared = np.split(counts[index.reshape(-1)], np.cumsum([len(r.tokens) for r in rows])[:-1])
    for i, row in enumerate(rows):
        span = slice(0, len(row.tokens))
        tokens[i, span], mask[i, span] = row.tokens, row.mask
        logprobs[i, span], multiplicity[i, span] = np.where(row.mask, row.logprobs, 0.0), shared[i]
    return LeafBatch(
        group.task.id, tuple(trajectories), tokens, mask, logprobs, multiplicity, np.array(rewards),
        advantages, weights, weighted_value(weights, rewards), group.biased,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class _Row:
    tokens: NDArray[np.int32]
    mask: NDArray[np.bool_]
    logprobs: NDArray[np.float32]
    units: NDArray[np.int64]


def _row(trajectory: Trajectory) -> _Row:
    tokens, masks, logprobs, units = [], [], [], []
    for step in trajectory.context:
        node, kept = step.node, step.tokens
        if kept is None:
            if node.kind == "action":
                raise BadInput(
                    "a leaf holds text without token ids",
                    where=f"node {node.id[:12]}",
                    hint="a trainer needs a policy that returns token ids",
                )
            continue
        size = len(kept)
        spoken = node.kind == "action"
        if spoken and node.logprobs is None:
            raise BadInput("a leaf has no log-probs", where=f"node {node.id[:12]}")
        said = node.logprobs[:size] if spoken and node.logprobs is not None else np.full(size, np.nan)
        drawn = np.isfinite(said)
        # Forced tokens carry the policy's log-probs too, and were no choice of its.
        drawn[: len((node.settings or {}).get("forced", ()))] = False
        tokens.append(kept)
        masks.append(drawn)
        logprobs.append(np.asarray(said, dtype=np.float32))
        # 15 hexadecimal digits are 60 bits, the most that int64 holds in whole digits.
        name = np.full(size, int(node.id[:15], 16), dtype=np.int64)
        units.append(np.stack([name, np.arange(size)], axis=1))
    return _Row(
        np.concatenate(tokens), np.concatenate(masks), np.concatenate(logprobs), np.concatenate(units)
    )
