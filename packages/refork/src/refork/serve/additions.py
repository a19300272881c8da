"""What other packages add to a server: entry points of ``refork.parts`` that begin with ``serve.``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

from refork.decoding.speculator import Speculator
from refork.types import Json, Message

if TYPE_CHECKING:
    from fastapi import FastAPI

    from refork.serve.served import Served


class Pins(Protocol):
    """Rules of the operator in every chat (``serve.pins``)."""

    @property
    def note(self) -> Json:
        """What an answer says of them."""
        ...

    def apply(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The messages that a model is to see."""
        ...

    def judged(self, message: Message) -> tuple[Message, Json]:
        """An answer's message as it may go out, and what is noted of it."""
        ...


class BlockSpeculator(Speculator, Protocol):
    """A drafter of blocks, opened by ``serve.drafter``."""

    @property
    def block(self) -> int:
        """Tokens that it drafts at most in a round."""
        ...


class Addition(Protocol):
    """More models and routes, alive as long as the server (``serve.worlds``)."""

    @property
    def models(self) -> dict[str, Served]:
        """More models, by name."""
        ...

    def running(self) -> AbstractAsyncContextManager[None]:
        """Entered when the server begins, left when it stops."""
        ...

    def add_to(self, app: FastAPI) -> None:
        """Put its routes into the application."""
        ...
