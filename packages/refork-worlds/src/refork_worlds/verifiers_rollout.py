"""A rollout of a ``verifiers`` environment that waits wherever it asks its model.

The environment runs its own loop (``run_rollout``) in a thread with an event loop; its model is a client of
ours that hands each question out and waits for the answer. So every environment runs as it does anywhere:
its own turns, tools, stop conditions and rubric, whatever it overrides.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import os
import threading
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from types import SimpleNamespace
from typing import Any, Final, TypeAlias, final

from refork.types import Json, Message

#: What a reward function that raised is logged as; it is then counted as 0, which it is not.
_FAILED: Final = "reward function"
_FAILURES: ContextVar[list[str] | None] = ContextVar("failures", default=None)


@dataclass(frozen=True, slots=True)
class Asked:
    """The model is asked: the messages of its context (one text in completion mode) and the tools offered."""

    messages: list[Json] | str
    tools: tuple[Json, ...] = ()


@dataclass(frozen=True, slots=True)
class Ended:
    """The rollout is over; ``failures``: reward functions that raised."""

    output: Json
    failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Broken:
    """The environment raised, or did not answer in time."""

    why: str


Event: TypeAlias = Asked | Ended | Broken
_Ask: TypeAlias = Callable[[Any, Any], Awaitable[Message]]


@final
class _Watch(logging.Handler):
    """Notes reward functions that raise, for the rollout in whose context they do."""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message."""
        found, text = _FAILURES.get(), record.getMessage()
        if found is not None and _FAILED in text and record.levelno >= logging.ERROR:
            found.append(text)


@final
class _Loop:
    """An event loop in a daemon thread, shared by the rollouts of this process."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="refork-verifiers", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Cancel what still waits, so that the interpreter ends without a word about it."""
        asyncio.run_coroutine_threadsafe(self._cancel(), self.loop)
        self._thread.join(timeout=2)

    async def _cancel(self) -> None:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        self.loop.stop()


_WATCH: Final = _Watch(logging.ERROR)
_LOCK = threading.Lock()
_LOOPS: list[_Loop] = []
_LEFT: list[_Loop] = []


def _loop() -> _Loop:
    with _LOCK:
        if not _LOOPS or _LOOPS[0].process != os.getpid():
            _LOOPS[:] = [_Loop()]
            logging.getLogger("verifiers").addHandler(_WATCH)
        return _LOOPS[0]


@atexit.register
def _stop() -> None:
    """End the loops of this process, those that were left too."""
    for one in (*_LOOPS, *_LEFT):
        if one.process == os.getpid():
            one.stop()


def _leave(stuck: _Loop) -> None:
    """Let a loop go whose rollout does not answer; the next rollout has a new one."""
    with _LOCK:
        if stuck in _LOOPS:
            _LOOPS.remove(stuck)
            _LEFT.append(stuck)


@final
class Rollout:
    """One rollout; :meth:`begin` and :meth:`answer` wait until it asks again or ends."""

    def __init__(self, env: Any, row: Json, seconds: float) -> None:
        self._env, self._row, self._seconds = env, row, seconds
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._reply: asyncio.Future[Message] | None = None
        self._home = _loop()
        self._task: Any = None

    def begin(self) -> Event:
        """Start it."""
        self._task = asyncio.run_coroutine_threadsafe(self._run(), self._home.loop)
        return self._next()

    def answer(self, message: Message) -> Event:
        """Answer its question with an assistant's message."""
        reply, self._reply = self._reply, None
        if reply is None:
            return Broken("the environment asked nothing")
        self._home.loop.call_soon_threadsafe(_settle, reply, message)
        return self._next()

    def close(self) -> None:
        """Leave it; it is cancelled where it waits."""
        if self._task is not None:
            self._task.cancel()

    def _next(self) -> Event:
        try:
            return self._events.get(timeout=self._seconds)
        except Empty:
            _leave(self._home)
            self.close()
            return Broken(f"the environment did not answer in {self._seconds:g} s")

    async def _run(self) -> None:
        failures: list[str] = []
        _FAILURES.set(failures)
        try:
            output = await self._env.run_rollout(dict(self._row), _client(self._ask), "policy", {})
            self._events.put(Ended(dict(output), tuple(failures)))
        except Exception as error:  # whatever an environment raises ends this rollout and no other
            self._events.put(Broken(f"{type(error).__name__}: {error}"))

    async def _ask(self, messages: Any, tools: Any) -> Message:
        if self._reply is not None:
            raise RuntimeError("the environment asks two questions at once; a policy answers one")
        waiting: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._reply = waiting
        said = messages if isinstance(messages, str) else [plain(one) for one in messages]
        self._events.put(Asked(said, tuple(plain(one) for one in tools or ())))
        return await waiting


def _settle(reply: asyncio.Future[Message], message: Message) -> None:
    if not reply.done():
        reply.set_result(message)


def plain(value: Any) -> Json:
    """A message or tool as plain JSON, whether a dictionary or one of the library's models."""
    body = value.model_dump(exclude_none=True) if hasattr(value, "model_dump") else dict(value)
    read: Json = json.loads(json.dumps(body, default=str))
    return {key: part for key, part in read.items() if part is not None}


def _client(ask: _Ask) -> Any:
    """What the library takes for a model: its own kind of client, or OpenAI's by its shape."""
    try:
        from verifiers import clients
    except ImportError:  # up to 0.1.10 environments call OpenAI's client themselves
        return _openai(ask)
    return _library(clients, ask)


def _library(clients: Any, ask: _Ask) -> Any:
    from verifiers.types import Response

    async def get_response(self: Any, prompt: Any, model: str, sampling: Any = None, **more: Any) -> Any:
        del self, model, sampling
        message = await ask(prompt, more.get("tools"))
        calls = [{"id": call["id"], **call["function"]} for call in message.get("tool_calls") or ()]
        body = {
            "role": "assistant",
            "content": message["content"],
            "finish_reason": "tool_calls" if calls else "stop",
            "is_truncated": False,
            "tool_calls": calls or None,
        }
        return Response.model_validate({"id": "refork", "created": 0, "model": "policy", "message": body})

    # All that a client has beside this turns requests into those of one provider, of which there is none.
    unused = dict.fromkeys(clients.Client.__abstractmethods__, _unused)
    return type("Policy", (clients.Client,), {**unused, "get_response": get_response})(None)


def _unused(self: Any, *_: Any, **__: Any) -> Any:
    raise NotImplementedError("there is no provider behind this model")


def _openai(ask: _Ask) -> Any:
    async def chat(*, messages: Any, tools: Any = None, **_: Any) -> Any:
        from openai.types.chat import ChatCompletion

        message = await ask(messages, tools)
        why = "tool_calls" if message.get("tool_calls") else "stop"
        return ChatCompletion.model_validate(_body("chat.completion", why, message=message))

    async def text(*, prompt: Any, **_: Any) -> Any:
        from openai.types import Completion

        message = await ask(str(prompt), None)
        return Completion.model_validate(_body("text_completion", "stop", text=message["content"]))

    return SimpleNamespace(
        chat=SimpleNamespace(completions=SimpleNamespace(create=chat)),
        completions=SimpleNamespace(create=text),
    )


def _body(kind: str, why: str, **said: Any) -> Json:
    return {
        "id": "refork",
        "object": kind,
        "created": 0,
        "model": "policy",
        "choices": [{"index": 0, "finish_reason": why, "logprobs": None, **said}],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }
