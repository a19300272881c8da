"""Run a coroutine to its end from plain code, inside or outside a running event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

T = TypeVar("T")


def finish(work: Coroutine[Any, Any, T]) -> T:
    """The coroutine's result.

    Where this thread's loop runs already (a notebook, an async agent) the work is done by a loop of another
    thread, and this one waits: a synchronous call cannot give way.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1, thread_name_prefix="ramify-loop") as pool:
        return pool.submit(copy_context().run, asyncio.run, work).result()
