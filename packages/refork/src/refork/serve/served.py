"""Who answers behind a model's name: the seam between HTTP and models."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeGuard, final, runtime_checkable

from refork.policies.base import PolicyCard, Sampling
from refork.policies.call_form import CallForm
from refork.serve.exchange import Choice, Operation
from refork.types import Finish, FloatArray, IntArray, Json, Message

#: The likeliest tokens of one place: their ids and log-probs at temperature 1, best first.
Top = tuple[IntArray, FloatArray]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """One prompt, and how its ``n`` answers are drawn. One of ``messages``, ``text`` and ``tokens`` is given.

    ``seed`` addresses the noise: answer i of the same prompt is draw i of that seed, whatever else is served;
    None: draws that nobody had before. ``settings``: None for models whose settings are their own. ``top``:
    of how many likeliest tokens the log-probs are told. ``keep_stop``: a stop string stays in the text.
    ``goes_on``: the last of ``messages`` is the beginning of the answer.
    """

    messages: tuple[Message, ...] | None = None
    text: str | None = None
    tokens: IntArray | None = None
    tools: tuple[Json, ...] = ()
    n: int = 1
    seed: int | None = None
    settings: Sampling | None = None
    top: int = 0
    keep_stop: bool = False
    goes_on: bool = False


@final
@dataclass(frozen=True, slots=True, eq=False)
class ActiveRequest:
    """One request as it is worked on: a prompt or several; ``prefix`` begins its id."""

    operation: Operation
    model: str
    asked: tuple[Asked, ...]
    prefix: str
    stream: bool = False
    holder: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    pinned: Json | None = None


@final
@dataclass(frozen=True, slots=True, eq=False)
class Delta:
    """What one choice has said since it was last asked: k tokens, and the text that is certain by now.

    ``text`` never holds half a character or a part of a stop string; ``stop`` is the one that ended it.
    ``ends`` [k]: where each token ends in the choice's whole text (characters), stop string included.
    ``message``: the whole message, from models that speak in messages.
    """

    choice: int
    text: str = ""
    tokens: Sequence[int] = ()
    logprobs: Sequence[float] = ()
    top: Sequence[Top] = ()
    ends: Sequence[int] = ()
    finish: Finish | None = None
    stop: str | None = None
    error: str | None = None
    message: Message | None = None
    note: Json | None = None


class AnswerStream(Protocol):
    """The answers to one prompt, as they come."""

    @property
    def prompt(self) -> IntArray | None:
        """The token ids that were read; None where that is not known."""
        ...

    @property
    def tokens_in(self) -> int | None:
        """How many tokens were read; None where that is not known."""
        ...

    @property
    def tokens_out(self) -> int | None:
        """How many tokens all choices have said; None where that is not known."""
        ...

    def parts(self) -> AsyncIterator[list[Delta]]:
        """What is new, of whichever choices, until all have ended. What is not fetched in time is joined."""
        ...

    def choices(self) -> tuple[Choice, ...]:
        """What every choice has said by now."""
        ...

    def close(self) -> None:
        """Nobody wants the rest: stop what still runs. Safe to call twice, and after the end."""
        ...


@runtime_checkable
class Served(Protocol):
    """A model as the server sees it. All methods are called from the event loop's thread."""

    @property
    def name(self) -> str:
        """Who answers, for the record."""
        ...

    @property
    def card(self) -> PolicyCard | None:
        """The policy's card; None for a chat model that is no policy."""
        ...

    @property
    def slots(self) -> int:
        """How many choices it works on at the same time."""
        ...

    @property
    def broken(self) -> str | None:
        """Why it can answer nobody any more; None: it can."""
        ...

    def gauges(self) -> Mapping[str, float]:
        """``running`` and ``waiting`` choices, and what else it knows of its load."""
        ...

    async def complete(self, asked: Asked) -> AnswerStream:
        """Begin the answers to one prompt.

        Raises:
            BadInput: it cannot be answered as asked.
            ServerError: the model is broken.
        """
        ...

    async def stop(self) -> None:
        """End what runs, and give back threads; a later question starts them again."""
        ...


class TokenServed(Served, Protocol):
    """A model that speaks tokens: it takes settings, token ids and scores text."""

    @property
    def context(self) -> int | None:
        """How many positions it has."""
        ...

    async def encode(self, text: str) -> IntArray:
        """Token ids of a prompt's text, begun as the tokenizer begins one."""
        ...

    async def read(self, asked: Asked, *, begun: bool = True) -> IntArray:
        """Token ids of what is asked; a text without ``begun`` has only those of its own characters."""
        ...

    def call_form(self) -> CallForm:
        """How it writes calls of tools. Raises CannotDo where no grammar covers that."""
        ...

    def spell(self, token: int) -> str:
        """One token as text, special tokens spelled out."""
        ...

    def pieces(self, tokens: Sequence[int]) -> tuple[str, IntArray]:
        """Text of tokens, and where each ends in it (characters)."""
        ...

    async def score(self, tokens: IntArray, top: int) -> tuple[list[float], list[Top]]:
        """Log-probs [n - 1] of a text's tokens but the first, and the ``top`` likeliest in each place."""
        ...


def speaks_tokens(model: Served) -> TypeGuard[TokenServed]:
    """Whether a model speaks tokens; asked several times a request, so not by the protocol's whole list."""
    return hasattr(model, "score") and hasattr(model, "spell")
