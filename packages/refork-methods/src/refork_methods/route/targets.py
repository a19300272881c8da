"""What stage 1 is fitted to: softmax targets of mean rewards, the loss against them, and its exact head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from refork.errors import BadInput
from refork_methods.route.head import softmax


@final
@dataclass(frozen=True, slots=True, eq=False)
class Targets:
    """Target chances [n, L] (0 where a worker was not tried), which were tried, and the queries' weights [n].

    Weights have mean 1.
    """

    chances: Float[np.ndarray, "n workers"]
    known: Bool[np.ndarray, "n workers"]
    weight: Float[np.ndarray, "n"]

    def take(self, rows: Int[np.ndarray, "some"]) -> Targets:
        """The targets of some queries."""
        return Targets(self.chances[rows], self.known[rows], self.weight[rows])

    def mean(self) -> Float[np.ndarray, "workers"]:
        """The best constant chances where every worker was tried everywhere; else their weighted mean."""
        w = self.weight[:, None] * self.known
        return np.asarray((w * self.chances).sum(axis=0) / np.maximum(w.sum(axis=0), 1e-300))


def targets(
    rewards: Float[np.ndarray, "n workers"],
    counts: Int[np.ndarray, "n workers"],
    tau: float,
    *,
    spread: float = 1.0,
) -> Targets:
    """Softmax of mean rewards over ``tau`` (times ``spread``, the rewards' range), over the workers tried.

    A query's weight is the harmonic mean of its tried workers' repeats: its differences are as noisy as that
    many repeats of each would be. Equal repeats give equal weights.

    Raises: BadInput for a tau that is not positive, or a query with fewer than two workers tried.
    Source: arXiv:2606.21228 (targets); it names no tau and no weights: those, and what is done about workers
    that were not tried (targets over the others, compared with the policy given that it is one of them),
    are ours.
    """
    if not (np.isfinite(tau) and tau > 0):
        raise BadInput(f"tau is {tau!r}; it must be positive")
    known = ~np.isnan(rewards)
    tried = known.sum(axis=1)
    if (tried < 2).any():
        raise BadInput(
            f"{int((tried < 2).sum())} queries have outcomes of fewer than two workers",
            where=f"query {int((tried < 2).argmax())}",
        )
    chances = softmax(np.where(known, rewards / (tau * spread), -np.inf))
    repeats = np.where(known, np.maximum(counts, 1), 1).astype(np.float64)
    weight = tried / np.where(known, 1 / repeats, 0.0).sum(axis=1)
    return Targets(chances, known, weight / weight.mean())


def kl(scores: Float[Tensor, "n workers"], wanted: Targets) -> Float[Tensor, ""]:
    """Weighted mean over queries of KL(target || policy given the workers tried), nats. Differentiable."""
    p = torch.as_tensor(wanted.chances).to(scores)
    known = torch.as_tensor(wanted.known, device=scores.device)
    weight = torch.as_tensor(wanted.weight).to(scores)
    logq = torch.log_softmax(scores.masked_fill(~known, -torch.inf), dim=1)
    logq = logq.masked_fill(~known, 0.0)
    entropy = torch.special.xlogy(p, p).sum(dim=1)
    loss: Tensor = (weight * (entropy - (p * logq).sum(dim=1))).sum() / weight.sum()
    return loss


def mean_kl(chances: Float[np.ndarray, "n workers"], wanted: Targets) -> float:
    """:func:`kl` of chances instead of scores."""
    floor = np.log(np.maximum(chances, 1e-300))
    return float(kl(torch.as_tensor(floor, dtype=torch.float64), wanted))


def fit_weights(
    states: Float[np.ndarray, "n d"], wanted: Targets, ridge: float = 0.0
) -> Float[np.ndarray, "workers d"]:
    """The bias-free map [L, d] that minimises the KL plus ``ridge / 2`` times its mean square score.

    Convex: L-BFGS in float64 finds the minimum. The ridge is of the scores, not of the weights, so that it
    means the same whatever the scale of the states. Where several maps give the same scores, the smallest.

    Raises: BadInput for a negative ridge, states that are not finite or all zero, or another number of rows.
    """
    if not (np.isfinite(ridge) and ridge >= 0):
        raise BadInput(f"ridge is {ridge!r}; it must be 0 or more")
    h = np.asarray(states, dtype=np.float64)
    if h.ndim != 2 or len(h) != len(wanted.weight) or not np.isfinite(h).all() or not h.any():
        raise BadInput(f"states {h.shape} are not finite rows, and some, for {len(wanted.weight)} queries")
    # In white states the problem is about as round as it gets: tens of steps, where it took thousands.
    left, size, right = np.linalg.svd(h, full_matrices=False)
    kept = size > size[0] * np.finfo(np.float64).eps * max(h.shape)
    x = torch.as_tensor(left[:, kept] * np.sqrt(len(h)))
    w = torch.zeros((wanted.chances.shape[1], x.shape[1]), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [w], max_iter=1000, history_size=30, tolerance_grad=1e-8, tolerance_change=1e-12,
        line_search_fn="strong_wolfe",
    )  # fmt: skip

    def closure() -> Tensor:
        optimizer.zero_grad()
        scores = x @ w.T
        loss = kl(scores, wanted) + ridge / 2 * scores.square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return np.asarray((w.detach().numpy() * np.sqrt(len(h)) / size[kept]) @ right[kept])
