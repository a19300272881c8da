"""Where the hidden states of a model pass, to be read and changed during a pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor, nn

from refork.decoding.states import Edit, layer_number
from refork.errors import BadInput, CannotDo

_ROWS = 16
"""Rows of a product from which on, in multiples, their bits no longer depend on how many there are."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The tokens of a pass [N]: absolute ``position``, whether of a ``prompt``, its ``last`` one."""

    position: Tensor
    prompt: Tensor
    last: Tensor


def all_prompt(positions: Tensor) -> Rows:
    """Rows of which it does not matter where their prompts end."""
    return Rows(
        positions, torch.ones_like(positions, dtype=torch.bool), torch.zeros_like(positions, dtype=torch.bool)
    )


@dataclass(slots=True)
class PassProbe:
    """What one pass changes and keeps: layers by number, ``captured`` [rows, width] after the pass.

    ``wanted`` picks the rows to keep; None keeps all.
    """

    edits: tuple[Edit, ...] = ()
    layers: tuple[int, ...] = ()
    rows: Rows | None = None
    wanted: Tensor | None = None
    captured: dict[int, Tensor] = field(default_factory=dict)

    def states(self) -> Tensor:
        """What was kept: [rows, layers, width]."""
        return torch.stack([self.captured[layer] for layer in self.layers], dim=1)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self.edits and not self.layers


@final
class Sites:
    """The blocks of a causal model, and the norm after them.

    Raises:
        CannotDo: the blocks are not one list of modules.
    """

    def __init__(self, model: nn.Module, blocks: int) -> None:
        holder = _holder(model, blocks)
        self.blocks: list[nn.Module] = list(holder[1])
        self._after = [m for m in holder[0].children() if not isinstance(m, nn.ModuleList)]
        self.norm: nn.Module | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While inside, a pass shows which module comes after the last block: the final norm."""
        passed = False

        def block(*_: Any) -> None:
            nonlocal passed
            passed = True

        def follow(module: nn.Module, _: Any, out: Any) -> None:
            if passed and isinstance(out, Tensor):
                self.norm = module

        with ExitStack() as stack:
            stack.callback(self.blocks[-1].register_forward_hook(block).remove)
            for module in self._after:
                stack.callback(module.register_forward_hook(follow).remove)
            yield

    @contextmanager
    def attached(self, probe: PassProbe) -> Iterator[None]:
        """While inside, passes are changed and kept as ``probe`` says."""
        last = len(self.blocks)
        work: dict[int, list[Edit]] = {number: [] for number in probe.layers}
        for edit in probe.edits:
            work.setdefault(layer_number(edit.layer, last), []).append(edit)
        with ExitStack() as stack:
            # The raw stream is hooked first: without a norm it is also what counts as the last layer.
            for number in sorted(work, key=lambda n: (n == last, n)):
                stack.callback(self._hook(number, _visit(probe, number, work[number])))
            yield

    def _hook(self, number: int, visit: Callable[[Tensor], Tensor | None]) -> Callable[[], None]:
        """Call ``visit`` with the states of a layer; returns how to stop."""

        def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            given = args[0] if args else kwargs["hidden_states"]
            changed = visit(given)
            if changed is None:
                return None
            return ((changed, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": changed})

        def after(_: nn.Module, args: Any, out: Any) -> Any:
            # Blocks of some architectures give the states alone, others with what else they computed.
            changed = visit(out[0] if isinstance(out, tuple) else out)
            if changed is None:
                return None
            return (changed, *out[1:]) if isinstance(out, tuple) else changed

        if number < len(self.blocks):
            return self.blocks[number].register_forward_pre_hook(before, with_kwargs=True).remove
        at_norm = number == len(self.blocks) and self.norm is not None
        module = self.norm if at_norm and self.norm is not None else self.blocks[-1]
        return module.register_forward_hook(after).remove


def _visit(probe: PassProbe, number: int, edits: Sequence[Edit]) -> Callable[[Tensor], Tensor | None]:
    """What happens to the states [1, N, width] of one layer: edits in order, then keeping."""
    masks = [(edit, _mask(edit, probe.rows)) for edit in edits]

    def visit(states: Tensor) -> Tensor | None:
        flat, changed = states[0], False
        for edit, mask in masks:
            if mask is None or bool(mask.any()):
                flat, changed = _changed(edit, flat, mask), True
        if number in probe.layers:
            probe.captured[number] = flat.clone() if probe.wanted is None else flat[probe.wanted]
        return flat[None] if changed else None

    return visit


def _changed(edit: Edit, states: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return _applied(edit, states)
    chosen = torch.nonzero(mask)[:, 0]
    if 2 * len(chosen) > len(states):
        return torch.where(mask[:, None], _applied(edit, states), states)
    # Few rows are padded: then a function that multiplies matrices rounds as it does for many.
    padded = chosen[:1].repeat(-len(chosen) % _ROWS)
    found = _applied(edit, states[torch.cat([chosen, padded])])
    return states.index_copy(0, chosen, found[: len(chosen)])


def _applied(edit: Edit, states: Tensor) -> Tensor:
    found = edit.function(states)
    if not isinstance(found, Tensor) or found.shape != states.shape:
        shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise BadInput(
            f"the edit gave {shape} for states of {tuple(states.shape)}",
            where=f"edit {edit.name}, layer {edit.layer}",
            hint="it must keep rows and width; does its vector have the width of the model?",
        )
    # An edit's vector may be in another precision than the model.
    return found.to(states.dtype)


def _mask(edit: Edit, rows: Rows | None) -> Tensor | None:
    """Which rows an edit acts on, bool [N]; None for all."""
    if rows is None or (edit.positions == "all" and edit.phase == "both"):
        return None
    chosen = torch.ones_like(rows.prompt)
    if edit.phase != "both":
        chosen = rows.prompt if edit.phase == "prefill" else ~rows.prompt
    if edit.positions == "last":
        return chosen & rows.last
    if isinstance(edit.positions, tuple):
        wanted = torch.tensor(edit.positions, device=rows.position.device)
        return chosen & torch.isin(rows.position, wanted)
    if isinstance(edit.positions, slice):
        chosen = chosen & (rows.position >= (edit.positions.start or 0))
        return chosen if edit.positions.stop is None else chosen & (rows.position < edit.positions.stop)
    return chosen


def _holder(model: nn.Module, blocks: int) -> tuple[nn.Module, nn.ModuleList]:
    """The module that holds the list of blocks, and the list."""
    for module in model.modules():
        for child in module.children():
            if isinstance(child, nn.ModuleList) and len(child) == blocks:
                return module, child
    raise CannotDo(
        f"{type(model).__name__} has no list of {blocks} blocks, so its hidden states cannot be reached",
    )
