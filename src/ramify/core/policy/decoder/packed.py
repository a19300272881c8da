"""Linear layers through oneDNN on a processor, their weights packed once for all passes.

PyTorch hands float32 products to its BLAS, which on some processors runs at less than half the speed of
oneDNN's kernels on weights in blocked order. Here too a row's bits do not depend on how many rows there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

PACK_LIMIT = 1 << 30
"""Bytes of packed copies kept per model; the layers beyond are blocked anew in every product."""

_ROWS = 256  # of the products that the blocked order is chosen for; any number of rows may use it


@dataclass(frozen=True, slots=True)
class _Packed:
    """A layer's weight in blocked order, and what it was made from."""

    pointer: int
    version: int
    forward: Callable[[Tensor], Tensor]


@final
class PackedLinears:
    """The float32 ``nn.Linear`` layers of a model on a processor; none where oneDNN is not there."""

    def __init__(self, model: nn.Module, limit: int = PACK_LIMIT) -> None:
        self.limit = limit
        self._layers = [m for m in model.modules() if type(m) is nn.Linear] if _available() else []
        self._packed: dict[int, _Packed] = {}

    def refresh(self) -> None:
        """Forget packed weights: they were changed in a way that tensors do not count."""
        self._packed.clear()

    @contextmanager
    def attached(self) -> Iterator[None]:
        """While inside, the layers multiply with their packed weights; the model is left as it was."""
        taken: list[nn.Linear] = []
        free = self.limit
        try:
            for layer in self._layers:
                weight = layer.weight
                if weight.dtype == torch.float32 and weight.device.type == "cpu":
                    free -= weight.numel() * 4
                    # Past nn.Module.__setattr__, which costs more than a small product.
                    layer.__dict__["forward"] = self._product(layer, keep=free >= 0)
                    taken.append(layer)
            yield
        finally:
            for layer in taken:
                layer.__dict__.pop("forward", None)

    def _product(self, layer: nn.Linear, keep: bool) -> Callable[[Tensor], Tensor]:
        if not keep:
            return _forward(layer.weight, layer.bias)
        weight = layer.weight
        # Tensors made in inference mode do not count their changes; `refresh` speaks for them.
        version = 0 if weight.is_inference() else weight._version
        known = self._packed.get(id(layer))
        if known is None or (known.pointer, known.version) != (weight.data_ptr(), version):
            blocked = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), _ROWS)
            known = _Packed(weight.data_ptr(), version, _forward(blocked, layer.bias))
            self._packed[id(layer)] = known
        return known.forward


def _forward(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    multiply = torch.ops.mkldnn._linear_pointwise.default

    def forward(rows: Tensor) -> Tensor:
        return torch.as_tensor(multiply(rows, weight, bias, "none", [], ""))

    return forward


def _available() -> bool:
    backend = torch.backends.mkldnn
    return bool(
        backend.is_available()  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    )
