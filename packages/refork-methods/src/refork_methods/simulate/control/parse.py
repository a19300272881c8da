"""Controls as the command line writes them: ``perturb:rate=0.3,kinds=error+pages;stingy``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from refork.errors import BadInput
from refork.registry import part
from refork_methods.simulate.control.base import Control, Controls
from refork_methods.simulate.control.perturb import Perturb
from refork_methods.simulate.control.stingy import Stingy

#: What may be written, for help texts.
GRAMMAR = (
    "perturb[:rate=0.3,kinds=error+pages+partial+failure,actions=NAME+NAME,how=enforce], "
    "stingy[:answer=TEXT], fictional; several, separated by semicolons"
)


def _fictional() -> Control:
    """Invented worlds come with the testbed, and so does the control that speaks from their tables."""
    control: Control = part("simulate.fictional", "refork-testbed")()
    return control


def _many(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split("+") if part)


_READ: dict[str, tuple[Callable[..., Control], dict[str, Callable[[str], Any]]]] = {
    "perturb": (
        Perturb,
        {"rate": float, "kinds": _many, "actions": _many, "spare": _many, "how": str, "page": int},
    ),
    "stingy": (Stingy, {"answer": _many, "needs": _many, "teaser": str}),
    "fictional": (_fictional, {}),
}


def parse_control(text: str) -> Control:
    """The control that a text names, or several as one.

    Raises:
        BadInput: an unknown control or setting, or a value that is none.
    """
    parts = [_one(part.strip()) for part in text.split(";") if part.strip()]
    if not parts:
        raise BadInput("no control is named", hint=GRAMMAR)
    return parts[0] if len(parts) == 1 else Controls(tuple(parts))


def _one(text: str) -> Control:
    name, _, rest = text.partition(":")
    if name not in _READ:
        raise BadInput(f"there is no control {name!r}", hint=GRAMMAR)
    make, known = _READ[name]
    settings: dict[str, Any] = {}
    for item in filter(None, rest.split(",")):
        key, _, value = item.partition("=")
        if key not in known:
            raise BadInput(f"{name} has no setting {key!r}", hint="settings: " + ", ".join(known))
        try:
            settings[key] = known[key](value)
        except ValueError:
            raise BadInput(f"{key} is {value!r}, which is no number", where=name) from None
    return make(**settings)
