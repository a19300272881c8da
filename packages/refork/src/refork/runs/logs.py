"""Structured logs: one JSON object a line, with keys that stay.

Every line has ``time`` (UTC, ISO 8601), ``level`` (debug, info, warning or error), ``event`` and, inside a
run, ``run`` and ``command``. Events:

- ``run.start``: ``arguments``, ``pid``, ``host``, ``out``.
- ``progress``: ``stage``, ``done``, ``total``, ``tokens``, ``rate``, ``eta``, ``waiting``, ``rollouts``,
  ``errors`` (counts by kind).
- ``run.end``: ``state`` (done, interrupted or failed), ``status``, ``seconds``, ``profile``, and what
  ``progress`` has.
- ``error``: ``message``, ``kind``, and ``trace`` where it is our fault.
- ``log``: ``message``, ``logger``: what libraries and Refork's own loggers say, warnings too.

What is not known is left out.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final, Literal, TextIO, final

from refork.errors import BadInput
from refork.settings import variable
from refork.types import Json

#: The variable that decides where no option does.
VARIABLE: Final = "REFORK_LOG"
GRAMMAR: Final = "json, json:FILE or text"

Level = Literal["debug", "info", "warning", "error"]


@final
class JsonLog:
    """Writes events to a stream, or appends them to a file. Several threads may; processes share a file.

    ``context`` is what every line says. Writing that fails is given up, for the work goes on.
    """

    def __init__(self, path: Path | None = None, stream: IO[str] | None = None) -> None:
        self.path = path
        self.context: Json = {}
        self._stream = stream
        self._lock = threading.Lock()
        if path is not None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._stream = path.open("a", encoding="utf-8", buffering=1)
            except OSError as error:
                raise BadInput(f"no log can be written: {error.strerror}", where=str(path)) from error

    @property
    def on_screen(self) -> bool:
        """Whether its lines go where a person would see other lines."""
        return self.path is None

    def tell(self, event: str, level: Level = "info", **facts: Any) -> None:
        """Write an event; facts that are None are not known."""
        now = datetime.fromtimestamp(time.time(), UTC).isoformat("T", "milliseconds")
        head = {"time": now, "level": level, "event": event} | self.context
        line = json.dumps(head | {k: v for k, v in facts.items() if v is not None}, default=str)
        with self._lock:
            try:
                print(line, file=self._stream or sys.stderr, flush=True)
            except (OSError, ValueError):  # a closed pipe, a full disk
                return

    def close(self) -> None:
        """Close its own file."""
        if self.path is not None and self._stream is not None:
            self._stream.close()


class _Handler(logging.Handler):
    """What other code logs, as events."""

    def __init__(self, log: JsonLog) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Tell it."""
        level: Level = (
            "error" if record.levelno >= logging.ERROR
            else "warning" if record.levelno >= logging.WARNING
            else "info" if record.levelno >= logging.INFO else "debug"
        )  # fmt: skip
        trace = None if not record.exc_info else logging.Formatter().formatException(record.exc_info)
        self._log.tell("log", level, message=record.getMessage(), logger=record.name, trace=trace)
        last = logging.lastResort  # what would show it if there were no log
        if not self._log.on_screen and last is not None and record.levelno >= last.level:
            last.handle(record)


_log: JsonLog | None = None
_handler: _Handler | None = None
_shown: Callable[..., None] | None = None  # what showed warnings before


def log() -> JsonLog | None:
    """Where events go; None: nobody asked for any."""
    return _log


def parse_log(text: str) -> tuple[Literal["json", "text"], Path | None]:
    """What ``json``, ``json:FILE`` or ``text`` asks for.

    Raises:
        BadInput: it is none of them.
    """
    kind, colon, where = text.partition(":")
    if kind == "text" and not colon:
        return "text", None
    if kind == "json" and bool(where) == bool(colon):
        return "json", Path(where) if where else None
    raise BadInput(f"{text!r} is no kind of log", hint=f"--log {GRAMMAR}")


def start_log(asked: str | None) -> JsonLog | None:
    """Log as an option says, else as REFORK_LOG does, else not; ends the log that was.

    Raises:
        BadInput: neither is understood, or the file cannot be written.
    """
    stop_log()
    text = asked or variable(VARIABLE)
    if not text:
        return None
    kind, path = parse_log(text)
    return None if kind == "text" else _begin(JsonLog(path))


def _begin(made: JsonLog) -> JsonLog:
    global _log, _handler, _shown
    _log, _handler = made, _Handler(made)
    # Not logging.captureWarnings: it does nothing where some library has called it before,
    # even if what it set there is long gone.
    _shown, warnings.showwarning = warnings.showwarning, _tell_warning
    logging.getLogger().addHandler(_handler)
    return made


def _tell_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    if file is not None and _shown is not None:
        _shown(message, category, filename, lineno, file, line)
    else:
        text = warnings.formatwarning(message, category, filename, lineno, line)
        logging.getLogger("py.warnings").warning("%s", text)


def stop_log() -> None:
    """Log no more."""
    global _log, _handler, _shown  # noqa: PLW0603
    if _handler is not None:
        logging.getLogger().removeHandler(_handler)
    if _shown is not None and warnings.showwarning is _tell_warning:
        warnings.showwarning = _shown
    if _log is not None:
        _log.close()
    _log = _handler = _shown = None
