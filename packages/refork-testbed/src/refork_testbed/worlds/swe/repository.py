"""Small repositories with a mistake in their last commit, made of the projects of ``repair``."""

from __future__ import annotations

import ast
import posixpath
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, final

from refork.sandbox.shell import ShellState
from refork.types import Json
from refork.worlds.base import Split
from refork.worlds.dice import Dice, digest
from refork_testbed.worlds.repair.edits import as_action
from refork_testbed.worlds.repair.mutation import lines
from refork_testbed.worlds.repair.projects import project_names, split_of_project
from refork_testbed.worlds.repair.tasks import RepairTask, tasks_of

#: Tests that the repository shows, the failing ones first; the verdict asks all of the module's.
LISTED = 4
_HASH = re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b")


@final
@dataclass(frozen=True, slots=True)
class Repository:
    """A repository: ``before`` and ``files`` (path -> text) are its state before and after the mistake.

    ``tests``: what the verdict runs, path -> text. ``edits``: the line edits that mend it.
    """

    project: str
    path: str
    function: str
    issue: str
    before: dict[str, str]
    files: dict[str, str]
    tests: dict[str, str]
    edits: tuple[str, ...]

    def to_json(self) -> Json:
        """Plain JSON: the data of a task."""
        return asdict(self) | {"edits": list(self.edits)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Repository:
        """Inverse of :meth:`to_json`."""
        return cls(**{**data, "edits": tuple(data["edits"])})

    @property
    def mark(self) -> str:
        """Digest of all of it."""
        return digest(self.to_json())[:16]


def repositories(split: Split, seed: int) -> Iterator[Repository]:
    """Seeded repositories of a split, the projects taking turns until all are used up."""
    names = [name for name in project_names() if not name.startswith("std-")]
    names = [name for name in names if split_of_project(name) == split]
    taken = dict.fromkeys(Dice("swe", split, seed).sample(names, len(names)), 0)
    while taken:
        for name in list(taken):
            while True:
                known = tasks_of(name, taken[name] + 1, seed)
                if len(known) <= taken[name]:
                    del taken[name]
                    break
                found = repository(known[taken[name]])
                taken[name] += 1
                if found is not None:
                    yield found
                    break


@cache
def _functions(source: str) -> dict[str, str]:
    """Name -> text of the functions of a module."""
    rows = lines(source)
    return {
        node.name: "".join(rows[node.lineno - 1 : node.end_lineno])
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef)
    }


def repository(task: RepairTask) -> Repository | None:
    """The part of a project that a mistake concerns; None where no line edit mends it or no test fails."""
    home = task.project
    edit = as_action(task.path, task.broken, home.files[task.path])
    module = task.path.removesuffix(".py").replace("/", ".")
    failing = [test for test in task.failing if home.checks[test].module == module]
    if not edit.startswith("line ") or not failing:
        return None
    (path,) = {test.partition("::")[0] for test in failing}
    functions = _functions(home.tests[path])
    names = [test.partition("::")[2] for test in home.names if test.startswith(f"{path}::")]
    bad = [test.partition("::")[2] for test in failing]
    good = [name for name in names if name not in bad]
    some = sorted([*bad[: LISTED // 2], *good[: LISTED - min(len(bad), LISTED // 2)]], key=names.index)
    head = home.tests[path].partition("\n\n\n")[0]
    shown = head + "\n" + "".join(f"\n\n{functions[name]}" for name in some)
    support = {
        one: text for one, text in home.tests.items() if not one.rpartition("/")[2].startswith("test_")
    }
    needed = _needed(home.files, [task.path, *_imported(home.tests[path], path, home.files)])
    before = {one: home.files[one] for one in needed} | support | {path: shown}
    told = home.checks[failing[0]]
    return Repository(
        project=home.name, path=task.path, function=task.mutation.function,
        issue=f"{told.about} comes out wrong : see {told.call}",
        before=before, files={**before, task.path: task.broken}, tests={path: home.tests[path]},
        edits=(f"edit {task.path} {edit.removeprefix('line ')}",),
    )  # fmt: skip


def _needed(files: Mapping[str, str], wanted: list[str]) -> list[str]:
    """These files, what they import, and the packages that they lie in."""
    found: set[str] = set()
    while wanted:
        path = wanted.pop()
        if path in found:
            continue
        found.add(path)
        wanted += _imported(files[path], path, files)
        while folder := posixpath.dirname(path):
            path = folder
            if f"{folder}/__init__.py" in files:
                wanted.append(f"{folder}/__init__.py")
    return sorted(found)


def _imported(source: str, path: str, files: Mapping[str, str]) -> list[str]:
    """Files of the project that a module imports from."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ImportFrom):
            continue
        parts = path.removesuffix(".py").split("/")[: -node.level] if node.level else []
        base = "/".join([*parts, *(node.module.split(".") if node.module else [])])
        names = [base, *(f"{base}/{alias.name}" for alias in node.names)]
        found += [f"{name}.py" for name in names if f"{name}.py" in files]
    return found


def hashes(text: str) -> set[str]:
    """What looks like a commit's or a file's hash."""
    return set(_HASH.findall(text))


def canonical(state: ShellState) -> list[list[Any]]:
    """What a repository's state is: files, modes, what git holds by name, and what is staged.

    Times and numbers in git's index, and the packing of its objects, differ between equal states.
    """
    found: list[list[Any]] = []
    for entry in state.entries:
        if entry.path == ".git/index":
            found.append([entry.path, staged(entry.text)])
        elif entry.path.startswith(".git/objects/"):
            found.append([entry.path])
        else:
            found.append([entry.path, entry.kind, entry.mode, entry.text])
    return found


def staged(index: str) -> list[list[str]]:
    """Path and hash of each entry of git's index (version 2); a digest of the whole for another."""
    data = index.encode("utf-8", "surrogateescape")
    if data[:8] != b"DIRC\0\0\0\2":
        return [["index", str(zlib.crc32(data))]]
    found, at = [], 12
    for _ in range(int.from_bytes(data[8:12], "big")):
        end = data.index(b"\0", at + 62)
        found.append([data[at + 62 : end].decode(), data[at + 40 : at + 60].hex()])
        at += (end - at) // 8 * 8 + 8
    return found
