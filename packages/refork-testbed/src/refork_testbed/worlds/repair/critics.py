"""Critics of a candidate repair, each with its seconds: syntax, ruff, the public tests, the hidden suite."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import final

from refork.errors import BadInput, CannotDo, InternalError, MissingExtra
from refork_testbed.worlds.repair.projects import shared_runner
from refork_testbed.worlds.repair.tasks import RepairTask

#: What ruff looks for: names, syntax and likely bugs; not style.
RULES = "E9,F,B,PLE"
_RUFF_SECONDS = 60


@final
@dataclass(frozen=True, slots=True)
class Verdict:
    """What a critic says: whether the candidate passes, measured wall ``seconds``, and why it does not.

    ``failed``: how many of its tests do not pass.
    """

    passed: bool
    seconds: float
    note: str = ""
    failed: int = 0


def syntax(files: Mapping[str, str]) -> Verdict:
    """Whether every file compiles."""
    started = time.perf_counter()
    note = ""
    for path, source in files.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                compile(source, path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as error:
            note = f"{path}: {type(error).__name__}: {error}"[:300]
            break
    return Verdict(not note, time.perf_counter() - started, note)


def ruff(files: Mapping[str, str], before: Mapping[str, str]) -> Verdict:
    """Whether ruff finds nothing in the changed files that it did not find before.

    Only files that differ from ``before`` are looked at. ``# noqa`` in a candidate has no effect.

    Raises:
        MissingExtra: ruff is not installed. BadInput: a path leads out of the project. CannotDo: ruff takes
            too long.
    """
    if find_spec("ruff") is None:
        raise MissingExtra("ruff", "critics")
    started = time.perf_counter()
    changed = {path: text for path, text in files.items() if before.get(path) != text}
    groups = {"old": {path: before[path] for path in changed if path in before}, "new": changed}
    found = {group: Counter[str]() for group in groups}
    with tempfile.TemporaryDirectory(prefix="refork-ruff-") as folder:
        root = Path(folder).resolve()
        for group, texts in groups.items():
            for path, text in texts.items():
                place = (root / group / path).resolve()
                if not place.is_relative_to(root / group):
                    raise BadInput(f"the path {path!r} leads out of the project", where="ruff")
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text, encoding="utf-8")
        # One call for both groups: starting ruff takes longer than reading a project.
        options = ("--isolated", "--no-cache", "--ignore-noqa", "--exit-zero", "--output-format", "json")
        try:
            ran = subprocess.run(
                [sys.executable, "-m", "ruff", "check", *options, "--select", RULES, str(root)],
                capture_output=True, text=True, timeout=_RUFF_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise CannotDo(
                f"ruff took more than {_RUFF_SECONDS} s",
                where="critics",
                hint="try again on a calmer machine",
            ) from error
        if ran.returncode:
            raise InternalError(f"ruff failed: {ran.stderr[:300]}")
        for row in json.loads(ran.stdout):
            found[Path(row["filename"]).relative_to(root).parts[0]][row["code"] or "syntax"] += 1
    new = found["new"] - found["old"]
    note = ", ".join(f"{code} {count}" for code, count in sorted(new.items()))
    return Verdict(not new, time.perf_counter() - started, note)


def public_tests(task: RepairTask, files: Mapping[str, str]) -> Verdict:
    """Whether the task's few public tests pass."""
    return _suite(task, files, task.public)


def hidden_tests(task: RepairTask, files: Mapping[str, str]) -> Verdict:
    """Whether the whole hidden suite passes, which shares no test with the public ones."""
    return _suite(task, files, task.hidden)


def _suite(task: RepairTask, files: Mapping[str, str], names: Sequence[str]) -> Verdict:
    if set(files) != set(task.project.files):
        raise BadInput("a candidate has the project's files, no more and no fewer", where=task.id)
    started = time.perf_counter()
    report = shared_runner().run(files, task.tests, names)
    note = "".join(f"{name}: {reason}\n" for name, reason in report.failed.items()).rstrip("\n")
    return Verdict(report.ok, time.perf_counter() - started, note, len(report.failed))
