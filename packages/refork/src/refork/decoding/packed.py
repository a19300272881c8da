"""Linear layers whose rows have the same bits in any batch: by oneDNN on a processor, in pieces on a GPU.

PyTorch hands float32 products to its BLAS, which on some processors runs at less than half the speed of
oneDNN's kernels on weights in blocked order, and which on some gives eight rows other bits than sixteen.
Here weights are packed once for all passes, and a row's bits do not depend on how many rows there are.

A GPU's library takes another kernel for another number of rows, whose sums have another order. There every
product has the same number of rows: more are cut in pieces, fewer are padded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, cast, final

import torch
from torch import Tensor, nn
from torch.nn import functional

PACK_LIMIT = 1 << 30
"""Bytes of packed copies kept per model; the layers beyond are blocked anew in every product."""

_UNITS = (2, 4, 8, 16, 32)
"""Numbers of rows that may be enough for a row's bits to be those among many."""

_MOST = 64
"""Rows that no product on a processor was seen to need more than."""

_PIECES = (256, 128, 512, 64)
"""Rows of a piece on a GPU: the first that is steady. With 256 a large GPU computes as fast as it reads."""

_BLAS = 8
"""Fewer rows are not asked for where a matrix is left to PyTorch's BLAS."""

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
        # A layer may be given another tensor, the tensor other memory, or the memory other numbers.
        return (
            self.weight is weight and self.version == _version(weight) and self.pointer == weight.data_ptr()
        )


@final
class PackedLinears:
    """The linear layers of a model: float32 on a processor that has oneDNN, and all on other devices."""

    def __init__(self, model: nn.Module, limit: int = PACK_LIMIT) -> None:
        self.limit = limit
        self._model = model
        found: list[Any] = [module for module in model.modules() if _is_linear(module)]
        self._layers = [layer for layer in found if available() or pieced(layer.weight)]
        self._packed: dict[int, _Packed] = {}
        self._unit: int | None = None
        self._piece: int | None = None

    @property
    def piece(self) -> int:
        """Rows of every product on a device that is no processor; measured once, on every shape."""
        if self._piece is None:
            shapes = {(m.weight.shape, m.weight.dtype): m for m in self._layers if pieced(m.weight)}
            weights = [_outward(m, m.weight) for m in shapes.values()]
            steady = (rows for rows in _PIECES if all(_same_anywhere(weight, rows) for weight in weights))
            self._piece = next(steady, _PIECES[0])
        return self._piece

    @property
    def unit(self) -> int:
        """A product of a multiple of so many rows gives each row the bits that it has among many; 64 or less.

        Measured once, on products of every shape that is multiplied in float32 on a processor.
        """
        if self._unit is None:
            units = [unit for unit in _UNITS if unit >= _BLAS or self._whole()]
            self._unit = next((unit for unit in units if self._steady(unit)), _MOST)
        return self._unit

    def refresh(self) -> None:
        """Forget packed weights: they were changed in a way that tensors do not count."""
        self._packed.clear()

    @contextmanager
    def attached(self) -> Iterator[None]:
        """While inside, the layers multiply with their packed weights; the model is left as it was."""
        taken: list[Any] = []
        free = self.limit
        try:
            for layer in self._layers:
                # Past nn.Module's attributes, which cost more than a small product.
                weight = layer._parameters["weight"]
                assert weight is not None
                if packs(weight):
                    free -= weight.numel() * 4
                    layer.__dict__["forward"] = self._product(layer, weight, keep=free >= 0)
                    taken.append(layer)
                elif pieced(weight):
                    shown = _outward(layer, weight)
                    layer.__dict__["forward"] = partial(
                        in_pieces, weight=shown, bias=layer.bias, size=self.piece
                    )
                    taken.append(layer)
            yield
        finally:
            for layer in taken:
                layer.__dict__.pop("forward", None)

    def _product(self, layer: Any, weight: Tensor, keep: bool) -> Callable[[Tensor], Tensor]:
        bias, shown = layer.bias, _outward(layer, weight)
        if not keep:
            return partial(linear, weight=shown, bias=bias)
        known = self._packed.get(id(layer))
        if known is None or not known.of(weight):
            blocked = torch.ops.mkldnn._reorder_linear_weight(shown.detach().contiguous(), _ROWS)
            known = _Packed(
                weight, weight.data_ptr(), _version(weight), partial(linear, weight=blocked, bias=bias)
            )
            self._packed[id(layer)] = known
        return known.forward

    def _others(self) -> list[Tensor]:
        """The matrices that are left to PyTorch's BLAS: of other dtypes, devices and layers."""
        packed = {id(layer.weight) for layer in self._layers if packs(layer.weight)}
        linear = {id(module.weight) for module in self._model.modules() if _is_linear(module)}
        tables = {id(m.weight) for m in self._model.modules() if isinstance(m, nn.Embedding)} - linear
        return [p for p in self._model.parameters() if p.ndim > 1 and id(p) not in packed | tables]

    def _whole(self) -> bool:
        """Whether every matrix that rows are multiplied with is packed."""
        free = self.limit - 4 * sum(layer.weight.numel() for layer in self._layers)
        return bool(self._layers) and not self._others() and free >= 0

    def _steady(self, unit: int) -> bool:
        """Whether rows have the same bits in products of multiples of ``unit`` rows, for all shapes.

        A matrix of another layer is tried both ways, for nothing says on which side the layer has it.
        """
        shapes = {_outward(m, m.weight).shape for m in self._layers if packs(m.weight)}
        others = {p.shape for p in self._others() if p.ndim == 2 and packs(p)}
        with torch.random.fork_rng(devices=[]), torch.inference_mode():
            products = [
                partial(
                    linear,
                    weight=torch.ops.mkldnn._reorder_linear_weight(torch.randn(shape), _ROWS),
                    bias=None,
                )
                for shape in shapes
            ]
            weights = [one for shape in others for one in (torch.randn(shape), torch.randn(shape).T)]
            products += [partial(functional.linear, weight=weight) for weight in weights]
            widths = [shape[1] for shape in shapes] + [weight.shape[1] for weight in weights]
            return all(
                _same(product, torch.randn(_MOST, width), unit)
                for product, width in zip(products, widths, strict=True)
            )


def _same(multiply: Callable[[Tensor], Tensor], rows: Tensor, unit: int) -> bool:
    """Whether the rows of a product have the same bits among fewer, in multiples of ``unit``."""
    whole = multiply(rows)
    return all(torch.equal(multiply(rows[:n]), whole[:n]) for n in range(unit, _MOST, unit))


def _same_anywhere(weight: Tensor, count: int) -> bool:
    """Whether a row of a product of ``count`` rows has the same bits in any place, beside any others."""
    made = torch.Generator(weight.device).manual_seed(0)
    with torch.inference_mode():
        rows, others = (
            torch.randn(count, weight.shape[1], generator=made, device=weight.device).to(weight.dtype)
            for _ in range(2)
        )
        whole = functional.linear(rows, weight)
        # An odd step, so that no row keeps its place in a tile or a vector.
        moved = torch.equal(functional.linear(rows.roll(37, 0), weight), whole.roll(37, 0))
        others[::3] = rows[::3]
        return moved and torch.equal(functional.linear(others, weight)[::3], whole[::3])


def _is_linear(module: Any) -> bool:
    """Whether it is a product with its weight, and nothing else."""
    return type(module) is nn.Linear or type(module).__name__ in ("FalconLinear", "Conv1D")


def _outward(layer: Any, weight: Tensor) -> Tensor:
    """Its weight [out, in], as ``nn.Linear`` has it; GPT-2's ``Conv1D`` has the transpose."""
    return weight.T if type(layer).__name__ == "Conv1D" else weight


def packs(weight: Tensor) -> bool:
    """Whether it is of the kind that oneDNN multiplies with here."""
    return weight.dtype == torch.float32 and weight.device.type == "cpu"


def pieced(weight: Tensor) -> bool:
    """Whether it lies where the number of rows decides the kernel of a product."""
    return weight.device.type not in ("cpu", "meta")


def in_pieces(rows: Tensor, weight: Tensor, bias: Tensor | None, size: int) -> Tensor:
    """What ``nn.functional.linear`` gives, by products of ``size`` rows each, whatever their number."""
    flat = rows.reshape(-1, rows.shape[-1])
    count = len(flat)
    flat = functional.pad(flat, (0, 0, 0, -count % size))
    out = flat.new_empty(len(flat), len(weight))
    for mine, found in zip(torch.split(flat, size), torch.split(out, size), strict=True):
        if bias is None:
            torch.mm(mine, weight.T, out=found)
        else:
            torch.addmm(bias, mine, weight.T, out=found)
    return out[:count].view(*rows.shape[:-1], len(weight))


def _version(weight: Tensor) -> int:
    """How often it was changed; tensors made in inference mode do not count, `refresh` speaks for them."""
    return 0 if weight.is_inference() else weight._version


def linear(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """What ``nn.functional.linear`` gives, by oneDNN; the weight [out, in] may be in blocked order."""
    return cast("Tensor", torch.ops.mkldnn._linear_pointwise.default(rows, weight, bias, "none", [], ""))


def available() -> bool:
    """Whether this PyTorch multiplies through oneDNN on this processor."""
    backend = torch.backends.mkldnn
    return bool(
        backend.is_available()  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    )
