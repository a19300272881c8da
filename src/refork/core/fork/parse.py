"""Changes as the command line and files write them: ``kind:argument``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from refork.core.errors import BadChange
from refork.core.fork.change import (
    Ban,
    Change,
    Compose,
    EditMessage,
    Force,
    Insert,
    Remove,
    Replace,
    Set,
    SwapPolicy,
    SwapWorld,
)
from refork.core.policy.base import Policy
from refork.core.types import Json
from refork.core.world.base import World

GRAMMAR = """\
remove:N             take the last N tokens before the point away
replace:N:TEXT       put TEXT in the place of the last N tokens
insert:TEXT          put TEXT at the point
ban:TEXT             TEXT's tokens may not come next (ban-always:TEXT never)
force:TEXT           make the policy say TEXT first
message:I:TEXT       replace the content of message I, counted from 0
set:NAME=VALUE       sample under another setting (temperature, top_p, ...)
policy:SPEC          let another policy continue
world:SPEC           continue in another world"""


def _number(text: str, change: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadChange(f"{text!r} is not a number", where=change, hint=GRAMMAR) from None


def _setting(argument: str, change: str) -> Set:
    name, sign, value = argument.partition("=")
    if not sign:
        raise BadChange("write set:NAME=VALUE", where=change)
    parsed: float | int | str | None
    if value in ("none", "None"):
        parsed = None
    else:
        try:
            parsed = int(value) if value.lstrip("-").isdigit() else float(value)
        except ValueError:
            parsed = value
    return Set({name: parsed})


def parse_change(
    texts: Sequence[str], open_policy: Callable[[str], Policy], open_world: Callable[[str], World]
) -> Change | None:
    """The change that one or several ``--change`` arguments describe; None for none of them."""
    changes = [_one(text, open_policy, open_world) for text in texts]
    if not changes:
        return None
    return changes[0] if len(changes) == 1 else Compose(*changes)


def _one(text: str, open_policy: Callable[[str], Policy], open_world: Callable[[str], World]) -> Change:
    kind, sign, argument = text.partition(":")
    if sign and argument:
        if kind == "remove":
            return Remove(_number(argument, text))
        if kind in ("replace", "message"):
            number, colon, content = argument.partition(":")
            if colon and kind == "replace":
                return Replace(_number(number, text), text=content)
            if colon:
                return EditMessage(_number(number, text), content)
        simple: dict[str, Callable[[], Change]] = {
            "insert": lambda: Insert(text=argument),
            "ban": lambda: Ban(text=argument),
            "ban-always": lambda: Ban(text=argument, always=True),
            "force": lambda: Force(text=argument),
            "set": lambda: _setting(argument, text),
            "policy": lambda: SwapPolicy(open_policy(argument)),
            "world": lambda: SwapWorld(open_world(argument)),
        }
        if kind in simple:
            return simple[kind]()
    raise BadChange(f"{text!r} is not a change", hint=GRAMMAR)


def change_from_json(
    data: Json, open_policy: Callable[[str], Policy], open_world: Callable[[str], World]
) -> Change:
    """A stored change again. A swapped policy or world is opened by its recorded name."""
    kind = data.get("kind")
    ids = tuple(data["ids"]) if "ids" in data else None
    text = data.get("text")
    builders: dict[str, Callable[[], Change]] = {
        "remove": lambda: Remove(data["tokens"]),
        "replace": lambda: Replace(data["tokens"], ids, text),
        "insert": lambda: Insert(ids, text),
        "ban": lambda: Ban(ids, text, data["always"]),
        "force": lambda: Force(ids, text),
        "message": lambda: EditMessage(data["index"], data["content"]),
        "set": lambda: Set(data["values"]),
        "policy": lambda: SwapPolicy(open_policy(data["name"])),
        "world": lambda: SwapWorld(open_world(data["name"])),
        "compose": lambda: Compose(*(change_from_json(c, open_policy, open_world) for c in data["changes"])),
    }
    if kind not in builders:
        raise BadChange(f"unknown kind of change {kind!r}", hint=f"known: {', '.join(sorted(builders))}")
    return builders[kind]()
