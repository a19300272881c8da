"""The tasks of the phone: what it holds at first, what is asked, and the words of it all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, final

from refork.errors import BadInput
from refork.plain import from_json, to_json
from refork.types import Json
from refork.worlds.dice import Dice
from refork.worlds.environment import DomainName
from refork.worlds.game import need
from refork_worlds.screens.phone import (
    APPS,
    LEVELS,
    NAMES,
    NOTES,
    NUMBERS,
    SWITCHES,
    THINGS,
    TIMES,
    VERBS,
    Phone,
    PhoneState,
    action,
    happen,
    on_off,
)

_KEYS: Final = ("kind", "args", "settings", "volume", "contacts", "notes", "alarms")
_FIXED: Final = (
    "Button EditText ImageButton ListView RadioButton Switch TextView checked clickable editable "
    "scrollable text desc hint app home back new save delete ok cancel name number note contact alarm "
    "volume : , ; empty nothing happens the task is done not opens such no to do on off of row more up "
    "down answered gone already there something all as wanted complete infeasible index an action None "
    "and scroll"
)


@final
class PhoneModel:
    """Draws tasks of the phone and makes their rules."""

    name = "phone"
    domain: DomainName = "phone"
    version = "1"
    horizon = 14
    finish = action("status", goal_status="complete")
    actions = "\n".join(
        (
            action("click", index=0),
            action("input_text", text="WORDS", index=0),
            action("scroll", direction="down"),
            action("open_app", app_name="NAME"),
            action("navigate_back"),
            action("navigate_home"),
            action("wait"),
            action("answer", text="WORDS"),
            finish,
        )
    )

    def draw(self, dice: Dice) -> Json:
        """A filled phone and something to do on it."""
        names = sorted(dice.sample(NAMES, 3 + dice.below(4)))
        numbers = dice.sample(NUMBERS, len(names))
        settings = {name: dice.below(2) == 1 for name in SWITCHES}
        if settings["airplane"]:
            settings |= {"wifi": False, "bluetooth": False}
        times = sorted(dice.sample(TIMES, 1 + dice.below(3)), key=TIMES.index)
        data: Json = {
            "settings": settings,
            "volume": dice.choice(LEVELS),
            "contacts": dict(zip(names, numbers, strict=True)),
            "notes": dice.sample(NOTES, 1 + dice.below(4)),
            "alarms": {time: dice.below(2) == 1 for time in times},
        }
        kind = dice.choice(tuple(_WORDING))
        return data | {"kind": kind, "args": _arguments(kind, data, dice)}

    def prompt(self, data: Json) -> str:
        """The request."""
        need(data, _KEYS, "phone")
        return _WORDING[data["kind"]].format(*data["args"])

    def device(self, data: Json) -> Phone:
        """The rules of a task."""
        need(data, _KEYS, "phone")
        try:
            begin = PhoneState(
                settings=tuple((str(k), bool(v)) for k, v in data["settings"].items()),
                volume=str(data["volume"]),
                contacts=tuple(data["contacts"].items()),
                notes=tuple(data["notes"]),
                alarms=tuple(data["alarms"].items()),
            )
            args = [str(one) for one in data["args"]]
            reply = args[1] if data["kind"] == "ask" else ""
            return Phone(begin, _wanted(begin, data["kind"], args), reply)
        except (AttributeError, TypeError, IndexError, ValueError) as error:
            raise BadInput(f"not the data of a phone: {error}", where="phone") from error

    def save(self, state: PhoneState) -> Any:
        """A state as JSON."""
        return to_json(state)

    def load(self, data: Any) -> PhoneState:
        """A state from JSON."""
        return from_json(PhoneState, data, "phone")

    def words(self) -> tuple[str, ...]:
        """Every word of this phone."""
        said = [w for one in _example_actions() for w in one.split(" ")]
        asked = [w for text in _WORDING.values() for w in text.split(" ") if "{" not in w]
        numbers = [str(n) for n in range(24)]
        pools = (APPS, SWITCHES, LEVELS, NAMES, NUMBERS, VERBS, THINGS, TIMES)
        many = [*_FIXED.split(" "), *said, *asked, *numbers, *(w for pool in pools for w in pool)]
        return tuple(sorted(set(many)))


def _example_actions() -> list[str]:
    """Every action an actor may say, but for combinations of index and text."""
    found = [action("click", index=n) for n in range(12)]
    found += [action("input_text", text=t, index=n) for t in (*NAMES, *NUMBERS, *NOTES) for n in range(4)]
    found += [action("open_app", app_name=name) for name in APPS]
    found += [action("scroll", direction=way) for way in ("up", "down")]
    found += [action("answer", text=number) for number in NUMBERS]
    found += [action("click", index=99), action("navigate_back"), action("navigate_home"), action("wait")]
    return [*found, PhoneModel.finish, action("status", goal_status="infeasible")]


_WORDING = {
    "switch": "turn {0} {1}",
    "volume": "set the volume to {0}",
    "add-contact": "add the contact {0} with the number {1}",
    "delete-contact": "delete the contact {0}",
    "add-note": "add the note {0}",
    "delete-note": "delete the note {0}",
    "alarm": "turn the alarm {0} {1}",
    "add-alarm": "add an alarm at {0}",
    "ask": "what is the number of {0}",
}


def _arguments(kind: str, data: Json, dice: Dice) -> list[str]:
    """What a request is about; it is never done from the start."""
    if kind == "switch":
        choice = ("dark", "airplane") if data["settings"]["airplane"] else SWITCHES
        name = dice.choice(choice)
        return [name, on_off(not data["settings"][name])]
    if kind == "volume":
        return [dice.choice([one for one in LEVELS if one != data["volume"]])]
    if kind == "add-contact":
        free = [one for one in NAMES if one not in data["contacts"]]
        unused = [one for one in NUMBERS if one not in data["contacts"].values()]
        return [dice.choice(free), dice.choice(unused)]
    if kind in ("delete-contact", "ask"):
        name = dice.choice(list(data["contacts"]))
        return [name] if kind == "delete-contact" else [name, data["contacts"][name]]
    if kind == "add-note":
        return [dice.choice([one for one in NOTES if one not in data["notes"]])]
    if kind == "delete-note":
        return [dice.choice(data["notes"])]
    if kind == "alarm":
        time = dice.choice(list(data["alarms"]))
        return [time, on_off(not data["alarms"][time])]
    return [dice.choice([one for one in TIMES if one not in data["alarms"]])]


def _wanted(begin: PhoneState, kind: str, args: list[str]) -> PhoneState:
    """The phone as it must be in the end."""
    if kind == "switch":
        after, _ = happen(replace(begin, view="settings"), ("toggle", args[0]))
        return after
    if kind == "volume":
        return replace(begin, volume=args[0])
    if kind == "add-contact":
        return replace(begin, contacts=(*begin.contacts, (args[0], args[1])))
    if kind == "delete-contact":
        return replace(begin, contacts=tuple(row for row in begin.contacts if row[0] != args[0]))
    if kind == "add-note":
        return replace(begin, notes=(*begin.notes, args[0]))
    if kind == "delete-note":
        return replace(begin, notes=tuple(text for text in begin.notes if text != args[0]))
    if kind == "alarm":
        return happen(replace(begin, view="clock"), ("toggle", args[0]))[0]
    if kind == "add-alarm":
        return replace(begin, alarms=(*begin.alarms, (args[0], True)))
    if kind == "ask":
        return begin
    raise ValueError(f"no request {kind!r}")
