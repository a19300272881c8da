"""From examples and their hidden states to lessons, and what a drafter makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final, Literal, final

import numpy as np
import torch
from torch import Tensor

from refork.types import FloatArray, IntArray
from refork_methods.speculate.anchors import block_mask, block_tokens
from refork_methods.speculate.config import DraftConfig
from refork_methods.speculate.data import Example, Features
from refork_methods.speculate.loss import (
    DraftLoss,
    DraftMetrics,
    LossWeights,
    accept_rates,
    confidence_cumprod_bias,
    draft_loss,
    kept_rates,
    tau_prob,
)
from refork_methods.speculate.model import Drafter, Lesson

Number = Literal["float32", "bfloat16"]

_TABLES: Final = 8
"""Tables of logits that a pass and its gradient hold at once, roughly."""
_SCORES: Final = 4


@final
@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """An example by number, and its anchors [a] with at least one position to learn each."""

    number: int
    anchors: np.ndarray


@final
@dataclass(frozen=True, slots=True, eq=False)
class Goals:
    """At the learned positions [k]: tokens, the target's last state before each, the place in the block.

    ``greedy`` [n]: whether the examples were said at temperature 0.
    """

    tokens: Tensor
    states: Tensor
    positions: Tensor
    greedy: np.ndarray


@final
@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """A lesson's loss, c* and confidence (chances) over its blocks [blocks, g], and which positions count.

    ``agree`` [blocks, g]: the likeliest tokens are the same; ``greedy`` [blocks]: of examples that are.
    """

    loss: DraftLoss
    accept: np.ndarray
    agree: np.ndarray
    greedy: np.ndarray
    confidence: np.ndarray | None
    learned: np.ndarray
    weight: float


def lesson_weight(examples: Sequence[Example], chosen: Sequence[Chosen], weights: np.ndarray) -> float:
    """The sum of position weights of what is to be learned."""
    masks = [block_mask(examples[c.number].supervised, c.anchors, len(weights)) for c in chosen]
    return float(sum((mask * weights).sum() for mask in masks))


def make_lesson(
    examples: Sequence[Example],
    chosen: Sequence[Chosen],
    features: Features,
    block: int,
    device: torch.device,
) -> tuple[Lesson, Goals]:
    """The blocks of some examples as one lesson, rows padded to the longest context and most anchors."""
    states = features.of([c.number for c in chosen])
    # No block sees anything from its anchor on, so states behind the last anchor are not carried along.
    longest = max(int(c.anchors.max()) for c in chosen)
    most = max(len(c.anchors) for c in chosen)
    n, (_, layers, width) = len(chosen), states[0].shape
    context = np.zeros((n, max(longest, 1), layers - 1, width), dtype=np.float32)
    anchors = np.zeros((n, most), dtype=np.int64)
    tokens = np.zeros((n, most, block + 1), dtype=np.int64)
    learned = np.zeros((n, most, block), dtype=bool)
    goals = []
    for row, (item, found) in enumerate(zip(chosen, states, strict=True)):
        example, a = examples[item.number], len(item.anchors)
        seen = min(len(found), longest)
        context[row, :seen] = found[:seen, :-1]
        anchors[row, :a] = item.anchors
        tokens[row, :a] = block_tokens(example.tokens, item.anchors, block)
        learned[row, :a] = block_mask(example.supervised, item.anchors, block)
        goals.append(_last_states(found, item.anchors, learned[row, :a]))
    lesson = Lesson(*(torch.from_numpy(part).to(device) for part in (context, anchors, tokens, learned)))
    return lesson, Goals(
        lesson.tokens[..., 1:][lesson.learned],
        torch.from_numpy(np.concatenate(goals)).to(device),
        lesson.learned.nonzero()[:, 2],
        np.array([examples[item.number].greedy for item in chosen]),
    )


def _last_states(states: FloatArray, anchors: IntArray, learned: np.ndarray) -> FloatArray:
    """The target's last hidden states from which it said each learned token, [k, width]."""
    block, place = np.nonzero(learned)
    return np.ascontiguousarray(states[anchors[block] + place, -1])


def study(
    draft: Drafter, lesson: Lesson, goals: Goals, weights: Tensor, terms: LossWeights, number: Number
) -> Outcome:
    """One pass of a drafter over a lesson; the target's distributions are made here, where needed."""
    device = lesson.anchors.device
    with torch.no_grad():
        target = draft.ends.logits(goals.states)
    with _precision(device, number):
        taught = draft.teach(lesson)
    loss = draft_loss(taught.logits, target, goals.tokens, weights[goals.positions], taught.confidence, terms)
    learned = lesson.learned.flatten(0, 1)
    rows = learned.any(-1).cpu().numpy()
    sure = None
    if taught.confidence is not None:
        sure = _spread(torch.sigmoid(taught.confidence.detach()), learned)[rows]
    return Outcome(
        loss,
        _spread(loss.accept, learned)[rows],
        _spread(loss.agree, learned)[rows],
        goals.greedy.repeat(lesson.anchors.shape[1])[rows],
        sure,
        learned.cpu().numpy()[rows],
        float(weights[goals.positions].sum()),
    )


def _precision(device: torch.device, number: Number) -> AbstractContextManager[object]:
    if number == "bfloat16":
        return torch.autocast(device.type, torch.bfloat16)
    return nullcontext()


def _spread(values: Tensor, learned: Tensor) -> np.ndarray:
    """Values of learned positions back in their blocks [blocks, g], 0 elsewhere."""
    found = torch.zeros(learned.shape, dtype=torch.float32, device=values.device)
    found[learned] = values.float()
    return found.cpu().numpy()


def summarise(outcomes: Sequence[Outcome]) -> DraftMetrics:
    """Figures over the blocks of several lessons; losses are means weighted by position weights."""
    total = sum(o.weight for o in outcomes)

    def mean(values: Sequence[Tensor]) -> float:
        return sum(float(v.detach()) * o.weight for v, o in zip(values, outcomes, strict=True)) / total

    accept = np.concatenate([o.accept for o in outcomes])
    learned = np.concatenate([o.learned for o in outcomes])
    agree = np.concatenate([o.agree for o in outcomes])
    greedy = np.concatenate([o.greedy for o in outcomes])
    sure = [o.confidence for o in outcomes if o.confidence is not None]
    losses = [o.loss.confidence for o in outcomes if o.loss.confidence is not None]
    return DraftMetrics(
        blocks=len(accept),
        ce=mean([o.loss.ce for o in outcomes]),
        tv=mean([o.loss.tv for o in outcomes]),
        confidence=mean(losses) if losses else None,
        total=mean([o.loss.total for o in outcomes]),
        tau_prob=tau_prob(accept, learned),
        accept_rate=accept_rates(accept, learned),
        confidence_cumprod_bias=(
            confidence_cumprod_bias(np.concatenate(sure), accept, learned) if sure else None
        ),
        kept_drawn=None if greedy.all() else kept_rates(accept[~greedy], learned[~greedy]),
        kept_greedy=kept_rates(agree[greedy], learned[greedy]) if greedy.any() else None,
    )


def block_bytes(config: DraftConfig, length: int) -> int:
    """About how much memory one block takes in training: logits several times over, scores of every layer."""
    distributions = config.block * config.vocabulary * _TABLES
    scores = config.layers * config.heads * config.slots * (length + config.slots) * _SCORES
    return 4 * (distributions + scores)


def parts(chosen: Sequence[Chosen], blocks: int, rows: int) -> Iterator[Sequence[Chosen]]:
    """At most ``blocks`` blocks (padding counted) of ``rows`` examples at a time; one example may come apart.

    Blocks do not see each other, so what they teach does not depend on which are taken together.
    """
    pieces = [
        Chosen(item.number, item.anchors[at : at + blocks])
        for item in chosen
        for at in range(0, len(item.anchors), blocks)
    ]
    taken: list[Chosen] = []
    for piece in pieces:
        most = max(len(one.anchors) for one in [*taken, piece])
        if taken and (most * (len(taken) + 1) > blocks or len(taken) == rows):
            yield taken
            taken = []
        taken.append(piece)
    if taken:
        yield taken
