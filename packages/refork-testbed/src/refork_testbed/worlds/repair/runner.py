"""``TestRunner``: the tests of a package that is held in memory, run where the kernel lets nothing out.

The layers that read a source before it runs are off, for a package imports modules and defines classes; the
kernel's layers (resource limits, Landlock, seccomp) are on and hold alone. A test that loops is cut after a
number of executed lines, so that the verdict does not depend on the machine; what loops inside C is cut by
the clock. A package that wants to can forge its own results, for it runs in the process that tells them: the
machine is protected here, not the verdict.
"""

from __future__ import annotations

import ast
import inspect
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import TracebackType
from typing import Any, final

from refork.errors import BadInput
from refork.sandbox import Limits, Sandbox
from refork.types import Json
from refork_testbed.worlds.repair import harness

#: Modules of the standard library that a package may import. Those that start with an underscore are
#: what others import late.
STANDARD = (
    "_strptime", "abc", "base64", "binascii", "bisect", "calendar", "collections", "collections.abc",
    "configparser", "contextlib", "copy", "csv", "dataclasses", "datetime", "decimal", "difflib", "enum",
    "errno", "fnmatch", "fractions", "functools", "genericpath", "getopt", "gettext", "graphlib", "hashlib",
    "heapq", "html", "html.entities", "importlib.abc", "importlib.machinery", "io", "ipaddress", "itertools",
    "json", "keyword", "locale", "math", "ntpath", "numbers", "operator", "os", "posixpath", "pprint",
    "random", "re", "reprlib", "shlex", "stat", "statistics", "string", "struct", "textwrap", "time", "types",
    "typing", "unicodedata", "urllib.parse", "warnings", "weakref",
)  # fmt: skip
#: Lines of the package that one test may execute.
STEPS = 50_000
#: How often a process that was ended is replaced in one run, before the tests left are given up.
RESTARTS = 3
_SOURCE = inspect.getsource(harness)


@final
@dataclass(frozen=True, slots=True)
class TestReport:
    """What came of a run: names that passed, name -> reason of those that did not.

    ``spectrum`` (test name -> (path, line) pairs of the package that it executed) is None where nobody
    asked for it. A reason is told by the package and to be trusted as little as it.
    """

    __test__ = False

    passed: tuple[str, ...]
    failed: dict[str, str]
    seconds: float
    spectrum: dict[str, frozenset[tuple[str, int]]] | None = None

    @property
    def ok(self) -> bool:
        """Whether every test passed; False where none ran."""
        return not self.failed and bool(self.passed)


@final
@dataclass(frozen=True, slots=True)
class Variant:
    """A package with some files replaced, and the tests to run on it; None: all."""

    files: Mapping[str, str] = field(default_factory=dict)
    names: Sequence[str] | None = None


def test_names(tests: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the tests of these files (path -> source), ``path::function``, in order."""
    return tuple(f"{path}::{name}" for path, source in tests.items() for name in _functions(source))


@lru_cache(maxsize=4096)
def _functions(source: str) -> tuple[str, ...]:
    return tuple(
        node.name
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )


test_names.__test__ = False  # type: ignore[attr-defined]


@final
class TestRunner:
    """Runs tests of packages. Use as a context, or call :meth:`close`.

    ``test_seconds`` bounds one test by the clock, ``steps`` by executed lines of the package.
    """

    __test__ = False

    def __init__(self, *, test_seconds: float = 30.0, steps: int = STEPS) -> None:
        self.steps = steps
        limits = Limits(seconds=600.0, memory=256 << 20, output=8 << 20, calls=10**6, turn=test_seconds)
        self.sandbox = Sandbox(limits, off=("screen", "builtins"), preload=STANDARD)

    def __enter__(self) -> TestRunner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the sandbox's process; a later run starts another."""
        self.sandbox.close()

    def run(
        self,
        files: Mapping[str, str],
        tests: Mapping[str, str],
        names: Sequence[str] | None = None,
        *,
        spectrum: bool = False,
    ) -> TestReport:
        """Run tests (all of ``tests``, or the named) of a package in a process of its own."""
        return self.run_variants(files, tests, [Variant(names=names)], spectrum=spectrum)[0]

    def run_variants(
        self,
        files: Mapping[str, str],
        tests: Mapping[str, str],
        variants: Sequence[Variant],
        *,
        spectrum: bool = False,
        longest: int = 300,
    ) -> list[TestReport]:
        """Run several variants of one package in one process: fast, for texts that are ours.

        ``longest``: characters of a reason that are kept. A variant could leave something behind for the
        next; one that is not trusted gets :meth:`run`.
        """
        every = test_names(tests)
        wanted = [list(every if one.names is None else one.names) for one in variants]
        unknown = sorted({name for names in wanted for name in names} - set(every))
        if unknown:
            raise BadInput(f"there is no test {unknown[0]!r}", where="run")
        needed = {name.partition("::")[0] for names in wanted for name in names}
        # A file without tests may be what the others import.
        given = {path: text for path, text in tests.items() if path in needed or not _functions(text)}
        job: Json = {"files": dict(files), "tests": given, "steps": self.steps}
        job |= {"spectrum": spectrum, "longest": longest}
        told = _TestReports(wanted, longest)
        for attempt in range(1 + RESTARTS + len(variants)):
            runs = [
                {"files": dict(one.files), "names": told.left(number)} for number, one in enumerate(variants)
            ]
            if not any(run["names"] for run in runs):
                break
            sent = {**job, "runs": runs, "single": attempt > 0}
            ended = self.sandbox.run(_SOURCE, "main", {"job": sent}, told.call)
            if attempt:  # it told of every test before the next: the first that is open is to blame
                told.ended(ended.error or "without a result")
        return [told.report(number, spectrum) for number in range(len(variants))]


@final
class _TestReports:
    """What the sandbox has told of each variant's tests, which it may tell once each."""

    def __init__(self, wanted: list[list[str]], longest: int) -> None:
        self._wanted, self._longest = wanted, longest
        self._names = [frozenset(names) for names in wanted]
        self._reasons: list[dict[str, str]] = [{} for _ in wanted]
        self._lines: list[dict[str, frozenset[tuple[str, int]]]] = [{} for _ in wanted]
        self._seconds = [0.0 for _ in wanted]
        self._ended = [0 for _ in wanted]
        self._since = time.perf_counter()

    def left(self, number: int) -> list[str]:
        """Tests of a variant that nothing is known of."""
        return [name for name in self._wanted[number] if name not in self._reasons[number]]

    def open(self) -> int | None:
        """The first variant that is not done; None where all are."""
        return next((number for number in range(len(self._wanted)) if self.left(number)), None)

    def call(self, name: str, arguments: Json) -> None:
        """Hear of some tests."""
        rows = arguments.get("rows")
        if name != "tests.done" or not isinstance(rows, list) or not rows:
            raise BadInput("there is nothing else to tell")
        now = time.perf_counter()
        for row in rows:
            number, test, reason, lines = row if isinstance(row, list) and len(row) == 4 else [None] * 4
            # The process runs an agent's code, so what it says is checked; isinstance would take True for 1.
            if type(number) is not int or not 0 <= number < len(self._wanted):
                raise BadInput("there is no such variant")
            if (
                test not in self._names[number]
                or test in self._reasons[number]
                or not isinstance(reason, str)
            ):
                raise BadInput("there is no such test, or it was told already")
            self._reasons[number][test] = reason[: self._longest]
            self._lines[number][test] = _pairs(lines)
            self._seconds[number] += (now - self._since) / len(rows)
        self._since = now

    def ended(self, reason: str) -> None:
        """The process is gone: the first test that it did not tell of is to blame."""
        number = self.open()
        if number is None:
            return
        self._ended[number] += 1
        left = self.left(number)
        for test in left if self._ended[number] >= RESTARTS else left[:1]:
            self._reasons[number][test] = f"it ended the process: {reason}"[: self._longest]
        now = time.perf_counter()
        self._seconds[number] += now - self._since
        self._since = now

    def report(self, number: int, spectrum: bool) -> TestReport:
        """All that is known of one variant."""
        reasons = self._reasons[number]
        names = self._wanted[number]
        return TestReport(
            passed=tuple(name for name in names if reasons.get(name) == ""),
            failed={name: reasons.get(name, "it was not run") for name in names if reasons.get(name) != ""},
            seconds=self._seconds[number],
            spectrum={name: self._lines[number].get(name, frozenset()) for name in names}
            if spectrum
            else None,
        )


def _pairs(told: Any) -> frozenset[tuple[str, int]]:
    rows = told if isinstance(told, list) else []
    return frozenset(
        (one[0], one[1])
        for one in rows
        if isinstance(one, list) and len(one) == 2 and isinstance(one[0], str) and type(one[1]) is int
    )
