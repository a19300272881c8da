"""Group policy gradient by name: how ratios are taken, clipped and averaged, as plain functions.

Source: GRPO (arXiv 2402.03300), GSPO (arXiv 2507.18071), DAPO (arXiv 2503.14476), Dr. GRPO (arXiv
2503.20783).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from refork.errors import BadInput

Ratio = Literal["token", "sequence"]
Average = Literal["tokens", "rows", "constant"]
Overlong = Literal["keep", "mask", "soft"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyGradientSettings:
    """Of one update; :func:`objective` gives the published choices by name.

    ``ratio``: of each token, or of its row's whole learned text. The ratio is clipped to
    [1 - ``clip_low``, 1 + ``clip_high``]. ``average``: every learned token of the batch weighs the same
    (``tokens``), every row does (``rows``), or each token weighs 1 / (rows x ``longest``) (``constant``).
    ``kl_weight`` above 0 needs reference log-probs in the batch. ``micro_rows`` bounds the rows of one
    forward pass; gradients are accumulated over the passes, so it does not change the update.
    """

    clip_low: float = 0.2
    clip_high: float = 0.2
    kl_weight: float = 0.0
    max_grad_norm: float = 1.0
    micro_rows: int = 32
    ratio: Ratio = "token"
    average: Average = "tokens"
    longest: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.clip_low < 1 or self.clip_high <= 0:
            raise BadInput("clip_low must be in (0, 1) and clip_high above 0", where="policy gradient")
        if self.kl_weight < 0 or self.max_grad_norm <= 0 or self.micro_rows < 1:
            raise BadInput(
                "kl_weight must be 0 or more, max_grad_norm above 0, micro_rows at least 1",
                where="policy gradient",
            )
        if self.ratio not in ("token", "sequence"):
            raise BadInput(f"unknown ratio {self.ratio!r}", hint="known: token, sequence")
        if self.average not in ("tokens", "rows", "constant"):
            raise BadInput(f"unknown average {self.average!r}", hint="known: tokens, rows, constant")
        if self.average == "constant" and (self.longest is None or self.longest < 1):
            raise BadInput(
                "a constant average needs longest, the most tokens that a row may learn",
                where="policy gradient",
            )


#: What each published objective sets; everything else is left as it is.
OBJECTIVES: dict[str, dict[str, Any]] = {
    "plain": {},
    "grpo": {"average": "rows"},
    "gspo": {"ratio": "sequence", "average": "rows", "clip_low": 3e-4, "clip_high": 4e-4},
    "dapo": {"clip_high": 0.28},
    "dr-grpo": {"average": "constant"},
}


def objective(name: str, **changes: Any) -> PolicyGradientSettings:
    """The settings of a published objective, with some changed.

    ``plain``: token ratio, symmetric clip, mean over all tokens. ``grpo``: mean over rows of the mean over
    a row's tokens. ``gspo``: the ratio of whole rows, clipped to [1 - 3e-4, 1 + 4e-4]. ``dapo``: clip
    [0.8, 1.28], mean over all tokens. ``dr-grpo``: a constant divisor, so give ``longest``. What a paper
    does to rewards and advantages is not part of a loss: credit ``grpo`` has ``normalise="mean"`` for
    Dr. GRPO, and :func:`overlong_penalty` is DAPO's.

    Raises:
        BadInput: no such objective or setting.
    """
    if name not in OBJECTIVES:
        raise BadInput(f"unknown objective {name!r}", hint="known: " + ", ".join(OBJECTIVES))
    unknown = sorted(set(changes) - set(PolicyGradientSettings.__dataclass_fields__))
    if unknown:
        raise BadInput(f"objectives have no setting {unknown[0]!r}", where="policy gradient")
    return PolicyGradientSettings(**OBJECTIVES[name] | changes)


def sequence_anchor(logprobs: Tensor, sampled: Tensor, mask: Tensor) -> Tensor:
    """Constants [b, n] against which each token's ratio has the value of its row's ratio.

    A row's ratio is the geometric mean of its learned tokens' ratios. Its gradient stays with each token
    (the paper's token form), so that advantages may differ along a row; where they do not, value and
    gradient are those of the plain sequence form. On a tree a row learns only what its trajectory drew alone,
    so that is its sequence: ours, the papers know no trees.

    Args:
        logprobs: of the present policy [b, n].
        sampled: when the tokens were drawn [b, n].
        mask: learned tokens [b, n].

    Source: GSPO (arXiv 2507.18071), equations 6 and 13-14.
    """
    fixed = logprobs.detach()
    # torch.where and not a product with the mask: NaN times 0 stays NaN.
    difference = torch.where(mask, fixed - sampled, 0.0)
    mean = difference.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)
    return fixed - mean


def token_weights(mask: Tensor, average: Average, *, rows: int, tokens: int, longest: int | None) -> Tensor:
    """Weight of each token's loss [b, n], 0 where nothing is learned.

    Args:
        mask: learned tokens of some rows of a batch [b, n].
        average: see :class:`PolicyGradientSettings`.
        rows: rows of the whole batch that learn something.
        tokens: learned tokens of the whole batch.
        longest: divisor per row of a ``constant`` average.
    """
    learned = mask.to(torch.float64)
    if average == "tokens":
        return learned / tokens
    if average == "rows":
        return learned / mask.sum(-1, keepdim=True).clamp(min=1) / rows
    return learned / (rows * float(longest or 1))


def overlong_penalty(lengths: ArrayLike, limit: int, soft: int) -> NDArray[np.float64]:
    """What is added to rewards of long answers, in [-1, 0]: 0 up to limit - soft tokens, -1 beyond the limit.

    Between, it falls linearly.

    Args:
        lengths: sampled tokens of each answer [n].
        limit: the longest allowed answer.
        soft: tokens before the limit over which the penalty grows.

    Raises:
        BadInput: ``soft`` is not in 1 .. limit.

    Source: DAPO (arXiv 2503.14476), equation 13.
    """
    if not 0 < soft <= limit:
        raise BadInput(
            f"the soft part of an overlong limit of {limit} is {soft}; it must be in 1 .. {limit}",
            where="overlong",
        )
    said = np.asarray(lengths, dtype=np.float64).reshape(-1)
    return np.clip((limit - soft - said) / soft, -1.0, 0.0)
