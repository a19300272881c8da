"""Rollouts and pairs as plain rows: what every export writes, and nothing of any trainer's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refork.errors import BadInput
from refork.growing.report import sampled_under
from refork.plain import content_hash
from refork.tree.node import Node, Step, Trajectory
from refork.tree.turn import ContextStep, Turn, parts_of
from refork.types import IntArray, Json, Message, token_array
from refork_methods.credit.segments import walk_stretches
from refork_methods.credit.siblings import child_mean_values
from refork_methods.train.batch import Sample, contexts, trajectory_samples
from refork_methods.train.preference import Pair

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RolloutRow:
    """One context of one rollout, cut where the policy first speaks.

    ``prompt`` and ``completion`` are token ids. Per completion token: ``mask`` (learned), ``logprobs`` (when
    sampled, temperature 1), ``advantages`` and ``ref_logprobs`` (None: not recorded); where the mask is
    false they are 0. ``group`` names the prompt (the task's root node where nothing was edited) and, beyond
    the first of a task, the sampling settings; ``leaf`` is the rollout's last node.
    """

    group: str
    leaf: str
    prompt: IntArray
    completion: IntArray
    mask: NDArray[np.bool_]
    logprobs: Floats
    advantages: Floats
    ref_logprobs: Floats | None
    reward: float
    messages: tuple[Message, ...] = ()
    world: str | None = None
    task: Json = field(default_factory=dict)


def rollout_rows(
    trajectories: Sequence[Trajectory],
    outcomes: ArrayLike,
    advantages: Sequence[ArrayLike],
    *,
    once: bool = False,
) -> list[RolloutRow]:
    """Rows of recorded trajectories with their outcomes and advantages per token.

    Args:
        trajectories: trajectories with token ids.
        outcomes: reward of each trajectory; one that is not graded (NaN) is left out.
        advantages: for each trajectory one number or one per token (verdicts left out), NaN where not
        learned.
        once: a token that trajectories share is learned in the first of them only; other trainers expect
        False.

    Raises:
        BadInput: numbers that do not fit, or no token that a policy sampled.
    """
    rewards = np.asarray(outcomes, dtype=np.float64).reshape(-1)
    if not len(trajectories) == len(rewards) == len(advantages):
        raise BadInput(
            f"{len(trajectories)} trajectories, {len(rewards)} outcomes and {len(advantages)} advantages",
            where="export",
        )
    seen: set[tuple[str, int]] | None = set() if once else None
    rows = []
    settings: dict[str, frozenset[tuple[object, ...]]] = {}
    for trajectory, reward, given in zip(trajectories, rewards, advantages, strict=True):
        if not np.isfinite(reward):
            continue
        under = sampled_under(trajectory)
        mine = [_row(trajectory, float(reward), one) for one in trajectory_samples(trajectory, given, seen)]
        # The first settings keep the task's own name, so that groups of trees with one temperature do.
        if under != settings.setdefault(trajectory.root.id, under):
            mark = sorted(map(repr, under))
            mine = [replace(row, group=content_hash([row.group, mark])) for row in mine]
        rows += mine
    if not rows:
        raise BadInput("none of these trajectories holds a token that a policy sampled", where="export")
    return rows


def _row(trajectory: Trajectory, reward: float, sample: Sample) -> RolloutRow:
    before = _prompt_parts(trajectory, sample)
    start = _first_said(before, sample)
    mask = sample.mask[start:]

    def masked(values: ArrayLike) -> Floats:
        return np.where(mask, np.asarray(values, dtype=np.float64)[start:], 0.0)

    extra = trajectory.root.extra
    prompt = token_array(sample.tokens[:start])
    messages = _messages(trajectory, before)
    own = trajectory.steps[0].tokens
    plain = messages == _messages(trajectory, []) and own is not None and np.array_equal(own, prompt)
    return RolloutRow(
        # Rollouts of one group have one prompt: an edited context is another one than the task's own.
        group=trajectory.root.id if plain else content_hash([trajectory.root.id, messages, prompt.tolist()]),
        leaf=trajectory.leaf.id,
        prompt=prompt,
        completion=token_array(sample.tokens[start:]),
        mask=mask,
        logprobs=masked(sample.logprobs_t1),
        advantages=masked(sample.advantages),
        ref_logprobs=None if sample.ref_logprobs is None else masked(sample.ref_logprobs),
        reward=reward,
        messages=messages,
        world=extra.get("world"),
        task=task if isinstance(task := extra.get("task"), dict) else {},
    )


def _prompt_parts(trajectory: Trajectory, sample: Sample) -> list[ContextStep]:
    """What a sample's context shows before its first turn; a rewrite may carry the beginning of that one."""
    for run in contexts(trajectory):
        ids = [step.tokens for step in run if step.tokens is not None]
        if ids and np.array_equal(np.concatenate(ids), sample.tokens):
            parts = parts_of(run)
            first = next((at for at, part in enumerate(parts) if isinstance(part, Turn)), len(parts))
            return [part for part in parts[:first] if isinstance(part, ContextStep)]
    return []


def _messages(trajectory: Trajectory, before: Sequence[ContextStep]) -> tuple[Message, ...]:
    """The messages of a prompt; none where a task has a text alone."""
    if len(before) > 1 or (before and before[0].node.id != trajectory.root.id):
        return tuple(message for part in before for message in part.messages)
    message = trajectory.root.message
    return tuple(trajectory.root.extra.get("messages", ())) or (() if message is None else (message,))


def _first_said(before: Sequence[ContextStep], sample: Sample) -> int:
    """Where the first turn of a sample begins, so that rollouts of one prompt share it."""
    first = int(np.flatnonzero(sample.mask)[0])
    at = sum(0 if part.tokens is None else len(part.tokens) for part in before)
    return at if 0 < at <= first else first


def sibling_pairs(
    trajectories: Sequence[Trajectory], outcomes: ArrayLike, *, least: float = 1e-9
) -> list[tuple[Pair, float]]:
    """Preference pairs from the forks of one task: the best against the worst turn drawn at each point.

    A turn's value is the mean outcome below it, every branch weighing the same. Only the turn itself is in
    the pair, from the fork to its end: what the world answered is not the policy's to prefer.

    Args:
        trajectories: trajectories of one task.
        outcomes: floats [trajectories], NaN is ungraded.
        least: pairs whose values differ by less are left out.

    Returns:
        pairs with the difference of their values, in no order.
    """
    cut, graded = walk_stretches(trajectories, outcomes)
    values = child_mean_values(cut.parents, graded)
    whole = {step.node.id: trajectory for trajectory in trajectories for step in trajectory}
    owner = np.repeat(np.arange(len(cut.nodes)), np.diff(cut.first))
    below: dict[int, list[int]] = {}
    for stretch, above in enumerate(cut.parents.tolist()):
        node = cut.nodes[int(owner[stretch])]
        said = node.kind == "action" and node.logprobs_t1 is not None
        if above >= 0 and said and np.isfinite(values[cut.of(int(owner[stretch]))][-1]):
            below.setdefault(above, []).append(stretch)
    found: list[tuple[Pair, float]] = []
    for options in below.values():
        # The value behind the whole node: its first stretch alone may be shared with branches that left it
        # later.
        known = [(float(values[cut.of(int(owner[s]))][-1]), s) for s in options]
        best, worst = max(known), min(known)
        if best[0] - worst[0] < least:
            continue
        sides = []
        for _, stretch in (best, worst):
            node = cut.nodes[int(owner[stretch])]
            inside = stretch - int(cut.first[int(owner[stretch])])
            begin = int(cut.ends[stretch - 1]) if inside else 0
            sides.append((node, begin))
        prompt = _prefix(whole[sides[0][0].id], *sides[0])
        chosen, rejected = (token_array(_ids(node)[begin:]) for node, begin in sides)
        if len(prompt) and len(chosen) and len(rejected) and not np.array_equal(chosen, rejected):
            pair = Pair(prompt, chosen, rejected, _reference(sides))
            found.append((pair, best[0] - worst[0]))
    return found


def _ids(node: Node) -> IntArray:
    return token_array([]) if node.tokens is None else node.tokens


def _prefix(trajectory: Trajectory, node: Node, begin: int) -> IntArray:
    """What stood before token ``begin`` of a node of a trajectory."""
    at = next(i for i, step in enumerate(trajectory.steps) if step.node.id == node.id)
    return Trajectory((*trajectory.steps[:at], Step(node, begin))).tokens


def _reference(sides: Sequence[tuple[Node, int]]) -> tuple[float, float] | None:
    """Summed reference log-probs of both answers, where they were recorded."""
    sums = []
    for node, begin in sides:
        if node.ref_logprobs is None:
            return None
        sums.append(float(node.ref_logprobs[begin:].astype(np.float64).sum()))
    return (sums[0], sums[1]) if np.isfinite(sums).all() else None
