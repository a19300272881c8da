"""The forty projects: twenty generated, twenty of the standard library, half of each for either split."""

from __future__ import annotations

from functools import cache
from threading import Lock

from refork.errors import BadInput
from refork.worlds.base import Split
from refork_testbed.worlds.repair.generated import generated, trades
from refork_testbed.worlds.repair.package import Project, recorded
from refork_testbed.worlds.repair.runner import TestRunner
from refork_testbed.worlds.repair.stdlib import copied, sources

_LOCK = Lock()


@cache
def shared_runner() -> TestRunner:
    """The runner of this process's own texts; it is started once."""
    return TestRunner()


@cache
def project_names() -> tuple[str, ...]:
    """Names of all projects, generated and standard ones in turn."""
    pairs = zip((trade.name for trade in trades()), (f"std-{module}" for module in sources()), strict=True)
    return tuple(name for pair in pairs for name in pair)


def split_of_project(name: str) -> Split:
    """The split that a project belongs to, with all of its tasks."""
    return "train" if project_names().index(name) // 2 % 2 == 0 else "held-out"


def project(name: str) -> Project:
    """A project by its name; built once.

    Raises:
        BadInput: there is no such project. CannotDo: the sandbox or the library's text is missing.
    """
    if name not in project_names():
        raise BadInput(f"there is no project {name!r}", hint=f"for example {project_names()[0]!r}")
    # A cache alone lets two threads build the same project at once.
    with _LOCK:
        return _built(name)


@cache
def _built(name: str) -> Project:
    if name.startswith("std-"):
        _, files, checks, target = copied(name.removeprefix("std-"))
        return recorded(name, "stdlib", files, checks, shared_runner(), [target])
    _, files, checks = generated([trade.name for trade in trades()].index(name))
    return recorded(name, "generated", files, checks, shared_runner())


def projects() -> tuple[Project, ...]:
    """All forty projects, the same ones every time."""
    return tuple(project(name) for name in project_names())
