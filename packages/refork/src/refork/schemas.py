"""Whether a value fits a JSON schema that a stranger wrote, told in bounded time and memory.

A schema of a few lines can take for ever to check (patterns that backtrack, references that double), so
jsonschema works in a process of its own, which is ended when it takes too long. Nothing is fetched: what
refers to elsewhere cannot be used. This file is that process too, and imports nothing else of the package.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any, Final, final

#: Seconds that one value may take, memory that its check may take, and letters of an answer.
SECONDS: Final = 10.0
MEMORY: Final = 1 << 30
LONGEST: Final = 300


@final
class Checker:
    """A process that checks values, started at the first; :meth:`close` ends it. Any thread may ask.

    ``seconds``: after which a check is given up.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def mismatch(self, schema: Any, value: Any) -> str | None:
        """What is wrong with a value, or with its schema, in one line; None: it fits.

        Raises:
            MissingExtra: the package jsonschema is not installed.
        """
        try:
            line = json.dumps([schema, value]).encode() + b"\n"
        except (ValueError, TypeError, RecursionError) as error:
            return f"this is no JSON: {type(error).__name__}"
        with self._lock:
            process = self._started()
            late = threading.Timer(self._seconds, process.kill)
            late.start()
            try:
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(line)
                process.stdin.flush()
                answer = process.stdout.readline()
            except OSError:
                answer = b""
            finally:
                late.cancel()
                # Joined, so that a timer that has just fired does not kill the process of the next question.
                late.join()
            if not answer.endswith(b"\n"):
                self._end()
                return f"it could not be checked in {self._seconds:g} s and {MEMORY >> 20} MiB"
            # The answer came, and the timer fired right behind it.
            if process.poll() is not None:
                self._end()
        told: str | None = json.loads(answer)
        if told == _MISSING:
            from refork.errors import MissingExtra

            raise MissingExtra("jsonschema", "mcp")
        return told

    def close(self) -> None:
        """End the process; another check starts another."""
        with self._lock:
            self._end()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._owner == os.getpid() and self._process.poll() is not None:
            # It was ended while nobody asked, which says nothing of the next value.
            self._end()
        if self._process is None or self._owner != os.getpid():  # a fork's pipes are its parent's
            self._owner = os.getpid()
            self._process = subprocess.Popen(
                # Isolated, or ``types.py`` of this folder would stand before the standard library's.
                [sys.executable, "-I", str(Path(__file__).resolve())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None and self._owner == os.getpid():
            process.kill()
            process.communicate()


#: The process of everybody who has none of their own.
_SHARED: Final = Checker()
_MISSING: Final = "jsonschema is missing"
atexit.register(_SHARED.close)


def mismatch(schema: Any, value: Any) -> str | None:
    """What is wrong with a value by a schema, or with the schema itself, in one line; None: it fits.

    Raises: as :meth:`Checker.mismatch`.
    """
    return _SHARED.mismatch(schema, value)


def _check(schema: Any, value: Any) -> str | None:
    from jsonschema import SchemaError
    from jsonschema.validators import validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    try:
        kind = validator_for(schema)
        kind.check_schema(schema)
        empty: Any = Registry()
        wrong: Any = next(kind(schema, registry=empty).iter_errors(value), None)
    except SchemaError as error:
        return f"its schema is none: {error.message}"
    except Unresolvable as error:
        return f"its schema refers to what it does not hold: {error}"
    except Exception as error:  # a stranger's schema: patterns that are none, references in a circle
        return f"its schema cannot be used: {type(error).__name__}: {error}"
    return None if wrong is None else f"{wrong.json_path}: {wrong.message}"


def _serve(asked: IO[bytes], answers: IO[bytes]) -> None:
    """Check what comes, a line each, until nothing comes any more."""
    try:
        import jsonschema  # noqa: F401
    except ImportError:
        missing = True
    else:
        missing = False
    for line in asked:
        told = _MISSING if missing else _check(*json.loads(line))
        if told is not None:
            told = " ".join(told.split())
            told = told if len(told) <= LONGEST else f"{told[: LONGEST - 4]} ..."
        answers.write(json.dumps(told).encode() + b"\n")
        answers.flush()


def _bounded() -> None:
    try:
        import resource
    except ImportError:
        return  # no limits on Windows: the time is bounded there, and memory is not
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


if __name__ == "__main__":
    _bounded()
    _serve(sys.stdin.buffer, sys.stdout.buffer)
