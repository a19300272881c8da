"""How the scripted agent does each of the twenty requests of one sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from refork_testbed.worlds.miniapps.hand import Hand, Skill
from refork_testbed.worlds.miniapps.template import Slots

#: Does a request with its slots; returns the answer where one is asked.
Script: TypeAlias = Callable[[Hand, Slots], Skill[str | None]]


def pay_person(hand: Hand, slots: Slots) -> Skill[str | None]:
    """Look the person up, send."""
    yield from hand.pay("sent", slots["person"], int(slots["amount"]), slots["note"])
    return None


def request_person(hand: Hand, slots: Slots) -> Skill[str | None]:
    """Look the person up, request."""
    yield from hand.pay("requested", slots["person"], int(slots["amount"]), slots["note"])
    return None


def pay_bill(hand: Hand, slots: Slots) -> Skill[str | None]:
    """Find the message, read the amount, send."""
    head = yield from hand.message(slots["person"], slots["subject"])
    if head is not None:
        whole = yield from hand.call("mail.show", message_id=head["message_id"])
        if whole.get("amount") is not None:
            yield from hand.pay("sent", slots["person"], int(whole["amount"]), slots["subject"])
    return None


def approve_requests(hand: Hand, slots: Slots) -> Skill[str | None]:
    """Read the requests, approve those of the person."""
    items = yield from hand.every("pay.list_requests")
    for item in items:
        if item["name"] == slots["person"]:
            yield from hand.call("pay.approve", request_id=item["request_id"])
    return None


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


def archive_sender(hand: Hand, slots: Slots) -> Skill[str | None]:
    """Read the inbox, archive what is from the person."""
    yield from _archive(hand, "sender", slots["person"])
    return None


def archive_subject(hand: Hand, slots: Slots) -> Skill[str | None]:
    """Read the inbox, archive what has the subject."""
    yield from _archive(hand, "subject", slots["subject"])
    return None


def reply(hand: Hand, slots: Slots) -> Skill[str | None]:
    """Find the message, write to its sender."""
    head = yield from hand.message(slots["person"], slots["subject"])
    if head is not None:
        yield from hand.call(
            "mail.send", to=head["sender_email"], subject=slots["subject"], body=slots["text"]
        )
    return None


def _note(hand: Hand, title: str) -> Skill[int | None]:
    found = yield from hand.find("notes.list_notes", lambda note: bool(note["title"] == title))
    return None if found is None else int(found["note_id"])


def forward_note(hand: Hand, slots: Slots) -> Skill[str | None]:
    """Find the note, read it, mail it."""
    note = yield from _note(hand, slots["title"])
    if note is not None:
        whole = yield from hand.call("notes.show", note_id=note)
        yield from hand.call("mail.send", to=slots["email"], subject=slots["title"], body=whole["text"])
    return None


def save_message(hand: Hand, slots: Slots) -> Skill[str | None]:
    """Find the message, read it, write a note."""
    head = yield from hand.message(slots["person"], slots["subject"])
    if head is not None:
        whole = yield from hand.call("mail.show", message_id=head["message_id"])
        yield from hand.call("notes.create", title=slots["title"], text=whole["body"])
    return None


def note_append(hand: Hand, slots: Slots) -> Skill[str | None]:
    """Find the note, add the line; where that replaced the text, only who had read it can put it back."""
    note = yield from _note(hand, slots["title"])
    if note is None:
        return None
    old = None
    if hand.mind.wanders():
        old = (yield from hand.call("notes.show", note_id=note))["text"]
    function = hand.mind.holds("add-line")
    seen = yield from hand.call(function, note_id=note, text=slots["text"])
    if seen.get("lines") == 1 and old is not None and hand.mind.notices():
        yield from hand.call("notes.replace", note_id=note, text=f"{old}\n{slots['text']}")
    return None


def event_new(hand: Hand, slots: Slots) -> Skill[str | None]:
    """Create the event."""
    given = {"title": slots["title"], "minutes": int(slots["minutes"])}
    yield from hand.put_event(slots["day"], slots["time"], "calendar.create_event", **given)
    return None


def event_move(hand: Hand, slots: Slots) -> Skill[str | None]:
    """Find the event, move it."""
    found = yield from hand.event(slots["title"], slots["day"])
    if found is not None:
        yield from hand.put_event(
            slots["day"], slots["time"], "calendar.move_event", event_id=found["event_id"]
        )
    return None


def event_delete(hand: Hand, slots: Slots) -> Skill[str | None]:
    """Read the day, remove the events of that name."""
    named = hand.mind.holds("zone") == "named"
    items = yield from hand.every("calendar.list_events", day=slots["day"], **hand.zone(named=named))
    for item in items:
        if item["title"] == slots["title"]:
            yield from hand.call("calendar.delete_event", event_id=item["event_id"])
    return None


def event_ask(hand: Hand, slots: Slots) -> Skill[str | None]:
    """Find the event, tell its time."""
    found = yield from hand.event(slots["title"], slots["day"])
    return None if found is None else str(found["time"])


def song_rate(hand: Hand, slots: Slots) -> Skill[str | None]:
    """Find the song, rate it."""
    song = yield from hand.song(slots["song"], slots["artist"])
    if song is not None:
        yield from hand.call("music.rate", song_id=song["song_id"], stars=int(slots["stars"]))
    return None


def artist_rate(hand: Hand, slots: Slots) -> Skill[str | None]:
    """Read the library, rate the artist's songs."""
    songs = yield from hand.own_songs(slots["artist"])
    for song in songs:
        yield from hand.call("music.rate", song_id=song["song_id"], stars=int(slots["stars"]))
    return None


def playlist_add(hand: Hand, slots: Slots) -> Skill[str | None]:
    """Find the song, add it."""
    song = yield from hand.song(slots["song"], slots["artist"])
    if song is not None:
        yield from hand.put_song(slots["playlist"], int(song["song_id"]))
    return None


def playlist_new(hand: Hand, slots: Slots) -> Skill[str | None]:
    """Create the playlist, read the library, add the artist's songs."""
    made = yield from hand.call("music.create_playlist", name=slots["playlist"])
    songs = yield from hand.own_songs(slots["artist"])
    for song in songs:
        yield from hand.put_song(slots["playlist"], int(song["song_id"]), made.get("playlist_id"))
    return None


#: Template -> how it is done.
SCRIPTS: dict[str, Script] = {
    "pay-person": pay_person,
    "request-person": request_person,
    "pay-bill": pay_bill,
    "approve-requests": approve_requests,
    "return-payment": return_payment,
    "ask-payment": ask_payment,
    "archive-sender": archive_sender,
    "archive-subject": archive_subject,
    "reply": reply,
    "forward-note": forward_note,
    "save-message": save_message,
    "note-append": note_append,
    "event-new": event_new,
    "event-move": event_move,
    "event-delete": event_delete,
    "event-ask": event_ask,
    "song-rate": song_rate,
    "artist-rate": artist_rate,
    "playlist-add": playlist_add,
    "playlist-new": playlist_new,
}
