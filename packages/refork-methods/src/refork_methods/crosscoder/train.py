"""Training: Adam on exact sparse gradients, dead features revived, forbidden weights exactly 0, resumable."""

from __future__ import annotations

import dataclasses
import math
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from refork.errors import BadInput
from refork.interrupt import Interrupt
from refork.progress import Progress, silent
from refork.runs.recipe import RecipePart
from refork.types import Json
from refork_methods.crosscoder import checkpoint
from refork_methods.crosscoder.gradients import (
    Auxiliary,
    Weights,
    auxiliary_gradients,
    dense_gradients,
    encoded,
    rebuilt,
    sparse_gradients,
)
from refork_methods.crosscoder.model import CrossCoder
from refork_methods.crosscoder.normalizer import fit_normalizer
from refork_methods.crosscoder.select import Active, batch_top_k, fired, top_k
from refork_methods.crosscoder.sources import Source


class TrainSettings(RecipePart):
    """How a crosscoder is trained; null stands for a value that depends on the sizes, see each.

    ``warmup`` 0 with ``decay`` 0 is the paper's constant rate. The threshold follows the smallest kept score.
    ``l1_shared`` and ``l1_exclusive`` are the paper's penalties (see :func:`partition_penalty`).

    Source: arXiv:2606.26474 (9,000 steps of 1,024, rate 1e-4, clip 1); arXiv:2504.02922 (rate, auxiliary
    loss, threshold). Warm-up and decay are ours.
    """

    #: Training steps.
    steps: int = Field(default=9_000, ge=1)
    #: Positions of a step.
    batch: int = Field(default=1_024, ge=1)
    #: Peak of Adam's learning rate; default: 2e-4 / sqrt(dict_size / 16384).
    rate: float | None = Field(default=None, gt=0)
    #: Steps of linear rise; default: a twentieth, 1,000 at most.
    warmup: int | None = Field(default=None, ge=0)
    #: Share of the steps, the last, over which the rate falls to 0.
    decay: float = Field(default=0.2, ge=0, le=1)
    #: Largest gradient norm.
    clip: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    #: Weight of the auxiliary loss on dead features; 0 for none.
    aux: float = Field(default=1 / 32, ge=0, allow_inf_nan=False)
    #: Dead features that take part in a sample; default: half of both widths.
    aux_k: int | None = Field(default=None, ge=1)
    #: Activations for which a dead feature was silent; default: 10 million, a twentieth of the run at most.
    dead_after: int | None = Field(default=None, ge=1)
    #: Step from which the inference threshold is followed; default: 1,000, half of the run at most.
    threshold_start: int | None = Field(default=None, ge=0)
    #: Weight of the past in that running mean.
    threshold_decay: float = Field(default=0.999, ge=0, lt=1)
    #: Penalty of the l1 activation.
    l1: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    #: Penalty of shared features.
    l1_shared: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    #: Penalty of exclusive features.
    l1_exclusive: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    #: Of weights and order.
    seed: int = 0
    #: Steps between two lines of the log.
    log_every: int = Field(default=100, ge=1)
    #: Steps between two checkpoints.
    checkpoint_every: int = Field(default=1_000, ge=1)

    def resolved(self, model: CrossCoder) -> TrainSettings:
        """The same with every None filled in for a model."""
        width = sum(model.d_in)
        filled = {
            "rate": 2e-4 / math.sqrt(model.dict_size / 16_384),
            "warmup": min(1_000, self.steps // 20),
            "aux_k": max(1, width // 4),
            "dead_after": min(10_000_000, max(1, self.steps * self.batch // 20)),
            "threshold_start": min(1_000, self.steps // 2),
        }
        return self.model_copy(update={n: v for n, v in filled.items() if getattr(self, n) is None})

    def rate_at(self, step: int) -> float:
        """The learning rate of a step (0-based) of resolved settings."""
        assert self.rate is not None
        assert self.warmup is not None
        if step < self.warmup:
            return self.rate * (step + 1) / self.warmup
        falling = self.decay * self.steps
        left = self.steps - step
        return self.rate * min(1.0, left / falling) if falling > 0 else self.rate


@dataclass(frozen=True, slots=True)
class LogRow:
    """One batch under way. ``mse`` per channel on the normaliser's scale; ``fve``: 1 - mse / variance.

    ``l1_share`` is the penalties' part of the whole loss, ``aux`` the auxiliary loss before its coefficient
    (None where no feature was dead), ``dead`` the features silent for ``dead_after`` activations.
    """

    step: int
    loss: float
    mse: float
    fve: float
    l0: float
    l1_share: float
    aux: float | None
    dead: int
    rate: float


@dataclass(frozen=True, slots=True)
class Report:
    """What training did: the log, its speed in pairs of activations a second, and its memory in MiB.

    ``peak_mib`` is the whole process's highest resident memory, ``gpu_mib`` the accelerator's (None without).
    Speed counts the steps of this call only, without taking statistics and without checkpoints.
    """

    steps: int
    activations: int
    seconds: float
    activations_per_second: float
    peak_mib: float
    gpu_mib: float | None
    dead: int
    log: tuple[LogRow, ...]

    def to_json(self) -> Json:
        """As plain JSON."""
        return dataclasses.asdict(self)


def partition_penalty(model: CrossCoder, settings: TrainSettings, samples: int) -> Tensor | None:
    """Gradient of the paper's L1 terms by each value that fires, [f]; None where both are 0.

    The loss is ``l1_shared * mean|f_S| + l1_exclusive * (mean|f_(A and S)| + mean|f_(B and S)|) / 2`` with
    means over samples and features, so shared features are in both terms. As published (1e-3) the two are
    below 0.3 % of the loss: :class:`LogRow` says what share they have in a run.

    Source: arXiv:2606.26474, as its released code computes it.
    """
    if settings.l1_shared == 0 and settings.l1_exclusive == 0:
        return None
    blocks = model.blocks
    n_a, n_b, n_s = (b.stop - b.start for b in (blocks["A"], blocks["B"], blocks["shared"]))
    for_a = settings.l1_exclusive / 2 / max(1, n_a + n_s)
    for_b = settings.l1_exclusive / 2 / max(1, n_b + n_s)
    penalty = torch.empty(model.dict_size, device=model.W_dec.device)
    penalty[blocks["A"]], penalty[blocks["B"]] = for_a, for_b
    penalty[blocks["shared"]] = settings.l1_shared / max(1, n_s) + for_a + for_b
    return penalty / samples


@dataclass(slots=True)
class State:
    """What changes from step to step besides the model."""

    optimizer: torch.optim.Adam
    silent_for: Tensor
    step: int = 0
    cut: float = 0.0


@torch.no_grad()
def train(
    model: CrossCoder,
    source: Source,
    settings: TrainSettings | None = None,
    *,
    folder: Path | None = None,
    progress: Progress = silent,
) -> Report:
    """Train a crosscoder in place; with a ``folder`` it leaves checkpoints there and goes on from the last.

    A model without statistics gets those of the source first. Interrupted (Ctrl-C) it finishes its step,
    saves, and stops; the same call again goes on bit for bit.

    Raises:
        BadInput: widths that do not fit, fewer pairs than one batch, or a gradient that is not finite; the
            step is not made.
        Mismatch: the folder holds a run with other settings, another model or other activations.
    """
    given = settings or TrainSettings()
    plan = given.resolved(model)
    _check(model, source, plan)
    state = State(
        torch.optim.Adam(model.parameters(), lr=1.0, fused=True),
        torch.zeros(model.dict_size, dtype=torch.int64, device=model.W_dec.device),
    )
    log: list[LogRow] = []
    if folder is not None:
        # Before the statistics are taken: a resumed model brings the ones that its weights were trained with.
        log = [LogRow(**row) for row in checkpoint.restore(folder, model, state, plan, source)]
    model.origin = source.origin() | model.origin
    if not model.normalized:
        model.set_normalizer(fit_normalizer(source.chunk(i) for i in range(len(source.sizes))))
    penalty = partition_penalty(model, plan, plan.batch)
    first, seconds = state.step, 0.0
    with Interrupt() as stop:
        began = time.perf_counter()
        for z in batches(model, source, plan, state.step):
            row = _step(model, z, plan, state, penalty)
            if row is not None:
                log.append(row)
                progress("training", state.step, plan.steps)
            last = state.step == plan.steps
            if folder is not None and (last or stop.asked or state.step % plan.checkpoint_every == 0):
                seconds += time.perf_counter() - began
                checkpoint.save(folder, model, state, [dataclasses.asdict(r) for r in log])
                began = time.perf_counter()
            if stop.asked and not last:
                raise KeyboardInterrupt
        seconds += time.perf_counter() - began
    return _report(model, state, plan, log, first, seconds)


def batches(model: CrossCoder, source: Source, plan: TrainSettings, start: int) -> Iterator[Tensor]:
    """Batches on the normaliser's scale, [batch, d_a + d_b], from step ``start`` to the end.

    Each pass over the source takes its chunks in a fresh order and the rows of a chunk in a fresh order; rows
    that do not fill a batch wait for a later pass, those of a chunk smaller than a batch for the next chunk.
    Which rows a step sees depends on the seed and the step only.
    """
    device = model.mean.device
    shift, scale = model.mean, model.scale.reciprocal()
    step, epoch = 0, 0
    held: list[tuple[int, Tensor]] = []  # rows of small chunks, fewer than a batch
    while step < plan.steps:
        order = np.random.default_rng([plan.seed, epoch]).permutation(len(source.sizes))
        for which in order.tolist():
            size, waiting = source.sizes[which], held
            full = (sum(len(mine) for _, mine in waiting) + size) // plan.batch
            rows = torch.from_numpy(np.random.default_rng([plan.seed, epoch, which]).permutation(size))
            held = []
            if size < plan.batch:
                left = sum(len(mine) for _, mine in waiting) + size - full * plan.batch
                held = [(which, rows[size - left :])] if full else [*waiting, (which, rows)]
            if step + full <= start:  # resumed behind this chunk, or it is held: it need not be read
                step += full
                continue
            a, b = _read(source, which)
            if waiting:
                parts = [[side[mine] for side in _read(source, one)] for one, mine in waiting]
                a, b = (
                    torch.cat([*old, new]) for old, new in zip(zip(*parts, strict=True), (a, b), strict=True)
                )
                rows = torch.cat([torch.arange(len(a) - size), rows + len(a) - size])
            for i in range(full):
                if step >= plan.steps:
                    return
                if step >= start:
                    at = rows[i * plan.batch : (i + 1) * plan.batch]
                    z = torch.cat([a[at], b[at]], dim=1).to(device, torch.float32)
                    yield z.sub_(shift).mul_(scale)
                step += 1
        epoch += 1


def _read(source: Source, which: int) -> tuple[Tensor, Tensor]:
    a, b = source.chunk(which)
    return torch.from_numpy(np.asarray(a)), torch.from_numpy(np.asarray(b))


def _step(
    model: CrossCoder, z: Tensor, plan: TrainSettings, state: State, penalty: Tensor | None
) -> LogRow | None:
    """One update; a row of the log where one is due."""
    parameters = (model.W_enc, model.b_enc, model.W_dec, model.b_dec)
    weights = Weights(*(p.detach() for p in parameters))
    values = encoded(weights, z)
    active, kept = _select(model, values, plan, state)
    error = z - (
        rebuilt(weights, active, len(z)) if kept is None else torch.addmm(weights.b_dec, kept, weights.W_dec)
    )
    slope = error * (-2 / error.numel())
    l1 = 0.0
    if kept is None:
        grads = sparse_gradients(weights, z, active, slope, penalty)
    else:
        grads, l1 = _l1_gradients(model, weights, z, kept, slope, plan, penalty)
    if penalty is not None:
        l1 += float((penalty[active.features] * active.values).sum())
    state.silent_for += len(z)
    state.silent_for[active.features] = 0
    aux = _revive(weights, z, values, error, plan, state, grads)
    _apply(model, grads, plan, state)
    _follow(model, plan, state)
    state.step += 1
    if state.step % plan.log_every and state.step != plan.steps:
        return None
    return _row(z, error, active, l1, aux, plan, state)


def _select(
    model: CrossCoder, values: Tensor, plan: TrainSettings, state: State
) -> tuple[Active, Tensor | None]:
    """What fires; with it, all values where many do (``l1``)."""
    if model.activation == "l1":
        return fired(values, values > 0), values
    assert model.k is not None
    scores = model.score_weights()
    if model.activation == "topk":
        return fired(values, top_k(values, scores, model.k)), None
    # A little below the last cut: values under this guess need not be sorted.
    active, state.cut = batch_top_k(values, scores, model.k * len(values), 0.9 * state.cut)
    return active, None


def _l1_gradients(
    model: CrossCoder, weights: Weights, z: Tensor, values: Tensor, slope: Tensor, plan: TrainSettings,
    penalty: Tensor | None,
) -> tuple[Weights, float]:  # fmt: skip
    """Gradients with the norm-weighted penalty ``l1 * mean_n sum_i f_i (|W_dec[i, A]| + |W_dec[i, B]|) / d``.

    Divided by d = d_a + d_b, since the squared error is a mean over channels and not their sum.
    """
    norms = model.decoder_norms()
    price = plan.l1 / z.numel()
    total = norms.sum(dim=1) * price
    grads = dense_gradients(weights, z, values, slope, total if penalty is None else total + penalty)
    mass = values.sum(dim=0)
    for column, which in enumerate(("A", "B")):
        channels = model.side(which)  # type: ignore[arg-type]
        # The gradient of a norm is w over the norm: undefined at 0, where an excluded side's weights lie.
        pull = price * mass / norms[:, column].clamp_min(1e-12)
        grads.W_dec[:, channels] += weights.W_dec[:, channels] * pull[:, None]
    return grads, float((mass * total).sum())


def _revive(
    weights: Weights, z: Tensor, values: Tensor, error: Tensor, plan: TrainSettings, state: State, grads:
    Weights
) -> Auxiliary | None:  # fmt: skip
    assert plan.dead_after is not None
    assert plan.aux_k is not None
    if plan.aux == 0:
        return None
    dead = (state.silent_for >= plan.dead_after).nonzero().view(-1)
    if not len(dead):
        return None
    return auxiliary_gradients(weights, z, values, error, dead, grads, most=plan.aux_k, coefficient=plan.aux)


def _apply(model: CrossCoder, grads: Weights, plan: TrainSettings, state: State) -> None:
    """Mask, clip and apply gradients; forbidden weights stay exactly 0."""
    for features, channels in model.forbidden():
        grads.W_enc[features, channels] = 0.0
        grads.W_dec[features, channels] = 0.0
    parts = grads.parts()
    norm = math.sqrt(sum(float(torch.linalg.vector_norm(part)) ** 2 for part in parts))
    if not math.isfinite(norm):
        raise BadInput(
            f"the gradient is {norm}",
            where=f"crosscoder training, step {state.step}",
            hint="activations that are not finite give such gradients, and so does too high a rate",
        )
    if norm > plan.clip:
        for part in parts:
            part.mul_(plan.clip / norm)
    for parameter, part in zip((model.W_enc, model.b_enc, model.W_dec, model.b_dec), parts, strict=True):
        parameter.grad = part
    state.optimizer.param_groups[0]["lr"] = plan.rate_at(state.step)
    state.optimizer.step()
    state.optimizer.zero_grad()
    model.enforce_partition()


def _follow(model: CrossCoder, plan: TrainSettings, state: State) -> None:
    """The inference threshold follows the smallest score that was kept."""
    assert plan.threshold_start is not None
    if model.activation != "batch_topk" or state.step < plan.threshold_start:
        return
    if model.threshold < 0:  # never set before
        model.threshold.fill_(state.cut)
    else:
        model.threshold.mul_(plan.threshold_decay).add_((1 - plan.threshold_decay) * state.cut)


def _row(
    z: Tensor, error: Tensor, active: Active, l1: float, aux: Auxiliary | None, plan: TrainSettings, state:
    State
) -> LogRow:  # fmt: skip
    assert plan.dead_after is not None
    mse = float(error.square().mean())
    spread = float((z - z.mean(dim=0)).square().mean())
    loss = mse + l1 + (0.0 if aux is None else plan.aux * aux.loss)
    return LogRow(
        step=state.step,
        loss=loss,
        mse=mse,
        fve=1 - mse / spread if spread > 0 else float("nan"),
        l0=len(active.rows) / len(z),
        l1_share=l1 / loss if loss > 0 else 0.0,
        aux=None if aux is None else aux.loss,
        dead=int((state.silent_for >= plan.dead_after).sum()),
        rate=plan.rate_at(state.step - 1),
    )


def _check(model: CrossCoder, source: Source, plan: TrainSettings) -> None:
    if source.d_in != model.d_in:
        raise BadInput(
            f"activations of widths {source.d_in} do not fit a crosscoder of {model.d_in}", where="train"
        )
    if sum(source.sizes) < plan.batch:
        raise BadInput(
            f"the {sum(source.sizes)} pairs of the source do not fill a batch of {plan.batch}",
            where="train",
            hint="cache more activations, or use a smaller batch",
        )
    if len(model.frozen):
        raise BadInput("a folded crosscoder is for use, not for training", where="train")


def _report(
    model: CrossCoder, state: State, plan: TrainSettings, log: list[LogRow], first: int, seconds: float
) -> Report:
    assert plan.dead_after is not None
    done = (state.step - first) * plan.batch
    unit = 1 if sys.platform == "darwin" else 1024
    on_gpu = model.W_dec.is_cuda
    return Report(
        steps=state.step,
        activations=state.step * plan.batch,
        seconds=seconds,
        activations_per_second=done / seconds if seconds > 0 and done else 0.0,
        peak_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20,
        gpu_mib=torch.cuda.max_memory_allocated() / 2**20 if on_gpu else None,
        dead=int((state.silent_for >= plan.dead_after).sum()),
        log=tuple(log),
    )
