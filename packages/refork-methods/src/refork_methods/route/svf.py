"""Singular-value fine-tuning: singular vectors stay, and each singular value gets an offset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from refork.errors import BadInput, CannotDo

#: Offsets that a trainer proposes are kept above this: at -1 a singular value is gone, below it turns over.
LEAST_OFFSET = -0.99


@final
@dataclass(frozen=True, slots=True, eq=False)
class Factors:
    """What offsets of a matrix act on: its singular values [k], k its smaller side, largest first.

    ``basis`` [k, k] holds the singular vectors of the smaller side as columns; those of the other side never
    need to be kept (an embedding of 150,000 rows would not want to).
    """

    sigma: Float[Tensor, "k"]
    basis: Float[Tensor, "k k"]
    side: Literal["right", "left"]


def factor(weight: Float[Tensor, "m n"]) -> Factors:
    """Singular values and the smaller side's vectors of a matrix, computed in float64.

    Raises: BadInput for zeros, NaN, or what is no matrix; CannotDo for one without values (meta, integers).
    """
    if weight.is_meta or not weight.is_floating_point():
        raise CannotDo(f"a matrix of {weight.dtype} on {weight.device.type} has no singular values to move")
    wide = _matrix(weight).detach().double()
    if not bool(torch.isfinite(wide).all()) or not bool(wide.any()):
        raise BadInput("a matrix of zeros, or with values that are not finite, has nothing to scale")
    side: Literal["right", "left"] = "right" if wide.shape[0] >= wide.shape[1] else "left"
    tall = wide if side == "right" else wide.T
    # The triangular factor has the same singular values and right vectors, and is only k by k.
    _, sigma, right = torch.linalg.svd(torch.linalg.qr(tall, mode="r").R)
    kind = _working(weight.dtype)
    return Factors(sigma.to(kind), right.T.contiguous().to(kind), side)


def adapted(
    weight: Float[Tensor, "m n"], factors: Factors, offsets: Float[Tensor, "k"]
) -> Float[Tensor, "m n"]:
    """The matrix with singular values scaled by ``1 + offsets``, then all of it so that their sum stays.

    With W = U diag(sigma) V^T it is U diag((1 + offsets) sigma) V^T * sum(sigma) / sum((1 + offsets) sigma),
    computed as W plus W V diag(offsets) V^T (the smaller side's vectors only): offsets of 0 give W bit for
    bit. Differentiable in ``offsets``.

    Raises: BadInput for another number of offsets, or one of -1 or less.
    Source: arXiv:2512.04695 as described in arXiv:2606.21228; computing it from one side is ours.
    """
    if offsets.shape != factors.sigma.shape:
        raise BadInput(f"{tuple(offsets.shape)} offsets for {len(factors.sigma)} singular values")
    if bool((offsets.detach() <= -1).any()):
        raise BadInput("an offset of -1 or less takes a singular value away", hint="keep offsets above -1")
    sigma, basis = factors.sigma, factors.basis
    w = _matrix(weight).to(sigma.dtype)
    step = offsets.to(sigma.dtype)
    right = factors.side == "right"
    moved = ((w @ basis) * step) @ basis.T if right else basis @ (step[:, None] * (basis.T @ w))
    # Written so that offsets of 0 give a factor of exactly 1.
    scale = 1 / (1 + (sigma * step).sum() / sigma.sum())
    return ((w + moved) * scale).to(weight.dtype)


def default_matrices(model: Any) -> tuple[str, ...]:
    """The token embedding, every linear map of the last block but one, and the output head.

    Source: the released checkpoint of arXiv:2512.04695, which moves nine matrices of a 28-block model.
    Raises: CannotDo where the blocks of the model cannot be told.
    """
    names = {id(module): name for name, module in model.named_modules()}
    count = int(model.config.get_text_config().num_hidden_layers)
    stacks = [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) == count
    ]
    if not stacks:
        raise CannotDo(f"the blocks of {type(model).__name__} are not to be seen", hint="name the matrices")
    stack, blocks = stacks[0]
    place = max(count - 2, 0)
    linear = [
        f"{stack}.{place}.{name}"
        for name, module in blocks[place].named_modules()
        if isinstance(module, nn.Linear)
    ]
    ends = [model.get_input_embeddings(), model.get_output_embeddings()]
    first, last = (None if end is None else names[id(end)] for end in ends)
    return tuple(name for name in (first, *linear, last) if name is not None)


def offset_counts(model: Any, matrices: Sequence[str] | None = None) -> dict[str, int]:
    """How many offsets each matrix takes: its smaller side. A model on the meta device will do.

    Raises: BadInput for a matrix that is not there, is no linear map or embedding, or is named twice.
    """
    chosen = default_matrices(model) if matrices is None else tuple(matrices)
    if len(set(chosen)) != len(chosen) or not chosen:
        raise BadInput(f"matrices must be distinct, and some: {chosen}")
    known = dict(model.named_modules())
    found: dict[str, int] = {}
    for name in chosen:
        module = known.get(name)
        if not isinstance(module, nn.Linear | nn.Embedding):
            some = [key for key, one in known.items() if isinstance(one, nn.Linear | nn.Embedding)]
            raise BadInput(
                f"{name!r} is no linear map or embedding of this model",
                hint=f"for example {', '.join(some[:3])}",
            )
        found[name] = min(module.weight.shape)
    return found


@final
class SvfAdapter:
    """Offsets of chosen matrices of one causal model, as one flat vector in the order of ``counts``.

    The model's own tensors are never written to. Where the embedding and the output head share a tensor, each
    that is chosen gets offsets of its own, and one that is not chosen keeps the shared tensor.

    Raises: as :func:`offset_counts` and :func:`factor`.
    """

    def __init__(self, model: Any, matrices: Sequence[str] | None = None) -> None:
        self.model = model
        self.counts = offset_counts(model, matrices)
        self._modules = {name: model.get_submodule(name) for name in self.counts}
        shared: dict[int, Factors] = {}
        for module in self._modules.values():
            if id(module.weight) not in shared:
                shared[id(module.weight)] = factor(module.weight)
        self._originals = {name: module.weight for name, module in self._modules.items()}
        self._factors = {name: shared[id(weight)] for name, weight in self._originals.items()}

    @property
    def count(self) -> int:
        """How many offsets there are."""
        return sum(self.counts.values())

    @property
    def factors(self) -> Mapping[str, Factors]:
        """Singular values and vectors of each matrix; fixed for the adapter's life."""
        return self._factors

    def zeros(self) -> Float[Tensor, "offsets"]:
        """Offsets that change nothing."""
        first = next(iter(self._factors.values())).sigma
        return torch.zeros(self.count, dtype=first.dtype, device=first.device)

    def weights(self, offsets: Float[Tensor, "offsets"]) -> dict[str, Tensor]:
        """The adapted matrices by parameter name; differentiable in the offsets.

        Raises: BadInput as :func:`adapted`.
        """
        if offsets.shape != (self.count,):
            raise BadInput(f"{tuple(offsets.shape)} offsets; this adapter takes {self.count}")
        parts = torch.split(offsets, list(self.counts.values()))
        made = {}
        for (name, factors), part in zip(self._factors.items(), parts, strict=True):
            here = part.to(factors.sigma.device)
            made[f"{name}.weight"] = adapted(self._originals[name].detach(), factors, here)
        return made

    def states(
        self,
        offsets: Float[Tensor, "offsets"],
        tokens: Int[Tensor, "rows length"],
        mask: Int[Tensor, "rows length"],
        layer: int,
    ) -> Float[Tensor, "rows length width"]:
        """Hidden states of a padded batch under offsets, as ``output_hidden_states`` numbers layers.

        Differentiable in the offsets; the model's own parameters get no gradient from it.
        """
        # A tied tensor under both of its names: only the one that was chosen gets offsets.
        fixed = {name: p.detach() for name, p in self.model.named_parameters(remove_duplicate=False)}
        out = torch.func.functional_call(
            self.model,
            fixed | self.weights(offsets),
            (),
            {
                "input_ids": tokens, "attention_mask": mask, "output_hidden_states": True,
                "use_cache": False, "logits_to_keep": 1,
            },
            tie_weights=False,
        )  # fmt: skip
        return torch.as_tensor(out.hidden_states[layer])

    @contextmanager
    def applied(self, offsets: Float[np.ndarray, "offsets"] | Float[Tensor, "offsets"]) -> Iterator[None]:
        """While inside, the model computes with these offsets; after it, with its own tensors again.

        Whatever was computed from the weights (a policy's cache) must be refreshed at both ends.
        """
        try:
            self.settle(offsets)
            yield
        finally:
            for name, module in self._modules.items():
                module.weight = self._originals[name]

    def settle(self, offsets: Float[np.ndarray, "offsets"] | Float[Tensor, "offsets"]) -> None:
        """Put the adapted matrices into the model, in place of its own tensors (which stay as they were)."""
        vector = torch.as_tensor(offsets, dtype=self.zeros().dtype, device=self.zeros().device)
        with torch.no_grad():
            made = self.weights(vector)
        for name, module in self._modules.items():
            module.weight = nn.Parameter(made[f"{name}.weight"], requires_grad=False)


def _matrix(weight: Tensor) -> Tensor:
    if weight.ndim != 2:
        raise BadInput(f"a tensor of shape {tuple(weight.shape)} is no matrix")
    return weight


def _working(dtype: torch.dtype) -> torch.dtype:
    """Half precision is too coarse for singular vectors: those matrices are moved in float32."""
    return dtype if dtype in (torch.float32, torch.float64) else torch.float32
