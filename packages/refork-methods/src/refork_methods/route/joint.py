"""Stage 1 with the backbone: singular-value offsets trained by gradient together with the head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from refork.decoding.states import layer_number
from refork.errors import BadInput, CannotDo
from refork.progress import Progress, silent
from refork.types import IntArray, Json
from refork_methods.route.backbone import RouterBackbone, Transcript
from refork_methods.route.head import SelectionHead
from refork_methods.route.stage1 import Cases, Stage1, Stage1Settings, cases_of, fit_stage1
from refork_methods.route.svf import LEAST_OFFSET, SvfAdapter
from refork_methods.route.table import OutcomeTable
from refork_methods.route.targets import Targets, fit_weights, kl, mean_kl


@final
@dataclass(frozen=True, slots=True)
class JointSettings:
    """How offsets are trained: ``epochs`` over the fitted queries in batches, by Adam.

    ``rate`` is that of offsets, and of the head's rows in units of their root mean square. Every ``every``
    epochs the head is fitted exactly on the states of then.

    Raises: BadInput for a value out of range.
    """

    epochs: int = 20
    batch: int = 32
    rate: float = 0.02
    every: int = 2

    def __post_init__(self) -> None:
        if min(self.epochs, self.batch, self.every) < 1 or not self.rate > 0:
            raise BadInput("epochs, batch and every must be 1 or more, the rate positive")


@final
@dataclass(frozen=True, slots=True)
class Joint:
    """The best head with its offsets, stage 1 without them, and divergences (nats) epoch by epoch.

    ``curve`` has (epoch, fitted, held out), epoch 0 without offsets; held out is None where nothing was.
    ``best`` is the epoch kept: of the least held-out divergence, so that figure is somewhat flattered.
    """

    head: SelectionHead
    plain: Stage1
    curve: tuple[tuple[int, float, float | None], ...]
    best: int

    def to_json(self) -> Json:
        """Plain figures, without the weights."""
        return {"best": self.best, "curve": [list(row) for row in self.curve], "plain": self.plain.to_json()}


def fit_joint(
    table: OutcomeTable,
    backbone: RouterBackbone,
    transcripts: Sequence[Transcript],
    settings: Stage1Settings | None = None,
    training: JointSettings | None = None,
    *,
    adapter: SvfAdapter | None = None,
    progress: Progress = silent,
) -> Joint:
    """Fit a head to a table on a backbone's states, then move its singular values to make the fit better.

    ``transcripts`` are of the table's queries, one each. Matrices after the layer that is read (the output
    head) get no gradient: their offsets stay 0.

    Raises: BadInput and CannotDo as :func:`fit_stage1` and the backbone.
    Source: arXiv:2606.21228, 3.1.2 (head and offsets by the same loss); the exact refits are ours.
    """
    plan, steps = settings or Stage1Settings(), training or JointSettings()
    layer = backbone.format.layer
    if layer == "raw":
        raise CannotDo("offsets are not trained through the state before the final norm", hint="layer=-1")
    states = backbone.states(transcripts, progress)
    plain = fit_stage1(table, states, plan)
    cases = cases_of(table, plan)
    moved = adapter or backbone.adapter()
    blocks = int(moved.model.config.get_text_config().num_hidden_layers)
    ids = [backbone.upto(transcripts[i]) for i in cases.place]
    run = _Run(moved, ids, layer_number(layer, blocks), cases, plain.tau, plan.ridge)
    offsets, curve, best = run.train(plain.head.weights, steps, plan.seed, progress)
    if best == 0:
        return Joint(plain.head.on(backbone), plain, curve, 0)
    head = plain.head.with_weights(run.refit(offsets)).on(backbone)
    return Joint(head.with_offsets(tuple(moved.counts), offsets), plain, curve, best)


@final
@dataclass(frozen=True, slots=True)
class _Run:
    adapter: SvfAdapter
    ids: list[IntArray]
    layer: int
    cases: Cases
    tau: float
    ridge: float

    def train(
        self, weights: Float[np.ndarray, "workers d"], steps: JointSettings, seed: int, progress: Progress
    ) -> tuple[Float[np.ndarray, "offsets"], tuple[tuple[int, float, float | None], ...], int]:
        """Best offsets, the curve, and the epoch they are of."""
        fit = self.cases.fit
        scale = float(np.sqrt(np.mean(np.square(weights)))) or 1.0
        offsets = self.adapter.zeros().requires_grad_(True)
        rows = torch.tensor(weights / scale, dtype=offsets.dtype, device=offsets.device, requires_grad=True)
        optimizer = torch.optim.Adam([offsets, rows], lr=steps.rate)
        rng = np.random.default_rng([seed, 5])
        curve = [self.measure(0, offsets)]
        best, kept = 0, offsets.detach().clone()
        for epoch in range(1, steps.epochs + 1):
            progress("moving singular values", epoch - 1, steps.epochs)
            order = rng.permutation(len(fit))
            for start in range(0, len(order), steps.batch):
                part = fit[order[start : start + steps.batch]]
                loss = kl(self.states(offsets, part) @ rows.T * scale, self.cases.targets(self.tau, part))
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                with torch.no_grad():
                    offsets.clamp_(min=LEAST_OFFSET)
            if epoch % steps.every == 0 or epoch == steps.epochs:
                curve.append(self.measure(epoch, offsets))
                if _better(curve[-1], next(row for row in curve if row[0] == best)):
                    best, kept = epoch, offsets.detach().clone()
        progress("moving singular values", steps.epochs, steps.epochs)
        return kept.cpu().numpy().astype(np.float64), tuple(curve), best

    def refit(self, offsets: Float[np.ndarray, "offsets"]) -> Float[np.ndarray, "workers d"]:
        """The exact head on the fitted queries' states under offsets."""
        fit = self.cases.fit
        states = self.all_states(torch.as_tensor(offsets).to(self.adapter.zeros()), fit)
        return fit_weights(states, self.cases.targets(self.tau, fit), self.ridge)

    def measure(self, epoch: int, offsets: Tensor) -> tuple[int, float, float | None]:
        """Divergences of the exact head under offsets."""
        weights = self.refit(offsets.detach().cpu().numpy())
        fitted = self._kl(weights, offsets, self.cases.fit)
        held = self._kl(weights, offsets, self.cases.held) if self.cases.held.size else None
        return epoch, fitted, held

    def _kl(
        self, weights: Float[np.ndarray, "workers d"], offsets: Tensor, part: Int[np.ndarray, "some"]
    ) -> float:
        head = SelectionHead(weights, self.cases.workers)
        wanted: Targets = self.cases.targets(self.tau, part)
        return mean_kl(head.probabilities(self.all_states(offsets, part)), wanted)

    def all_states(
        self, offsets: Tensor, part: Int[np.ndarray, "some"], batch: int = 64
    ) -> Float[np.ndarray, "some d"]:
        """States of queries under offsets, without gradients."""
        with torch.no_grad():
            found = [
                self.states(offsets.detach(), part[i : i + batch]).double().cpu().numpy()
                for i in range(0, len(part), batch)
            ]
        return np.concatenate(found)

    def states(self, offsets: Tensor, part: Int[np.ndarray, "some"]) -> Float[Tensor, "some d"]:
        """States of a batch of queries, differentiable in the offsets."""
        chosen = [self.ids[i] for i in part]
        longest = max(len(ids) for ids in chosen)
        tokens = np.zeros((len(chosen), longest), dtype=np.int64)
        mask = np.zeros_like(tokens)
        for row, ids in enumerate(chosen):
            tokens[row, : len(ids)], mask[row, : len(ids)] = ids, 1
        place = offsets.device
        states = self.adapter.states(
            offsets, torch.as_tensor(tokens, device=place), torch.as_tensor(mask, device=place), self.layer
        )
        last = torch.as_tensor(mask.sum(axis=1) - 1, device=place)
        return states[torch.arange(len(chosen), device=place), last]


def _better(row: tuple[int, float, float | None], than: tuple[int, float, float | None]) -> bool:
    if row[2] is None or than[2] is None:
        return row[1] < than[1]
    return row[2] < than[2]
