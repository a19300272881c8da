"""Ctrl-C in long work: finish what is under way, save, then stop."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self, final


@final
class Interrupt:
    """While open, Ctrl-C only sets ``asked``, so that no step is left half done; a second one stops at once.

    Signals reach the main thread only; elsewhere this does nothing.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None
        self._here = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> Self:
        if self._here:
            self._before = signal.signal(signal.SIGINT, self._hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._here:
            signal.signal(signal.SIGINT, self._before)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
