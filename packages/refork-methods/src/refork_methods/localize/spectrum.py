"""Coverage spectra: lines that failing tests run and passing ones do not."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, final

from refork.errors import BadInput
from refork.types import Json

Line: TypeAlias = tuple[str, int]


@final
@dataclass(frozen=True, slots=True)
class Spectrum:
    """Which lines each test ran, and which tests failed.

    Raises: BadInput where no test failed or a failed test has no record.
    """

    executed: Mapping[str, frozenset[Line]]
    failed: frozenset[str]

    def __post_init__(self) -> None:
        if not self.failed:
            raise BadInput("no test failed, so no line is suspicious")
        missing = sorted(self.failed - set(self.executed))
        if missing:
            raise BadInput(
                "a failed test has no coverage", where=missing[0], hint="record it with its own context"
            )

    def ochiai(self) -> dict[Line, float]:
        """Suspicion of each line that a failing test ran: failed runs / sqrt(failed tests x runs); in (0, 1].

        Source: Ochiai (1957) as used in spectrum-based fault localization by Abreu et al. (2007).
        """
        failing: dict[Line, int] = {}
        runs: dict[Line, int] = {}
        for test, lines in self.executed.items():
            for line in lines:
                runs[line] = runs.get(line, 0) + 1
                if test in self.failed:
                    failing[line] = failing.get(line, 0) + 1
        # Lines that no failing test ran are left out: their suspicion is 0.
        return {line: n / math.sqrt(len(self.failed) * runs[line]) for line, n in failing.items()}


def spectrum(executed: Mapping[str, Iterable[Line]], failed: Iterable[str]) -> Spectrum:
    """A spectrum of per-test executed (path, line) pairs."""
    return Spectrum({test: frozenset(lines) for test, lines in executed.items()}, frozenset(failed))


def read_coverage(file: str | Path, failed: Iterable[str]) -> Spectrum:
    """A spectrum from ``coverage json --show-contexts``, where each test ran in a context of its own.

    ``failed`` names tests as the contexts do, whole or from their end (``test_x`` for
    ``tests/test_a.py::test_x``).

    Raises: BadInput for another document, one without contexts, or a failed name that fits no or several
    contexts.
    """
    place = str(file)
    try:
        data = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"the coverage report cannot be read: {error}", where=place) from error
    executed = _by_test(data, place)
    return Spectrum(executed, frozenset(_one(name, executed, place) for name in failed))


def _by_test(data: Json, place: str) -> dict[str, frozenset[Line]]:
    files = data.get("files") if isinstance(data, dict) else None
    if not isinstance(files, dict):
        raise BadInput(
            "this is no coverage report", where=place, hint="make it with `coverage json --show-contexts`"
        )
    lines: dict[str, set[Line]] = {}
    for path, body in files.items():
        for number, contexts in (body.get("contexts") or {}).items():
            for context in contexts:
                # pytest-cov writes the phase behind the name: t.py::x|run.
                test = str(context).rsplit("|", 1)[0]
                # The empty context is code that ran outside of every test, such as at import.
                if test:
                    lines.setdefault(test, set()).add((path.replace("\\", "/"), int(number)))
    if not lines:
        raise BadInput(
            "the coverage report has no contexts of tests",
            where=place,
            hint="run `pytest --cov --cov-context=test`, then `coverage json --show-contexts`",
        )
    return {test: frozenset(found) for test, found in lines.items()}


def _one(name: str, known: Iterable[str], place: str) -> str:
    found = [test for test in known if test == name] or [
        test for test in known if test.endswith((f"::{name}", f".{name}"))
    ]
    if len(found) != 1:
        raise BadInput(
            f"the failed test {name!r} fits {len(found)} contexts",
            where=place,
            hint="name it as the coverage report does",
        )
    return found[0]
