"""Runs a package's tests; its text is sent into the sandbox, where nothing else of Refork is.

One process runs any number of variants of one package, one after the other. The parent is told how the tests
went as they are done; where an earlier process did not end well, after each, so that it knows which to blame.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
import time
import types
from collections.abc import Callable
from typing import Any, final

EVERY = 0.05  # seconds between two reports
RESULT_NAME = "found"  # the local name in which a test holds what it compares


@final
class LoopedError(BaseException):
    """A test executed more lines of the package than it may."""


@final
class Quiet:
    """Standard output and error of what is tested: nowhere."""

    def write(self, text: str) -> int:
        """Nothing is written."""
        return len(text)

    def flush(self) -> None:
        """There is nothing to flush."""

    def isatty(self) -> bool:
        """Nobody looks."""
        return False


@final
class Package(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules from memory; compiled once per text."""

    def __init__(self) -> None:
        self._sources: dict[str, tuple[str, str]] = {}
        self._codes: dict[tuple[str, str], types.CodeType] = {}
        self._tops: frozenset[str] = frozenset()

    def hold(self, files: dict[str, str]) -> None:
        """These files (path -> source) from now on; modules of those before are forgotten."""
        # A list first: the dict would change under the loop.
        for name in [one for one in sys.modules if one.partition(".")[0] in self._tops]:
            del sys.modules[name]
        self._sources = {}
        for path, source in files.items():
            parts = path.removesuffix(".py").split("/")
            for depth in range(1, len(parts)):  # a folder is a package, with or without __init__.py
                folder = "/".join(parts[:depth])
                self._sources.setdefault(".".join(parts[:depth]), (f"{folder}/__init__.py", ""))
            self._sources[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = (path, source)
        self._tops = frozenset(name.partition(".")[0] for name in self._sources)

    def code(self, path: str, source: str) -> types.CodeType:
        """The code of a source."""
        if (path, source) not in self._codes:
            self._codes[path, source] = compile(source, path, "exec", dont_inherit=True)
        return self._codes[path, source]

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The module of this name, where we hold it."""
        if name not in self._sources:
            return None
        origin = self._sources[name][0]
        inner = origin.endswith("__init__.py")
        return importlib.machinery.ModuleSpec(name, self, origin=origin, is_package=inner)

    def create_module(self, spec: Any) -> None:
        """An ordinary module."""

    def exec_module(self, module: types.ModuleType) -> None:
        """Run the module's text."""
        path, source = self._sources[module.__name__]
        exec(self.code(path, source), module.__dict__)


@final
class Lines:
    """Counts the package's executed lines, and keeps which they were if asked to."""

    def __init__(self, paths: set[str], steps: int, keep: bool) -> None:
        self._paths, self._steps, self._keep = paths, steps, keep
        self.count = 0
        self.hit: set[tuple[str, int]] = set()

    def call(self, frame: Any, event: str, argument: Any) -> Any:
        """Follow functions of the package."""
        return self.step if frame.f_code.co_filename in self._paths else None

    def step(self, frame: Any, event: str, argument: Any) -> Any:
        """Count a line."""
        if event == "line":
            self.count += 1
            if self.count > self._steps:
                raise LoopedError(f"it ran more than {self._steps} lines")
            if self._keep:
                self.hit.add((frame.f_code.co_filename, frame.f_lineno))
        return self.step

    def watched(self, work: Callable[[], Any]) -> Any:
        """Run something while counting."""
        sys.settrace(self.call)
        try:
            return work()
        finally:
            sys.settrace(None)


def describe_error(error: BaseException) -> str:
    """Type and text of an error; for a comparison that failed, what was found instead."""
    trace = error.__traceback__
    while trace is not None:
        place = trace.tb_frame
        if place.f_code.co_name.startswith("test_") and RESULT_NAME in place.f_locals and not error.args:
            return f"found {place.f_locals[RESULT_NAME]!r}"
        trace = trace.tb_next
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # an error's own text is the package's code
        return type(error).__name__


@final
class Reports:
    """What there is to tell of finished tests, sent in groups, or one at a time where the parent asks so."""

    def __init__(self, send: Callable[..., Any], single: bool) -> None:
        self._send, self._single = send, single
        self._rows: list[list[Any]] = []
        self._since = time.monotonic()

    def add(self, *row: Any) -> None:
        """One more; sent where it is time."""
        self._rows.append(list(row))
        if self._single or time.monotonic() - self._since > EVERY:
            self.flush()

    def flush(self) -> None:
        """Send all."""
        if self._rows:
            self._send(rows=self._rows)
        self._rows, self._since = [], time.monotonic()


def run_all(reports: Reports, package: Package, job: dict[str, Any], number: int) -> None:
    """Run the tests of one variant; of each: its number, the test, why it failed, lines executed."""
    run = job["runs"][number]
    files = {**job["files"], **run["files"]}
    package.hold({**job["tests"], **files})
    paths = set(files)
    spaces: dict[str, dict[str, Any] | str] = {}
    for name in run["names"]:
        path, _, function = name.partition("::")
        lines = Lines(paths, job["steps"], job["spectrum"])
        reason = ""
        try:
            if path not in spaces:
                spaces[path] = loaded(package, path, job["tests"][path], paths, job["steps"])
            space = spaces[path]
            if isinstance(space, str):
                reason = space
            else:
                lines.watched(space[function])
        except BaseException as error:
            # A package that calls sys.exit fails its test; it must not end the run.
            reason = describe_error(error)
        seen = sorted(lines.hit) if job["spectrum"] else []
        reports.add(number, name, reason[: job["longest"]], seen)


def loaded(package: Package, path: str, source: str, paths: set[str], steps: int) -> dict[str, Any] | str:
    """The names of a test file; why there are none where it does not load."""
    module = path.removesuffix(".py").replace("/", ".")
    space: dict[str, Any] = {"__name__": module, "__package__": module.rpartition(".")[0]}
    try:
        # Loading the file imports the package: a loop without end at import has to count too.
        Lines(paths, steps, keep=False).watched(lambda: exec(package.code(path, source), space))
    except BaseException as error:
        return describe_error(error)
    return space


def main(apis: Any, tools: Any, *, job: dict[str, Any]) -> None:
    """Run every variant of ``job``: files, tests, runs (changed files and test names), steps, spectrum."""
    package = Package()
    sys.meta_path.insert(0, package)
    sys.stdout = sys.stderr = Quiet()
    os.environ.clear()
    reports = Reports(apis.tests.done, job["single"])
    for number in range(len(job["runs"])):
        run_all(reports, package, job, number)
    reports.flush()
