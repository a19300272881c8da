"""A live client of an MCP server, used from ordinary code: an event loop of its own in a thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from typing import Any, Final, TypeVar, final

from refork.errors import MissingExtra

T = TypeVar("T")
#: Seconds that a call which was given up has to tell its server so.
_COURTESY: Final = 6.0


@final
class Link:
    """A client that lives in another thread until :meth:`close`.

    ``changing``: the server says that its tools may change, or said that they did.

    Raises:
        MissingExtra: the package mcp is not installed.
    """

    def __init__(self) -> None:
        try:
            import mcp  # noqa: F401
            from anyio.from_thread import start_blocking_portal
        except ImportError as error:
            raise MissingExtra("mcp", "mcp") from error
        for name in ("mcp", "client"):
            # What the client logs is told in our errors; who sets up logging still gets it.
            logger = logging.getLogger(name)
            if not logger.handlers:
                logger.addHandler(logging.NullHandler())
        self._stack = ExitStack()
        self._portal = self._stack.enter_context(start_blocking_portal())
        self._loop: int = self._portal.call(threading.get_ident)
        self._life: Future[None] | None = None
        self._scope: Any = None
        self._leave: Any = None
        self._over = False
        self.client: Any = None
        self.changing = False

    def open(self, target: Any, seconds: float) -> None:
        """Connect; raises what the client raises, and TimeoutError."""
        ready: Future[None] = Future()

        def over(life: Future[None]) -> None:
            if not ready.done():
                ready.set_exception(_error(life) or ConnectionError("the connection ended"))

        try:
            self._life = self._portal.start_task_soon(self._live, target, ready)
            self._life.add_done_callback(over)
            ready.result(seconds)
        except BaseException:
            self.close(at_once=True)
            raise

    async def _live(self, target: Any, ready: Future[None]) -> None:
        import anyio
        from mcp import Client
        from mcp_types import ToolListChangedNotification

        async def hear(message: Any) -> None:
            self.changing = self.changing or isinstance(message, ToolListChangedNotification)

        if self._over:
            return
        self._leave = anyio.Event()
        with anyio.CancelScope() as self._scope:
            # Nothing is kept from one listing of tools to the next.
            async with Client(target, cache=None, message_handler=hear) as client:
                tools = client.server_capabilities.tools
                self.changing = self.changing or bool(tools is not None and tools.list_changed)
                self.client = client
                if ready.set_running_or_notify_cancel():
                    ready.set_result(None)
                await self._leave.wait()

    @property
    def lost(self) -> bool:
        """Whether the connection has ended."""
        return self._life is None or self._life.done()

    @property
    def reason(self) -> BaseException | None:
        """What ended the connection, where that is known."""
        return _error(self._life) if self._life is not None and self._life.done() else None

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """The result of work in the loop. What breaks it off here (Ctrl-C) cancels it there, and is raised.

        Raises:
            RuntimeError: the link is closed.
        """
        import anyio

        done = threading.Event()
        scopes: list[anyio.CancelScope] = []
        given_up = False

        async def watched() -> T:
            try:
                with anyio.CancelScope() as scope:
                    scopes.append(scope)
                    if given_up:
                        scope.cancel()
                    return await work()
            finally:
                done.set()
            raise RuntimeError("it was given up")

        def give_up() -> None:
            for scope in scopes:
                scope.cancel()

        try:
            return self._portal.start_task_soon(watched).result()
        except Exception:
            raise
        except BaseException:
            # It may come before there is a future: the work is begun in the other thread.
            given_up = True
            with suppress(RuntimeError):
                self._portal.start_task_soon(give_up)
                done.wait(_COURTESY)
            raise

    def close(self, *, at_once: bool = False) -> None:
        """End the client and its thread; ``at_once`` without taking leave. A second time does nothing."""
        if threading.get_ident() == self._loop:
            # What nobody holds is collected in any thread, and this one cannot wait for its own end.
            threading.Thread(target=self.close, daemon=True).start()
            return
        self._over = True
        # A loop that has stopped has nothing to leave.
        with suppress(RuntimeError):
            self._portal.start_task_soon(self._end, at_once)
        self._stack.close()

    def _end(self, at_once: bool) -> None:
        if self._leave is not None:
            self._leave.set()
        if at_once and self._scope is not None:
            self._scope.cancel()


def _error(life: Future[None]) -> BaseException | None:
    return None if life.cancelled() else life.exception()
