"""The progress seam: what long work is doing, how far it is, and what it waits for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Progress(Protocol):
    """Told as work goes on; the command line draws a live line from it."""

    def __call__(
        self, stage: str, done: int, total: int, *, tokens: int | None = None, waiting: str | None = None
    ) -> None:
        """``done`` of ``total`` units of ``stage``; ``tokens`` sampled so far; what is waited for.

        An empty ``stage`` speaks of the one under way, whose counts stay what they were.
        """
        ...


def silent(
    stage: str, done: int, total: int, *, tokens: int | None = None, waiting: str | None = None
) -> None:
    """Progress that nobody watches."""


def waits(progress: Progress) -> Callable[[str], None]:
    """A listener for servers' reasons to wait (``on_wait``), which shows them where progress is shown."""

    def listen(reason: str) -> None:
        progress("", 0, 0, waiting=reason)

    return listen
