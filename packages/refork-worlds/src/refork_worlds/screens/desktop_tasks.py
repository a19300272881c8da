"""The tasks of the desktop: its folders and files at first, what is asked, and the words of it all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, final

from refork.errors import BadInput
from refork.plain import from_json, to_json
from refork.types import Json
from refork.worlds.dice import Dice
from refork.worlds.environment import DomainName
from refork.worlds.game import need
from refork_worlds.screens.desktop import (
    FILES,
    FOLDERS,
    TEXTS,
    THINGS,
    VERBS,
    Desktop,
    DesktopState,
    hotkey,
    named,
    press,
    write,
)

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
