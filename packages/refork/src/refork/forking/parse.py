"""Changes as the command line and trees write them: ``name:argument``, and ``{"kind": name, ...}``.

A name of ``refork.changes`` stands for a class with ``parse`` and ``from_json`` (:class:`Kind`), or for any
callable that makes a change of its argument, if there is one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast, final

from refork.errors import BadChange, UserError
from refork.forking.change import Change, Compose, Diff, Kind, Openers, Plan
from refork.policies.base import Policy
from refork.registry import find, known, names, resolve, split, version_of
from refork.types import Json
from refork.worlds.base import World

_FORM = re.compile(r"``(.+?)``: (.+?)\.?$")


def grammar() -> str:
    """How changes are written, a line each, from the first lines of what their names stand for."""
    return "\n".join(map(_line, names("changes")))


def _line(name: str) -> str:
    try:
        thing = find("changes", name)
    except UserError as error:
        return f"{name:20s} {error.what}"
    text = getattr(thing, "parse", thing).__doc__ or ""
    first = text.strip().partition("\n")[0]
    told = _FORM.match(first)
    form, says = told.groups() if told else (name, first)
    return f"{form:20s} {says}"


def parse_change(
    texts: Sequence[str], open_policy: Callable[[str], Policy], open_world: Callable[[str], World]
) -> Change | None:
    """The change that one or several ``--change`` arguments describe; None for none of them.

    A name is registered, ``module:Name`` or ``file.py:Name``; the latter two run code.
    """
    opening = Openers(open_policy, open_world)
    changes = [_one(text, opening) for text in texts]
    if not changes:
        return None
    return changes[0] if len(changes) == 1 else Compose(*changes)


def _one(text: str, opening: Openers) -> Change:
    name, argument = split("changes", text)
    if not known("changes", name) and ":" not in name:
        raise BadChange(f"{text!r} is not a change", hint=grammar())
    thing = resolve("changes", name)
    try:
        if isinstance(thing, Kind):
            if not argument:
                raise BadChange(f"{name} needs more than its name", hint=_line(name))
            made = thing.parse(argument, opening)
        else:
            made = _called(thing, name, argument)
    except BadChange as error:
        raise BadChange(error.what, where=error.where or text, hint=error.hint or grammar()) from error
    return _recorded(made, name, argument)


def _called(thing: Any, name: str, argument: str) -> Change:
    if not callable(thing):
        raise BadChange(f"{name} makes no change")
    try:
        made = thing(argument) if argument else thing()
    except TypeError as error:
        raise BadChange(f"{name} cannot be made: {error}") from error
    if not isinstance(made, Change):
        raise BadChange(f"{name} makes no change", hint="it needs kind, touches, apply, diff and to_json")
    return made


def _recorded(made: Change, name: str, argument: str) -> Change:
    if _is_installed(made):
        return made
    # Its kind is an object's own, which the protocol's class variable cannot say.
    return cast(
        "Change", Foreign(made, name, argument, version_of("changes", name, resolve("changes", name)))
    )


def _is_installed(change: Change) -> bool:
    """Whether its kind is an installed name, of its class: such a change can be made again from a record."""
    if isinstance(change, Compose):
        return all(map(_is_installed, change.changes))
    if not known("changes", change.kind):
        return False
    # Not a class below it, which may do something else than what would be recorded.
    return type(change) is find("changes", change.kind)


@final
@dataclass(frozen=True, slots=True)
class Foreign:
    """A change that a name made whose records it does not carry itself: recorded under the name.

    ``code``: a digest of the file that it is from, so that another version is another arm.
    """

    change: Change
    name: str
    argument: str
    code: str

    @property
    def kind(self) -> str:
        """The name."""
        return self.name

    def touches(self) -> frozenset[str]:  # noqa: D102
        return self.change.touches()

    def apply(self, plan: Plan) -> Plan:  # noqa: D102
        return self.change.apply(plan)

    def diff(self, plan: Plan) -> Diff:  # noqa: D102
        return self.change.diff(plan)

    def to_json(self) -> Json:  # noqa: D102
        own = {"argument": self.argument} if self.argument else {}
        return own | self.change.to_json() | {"kind": self.name, "code": self.code}


def change_from_json(
    data: Json, open_policy: Callable[[str], Policy], open_world: Callable[[str], World]
) -> Change:
    """A stored change again. A swapped policy or world is opened by its recorded name.

    Only installed names are looked up: what a file or a module made is read as data, and runs nothing.

    Raises:
        BadChange: its kind is no installed name, or what is stored is not as that kind stores it.
    """
    kind = data.get("kind")
    if kind == Compose.kind:
        return Compose(*(change_from_json(one, open_policy, open_world) for one in data["changes"]))
    if not isinstance(kind, str) or not known("changes", kind):
        raise BadChange(
            f"unknown kind of change {kind!r}",
            hint=f"known: {', '.join(names('changes'))}; what a file made can be read, not made again",
        )
    thing = find("changes", kind)
    try:
        if isinstance(thing, Kind):
            return thing.from_json(data, Openers(open_policy, open_world))
        made = _called(thing, kind, data.get("argument", ""))
    except (KeyError, TypeError, AttributeError) as error:
        raise BadChange(f"this is not as a change {kind!r} is stored: {error!r}") from error
    return _recorded(made, kind, data.get("argument", ""))
