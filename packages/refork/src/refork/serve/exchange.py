"""One request and its complete answer: the value that metrics, spans and the record read."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

from refork.policies.base import PolicyCard, Sampling, known_sum
from refork.sampling.noise import NoiseKey
from refork.types import FloatArray, IntArray, Json, Message

#: OpenTelemetry's names of what is asked for.
Operation: TypeAlias = Literal["chat", "text_completion"]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """One answer of a request; arrays have one entry per token of ``tokens``. None: never known.

    ``tokens`` are the sampled ids, an end-of-sequence or stop id included; ``text`` is what they add,
    ``offsets`` the end of each in it (characters). ``drafted`` and ``accepted`` count tokens that a drafter
    proposed and that were kept, in ``rounds``. ``note`` is what the model notes of its answer. ``error``: why
    it broke off. ``tokens_out``: their number, where the ids are not known.
    """

    text: str
    finish: Literal["stop", "length", "tool_calls", "error"]
    message: Message | None = None
    tokens: IntArray | None = None
    offsets: IntArray | None = None
    logprobs: FloatArray | None = None
    logprobs_t1: FloatArray | None = None
    entropy: FloatArray | None = None
    noise: NoiseKey | None = None
    ties: int = 0
    tokens_out: int | None = None
    drafted: int = 0
    accepted: int = 0
    rounds: int = 0
    error: str | None = None
    note: Json | None = None
    money: float | None = None


@final
@dataclass(frozen=True, slots=True, eq=False)
class Exchange:
    """A request and its whole answer.

    ``id`` is what the client was given (``chatcmpl-...``) and is unique. ``prompt`` are the token ids that
    the choices continue, where the model takes ids; ``text`` is their text. ``messages`` and ``tools`` are
    what the model saw (pinned rules included), None for a plain completion. ``card`` says which policy
    answered, None for a chat model that is no policy. ``holder`` names the key (never the key itself).
    ``tokens_in``: the prompt's length, where its ids are not known.
    """

    id: str
    operation: Operation
    model: str
    choices: tuple[Choice, ...]
    prompt: IntArray | None = None
    text: str = ""
    messages: tuple[Message, ...] | None = None
    tools: tuple[Json, ...] = ()
    card: PolicyCard | None = None
    settings: Sampling | None = None
    seed: int | None = None
    holder: str | None = None
    tokens_in: int | None = None
    pinned: Json | None = None

    @property
    def counted_in(self) -> int | None:
        """Tokens of the prompt; None: not known."""
        return len(self.prompt) if self.prompt is not None else self.tokens_in

    @property
    def counted_out(self) -> int | None:
        """Tokens of all choices; None: one of them does not know."""
        return known_sum([len(c.tokens) if c.tokens is not None else c.tokens_out for c in self.choices])


@final
class Timeline:
    """When things happened in one request, in seconds since it began. ``clock`` is monotonic."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began = clock()
        self.queued: float | None = None
        self.first: float | None = None
        self.last: float | None = None
        self.tokens = 0

    def started(self) -> None:
        """Its work began: it waits no longer."""
        if self.queued is None:
            self.queued = self.now()

    def count_tokens(self, tokens: int) -> None:
        """So many tokens more were drawn."""
        if tokens < 1:
            return
        self.last = self.now()
        self.first = self.last if self.first is None else self.first
        self.tokens += tokens

    def now(self) -> float:
        """Seconds since the request began."""
        return self._clock() - self._began

    @property
    def per_token(self) -> float | None:
        """Mean seconds between tokens after the first; None: there were fewer than two moments."""
        if self.first is None or self.last is None or self.tokens < 2 or self.last == self.first:
            return None
        return (self.last - self.first) / (self.tokens - 1)
