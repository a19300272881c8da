"""What each function does. A handler gets checked arguments and may refuse."""

from __future__ import annotations

from refork.core.world.miniapps.apps import calendar, mail, music, notes, pay
from refork.core.world.miniapps.service import Handler

#: "app.function" -> its handler.
HANDLERS: dict[str, Handler] = {
    **mail.HANDLERS,
    **pay.HANDLERS,
    **notes.HANDLERS,
    **calendar.HANDLERS,
    **music.HANDLERS,
}
