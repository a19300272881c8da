"""The loop under every training of a fixed number of steps: accumulate, clip, step, log, save, go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from refork.errors import BadInput
from refork.interrupt import Interrupt
from refork.progress import Progress, silent
from refork.types import Json
from refork_methods.train.checkpoint import resume, save_checkpoint
from refork_methods.train.schedule import Schedule, set_rate
from refork_methods.train.sft import batch_order
from refork_methods.train.tracker import Tracker

#: The parts of a step's loss, whose sum is the loss, each with what it adds to the step's metrics.
Losses = Callable[[int], Iterable[tuple[Tensor, Json]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FitSettings:
    """``steps`` batches of ``rows`` examples, ``micro_rows`` at a time (None: all), saved ``every`` steps.

    ``every`` 0 saves at the end only.
    """

    steps: int
    rows: int = 16
    micro_rows: int | None = None
    schedule: Schedule = field(default_factory=lambda: Schedule(peak=1e-4, shape="cosine", warmup=10))
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    every: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps < 1 or self.rows < 1 or (self.micro_rows is not None and self.micro_rows < 1):
            raise BadInput("steps, rows and micro_rows must be at least 1", where="training settings")
        if self.max_grad_norm <= 0 or self.every < 0:
            raise BadInput("max_grad_norm must be above 0, every 0 or more", where="training settings")

    def batches(self, lengths: Sequence[int]) -> list[list[int]]:
        """The numbers of the examples of every step."""
        return list(batch_order(lengths, self.rows, self.steps, self.seed))


def fit(
    model: Any,
    optimizer: torch.optim.Optimizer,
    losses: Losses,
    plan: FitSettings,
    *,
    stage: str,
    folder: Path | None = None,
    digest: str = "",
    tracker: Tracker | None = None,
    progress: Progress = silent,
) -> list[Json]:
    """Train a model in place; one record per step: step, loss, grad_norm, learning_rate and the metrics.

    The gradient of a step is the sum over its parts, so memory is bounded by the largest part. ``folder``,
    ``digest`` and what is raised beside a gradient that is not finite (BadInput): as :func:`run_steps`.
    """

    def step(number: int) -> Json:
        return gradient_step(model, optimizer, losses(number), plan.max_grad_norm, stage)

    log = run_steps(
        model, optimizer, step, plan.steps, plan.schedule, every=plan.every, stage=stage, folder=folder,
        digest=digest, tracker=tracker, progress=progress,
    )  # fmt: skip
    model.eval()
    return log


def run_steps(
    model: Any,
    optimizer: torch.optim.Optimizer,
    step: Callable[[int], Json],
    total: int,
    schedule: Schedule,
    *,
    every: int,
    stage: str,
    folder: Path | None = None,
    digest: str = "",
    tracker: Tracker | None = None,
    progress: Progress = silent,
    resumed: Callable[[], None] | None = None,
) -> list[Json]:
    """Make the steps (0-based) of a training and keep what each says; one record per step.

    With ``folder``, checkpoints are kept there and a call that was stopped goes on from the last one, ending
    with the same weights bit for bit. Ctrl-C lets a step end and saves it. ``digest`` names what the run is:
    data and settings. ``resumed`` is called once the model is in the state of a checkpoint.

    Raises:
        Mismatch: the folder holds checkpoints of another run.
    """
    position = resume(folder, digest, model, optimizer)
    log: list[Json] = [] if position is None else list(position["log"])
    if position is not None and resumed is not None:
        resumed()
    with Interrupt() as stop:
        for number in range(len(log), total):
            set_rate(optimizer, rate := schedule.rate(number, total))
            record = {"step": number, "learning_rate": rate} | step(number)
            log.append(record)
            if tracker is not None:
                tracker.log(number, record)
            done = number + 1
            progress(stage, done, total)
            due = done == total or stop.asked or (every and done % every == 0)
            if folder is not None and due:
                save_checkpoint(folder, done, model, optimizer, {"digest": digest, "log": log})
            # After the save above, so that what was done is resumed and not repeated.
            if stop.asked and done < total:
                raise KeyboardInterrupt
    return log


def gradient_step(
    model: Any,
    optimizer: torch.optim.Optimizer,
    parts: Iterable[tuple[Tensor, Json]],
    max_grad_norm: float,
    stage: str,
) -> Json:
    """One step down the sum of some losses: loss, grad_norm (before clipping) and the sums of their metrics.

    Raises:
        BadInput: a gradient that is not finite; the step is not made.
    """
    optimizer.zero_grad(set_to_none=True)
    total = 0.0
    sums: Json = {}
    # One part at a time: its graph is freed by its own backward before the next forward pass begins.
    for loss, metrics in parts:
        loss.backward()  # type: ignore[no-untyped-call]
        total += float(loss.detach())
        for name, value in metrics.items():
            sums[name] = sums.get(name, 0) + value
    trained = [p for p in model.parameters() if p.requires_grad]
    norm = torch.nn.utils.clip_grad_norm_(trained, max_grad_norm)
    if not bool(torch.isfinite(norm)):
        optimizer.zero_grad(set_to_none=True)
        raise BadInput(
            "the gradient is not finite; no step was made",
            where=stage,
            hint="lower the learning rate, or train in float32",
        )
    optimizer.step()
    return {"loss": total, "grad_norm": float(norm)} | sums
