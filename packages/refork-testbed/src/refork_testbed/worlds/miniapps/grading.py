"""Grading by what changed: every wanted change is a test, and one test says that nothing else changed.

Source: the idea of state-based tests with a check for collateral damage, and the two rates, are AppWorld's
(arXiv 2407.18901); the code and the form of the changes are ours.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from refork.errors import BadInput
from refork.types import Json
from refork_testbed.worlds.miniapps.store import TABLES, Rows
from refork_testbed.worlds.miniapps.templates import Change


@dataclass(frozen=True, slots=True)
class Check:
    """One requirement and whether it is met."""

    requirement: str
    passed: bool


@dataclass(frozen=True, slots=True)
class Report:
    """All tests of a task. ``collateral``: changes that nobody wanted, in words."""

    tests: tuple[Check, ...]
    collateral: tuple[str, ...]

    @property
    def success(self) -> bool:
        """Whether every test passed."""
        return all(test.passed for test in self.tests)

    def to_json(self) -> Json:
        """Counts, and what failed."""
        return {
            "passed": sum(test.passed for test in self.tests),
            "tests": len(self.tests),
            "failed": [test.requirement for test in self.tests if not test.passed],
            "collateral": list(self.collateral),
        }


def differences(before: Rows, after: Rows) -> list[Change]:
    """Every row that was inserted, deleted or changed between two states of the apps."""
    found: list[Change] = []
    for table in TABLES:
        old = {row["id"]: dict(row) for row in before.get(table, ())}
        new = {row["id"]: dict(row) for row in after.get(table, ())}
        for key in sorted(old.keys() | new.keys()):
            if key not in new:
                found.append(Change(table, "delete", key))
            elif key not in old:
                values = {column: value for column, value in new[key].items() if column != "id"}
                found.append(Change(table, "insert", None, values))
            else:
                values = {c: v for c, v in new[key].items() if v != old[key][c]}
                found += [Change(table, "update", key, values)] if values else []
    return found


def grade(
    before: Rows, after: Rows, wanted: Sequence[Change], *, expected: str | None = None,
    answer: str | int | float | None = None,
) -> Report:  # fmt: skip
    """The tests of a finished run: each wanted change, no other change, and the answer where one is asked."""
    actual = Counter(_key(change) for change in differences(before, after))
    tests: list[Check] = []
    for change in wanted:
        met = actual[_key(change)] > 0
        # Each wanted change uses up one that was made: two equal ones must both be there.
        actual[_key(change)] -= met
        tests.append(Check(change.in_words, met))
    extra = [key for key, count in sorted(actual.items()) for _ in range(count)]
    tests.append(Check("nothing else changed", not extra))
    if expected is not None:
        tests.append(Check("the answer is right", answer is not None and same_answer(answer, expected)))
    return Report(tuple(tests), tuple(extra))


def _key(change: Change) -> str:
    return json.dumps([change.table, change.kind, change.row, change.values], sort_keys=True)


def same_answer(answer: str | int | float, expected: str) -> bool:
    """Whether an answer is right: as a number where both are, else as text but for case and spaces."""
    said, wanted = str(answer).strip().removeprefix("$").strip(), expected.strip()
    try:
        return float(said) == float(wanted)
    except ValueError:
        return said.casefold() == wanted.casefold()


def goal_completion(success: Mapping[str, bool], scenarios: Mapping[str, str]) -> tuple[float, float]:
    """Task goal completion and scenario goal completion of a set of tasks, both in 0 .. 1.

    ``success`` maps task ids to whether every test passed, ``scenarios`` the same ids to their scenario. The
    first is the share of tasks; the second the share of scenarios of which *all* tasks passed.

    Raises:
        BadInput: no task, or a task without a scenario.
    Source: arXiv 2407.18901 (TGC and SGC).
    """
    if not success:
        raise BadInput("there is no task to count")
    missing = sorted(set(success) - set(scenarios))
    if missing:
        raise BadInput(f"task {missing[0]!r} has no scenario")
    groups: dict[str, list[bool]] = {}
    for task, done in success.items():
        groups.setdefault(scenarios[task], []).append(done)
    return share(success.values()), share(all(group) for group in groups.values())


def share(values: Iterable[Any]) -> float:
    """The share of true ones; raises BadInput where there are none."""
    counted = [bool(value) for value in values]
    if not counted:
        raise BadInput("there is nothing to count")
    return sum(counted) / len(counted)
