"""Group policy gradient: advantages against a group's own mean, and the clipped token loss.

Source: PPO (arXiv 1707.06347) for the clipped surrogate, GRPO (arXiv 2402.03300) for group advantages
and the KL term, DAPO (arXiv 2503.14476) for the asymmetric clip and the mean over all tokens of the
batch, Dr. GRPO (arXiv 2503.20783) for advantages without division by the deviation.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from refork.errors import BadInput
from refork.types import Json
from refork_methods.train.batch import Batch
from refork_methods.train.objectives import PolicyGradientSettings, sequence_anchor, token_weights

Normalise = Literal["std", "mean"]


def group_advantages(
    rewards: ArrayLike, groups: ArrayLike, normalise: Normalise = "std"
) -> NDArray[np.float64]:
    """Reward minus its group's mean, [n]; with ``std`` also over the group's (population) deviation.

    A group whose rewards are all equal, but for rounding, gives exactly 0.0. An ungraded reward (NaN) stays
    NaN and takes no part in its group's mean.

    Args:
        rewards: floats [n].
        groups: group names or numbers [n].
        normalise: ``std`` (GRPO) or ``mean`` (Dr. GRPO).
    """
    earned = np.asarray(rewards, dtype=np.float64).reshape(-1)
    if normalise not in ("std", "mean"):
        raise BadInput(f"unknown normalisation {normalise!r}", hint="known: std, mean")
    names, member = np.unique(np.asarray(groups).reshape(-1), return_inverse=True)
    if len(member) != len(earned):
        raise BadInput(f"{len(earned)} rewards but {len(member)} group names")
    advantages = np.full(len(earned), np.nan)
    for group in range(len(names)):
        rows = np.flatnonzero((member == group) & np.isfinite(earned))
        if not len(rows):
            continue
        values = earned[rows]
        if np.ptp(values) <= 1e-9 * np.abs(values).max():
            advantages[rows] = 0.0
            continue
        centred = values - values.mean()
        advantages[rows] = centred / values.std() if normalise == "std" else centred
    return advantages


def token_logprobs(logits: Tensor, tokens: Tensor) -> Tensor:
    """Log-prob of each token given those before it at temperature 1, [b, n]; column 0 is 0.

    ``logits`` [b, n, v], ``tokens`` [b, n].
    """
    distribution = torch.log_softmax(logits[:, :-1].float(), dim=-1)
    picked = distribution.gather(-1, tokens[:, 1:, None]).squeeze(-1)
    return torch.nn.functional.pad(picked, (1, 0))


def token_entropy(logits: Tensor) -> Tensor:
    """Entropy in nats of the distribution each token was drawn from, [b, n]; column 0 is 0."""
    distribution = torch.log_softmax(logits[:, :-1].float(), dim=-1)
    return torch.nn.functional.pad(-(distribution.exp() * distribution).sum(-1), (1, 0))


def clipped_surrogate(
    logprobs: Tensor, sampled: Tensor, advantages: Tensor, clip_low: float = 0.2, clip_high: float = 0.2
) -> Tensor:
    """Token losses -min(r A, clip(r) A) with r = exp(logprobs - sampled); all arguments of one shape.

    ``sampled`` are the log-probs at the time of sampling, treated as constants.
    """
    ratio = torch.exp(logprobs - sampled.detach())
    bounded = ratio.clamp(1 - clip_low, 1 + clip_high)
    return -torch.minimum(ratio * advantages, bounded * advantages)


def clip_share(
    logprobs: Tensor, sampled: Tensor, advantages: Tensor, clip_low: float, clip_high: float
) -> Tensor:
    """1.0 where the clip stops the gradient of a token, else 0.0; same shape as the arguments."""
    ratio = torch.exp(logprobs - sampled)
    high = (ratio > 1 + clip_high) & (advantages > 0)
    low = (ratio < 1 - clip_low) & (advantages < 0)
    return (high | low).float()


def kl_k3(logprobs: Tensor, reference: Tensor) -> Tensor:
    """The k3 estimate of KL(policy || reference) per token: exp(d) - d - 1 with d = reference - policy.

    Never negative; unbiased for tokens that the policy sampled.
    Source: Schulman, Approximating KL divergence (2020); GRPO (arXiv 2402.03300), equation 4.
    """
    difference = reference.detach() - logprobs
    # expm1, since exp(d) - 1 loses its digits where the two models nearly agree, which is the usual case.
    return torch.expm1(difference) - difference


def _micro_loss(
    model: Any, part: Batch, settings: PolicyGradientSettings, rows: int, tokens: int
) -> tuple[Tensor, Json]:
    """A part's share of the loss, and its sums that make the metrics."""
    output = model(input_ids=part.tokens, attention_mask=part.attention.long(), use_cache=False)
    learned = part.mask
    every = token_logprobs(output.logits, part.tokens)
    base = part.logprobs_t1
    if settings.ratio == "sequence":
        base = sequence_anchor(every, base, learned)
    weights = token_weights(learned, settings.average, rows=rows, tokens=tokens, longest=settings.longest)
    # Only learned tokens enter any sum: NaN in the padding or in the prompt cannot spread.
    logprobs, sampled, weight = every[learned], part.logprobs_t1[learned], weights[learned].to(every.dtype)
    anchor, advantages = base[learned], part.advantages[learned]
    clip = (settings.clip_low, settings.clip_high)
    loss = (weight * clipped_surrogate(logprobs, anchor, advantages, *clip)).sum()
    fixed = logprobs.detach()
    gap = (fixed - sampled).abs()
    sums: Json = {
        "surrogate": float(loss.detach()),
        "sampler_difference": float(gap.sum()) / tokens,
        "entropy": float(token_entropy(output.logits.detach())[learned].sum()) / tokens,
        "clip_share": float(clip_share(fixed, anchor, advantages, *clip).sum()) / tokens,
        "sampler_difference_max": float(gap.max()),
    }
    if settings.kl_weight > 0:
        if part.ref_logprobs is None or not bool(torch.isfinite(part.ref_logprobs[learned]).all()):
            raise BadInput(
                "kl_weight is set, but some learned tokens have no reference log-probs",
                where="policy gradient",
                hint="sample with a reference model, or set kl_weight to 0",
            )
        divergence = kl_k3(logprobs, part.ref_logprobs[learned])
        loss = loss + settings.kl_weight * (weight * divergence).sum()
        sums["kl"] = float((weight * divergence.detach()).sum())
    return loss, sums


def policy_gradient_step(
    model: Any, optimizer: torch.optim.Optimizer, batch: Batch, settings: PolicyGradientSettings | None = None
) -> Json:
    """Make one update of a causal LM in place and return its metrics.

    The loss is averaged as ``settings.average`` says; by default over all learned tokens of the batch, so
    that a long trajectory weighs more than a short one. The model runs in evaluation mode, so that dropout
    cannot move the log-probs.

    Returns:
        ``loss`` and its parts ``surrogate`` and ``kl`` (None without); means per learned token:
        ``sampler_difference`` (absolute difference between the recorded and the recomputed log-probs in
        nats; on policy, anything far above float error means that sampler and trainer disagree; its
        largest is ``sampler_difference_max``), ``entropy`` (nats), ``clip_share``; and ``grad_norm``
        (before clipping), ``tokens``, ``rows``.

    Raises:
        BadInput: no learned token, a missing reference, or a gradient that is not finite; then
            nothing is changed.
    """
    chosen = settings or PolicyGradientSettings()
    device = next(model.parameters()).device
    # Counted over the whole batch, so that the parts of different sizes below add up to its loss.
    total, rows = int(batch.mask.sum()), int(batch.mask.any(1).sum())
    if total == 0:
        raise BadInput("no token of this batch is learned", where="policy gradient")
    model.eval()
    optimizer.zero_grad(set_to_none=True)
    sums: dict[str, float] = {}
    for part in batch.split(chosen.micro_rows):
        loss, terms = _micro_loss(model, part.to(device), chosen, rows, total)
        loss.backward()  # type: ignore[no-untyped-call]
        worst = max(sums.get("sampler_difference_max", 0.0), terms["sampler_difference_max"])
        for name, value in terms.items():
            sums[name] = sums.get(name, 0.0) + value
        sums["sampler_difference_max"] = worst
    trained = [p for p in model.parameters() if p.requires_grad]
    norm = torch.nn.utils.clip_grad_norm_(trained, chosen.max_grad_norm)
    if not bool(torch.isfinite(norm)):
        optimizer.zero_grad(set_to_none=True)
        raise BadInput("the gradient is not finite; no update was made", where="policy gradient")
    optimizer.step()
    divergence = sums.pop("kl", None)
    loss_mean = sums["surrogate"] + chosen.kl_weight * (divergence or 0.0)
    return {
        "loss": loss_mean,
        **sums,
        "kl": divergence,
        "grad_norm": float(norm),
        "tokens": total,
        "rows": len(batch.tokens),
    }
