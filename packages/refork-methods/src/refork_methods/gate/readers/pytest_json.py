"""JSON reports of the pytest-json-report plugin."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from refork_methods.gate.readers.suite import SuiteRun, broken_run, by_worst

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
