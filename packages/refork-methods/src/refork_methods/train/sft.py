"""Supervised fine-tuning: cross-entropy on the tokens that a mask names."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from refork.errors import BadInput
from refork.types import IntArray, Json

#: Called after every step: (done, total, note).
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class Example:
    """One training sequence: ``tokens`` [n] and which of them are learned, ``mask`` [n]."""

    tokens: IntArray
    mask: np.ndarray[Any, np.dtype[np.bool_]]

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.mask):
            raise BadInput(f"{len(self.tokens)} tokens but {len(self.mask)} mask entries", where="example")


@dataclass(frozen=True, slots=True, kw_only=True)
class SftSettings:
    """How long and how fast: AdamW, linear warm-up, cosine decay to ``final_rate``."""

    steps: int
    rows: int = 16
    learning_rate: float = 2e-3
    final_rate: float = 1e-5
    warmup: int = 20
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.98)
    max_grad_norm: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps < 1 or self.rows < 1:
            raise BadInput("steps and rows must be at least 1", where="sft settings")


def masked_cross_entropy(logits: Tensor, tokens: Tensor, mask: Tensor) -> Tensor:
    """Mean negative log-likelihood in nats per learned token, a scalar.

    ``logits`` [b, n, v]; ``tokens`` and ``mask`` [b, n]. Token t is predicted by the logits at t - 1,
    so the first token of a row is never learned.
    """
    learned = mask[:, 1:]
    if not bool(learned.any()):
        raise BadInput("no token is marked to be learned", where="loss mask")
    # Only learned places go to float32: a float32 copy of all logits would be the step's largest tensor.
    picked = logits[:, :-1][learned]
    return torch.nn.functional.cross_entropy(picked.float(), tokens[:, 1:][learned])


def pad_right(examples: Sequence[Example]) -> tuple[Tensor, Tensor]:
    """Tokens and learned-token mask of some examples, both [len(examples), longest].

    The first token of an example is never learned: nothing of its own precedes it.
    """
    shape = (len(examples), max(len(item.tokens) for item in examples))
    tokens, mask = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=bool)
    for row, item in enumerate(examples):
        tokens[row, : len(item.tokens)] = item.tokens
        mask[row, 1 : len(item.tokens)] = item.mask[1:]
    return torch.from_numpy(tokens), torch.from_numpy(mask)


def learning_rate(step: int, settings: SftSettings) -> float:
    """The rate at a step (0-based): linear warm-up, then a cosine to ``final_rate`` behind the last."""
    if step < settings.warmup:
        return settings.learning_rate * (step + 1) / settings.warmup
    share = (step - settings.warmup) / max(1, settings.steps - settings.warmup)
    fall = 0.5 * (1 + math.cos(math.pi * min(1.0, share)))
    return settings.final_rate + (settings.learning_rate - settings.final_rate) * fall


def batch_order(lengths: Sequence[int], rows: int, steps: int, seed: int) -> Iterator[list[int]]:
    """Example numbers of each step's batch: every one once per epoch, in batches of similar length.

    Each epoch is shuffled, then sorted by length within pools of 16 batches, then its batches are shuffled.
    What is left over at the end of an epoch makes a smaller batch.
    """
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.tensor(lengths)
    done = 0
    while done < steps:
        order = torch.randperm(len(sizes), generator=generator)
        pools = (pool[torch.argsort(sizes[pool], stable=True)] for pool in torch.split(order, 16 * rows))
        batches = [batch for pool in pools for batch in torch.split(pool, rows)]
        for number in torch.randperm(len(batches), generator=generator)[: steps - done].tolist():
            yield batches[number].tolist()
            done += 1


def train(
    model: Any, examples: Sequence[Example], settings: SftSettings, progress: Progress | None = None
) -> list[Json]:
    """Train a causal LM in place; returns one record per step: step, loss, grad_norm, learning_rate, tokens.

    Batches are padded on the right. A causal model's real tokens never see what is to their right, so no
    attention mask is needed, and attention takes its fastest path.

    Raises:
        BadInput: no examples, or a batch in which nothing is learned.
    """
    if not examples:
        raise BadInput("there is nothing to train on")
    device = next(model.parameters()).device
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=settings.learning_rate,
        betas=settings.betas,
        weight_decay=settings.weight_decay,
    )
    lengths = [len(item.tokens) for item in examples]
    log: list[Json] = []
    model.train()
    for step, chosen in enumerate(batch_order(lengths, settings.rows, settings.steps, settings.seed)):
        rate = learning_rate(step, settings)
        for group in optimizer.param_groups:
            group["lr"] = rate
        tokens, mask = (part.to(device) for part in pad_right([examples[i] for i in chosen]))
        loss = masked_cross_entropy(model(input_ids=tokens, use_cache=False).logits, tokens, mask)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
        optimizer.step()
        log.append(
            {
                "step": step,
                "loss": float(loss.detach()),
                "grad_norm": float(norm),
                "learning_rate": rate,
                "tokens": sum(lengths[i] for i in chosen),
            }
        )
        if progress is not None:
            progress(step + 1, settings.steps, f"loss {log[-1]['loss']:.3f}")
    model.eval()
    return log
