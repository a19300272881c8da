"""Linear layers through oneDNN on a processor, their weights packed once for all passes.

PyTorch hands float32 products to its BLAS, which on some processors runs at less than half the speed of
oneDNN's kernels on weights in blocked order. Here too a row's bits do not depend on how many rows there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast, final

import torch
from torch import Tensor, nn

PACK_LIMIT = 1 << 30
"""Bytes of packed copies kept per model; the layers beyond are blocked anew in every product."""

_UNITS = (2, 4)
"""Numbers of rows that may be enough for a row's bits to be those among many; eight always are."""

_ROWS = 256  # of the products that the blocked order is chosen for; any number of rows may use it


@dataclass(frozen=True, slots=True)
class _Packed:
    """A layer's weight in blocked order, and what it was made from."""

    weight: Tensor
    pointer: int
    version: int
    forward: Callable[[Tensor], Tensor]

    def of(self, weight: Tensor) -> bool:
        """Whether the weight is still the one that was packed."""
        return (
            self.weight is weight and self.version == _version(weight) and self.pointer == weight.data_ptr()
        )


@final
class PackedLinears:
    """The float32 ``nn.Linear`` layers of a model on a processor; none where oneDNN is not there."""

    def __init__(self, model: nn.Module, limit: int = PACK_LIMIT) -> None:
        self.limit = limit
        self._model = model
        self._layers = [m for m in model.modules() if type(m) is nn.Linear] if _available() else []
        self._packed: dict[int, _Packed] = {}
        self._unit: int | None = None

    @property
    def unit(self) -> int:
        """A product of a multiple of so many rows gives each row the bits that it has among many; 8 or less.

        Measured once on products of the layers' shapes; 8 where some matrix of the model is not packed.
        """
        if self._unit is None:
            self._unit = next((unit for unit in _UNITS if self._whole() and self._steady(unit)), 8)
        return self._unit

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
                # Past nn.Module's attributes, which cost more than a small product.
                weight = layer._parameters["weight"]
                assert weight is not None
                if weight.dtype == torch.float32 and weight.device.type == "cpu":
                    free -= weight.numel() * 4
                    layer.__dict__["forward"] = self._product(layer, weight, keep=free >= 0)
                    taken.append(layer)
            yield
        finally:
            for layer in taken:
                layer.__dict__.pop("forward", None)

    def _product(self, layer: nn.Linear, weight: Tensor, keep: bool) -> Callable[[Tensor], Tensor]:
        if not keep:
            return _forward(weight, layer.bias)
        known = self._packed.get(id(layer))
        if known is None or not known.of(weight):
            blocked = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), _ROWS)
            known = _Packed(weight, weight.data_ptr(), _version(weight), _forward(blocked, layer.bias))
            self._packed[id(layer)] = known
        return known.forward

    def _whole(self) -> bool:
        """Whether every matrix that rows are multiplied with is packed."""
        tables = [m.weight for m in self._model.modules() if isinstance(m, nn.Embedding)]
        packed = [layer.weight for layer in self._layers]
        known = {id(weight) for weight in (*tables, *packed)}
        free = self.limit - 4 * sum(weight.numel() for weight in packed)
        others = [p for p in self._model.parameters() if p.ndim > 1 and id(p) not in known]
        plain = all(w.dtype == torch.float32 and w.device.type == "cpu" for w in packed)
        return bool(packed) and not others and plain and free >= 0

    def _steady(self, unit: int) -> bool:
        """Whether rows have the same bits in products of multiples of ``unit`` rows, for all shapes."""
        with torch.random.fork_rng(devices=[]), torch.inference_mode():
            for outward, inward in {tuple(layer.weight.shape) for layer in self._layers}:
                weight = torch.ops.mkldnn._reorder_linear_weight(torch.randn(outward, inward), _ROWS)
                multiply, rows = _forward(weight, None), torch.randn(64, inward)
                many = multiply(rows)
                if any(not torch.equal(multiply(rows[:n]), many[:n]) for n in range(unit, 17, unit)):
                    return False
        return True


def _version(weight: Tensor) -> int:
    """How often it was changed; tensors made in inference mode do not count, `refresh` speaks for them."""
    return 0 if weight.is_inference() else weight._version


def _forward(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    multiply = torch.ops.mkldnn._linear_pointwise.default

    def forward(rows: Tensor) -> Tensor:
        return cast("Tensor", multiply(rows, weight, bias, "none", [], ""))

    return forward


def _available() -> bool:
    backend = torch.backends.mkldnn
    return bool(
        backend.is_available()  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    )
