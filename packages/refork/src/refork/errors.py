"""Every error Refork raises, in one tree.

ReforkError
├── UserError              the user can mend it: message only, exit status 2
│   ├── BadInput           an argument, setting, recipe or token id is not allowed
│   │   ├── UnknownNode    no such node, or an ambiguous prefix of an id
│   │   ├── BadPoint       a token beyond the step, a keep beyond the length
│   │   └── BadChange      a change that cannot be applied, or two that overlap
│   ├── TreeError          the tree file cannot be used
│   │   ├── NotATree       not ours, empty or truncated
│   │   │   └── TreeDamaged  ours, and not as it was written
│   │   ├── TreeVersion    written by another schema version
│   │   ├── TreeBusy       another writer holds it
│   │   └── DiskFull       nothing was written; what was committed is safe
│   ├── Mismatch           what is recorded and what was asked for differ
│   │   ├── WrongTokenizer token ids would mean other text
│   │   ├── WrongWeights   the policy is not the one that is named
│   │   ├── DrawConflict   the same draw, done again, gave another result
│   │   ├── ReplayDiverged the world answered differently on replay
│   │   ├── PinBroken      a pinned rule is missing, altered or doubled in a model's input
│   │   └── NotSigned      a change of pinned rules that the operator's key does not prove
│   ├── CannotDo           this policy, server or world lacks what was asked
│   │   └── MissingExtra   an optional package is not installed
│   └── ServerError        a remote endpoint failed, refused or contradicted itself
└── InternalError          our bug: traceback, please report
"""

from __future__ import annotations

import shlex
from importlib.metadata import distributions
from re import search


class ReforkError(Exception):
    """Base of every error raised on purpose."""


class UserError(ReforkError):
    """Something the user can mend: what happened, where, and what to do next."""

    exit_code = 2

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        self.what = what
        self.where = where
        self.hint = hint
        super().__init__(str(self))

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        advice = f"\n  next: {self.hint}" if self.hint else ""
        return f"{self.what}{place}{advice}"


class BadInput(UserError):
    """An argument, setting, recipe or token id is not allowed."""


class UnknownNode(BadInput):
    """No such node in this tree, or an id prefix that fits several."""


class BadPoint(BadInput):
    """A point that is not on the recorded step."""


class BadChange(BadInput):
    """A change that cannot be applied at this point."""


class TreeError(UserError):
    """The tree file cannot be used as asked."""


class NotATree(TreeError):
    """The file is not a Refork tree, is empty, or is damaged."""


class TreeDamaged(NotATree):
    """The file is a tree, and something in it is not as it was written."""


class TreeVersion(TreeError):
    """The file was written by a schema version this build cannot read."""


class TreeBusy(TreeError):
    """Another process is writing and did not finish in time."""


class DiskFull(TreeError):
    """The storage refused a write; committed data is unharmed."""


class Mismatch(UserError):
    """What is recorded and what was asked for differ."""


class WrongTokenizer(Mismatch):
    """The recorded token ids would mean other text under this tokenizer."""


class WrongWeights(Mismatch):
    """The policy's weights are not those the record names."""


class DrawConflict(Mismatch):
    """A draw done again gave another result than the recorded one."""


class ReplayDiverged(Mismatch):
    """Replaying recorded actions gave another observation."""


class PinBroken(Mismatch):
    """A pinned rule is missing, altered or doubled in a model's input."""


class NotSigned(Mismatch):
    """A change of pinned rules that the operator's key does not prove."""


class CannotDo(UserError):
    """The policy, server or world lacks a capability."""


def extra_packages(extra: str) -> list[str]:
    """The requirements of an optional extra, as the metadata of the installed distribution lists them.

    Looked at are the distribution whose command runs this package and those that register something with it.
    They are not looked up by name: a distribution may carry any name on an index.

    Returns:
        For instance ``["playwright>=1.50"]``; empty where the package runs without being installed.
    """
    package = __name__.partition(".")[0]
    # The first on the path is the one that is imported, so it comes last here.
    owners = {
        found.name: found
        for found in reversed(list(distributions()))
        for point in found.entry_points
        if point.group.startswith(f"{package}.")
        or (point.group == "console_scripts" and point.module.partition(".")[0] == package)
    }
    lines = [line.partition(";") for owner in owners.values() for line in owner.requires or ()]
    wanted = rf"""\bextra\s*==\s*['"]{extra}['"]"""
    return sorted({need.strip() for need, _, marker in lines if search(wanted, marker)})


def install_command(extra: str) -> str:
    """What to run for the packages of an optional extra: ``pip install 'playwright>=1.50'``."""
    packages = extra_packages(extra)
    if not packages:
        return f"install the packages that pyproject.toml lists under the extra {extra!r}"
    return shlex.join(["pip", "install", *packages])


class MissingExtra(CannotDo):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed", hint=install_command(extra))


class ServerError(UserError):
    """A remote endpoint failed, refused, or contradicted itself."""


class InternalError(ReforkError):
    """A broken invariant of Refork itself: a bug worth reporting."""
