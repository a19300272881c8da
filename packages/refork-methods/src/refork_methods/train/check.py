"""Trainer self-check: do sampler and trainer mean the same policy?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from refork.errors import BadInput
from refork.progress import Progress, silent
from refork.tree.node import Node, Step, Trajectory
from refork.tree.tree import Tree
from refork.types import Json
from refork_methods.train.batch import contexts, sampled_tokens
from refork_methods.train.policy_gradient import token_logprobs

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Problem:
    """A rollout whose log-probs differ: ``leaf`` ends it, ``node`` and ``token`` are its worst place.

    ``value`` is the trainer's log-prob there in nats, ``expected`` the sampler's.
    """

    leaf: str
    node: str
    token: int
    value: float
    expected: float
    text: str = ""


def worst_difference(trainer: ArrayLike, sampler: ArrayLike) -> tuple[int, float]:
    """Place and size of the largest absolute difference in nats; NaN in ``sampler`` is not compared."""
    ours, theirs = np.asarray(trainer, dtype=np.float64), np.asarray(sampler, dtype=np.float64)
    gap = np.where(np.isfinite(theirs), np.abs(ours - theirs), 0.0)
    if not len(gap):
        return -1, 0.0
    # A log-prob that is NaN on the trainer's side is as wrong as can be.
    gap = np.where(np.isnan(gap), np.inf, gap)
    at = int(np.argmax(gap))
    return at, float(gap[at])


def check_logprobs(
    model: Any,
    trajectories: Sequence[Trajectory],
    *,
    tolerance: float = 1e-3,
    rows: int = 16,
    progress: Progress = silent,
) -> tuple[list[Problem], float]:
    """Recompute the log-prob of every sampled token as the trainer does; what differs, and the largest.

    The trajectories must be of the model's present weights. One problem per trajectory, at its worst token; a
    token that trajectories share is compared once.

    Returns:
        problems, the largest first, and the largest difference in nats over all tokens.
    """
    seen: set[str] = set()
    jobs = [
        (trajectory.leaf.id, Trajectory(tuple(context)).tokens, fresh)
        for trajectory in trajectories
        for context in contexts(trajectory)
        if (fresh := _fresh(context, seen))
    ]
    worst: dict[str, Problem] = {}
    largest = 0.0
    was = model.training
    model.eval()
    for first in range(0, len(jobs), rows):
        part = jobs[first : first + rows]
        found = _recomputed(model, [tokens for _, tokens, _ in part])
        for row, (leaf, _, places) in enumerate(part):
            for start, node in places:
                recorded = np.full(node.length, np.nan)
                if node.logprobs_t1 is not None:
                    recorded = np.where(sampled_tokens(node), node.logprobs_t1, np.nan)
                at, gap = worst_difference(found[row][start : start + node.length], recorded)
                largest = max(largest, gap)
                known = worst.get(leaf)
                if gap > tolerance and (known is None or gap > _gap(known)):
                    text = node.text if node.offsets is None else node.text_upto(at + 1)
                    ours = float(found[row][start + at])
                    worst[leaf] = Problem(leaf, node.id, at, ours, float(recorded[at]), text[-60:])
        progress("checking log-probs", min(first + rows, len(jobs)), len(jobs))
    model.train(was)
    return sorted(worst.values(), key=_gap, reverse=True), largest


def _gap(problem: Problem) -> float:
    return worst_difference([problem.value], [problem.expected])[1]


def _fresh(context: Sequence[Step], seen: set[str]) -> list[tuple[int, Node]]:
    """Sampled nodes of a context that were not met before, and where each begins."""
    found = []
    start = 0
    for step in context:
        node = step.node
        whole = step.keep is None or step.keep == node.length
        if whole and node.id not in seen and sampled_tokens(node).any():
            seen.add(node.id)
            found.append((start, node))
        start += 0 if step.tokens is None else len(step.tokens)
    return found


def _recomputed(model: Any, sequences: Sequence[Any]) -> list[Floats]:
    shape = (len(sequences), max(len(s) for s in sequences))
    tokens, attention = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    for row, item in enumerate(sequences):
        tokens[row, : len(item)], attention[row, : len(item)] = item, 1
    device = next(model.parameters()).device
    ids = torch.from_numpy(tokens).to(device)
    with torch.no_grad():
        logits = model(
            input_ids=ids, attention_mask=torch.from_numpy(attention).to(device), use_cache=False
        ).logits
        found = token_logprobs(logits, ids).double().cpu().numpy()
    return [found[row, : len(item)] for row, item in enumerate(sequences)]


@dataclass(frozen=True, slots=True)
class Checked:
    """What a self-check looked at and found: the largest difference in nats, and the rollouts that differ."""

    rollouts: int
    largest: float
    problems: tuple[Problem, ...]

    def to_json(self) -> Json:
        """Plain fields."""
        return asdict(self)


def check_tree(
    tree: Tree,
    model: Any,
    weights: str,
    *,
    tolerance: float = 1e-3,
    most: int = 5,
    progress: Progress = silent,
) -> Checked:
    """Check the log-probs of the rollouts of a tree that were sampled with these weights.

    Args:
        tree: recorded rollouts, those of training runs hold several sets of weights.
        model: the trainer's model.
        weights: its digest.
        tolerance: largest allowed difference of a log-prob, nats.
        most: problems reported.
        progress: told of rollouts as they are checked.

    Raises:
        BadInput: the tree holds no rollout of these weights alone.
    """
    leaves = [node.id for node in tree.leaves()]
    trajectories = tree.paths(leaves)
    by_weights: dict[str, list[Trajectory]] = {}
    for trajectory in trajectories:
        for name in {s.node.weights for s in trajectory if s.node.kind == "action" and s.node.weights}:
            by_weights.setdefault(name, []).append(trajectory)
    names = sorted(by_weights, key=lambda name: _first_time(by_weights[name], name))
    if weights not in by_weights:
        known = ", ".join(name[:12] for name in names) or "none"
        raise BadInput(
            f"this tree holds no rollout of weights {weights[:12]}",
            where=str(tree.file or "tree in memory"),
            hint=f"it holds rollouts of: {known}; a run's last weights sample only where it evaluates",
        )
    mine = [w for w in by_weights[weights] if _only(w, weights)]
    if not mine:
        raise BadInput(
            f"every rollout with turns of weights {weights[:12]} has turns of other weights too",
            where=str(tree.file or "tree in memory"),
            hint="grow rollouts with these weights alone, and check those",
        )
    problems, largest = check_logprobs(model, mine, tolerance=tolerance, progress=progress)
    return Checked(len(mine), largest, tuple(problems[:most]))


def _first_time(trajectories: Sequence[Trajectory], name: str) -> float:
    return min(s.node.created for trajectory in trajectories for s in trajectory if s.node.weights == name)


def _only(trajectory: Trajectory, weights: str) -> bool:
    return all(s.node.weights == weights for s in trajectory if s.node.kind == "action" and s.node.weights)
