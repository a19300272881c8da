"""The functions of the five apps: names, typed parameters, documentation.

The documentation of a shifted version tells the truth about it: what changed is written where the function
is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from refork.types import Json
from refork_testbed.worlds.miniapps.shift import Shift

APPS = ("mail", "pay", "notes", "calendar", "music")
#: Calls after which a token is refused, counted over all apps.
TOKEN_LIFE = 15
PAGE_SIZE = 5

_TYPES = {"s": "string", "i": "integer", "n": "number"}


@dataclass(frozen=True, slots=True)
class Function:
    """One function: ``name`` is "app.function"; ``parameters`` a JSON schema of its keywords."""

    name: str
    parameters: Json
    doc: str
    read_only: bool

    @property
    def app(self) -> str:
        """The app it belongs to."""
        return self.name.partition(".")[0]

    @property
    def signature(self) -> str:
        """``app.function(name: type, name: type = default)``."""
        required = set(self.parameters["required"])
        known: Json = self.parameters["properties"]
        parts = [f"{key}: {one['type']}" for key, one in known.items() if key in required]
        parts += [
            f"{key}: {one['type']} = {one['default']!r}" for key, one in known.items() if key not in required
        ]
        return f"{self.name}({', '.join(parts)})"

    def to_json(self) -> Json:
        """Plain fields, as an OpenAI function schema has them, and whether it only reads."""
        return {
            "name": self.name,
            "description": self.doc,
            "parameters": self.parameters,
            "read_only": self.read_only,
        }


def _function(name: str, parameters: str, doc: str, shift: Shift, *, read_only: bool = False) -> Function:
    """A function from a short form of its parameters: ``user_id:i note:s zone:s=UTC``."""
    properties: Json = {}
    required: list[str] = []
    for part in parameters.split():
        key, _, rest = part.partition(":")
        kind, equals, default = rest.partition("=")
        properties[key] = {"type": _TYPES[kind]}
        if equals:
            properties[key]["default"] = int(default) if kind == "i" else default
        else:
            required.append(key)
    if "page" in properties:
        properties["page"]["default"] = shift.first_page
        doc += f" Lists are paged, {PAGE_SIZE} per page: read every page."
        doc += f" Page numbers start at {shift.first_page}."
    if not name.endswith(".login"):
        properties["access_token"] = {"type": "string"}
        required.append("access_token")
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return Function(name, schema, doc, read_only)


@cache
def catalogue(shift: Shift = Shift()) -> tuple[Function, ...]:  # noqa: B008
    """All functions of a version of the apps, in a fixed order."""
    unit = "cents" if shift.cents else "dollars"
    amounts = f"Amounts are in {unit}, whole numbers."
    playlists = f"Playlists are given by {'id' if shift.ids else 'name'}."
    zone = "Times are UTC unless a zone such as +02:00 is given."
    login = f"Gives an access token, which expires after {TOKEN_LIFE} calls."
    lines: list[tuple[str, str, str, bool]] = [
        (f"{app}.login", "username:s password:s", login, True) for app in APPS
    ]
    lines += [
        ("mail.list_inbox", "page:i=0", "Messages in the inbox, without their text.", True),
        ("mail.search", "query:s page:i=0",
         "Messages, archived ones too, whose sender or subject holds a text.", True),
        ("mail.show", "message_id:i", "A whole message: its text, and the amount where it is a bill.", True),
        ("mail.send", "to:s subject:s body:s",
         "Send a message to an address. It cannot be taken back.", False),
        ("mail.archive", "message_id:i", "Move a message from the inbox to the archive.", False),
        ("pay.find_people", "name:s page:i=0",
         "People whose name holds a text. Several people have similar names: take the exact one.", True),
        ("pay.list_payments", "page:i=0", "Payments sent and received, amounts in dollars.", True),
        ("pay.list_requests", "page:i=0", "Open requests of others for my money, amounts in dollars.", True),
        ("pay.send", "user_id:i amount:n note:s", f"Send money to somebody. {amounts}", False),
        ("pay.request", "user_id:i amount:n note:s", f"Ask somebody for money. {amounts}", False),
        ("pay.approve", "request_id:i", "Approve an open request.", False),
        ("pay.cancel", "payment_id:i", "Take back a payment or a request of one's own.", False),
        ("notes.list_notes", "page:i=0", "Titles of all notes.", True),
        ("notes.show", "note_id:i", "A whole note.", True),
        ("notes.create", "title:s text:s", "A new note.", False),
        ("notes.append", "note_id:i text:s", "Add a line to the end of a note.", False),
        ("notes.replace", "note_id:i text:s", "Replace the whole text of a note.", False),
        ("calendar.list_events", "day:s zone:s=UTC page:i=0", f"Events of a day. {zone}", True),
        ("calendar.create_event", "title:s day:s time:s minutes:i zone:s=UTC", f"A new event. {zone}", False),
        ("calendar.move_event", "event_id:i day:s time:s zone:s=UTC",
         f"Give an event a new begin. {zone}", False),
        ("calendar.delete_event", "event_id:i", "Remove an event.", False),
        ("music.list_library", "page:i=0", "Songs that the user owns.", True),
        ("music.search", "query:s page:i=0",
         "Songs of the whole shop whose title or artist holds a text.", True),
        ("music.list_playlists", "page:i=0", "Playlists of the user.", True),
        ("music.create_playlist", "name:s", "A new empty playlist.", False),
        ("music.add_song", f"playlist:{'i' if shift.ids else 's'} song_id:i",
         f"Add a song to a playlist. {playlists}", False),
        ("music.rate", "song_id:i stars:i", "Give a song 1 to 5 stars.", False),
    ]  # fmt: skip
    found = [_function(name, given, doc, shift, read_only=reads) for name, given, doc, reads in lines]
    return tuple(sorted(found, key=lambda one: APPS.index(one.app)))


def function_named(name: str, shift: Shift) -> Function | None:
    """The function of that name; None where there is none."""
    return _by_name(shift).get(name)


@cache
def _by_name(shift: Shift) -> dict[str, Function]:
    return {one.name: one for one in catalogue(shift)}
