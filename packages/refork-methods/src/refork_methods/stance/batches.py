"""Many arms, a batch at a time: what ended with a batch is on the tree when the next begins."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final, TypeVar

from refork.forking.arm import Fork, ReadyArm, run_jobs
from refork.progress import Progress, silent

K = TypeVar("K", bound=Hashable)
#: Draws that are sampled together.
DRAWS: Final = 4096


def run_batches(
    jobs: Iterable[tuple[K, ReadyArm]], total: int, stage: str, progress: Progress = silent
) -> dict[K, Fork]:
    """Every arm by its name. Progress counts arms, and the tokens sampled."""
    arms: dict[K, Fork] = {}
    batch: dict[K, ReadyArm] = {}
    held = tokens = 0

    def flush() -> None:
        nonlocal held, tokens
        for name, arm in zip(batch, run_jobs(list(batch.values())), strict=True):
            arms[name] = arm
            tokens += arm.tokens
        batch.clear()
        held = 0
        progress(stage, len(arms), total, tokens=tokens)

    # From a generator an arm is prepared only when it is reached, so one batch of arms is held at a time.
    for name, job in jobs:
        batch[name] = job
        held += len(job.branches)
        if held >= DRAWS:
            flush()
    if batch:
        flush()
    return arms
