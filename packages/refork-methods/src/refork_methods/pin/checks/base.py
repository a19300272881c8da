"""What every condition is made of: reading an argument, and saying that a call cannot be judged."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any

from refork.types import Json


class CannotJudge(Exception):
    """The call lacks what a condition reads, or has it in a form that cannot be read: no violation."""


def names_of(value: Any) -> tuple[str, ...]:
    """One name or a list of names, as a tuple."""
    return (value,) if isinstance(value, str) else tuple(value)


def arguments_of(arguments: Json, names: Sequence[str]) -> list[Any]:
    """Values of the named arguments that are present; ``*`` names all of them.

    Raises: CannotJudge where there is none.
    """
    if "*" in names:
        return list(arguments.values())
    found = [arguments[name] for name in names if arguments.get(name) is not None]
    if not found:
        raise CannotJudge(f"the call has no argument {' or '.join(names)}")
    return found


def texts_of(arguments: Json, names: Sequence[str]) -> list[str]:
    """All texts inside the named arguments, lists and objects gone through; numbers as they are written.

    Raises: CannotJudge where the named arguments hold none.
    """
    found = [text for value in arguments_of(arguments, names) for text in _flat(value)]
    if not found and "*" not in names:
        raise CannotJudge(f"the argument {' or '.join(names)} holds nothing")
    return found


def _flat(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for item in value.values() for text in _flat(item)]
    if isinstance(value, list | tuple):
        return [text for item in value for text in _flat(item)]
    return [] if value is None else [str(value)]


def plain(text: str) -> str:
    """A text to compare by: compatibility forms unified, case folded, runs of space, - and _ one space."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    visible = "".join(c for c in folded if unicodedata.category(c) != "Cf")
    return " ".join(visible.replace("_", " ").replace("-", " ").split())
