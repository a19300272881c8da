"""Loss and exact gradients of one batch in closed form, doing work only for the features that fire.

Reverse-mode differentiation would multiply every feature with every sample, although all but k of thousands
are 0. Only the encoder's forward product needs all of them. Everything here is on the normaliser's scale.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from refork_methods.crosscoder.select import Active


@dataclass(slots=True)
class Weights:
    """Parameters, or gradients by them: rows are features."""

    W_enc: Float[Tensor, "f d"]
    b_enc: Float[Tensor, "f"]
    W_dec: Float[Tensor, "f d"]
    b_dec: Float[Tensor, "d"]

    def parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The four tensors."""
        return self.W_enc, self.b_enc, self.W_dec, self.b_dec


def encoded(weights: Weights, z: Float[Tensor, "n d"]) -> Float[Tensor, "n f"]:
    """Values before anything is dropped: the encoder's output where it is above 0."""
    return torch.addmm(weights.b_enc, z, weights.W_enc.T).relu_()


def rebuilt(weights: Weights, active: Active, samples: int) -> Float[Tensor, "n d"]:
    """What the features that fire write, plus the decoder's bias."""
    starts = torch.searchsorted(active.rows, torch.arange(samples, device=active.rows.device))
    written = _bags(active.features, weights.W_dec, starts, active.values)
    return written.add_(weights.b_dec)


def sparse_gradients(
    weights: Weights,
    z: Float[Tensor, "n d"],
    active: Active,
    slope: Float[Tensor, "n d"],
    penalty: Float[Tensor, "f"] | None = None,
) -> Weights:
    """Gradients by all parameters from ``slope``, the loss's gradient by the reconstruction.

    ``penalty`` [f] is added to the gradient by each value that fires.
    """
    features = weights.W_dec.shape[0]
    slopes = _sampled(active, slope, weights.W_dec)
    if penalty is not None:
        slopes = slopes + penalty[active.features]
    # Stable, so that each feature's samples keep their order, and its float sums are the same in every run.
    order = torch.sort(active.features, stable=True)
    rows = active.rows[order.indices]
    starts = torch.searchsorted(order.values, torch.arange(features, device=rows.device))
    by_feature = slopes[order.indices]
    b_enc = torch.zeros_like(weights.b_enc).index_add_(0, order.values, by_feature)
    return Weights(
        W_enc=_bags(rows, z, starts, by_feature),
        b_enc=b_enc,
        W_dec=_bags(rows, slope, starts, active.values[order.indices]),
        b_dec=slope.sum(dim=0),
    )


def dense_gradients(
    weights: Weights,
    z: Float[Tensor, "n d"],
    values: Float[Tensor, "n f"],
    slope: Float[Tensor, "n d"],
    penalty: Float[Tensor, "f"] | None = None,
) -> Weights:
    """The same for values of which many fire: plain matrix products."""
    slopes = slope @ weights.W_dec.T
    if penalty is not None:
        slopes = slopes + penalty
    slopes = slopes * (values > 0)
    return Weights(slopes.T @ z, slopes.sum(dim=0), values.T @ slope, slope.sum(dim=0))


@dataclass(frozen=True, slots=True)
class Auxiliary:
    """What the auxiliary loss gave: its value before the coefficient, and how many features it taught."""

    loss: float
    taught: int


def auxiliary_gradients(
    weights: Weights,
    z: Float[Tensor, "n d"],
    values: Float[Tensor, "n f"],
    error: Float[Tensor, "n d"],
    dead: Int[Tensor, "q"],
    into: Weights,
    *,
    most: int,
    coefficient: float,
) -> Auxiliary:
    """Let dead features rebuild what the live ones missed; adds its gradients to ``into``.

    ``error`` is input minus reconstruction, taken as constant. At most ``most`` dead features a sample take
    part, those of largest value. The loss is divided by the error's own variance.

    Source: arXiv:2406.04093 (auxiliary loss), with the coefficient 1/32 and half the width as its
    defaults; arXiv:2504.02922 uses it for crosscoders.
    """
    quiet = values[:, dead]
    if len(dead) > most:
        found = quiet.topk(most, dim=1, sorted=False)
        quiet = torch.zeros_like(quiet).scatter_(1, found.indices, found.values)
    spread = float((error - error.mean(dim=0)).square().sum())
    # A perfect reconstruction leaves nothing to learn from, and would divide by 0.
    if spread <= 0:
        return Auxiliary(0.0, len(dead))
    missed = quiet @ weights.W_dec[dead] - error
    slope = missed * (2 * coefficient / spread)
    slopes = (slope @ weights.W_dec[dead].T) * (quiet > 0)
    into.W_dec.index_add_(0, dead, quiet.T @ slope)
    into.W_enc.index_add_(0, dead, slopes.T @ z)
    into.b_enc.index_add_(0, dead, slopes.sum(dim=0))
    return Auxiliary(float(missed.square().sum()) / spread, len(dead))


def _bags(
    indices: Int[Tensor, "p"],
    table: Float[Tensor, "t d"],
    starts: Int[Tensor, "q"],
    values: Float[Tensor, "p"],
) -> Float[Tensor, "q d"]:
    """Sums of table rows times values, one sum for each start."""
    return torch.nn.functional.embedding_bag(indices, table, starts, mode="sum", per_sample_weights=values)


def _sampled(active: Active, left: Float[Tensor, "n d"], right: Float[Tensor, "f d"]) -> Float[Tensor, "p"]:
    """``left @ right.T`` at the active entries only."""
    samples = left.shape[0]
    starts = torch.searchsorted(active.rows, torch.arange(samples + 1, device=left.device))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
        pattern = torch.sparse_csr_tensor(
            starts,
            active.features,
            torch.zeros_like(active.values),
            (samples, right.shape[0]),
            check_invariants=False,
        )
        found: Tensor = torch.sparse.sampled_addmm(pattern, left, right.T, beta=0.0)
    return found.values()
