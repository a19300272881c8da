"""What the environment sets, where files are kept, and what both were called before.

The package was called Ramify. Its variables, its folder and the marks in its files are still read.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

PREFIX: Final = "REFORK_"
_FORMER_PREFIX: Final = "RAMIFY_"
# An underscore is a letter to ``\b``, which alone would miss ``ramify_tree``.
_FORMER_MARK: Final = re.compile(r"\bramify(?=\b|_)")


def variables(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables of the environment that are ours, by their present names, sorted.

    ``RAMIFY_X`` counts as ``REFORK_X`` where that one is not set.
    """
    given = os.environ if environment is None else environment
    found = {name: text for name, text in given.items() if name.startswith(PREFIX)}
    for name, text in given.items():
        if name.startswith(_FORMER_PREFIX):
            found.setdefault(PREFIX + name.removeprefix(_FORMER_PREFIX), text)
    return dict(sorted(found.items()))


def variable(name: str, environment: Mapping[str, str] | None = None) -> str | None:
    """One variable by its present name, ``REFORK_X``; None: neither it nor ``RAMIFY_X`` is set."""
    return variables(environment).get(name)


def from_toml(text: str) -> Any:
    """A setting's value as TOML reads it; what is none of TOML's is the text itself."""
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return text


def home() -> Path:
    """Where what was built, measured and run is kept: ``REFORK_HOME``, else ``~/.cache/refork``.

    ``~/.cache/ramify`` goes on to be used where it is there and the other is not.
    """
    if given := variable("REFORK_HOME"):
        return Path(given)
    cache = Path.home() / ".cache"
    former = cache / "ramify"
    return former if former.is_dir() and not (cache / "refork").exists() else cache / "refork"


def present_mark(mark: Any) -> Any:
    """The mark of a file, such as its ``format``, as it is written now; what is no text stays as it is.

    >>> present_mark("ramify case file"), present_mark("ramify.probe/1"), present_mark(None)
    ('refork case file', 'refork.probe/1', None)
    """
    return _FORMER_MARK.sub("refork", mark) if isinstance(mark, str) else mark
