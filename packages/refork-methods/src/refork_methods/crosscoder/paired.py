"""Row-wise changes of one model's states that depend on the other model's states of the same token.

A feature's value comes from both models, while a hook sees one. So the states of the prompts are read from
both beforehand, the change of each is computed, and the hook finds its row by the state it is given: at the
layer itself a prompt's state depends on the prompt only, whatever is changed there or above.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from refork.decoding.states import Edit, Layer
from refork.errors import BadInput
from refork.policies.local import LocalPolicy
from refork.types import IntArray
from refork_methods.crosscoder.model import CrossCoder
from refork_methods.crosscoder.partition import Side
from refork_methods.crosscoder.sources import PolicyPairs

#: Largest distance, relative to the state's norm, at which two states count as one (rounding of other
#: batches).
SAME = 1e-4


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """States of both models at the same tokens, raw units: ``a`` [n, d_a] and ``b`` [n, d_b]."""

    a: Float[Tensor, "n a"]
    b: Float[Tensor, "n b"]
    positions: Literal["last", "all"] = "last"

    def of(self, which: Side) -> Float[Tensor, "n d"]:
        """The states of one model."""
        return self.a if which == "A" else self.b


def read_pairs(
    a: LocalPolicy,
    b: LocalPolicy,
    prompts: Sequence[IntArray],
    layer: Layer | tuple[Layer, Layer],
    positions: Literal["last", "all"] = "last",
) -> Pairs:
    """Both models' states at the last token of each prompt, or at all its tokens.

    Raises:
        BadInput: no prompts.
        WrongTokenizer: the tokenisers differ.
    """
    source = PolicyPairs(a, b, prompts, layer, last_only=positions == "last")
    chunks = [source.chunk(i) for i in range(len(source.sizes))]
    sides = (np.concatenate([chunk[side] for chunk in chunks]) for side in (0, 1))
    first, second = (torch.from_numpy(np.asarray(side, dtype=np.float32)) for side in sides)
    return Pairs(first, second, positions)


def trained_layer(model: CrossCoder, which: Side, layer: Layer | None = None) -> Layer:
    """The layer a crosscoder was trained at for one model; a hook belongs there and nowhere else.

    ``layer`` is what the caller means to hook, None: whatever it was.

    Raises:
        BadInput: another layer, or none known.
    """
    kept = model.origin.get("layer")
    found: Layer | None = kept[0 if which == "A" else 1] if isinstance(kept, list | tuple) else kept
    if found is None:
        if layer is None:
            raise BadInput(
                "this crosscoder does not say at which layer it was trained",
                where="crosscoder",
                hint="name the layer",
            )
        return layer
    if layer is not None and layer != found:
        raise BadInput(
            f"layer {layer!r} is not where this crosscoder was trained for model {which}: layer {found!r}",
            where="crosscoder",
            hint="its features mean nothing at another layer",
        )
    return found


def row_table(
    states: Float[Tensor, "n d"], deltas: Float[Tensor, "n d"]
) -> Callable[[Float[Tensor, "m d"]], Float[Tensor, "m d"]]:
    """A function from states to states: to one that is row i of ``states``, row i of ``deltas`` is added.

    A state that is not in the table becomes NaN, which no policy samples from: a prompt that was never
    prepared cannot pass for one on which the change did nothing.

    Raises:
        BadInput: shapes that differ, no rows, deltas that are not finite.
    """
    if states.ndim != 2 or states.shape != deltas.shape or not len(states):
        raise BadInput(
            f"states {tuple(states.shape)} and deltas {tuple(deltas.shape)} must be matrices of one shape",
            where="row table",
        )
    if not bool(torch.isfinite(deltas).all()):
        raise BadInput("a change is not finite", where="row table")
    exact, added = states.detach().double().cpu().clone(), deltas.detach().float().cpu().clone()
    lengths = (exact**2).sum(dim=1)

    def function(x: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
        here = x.detach().float().cpu()
        # Through squares, which in float32 would lose the small distances of long vectors to rounding.
        rows = here.double()
        squares = (rows**2).sum(dim=1)
        near = torch.addmm(lengths, rows, exact.T, alpha=-2.0).min(dim=1)
        missed = near.values + squares > SAME**2 * squares
        delta = torch.where(missed[:, None], torch.nan, added[near.indices])
        return x + delta.to(x)

    return function


def digest_of(*parts: object) -> str:
    """Sixteen hex digits that change with every number of the parts: what names an edit."""
    mixed = hashlib.sha256()
    for given in parts:
        part = given.detach().cpu().contiguous().numpy() if isinstance(given, Tensor) else given
        if isinstance(part, np.ndarray):
            mixed.update(f"{part.dtype}{part.shape}".encode() + np.ascontiguousarray(part).tobytes())
        else:
            mixed.update(repr(part).encode() + b"\x1f")
    return mixed.hexdigest()[:16]


def delta_edit(layer: Layer, pairs: Pairs, which: Side, deltas: Float[Tensor, "n d"], kind: str) -> Edit:
    """The edit that adds row i of ``deltas`` to the state of row i of the pairs, at prefill.

    Raises:
        BadInput: as :func:`row_table`.
    """
    states = pairs.of(which)
    name = f"{kind} {which} {digest_of(states, deltas)}"
    return Edit(layer, row_table(states, deltas), name, positions=pairs.positions, phase="prefill")
