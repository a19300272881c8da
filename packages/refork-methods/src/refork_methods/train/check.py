"""Trainer self-check: do sampler and trainer mean the same policy, and does its entropy stay in place?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from refork.errors import BadInput
from refork.progress import Progress, silent
from refork.tree.node import Node, Trajectory
from refork.tree.tree import Tree
from refork.types import Json
from refork_methods.train.batch import sampled_tokens
from refork_methods.train.policy_gradient import token_logprobs

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, and the rollout that shows it.

    ``kind``: ``logprob`` (``value`` is the trainer's log-prob in nats, ``expected`` the sampler's) or
    ``entropy`` (``value`` is this rollout's mean entropy in nats, ``expected`` what it was before).
    ``leaf`` ends the rollout; ``node`` and ``token`` are the worst place, where there is one.
    """

    kind: Literal["logprob", "entropy"]
    leaf: str
    node: str | None
    token: int | None
    value: float
    expected: float
    text: str = ""

    def to_json(self) -> Json:
        """Plain fields."""
        return asdict(self)


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


def entropy_jumps(means: ArrayLike, factor: float = 2.0, window: int = 3) -> list[int]:
    """Places where a series of mean entropies [n] leaves its recent past by more than a factor.

    Each value is compared with the median of the (at most ``window``) values before it that are known;
    the first has nothing before it and is never a jump.

    Raises:
        BadInput: a factor that is not above 1, or an empty window.
    """
    if not factor > 1 or window < 1:
        raise BadInput("the factor of a jump must be above 1, the window at least 1", where="entropy")
    values = np.asarray(means, dtype=np.float64).reshape(-1)
    found = []
    for n in range(1, len(values)):
        before = values[max(0, n - window) : n]
        before = before[np.isfinite(before)]
        if not len(before) or not np.isfinite(values[n]):
            continue
        usual = float(np.median(before))
        if values[n] > usual * factor or values[n] * factor < usual:
            found.append(n)
    return found


def influence(sums: ArrayLike, counts: ArrayLike, usual: float) -> Floats:
    """How much each rollout moves the mean entropy away from ``usual``, [n] nats; they sum to the shift.

    Args:
        sums: summed token entropies of each rollout [n].
        counts: its tokens [n].
        usual: mean entropy per token before.
    """
    total, tokens = np.asarray(sums, dtype=np.float64), np.asarray(counts, dtype=np.float64)
    shift: Floats = (total - usual * tokens) / max(float(tokens.sum()), 1.0)
    return shift


def check_logprobs(
    model: Any,
    trajectories: Sequence[Trajectory],
    *,
    tolerance: float = 1e-3,
    rows: int = 16,
    progress: Progress = silent,
) -> tuple[list[Problem], float]:
    """Recompute the log-prob of every sampled token as the trainer does; what differs, and the largest.

    The walks must be of the model's present weights. One problem per walk, at its worst token; a token
    that walks share is compared once.

    Returns:
        problems, the largest first, and the largest difference in nats over all tokens.
    """
    seen: set[str] = set()
    jobs = [(walk, fresh) for walk in trajectories if (fresh := _fresh(walk, seen))]
    worst: dict[str, Problem] = {}
    largest = 0.0
    was = model.training
    model.eval()
    for first in range(0, len(jobs), rows):
        part = jobs[first : first + rows]
        found = _recomputed(model, [walk.tokens for walk, _ in part])
        for row, (walk, places) in enumerate(part):
            for start, node in places:
                recorded = np.full(node.length, np.nan)
                if node.logprobs_t1 is not None:
                    recorded = np.where(sampled_tokens(node), node.logprobs_t1, np.nan)
                at, gap = worst_difference(found[row][start : start + node.length], recorded)
                largest = max(largest, gap)
                known = worst.get(walk.leaf.id)
                if gap > tolerance and (known is None or gap > abs(known.value - known.expected)):
                    text = node.text if node.offsets is None else node.text_upto(at + 1)
                    ours = float(found[row][start + at])
                    worst[walk.leaf.id] = Problem(
                        "logprob", walk.leaf.id, node.id, at, ours, float(recorded[at]), text[-60:]
                    )
        progress("checking log-probs", min(first + rows, len(jobs)), len(jobs))
    model.train(was)
    order = sorted(worst.values(), key=lambda p: -abs(p.value - p.expected))
    return order, largest


def _fresh(walk: Trajectory, seen: set[str]) -> list[tuple[int, Node]]:
    """Sampled nodes of a walk's last context that were not met before, and where each begins."""
    found = []
    start = 0
    for step in walk.context:
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
    """What a self-check looked at and found.

    ``entropy`` is the mean per sampled token in nats for each set of weights, in order of sampling (None:
    none recorded).
    """

    rollouts: int
    largest: float
    weights: tuple[str, ...]
    entropy: tuple[float | None, ...]
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
    factor: float = 2.0,
    window: int = 3,
    most: int = 5,
    progress: Progress = silent,
) -> Checked:
    """Check the rollouts of a tree: log-probs of those sampled with these weights, entropy of all.

    Args:
        tree: recorded rollouts, those of training runs hold several sets of weights.
        model: the trainer's model.
        weights: its digest.
        tolerance: largest allowed difference of a log-prob, nats.
        factor: a change of mean entropy from one set of weights to the next that counts as a jump.
        window: how many earlier sets of weights a new one is compared with.
        most: problems reported per kind and set of weights.
        progress: told of rollouts as they are checked.

    Raises:
        BadInput: the tree holds no rollout of these weights.
    """
    leaves = [node.id for node in tree.leaves()]
    walks = tree.paths(leaves)
    by_weights: dict[str, list[Trajectory]] = {}
    for walk in walks:
        for name in {s.node.weights for s in walk if s.node.kind == "action" and s.node.weights}:
            by_weights.setdefault(name, []).append(walk)
    names = sorted(by_weights, key=lambda name: _first_time(by_weights[name], name))
    if weights not in by_weights:
        known = ", ".join(name[:12] for name in names) or "none"
        raise BadInput(
            f"this tree holds no rollout of weights {weights[:12]}",
            where=str(tree.file or "tree in memory"),
            hint=f"it holds rollouts of: {known}; a run's last weights sample only where it evaluates",
        )
    mine = [w for w in by_weights[weights] if _only(w, weights)]
    problems, largest = check_logprobs(model, mine, tolerance=tolerance, progress=progress)
    means, jumps = _entropy_problems(names, by_weights, factor, window, most)
    return Checked(len(mine), largest, tuple(names), tuple(means), (*problems[:most], *jumps))


def _first_time(walks: Sequence[Trajectory], name: str) -> float:
    return min(s.node.created for walk in walks for s in walk if s.node.weights == name)


def _only(walk: Trajectory, weights: str) -> bool:
    return all(s.node.weights == weights for s in walk if s.node.kind == "action" and s.node.weights)


def _entropies(walk: Trajectory, weights: str) -> tuple[float, int]:
    """Summed entropy and number of the tokens of a walk that these weights sampled."""
    total, count = 0.0, 0
    for step in walk:
        node = step.node
        if node.weights == weights and node.entropy is not None:
            drawn = sampled_tokens(node)[: step.keep] & np.isfinite(node.entropy[: step.keep])
            total += float(node.entropy[: step.keep][drawn].sum())
            count += int(drawn.sum())
    return total, count


def _entropy_problems(
    names: Sequence[str], groups: dict[str, list[Trajectory]], factor: float, window: int, most: int
) -> tuple[list[float | None], list[Problem]]:
    tables = {name: [_entropies(walk, name) for walk in groups[name]] for name in names}
    means: list[float | None] = []
    for name in names:
        total, count = (sum(part) for part in zip(*tables[name], strict=True))
        means.append(total / count if count else None)
    series = np.array([np.nan if m is None else m for m in means])
    problems: list[Problem] = []
    for n in entropy_jumps(series, factor, window):
        before = series[max(0, n - window) : n]
        usual = float(np.median(before[np.isfinite(before)]))
        sums, counts = (np.array(part) for part in zip(*tables[names[n]], strict=True))
        moved = influence(sums, counts, usual) * np.sign(series[n] - usual)
        for place in np.argsort(-moved, kind="stable")[:most].tolist():
            if moved[place] > 0 and counts[place]:
                walk = groups[names[n]][place]
                mean, text = float(sums[place] / counts[place]), walk.leaf.text[-60:]
                problems.append(Problem("entropy", walk.leaf.id, None, None, mean, usual, text))
    return means, problems
