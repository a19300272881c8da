"""From recorded trajectories to padded arrays: the recorded token ids, never tokenised again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from refork.errors import BadInput
from refork.tree.node import Node, Step, Trajectory
from refork.types import FloatArray, IntArray

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Sample:
    """One context with what is learned in it; every array is [n].

    ``mask`` names the learned tokens; ``logprobs_t1`` and ``advantages`` are read there only.
    """

    tokens: IntArray
    mask: Bools
    logprobs_t1: FloatArray
    advantages: Floats
    ref_logprobs: FloatArray | None = None

    def __post_init__(self) -> None:
        size = len(self.tokens)
        rest = [self.mask, self.logprobs_t1, self.advantages]
        rest += [] if self.ref_logprobs is None else [self.ref_logprobs]
        if any(len(part) != size for part in rest):
            raise BadInput(f"the arrays of a sample differ in length; it has {size} tokens")


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples padded on the right to one length; all tensors are [rows, length].

    ``attention`` is false on padding. ``mask`` is true on learned tokens only; elsewhere
    ``logprobs_t1`` and ``advantages`` mean nothing.
    """

    tokens: Tensor
    attention: Tensor
    mask: Tensor
    logprobs_t1: Tensor
    advantages: Tensor
    ref_logprobs: Tensor | None = None

    def _each(self, change: Callable[[Tensor], Tensor]) -> Batch:
        parts: list[Any] = [getattr(self, f.name) for f in fields(self)]
        changed: list[Any] = [None if part is None else change(part) for part in parts]
        return Batch(*changed)

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device."""
        return self._each(lambda part: part.to(device))

    def rows(self, chosen: Tensor) -> Batch:
        """Some rows, by number [k]."""
        return self._each(partial(torch.index_select, dim=0, index=chosen))

    def split(self, rows: int) -> Iterator[Batch]:
        """Consecutive parts of at most ``rows`` rows, each cut to its longest row."""
        for start in range(0, len(self.tokens), rows):
            part = self._each(
                partial(torch.narrow, dim=0, start=start, length=min(rows, len(self.tokens) - start))
            )
            if bool(part.mask.any()):
                width = int(part.attention.sum(1).max())
                yield part._each(partial(torch.narrow, dim=1, start=0, length=width))

    def shuffled(self, count: int, seed: int) -> Iterator[Batch]:
        """``count`` shuffled parts of nearly equal numbers of rows; in one part, as it is."""
        if count == 1:
            yield self
            return
        order = np.random.default_rng(seed).permutation(len(self.tokens))
        for rows in np.array_split(order, min(count, len(order))):
            part = self.rows(torch.from_numpy(np.sort(rows)))
            if bool(part.mask.any()):
                yield part


def pad(samples: Sequence[Sample], pad_id: int = 0) -> Batch:
    """One batch of several samples.

    The first token of a sample cannot be learned (nothing precedes it) and a learned token needs a
    finite log-prob and advantage.

    Raises:
        BadInput: no samples, or a learned token that breaks these rules.
    """
    if not samples:
        raise BadInput("there is nothing to train on", where="batch")
    shape = (len(samples), max(len(s.tokens) for s in samples))
    tokens = np.full(shape, pad_id, dtype=np.int64)
    attention, mask = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
    logprobs, advantages = np.zeros(shape, dtype=np.float32), np.zeros(shape, dtype=np.float32)
    reference = np.zeros(shape, dtype=np.float32)
    for row, item in enumerate(samples):
        if len(item.tokens) and item.mask[0]:
            raise BadInput("the first token of a sample cannot be learned", where=f"sample {row}")
        known = np.isfinite(item.logprobs_t1) & np.isfinite(item.advantages)
        if (item.mask & ~known).any():
            first = int(np.flatnonzero(item.mask & ~known)[0])
            raise BadInput(
                "a learned token has no log-prob or advantage", where=f"sample {row}, token {first}"
            )
        span = slice(0, len(item.tokens))
        tokens[row, span], attention[row, span], mask[row, span] = item.tokens, True, item.mask
        logprobs[row, span] = np.where(item.mask, item.logprobs_t1, 0.0)
        advantages[row, span] = np.where(item.mask, item.advantages, 0.0)
        if item.ref_logprobs is not None:
            reference[row, span] = item.ref_logprobs
    arrays: list[Any] = [tokens, attention, mask, logprobs, advantages]
    if all(item.ref_logprobs is not None for item in samples):
        arrays.append(reference)
    return Batch(*(torch.from_numpy(part) for part in arrays))


def sampled_tokens(node: Node) -> Bools:
    """Which tokens of a node its policy drew itself, [node.length].

    Only actions with recorded log-probs are sampled; forced tokens and tokens whose log-prob is not
    known were not drawn by the policy.
    """
    drawn = np.zeros(node.length, dtype=bool)
    if node.kind == "action" and node.logprobs_t1 is not None:
        drawn[:] = np.isfinite(node.logprobs_t1)
        drawn[: len((node.settings or {}).get("forced", ()))] = False
    return drawn


def contexts(trajectory: Trajectory) -> Iterator[list[Step]]:
    """Runs of steps that form one context each: a rewrite begins a new one."""
    run: list[Step] = []
    for step in trajectory:
        if step.node.kind == "rewrite" and run:
            yield run
            run = []
        if step.node.kind != "verdict":
            run.append(step)
    # What ended the episode was never shown to the policy and has no token ids.
    while run and run[-1].tokens is None and run[-1].node.kind != "action":
        run.pop()
    if run:
        yield run


def trajectory_samples(
    trajectory: Trajectory, advantages: ArrayLike, counted: set[tuple[str, int]] | None = None
) -> list[Sample]:
    """What one trajectory teaches: one sample per context (a rewrite begins a new context).

    Args:
        trajectory: a root-to-leaf trajectory whose nodes hold token ids.
        advantages: one number for the whole trajectory, or one per token of it (verdicts left out,
            rewritten contexts counted too: the concatenation over all its steps). NaN tokens are not learned.
        counted: (node, token) pairs already learned elsewhere; they are left out here, and those learned
            here are added. A token that many trajectories share was sampled once, and so counts once.

    Raises:
        BadInput: a step holds text without token ids, or the advantages have another length.
    """
    runs = list(contexts(trajectory))
    for step in (s for run in runs for s in run):
        if step.tokens is None and step.text:
            raise BadInput("this trajectory holds text without token ids", where=f"node {step.node.id[:12]}")
    lengths = [[0 if s.tokens is None else len(s.tokens) for s in run] for run in runs]
    total = sum(map(sum, lengths))
    given = np.asarray(advantages, dtype=np.float64)
    given = np.full(total, float(given)) if given.ndim == 0 else given
    if given.shape != (total,):
        raise BadInput(f"{given.size} advantages for a trajectory of {total} tokens", where="trajectory")
    samples: list[Sample] = []
    start = 0
    for run, counts in zip(runs, lengths, strict=True):
        size = sum(counts)
        part = given[start : start + size]
        start += size
        sample = _sample(run, part, set() if counted is None else counted)
        if sample is not None:
            samples.append(sample)
    return samples


def _sample(run: Sequence[Step], advantages: Floats, seen: set[tuple[str, int]]) -> Sample | None:
    tokens: list[NDArray[Any]] = [np.zeros(0, dtype=np.int32)]
    masks: list[NDArray[Any]] = [np.zeros(0, dtype=bool)]
    logprobs: list[NDArray[Any]] = [np.zeros(0, dtype=np.float32)]
    reference: list[NDArray[Any]] = [np.zeros(0, dtype=np.float32)]
    start = 0
    for step in run:
        kept = step.tokens
        if kept is None:
            continue
        size, node = len(kept), step.node
        mask = sampled_tokens(node)[:size] & np.isfinite(advantages[start : start + size])
        if start == 0 and size:
            mask[0] = False
        fresh = [t for t in np.flatnonzero(mask).tolist() if (node.id, t) not in seen]
        mask[:] = False
        mask[fresh] = True
        seen.update((node.id, t) for t in fresh)
        blank = np.full(size, np.nan, dtype=np.float32)
        tokens.append(kept)
        masks.append(mask)
        logprobs.append(blank if node.logprobs_t1 is None else node.logprobs_t1[:size])
        reference.append(blank if node.ref_logprobs is None else node.ref_logprobs[:size])
        start += size
    mask = np.concatenate(masks)
    if not mask.any():
        return None
    ref = np.concatenate(reference)
    # All learned tokens or none: a sample with gaps has no reference, and a KL term then refuses the batch.
    known = bool(np.isfinite(ref[mask]).all())
    return Sample(np.concatenate(tokens), mask, np.concatenate(logprobs), advantages, ref if known else None)


def trajectories_to_batch(
    trajectories: Sequence[Trajectory],
    advantages: Sequence[ArrayLike],
    pad_id: int = 0,
    *,
    once: bool = True,
) -> Batch:
    """A padded batch of recorded trajectories; learned are the tokens that the policy sampled, nothing else.

    Args:
        trajectories: trajectories with token ids.
        advantages: for each trajectory one number, or one per token of it (see :func:`trajectory_samples`).
        pad_id: fills up short rows; it is neither seen nor learned.
        once: a token that several trajectories share is learned in the first of them only.

    Raises:
        BadInput: no sampled token in any trajectory, or lengths that do not fit.
    """
    if len(trajectories) != len(advantages):
        raise BadInput(f"{len(trajectories)} trajectories but {len(advantages)} advantages")
    seen: set[tuple[str, int]] | None = set() if once else None
    samples = [
        sample
        for trajectory, given in zip(trajectories, advantages, strict=True)
        for sample in trajectory_samples(trajectory, given, seen)
    ]
    if not samples:
        raise BadInput(
            "none of these trajectories holds a token that the policy sampled",
            hint="only action nodes with recorded log-probs can be learned from",
        )
    return pad(samples, pad_id)
