"""Run a coroutine to its end from plain code, inside or outside a running event loop."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar, final

T = TypeVar("T")


@final
class _Background:
    """One event loop in a thread of its own.

    The same loop serves all calls: network clients keep connections that belong to the loop they were opened
    in, and a fresh loop for every call would leave them with a closed one.
    """

    def __init__(self) -> None:
        self.process = os.getpid()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="refork-loop", daemon=True)
        self._thread.start()
        self.ident = self._thread.ident

    def close(self) -> None:
        if self.process != os.getpid():  # a fork has the object and not the thread
            return
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        # run_forever has returned in the thread that was joined, so this thread may drive the loop now.
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


_lock = threading.Lock()
_started: list[_Background] = []


def _background() -> _Background:
    with _lock:
        if not _started or _started[-1].process != os.getpid():
            _started.append(_Background())
            atexit.register(_started[-1].close)
        return _started[-1]


def finish(work: Coroutine[Any, Any, T]) -> T:
    """The coroutine's result, with the caller's context variables.

    The caller waits, its own event loop (a notebook's, an async agent's) too: a plain call cannot give way.
    Raises: RuntimeError where it is called by work that it runs itself, which would wait for ever.
    """
    background = _background()
    # Waiting on the loop in its own thread would never end. Closed, the coroutine does not warn.
    if threading.get_ident() == background.ident:
        work.close()
        raise RuntimeError("a plain call inside asynchronous work of this package: await the work instead")
    future = asyncio.run_coroutine_threadsafe(work, background.loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise
