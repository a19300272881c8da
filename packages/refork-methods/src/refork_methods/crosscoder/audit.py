"""Are the exclusive features exclusive? Capture, latent scaling and relative norm side by side.

A partition forbids a feature to write into the other model; it does not make what the feature means absent
there, and nothing in the loss puts a concept of A alone into A's block. So a block alone supports no claim.

Source: our own; the need for it from arXiv:2504.02922 (exclusive features that both models carry).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from refork.errors import CannotDo
from refork_methods.crosscoder.classes import (
    encoded_chunks,
    latent_scaling,
    norm_classes,
    relative_norm,
)
from refork_methods.crosscoder.model import CrossCoder
from refork_methods.crosscoder.partition import Side
from refork_methods.crosscoder.sources import Source

#: A feature with a ratio b_other / b_own below the one is exclusive, above the other carried by both.
EXCLUSIVE, CARRIED = 0.2, 0.5


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One live feature that writes into one model only; ratios of latent scaling, None where undefined."""

    feature: int
    in_block: bool
    relative_norm: float
    fires: float
    ratio_error: float | None
    ratio_rebuilt: float | None


@dataclass(frozen=True, slots=True)
class Audit:
    """What is exclusive to one model in a crosscoder.

    ``capture``: share of the live features which write into this model only that lie in its block; None where
    there is no block or no such feature. ``exclusive`` and ``carried``: shares of these features whose
    ``b_other / b_own`` on the error is below 0.2 and above 0.5; None where latent scaling could not be
    computed.
    """

    side: Side
    live: int
    block_size: int
    block_live: int
    capture: float | None
    exclusive: float | None
    carried: float | None
    rows: tuple[AuditRow, ...]


@torch.no_grad()
def exclusivity(model: CrossCoder, source: Source, side: Side = "A") -> Audit:
    """Audit what a crosscoder holds for one model alone, over held-out pairs."""
    share = relative_norm(model)
    own = "A only" if side == "A" else "B only"
    # A feature that writes nothing is nobody's: one half keeps it out of both classes.
    mine = np.array([kind == own for kind in norm_classes(np.nan_to_num(share, nan=0.5))])
    fires, count = torch.zeros(model.dict_size), 0
    for z, values in encoded_chunks(model, source):
        fires += (values > 0).sum(dim=0)
        count += len(z)
    live = (fires > 0).numpy()
    block = model.blocks[side]
    inside = np.zeros(model.dict_size, dtype=bool)
    inside[block] = True
    chosen = np.flatnonzero(mine & live)
    error: list[float | None] = [None] * len(chosen)
    rebuilt: list[float | None] = [None] * len(chosen)
    if model.d_in[0] == model.d_in[1] and len(chosen):
        scaling = latent_scaling(model, source, side)
        error = [_known(scaling.ratio("error", side)[i]) for i in chosen]
        rebuilt = [_known(scaling.ratio("rebuilt", side)[i]) for i in chosen]
    known = np.array([r for r in error if r is not None])
    rate = (fires / count).numpy()
    return Audit(
        side=side,
        live=int(live.sum()),
        block_size=block.stop - block.start,
        block_live=int((inside & live).sum()),
        capture=float(inside[chosen].mean()) if len(chosen) and block.stop > block.start else None,
        # The size counts: a strongly negative ratio is no sign that the other model lacks the direction.
        exclusive=float((np.abs(known) < EXCLUSIVE).mean()) if len(known) else None,
        carried=float((known > CARRIED).mean()) if len(known) else None,
        rows=tuple(
            AuditRow(int(i), bool(inside[i]), float(share[i]), float(rate[i]), e, r)
            for i, e, r in zip(chosen, error, rebuilt, strict=True)
        ),
    )


@dataclass(frozen=True, slots=True)
class ExclusivityClaim:
    """A sentence about what only one model has, which cannot be made without its evidence."""

    side: Side
    capture: float
    exclusive: float
    carried: float
    verdict: Literal["supported", "mixed", "not supported"]

    def __str__(self) -> str:
        return (
            f"features that only {self.side} has: {self.verdict}; capture {self.capture:.0%} (share of them "
            f"in {self.side}'s block), latent scaling: {self.exclusive:.0%} exclusive, "
            f"{self.carried:.0%} carried by both models"
        )


def claim(audit: Audit) -> ExclusivityClaim:
    """The claim "this block is what only this model has", with capture and latent scaling in it.

    Supported: nine tenths of the features exclusive, none carried by both, and half of them captured. Not
    supported: half of them or more carried by both. These borders are ours.

    Raises: CannotDo where either is missing: the block alone is no evidence.
    """
    if audit.capture is None or audit.exclusive is None or audit.carried is None:
        missing = "capture" if audit.capture is None else "latent scaling"
        raise CannotDo(
            f"nothing can be said about what only {audit.side} has: there is no {missing}",
            where="exclusivity",
            hint="capture needs a partition and a live exclusive feature; latent scaling needs equal widths",
        )
    if audit.carried >= 0.5:
        verdict: Literal["supported", "mixed", "not supported"] = "not supported"
    elif audit.exclusive >= 0.9 and audit.carried == 0 and audit.capture >= 0.5:
        verdict = "supported"
    else:
        verdict = "mixed"
    return ExclusivityClaim(audit.side, audit.capture, audit.exclusive, audit.carried, verdict)


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
