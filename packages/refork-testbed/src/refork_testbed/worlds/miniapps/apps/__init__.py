"""What each function does. A handler gets checked arguments and may refuse."""

from __future__ import annotations

from refork_testbed.worlds.miniapps.apps import calendar, mail, music, notes, pay
from refork_testbed.worlds.miniapps.service import Handler

#: "app.function" -> its handler.
HANDLERS: dict[str, Handler] = {
    **mail.HANDLERS,
    **pay.HANDLERS,
    **notes.HANDLERS,
    **calendar.HANDLERS,
    **music.HANDLERS,
}
