"""JUnit XML, as pytest --junitxml and most test runners write it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from refork_methods.gate.readers.suite import SuiteRun, broken_run, by_worst


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
