"""All targets of a trajectory in one pass: the history is computed once, each answer is a branch of it.

An answer with reasoning is not what later turns see: they see the observation alone. So the answers cannot
stand in one plain sequence. Here the history is a chain, and each answer hangs on the token of the chain that
it follows: it sees the chain up to there and itself, and its positions are counted from there. Losses and
gradients are those of one sequence per target, for a fraction of the tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from refork.errors import BadInput
from refork.policies.local import LocalPolicy
from refork.progress import Progress, silent
from refork.types import IntArray, Json
from refork.worlds.environment import EnvTrajectory
from refork_methods.simulate.cpt import Trained, context_of
from refork_methods.simulate.encode import Writer, encode_trajectory
from refork_methods.simulate.prompt import answer
from refork_methods.train.fit import fit
from refork_methods.train.schedule import adamw
from refork_methods.train.weighted import WeightedSettings


@dataclass(frozen=True, slots=True)
class Packed:
    """A chain of ``chain`` tokens and the branches behind it, all [n].

    ``branch`` is -1 on the chain, else the branch's number; ``stem`` the chain's token that a branch follows
    (on the chain: the token itself). ``positions`` count as if each branch followed its stem.
    """

    tokens: IntArray
    branch: IntArray
    stem: IntArray
    positions: IntArray
    chain: int

    @property
    def learned(self) -> int:
        """How many tokens are learned: all of the branches."""
        return len(self.tokens) - self.chain


def pack(writer: Writer, trajectory: EnvTrajectory, *, context: int | None = None) -> Packed | None:
    """The targets of a trajectory with their notes as reasoning; None where not even the first fits.

    Raises:
        BadInput: the chat template rewrites what came before, so that turns share no prefix.
    """
    order = range(len(trajectory.turns))
    wholes, kept = encode_trajectory(writer, trajectory, kinds=order, context=context)
    if not kept or not any(item.total for item in wholes):
        return None
    if len(wholes) != 1:
        raise BadInput("this chat template rewrites earlier turns; targets cannot share them", where="pack")
    chain = wholes[0]
    spoken = np.flatnonzero(np.diff((chain.weights > 0).astype(np.int8), prepend=0) == 1)
    # What follows the last answer's stem is only ever a branch.
    size = int(spoken[-1])
    parts = [np.asarray(chain.tokens[:size])]
    numbers, stems = [np.full(size, -1)], [np.arange(size)]
    positions = [np.arange(size)]
    last = int(chain.tokens[-1])
    end = [last] if last in writer.codec.eos_ids else []
    assert chain.kinds is not None
    for start in spoken.tolist():
        number = int(chain.kinds[start])
        turn = trajectory.turns[number]
        text = answer(turn.observation, turn.note)
        said = np.array([*writer.codec.encode(text).tolist(), *end])
        if context is not None and start + len(said) > context:
            continue
        parts.append(said)
        numbers.append(np.full(len(said), number))
        stems.append(np.full(len(said), start - 1))
        positions.append(start + np.arange(len(said)))
    if len(parts) == 1:
        return None
    tokens, branch, stem, place = (
        np.concatenate(x).astype(np.int32) for x in (parts, numbers, stems, positions)
    )
    return Packed(tokens, branch, stem, place, size)


def visible(item: Packed) -> Bool[np.ndarray[Any, Any], "n n"]:
    """Which token (column) each token (row) sees: the chain up to its stem, and its branch up to itself."""
    at = np.arange(len(item.tokens))
    chain = (item.branch[None, :] == -1) & (at[None, :] <= item.stem[:, None])
    own = (
        (item.branch[:, None] == item.branch[None, :])
        & (at[None, :] <= at[:, None])
        & (item.branch >= 0)[:, None]
    )
    return np.asarray(chain | own)


def sources(item: Packed) -> tuple[IntArray, IntArray]:
    """For each learned token the place whose logits predict it, and its own place."""
    own = np.flatnonzero(item.branch >= 0)
    first = item.branch[own] != item.branch[own - 1]
    before = np.where(first, item.stem[own], own - 1)
    return before.astype(np.int32), own.astype(np.int32)


def packed_losses(model: Any, items: Sequence[Packed], half: bool = False) -> Float[Tensor, " learned"]:
    """Negative log-likelihood in nats of every learned token of some packed trajectories, in their order."""
    device = next(model.parameters()).device
    width = max(len(item.tokens) for item in items)
    tokens = torch.zeros((len(items), width), dtype=torch.long)
    positions = torch.zeros((len(items), width), dtype=torch.long)
    # Padding sees itself: the softmax of a row that sees nothing would be NaN.
    mask = torch.eye(width, dtype=torch.bool).repeat(len(items), 1, 1)
    rows: list[Int[Tensor, " k"]] = []
    before: list[Int[Tensor, " k"]] = []
    after: list[Int[Tensor, " k"]] = []
    for row, item in enumerate(items):
        size = len(item.tokens)
        tokens[row, :size] = torch.from_numpy(item.tokens.astype(np.int64))
        positions[row, :size] = torch.from_numpy(item.positions.astype(np.int64))
        mask[row, :size, :size] = torch.from_numpy(visible(item))
        source, own = sources(item)
        rows.append(torch.full((len(own),), row))
        before.append(torch.from_numpy(source.astype(np.int64)))
        after.append(torch.from_numpy(own.astype(np.int64)))
    here, source_at, own_at = torch.cat(rows), torch.cat(before), torch.cat(after)
    bias = torch.zeros(mask.shape, dtype=torch.float32).masked_fill_(~mask, float("-inf"))[:, None]
    kind = torch.bfloat16 if half else torch.float32
    with torch.autocast(device.type, torch.bfloat16, enabled=half, cache_enabled=False):
        hidden = model.model(
            input_ids=tokens.to(device), position_ids=positions.to(device),
            attention_mask=bias.to(device, kind), use_cache=False,
        ).last_hidden_state  # fmt: skip
        logits = model.lm_head(hidden[here, source_at])
    return torch.nn.functional.cross_entropy(
        logits.float(), tokens[here, own_at].to(device), reduction="none"
    )


def train_packed(
    policy: LocalPolicy,
    trajectories: Iterable[EnvTrajectory],
    settings: WeightedSettings,
    *,
    context: int | None = None,
    progress: Progress = silent,
) -> Trained:
    """The second stage on every turn of trajectories; a step's loss is the mean over its learned tokens.

    ``settings.rows`` trajectories a step. The model is one of transformers'
    decoders with a body ``model`` and a head ``lm_head`` that takes masks of every pair of tokens.

    Raises:
        BadInput: nothing fits the context, or turns that share no prefix.
    """
    writer, window = Writer(policy.codec), context_of(policy, context)
    items = [one for item in trajectories if (one := pack(writer, item, context=window)) is not None]
    if not items:
        raise BadInput("there is nothing to train on", where="packed targets")
    lengths = [len(item.tokens) for item in items]
    order = settings.batches(lengths)
    optimizer = adamw(
        policy.model, settings.schedule, weight_decay=settings.weight_decay, betas=settings.betas
    )
    policy.model.train()

    def losses(step: int) -> Iterable[tuple[Tensor, Json]]:
        found = packed_losses(policy.model, [items[i] for i in order[step]], settings.half)
        yield found.mean(), {"learned": len(found), "tokens": sum(lengths[i] for i in order[step])}

    log = fit(policy.model, optimizer, losses, settings, stage="sft", progress=progress)
    policy.refresh()
    last = log[-max(1, len(log) // 10) :]
    facts: Json = {
        "sequences": len(items),
        "tokens": sum(lengths),
        "targets": int(sum(len(np.unique(item.branch)) - 1 for item in items)),
        "learned": sum(item.learned for item in items),
        "steps": len(log),
        "loss_first": log[0]["loss"],
        "loss_last": sum(row["loss"] for row in last) / len(last),
    }
    return Trained(log, facts)
