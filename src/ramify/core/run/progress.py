"""The progress seam: what long work is doing, how far it is, and what it waits for."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Told as work goes on; the command line draws a live line from it."""

    def __call__(
        self, stage: str, done: int, total: int, *, tokens: int | None = None, waiting: str | None = None
    ) -> None:
        """``done`` of ``total`` units of ``stage``; ``tokens`` sampled so far; what is waited for."""
        ...


def silent(
    stage: str, done: int, total: int, *, tokens: int | None = None, waiting: str | None = None
) -> None:
    """Progress that nobody watches."""
