"""Calls to a server: bounded, patient, and saying what they wait for."""

from __future__ import annotations

import email.utils
import json
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar, final

import openai

from refork.errors import BadInput, ServerError

T = TypeVar("T")

#: Statuses that mean "not now" rather than "not this".
_AGAIN = frozenset({408, 409, 425, 429})
#: Statuses that no other request would escape either.
_HOPELESS = frozenset({401, 403})
_LONGEST_WAIT = 120.0
_BUSY = "check that the server runs and is not overloaded; the same command goes on from here"


@final
class CallFailed(ServerError):
    """One request was refused (``status``) or failed at every try (None); another may fare better.

    ``last`` is the status of the last try, where it had one.
    """

    def __init__(
        self, what: str, *, status: int | None, where: str, hint: str | None = None, last: int | None = None
    ) -> None:
        self.status = status
        self.last = status if last is None else last
        super().__init__(what, where=where, hint=hint)


class Unreadable(Exception):
    """An answer that broke off or is no JSON (a proxy's page, say): another try may not meet it."""


class TooLong(Exception):
    """An answer longer than any true one."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to try: tries in all, first pause and its growth (seconds), requests per minute."""

    tries: int = 6
    pause: float = 1.0
    growth: float = 2.0
    per_minute: float | None = None

    def __post_init__(self) -> None:
        def refuse(name: str, rule: str) -> None:
            raise BadInput(f"{name} is {getattr(self, name)!r}; it must be {rule}", where="patience")

        if self.tries < 1:
            refuse("tries", "at least 1")
        if not (math.isfinite(self.pause) and self.pause >= 0):
            refuse("pause", "a number of seconds, 0 or more")
        if not (math.isfinite(self.growth) and self.growth >= 1):
            refuse("growth", "a number, 1 or more")
        if self.per_minute is not None and not (math.isfinite(self.per_minute) and self.per_minute > 0):
            refuse("per_minute", "a number above 0, or None")


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds a server asks to wait, from ``Retry-After-Ms`` or ``Retry-After`` (seconds or a date)."""
    given = headers.get("retry-after-ms")
    if given is not None:
        with suppress(ValueError):
            return _wait(float(given) / 1000.0)
    given = headers.get("retry-after")
    if given is None:
        return None
    with suppress(ValueError):
        return _wait(float(given))
    try:
        return _wait(email.utils.parsedate_to_datetime(given).timestamp() - now)
    except (TypeError, ValueError, OverflowError):
        return None


def _wait(seconds: float) -> float | None:
    """A wait that was asked for; None is no number, and "at once" is no reason to stop growing pauses."""
    return seconds if seconds > 0 else None


def parsed(data: bytes) -> Any:
    """The JSON of an answer.

    Raises:
        Unreadable: it is none.
    """
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise Unreadable("the answer is no JSON") from None


@final
class Caller:
    """Runs calls with retries; all threads share one rate limit and one pause.

    ``secrets`` are removed from every message. ``sleep`` and ``clock`` are seams for tests.
    """

    def __init__(
        self,
        server: str,
        patience: Patience,
        *,
        secrets: Sequence[str] = (),
        on_wait: Callable[[str], None] | None = None,
        sleep: Callable[[float], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server = server
        self._patience = patience
        # The longest first: one may be part of another.
        self._secrets = sorted(filter(None, secrets), key=len, reverse=True)
        self._on_wait = on_wait or (lambda reason: None)
        self._sleep = sleep
        #: What halts the calls of a thread, where something does: callers share the rate limit, not the end.
        self._halts = threading.local()
        self._clock = clock
        self._lock = threading.Lock()
        self._open_at = 0.0

    def __call__(self, call: Callable[[], T], what: str, tries: int | None = None) -> T:
        """The call's result; ``what`` names the request in errors, ``tries`` stands for the patience's own.

        Raises:
            CallFailed: the server refused this request, or it failed at every try.
            ServerError: it refuses this key altogether, or its answer cannot be read.
        """
        pause, tries, reason = self._patience.pause, tries or self._patience.tries, ""
        for tried in range(1, tries + 1):
            self._take_turn()
            halt = self._halt
            if halt is not None and halt.is_set():
                raise CallFailed("stopped before it was sent", status=None, where=self._where(what))
            try:
                return call()
            except openai.APIStatusError as error:
                asked = self._status(error, what, tries if tried == tries else None)
                reason = f"status {error.status_code}"
            except openai.APIConnectionError as error:
                asked = None
                reason = "no answer in time" if isinstance(error, openai.APITimeoutError) else "no connection"
            except Unreadable as error:
                asked, reason = None, str(error)
            except TooLong as error:
                raise ServerError(str(error), where=self._where(what)) from None
            except openai.APIError as error:
                raise ServerError(
                    f"the answer could not be read: {self.clean(str(error))}", where=self._where(what)
                ) from None
            if tried < tries:
                wait = min(_LONGEST_WAIT, asked if asked is not None else pause)
                pause *= self._patience.growth
                self._hold(wait, f"{reason}, waiting {wait:.1f} s (try {tried} of {tries})")
        raise CallFailed(
            f"{reason} at each of {tries} tries",
            status=None,
            where=self._where(what),
            hint=_BUSY,
        )

    def heed(self, halt: threading.Event) -> None:
        """Let no call of this thread begin or be tried again once ``halt`` is set."""
        self._halts.event = halt

    @property
    def _halt(self) -> threading.Event | None:
        found: threading.Event | None = getattr(self._halts, "event", None)
        return found

    def clean(self, text: str) -> str:
        """A message without the key, of bounded length."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text if len(text) <= 500 else text[:500] + "..."

    def _where(self, what: str) -> str:
        return f"{self._server}, {what}"

    def _status(self, error: openai.APIStatusError, what: str, last: int | None) -> float | None:
        """Seconds the server asks for, where trying again makes sense; else, or at try ``last``, raises."""
        status, message = error.status_code, self.clean(str(error))
        if status in _HOPELESS:
            raise ServerError(
                f"the server refuses this key (status {status}): {message}",
                where=self._where(what),
                hint="give api_key=, or set REFORK_API_KEY (OPENAI_API_KEY for api.openai.com)",
            ) from None
        # llama-cpp-python says 500 of a request that does not fit its schema: no use in asking again.
        invalid = status == 500 and "validation error" in message
        if status not in _AGAIN and (status < 500 or invalid):
            raise CallFailed(
                f"the server refuses the request (status {status}): {message}",
                status=status,
                where=self._where(what),
            ) from None
        if last is not None:
            raise CallFailed(
                f"status {status} at each of {last} tries: {message}",
                status=None,
                where=self._where(what),
                hint=_BUSY,
                last=status,
            ) from None
        return retry_after(error.response.headers, time.time())

    def _take_turn(self) -> None:
        """Wait for the shared pause and the rate limit."""
        with self._lock:
            now = self._clock()
            start = max(now, self._open_at)
            if self._patience.per_minute is not None:
                self._open_at = start + 60.0 / self._patience.per_minute
        if start > now:
            if self._patience.per_minute is not None:
                self._on_wait(f"{self._server}: own rate limit, waiting {start - now:.1f} s")
            # A wait that ends as soon as the calls are halted, not when the pause is over.
            wait = self._sleep or (time.sleep if self._halt is None else self._halt.wait)
            wait(start - now)

    def _hold(self, wait: float, reason: str) -> None:
        """Let nobody call for a while."""
        self._on_wait(f"{self._server}: {reason}")
        with self._lock:
            # Another thread may have been told to wait for longer.
            self._open_at = max(self._open_at, self._clock() + wait)
