"""Direct preference optimisation: of whole answers, and of single tokens.

Source: DPO (arXiv 2305.18290), equation 7; single tokens as in Cliff-DPO.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from refork.errors import BadInput
from refork.progress import Progress, silent
from refork.types import IntArray, Json
from refork_methods.train.fit import FitSettings, fit
from refork_methods.train.policy_gradient import token_logprobs
from refork_methods.train.schedule import Schedule, adamw
from refork_methods.train.tracker import Tracker


@dataclass(frozen=True, slots=True)
class Pair:
    """After ``prompt``, ``chosen`` is better than ``rejected``; token ids, [n] each, never tokenised again.

    ``reference`` holds the reference model's summed log-probs in nats of chosen and rejected, once known.
    """

    prompt: IntArray
    chosen: IntArray
    rejected: IntArray
    reference: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        for name in ("prompt", "chosen", "rejected"):
            if not len(getattr(self, name)):
                raise BadInput(f"the {name} part of a pair is empty", where="preference pair")
        if np.array_equal(self.chosen, self.rejected):
            raise BadInput("chosen and rejected are the same tokens", where="preference pair")
        if self.reference is not None and not np.isfinite(self.reference).all():
            raise BadInput("a reference log-prob is not finite", where="preference pair")

    @property
    def single(self) -> bool:
        """Whether one token stands against one."""
        return len(self.chosen) == len(self.rejected) == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceSettings(FitSettings):
    """Those of every fit; ``beta`` scales log-ratios."""

    rows: int = 8
    beta: float = 0.1
    schedule: Schedule = field(default_factory=lambda: Schedule(peak=5e-6, shape="cosine"))
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        FitSettings.__post_init__(self)  # super() knows no dataclass with slots
        if not self.beta > 0:
            raise BadInput(f"beta is {self.beta!r}; it must be above 0", where="dpo settings")


def dpo_loss(
    chosen: Tensor, rejected: Tensor, ref_chosen: Tensor, ref_rejected: Tensor, beta: float
) -> Tensor:
    """Loss of each pair [b], -log sigmoid(beta x margin) in nats, from summed log-probs [b].

    The margin is the log-ratio of policy to reference of the chosen minus that of the rejected.
    """
    margin = (chosen - ref_chosen.detach()) - (rejected - ref_rejected.detach())
    return -torch.nn.functional.logsigmoid(beta * margin)


def single_token_loss(
    logits: Tensor, chosen: Tensor, rejected: Tensor, margin: Tensor, beta: float
) -> Tensor:
    """The same loss [b] where one token stands against one, from the logits [b, v] of their place.

    Both log-probs have the same normaliser, so the logits themselves are compared: the gradient is exactly
    0 in all other logits, and -/+ beta x sigmoid(-beta x margin) in these two.

    Args:
        logits: of the token after the prompt [b, v].
        chosen: token ids [b].
        rejected: token ids [b].
        margin: the reference's log-prob of the chosen minus that of the rejected [b], a constant.
        beta: scale.
    """
    picked = logits.gather(-1, torch.stack([chosen, rejected], -1))
    picked = picked.to(torch.promote_types(picked.dtype, torch.float32))
    return -torch.nn.functional.logsigmoid(beta * (picked[:, 0] - picked[:, 1] - margin))


def reference_scores(model: Any, pairs: Sequence[Pair], rows: int = 16) -> list[Pair]:
    """The pairs with summed log-probs of a model as their reference; known ones stay as they are."""
    found = list(pairs)
    open_ = [i for i, pair in enumerate(pairs) if pair.reference is None]
    was = model.training
    model.eval()
    with torch.no_grad():
        for first in range(0, len(open_), rows):
            part = open_[first : first + rows]
            both = _sums(model, [pairs[i] for i in part]).double().tolist()
            for place, i in enumerate(part):
                found[i] = replace(pairs[i], reference=(both[place], both[place + len(part)]))
    model.train(was)
    return found


def _sums(model: Any, pairs: Sequence[Pair]) -> Tensor:
    """Summed log-probs of the chosen answers, then of the rejected ones, [2 b]."""
    answers = [p.chosen for p in pairs] + [p.rejected for p in pairs]
    prompts = [p.prompt for p in pairs] * 2
    shape = (len(answers), max(len(p) + len(a) for p, a in zip(prompts, answers, strict=True)))
    tokens, mask = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=bool)
    for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        end = len(prompt) + len(answer)
        tokens[row, :end] = np.concatenate([prompt, answer])
        mask[row, len(prompt) : end] = True
    device = next(model.parameters()).device
    ids, learned = torch.from_numpy(tokens).to(device), torch.from_numpy(mask).to(device)
    # No attention mask: padding stands on the right, where a causal model's real tokens never look.
    found = token_logprobs(model(input_ids=ids, use_cache=False).logits, ids)
    return torch.where(learned, found, 0.0).sum(-1)


def _last_logits(model: Any, pairs: Sequence[Pair]) -> Tensor:
    """Logits of the token after each prompt [b, v]."""
    width = max(len(p.prompt) for p in pairs)
    tokens = np.zeros((len(pairs), width), dtype=np.int64)
    for row, pair in enumerate(pairs):
        tokens[row, : len(pair.prompt)] = pair.prompt
    device = next(model.parameters()).device
    logits: Tensor = model(input_ids=torch.from_numpy(tokens).to(device), use_cache=False).logits
    last = torch.tensor([len(p.prompt) - 1 for p in pairs], device=device)
    return logits[torch.arange(len(pairs), device=device), last]


def _pair_losses(model: Any, pairs: Sequence[Pair], beta: float) -> tuple[Tensor, Tensor]:
    """Losses and margins [b] of pairs whose reference is known."""
    device = next(model.parameters()).device
    known = torch.tensor([p.reference for p in pairs], dtype=torch.float64, device=device)
    if all(p.single for p in pairs):
        logits = _last_logits(model, pairs)
        chosen, rejected = (
            torch.tensor([int(getattr(p, name)[0]) for p in pairs], device=device)
            for name in ("chosen", "rejected")
        )
        base = known[:, 0] - known[:, 1]
        loss = single_token_loss(logits, chosen, rejected, base, beta)
    else:
        chosen, rejected = _sums(model, pairs).chunk(2)
        loss = dpo_loss(chosen, rejected, known[:, 0], known[:, 1], beta)
    # The margin is the loss inverted: beta x margin = -log(exp(loss) - 1).
    margin = -torch.log(torch.expm1(loss.detach().double()).clamp(min=1e-300)) / beta
    return loss, margin


def prefer(
    model: Any,
    pairs: Sequence[Pair],
    settings: PreferenceSettings,
    *,
    reference: Any | None = None,
    folder: Path | None = None,
    tracker: Tracker | None = None,
    progress: Progress = silent,
) -> list[Json]:
    """Train a causal LM in place on preference pairs; one record per step.

    A record has ``loss`` (mean over the pairs of the batch), ``margin`` (mean log-ratio difference before the
    step, nats), ``accuracy`` (share of pairs whose margin is above 0), ``pairs``.

    Args:
        model: the policy; it runs in evaluation mode, so that dropout does not move log-ratios.
        pairs: what is preferred.
        settings: of the run.
        reference: what log-ratios are against; None: this model as this call finds it (so a resumed call
            needs the model that the run began with). Pairs that know their reference scores keep them.
        folder: of checkpoints, from which a stopped call goes on bit for bit.
        tracker: told of every step.
        progress: the same.

    Raises:
        BadInput: no pairs, or a gradient that is not finite.
        Mismatch: the folder holds another run's checkpoints.
    """
    if not pairs:
        raise BadInput("there is no preference pair to train on", where="dpo")
    digest = _digest(pairs, settings)
    # Before fit() resumes: it puts trained weights into the very model that may be the reference.
    known = reference_scores(model if reference is None else reference, pairs)
    optimizer = adamw(model, settings.schedule, weight_decay=settings.weight_decay)
    sizes = [len(p.prompt) + max(len(p.chosen), len(p.rejected)) for p in pairs]
    order = settings.batches(sizes)
    model.eval()

    def losses(step: int) -> Iterable[tuple[Tensor, Json]]:
        chosen = [known[i] for i in order[step]]
        size = settings.micro_rows or len(chosen)
        for first in range(0, len(chosen), size):
            loss, margin = _pair_losses(model, chosen[first : first + size], settings.beta)
            yield (
                loss.sum() / len(chosen),
                {
                    "margin": float(margin.sum()) / len(chosen),
                    "accuracy": float((margin > 0).double().sum()) / len(chosen),
                    "pairs": len(loss),
                },
            )

    return fit(
        model, optimizer, losses, settings, stage="preference training", folder=folder, digest=digest,
        tracker=tracker, progress=progress,
    )  # fmt: skip


def _digest(pairs: Sequence[Pair], settings: PreferenceSettings) -> str:
    body = hashlib.blake2b(json.dumps(asdict(settings), sort_keys=True).encode(), digest_size=16)
    for pair in pairs:
        for part in (pair.prompt, pair.chosen, pair.rejected):
            # The length stands before the tokens: else the same ids, cut at another place, would have one
            # digest.
            body.update(np.int64(len(part)).tobytes() + np.asarray(part, dtype=np.int32).tobytes())
        if pair.reference is not None:
            body.update(np.asarray(pair.reference, dtype=np.float64).tobytes())
    return body.hexdigest()
