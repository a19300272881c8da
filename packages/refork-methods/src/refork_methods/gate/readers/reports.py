"""A folder of test reports, one file per check and candidate, as calibration records."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from refork.errors import BadInput
from refork_methods.gate.model import VERIFY
from refork_methods.gate.prices import Rates
from refork_methods.gate.readers.junit import read_junit
from refork_methods.gate.readers.pytest_json import read_pytest_json
from refork_methods.gate.readers.suite import OnError, SuiteRun, parametrised
from refork_methods.gate.records import NO_OUTCOME, ORACLE_ERROR, Record, completed, critic_names

PATTERN: Final = "{instance}/{candidate}/{check}.xml"
_READERS: Final[dict[str, Callable[[Path], SuiteRun]]] = {".xml": read_junit, ".json": read_pytest_json}


def read_suite(path: Path) -> SuiteRun:
    """One report: JUnit XML by the ending .xml, pytest-json-report by .json. Raises BadInput for another."""
    if path.suffix not in _READERS:
        raise BadInput(f"{path.suffix or 'no ending'!r} is no report's ending", where=str(path), hint=".xml")
    return _READERS[path.suffix](path)


def read_reports(
    folder: Path,
    pattern: str = PATTERN,
    *,
    oracle: str = VERIFY,
    on_error: OnError = "unknown",
    rates: Rates | None = None,
) -> tuple[Record, ...]:
    """Records of a folder of reports whose paths follow ``pattern``.

    ``{check}`` names the critic, or the ``oracle``; a missing ``{candidate}`` is 0. An oracle's report that
    does not tell is an oracle error; a critic's, or one that is not there, is unknown. With ``rates``, the
    seconds that a suite ran are its cost.

    Raises: BadInput where no file fits, a pattern lacks a name, or a critic and the oracle share a test.
    """
    wanted = parametrised(pattern)
    runs: dict[tuple[str, str, int | None], dict[str, SuiteRun]] = {}
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        found = wanted.fullmatch(file.relative_to(folder).as_posix())
        if found:
            key, check = _key(found)
            runs.setdefault(key, {})[check] = read_suite(file)
    if not runs:
        raise BadInput(f"no file fits the pattern {pattern}", where=str(folder))
    if not any(oracle in checks for checks in runs.values()):
        raise BadInput(f"no report is called {oracle!r}, so there is no outcome", hint="--oracle NAME")
    made = [_record(key, checks, oracle, on_error, rates) for key, checks in runs.items()]
    names = critic_names(made)
    return completed(replace(r, verdicts={name: r.verdicts.get(name) for name in names}) for r in made)


def _key(found: re.Match[str]) -> tuple[tuple[str, str, int | None], str]:
    parts = found.groupdict()
    step = parts.get("step")
    return (parts["instance"], parts.get("candidate") or "0", None if step is None else int(step)), parts[
        "check"
    ]


def _record(
    key: tuple[str, str, int | None],
    checks: Mapping[str, SuiteRun],
    oracle: str,
    on_error: OnError,
    rates: Rates | None,
) -> Record:
    instance, candidate, step = key
    final = checks.get(oracle)
    right = None if final is None else final.verdict(on_error)
    calls = {VERIFY if name == oracle else name: run for name, run in checks.items()}
    costs = {
        name: rates.value({"seconds": run.seconds})
        for name, run in calls.items()
        if rates is not None and rates.known("seconds") and run.seconds is not None
    }
    return Record(
        instance,
        candidate,
        right,
        {name: run.verdict(on_error) for name, run in calls.items() if name != VERIFY},
        costs,
        step,
        missing=None if right is not None else (NO_OUTCOME if final is None else ORACLE_ERROR),
        tests={name: run.names for name, run in calls.items()},
    )
