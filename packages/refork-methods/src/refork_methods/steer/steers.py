"""The three ways to steer along a direction, as edits of hidden states."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, final, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from refork.decoding.states import Edit, Layer, Phase, Positions
from refork.errors import BadInput
from refork.types import FloatArray


@runtime_checkable
class Steer(Protocol):
    """Anything that says how to change hidden states."""

    def edit(self) -> Edit:
        """The change, for :meth:`LocalPolicy.edited`."""
        ...


@final
@dataclass(frozen=True, slots=True, eq=False)
class AddVector:
    """Adds ``scale`` times ``vector`` [width] to the states of a layer."""

    layer: Layer
    vector: FloatArray
    scale: float = 1.0
    positions: Positions = "all"
    phase: Phase = "both"

    def edit(self) -> Edit:
        """The change; raises BadInput where the vector is no direction or the scale no number."""
        moved = _direction(self.vector) * _number(self.scale, "scale")

        def add(states: Tensor) -> Tensor:
            return states + moved.to(states)

        name = _name("add", self.vector, self.scale)
        return Edit(self.layer, add, name, self.positions, self.phase)


@final
@dataclass(frozen=True, slots=True, eq=False)
class AblateDirection:
    """Removes what the states of a layer have along ``direction`` [width]."""

    layer: Layer
    direction: FloatArray
    positions: Positions = "all"
    phase: Phase = "both"

    def edit(self) -> Edit:
        """The change; raises BadInput where the direction is none."""
        name = _name("ablate", self.direction)
        return Edit(self.layer, _clamp(self.direction, 0.0), name, self.positions, self.phase)


@final
@dataclass(frozen=True, slots=True, eq=False)
class ClampDirection:
    """Sets what the states of a layer have along ``direction`` [width] to ``value``, in units of the states.

    The direction's length does not matter.
    """

    layer: Layer
    direction: FloatArray
    value: float
    positions: Positions = "all"
    phase: Phase = "both"

    def edit(self) -> Edit:
        """The change; raises BadInput where the direction is none or the value no number."""
        name = _name("clamp", self.direction, self.value)
        change = _clamp(self.direction, _number(self.value, "value"))
        return Edit(self.layer, change, name, self.positions, self.phase)


def _clamp(direction: FloatArray, value: float) -> Callable[[Tensor], Tensor]:
    unit = _direction(direction)
    unit = unit / unit.norm()

    def clamp(states: Tensor) -> Tensor:
        along = unit.to(states)
        # A sum of products of each row, not a matrix product: its bits do not depend on the other rows.
        has = (states * along).sum(dim=-1, keepdim=True)
        return torch.add(states, (value - has) * along)

    return clamp


def _direction(vector: FloatArray) -> Tensor:
    found = np.asarray(vector, dtype=np.float32)
    if found.ndim != 1 or not np.isfinite(found).all() or not found.any():
        raise BadInput(
            f"a direction of shape {found.shape} must be one vector of finite numbers, not all zero",
            hint="it is [width], the width of the model's hidden states",
        )
    return torch.from_numpy(found.copy())


def _number(value: float, name: str) -> float:
    if not np.isfinite(value):
        raise BadInput(f"{name} is {value}; it must be a finite number", where="steering")
    return float(value)


def _name(kind: str, vector: FloatArray, *numbers: float) -> str:
    """What is recorded: the kind, the numbers, and a digest of the vector."""
    digest = hashlib.sha256(np.asarray(vector, dtype="<f4").tobytes()).hexdigest()[:12]
    return ":".join([kind, *map(_figure, numbers), digest])


def _figure(number: float) -> str:
    """A number in six digits where these say it exactly, else in full: other numbers are other edits."""
    short = f"{number:g}"
    return short if float(short) == number else repr(float(number))
