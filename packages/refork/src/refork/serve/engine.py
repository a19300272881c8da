"""One thread that drives a live decoder, and the way to it and back.

The event loop puts questions into a queue; the thread submits them between two steps of the decoder. What a
step said goes back as one call into the loop, whatever the number of readers. A reader that is slow costs
the others nothing: what he has not fetched is joined, and is never more than his own limit of tokens.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, final

from refork.errors import UserError
from refork.serve.refusal import Refused

if TYPE_CHECKING:
    from concurrent.futures import Future

    from refork.decoding.live import DrawRequest, LiveDecoder, StepOutput

T = TypeVar("T")
#: Steps that may fail one after the other before the engine gives up.
_TRIES = 8
_log = logging.getLogger("refork.server")


class Listener(Protocol):
    """Who is told what his questions are answered; called in the loop's thread."""

    def hear(self, choice: int, output: StepOutput) -> None:
        """One choice said something."""
        ...

    def fail(self, error: UserError) -> None:
        """No choice will say anything more."""
        ...

    def wake(self) -> None:
        """Everything of this step has been told."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class _Questions:
    """The choices of one listener, to be submitted."""

    requests: Sequence[DrawRequest]
    listener: Listener
    loop: asyncio.AbstractEventLoop


@dataclass(frozen=True, slots=True, eq=False)
class _Drop:
    """A listener that left."""

    listener: Listener


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    """Something to do between two steps."""

    do: Callable[[], Any]
    result: Future[Any]


_Command: TypeAlias = "_Questions | _Drop | _Work | None"
_News: TypeAlias = "tuple[Listener, int, StepOutput]"


@final
class Engine:
    """The thread and its queue. Start, stop and all questions come from the event loop's thread.

    ``lock`` is held during every step, so that a model that something else computes with too is not used
    twice at a time. A step that fails ends every question that is open, and the engine goes on with those
    that come later; when one after the other fails it gives up, and ``failed`` says why.
    """

    def __init__(self, live: LiveDecoder, lock: AbstractContextManager[object], name: str = "model") -> None:
        self.live = live
        self.failed: str | None = None
        self._lock = lock
        self._name = name
        self._commands: queue.SimpleQueue[_Command] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ending = threading.Lock()
        self._open: dict[int, tuple[_Questions, int]] = {}
        self._request_ids: dict[Listener, set[int]] = {}
        self._failures = 0
        # What the decoder holds may be counted by its own thread only.
        self._running = self._waiting = self._bytes = 0

    @property
    def running(self) -> int:
        """Choices that have a row."""
        return self._running

    @property
    def waiting(self) -> int:
        """Choices that have none yet; questions the thread has not seen count as one."""
        return self._waiting + self._commands.qsize()

    @property
    def bytes(self) -> int:
        """Memory of keys and values."""
        return self._bytes

    # -- from the event loop's thread ------------------------------------------------------------

    def submit(self, requests: Sequence[DrawRequest], listener: Listener) -> None:
        """Ask questions; the listener hears of them from the running event loop.

        Raises: Refused (500) where the engine has failed.
        """
        self._put(_Questions(requests, listener, asyncio.get_running_loop()))

    def drop(self, listener: Listener) -> None:
        """Cancel what is left of a listener's questions."""
        if self.failed is None:
            self._put(_Drop(listener))

    async def call(self, do: Callable[[], T]) -> T:
        """What a function returns that uses the model: it runs between two steps.

        Raises: whatever it raises; Refused (500) where the engine has failed.
        """
        from concurrent.futures import Future

        result: Future[T] = Future()
        self._put(_Work(do, result))
        return await asyncio.wrap_future(result)

    def _put(self, command: _Command) -> None:
        # Under the lock that a failure is set under: no command joins a queue that nobody reads.
        with self._ending:
            if self.failed is not None:
                raise _failure(self._name)
            self._commands.put(command)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name=f"refork-engine-{self._name}", daemon=True
                )
                self._thread.start()

    async def stop(self) -> None:
        """End every question and the thread; waits for the step under way."""
        thread = self._thread
        if thread is not None:
            self._commands.put(None)
            await asyncio.to_thread(thread.join)
            self._thread = None
            self._end(_stopping(self._name))  # what was asked while it ended

    # -- in the engine's thread ------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._obey():
                if not self.live.idle:
                    self._step()
            self._end(_stopping(self._name))
        except BaseException as error:
            _log.exception("the engine of %s failed", self._name)
            with self._ending:
                self.failed = f"{type(error).__name__}: {error}"
            self._running = self._waiting = 0
            self._end(_failure(self._name))

    def _step(self) -> None:
        try:
            with self._lock:
                said = self.live.step()
        except Exception:
            self._failures += 1
            if self._failures >= _TRIES:
                raise
            _log.exception("a step of %s failed; all its answers end", self._name)
            self.live.clear()
            self._end(_failure(self._name), stay=True)
            return
        self._failures = 0
        self._count()
        self._tell(said)

    def _count(self) -> None:
        live = self.live
        self._running, self._waiting, self._bytes = live.running, live.waiting, live.bytes

    def _obey(self) -> bool:
        """Take all commands, and wait for one where there is nothing else to do; False: the end."""
        while True:
            try:
                command = self._commands.get_nowait()
            except queue.Empty:
                self._count()
                if not self.live.idle:
                    return True
                command = self._commands.get()
            if command is None:
                return False
            if isinstance(command, _Questions):
                self._submit(command)
            elif isinstance(command, _Drop):
                for request_id in self._request_ids.pop(command.listener, ()):
                    del self._open[request_id]
                    self.live.cancel(request_id)
            # One piece of work between two steps, so that nobody who is answered waits for more.
            elif command.result.set_running_or_notify_cancel():
                self._work(command)
                if not self.live.idle:
                    return True

    def _submit(self, questions: _Questions) -> None:
        request_ids = self._request_ids.setdefault(questions.listener, set())
        try:
            for choice, ask in enumerate(questions.requests):
                request_id = self.live.submit(ask)
                request_ids.add(request_id)
                self._open[request_id] = (questions, choice)
        except Exception as error:
            for request_id in self._request_ids.pop(questions.listener):
                del self._open[request_id]
                self.live.cancel(request_id)
            if not isinstance(error, UserError):
                _log.exception("a question could not be submitted")
                error = _failure(self._name)
            self._post(questions.loop, _failed, [questions.listener], error)

    def _work(self, work: _Work) -> None:
        try:
            with self._lock:
                work.result.set_result(work.do())
        except Exception as error:
            work.result.set_exception(error)

    def _tell(self, said: Sequence[StepOutput]) -> None:
        """Hand a step's news to the loops of their listeners: one call each."""
        news: dict[asyncio.AbstractEventLoop, list[_News]] = {}
        for item in said:
            found = self._open.get(item.request_id)
            if found is None:
                continue
            questions, choice = found
            news.setdefault(questions.loop, []).append((questions.listener, choice, item))
            if item.finish is not None:
                del self._open[item.request_id]
                request_ids = self._request_ids[questions.listener]
                request_ids.discard(item.request_id)
                if not request_ids:
                    del self._request_ids[questions.listener]
        for loop, items in news.items():
            self._post(loop, _notify, items)

    def _end(self, error: UserError, *, stay: bool = False) -> None:
        """Tell everybody who still waits that nothing more will come; ``stay``: new commands are taken."""
        # By listener: one failure each, however many of its choices are open.
        left = {questions.listener: questions.loop for questions, _ in self._open.values()}
        # A decoder that failed is asked for nothing more; one that stays was cleared before.
        if self.failed is None and not stay:
            for request_id in self._open:
                self.live.cancel(request_id)
            self._count()
        self._open.clear()
        self._request_ids.clear()
        while not stay:
            try:
                command = self._commands.get_nowait()
            except queue.Empty:
                break
            if isinstance(command, _Questions):
                left[command.listener] = command.loop
            elif isinstance(command, _Work) and command.result.set_running_or_notify_cancel():
                command.result.set_exception(error)
        for listener, loop in left.items():
            self._post(loop, _failed, [listener], error)

    def _post(self, loop: asyncio.AbstractEventLoop, call: Callable[..., None], *given: Any) -> None:
        try:
            loop.call_soon_threadsafe(call, *given)
        except RuntimeError:
            _log.warning("a reader's event loop has closed; what it was told is lost")


def _stopping(name: str) -> Refused:
    return Refused(503, f"the server is stopping ({name})", "server_error", "stopping")


def _failure(name: str) -> Refused:
    return Refused(
        500, f"the engine of {name} failed; the server's log says how", "server_error", "engine_failed"
    )


def _notify(news: Sequence[_News]) -> None:
    for listener, choice, said in news:
        listener.hear(choice, said)
    # Once a step, behind all that it said: readers then find one part, not one a token.
    for listener in {id(item[0]): item[0] for item in news}.values():
        listener.wake()


def _failed(listeners: Sequence[Listener], error: UserError) -> None:
    for listener in listeners:
        listener.fail(error)
