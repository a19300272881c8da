"""What each function does, by its name in its app's module. It gets checked arguments and may refuse."""

from __future__ import annotations

from types import ModuleType

from refork_testbed.worlds.miniapps.apps import calendar, mail, music, notes, pay
from refork_testbed.worlds.miniapps.catalogue import catalogue
from refork_testbed.worlds.miniapps.service import Handler

_APPS: dict[str, ModuleType] = {
    "mail": mail,
    "pay": pay,
    "notes": notes,
    "calendar": calendar,
    "music": music,
}
#: "app.function" -> its handler; logging in is the service's own.
HANDLERS: dict[str, Handler] = {
    one.name: getattr(_APPS[one.app], one.name.partition(".")[2])
    for one in catalogue()
    if not one.name.endswith(".login")
}
