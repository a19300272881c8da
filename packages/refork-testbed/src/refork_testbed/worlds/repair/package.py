"""A project: a package held in memory, and tests that hold what its original text answers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

from refork.errors import InternalError
from refork_testbed.worlds.repair.runner import TestRunner, Variant, test_names

Origin: TypeAlias = Literal["generated", "stdlib"]
#: The longest answer that a test compares, in characters.
LONGEST = 300
SUPPORT_PATH = "tests/support.py"
SUPPORT = '''"""Values in the form in which tests compare them."""


def plain(call):
    """What a call gives, in lists, dictionaries and text; what it raises by its type."""
    try:
        return simple(call())
    except Exception as error:
        return "raises " + type(error).__name__


def simple(value, depth=0):
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return round(value, 9) if value - value == 0 else str(value)
    if depth > 6:
        return "deep"
    if isinstance(value, dict):
        return {str(key): simple(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted((simple(item, depth + 1) for item in value), key=repr)
    if hasattr(value, "__iter__") and not isinstance(value, (bytes, bytearray)):
        found = []
        for item in value:
            found.append(simple(item, depth + 1))
            if len(found) == 40:
                break
        return found
    text = str(value)
    return type(value).__name__ if " at 0x" in text else text
'''


@final
@dataclass(frozen=True, slots=True)
class Check:
    """One call of a test: what to import, the call, what it asks for in words, and the right answer."""

    module: str
    name: str
    imports: tuple[str, ...]
    call: str
    about: str
    expected: str = ""


@final
@dataclass(frozen=True, slots=True)
class Project:
    """``files`` and ``tests`` (path -> source), all of whose tests pass; test name -> its check.

    ``targets`` are the files that may be mutated; the others are only there to be searched.
    """

    name: str
    origin: Origin
    files: dict[str, str]
    tests: dict[str, str]
    checks: dict[str, Check]
    targets: tuple[str, ...]
    spectrum: dict[str, frozenset[tuple[str, int]]]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all tests."""
        return tuple(self.checks)


def recorded(
    name: str,
    origin: Origin,
    files: Mapping[str, str],
    checks: Sequence[Check],
    runner: TestRunner,
    targets: Sequence[str] | None = None,
) -> Project:
    """A project whose tests hold what the files answer to each check's call now.

    Calls whose answer is long or holds an address are left out.
    """
    asked = dict(_named(checks))
    asking = _rendered(asked, record=True)
    # More than is kept, so that an answer too long is left out and not cut to fit.
    (first,) = runner.run_variants(files, asking, [Variant()], longest=4 * LONGEST)
    kept = []
    for test, one in asked.items():
        reason = first.failed.get(test, "")
        if reason.startswith("found ") and len(reason) <= LONGEST and " at 0x" not in reason:
            kept.append(
                Check(one.module, one.name, one.imports, one.call, one.about, reason.removeprefix("found "))
            )
    final_checks = dict(_named(kept))
    tests = _rendered(final_checks, record=False)
    report = runner.run(files, tests, spectrum=True)
    if not report.ok or report.spectrum is None or test_names(tests) != tuple(final_checks):
        raise InternalError(
            f"the tests of {name} do not pass on its own text: {list(report.failed.items())[:2]}"
        )
    paths = tuple(files) if targets is None else tuple(targets)
    return Project(name, origin, dict(files), tests, final_checks, paths, report.spectrum)


def _named(checks: Sequence[Check]) -> list[tuple[str, Check]]:
    """Checks with the names of their tests, file by file, each call once."""
    found: list[tuple[str, Check]] = []
    calls: set[tuple[str, str]] = set()
    counts: dict[tuple[str, str], int] = {}
    for one in sorted(checks, key=lambda check: check.module):
        if (one.module, one.call) in calls:
            continue
        calls.add((one.module, one.call))
        place = counts[one.module, one.name] = counts.get((one.module, one.name), 0) + 1
        found.append((f"{_path(one.module)}::test_{one.name}_{place}", one))
    return found


def _path(module: str) -> str:
    return "tests/test_" + re.sub(r"\W", "_", module.partition(".")[2] or module) + ".py"


def _rendered(checks: Mapping[str, Check], *, record: bool) -> dict[str, str]:
    """Test files of these checks; to ``record`` is to fail whatever the answer, which is then told."""
    by_path: dict[str, list[tuple[str, Check]]] = {}
    for test, one in checks.items():
        path, _, function = test.partition("::")
        by_path.setdefault(path, []).append((function, one))
    tests = {"tests/__init__.py": "", SUPPORT_PATH: SUPPORT}
    for path, members in by_path.items():
        names = sorted({name for _, one in members for name in one.imports})
        head = f"from {members[0][1].module} import {', '.join(names)}\n\nfrom tests.support import plain\n"
        bodies = [
            f"\n\ndef {function}():\n    found = plain(lambda: {one.call})\n"
            f"    assert {'False' if record else f'found == {one.expected}'}\n"
            for function, one in members
        ]
        tests[path] = head + "".join(bodies)
    return tests
