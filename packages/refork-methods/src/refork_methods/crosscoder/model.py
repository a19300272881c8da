"""The crosscoder: one sparse dictionary that reads and rebuilds the activations of two models at once.

Weights lie feature by feature: row i of ``W_enc`` is what feature i reads, row i of ``W_dec`` what it writes,
A's channels first, then B's. They live on the normaliser's scale, the normaliser lives in the model, and
``encode`` and ``decode`` speak raw activations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, final

import torch
from jaxtyping import Float
from torch import Tensor

from refork.errors import BadInput
from refork.types import Json
from refork_methods.crosscoder.normalizer import Normalizer
from refork_methods.crosscoder.partition import Block, Partition, Side
from refork_methods.crosscoder.select import batch_top_k, top_k

if TYPE_CHECKING:
    from refork.progress import Progress
    from refork_methods.crosscoder.sources import Source
    from refork_methods.crosscoder.train import Report, TrainSettings

Activation = Literal["topk", "batch_topk", "l1"]
Scoring = Literal["decoder_norm", "value"]
Start = Literal["random", "tied"]

NO_STATISTICS = "this crosscoder holds no normaliser statistics, so raw activations mean nothing to it"


@final
class CrossCoder(torch.nn.Module):
    """A plain or partitioned crosscoder over activations of widths ``d_in``.

    ``activation``: ``topk`` keeps the k largest of each sample; ``batch_topk`` the k times batch largest of a
    batch while training and those above a learned threshold afterwards; ``l1`` keeps whatever is above 0.
    ``scoring`` is what "largest" compares: the value (default of ``topk``), or the value times the feature's
    decoder norm summed over both models (default of ``batch_topk``), which no drift of norms can change.
    ``start``: ``random`` draws encoder and decoder apart, by the paper's distribution; ``tied`` begins with
    unit rows that both share. ``normalizer``: None until training has taken statistics. ``origin`` is kept
    with the weights: which layer and which policies the activations came from.

    Raises: BadInput for sizes below 1, a missing k or one above the dictionary, unknown names.
    Source: arXiv:2606.26474 (layout, TopK, initial values), arXiv:2602.11729 (dedicated features),
    arXiv:2504.02922 (BatchTopK and its threshold). Widths of A and B may differ, which is our own.
    """

    def __init__(
        self,
        d_in: tuple[int, int],
        dict_size: int,
        k: int | None = None,
        activation: Activation = "batch_topk",
        partition: Partition | None = None,
        normalizer: Normalizer | None = None,
        *,
        scoring: Scoring | None = None,
        start: Start = "random",
        seed: int = 0,
        origin: Json | None = None,
    ) -> None:
        super().__init__()
        _check(d_in, dict_size, k, activation, scoring)
        if start not in ("random", "tied"):
            raise BadInput(f"unknown start {start!r}", hint="random or tied")
        self.d_in, self.dict_size, self.k, self.activation = d_in, dict_size, k, activation
        self.scoring: Scoring = scoring or ("decoder_norm" if activation == "batch_topk" else "value")
        self.partition = partition or Partition()
        self.origin: Json = dict(origin or {})
        draw = torch.Generator().manual_seed(seed)
        width = d_in[0] + d_in[1]
        reads = torch.randn(dict_size, width, generator=draw)
        writes = torch.randn(dict_size, width, generator=draw) / math.sqrt(dict_size)
        if start == "tied":
            reads = reads / torch.linalg.vector_norm(reads, dim=1, keepdim=True)
            writes = reads.clone()
        else:
            reads[:, : d_in[0]] /= math.sqrt(d_in[0])
            reads[:, d_in[0] :] /= math.sqrt(d_in[1])
        self.W_enc, self.W_dec = torch.nn.Parameter(reads), torch.nn.Parameter(writes)
        self.b_enc = torch.nn.Parameter(torch.zeros(dict_size))
        self.b_dec = torch.nn.Parameter(torch.zeros(width))
        self.normalized = False
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))
        #: Scores above it fire; below 0: not known yet.
        self.register_buffer("threshold", torch.tensor(-1.0))
        #: Score weights that a fold has frozen; empty: the decoder's norms as they are now.
        self.register_buffer("frozen", torch.zeros(0))
        self.mean: Tensor
        self.scale: Tensor
        self.threshold: Tensor
        self.frozen: Tensor
        self.enforce_partition()
        if normalizer is not None:
            self.set_normalizer(normalizer)

    # -- parts ---------------------------------------------------------------------------------

    @property
    def blocks(self) -> Mapping[Block, slice]:
        """Where the A-exclusive, B-exclusive and shared features lie."""
        return self.partition.blocks(self.dict_size)

    def side(self, which: Side) -> slice:
        """Where a model's channels lie."""
        return slice(0, self.d_in[0]) if which == "A" else slice(self.d_in[0], sum(self.d_in))

    def forbidden(self) -> tuple[tuple[slice, slice], ...]:
        """Features and channels whose weights must be exactly 0, for encoder and decoder alike."""
        blocks = self.blocks
        return ((blocks["A"], self.side("B")), (blocks["B"], self.side("A")))

    @torch.no_grad()
    def enforce_partition(self) -> None:
        """Set every forbidden weight to exactly 0."""
        for features, channels in self.forbidden():
            self.W_enc[features, channels] = 0.0
            self.W_dec[features, channels] = 0.0

    @torch.no_grad()
    def forbidden_weight_max(self) -> float:
        """Largest absolute forbidden weight; 0 for a plain crosscoder."""
        parts = [w[f, c].abs() for w in (self.W_enc, self.W_dec) for f, c in self.forbidden()]
        return max((float(part.max()) for part in parts if part.numel()), default=0.0)

    def set_normalizer(self, normalizer: Normalizer) -> None:
        """Store the statistics in the model.

        Raises: BadInput for statistics of another width.
        """
        if len(normalizer.mean) != sum(self.d_in):
            raise BadInput(
                f"statistics of {len(normalizer.mean)} channels do not fit widths {self.d_in}",
                where="normalizer",
            )
        self.mean.copy_(torch.from_numpy(normalizer.mean))
        self.scale.copy_(torch.from_numpy(normalizer.scale))
        self.normalized = True

    @property
    def normalizer(self) -> Normalizer | None:
        """The stored statistics, None where there are none."""
        if not self.normalized:
            return None
        return Normalizer(self.mean.cpu().numpy().copy(), self.scale.cpu().numpy().copy())

    def score_weights(self) -> Float[Tensor, "f"] | None:
        """What values are multiplied with before they are compared; None where they are compared as they are.

        The decoder's norm for A plus its norm for B, on the scale that training saw.
        """
        if self.scoring == "value":
            return None
        return self.frozen if len(self.frozen) else self.decoder_norms().sum(dim=1)

    def decoder_norms(self) -> Float[Tensor, "f 2"]:
        """Norms of each feature's decoder for A and for B, on the normaliser's scale."""
        parts = [self.W_dec.detach()[:, self.side(which)] for which in ("A", "B")]
        return torch.stack([torch.linalg.vector_norm(part, dim=1) for part in parts], dim=1)

    def directions(self, which: Side) -> Float[Tensor, "f d"]:
        """What each feature adds to a model's raw activation per unit of its value."""
        channels = self.side(which)
        return self._masked(self.W_dec)[:, channels] * self.scale[channels]

    # -- raw activations in, features out, and back ----------------------------------------------

    def encode(
        self,
        a: Float[Tensor, "n a"],
        b: Float[Tensor, "n b"],
        mode: Literal["inference", "batch"] = "inference",
    ) -> Float[Tensor, "n f"]:
        """Feature values of paired raw activations.

        ``mode`` matters to ``batch_topk`` only: its threshold, or the largest of just this batch.

        Raises: BadInput without normaliser statistics, for other shapes, or a threshold not learned yet.
        """
        pre = torch.nn.functional.linear(self.normalize(a, b), self._masked(self.W_enc), self.b_enc)
        values = pre.relu()
        if self.activation == "l1":
            return values
        assert self.k is not None
        flat, weights = values.detach(), self.score_weights()
        if self.activation == "topk":
            return values * top_k(flat, weights, self.k)
        if mode == "batch":
            active, _ = batch_top_k(flat, weights, self.k * len(flat))
            mask = torch.zeros_like(flat)
            mask[active.rows, active.features] = 1.0
            return values * mask
        if self.threshold < 0:
            raise BadInput(
                "this crosscoder has no threshold yet, so what fires would depend on the batch",
                where="batch_topk",
                hint="train past threshold_start, or encode with mode='batch'",
            )
        return values * ((flat if weights is None else flat * weights) > self.threshold)

    def decode(self, features: Float[Tensor, "n f"]) -> tuple[Float[Tensor, "n a"], Float[Tensor, "n b"]]:
        """Raw activations of A and of B rebuilt from feature values.

        Raises: BadInput without normaliser statistics.
        """
        self._need_statistics()
        z = features @ self._masked(self.W_dec) + self.b_dec
        x = z * self.scale + self.mean
        return x[:, self.side("A")], x[:, self.side("B")]

    def forward(
        self, a: Float[Tensor, "n a"], b: Float[Tensor, "n b"]
    ) -> tuple[Float[Tensor, "n a"], Float[Tensor, "n b"]]:
        """Reconstructions of paired raw activations."""
        return self.decode(self.encode(a, b))

    def normalize(self, a: Float[Tensor, "n a"], b: Float[Tensor, "n b"]) -> Float[Tensor, "n d"]:
        """Paired raw activations on the normaliser's scale, side by side.

        Raises: BadInput without statistics, or for shapes that do not fit.
        """
        self._need_statistics()
        if a.ndim != 2 or b.ndim != 2 or (a.shape[1], b.shape[1]) != self.d_in:
            raise BadInput(
                f"activations of shapes {tuple(a.shape)} and {tuple(b.shape)} do not fit widths {self.d_in}",
                where="crosscoder",
            )
        if len(a) != len(b):
            raise BadInput(f"{len(a)} rows of A and {len(b)} of B are not pairs", where="crosscoder")
        return (torch.cat([a, b], dim=1) - self.mean) / self.scale

    @torch.no_grad()
    def folded(self) -> CrossCoder:
        """The same function with the normaliser folded into the weights, whose statistics are then 0 and 1.

        ``W_enc`` loses the scale, ``b_enc`` takes the mean, ``W_dec`` and ``b_dec`` gain the scale and
        ``b_dec`` the mean. Score weights are frozen first: which features fire is decided on the trained
        scale.

        Raises: BadInput without normaliser statistics.
        """
        self._need_statistics()
        copy = self._like(Normalizer.identity(sum(self.d_in)))
        # Sums over thousands of channels: in float64, so that the fold adds no error of its own.
        reads, scale, mean = self.W_enc.double() / self.scale, self.scale.double(), self.mean.double()
        copy.W_enc.copy_(reads)
        copy.b_enc.copy_(self.b_enc.double() - reads @ mean)
        copy.W_dec.copy_(self.W_dec.double() * scale)
        copy.b_dec.copy_(self.b_dec.double() * scale + mean)
        weights = self.score_weights()
        copy.frozen = torch.zeros(0, device=self.W_dec.device) if weights is None else weights.clone()
        copy.threshold.copy_(self.threshold)
        return copy

    # -- whole life ----------------------------------------------------------------------------

    def fit(
        self,
        source: Source,
        settings: TrainSettings | None = None,
        *,
        folder: Path | None = None,
        progress: Progress | None = None,
    ) -> Report:
        """Train on paired activations; see :func:`refork_methods.crosscoder.train.train`."""
        from refork.progress import silent
        from refork_methods.crosscoder.train import TrainSettings, train

        return train(self, source, settings or TrainSettings(), folder=folder, progress=progress or silent)

    def config(self) -> Json:
        """Everything but the tensors, as plain JSON."""
        return {
            "d_in": list(self.d_in),
            "dict_size": self.dict_size,
            "k": self.k,
            "activation": self.activation,
            "scoring": self.scoring,
            "partition": {"a": self.partition.a, "b": self.partition.b},
            "normalized": self.normalized,
            "origin": self.origin,
        }

    def _like(self, normalizer: Normalizer) -> CrossCoder:
        copy = CrossCoder(
            self.d_in, self.dict_size, self.k, self.activation, self.partition, normalizer,
            scoring=self.scoring, origin=self.origin,
        )  # fmt: skip
        return copy.to(self.W_dec.device)

    def _masked(self, weights: Tensor) -> Tensor:
        """Weights with the forbidden ones 0, whoever may have set them."""
        cut = [block for block in self.forbidden() if weights[block].numel()]
        if not cut:
            return weights
        mask = torch.ones_like(weights)
        for block in cut:
            mask[block] = 0.0
        return weights * mask

    def _need_statistics(self) -> None:
        if not self.normalized:
            raise BadInput(
                NO_STATISTICS,
                where="crosscoder",
                hint="train it, or set_normalizer(Normalizer.identity(width)) for activations on its scale",
            )


def _check(
    d_in: tuple[int, int], dict_size: int, k: int | None, activation: str, scoring: str | None
) -> None:
    if len(d_in) != 2 or min(d_in) < 1 or dict_size < 1:
        raise BadInput(
            f"widths {d_in} and a dictionary of {dict_size} make no crosscoder", where="crosscoder"
        )
    if activation not in ("topk", "batch_topk", "l1"):
        raise BadInput(f"unknown activation {activation!r}", hint="topk, batch_topk or l1")
    if scoring not in (None, "decoder_norm", "value"):
        raise BadInput(f"unknown scoring {scoring!r}", hint="decoder_norm or value")
    if activation != "l1" and (k is None or k < 1):
        raise BadInput(f"{activation} keeps k features a sample; k is {k!r}", where="crosscoder")
    if k is not None and k > dict_size:
        raise BadInput(f"k = {k} is more than the {dict_size} features there are", where="crosscoder")
