"""The desktop and its tasks: a file manager and an editor with menus, a pure function of state and action.

Screens are accessible elements with their tag, name, value, states and the middle of their box; actions are
pyautogui calls (``pyautogui.click(60, 80)``), which are read and never run, or the same as computer_13
JSON. An open menu or dialog hides what lies behind it; a click beside a menu closes it, beside a dialog
does nothing.

Source: arXiv 2404.07972 for actions and for elements with tag, name, text and position; the apps are ours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, final

from refork.errors import BadInput
from refork.plain import from_json, to_json
from refork.types import Json
from refork.worlds.dice import Dice
from refork.worlds.environment import DomainName
from refork.worlds.game import need
from refork_worlds.screens.actions import desktop_action
from refork_worlds.screens.device import DONE, INVALID, NOT_DONE, Step
from refork_worlds.screens.elements import Element, Event, listing

FOLDERS = ("docs", "work", "pics", "music", "trips", "bills")
FILES = ("plan", "list", "song", "mail", "menu", "poem", "team", "tour")
VERBS = ("buy", "read", "call", "fix", "find", "sell")
THINGS = ("milk", "bread", "book", "lamp", "bike", "keys", "boat", "rent")
TEXTS = tuple(f"{verb} {thing}" for verb in VERBS for thing in THINGS)
ITEMS = ("open", "rename", "delete")
_TYPES = ("CLICK", "DOUBLE_CLICK", "RIGHT_CLICK", "TYPING", "PRESS", "HOTKEY", "WAIT", "SCROLL", "MOVE_TO")
_HALF = (50, 15)


@final
@dataclass(frozen=True, slots=True)
class DesktopState:
    """Folders and files, the window in front, and what is open, chosen and typed in it.

    ``fresh``: the text of the entry or editor is marked, so that typing replaces it. Paths are ``docs/plan``.
    """

    folders: tuple[str, ...]
    files: tuple[tuple[str, str], ...]
    front: str = "desktop"
    windows: tuple[str, ...] = ()
    folder: str = ""
    chosen: str = ""
    menu: str = ""
    dialog: str = ""
    entry: str = ""
    fresh: bool = False
    doc: str = ""
    text: str = ""
    over: str = ""


@final
@dataclass(frozen=True)
class Desktop:
    """The rules of one task; ``wanted`` holds the folders and files as they must be in the end."""

    begin: DesktopState
    wanted: DesktopState
    aim: tuple[str, ...]

    def view(self, state: DesktopState) -> str:
        """The screen: the window in front, then one element a line."""
        about = {"files": state.folder, "editor": named(state.doc)}.get(state.front, "")
        head = f"window {state.front} {about}".rstrip()
        return f"{head}\n{listing(elements(state), numbered=False)}"

    def step(self, state: DesktopState, action: str) -> Step:
        """Act and see; what cannot be read as an action leaves the state alone."""
        said = desktop_action(action)
        kind = "" if said is None else str(said["action_type"])
        if said is None or kind not in (*_TYPES, "DONE", "FAIL"):
            return Step(state, f"{INVALID}\n{self.view(state)}", "not an action", valid=False)
        if kind in ("DONE", "FAIL"):
            left = self.wrong(state)
            met = kind == "DONE" and left == 0
            note = f"{kind} ; " + ("all as wanted" if left == 0 else f"{left} not as wanted")
            return Step(replace(state, over=kind), DONE if met else NOT_DONE, note, done=True, met=met)
        event, what = self._event(state, kind, said)
        after, why = happen(state, event)
        return Step(after, self.view(after), f"{what} ; {why}" if what else why)

    def _event(self, state: DesktopState, kind: str, said: Json) -> tuple[Event, str]:
        """What an action sets off, and at which element."""
        if kind in ("CLICK", "DOUBLE_CLICK", "RIGHT_CLICK"):
            target = hit(state, said.get("x"), said.get("y"))
            if target is None:
                return ("beside",), "nothing there"
            twice = kind == "DOUBLE_CLICK" or said.get("num_clicks", said.get("key")) == 2
            right = kind == "RIGHT_CLICK" or said.get("button") == "right"
            return (target.right if right else target.double if twice else target.click), target.label
        if kind == "TYPING":
            return ("type", str(said.get("text", ""))), ""
        if kind == "PRESS":
            return ("press", str(said.get("key", ""))), ""
        if kind == "HOTKEY":
            keys = said.get("keys")
            return ("hotkey", *map(str, keys if isinstance(keys, list) else [])), ""
        return (), ""

    def wrong(self, state: DesktopState) -> int:
        """Folders and files that are missing, too many or with another text."""
        folders = set(state.folders) ^ set(self.wanted.folders)
        return len(folders) + len(set(state.files) ^ set(self.wanted.files))

    def options(self, state: DesktopState) -> tuple[str, ...]:
        """Every use of every element, and keys."""
        found: list[str] = []
        for one in elements(state):
            found += uses(one)
            if one.typed:
                pool = TEXTS if state.front == "editor" and not state.dialog else (*FILES, *FOLDERS)
                found += [write(text) for text in pool]
        keys = (press("enter"), press("escape"), hotkey("ctrl", "s"), hotkey("ctrl", "a"), "WAIT")
        return (*found, *keys)

    def useful(self, state: DesktopState) -> tuple[str, ...]:
        """What can matter to the first thing that is not as wanted."""
        have, want = dict(state.files), dict(self.wanted.files)
        paths = [p for p in sorted(have.keys() | want.keys()) if have.get(p) != want.get(p)]
        folders = sorted(set(state.folders) ^ set(self.wanted.folders))
        about = {part for path in (*paths, *folders) for part in path.split("/")}
        typed = [want[path] for path in paths if path in want] if state.front == "editor" else []
        typed += sorted(about) if state.dialog in ("rename", "new-folder", "new-file") else []
        found: list[str] = []
        # What is there has to be marked before anything is typed, or the new word is added to it.
        marks = bool(state.entry or state.text) and not state.fresh
        for one in elements(state):
            name = one.fields[0][1]
            if one.typed:
                found += [hotkey("ctrl", "a")] if marks else [write(text) for text in typed]
            elif one.kind not in ("icon", "table-cell"):
                found += uses(one)
            elif name in about or name == "files":
                # Without the plain click, which only chooses: the menu of an element chooses it as well.
                found += uses(replace(one, click=()))
        return tuple(found)

    def hidden(self, state: DesktopState) -> str:
        """Every folder and file with its text."""
        rows = [f"folders : {' '.join(state.folders)}"]
        return "\n".join([*rows, *(f"{named(path)} : {text or 'empty'}" for path, text in state.files)])


def named(path: str) -> str:
    """A path in words: ``plan in docs``."""
    return " in ".join(reversed(path.split("/")))


def click(at: tuple[int, int]) -> str:
    """A click as pyautogui has it."""
    return f"pyautogui.click({at[0]}, {at[1]})"


def write(text: str) -> str:
    """Typing as pyautogui has it."""
    return f'pyautogui.write("{text}")'


def press(key: str) -> str:
    """One key."""
    return f'pyautogui.press("{key}")'


def hotkey(*keys: str) -> str:
    """Keys together."""
    named = ", ".join(f'"{key}"' for key in keys)
    return f"pyautogui.hotkey({named})"


def uses(one: Element) -> list[str]:
    """What can be done to an element."""
    if one.at is None:
        return []
    x, y = one.at
    ways = {"click": one.click, "doubleClick": one.double, "rightClick": one.right}
    return [f"pyautogui.{way}({x}, {y})" for way, event in ways.items() if event]


def hit(state: DesktopState, x: Any, y: Any) -> Element | None:
    """The element whose box holds a point."""
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in (x, y)):
        return None
    for one in elements(state):
        if one.at and abs(one.at[0] - x) <= _HALF[0] and abs(one.at[1] - y) <= _HALF[1]:
            return one
    return None


def _button(name: str, x: int, y: int, *event: str, kind: str = "push-button") -> Element:
    return Element(kind, (("name", name),), (), (x, y), click=event)


def elements(state: DesktopState) -> tuple[Element, ...]:
    """The elements in front, top to bottom."""
    if state.dialog:
        return _dialog(state)
    if state.menu == "file":
        return tuple(
            _button(name, 160, 80 + 40 * row, "item", name, kind="menu-item")
            for row, name in enumerate(("new-folder", "new-file"))
        )
    if state.menu:
        return tuple(
            _button(name, 280, 120 + 40 * row, "item", name, kind="menu-item")
            for row, name in enumerate(ITEMS)
        )
    if state.front == "desktop":
        icon = Element("icon", (("name", "files"),), (), (60, 60), double=("window", "files"))
        return (icon, *_panel(state))
    if state.front == "files":
        return (*_files(state), *_panel(state))
    area = Element(
        "text-area",
        (("name", "text"), ("value", state.text)),
        ("marked",) if state.fresh else (),
        (160, 160),
        click=("unmark",),
        typed=("type",),
    )
    bar = (_button("save", 60, 40, "save"), _button("close", 420, 40, "close"))
    return (*bar, area, *_panel(state))


def _panel(state: DesktopState) -> tuple[Element, ...]:
    """One button for each open window."""
    places = {"files": 60, "editor": 180}
    return tuple(
        _button(name, places[name], 400, "window", name, kind="toggle-button") for name in state.windows
    )


def _files(state: DesktopState) -> tuple[Element, ...]:
    up = (_button("up", 60, 40, "up"),) if state.folder else ()
    cells = []
    for row, name in enumerate(_inside(state)):
        states = ("selected",) if name == state.chosen else ()
        open_ = ("open", name)
        cells.append(
            Element(
                "table-cell",
                (("name", name),),
                states,
                (160, 120 + 40 * row),
                click=("choose", name),
                double=open_,
                right=("context", name),
            )
        )
    menu = _button("file", 160, 40, "menu", "file", kind="menu")
    return (*up, menu, _button("close", 420, 40, "close"), *cells)


def _inside(state: DesktopState) -> list[str]:
    """Names in the open folder."""
    if not state.folder:
        return list(state.folders)
    head = f"{state.folder}/"
    return [path[len(head) :] for path, _ in state.files if path.startswith(head)]


def _dialog(state: DesktopState) -> tuple[Element, ...]:
    if state.dialog == "unsaved":
        names = ("save", "discard", "cancel")
        label = Element("label", (("name", f"save {named(state.doc)}"),), (), (240, 160))
        return (label, *(_button(name, 120 + 120 * n, 220, "answer", name) for n, name in enumerate(names)))
    buttons = (_button("cancel", 160, 220, "answer", "cancel"), _button("ok", 320, 220, "answer", "ok"))
    if state.dialog == "delete":
        return (Element("label", (("name", f"delete {state.chosen}"),), (), (240, 160)), *buttons)
    fields = (("name", state.dialog), ("value", state.entry))
    marked = ("marked",) if state.fresh and state.entry else ()
    return (Element("entry", fields, marked, (240, 160), click=("unmark",), typed=("type",)), *buttons)


def happen(state: DesktopState, event: Event) -> tuple[DesktopState, str]:
    """What an event does to a desktop, and why in words; an empty event does nothing."""
    verb, *rest = event or ("",)
    what = rest[0] if rest else ""
    if verb == "beside" and state.menu:
        return replace(state, menu=""), "closes the menu"
    if verb == "type":
        return _typed(state, what)
    if verb == "press" and state.dialog and what in ("enter", "escape"):
        return _answered(state, {"enter": "ok", "escape": "cancel"}[what])
    if verb == "press" and state.menu and what == "escape":
        return replace(state, menu=""), "closes the menu"
    if verb == "hotkey":
        return _keys(state, tuple(rest))
    if verb == "answer":
        return _answered(state, what)
    if verb == "unmark":
        return replace(state, fresh=False), "no mark"
    if verb in ("window", "close", "save"):
        return _window(state, verb, what)
    if verb in ("up", "choose", "open", "context", "menu", "item"):
        return _manage(state, verb, what)
    return state, "nothing to do"


def _typed(state: DesktopState, text: str) -> tuple[DesktopState, str]:
    """Typing replaces what is marked, else it adds a word."""
    if state.dialog in ("rename", "new-folder", "new-file"):
        entry = text if state.fresh or not state.entry else f"{state.entry} {text}"
        return replace(state, entry=entry, fresh=False), f"entry is {entry or 'empty'}"
    if state.front == "editor" and not state.dialog:
        body = text if state.fresh or not state.text else f"{state.text} {text}"
        return replace(state, text=body, fresh=False), f"text is {body or 'empty'}"
    return state, "nowhere to type"


def _keys(state: DesktopState, keys: tuple[str, ...]) -> tuple[DesktopState, str]:
    """Keys together: all marked, or saved."""
    if keys == ("ctrl", "a") and any(one.typed for one in elements(state)):
        return replace(state, fresh=True), "marks the text"
    if keys == ("ctrl", "s") and state.front == "editor" and not state.dialog:
        return _save(state)
    return state, "nothing to do"


def _save(state: DesktopState) -> tuple[DesktopState, str]:
    files = tuple((path, state.text if path == state.doc else old) for path, old in state.files)
    return replace(state, files=files), f"{named(state.doc)} is {state.text or 'empty'}"


def _window(state: DesktopState, verb: str, what: str) -> tuple[DesktopState, str]:
    if verb == "save":
        return _save(state)
    if verb == "window":
        windows = state.windows if what in state.windows else (*state.windows, what)
        return replace(state, front=what, windows=windows), f"{what} in front"
    if state.front == "editor" and dict(state.files).get(state.doc) != state.text:
        return replace(state, dialog="unsaved"), "not saved"
    return _closed(state)


def _closed(state: DesktopState) -> tuple[DesktopState, str]:
    windows = tuple(name for name in state.windows if name != state.front)
    front = windows[-1] if windows else "desktop"
    after = replace(state, windows=windows, front=front, dialog="", chosen="")
    if state.front == "editor":
        return replace(after, doc="", text="", fresh=False), f"{front} in front"
    return replace(after, folder=""), f"{front} in front"


def _manage(state: DesktopState, verb: str, what: str) -> tuple[DesktopState, str]:
    """Events of the file manager."""
    if verb == "up":
        return replace(state, folder="", chosen=""), "to the top"
    if verb == "choose":
        return replace(state, chosen=what), f"{what} is chosen"
    if verb == "context":
        return replace(state, chosen=what, menu="context"), f"menu of {what}"
    if verb == "menu":
        return replace(state, menu="file", chosen=""), "menu file"
    if verb == "item" and what != "open":
        entry = state.chosen if what == "rename" else ""
        return replace(state, menu="", dialog=what, entry=entry, fresh=True), f"dialog {what}"
    name = what if verb == "open" else state.chosen
    if not state.folder:
        return replace(state, folder=name, chosen="", menu=""), f"opens {name}"
    path = f"{state.folder}/{name}"
    if "editor" in state.windows and dict(state.files).get(state.doc) != state.text:
        return replace(state, front="editor", menu="", dialog="unsaved"), "not saved"
    windows = (*(one for one in state.windows if one != "editor"), "editor")
    text = dict(state.files)[path]
    after = replace(
        state, front="editor", windows=windows, doc=path, text=text, fresh=False, menu="", chosen=name
    )
    return after, f"{named(path)} is {text or 'empty'}"


def _answered(state: DesktopState, what: str) -> tuple[DesktopState, str]:
    """A dialog is left."""
    shut = replace(state, dialog="", entry="", fresh=False)
    if state.dialog == "unsaved":
        if what == "cancel":
            return shut, "stays open"
        return _closed(shut if what == "discard" else _save(shut)[0])
    if what == "cancel":
        return shut, "nothing changes"
    head = f"{state.folder}/" if state.folder else ""
    if state.dialog == "delete":
        return _drop(shut, head + state.chosen)
    name = state.entry
    taken = {*state.folders, *dict(state.files)} if state.folder else set(state.folders)
    if not name or "/" in name or head + name in taken:
        return state, "no such name" if not name or "/" in name else "already there"
    if state.dialog == "rename":
        return _renamed(shut, head + state.chosen, head + name, name)
    if state.dialog == "new-folder" and not state.folder:
        return replace(shut, folders=tuple(sorted((*state.folders, name)))), f"{name} is new"
    if state.dialog == "new-file" and state.folder:
        return replace(
            shut, files=tuple(sorted((*state.files, (head + name, ""))))
        ), f"{named(head + name)} is new"
    return shut, "not here"


def _drop(state: DesktopState, path: str) -> tuple[DesktopState, str]:
    files = tuple(row for row in state.files if row[0] != path and not row[0].startswith(f"{path}/"))
    folders = tuple(name for name in state.folders if name != path)
    return _without_editor(replace(state, files=files, folders=folders, chosen="")), f"{named(path)} is gone"


def _renamed(state: DesktopState, old: str, new: str, name: str) -> tuple[DesktopState, str]:
    def moved(path: str) -> str:
        return new + path[len(old) :] if path == old or path.startswith(f"{old}/") else path

    files = tuple(sorted((moved(path), text) for path, text in state.files))
    folders = tuple(sorted(moved(one) for one in state.folders))
    after = replace(state, files=files, folders=folders, chosen=name)
    return _without_editor(after), f"{named(old)} is now {named(new)}"


def _without_editor(state: DesktopState) -> DesktopState:
    """An editor whose file went away closes."""
    if not state.doc or state.doc in dict(state.files):
        return state
    windows = tuple(name for name in state.windows if name != "editor")
    return replace(state, windows=windows, doc="", text="")


_KEYS: Final = ("kind", "args", "folders", "files")
_FIXED: Final = (
    "window desktop files editor icon name at table-cell selected push-button toggle-button menu "
    "menu-item file new-folder new-file open rename delete entry value marked label save discard cancel "
    "ok text-area text up close : ; empty folders nothing happens there the task is done not as wanted "
    "all to do closes marks no mark in front saved top chosen of opens dialog stays changes already "
    "such here new gone now an action nowhere type DONE FAIL WAIT"
)


@final
class DesktopModel:
    """Draws tasks of the desktop and makes their rules."""

    name = "desktop"
    domain: DomainName = "desktop"
    version = "1"
    horizon = 20
    finish = "DONE"
    actions = "\n".join(
        (
            "pyautogui.click(X, Y)",
            "pyautogui.doubleClick(X, Y)",
            "pyautogui.rightClick(X, Y)",
            write("WORDS"),
            press("enter"),
            hotkey("ctrl", "s"),
            "WAIT",
            "FAIL",
            "DONE",
        )
    )

    def draw(self, dice: Dice) -> Json:
        """Folders with files, and something to do with them."""
        folders = sorted(dice.sample(FOLDERS, 2 + dice.below(2)))
        files = {}
        for folder in folders:
            for name in sorted(dice.sample(FILES, 1 + dice.below(3))):
                files[f"{folder}/{name}"] = dice.choice(TEXTS)
        kind = dice.choice(tuple(_WORDING))
        path = dice.choice(list(files))
        folder = path.split("/")[0]
        free = [name for name in FILES if f"{folder}/{name}" not in files]
        args = {
            "rename": [path, dice.choice(free)],
            "delete": [path],
            "write": [dice.choice([text for text in TEXTS if text != files[path]]), path],
            "new-folder": [dice.choice([name for name in FOLDERS if name not in folders])],
            "new-file": [dice.choice(free), folder],
        }
        return {"folders": folders, "files": files, "kind": kind, "args": args[kind]}

    def prompt(self, data: Json) -> str:
        """The request."""
        need(data, _KEYS, "desktop")
        return _WORDING[data["kind"]].format(*map(named, data["args"]))

    def device(self, data: Json) -> Desktop:
        """The rules of a task."""
        need(data, _KEYS, "desktop")
        try:
            begin = DesktopState(folders=tuple(data["folders"]), files=tuple(data["files"].items()))
            aim = (str(data["kind"]), *map(str, data["args"]))
            return Desktop(begin, _wanted(begin, *aim), aim)
        except (AttributeError, TypeError, KeyError, ValueError) as error:
            raise BadInput(f"not the data of a desktop: {error!r}", where="desktop") from error

    def save(self, state: DesktopState) -> Any:
        """A state as JSON."""
        return to_json(state)

    def load(self, data: Any) -> DesktopState:
        """A state from JSON."""
        return from_json(DesktopState, data, "desktop")

    def words(self) -> tuple[str, ...]:
        """Every word of this desktop."""
        places = sorted({str(n) for n in range(0, 441, 20)} | {str(n) for n in range(16)})
        said = [w for one in _example_actions() for w in one.split(" ")]
        asked = [w for text in _WORDING.values() for w in text.split(" ") if "{" not in w]
        return tuple(sorted({*_FIXED.split(" "), *places, *said, *asked, *FOLDERS, *FILES, *VERBS, *THINGS}))


def _example_actions() -> list[str]:
    """Every action an actor may say, but for combinations of x and y."""
    ways = ("click", "doubleClick", "rightClick")
    found = [f"pyautogui.{way}({n}, {n})" for way in ways for n in range(0, 441, 20)]
    found += [write(text) for text in (*FILES, *FOLDERS, *TEXTS)]
    return [*found, press("enter"), press("escape"), hotkey("ctrl", "s"), hotkey("ctrl", "a")]


_WORDING = {
    "rename": "rename {0} to {1}",
    "delete": "delete {0}",
    "write": "write {0} into {1}",
    "new-folder": "make the folder {0}",
    "new-file": "make the file {0} in {1}",
}


def _wanted(begin: DesktopState, kind: str, *args: str) -> DesktopState:
    """Folders and files as they must be in the end."""
    files = dict(begin.files)
    if kind == "new-folder":
        return replace(begin, folders=tuple(sorted((*begin.folders, args[0]))))
    if kind == "new-file":
        files[f"{args[1]}/{args[0]}"] = ""
    elif kind == "write":
        files[args[1]] = args[0]
    elif kind == "delete":
        del files[args[0]]
    elif kind == "rename":
        files[f"{args[0].split('/')[0]}/{args[1]}"] = files.pop(args[0])
    else:
        raise ValueError(f"no request {kind!r}")
    return replace(begin, files=tuple(sorted(files.items())))
