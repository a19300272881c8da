"""Git over a stranger's repository: what its own settings could start, switched off."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Final

#: Settings that name programs, over those of the repository.
QUIET: Final = (
    "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=false",
    "-c", "log.showSignature=false",
)  # fmt: skip
#: No transport: a missing object is an error, and not fetched by a program that the repository names.
_SETTINGS: Final = {
    "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none", "LC_ALL": "C",
}  # fmt: skip
_POINTING: Final = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")
_FILTER: Final = re.compile(r"(filter\..+)\.(?:clean|smudge|process|required)\Z", re.DOTALL)


def environment() -> dict[str, str]:
    """This process's, without what points git elsewhere, and with no transport."""
    return {name: value for name, value in os.environ.items() if name not in _POINTING} | _SETTINGS


def unfiltered(top: str | Path) -> dict[str, str]:
    """The environment for commands that read files of a working tree: filters of the repository are empty.

    A file that is not as in the index is read through the ``clean`` program of its attributes. Filters of the
    user's own settings, such as git-lfs, stay.
    """
    told = environment()
    listed = subprocess.run(
        ["git", "-C", os.fspath(top), *QUIET, "config", "--list", "--name-only", "--show-scope", "-z"],
        capture_output=True, check=False, env=told,
    )  # fmt: skip
    parts = listed.stdout.decode("utf-8", "surrogateescape").split("\0")
    rows = zip(parts[::2], parts[1::2], strict=False)
    found = {
        one[1] for scope, name in rows if scope in ("local", "worktree") and (one := _FILTER.match(name))
    }
    keys = [(f"{name}.{part}", "") for name in sorted(found) for part in ("clean", "smudge", "process")]
    keys += [(f"{name}.required", "false") for name in sorted(found)]
    first = int(told.get("GIT_CONFIG_COUNT", "0") or 0)
    for number, (key, value) in enumerate(keys, first):
        told |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return told | {"GIT_CONFIG_COUNT": str(first + len(keys))}
