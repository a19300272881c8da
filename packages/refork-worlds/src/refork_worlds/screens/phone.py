"""The phone and its tasks: settings, contacts, notes and a clock, as a pure function of state and action.

Screens are lists of views with an index, actions AndroidWorld's JSON (``{"action_type": "click", "index":
3}``). A list shows four rows at a time; airplane mode switches wifi and bluetooth off; deleting asks first.

Source: arXiv 2405.14573 for actions and for views with text, description and states; the apps are ours.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, Final, final

from refork.errors import BadInput
from refork.plain import from_json, to_json
from refork.types import Json
from refork.worlds.dice import Dice
from refork.worlds.environment import DomainName
from refork.worlds.game import need
from refork_worlds.screens.actions import phone_action
from refork_worlds.screens.device import DONE, INVALID, NOT_DONE, Step
from refork_worlds.screens.elements import Element, Event, listing

APPS = ("settings", "contacts", "notes", "clock")
SWITCHES = ("wifi", "bluetooth", "airplane", "dark")
LEVELS = ("low", "medium", "high")
NAMES = ("ann", "bob", "cat", "dan", "eve", "fay", "gil", "hal", "ida", "jon", "kim", "lea")
NUMBERS = ("117", "208", "324", "431", "556", "642", "719", "835", "903", "164", "275", "386")
VERBS = ("buy", "read", "call", "fix", "find", "sell")
THINGS = ("milk", "bread", "book", "lamp", "bike", "keys", "boat", "rent")
TIMES = ("5:00", "6:00", "7:00", "8:00", "9:00", "21:00")
NOTES = tuple(f"{verb} {thing}" for verb in VERBS for thing in THINGS)
ROWS = 4
FIELDS = {"contact": ("name", "number"), "note": ("note",)}
_PARENT = {"volume": "settings", "contact": "contacts", "note": "notes", "alarm": "clock"}
_LIST = {"contact": "contacts", "note": "notes", "alarm": "clock"}


@final
@dataclass(frozen=True, slots=True)
class PhoneState:
    """All that a phone holds, the open view, what is typed in its form, and what was answered."""

    settings: tuple[tuple[str, bool], ...]
    volume: str
    contacts: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    alarms: tuple[tuple[str, bool], ...]
    view: str = "home"
    about: str = ""
    top: int = 0
    form: tuple[str, ...] = ()
    answer: str = ""
    over: str = ""

    @property
    def lasting_state(self) -> dict[str, set[tuple[str, ...]]]:
        """What lasts, by collection, as sets of rows."""
        return {
            "settings": {(name, on_off(on)) for name, on in self.settings} | {("volume", self.volume)},
            "contacts": set(self.contacts),
            "notes": {(text,) for text in self.notes},
            "clock": {(time, on_off(on)) for time, on in self.alarms},
        }


def on_off(flag: bool) -> str:
    """A switch in words."""
    return "on" if flag else "off"


def action(kind: str, **rest: Any) -> str:
    """An action as AndroidWorld writes it."""
    return json.dumps({"action_type": kind, **rest})


@final
@dataclass(frozen=True)
class Phone:
    """The rules of one task; ``wanted`` is what the phone must hold, ``reply`` what must be answered."""

    begin: PhoneState
    wanted: PhoneState
    reply: str = ""

    def view(self, state: PhoneState) -> str:
        """The screen: the app, then one view a line."""
        head = f"app {state.view}" if not state.about else f"app {state.view} {state.about}"
        return f"{head}\n{listing(elements(state), numbered=True)}"

    def step(self, state: PhoneState, action: str) -> Step:
        """Act and see; what cannot be read as an action leaves the state alone."""
        said = phone_action(action)
        if said is None:
            return self._invalid(state, "not an action")
        kind = said["action_type"]
        if kind == "status":
            return self._end(state, str(said.get("goal_status")))
        if kind in ("click", "long_press", "double_tap", "input_text"):
            found = elements(state)
            index = said.get("index")
            if index is None or not 0 <= index < len(found):
                return self._invalid(state, f"no index {index}")
            target = found[index]
            event = target.click
            if kind == "input_text":
                event = (*target.typed, str(said.get("text", ""))) if target.typed else ()
            after, why = happen(state, event)
            return Step(after, self.view(after), f"{index} is {target.label} ; {why}")
        event = {
            "navigate_back": ("back",),
            "navigate_home": ("home",),
            "open_app": ("app", str(said.get("app_name", "")).lower()),
            "scroll": ("scroll", str(said.get("direction"))),
            # A finger that goes up moves the list down.
            "swipe": ("scroll", {"up": "down", "down": "up"}.get(str(said.get("direction")), "")),
            "answer": ("answer", str(said.get("text", ""))),
        }.get(kind, ())
        after, why = happen(state, event)
        return Step(after, self.view(after), why)

    def _invalid(self, state: PhoneState, why: str) -> Step:
        return Step(state, f"{INVALID}\n{self.view(state)}", why, valid=False)

    def _end(self, state: PhoneState, status: str) -> Step:
        left = self.wrong(state)
        met = status == "complete" and left == 0
        note = "all as wanted" if left == 0 else f"{left} not as wanted"
        over = replace(state, over=status)
        return Step(over, DONE if met else NOT_DONE, f"{status} ; {note}", done=True, met=met)

    def wrong(self, state: PhoneState) -> int:
        """Rows that are missing or too many, and an answer that is not the wanted one."""
        here, there = state.lasting_state, self.wanted.lasting_state
        return sum(len(here[key] ^ there[key]) for key in here) + (state.answer != self.reply)

    def options(self, state: PhoneState) -> tuple[str, ...]:
        """Every use of every view, and every way through the phone."""
        found: list[str] = []
        for index, one in enumerate(elements(state)):
            found.append(action("click", index=index))
            if one.typed:
                pool = {"name": NAMES, "number": NUMBERS, "note": NOTES}[one.typed[1]]
                found += [action("input_text", text=text, index=index) for text in pool]
        found += [action("open_app", app_name=name) for name in APPS]
        found += [action("scroll", direction=way) for way in ("down", "up")]
        return (*found, action("navigate_back"), action("navigate_home"), action("wait"))

    def useful(self, state: PhoneState) -> tuple[str, ...]:
        """What can matter to the first thing that is not as wanted."""
        here, there = state.lasting_state, self.wanted.lasting_state
        odd = [(key, row) for key in here for row in sorted(here[key] ^ there[key])]
        if not odd:
            return self._asking(state)
        app, row = odd[0]
        found: list[str] = []
        for index, one in enumerate(elements(state)):
            if one.typed and row in there[app] and _LIST[state.view] == app:
                text = row[FIELDS[state.view].index(one.typed[1])]
                found.append(action("input_text", text=text, index=index))
            elif one.click and _matters(one.click, app, row):
                found.append(action("click", index=index))
        found.append(action("scroll", direction="down"))
        return (*found, action("open_app", app_name=app), action("navigate_back"))

    def _asking(self, state: PhoneState) -> tuple[str, ...]:
        """The way to an answer leads over the screen that shows it."""
        if state.view == "contact" and self.reply in [n for a, n in state.contacts if a == state.about]:
            return (action("answer", text=self.reply),)
        who = next(name for name, number in state.contacts if number == self.reply)
        found = [i for i, one in enumerate(elements(state)) if one.click == ("open", "contact", who)]
        clicks = [action("click", index=index) for index in found]
        return (*clicks, action("scroll", direction="down"), action("open_app", app_name="contacts"))

    def hidden(self, state: PhoneState) -> str:
        """Everything the phone holds, a line for each app."""
        rows = {key: sorted(value) for key, value in state.lasting_state.items()}
        order: dict[str, list[tuple[str, ...]]] = {
            "settings": [row for name in (*SWITCHES, "volume") for row in rows["settings"] if row[0] == name],
            "contacts": [*state.contacts],
            "notes": [(text,) for text in state.notes],
            "clock": [(time, on_off(on)) for time, on in state.alarms],
        }
        return "\n".join(
            f"{app} : " + (" , ".join(" ".join(row) for row in order[app]) or "empty") for app in APPS
        )


def _matters(event: Event, app: str, row: tuple[str, ...]) -> bool:
    """Whether a click has to do with a row of an app."""
    if event[0] in ("save", "yes", "delete", "new"):
        return True
    return row[0] in event or event in (("open", "volume", ""), ("app", app)) or event[:1] == ("level",)


def _view(
    kind: str, text: str, *states: str, click: Event = (), typed: Event = (), hint: str = ""
) -> Element:
    field = "desc" if kind == "ImageButton" else "text"
    return Element(kind, ((field, text), ("hint", hint)), states, click=click, typed=typed)


def _button(text: str, *event: str) -> Element:
    return _view("Button", text, "clickable", click=event)


def _switch(text: str, on: bool) -> Element:
    states = ("clickable", "checked") if on else ("clickable",)
    return _view("Switch", text, *states, click=("toggle", text))


def elements(state: PhoneState) -> tuple[Element, ...]:
    """The views of a screen, in the order of their indices."""
    view, about = state.view, state.about
    if view == "home":
        return tuple(_view("TextView", name, "clickable", click=("app", name)) for name in APPS)
    back = _view("ImageButton", "back", "clickable", click=("back",))
    if view == "settings":
        rows = [_switch(name, on) for name, on in state.settings]
        return (
            back,
            *rows,
            _view("TextView", f"volume {state.volume}", "clickable", click=("open", "volume", "")),
        )
    if view == "volume":
        return (back, *(_level(name, state.volume) for name in LEVELS))
    if view == "delete":
        return (_view("TextView", f"delete {about}"), _button("cancel", "back"), _button("ok", "yes"))
    if view in FIELDS and not about:
        boxes = [
            _view("EditText", text, "editable", typed=("type", name), hint=name)
            for name, text in zip(FIELDS[view], state.form, strict=True)
        ]
        return (back, *boxes, _button("save", "save"))
    if view == "contact":
        number = dict(state.contacts)[about]
        return (back, _view("TextView", about), _view("TextView", number), _button("delete", "delete"))
    if view == "note":
        return (back, _view("TextView", about), _button("delete", "delete"))
    if view == "alarm":
        taken = {time for time, _ in state.alarms}
        return (back, *(_button(time, "time", time) for time in TIMES if time not in taken))
    rows = _rows(state)
    shown = rows[state.top : state.top + ROWS]
    more = (Element("ListView", (), ("scrollable",)),) if len(rows) > ROWS else ()
    return (back, *shown, *more, _view("ImageButton", "new", "clickable", click=("new",)))


def _level(name: str, now: str) -> Element:
    states = ("clickable", "checked") if name == now else ("clickable",)
    return _view("RadioButton", name, *states, click=("level", name))


def _rows(state: PhoneState) -> list[Element]:
    """The rows of the open list."""
    if state.view == "contacts":
        names = [name for name, _ in state.contacts]
        return [_view("TextView", name, "clickable", click=("open", "contact", name)) for name in names]
    if state.view == "notes":
        return [_view("TextView", text, "clickable", click=("open", "note", text)) for text in state.notes]
    return [_switch(time, on) for time, on in state.alarms]


def happen(state: PhoneState, event: Event) -> tuple[PhoneState, str]:
    """What an event does to a phone, and why in words; an empty event does nothing."""
    verb = event[0] if event else ""
    if verb == "app":
        if event[1] not in APPS:
            return state, "no such app"
        return _go(state, event[1])
    if verb == "home":
        return _go(state, "home")
    if verb == "back":
        return _back(state)
    if verb == "open":
        return _go(state, event[1], event[2])
    if verb == "scroll":
        return _scroll(state, event[1])
    if verb == "answer":
        return replace(state, answer=event[1]), f"answered {event[1]}"
    if verb in ("toggle", "level", "time", "type"):
        return _set(state, *event)
    if verb in ("new", "save", "delete", "yes"):
        return _store(state, verb)
    return state, "nothing to do"


def _go(state: PhoneState, view: str, about: str = "") -> tuple[PhoneState, str]:
    form = ("",) * len(FIELDS[view]) if view in FIELDS and not about else ()
    return replace(state, view=view, about=about, top=0, form=form), f"opens {view} {about}".rstrip()


def _back(state: PhoneState) -> tuple[PhoneState, str]:
    if state.view == "delete":
        return _go(state, "contact" if state.about in dict(state.contacts) else "note", state.about)
    return _go(state, _PARENT.get(state.view, "home"))


def _scroll(state: PhoneState, way: str) -> tuple[PhoneState, str]:
    if state.view not in _LIST.values() or way not in ("up", "down"):
        return state, "nothing to scroll"
    count = len(_rows(state))
    top = state.top + (ROWS if way == "down" else -ROWS)
    if not 0 <= top < count:
        return state, f"row {state.top + 1} of {count} ; no more {way}"
    return replace(state, top=top), f"row {top + 1} of {count}"


def _set(state: PhoneState, verb: str, what: str, text: str = "") -> tuple[PhoneState, str]:
    if verb == "type":
        names = FIELDS[state.view]
        form = tuple(text if name == what else old for name, old in zip(names, state.form, strict=True))
        return replace(state, form=form), f"{what} is {text}"
    if verb == "level":
        return _go(replace(state, volume=what), "settings")[0], f"volume {state.volume} to {what}"
    if verb == "time":
        alarms = tuple(sorted((*state.alarms, (what, True)), key=lambda one: TIMES.index(one[0])))
        return _go(replace(state, alarms=alarms), "clock")[0], f"alarm {what} is new"
    rows = state.settings if state.view == "settings" else state.alarms
    on = not dict(rows)[what]
    after = tuple((name, on if name == what else old) for name, old in rows)
    why = f"{what} {on_off(not on)} to {on_off(on)}"
    if state.view != "settings":
        return replace(state, alarms=after), why
    if what == "airplane" and on:
        after = tuple((name, old and name not in ("wifi", "bluetooth")) for name, old in after)
        why += " ; wifi and bluetooth off"
    return replace(state, settings=after), why


def _store(state: PhoneState, verb: str) -> tuple[PhoneState, str]:
    if verb == "new":
        return _go(state, {"contacts": "contact", "notes": "note", "clock": "alarm"}[state.view])
    if verb == "delete":
        return _go(state, "delete", state.about)
    if verb == "yes":
        gone = state.about
        contacts = tuple(row for row in state.contacts if row[0] != gone)
        notes = tuple(text for text in state.notes if text != gone)
        back = "contacts" if len(contacts) < len(state.contacts) else "notes"
        return _go(replace(state, contacts=contacts, notes=notes), back)[0], f"{gone} is gone"
    known = {name for name, _ in state.contacts} | set(state.notes)
    if not all(state.form) or state.form[0] in known:
        return state, "already there" if state.form[0] in known else "something is empty"
    if state.view == "contact":
        contacts = tuple(sorted((*state.contacts, (state.form[0], state.form[1]))))
        return _go(replace(state, contacts=contacts), "contacts")[0], f"{state.form[0]} is new"
    return _go(replace(state, notes=(*state.notes, state.form[0])), "notes")[0], f"{state.form[0]} is new"


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
