"""What the scripted agent can do with the apps, slips and recovery included.

Every skill is a generator: it yields calls, gets answers, and returns what it found. It sees nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar, final

from refork.types import Json
from refork_testbed.worlds.miniapps.apps.calendar import HOME_ZONE
from refork_testbed.worlds.miniapps.mind import Mind
from refork_testbed.worlds.miniapps.population import TODAY
from refork_testbed.worlds.miniapps.service import PASSWORDS, USERNAME, is_refused
from refork_testbed.worlds.miniapps.templates import Slots

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call:
    """A turn: one call of a function, or of a tool."""

    name: str
    arguments: Json = field(default_factory=dict)
    tool: bool = False


#: Yields calls, gets answers, returns what it found.
Skill: TypeAlias = Generator[Call, Json, T]

_LOOKS: dict[str, tuple[str, Json]] = {
    "mail": ("mail.list_inbox", {}),
    "pay": ("pay.list_payments", {}),
    "notes": ("notes.list_notes", {}),
    "calendar": ("calendar.list_events", {"day": TODAY.isoformat()}),
    "music": ("music.list_playlists", {}),
}


class ToolFailed(Exception):
    """A procedure that runs as code met an answer that it was not written for."""


@final
class Hand:
    """Calls with the tokens at hand. ``code``: a program, which stops at what it was not written for."""

    def __init__(self, mind: Mind, *, code: bool = False) -> None:
        self.mind = mind
        self.code = code
        self._tokens: dict[str, str] = {}

    def call(self, function: str, /, **arguments: Any) -> Skill[Json]:
        """The answer to a call, logged in before and again where the token had expired."""
        app = function.partition(".")[0]
        if app not in self._tokens:
            yield from self._log_in(app)
            while self.mind.wanders():
                name, given = _LOOKS[app]
                yield Call(name, {**given, "access_token": self._tokens[app]})
        for _ in range(2):
            seen = yield Call(function, {**arguments, "access_token": self._tokens[app]})
            if self.code and is_refused(seen):
                raise ToolFailed(f"{function}: {seen['message']}")
            # 401: the token has expired. A new one mends nothing else.
            if not is_refused(seen) or seen["status_code"] != 401:
                break
            yield from self._log_in(app)
        return seen

    def _log_in(self, app: str) -> Skill[None]:
        seen = yield Call(f"{app}.login", {"username": USERNAME, "password": PASSWORDS[app]})
        self._tokens[app] = str(seen.get("access_token", ""))

    def every(self, function: str, /, **arguments: Any) -> Skill[list[Json]]:
        """All entries of a list, or those of its first pages where the others are forgotten."""
        return (yield from self._pages(function, arguments, None))

    def find(self, function: str, fits: Callable[[Json], bool], /, **arguments: Any) -> Skill[Json | None]:
        """The first entry that fits; whoever looks for one reads on until it is there."""
        items = yield from self._pages(function, arguments, fits)
        found = next((item for item in items if fits(item)), None)
        if found is None and self.code:
            raise ToolFailed(f"{function}: no entry fits")
        return found

    def _pages(
        self, function: str, arguments: Mapping[str, Any], fits: Callable[[Json], bool] | None
    ) -> Skill[list[Json]]:
        first = page = int(self.mind.holds("first-page"))
        items: list[Json] = []
        while True:
            seen = yield from self.call(function, **arguments, page=page)
            if is_refused(seen):
                return items
            items += seen["items"]
            if (fits and any(fits(item) for item in seen["items"])) or page >= seen["last_page"]:
                break
            if not seen["items"]:
                if self.code:  # a loop until an empty page ends here
                    break
                self.mind.learn("first-page", str(page + 1))
            if fits is None and self.mind.holds("paging") == "one":
                if not self.mind.notices():  # the answer names a later page
                    break
                self.mind.learn("paging", "all")
            page += 1
        # Who believes that pages begin at 1 has missed page 0; a program never finds that out.
        missed = first > 0 and not self.code and (fits is None or not any(fits(item) for item in items))
        if missed and items and (fits is not None or self.mind.notices()):
            seen = yield from self.call(function, **arguments, page=0)
            if not is_refused(seen) and seen["items"]:
                self.mind.learn("first-page", "0")
                items = [*seen["items"], *items]
        return items

    def person(self, name: str) -> Skill[int | None]:
        """The user id of a name; a careless look takes the first one found."""
        careless = self.mind.holds("person") == "first"
        found = yield from self.find("pay.find_people", lambda p: careless or p["name"] == name, name=name)
        return None if found is None else int(found["user_id"])

    def pay(self, kind: str, name: str, amount: int, note: str, user: int | None = None) -> Skill[None]:
        """Send or request money, look at the answer, and take it back and do it again where that is wrong."""
        purpose = "pay" if kind == "sent" else "ask-money"
        for _ in range(3):
            function = self.mind.holds(purpose)
            given: Any = user
            if given is None and not self.code and self.mind.holds("id") == "name":
                given = name
            elif given is None:
                given = yield from self.person(name)
            if given is None:
                return
            value = amount * (100 if self.mind.holds("unit") == "cents" else 1)
            seen = yield from self.call(function, user_id=given, amount=value, note=note)
            if is_refused(seen):
                self.mind.learn("id", "number")
                continue
            wrong = self._wrong(seen, purpose, kind, name, amount)
            if not wrong or not self.mind.notices():
                return
            for topic, right in wrong.items():
                self.mind.learn(topic, right)
            yield from self.call("pay.cancel", payment_id=seen["payment_id"])
            # A wrong person's id must not be paid again: it is looked up anew.
            user = None if "person" in wrong else user

    def _wrong(self, seen: Json, purpose: str, kind: str, name: str, amount: int) -> dict[str, str]:
        """What the answer to a payment shows to be wrong, and what is right instead."""
        wrong: dict[str, str] = {}
        if seen["kind"] != kind:
            wrong[purpose] = "pay.send" if kind == "sent" else "pay.request"
        if seen["name"] != name:
            wrong["person"] = "exact"
        if seen["amount_shown"] != f"${amount:.2f}":
            wrong["unit"] = "cents" if float(seen["amount_shown"][1:]) < amount else "dollars"
        return wrong

    def message(self, person: str, subject: str) -> Skill[Json | None]:
        """The head of a message; where the inbox has it not, the search has."""
        fits = _fits(sender=person, subject=subject)
        found = None
        if self.mind.holds("find-message") == "mail.list_inbox":
            found = yield from self.find("mail.list_inbox", fits)
        if found is None:
            found = yield from self.find("mail.search", fits, query=subject)
        return found

    def song(self, title: str, artist: str) -> Skill[Json | None]:
        """A song; where the library has it not, the shop has."""
        fits = _fits(title=title, artist=artist)
        found = None
        if self.mind.holds("find-song") == "music.list_library":
            found = yield from self.find("music.list_library", fits)
        if found is None:
            found = yield from self.find("music.search", fits, query=title)
        return found

    def own_songs(self, artist: str) -> Skill[list[Json]]:
        """Songs of an artist: of the library, or carelessly of the whole shop."""
        if self.mind.holds("own-songs") == "music.list_library":
            songs = yield from self.every("music.list_library")
        else:
            songs = yield from self.every("music.search", query=artist)
        return [song for song in songs if song["artist"] == artist]

    def zone(self, *, named: bool) -> Json:
        """The zone argument of a calendar call; none where it is left out."""
        return {"zone": HOME_ZONE} if named else {}

    def put_event(self, day: str, time: str, function: str, **arguments: Any) -> Skill[None]:
        """Create or move an event; where the answer shows another time, move it."""
        named = self.mind.holds("zone") == "named"
        seen = yield from self.call(function, **arguments, day=day, time=time, **self.zone(named=named))
        if is_refused(seen) or seen["shown_at_home"] == f"{day} {time}" or not self.mind.notices():
            return
        self.mind.learn("zone", "named")
        again = {"event_id": seen["event_id"], "day": day, "time": time}
        yield from self.call("calendar.move_event", **again, **self.zone(named=True))

    def event(self, title: str, day: str) -> Skill[Json | None]:
        """An event of a day; where the day of UTC has it not, the day at home has."""
        fits = _fits(title=title)
        if self.mind.holds("zone") == "omitted":
            found = yield from self.find("calendar.list_events", fits, day=day)
            if found is not None and not self.mind.notices():
                return found
            self.mind.learn("zone", "named")
        return (yield from self.find("calendar.list_events", fits, day=day, **self.zone(named=True)))

    def put_song(self, playlist: str, song: int, number: int | None = None) -> Skill[None]:
        """Add a song; where the playlist is refused, it is given the other way."""
        for _ in range(2):
            key: Any = playlist
            if self.mind.holds("playlist") == "id":
                if number is None:
                    found = yield from self.find("music.list_playlists", _fits(name=playlist))
                    number = None if found is None else int(found["playlist_id"])
                key = number
            seen = yield from self.call("music.add_song", playlist=key, song_id=song)
            if not is_refused(seen) or seen["status_code"] not in (404, 422):
                return
            self.mind.learn("playlist", "name" if isinstance(key, int) else "id")


def _fits(**wanted: Any) -> Callable[[Json], bool]:
    return lambda item: all(item.get(key) == value for key, value in wanted.items())


#: Does a request with its slots; returns the answer where one is asked.
Script: TypeAlias = Callable[[Hand, Slots], Skill[str | None]]


def pay_person(hand: Hand, slots: Slots) -> Skill[None]:
    """Look the person up, send."""
    yield from hand.pay("sent", slots["person"], int(slots["amount"]), slots["note"])


def request_person(hand: Hand, slots: Slots) -> Skill[None]:
    """Look the person up, request."""
    yield from hand.pay("requested", slots["person"], int(slots["amount"]), slots["note"])


def pay_bill(hand: Hand, slots: Slots) -> Skill[None]:
    """Find the message, read the amount, send."""
    head = yield from hand.message(slots["person"], slots["subject"])
    if head is not None:
        whole = yield from hand.call("mail.show", message_id=head["message_id"])
        if whole.get("amount") is not None:
            yield from hand.pay("sent", slots["person"], int(whole["amount"]), slots["subject"])


def approve_requests(hand: Hand, slots: Slots) -> Skill[None]:
    """Read the requests, approve those of the person."""
    items = yield from hand.every("pay.list_requests")
    for item in items:
        if item["name"] == slots["person"]:
            yield from hand.call("pay.approve", request_id=item["request_id"])


def return_payment(hand: Hand, slots: Slots) -> Skill[str | None]:
    """Find the payment that was received, send as much."""
    name, note = slots["person"], slots["note"]
    found = yield from hand.find(
        "pay.list_payments", lambda p: (p["kind"], p["name"], p["note"]) == ("received", name, note)
    )
    if found is not None:
        yield from hand.pay("sent", name, int(found["amount"]), note, int(found["user_id"]))
    return None


def ask_payment(hand: Hand, slots: Slots) -> Skill[str | None]:
    """Find the payment, tell its amount."""
    name, note = slots["person"], slots["note"]
    found = yield from hand.find(
        "pay.list_payments", lambda p: (p["kind"], p["name"], p["note"]) == ("sent", name, note)
    )
    return None if found is None else str(found["amount"])


def _archive(hand: Hand, field: str, value: str) -> Skill[None]:
    if hand.mind.holds("clear-inbox") == "mail.list_inbox":
        items = yield from hand.every("mail.list_inbox")
    else:
        items = yield from hand.every("mail.search", query=value)
    for item in items:
        if item[field] == value:
            yield from hand.call("mail.archive", message_id=item["message_id"])


def archive_sender(hand: Hand, slots: Slots) -> Skill[None]:
    """Read the inbox, archive what is from the person."""
    yield from _archive(hand, "sender", slots["person"])


def archive_subject(hand: Hand, slots: Slots) -> Skill[None]:
    """Read the inbox, archive what has the subject."""
    yield from _archive(hand, "subject", slots["subject"])


def reply(hand: Hand, slots: Slots) -> Skill[None]:
    """Find the message, write to its sender."""
    head = yield from hand.message(slots["person"], slots["subject"])
    if head is not None:
        yield from hand.call(
            "mail.send", to=head["sender_email"], subject=slots["subject"], body=slots["text"]
        )


def _note(hand: Hand, title: str) -> Skill[int | None]:
    found = yield from hand.find("notes.list_notes", lambda note: bool(note["title"] == title))
    return None if found is None else int(found["note_id"])


def forward_note(hand: Hand, slots: Slots) -> Skill[None]:
    """Find the note, read it, mail it."""
    note = yield from _note(hand, slots["title"])
    if note is not None:
        whole = yield from hand.call("notes.show", note_id=note)
        yield from hand.call("mail.send", to=slots["email"], subject=slots["title"], body=whole["text"])


def save_message(hand: Hand, slots: Slots) -> Skill[None]:
    """Find the message, read it, write a note."""
    head = yield from hand.message(slots["person"], slots["subject"])
    if head is not None:
        whole = yield from hand.call("mail.show", message_id=head["message_id"])
        yield from hand.call("notes.create", title=slots["title"], text=whole["body"])


def note_append(hand: Hand, slots: Slots) -> Skill[None]:
    """Find the note, add the line; where that replaced the text, only who had read it can put it back."""
    note = yield from _note(hand, slots["title"])
    if note is None:
        return
    old = None
    if hand.mind.wanders():
        old = (yield from hand.call("notes.show", note_id=note))["text"]
    function = hand.mind.holds("add-line")
    seen = yield from hand.call(function, note_id=note, text=slots["text"])
    if seen.get("lines") == 1 and old is not None and hand.mind.notices():
        yield from hand.call("notes.replace", note_id=note, text=f"{old}\n{slots['text']}")


def event_new(hand: Hand, slots: Slots) -> Skill[None]:
    """Create the event."""
    given = {"title": slots["title"], "minutes": int(slots["minutes"])}
    yield from hand.put_event(slots["day"], slots["time"], "calendar.create_event", **given)


def event_move(hand: Hand, slots: Slots) -> Skill[None]:
    """Find the event, move it."""
    found = yield from hand.event(slots["title"], slots["day"])
    if found is not None:
        yield from hand.put_event(
            slots["day"], slots["time"], "calendar.move_event", event_id=found["event_id"]
        )


def event_delete(hand: Hand, slots: Slots) -> Skill[None]:
    """Read the day, remove the events of that name."""
    named = hand.mind.holds("zone") == "named"
    items = yield from hand.every("calendar.list_events", day=slots["day"], **hand.zone(named=named))
    for item in items:
        if item["title"] == slots["title"]:
            yield from hand.call("calendar.delete_event", event_id=item["event_id"])


def event_ask(hand: Hand, slots: Slots) -> Skill[str | None]:
    """Find the event, tell its time."""
    found = yield from hand.event(slots["title"], slots["day"])
    return None if found is None else str(found["time"])


def song_rate(hand: Hand, slots: Slots) -> Skill[None]:
    """Find the song, rate it."""
    song = yield from hand.song(slots["song"], slots["artist"])
    if song is not None:
        yield from hand.call("music.rate", song_id=song["song_id"], stars=int(slots["stars"]))


def artist_rate(hand: Hand, slots: Slots) -> Skill[None]:
    """Read the library, rate the artist's songs."""
    songs = yield from hand.own_songs(slots["artist"])
    for song in songs:
        yield from hand.call("music.rate", song_id=song["song_id"], stars=int(slots["stars"]))


def playlist_add(hand: Hand, slots: Slots) -> Skill[None]:
    """Find the song, add it."""
    song = yield from hand.song(slots["song"], slots["artist"])
    if song is not None:
        yield from hand.put_song(slots["playlist"], int(song["song_id"]))


def playlist_new(hand: Hand, slots: Slots) -> Skill[None]:
    """Create the playlist, read the library, add the artist's songs."""
    made = yield from hand.call("music.create_playlist", name=slots["playlist"])
    songs = yield from hand.own_songs(slots["artist"])
    for song in songs:
        yield from hand.put_song(slots["playlist"], int(song["song_id"]), made.get("playlist_id"))


_ALL: tuple[Script, ...] = (
    pay_person, request_person, pay_bill, approve_requests, return_payment, ask_payment, archive_sender,
    archive_subject, reply, forward_note, save_message, note_append, event_new, event_move, event_delete,
    event_ask, song_rate, artist_rate, playlist_add, playlist_new,
)  # fmt: skip
#: Template -> how it is done.
SCRIPTS: dict[str, Script] = {one.__name__.replace("_", "-"): one for one in _ALL}
