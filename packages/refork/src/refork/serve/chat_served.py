"""Chat models behind a name: whole messages, asked in threads."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import final

from refork.chat import ChatModel, Reply
from refork.errors import BadInput
from refork.policies.base import PolicyCard, known_sum
from refork.serve.exchange import Choice
from refork.serve.served import Asked, Delta
from refork.types import Finish


@final
class ChatServed:
    """A chat model; ``lanes`` questions are asked at the same time, each in a thread.

    It answers with messages, and its settings are its own. A question under way when nobody wants its answer
    any more runs to its end, and keeps its lane until then.
    """

    def __init__(self, model: ChatModel, lanes: int = 1) -> None:
        self.model = model
        self.slots = lanes
        self.broken: str | None = None
        self.card: PolicyCard | None = None
        # A beginning of its own: two servers would else give the same answers. Seeds may have 31 bits only.
        self._draws = itertools.count(secrets.randbits(30))
        self._lanes: ThreadPoolExecutor | None = None
        self._asked = self._running = 0

    @property
    def name(self) -> str:
        """The model's own name."""
        return self.model.name

    def gauges(self) -> Mapping[str, float]:
        """Questions under way and waiting."""
        return {"running": self._running, "waiting": max(0, self._asked - self._running)}

    async def complete(self, asked: Asked) -> ChatAnswer:
        """Ask ``n`` times; draw i is the seed plus i. Raises BadInput where the prompt is no messages."""
        if asked.messages is None:
            raise BadInput(f"{self.name} answers messages only", hint="use /v1/chat/completions")
        draws = [next(self._draws) if asked.seed is None else asked.seed + i for i in range(asked.n)]
        return ChatAnswer([self._ask(asked, draw) for draw in draws])

    async def stop(self) -> None:
        """Drop who waits; whoever is asked runs to the end of his question."""
        if self._lanes is not None:
            self._lanes.shutdown(wait=False, cancel_futures=True)
            self._lanes = None

    def _ask(self, asked: Asked, draw: int) -> asyncio.Future[Reply]:
        if self._lanes is None:
            self._lanes = ThreadPoolExecutor(self.slots, thread_name_prefix=f"refork-{self.name}")
        # A pool's threads have contexts of their own; the model is to see the request's (its span, say).
        context = contextvars.copy_context()

        def ask() -> Reply:
            self._running += 1
            try:
                return context.run(
                    lambda: self.model.reply(asked.messages or (), tools=asked.tools, draw=draw)
                )
            finally:
                self._running -= 1

        self._asked += 1
        future = asyncio.get_running_loop().run_in_executor(self._lanes, ask)
        future.add_done_callback(self._answered)
        return future

    def _answered(self, future: asyncio.Future[Reply]) -> None:
        self._asked -= 1
        if not future.cancelled():
            future.exception()  # looked at, so that one nobody waits for is not reported as lost


@final
class ChatAnswer:
    """The replies of a chat model, each whole. One that fails fails all."""

    prompt = None

    def __init__(self, replies: Sequence[asyncio.Future[Reply]]) -> None:
        self._replies = replies

    async def parts(self) -> AsyncIterator[list[Delta]]:
        """One part per reply, in their order, once all are there."""
        await asyncio.wait(self._replies, return_when=asyncio.FIRST_EXCEPTION)
        # The first failure ends the wait: it is told before slower replies are there.
        for future in self._replies:
            if future.done():
                future.result()  # raises what went wrong
        for number, future in enumerate(self._replies):
            reply = await future
            yield [Delta(number, reply.text, finish=reply.finish, message=reply.message, note=reply.note)]

    def choices(self) -> tuple[Choice, ...]:
        """The replies as they are recorded."""
        return tuple(_choice(reply) for reply in self._given())

    @property
    def tokens_in(self) -> int | None:
        """Tokens of all prompts; None where a reply does not know its own."""
        return known_sum([reply.cost.tokens_in for reply in self._given()])

    @property
    def tokens_out(self) -> int | None:
        """Tokens of all replies; None where one does not know its own."""
        return known_sum([reply.cost.tokens_out for reply in self._given()])

    def _given(self) -> list[Reply]:
        return [future.result() for future in self._replies if future.done() and not future.cancelled()]

    def close(self) -> None:
        """Cancel the questions that still wait for a lane."""
        for future in self._replies:
            future.cancel()


def _choice(reply: Reply) -> Choice:
    finish: Finish = reply.finish
    return Choice(
        text=reply.text,
        finish="tool_calls" if reply.message.get("tool_calls") else finish,
        message=reply.message,
        tokens_out=reply.cost.tokens_out,
        note=reply.note,
        money=reply.cost.money,
    )
