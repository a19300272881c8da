"""Implicit advantages of recorded trajectories: from the log-probs on the tree, or from a pair of models.

A token counts where the policy chose it itself: tokens of actions, forced ones left out. A turn that
was forked in its middle is one step, whoever recorded its parts.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from refork.errors import BadInput
from refork.policies.base import Sampling
from refork.progress import Progress, silent
from refork.tree.node import Node, Step, Trajectory
from refork.tree.score import Producer, Score
from refork.tree.tree import Tree
from refork_methods.implicit.aggregate import (
    PairLogprobs,
    pair_logprobs,
    refuse_all_zero,
    token_advantages,
)
from refork_methods.implicit.soft_values import Floats, check_beta

if TYPE_CHECKING:
    from refork_methods.implicit.pair import ImplicitPair

#: The score's name on the tree: one value per token of an action node.
NAME = "implicit"


def _plain_sampling(settings: Mapping[str, Any] | None) -> bool:
    """Whether tokens were sampled from the distribution itself: temperature 1, no filter, nothing banned."""
    known = {f.name for f in fields(Sampling)}
    given = {key: value for key, value in (settings or {}).items() if key in known}
    return Sampling.from_json(given).is_plain


def _policy_logprobs(node: Node) -> Floats:
    if node.logprobs_t1 is not None:
        return node.logprobs_t1.astype(np.float64)
    place = f"node {node.id[:12]}"
    if node.logprobs is None:
        raise BadInput("this action records no log-probs", where=place, hint="score it with a pair of models")
    if not _plain_sampling(node.settings):
        temperature = (node.settings or {}).get("temperature", 1.0)
        raise BadInput(
            f"this action's log-probs are of another distribution: filtered, or of temperature {temperature}",
            where=place,
            hint="sample at temperature 1 without filters, or score the trajectory with a pair of models",
        )
    return node.logprobs.astype(np.float64)


def _reference_logprobs(node: Node) -> Floats:
    if node.ref_logprobs is None:
        raise BadInput(
            "this action records no reference log-probs",
            where=f"node {node.id[:12]}",
            hint="sample with `hf:DIR+reference=DIR2`, or score the trajectory with a pair of models",
        )
    return node.ref_logprobs.astype(np.float64)


def _spans(trajectory: Trajectory) -> list[tuple[Step, int, int]]:
    """Steps that hold tokens, verdicts left out, with their place in the trajectory's token row."""
    found, start = [], 0
    for step in trajectory:
        tokens = step.tokens
        if step.node.kind != "verdict" and tokens is not None:
            found.append((step, start, start + len(tokens)))
            start += len(tokens)
    return found


@dataclass(frozen=True, slots=True)
class TrajectorySteps:
    """Actions of a path: ``step_id`` [T] per token (-1: not chosen), ``cut`` and the nodes of each step."""

    step_id: np.ndarray[Any, np.dtype[np.int64]]
    cut: np.ndarray[Any, np.dtype[np.bool_]]
    nodes: tuple[tuple[str, ...], ...]


def walk_steps(trajectory: Trajectory) -> TrajectorySteps:
    """Which step every token of a trajectory belongs to; steps that ran into a limit are marked as cut."""
    spans = _spans(trajectory)
    ids = np.full(spans[-1][2] if spans else 0, -1, dtype=np.int64)
    nodes: list[list[str]] = []
    cut: list[bool] = []
    goes_on = False
    for step, start, end in spans:
        node = step.node
        if node.kind != "action":
            goes_on = False
            continue
        if not goes_on:
            nodes.append([])
            cut.append(False)
        nodes[-1].append(node.id)
        # Forced tokens were nobody's choice, so they earn nothing.
        ids[start + len((node.settings or {}).get("forced", ())) : end] = len(nodes) - 1
        goes_on = end - start < node.length
        cut[-1] = goes_on or node.finish in ("length", "error")
    return TrajectorySteps(ids, np.array(cut, dtype=bool), tuple(map(tuple, nodes)))


def recorded_pair(trajectory: Trajectory) -> PairLogprobs:
    """Log-probs of a path's sampler and of its reference as they were recorded, [tokens of the path].

    Raises:
        BadInput: an action without log-probs, with log-probs of another distribution than the policy's own,
        or
            without those of a reference; a log-prob that is not finite (the token is named).
    """
    steps = walk_steps(trajectory)
    if not steps.nodes and any(step.node.kind == "action" for step in trajectory):
        raise BadInput(
            "no turn of this trajectory has token ids",
            where=f"leaf {trajectory.leaf.id[:12]}",
            hint="a log gets them by `refork tree import NEW.db LOG --policy POLICY`",
        )
    policy, reference = np.full((2, len(steps.step_id)), np.nan)
    names = [""] * len(steps.step_id)
    for step, start, end in _spans(trajectory):
        node = step.node
        if node.kind == "action" and end > start:
            policy[start:end] = _policy_logprobs(node)[: end - start]
            reference[start:end] = _reference_logprobs(node)[: end - start]
            if node.offsets is not None:
                ends = [0, *node.offsets.tolist()]
                pieces = [node.text[a:b] for a, b in itertools.pairwise(ends)]
                names[start:end] = pieces[: end - start]
    return pair_logprobs(
        policy, reference, steps.step_id, steps=len(steps.nodes), cut=steps.cut, names=names,
        where=f"leaf {trajectory.leaf.id[:12]}",
    )  # fmt: skip


def model_pairs(
    trajectories: Sequence[Trajectory], pair: ImplicitPair, progress: Progress = silent
) -> list[PairLogprobs]:
    """Log-probs of recorded trajectories under a pair of models, [tokens of the trajectory] each.

    Where a context was rewritten, each context is read on its own.

    Raises:
        BadInput: text without token ids, tokens of another vocabulary, a log-prob that is not finite.
    """
    runs = [run for trajectory in trajectories for run in _contexts(trajectory)]
    tokens = [np.concatenate([_ids(step) for step in run]) for run in runs]
    most = max(map(len, tokens), default=0)
    if most > pair.longest:
        raise BadInput(f"a recorded trajectory has {most} tokens, the pair reads {pair.longest}")
    both = pair.both(tokens, progress)
    found, at = [], 0
    for trajectory in trajectories:
        steps = walk_steps(trajectory)
        count = len(_contexts(trajectory))
        rows = range(at, at + count)
        at += count
        # Nothing precedes a context's first token, so it has no log-prob.
        mine, theirs = (
            np.concatenate([np.concatenate([[np.nan], values[i]]) for i in rows]) for values in both
        )
        found.append(
            pair_logprobs(
                mine, theirs, steps.step_id, steps=len(steps.nodes), cut=steps.cut,
                where=f"leaf {trajectory.leaf.id[:12]}",
            )
        )  # fmt: skip
    return found


def _contexts(trajectory: Trajectory) -> list[list[Step]]:
    runs: list[list[Step]] = [[]]
    for step, _, _ in _spans(trajectory):
        if step.node.kind == "rewrite" and runs[-1]:
            runs.append([])
        runs[-1].append(step)
    return [run for run in runs if run]


def _ids(step: Step) -> np.ndarray[Any, np.dtype[np.int32]]:
    tokens = step.tokens
    return np.zeros(0, dtype=np.int32) if tokens is None else tokens


def walk_scores(
    trajectories: Sequence[Trajectory], pairs: Sequence[PairLogprobs], producer: Producer, beta: float = 1.0
) -> list[Score]:
    """Scores to be written: for every whole action node one value per token; each node once.

    A node with tokens that the policy did not choose (forced ones) gets none: a score has no gaps.
    """
    values = walk_values(trajectories, pairs, beta)
    return [Score(node, NAME, own, producer.id) for node, own in values.items() if np.isfinite(own).all()]


def walk_values(
    trajectories: Sequence[Trajectory], pairs: Sequence[PairLogprobs], beta: float = 1.0
) -> dict[str, Floats]:
    """For every whole action node one value per token; NaN for tokens that the policy did not choose."""
    found: dict[str, Floats] = {}
    for trajectory, pair in zip(trajectories, pairs, strict=True):
        values = token_advantages(pair, beta)
        for step, start, end in _spans(trajectory):
            if step.node.kind == "action" and 0 < step.node.length == end - start:
                found.setdefault(step.node.id, values[start:end])
    return found


def recorded_producer(tree: Tree, trajectories: Sequence[Trajectory], beta: float = 1.0) -> Producer:
    """Who gives scores that come from recorded log-probs: the weights of samplers and of their references.

    A reference is named by its weights where its arm's policy card does, else as "not named".
    """
    acts = [s.node for trajectory in trajectories for s in trajectory if s.node.kind == "action"]
    samplers = sorted({str(node.weights or node.policy) for node in acts})
    cards = [tree.fork_record(name).policy for name in sorted({n.fork for n in acts if n.fork is not None})]
    named = sorted({str((card.get("extra") or {}).get("reference") or "not named") for card in cards})
    leaves = hashlib.blake2b(
        "".join(sorted(w.leaf.id for w in trajectories)).encode(), digest_size=8
    ).hexdigest()
    config = {"policy": samplers, "reference": named or ["not named"], "walks": leaves}
    return Producer("implicit-advantage", "1", {**config, "beta": check_beta(beta)})


def tree_implicit(
    tree: Tree,
    trajectories: Sequence[Trajectory],
    pair: ImplicitPair | None = None,
    *,
    beta: float | None = None,
    progress: Progress = silent,
) -> tuple[list[PairLogprobs], Producer]:
    """Score paths and write the scores on the tree in one go; the log-probs of both models, and the producer.

    Nothing is written unless every trajectory can be scored.
    """
    price = beta if beta is not None else (1.0 if pair is None else pair.beta)
    if pair is None:
        pairs, producer = (
            [recorded_pair(trajectory) for trajectory in trajectories],
            recorded_producer(tree, trajectories, price),
        )
    else:
        pairs = model_pairs(trajectories, pair, progress)
        producer = replace(pair.producer, config={**pair.names, "beta": check_beta(price)})
    refuse_all_zero(pairs)
    scores = walk_scores(trajectories, pairs, producer, price)
    tree.add_producer(producer)
    tree.add_scores(scores)
    return pairs, producer


def implicit_advantages(
    trajectories: Sequence[Trajectory],
    outcomes: ArrayLike,
    *,
    beta: float = 1.0,
    coefficient: float = 1.0,
    outcome_weight: float = 1.0,
    normalise: Literal["std", "mean"] = "std",
    spread: Literal["token", "step"] = "token",
    scores: Mapping[str, ArrayLike] | None = None,
) -> list[Floats]:
    """Advantages per token of each trajectory (verdicts left out): group credit plus dense implicit credit.

    Each token of trajectory i gets ``outcome_weight`` times its outcome's group advantage plus
    ``coefficient`` times beta * log-ratio of the token (``spread`` "step": of its whole step). NaN for tokens
    that the policy did not choose. With ``coefficient`` 0 this is the plain group advantage.

    Args:
        trajectories: rollouts of one task.
        outcomes: their outcomes [trajectories]; NaN where ungraded (then all of that trajectory is NaN).
        beta: price of one nat, in units of reward.
        coefficient: weight of the dense part.
        outcome_weight: weight of the group part; 0 leaves outcomes unread.
        normalise: of the group part, ``std`` or ``mean``.
        spread: ``token`` or ``step``.
        scores: per node id the implicit scores of its tokens by a **fixed** pair, already times beta;
            None: the log-probs of sampler and reference as recorded.

    Raises:
        BadInput: lengths that differ, a node without scores, or what :func:`recorded_pair` raises.

    Source: arXiv 2606.26080 for the score; its use as dense credit is ours. Where the sampler is the very
    policy that is trained, the gradient of its own log-ratio is that of the divergence: a positive
    coefficient drives it *away* from the reference. So train on the scores of a fixed pair.
    """
    from refork_methods.train.policy_gradient import group_advantages

    if spread not in ("token", "step"):
        raise BadInput(f"unknown spread {spread!r}", hint="known: token, step")
    earned = np.asarray(outcomes, dtype=np.float64).reshape(-1)
    if len(earned) != len(trajectories):
        raise BadInput(f"{len(trajectories)} trajectories but {len(earned)} outcomes")
    group = np.zeros(len(trajectories))
    if outcome_weight:
        group = outcome_weight * group_advantages(earned, np.zeros(len(trajectories)), normalise)
    found = []
    for trajectory, base in zip(trajectories, group, strict=True):
        if scores is None:
            pair = recorded_pair(trajectory)
            dense, ids = token_advantages(pair, beta), pair.step_id
        else:
            dense, ids = _given(trajectory, scores), walk_steps(trajectory).step_id
        if spread == "step":
            chosen = ids >= 0
            sums = np.bincount(ids[chosen], weights=dense[chosen])
            # Tokens without a step read the last sum by their id of -1; the outer where drops it.
            dense = np.where(chosen, sums[ids] if len(sums) else np.nan, np.nan)
        found.append(base + coefficient * dense)
    return found


def _given(trajectory: Trajectory, scores: Mapping[str, ArrayLike]) -> Floats:
    """Given scores along a trajectory's chosen tokens, NaN elsewhere."""
    ids = walk_steps(trajectory).step_id
    dense = np.full(len(ids), np.nan)
    for step, start, end in _spans(trajectory):
        if step.node.kind != "action" or end == start:
            continue
        if step.node.id not in scores:
            raise BadInput("this action has no implicit score", where=f"node {step.node.id[:12]}")
        own = np.asarray(scores[step.node.id], dtype=np.float64)
        if own.shape != (step.node.length,):
            raise BadInput(
                f"{own.size} scores for {step.node.length} tokens", where=f"node {step.node.id[:12]}"
            )
        dense[start:end] = own[: end - start]
    return np.where(ids >= 0, dense, np.nan)
