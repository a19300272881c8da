"""What every endpoint shares: models by name, places, and who watches an answer from beginning to end."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, final

from refork.policies.base import known_sum
from refork.serve.exchange import Choice, Exchange
from refork.serve.limits import Admission
from refork.serve.refusal import UnknownModel
from refork.serve.served import ActiveRequest, AnswerStream, Asked, Delta, Served, speaks_tokens
from refork.serve.settings import ServerSettings
from refork.types import Json

if TYPE_CHECKING:
    from refork.serve.additions import Pins
    from refork.serve.observe import Observers, Watch


@final
class Service:
    """The models of one server and the guards around every answer."""

    def __init__(
        self,
        models: Mapping[str, Served],
        settings: ServerSettings,
        observers: Observers,
        pins: Pins | None = None,
    ) -> None:
        self.models = dict(models)
        self.settings = settings
        self.observers = observers
        self.pins = pins
        self.began = int(time.time())
        self._places = {name: Admission(m.slots, settings.waiting) for name, m in self.models.items()}

    def model(self, name: str) -> Served:
        """A model by its name. Raises UnknownModel."""
        model = self.models.get(name)
        if model is None:
            known = ", ".join(sorted(self.models))
            raise UnknownModel(f"there is no model {name[:200]!r}", hint=f"served here: {known}")
        return model

    def admit(
        self, model: str, choices: int, started: Callable[[], None] | None = None
    ) -> AbstractContextManager[None]:
        """Places of a model while inside; ``started`` hears when the first choice has a slot.

        Raises: Refused (429) where there are none.
        """
        return self._places[model].enter(choices, started)

    async def open(self, call: ActiveRequest) -> Running:
        """Take places and begin; the answer has begun, or failed, when this returns.

        Raises:
            Refused: no place, or an engine that failed.
            BadInput: it cannot be answered as asked.
        """
        model = self.model(call.model)
        kept = self.observers.recorder is not None or self.settings.trace_content
        running = Running(model, call, kept)
        try:
            wanted = sum(asked.n for asked in call.asked)
            # Places first: who finds none leaves neither a span nor a count of a begun answer.
            running.stack.enter_context(self.admit(call.model, wanted, running.started))
            for asked in call.asked:
                running.watch(running.stack.enter_context(self.observers.watch(call, asked)))
            for asked in call.asked:
                running.answers.append(await model.complete(asked))
            await running.begin()
        # BaseException: a client that leaves before the answer has begun cancels this task, and holds places.
        except BaseException as error:
            await running.close(error)
            raise
        return running


@final
class Running:
    """One request under way. :meth:`close` it, whatever happens."""

    def __init__(self, model: Served, call: ActiveRequest, keeps_text: bool = True) -> None:
        self.model = model
        self.keeps_text = keeps_text
        self.call = call
        self.id = f"{call.prefix}{uuid.uuid4().hex}"
        self.created = int(time.time())
        self.stack = ExitStack()
        self.watches: list[Watch] = []
        self.answers: list[AnswerStream] = []
        self._started = False
        self._parts: AsyncIterator[tuple[int, list[Delta]]] | None = None
        self._first: tuple[int, list[Delta]] | None = None

    def started(self) -> None:
        """The first choice waits no longer for its turn."""
        self._started = True
        for watch in self.watches:
            watch.timeline.started()

    def watch(self, watch: Watch) -> None:
        """Whom to tell of the next prompt."""
        self.watches.append(watch)
        if self._started:
            watch.timeline.started()

    async def begin(self) -> None:
        """Wait for the first part, so that what fails at once is an error and no broken stream."""
        self._parts = merged(self.answers)
        self._first = await anext(self._parts, None)
        self._heard(self._first)

    async def parts(self) -> AsyncIterator[tuple[int, list[Delta]]]:
        """What is new: the prompt's number and its choices' deltas."""
        assert self._parts is not None
        if self._first is not None:
            yield self._first
        async for part in self._parts:
            self._heard(part)
            yield part

    def _heard(self, part: tuple[int, list[Delta]] | None) -> None:
        if part is not None:
            tokens = sum(len(delta.tokens) for delta in part[1])
            self.watches[part[0]].timeline.count_tokens(tokens)

    async def end(self, choices: Sequence[Sequence[Choice]] | None = None) -> None:
        """All is said: put it on record before the client is told that it is the end.

        ``choices`` of each prompt, where an endpoint made more of them than their text.

        Raises: Refused where it had to be recorded and could not be.
        """
        for number, (asked, answer, watch) in enumerate(
            zip(self.call.asked, self.answers, self.watches, strict=True)
        ):
            said = answer.choices() if choices is None else tuple(choices[number])
            await watch.ended(self._exchange(number, asked, answer, said))

    def _exchange(
        self, number: int, asked: Asked, answer: AnswerStream, said: tuple[Choice, ...]
    ) -> Exchange:
        return Exchange(
            id=self.id if len(self.answers) == 1 else f"{self.id}-{number}",
            operation=self.call.operation,
            model=self.call.model,
            choices=said,
            prompt=answer.prompt,
            text=self._text(asked, answer),
            messages=asked.messages,
            tools=asked.tools,
            card=self.model.card,
            settings=asked.settings,
            seed=asked.seed,
            holder=self.call.holder,
            tokens_in=answer.tokens_in,
            pinned=self.call.pinned,
        )

    def _text(self, asked: Asked, answer: AnswerStream) -> str:
        """What the prompt's tokens mean, where somebody keeps it."""
        if not self.keeps_text or answer.prompt is None or not speaks_tokens(self.model):
            return asked.text or ""
        return self.model.pieces(answer.prompt.tolist())[0]

    @property
    def usage(self) -> Json | None:
        """Token counts of all prompts and choices; None where one is not known."""
        read = known_sum([answer.tokens_in for answer in self.answers])
        written = known_sum([answer.tokens_out for answer in self.answers])
        if read is None or written is None:
            return None
        return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}

    async def close(self, error: BaseException | None = None) -> None:
        """Stop what still runs and give the places back. Safe to call twice."""
        for answer in self.answers:
            answer.close()
        if self._parts is not None:
            await self._parts.aclose()  # type: ignore[attr-defined]
            self._parts = None
        # Swapped first, so that a second call finds nothing to close, whatever a watcher raises.
        stack, self.stack = self.stack, ExitStack()
        if error is None:
            stack.close()
            return
        try:
            stack.__exit__(type(error), error, error.__traceback__)
        except BaseException as raised:
            # Watchers raise again what they are shown; whoever closes with an error raises it himself.
            if raised is not error:
                raise


async def merged(answers: Sequence[AnswerStream]) -> AsyncIterator[tuple[int, list[Delta]]]:
    """The parts of several answers as they come, each with its answer's number."""
    if len(answers) == 1:
        async for part in answers[0].parts():
            yield 0, part
        return
    # A full queue makes its writers wait; what comes meanwhile is joined in their answers.
    ready: asyncio.Queue[tuple[int, list[Delta]] | Exception | None] = asyncio.Queue(len(answers))

    async def pump(number: int, answer: AnswerStream) -> None:
        try:
            async for part in answer.parts():
                await ready.put((number, part))
            await ready.put(None)
        except Exception as error:
            await ready.put(error)

    tasks = [asyncio.ensure_future(pump(number, answer)) for number, answer in enumerate(answers)]
    try:
        left = len(tasks)
        while left:
            item = await ready.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                left -= 1
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
