"""Calibration records from elsewhere: folders of test reports, the SWE-bench harness, several at once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, final

from refork.errors import BadInput
from refork_methods.gate.model import VERIFY
from refork_methods.gate.records import (
    NO_OUTCOME,
    ORACLE_ERROR,
    Rates,
    Record,
    completed,
    critic_names,
    joined,
    read_jsonl,
)

# One run of a test suite, whoever reported it, and what it says of a candidate.

#: What tests that ended in an error say: nothing, or that the candidate is wrong.
OnError: TypeAlias = Literal["unknown", "fail"]


@final
@dataclass(frozen=True, slots=True)
class SuiteRun:
    """Names of the tests by how they ended; ``broken`` says why the run itself cannot be trusted."""

    passed: frozenset[str]
    failed: frozenset[str]
    errors: frozenset[str]
    skipped: frozenset[str]
    seconds: float | None = None
    broken: str | None = None

    @property
    def names(self) -> frozenset[str]:
        """Every test that was reported."""
        return self.passed | self.failed | self.errors | self.skipped

    def verdict(self, on_error: OnError = "unknown") -> bool | None:
        """Pass where all that ran passed, fail where one failed; None where the run does not tell.

        It does not where no test ran, or none failed but one ended in an error: a fixture, a collection or
        the machine. ``on_error="fail"`` holds errors against the candidate instead.
        """
        # A failure tells even where the run broke off later: no test that did not run could make it pass.
        if self.failed or (on_error == "fail" and self.errors):
            return False
        if self.broken is not None or self.errors or not self.passed:
            return None
        return True


#: How a test may end, the worst first.
ENDINGS = ("errors", "failed", "skipped", "passed")


def by_worst(
    ended: Iterable[tuple[str, str]], seconds: float | None = None, broken: str | None = None
) -> SuiteRun:
    """A run from (test, ending) pairs; a test that is there twice ended as the worse of the two."""
    worst: dict[str, int] = {}
    for name, ending in ended:
        worst[name] = min(worst.get(name, len(ENDINGS)), ENDINGS.index(ending))
    sets = {ending: frozenset(n for n, w in worst.items() if w == i) for i, ending in enumerate(ENDINGS)}
    return SuiteRun(**sets, seconds=seconds, broken=broken)


def broken_run(why: str) -> SuiteRun:
    """A run that tells nothing."""
    return by_worst((), None, why)


def parametrised(pattern: str) -> re.Pattern[str]:
    """A path pattern such as ``{instance}/{candidate}/{check}.xml`` as a regular expression.

    A name matches within one folder; ``*`` anything within one folder, ``**`` across folders.

    Raises: BadInput for an unknown name, or without ``{instance}`` and ``{check}``.
    """
    known = ("instance", "candidate", "step", "check")
    parts = re.split(r"(\{\w*\}|\*\*|\*)", pattern)
    made = ""
    for part in parts:
        name = part[1:-1]
        if part in ("*", "**"):
            made += "[^/]*" if part == "*" else ".*"
        elif part.startswith("{") and part.endswith("}"):
            if name not in known:
                raise BadInput(f"the pattern has {part}", hint="{" + "}, {".join(known) + "}")
            # The same name twice must match the same text: the second place refers back to the first.
            repeated = f"(?P<{name}>" in made
            inside = r"\d+" if name == "step" else "[^/]+"
            made += f"(?P={name})" if repeated else f"(?P<{name}>{inside})"
        else:
            made += re.escape(part)
    missing = [name for name in ("instance", "check") if f"(?P<{name}>" not in made]
    if missing:
        raise BadInput(f"the pattern lacks {{{missing[0]}}}", hint="{instance}/{candidate}/{check}.xml")
    return re.compile(made)


# JUnit XML, as pytest --junitxml and most test runners write it.


def read_junit(path: Path) -> SuiteRun:
    """The run of a suite in a JUnit XML file; one that is not whole tells nothing, and says so.

    Raises: OSError where the file cannot be read.
    """
    from xml.etree import ElementTree

    from junitparser import JUnitXml, JUnitXmlError, TestSuite

    try:
        tree: Any = ElementTree.fromstring(path.read_bytes())
        root: Any = JUnitXml.fromroot(tree)
        suites = [root] if isinstance(root, TestSuite) else list(root)
        cases = [case for suite in suites for case in suite]
        # Well-formed XML may still be cut short: only the declared count shows that tests are missing.
        declared = sum(suite.tests or 0 for suite in suites)
        times = [float(case.time) for case in cases if case.time is not None]
    except (JUnitXmlError, ElementTree.ParseError, ValueError) as error:
        return broken_run(f"not JUnit XML: {error}")
    why = f"it declares {declared} tests and holds {len(cases)}" if declared > len(cases) else None
    return by_worst([(_name(case), _ending(case)) for case in cases], sum(times) if times else None, why)


def _name(case: Any) -> str:
    return f"{case.classname}::{case.name}" if case.classname else str(case.name)


def _ending(case: Any) -> str:
    if case.is_error:
        return "errors"
    if case.is_failure:
        return "failed"
    return "skipped" if case.is_skipped else "passed"


# JSON reports of the pytest-json-report plugin.

#: pytest's exit codes after which a report is whole: all passed, or some failed.
_WHOLE: Final = (0, 1)

_ENDING: Final = {
    "passed": "passed", "xpassed": "passed", "failed": "failed", "error": "errors",
    "skipped": "skipped", "xfailed": "skipped",
}  # fmt: skip


def read_pytest_json(path: Path) -> SuiteRun:
    """The run of a suite in a pytest-json-report file.

    A test marked as expected to fail that does counts as skipped. A failed collection is an error under the
    collector's name. A run that was interrupted, crashed or has no tests listed tells nothing, and says so.

    Raises: OSError where the file cannot be read.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        tests, collectors = data["tests"], data.get("collectors") or []
        ended = [(str(test["nodeid"]), _ENDING[test["outcome"]]) for test in tests]
        ended += [(str(c["nodeid"]), "errors") for c in collectors if c["outcome"] == "failed"]
        times = [float(stage["duration"]) for test in tests for stage in _stages(test)]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return broken_run(f"not a pytest-json-report with its tests: {error!r}")
    code = data.get("exitcode")
    collected = any(ending == "errors" for _, ending in ended)
    # A failed collection interrupts the session (2) by itself; the errors already say so.
    whole = code in _WHOLE or (code == 2 and collected)
    return by_worst(ended, sum(times) if times else None, None if whole else f"pytest ended with {code}")


def _stages(test: dict[str, Any]) -> list[dict[str, Any]]:
    return [test[name] for name in ("setup", "call", "teardown") if "duration" in test.get(name, {})]


# A folder of test reports, one file per check and candidate, as calibration records.

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
    does not tell is an oracle error; a critic's, or one that is not there, is unknown. The seconds that a
    suite ran are kept, and are its cost where ``rates`` convert them.

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
    ran = {name: {"seconds": run.seconds} for name, run in calls.items() if run.seconds is not None}
    priced = rates is not None and rates.known("seconds")
    costs = {name: rates.value(parts) for name, parts in ran.items()} if rates and priced else {}
    return Record(
        instance,
        candidate,
        right,
        {name: run.verdict(on_error) for name, run in calls.items() if name != VERIFY},
        costs,
        step,
        missing=None if right is not None else (NO_OUTCOME if final is None else ORACLE_ERROR),
        tests={name: run.names for name, run in calls.items()},
        amounts=ran,
    )


# Outcomes from the SWE-bench harness: the report of a run, or the report.json of every instance.


def read_swebench(runs: Iterable[tuple[str, Path]]) -> tuple[Record, ...]:
    """Outcomes of candidates, one named run of the harness each; join them with the critics' verdicts.

    A path is a run's summary (``MODEL.RUN.json``) or a folder that holds ``report.json`` files. Resolved
    is right, unresolved and an empty patch are wrong; an error of the harness, or a patch of which it has no
    test result, is an oracle error. (The harness does not say whether such a patch failed to apply.) An
    instance that was not submitted has no candidate and is left out.

    Raises: BadInput for a file that is neither, or an instance that is in two lists.
    """
    made: list[Record] = []
    for candidate, path in runs:
        if path.is_dir():
            files = sorted(path.rglob("report.json"))
            if not files:
                raise BadInput("this folder holds no report.json", where=str(path))
        else:
            files = [path]
        for file in files:
            made += _read(file, candidate)
    return completed(made)


def _read(path: Path, candidate: str) -> list[Record]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"this report cannot be read: {error}", where=str(path)) from error
    if isinstance(data, dict) and "resolved_ids" in data:
        return _summary(data, candidate, str(path))
    if isinstance(data, dict) and data and all(_is_instance(one) for one in data.values()):
        return [_instance(name, one, candidate) for name, one in data.items()]
    raise BadInput(
        "this is no report of the SWE-bench harness",
        where=str(path),
        hint="MODEL.RUN.json with resolved_ids and unresolved_ids, or an instance's report.json",
    )


def _summary(data: dict[str, Any], candidate: str, where: str) -> list[Record]:
    endings = {"resolved_ids": True, "unresolved_ids": False, "empty_patch_ids": False, "error_ids": None}
    if "unresolved_ids" not in data:
        raise BadInput("the report does not list unresolved_ids", where=where)
    found: dict[str, str] = {}
    for ending in endings:
        for name in data.get(ending) or ():
            if name in found:
                raise BadInput(f"{name} is in {found[name]} and in {ending}", where=where)
            found[name] = ending
    return [
        Record(
            name,
            candidate,
            endings[ending],
            {},
            missing=ORACLE_ERROR if ending == "error_ids" else None,
            empty=ending == "empty_patch_ids",
        )
        for name, ending in found.items()
    ]


def _is_instance(one: Any) -> bool:
    return isinstance(one, dict) and isinstance(one.get("resolved"), bool)


def _instance(name: str, one: dict[str, Any], candidate: str) -> Record:
    empty = bool(one.get("patch_is_None")) or one.get("patch_exists") is False
    ran = one.get("patch_successfully_applied") is not False
    status = one.get("tests_status") or {}
    tests = frozenset(
        test for kind in ("FAIL_TO_PASS", "PASS_TO_PASS") for ended in status.get(kind, {}).values()
        for test in ended
    )  # fmt: skip
    right = one["resolved"] if ran or one["resolved"] else None
    return Record(
        name,
        candidate,
        right,
        {},
        missing=ORACLE_ERROR if right is None else None,
        tests={VERIFY: tests} if tests else {},
        empty=empty,
    )


# Records of several files and folders, as a command names them.


def load_records(
    paths: Sequence[Path],
    *,
    outcomes: Sequence[str] = (),
    thresholds: Mapping[str, float] | None = None,
    rates: Rates | None = None,
    pattern: str = PATTERN,
    oracle: str = VERIFY,
    on_error: OnError = "unknown",
) -> tuple[Record, ...]:
    """JSON lines by file, test reports by folder, put together; ``outcomes`` join SWE-bench reports.

    An outcome is ``PATH``, or ``CANDIDATE=PATH``; without a name the candidates are 0, 1, ... in order.

    Raises: BadInput as the readers, or for a file that is not there.
    """
    found: list[Record] = []
    for path in paths:
        if not path.exists():
            raise BadInput("there is no such file", where=str(path))
        if path.is_dir():
            found += read_reports(path, pattern, oracle=oracle, on_error=on_error, rates=rates)
        else:
            found += read_jsonl(path, thresholds, rates)
    records = completed(found)
    if not outcomes:
        return records
    runs = []
    for number, item in enumerate(outcomes):
        name, named, rest = item.partition("=")
        path = Path(rest if named else item)
        if not path.exists():
            raise BadInput("there is no such file", where=str(path))
        runs.append((name if named else str(number), path))
    return joined(records, read_swebench(runs))


def amounts(items: Sequence[str], what: str) -> dict[str, float]:
    """``NAME=NUMBER`` items. Raises BadInput for one that is not, or a name that is there twice."""
    found: dict[str, float] = {}
    for item in items:
        name, _, text = item.partition("=")
        try:
            number = float(text)
        except ValueError as error:
            raise BadInput(f"{item!r} is no {what}", hint=f"--{what} NAME=NUMBER") from error
        if not name or name in found:
            raise BadInput(f"{what} {name!r} is given twice or has no name")
        found[name] = number
    return found
