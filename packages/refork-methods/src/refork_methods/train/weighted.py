"""Cross-entropy in which every token has a weight: what a model learns much of, little of, or not at all.

Training goes through the loop of :mod:`refork_methods.train.fit`, so it accumulates, saves and resumes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from refork.errors import BadInput
from refork.progress import Progress, silent
from refork.types import FloatArray, IntArray, Json
from refork_methods.train.fit import FitSettings, fit
from refork_methods.train.schedule import adamw
from refork_methods.train.tracker import Tracker


@dataclass(frozen=True, slots=True)
class Weighted:
    """One sequence: ``tokens`` [n] and the weight of each one's loss, ``weights`` [n]; 0 is not learned.

    ``kinds`` [n] numbers the names under which the losses of learned tokens are logged; None: one name.
    """

    tokens: IntArray
    weights: FloatArray
    kinds: IntArray | None = None

    def __post_init__(self) -> None:
        sizes = {len(part) for part in (self.weights, self.kinds) if part is not None}
        if sizes != {len(self.tokens)}:
            raise BadInput("the arrays of a weighted sequence differ in length", where="example")
        if not np.isfinite(self.weights).all() or (self.weights < 0).any():
            raise BadInput("weights must be finite and 0 or more", where="example")

    @property
    def total(self) -> float:
        """The sum of its weights; the first token, which nothing precedes, has none."""
        return float(self.weights[1:].sum(dtype=np.float64))


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedSettings(FitSettings):
    """Those of every fit, AdamW's ``betas``, and ``half``: compute in bfloat16.

    Weights and optimizer stay as they are under ``half``.
    """

    betas: tuple[float, float] = (0.9, 0.999)
    half: bool = False


def token_losses(logits: Float[Tensor, "b n v"], tokens: Int[Tensor, "b n"]) -> Float[Tensor, "b n-1"]:
    """Negative log-likelihood in nats of every token but the first of each row."""
    flat = torch.nn.functional.cross_entropy(
        logits[:, :-1].float().flatten(0, 1), tokens[:, 1:].flatten(), reduction="none"
    )
    return flat.view(len(tokens), -1)


def pad_weighted(examples: Sequence[Weighted]) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, weights and kinds of some sequences, padded on the right, each [len(examples), longest]."""
    shape = (len(examples), max(len(item.tokens) for item in examples))
    tokens, kinds = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    weights = np.zeros(shape, dtype=np.float32)
    for row, item in enumerate(examples):
        size = len(item.tokens)
        tokens[row, :size] = item.tokens
        weights[row, 1:size] = item.weights[1:]
        if item.kinds is not None:
            kinds[row, :size] = item.kinds
    return torch.from_numpy(tokens), torch.from_numpy(weights), torch.from_numpy(kinds)


def fit_weighted(
    model: Any,
    examples: Sequence[Weighted],
    settings: WeightedSettings,
    *,
    stage: str = "training",
    names: Sequence[str] = (),
    folder: Path | None = None,
    tracker: Tracker | None = None,
    progress: Progress = silent,
) -> list[Json]:
    """Fine-tune a causal LM in place; one record per step.

    The loss of a batch is the sum of weight x negative log-likelihood (nats) over the sum of weights, however
    it is split. With a share of each turn as its weight the numerator is the expectation of the loss that a
    coin per turn would keep, and the denominator that of the tokens it would keep. A record has for each kind
    (``names`` in the order of their numbers) its unweighted ``nll.NAME`` in nats, summed over ``tokens.NAME``
    tokens. With ``folder`` a stopped call goes on from its last checkpoint, bit for bit.

    Raises:
        BadInput: no sequences, or one in which nothing has a weight.
        Mismatch: the folder holds another run's checkpoints.
    """
    if not examples:
        raise BadInput("there is nothing to train on", where=stage)
    for number, item in enumerate(examples):
        if item.total <= 0:
            raise BadInput("no token of this sequence has a weight", where=f"sequence {number}")
    optimizer = adamw(model, settings.schedule, weight_decay=settings.weight_decay, betas=settings.betas)
    lengths = [len(item.tokens) for item in examples]
    order = settings.batches(lengths)
    model.train()

    def losses(step: int) -> Iterable[tuple[Tensor, Json]]:
        return _parts(model, [examples[i] for i in order[step]], settings, names)

    return fit(
        model, optimizer, losses, settings, stage=stage, folder=folder,
        digest="" if folder is None else examples_digest(examples, settings), tracker=tracker,
        progress=progress,
    )  # fmt: skip


def _parts(
    model: Any, chosen: Sequence[Weighted], settings: WeightedSettings, names: Sequence[str]
) -> Iterator[tuple[Tensor, Json]]:
    # The weights of the whole step, not of a part: otherwise the split into parts would change the loss.
    total = sum(item.total for item in chosen)
    size = settings.micro_rows or len(chosen)
    device = next(model.parameters()).device
    for first in range(0, len(chosen), size):
        tokens, weights, kinds = (part.to(device) for part in pad_weighted(chosen[first : first + size]))
        with torch.autocast(device.type, torch.bfloat16, enabled=settings.half, cache_enabled=False):
            logits = model(input_ids=tokens, use_cache=False).logits
        learned, used = weights[:, 1:] > 0, weights[:, 1:]
        nll = torch.nn.functional.cross_entropy(
            logits[:, :-1][learned].float(), tokens[:, 1:][learned], reduction="none"
        )
        yield (used[learned] * nll).sum() / total, _by_kind(nll.detach(), kinds[:, 1:][learned], names)


def _by_kind(nll: Tensor, kinds: Tensor, names: Sequence[str]) -> Json:
    record: Json = {"learned": len(nll)}
    if names:
        sums = torch.zeros(len(names), device=nll.device).index_add_(0, kinds, nll).tolist()
        counts = torch.bincount(kinds, minlength=len(names)).tolist()
        for name, value, count in zip(names, sums, counts, strict=True):
            record |= {f"nll.{name}": value, f"tokens.{name}": count}
    return record


def weighted_loss(model: Any, examples: Sequence[Weighted], rows: int = 32) -> float:
    """The weighted mean loss of a model on some sequences in nats, nothing trained; NaN without any."""
    loss = total = 0.0
    device = next(model.parameters()).device
    before = model.training
    model.eval()
    with torch.no_grad():
        for first in range(0, len(examples), rows):
            tokens, weights, _ = (part.to(device) for part in pad_weighted(examples[first : first + rows]))
            used = weights[:, 1:]
            losses = token_losses(model(input_ids=tokens, use_cache=False).logits, tokens)
            loss += float((used * losses).sum(dtype=torch.float64))
            total += float(used.sum(dtype=torch.float64))
    model.train(before)
    return loss / total if total else float("nan")


def mean_by_kind(log: Sequence[Json], names: Sequence[str]) -> dict[str, float | None]:
    """Mean negative log-likelihood per token of each kind over some records; None where it has no token."""
    found: dict[str, float | None] = {}
    for name in names:
        count = sum(row.get(f"tokens.{name}", 0) for row in log)
        found[name] = sum(row.get(f"nll.{name}", 0.0) for row in log) / count if count else None
    return found


def examples_digest(examples: Sequence[Weighted], settings: WeightedSettings) -> str:
    """What a run learns and how, 32 hex digits."""
    body = hashlib.blake2b(digest_size=16)
    body.update(json.dumps(asdict(settings), sort_keys=True).encode())
    for item in examples:
        # The length stands before the arrays, so that no other split of the same bytes has this digest.
        body.update(np.int64(len(item.tokens)).tobytes() + item.tokens.tobytes() + item.weights.tobytes())
    return body.hexdigest()
