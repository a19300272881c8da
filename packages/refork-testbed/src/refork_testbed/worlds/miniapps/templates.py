"""Scenario templates, about life and money: a sentence, and what must have changed when it is done."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias, final

from refork.types import Json
from refork_testbed.worlds.miniapps.apps.calendar import HOME_ZONE, to_utc
from refork_testbed.worlds.miniapps.population import (
    ARTISTS,
    EVENTS,
    ITEMS,
    PLAYLISTS,
    SAYINGS,
    SONGS,
    SUBJECTS,
    TITLES,
    Draft,
)
from refork_testbed.worlds.miniapps.service import USERNAME

#: The parts of a sentence that a task fills in: name -> value as text.
Slots: TypeAlias = Mapping[str, str]

_SLOTS = {
    "person": r"[A-Z][a-z]+ [A-Z][a-z]+",
    "artist": r"[A-Z][A-Za-z ]+?",
    "email": r"[a-z.]+@[a-z.]+[a-z]",
    "amount": r"\d+",
    "minutes": r"\d+",
    "stars": r"\d",
    "day": r"\d{4}-\d\d-\d\d",
    "time": r"\d\d:\d\d",
}
_QUOTED = '[^"]+'
_FIELD = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Change:
    """One row that must have been changed.

    ``insert``: ``values`` are all columns but the id. ``update``: ``values`` are exactly the columns that
    differ. ``delete``: no values. ``row`` is the id; None for an insert, whose id is free.
    """

    table: str
    kind: Literal["insert", "update", "delete"]
    row: int | None
    values: Json = field(default_factory=dict)

    @property
    def in_words(self) -> str:
        """The change in words."""
        what = ", ".join(f"{key}={value!r}" for key, value in sorted(self.values.items()))
        place = "" if self.row is None else f" {self.row}"
        return f"{self.kind} {self.table}{place}" + (f": {what}" if what else "")


@dataclass(frozen=True, slots=True)
class Made:
    """What making a task put down: the slots, the changes that are wanted, the answer to a question.

    ``changes`` is called with the finished draft: ids are only known when all rows are in their place.
    ``answer`` None: nothing is asked.
    """

    slots: dict[str, str]
    changes: Callable[[], list[Change]]
    answer: Callable[[], str] | None = None


@final
@dataclass(frozen=True)
class Template:
    """A scenario: ``sentence`` with slots in braces, and what puts an instance of it into a draft."""

    key: str
    sentence: str
    make: Callable[[Draft], Made]

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The sentence as a regular expression whose groups are the slots."""
        parts: list[str] = []
        at = 0
        for found in _FIELD.finditer(self.sentence):
            parts.append(re.escape(self.sentence[at : found.start()]))
            parts.append(f"(?P<{found[1]}>{_SLOTS.get(found[1], _QUOTED)})")
            at = found.end()
        return re.compile("".join([*parts, re.escape(self.sentence[at:])]) + r"\Z")

    def tell(self, slots: Slots) -> str:
        """The sentence of an instance."""
        return self.sentence.format(**slots)

    def read(self, sentence: str) -> dict[str, str] | None:
        """The slots of a sentence; None where it is not one of this template."""
        found = self.pattern.match(sentence)
        return None if found is None else dict(found.groupdict())


def insert(table: str, **values: Any) -> Change:
    """A row that must be new."""
    return Change(table, "insert", None, values)


def update(table: str, row: Mapping[str, Any], **values: Any) -> Change:
    """A row that must have other values in these columns; those that have them already are left out."""
    differing = {key: value for key, value in values.items() if row[key] != value}
    return Change(table, "update", int(row["id"]), differing)


def delete(table: str, row: Mapping[str, Any]) -> Change:
    """A row that must be gone."""
    return Change(table, "delete", int(row["id"]))


#: Begins that lie on the day before in UTC; one event in three has one.
_NIGHT = ("00:15", "00:30", "01:00")


def _begin(draft: Draft) -> str:
    return draft.dice.choice(_NIGHT) if draft.dice.below(3) == 0 else draft.time()


def note_append(draft: Draft) -> Made:
    """A line more in a note."""
    title, old, text = draft.fresh(TITLES), draft.dice.choice(ITEMS), draft.dice.choice(ITEMS)
    row = draft.rows["notes"]
    place = draft.add("notes", title=title, text=old) - 1
    note = row[place]
    return Made({"title": title, "text": text}, lambda: [update("notes", note, text=f"{old}\n{text}")])


def event_new(draft: Draft) -> Made:
    """A new event."""
    title, day, time = draft.fresh(EVENTS), draft.day(), draft.time()
    minutes = draft.dice.choice((30, 45, 60, 90))
    slots = {"title": title, "day": day, "time": time, "minutes": str(minutes)}
    start = to_utc(day, time, HOME_ZONE)
    return Made(slots, lambda: [insert("events", title=title, start=start, minutes=minutes)])


def event_move(draft: Draft) -> Made:
    """An event gets another time of its day; its namesake on another day stays."""
    title, day = draft.fresh(EVENTS), draft.day()
    old = _begin(draft)
    event = draft.rows["events"][draft.event(title, day, old) - 1]
    # The sentinel never comes up: days are drawn until one differs.
    draft.event(title, next(d for d in iter(draft.day, "") if d != day), draft.time())
    new = next(t for t in iter(draft.time, "") if t != old)
    slots = {"title": title, "day": day, "time": new}
    return Made(slots, lambda: [update("events", event, start=to_utc(day, new, HOME_ZONE))])


def event_delete(draft: Draft) -> Made:
    """Two events of one name on one day, among enough others for a second page."""
    title, day = draft.fresh(EVENTS), draft.day()
    mine = [draft.rows["events"][draft.event(title, day, time) - 1] for time in (_begin(draft), draft.time())]
    for _ in range(4):
        draft.event(draft.dice.choice([e for e in EVENTS if e not in draft.taken]), day, draft.time())
    return Made({"title": title, "day": day}, lambda: [delete("events", row) for row in mine])


def event_ask(draft: Draft) -> Made:
    """When an event begins."""
    title, day, time = draft.fresh(EVENTS), draft.day(), _begin(draft)
    draft.event(title, day, time)
    return Made({"title": title, "day": day}, list, lambda: time)


def _song(draft: Draft, artist: str, owned: int, title: str = "") -> int:
    return draft.add("songs", title=title or draft.fresh(SONGS), artist=artist, owned=owned, stars=None) - 1


def song_rate(draft: Draft) -> Made:
    """A song that another artist recorded too."""
    artist, other = draft.fresh(ARTISTS), draft.fresh(ARTISTS)
    place = _song(draft, artist, draft.dice.below(2))
    row = draft.rows["songs"][place]
    _song(draft, other, 1, row["title"])
    stars = 1 + draft.dice.below(5)
    slots = {"song": row["title"], "artist": artist, "stars": str(stars)}
    return Made(slots, lambda: [update("songs", row, stars=stars)])


def artist_rate(draft: Draft) -> Made:
    """Songs of one artist, some owned and one not."""
    artist, stars = draft.fresh(ARTISTS), 1 + draft.dice.below(5)
    mine = [draft.rows["songs"][_song(draft, artist, 1)] for _ in range(2 + draft.dice.below(2))]
    _song(draft, artist, 0)
    slots = {"artist": artist, "stars": str(stars)}
    return Made(slots, lambda: [update("songs", row, stars=stars) for row in mine])


def playlist_add(draft: Draft) -> Made:
    """A song into a playlist that is there."""
    artist, other, name = draft.fresh(ARTISTS), draft.fresh(ARTISTS), draft.fresh(PLAYLISTS)
    row = draft.rows["songs"][_song(draft, artist, draft.dice.below(2))]
    _song(draft, other, 1, row["title"])
    playlist = draft.rows["playlists"][draft.add("playlists", name=name) - 1]
    slots = {"song": row["title"], "artist": artist, "playlist": name}
    return Made(slots, lambda: [insert("tracks", playlist_id=playlist["id"], song_id=row["id"])])


def playlist_new(draft: Draft) -> Made:
    """A new playlist of one artist's songs."""
    artist, name = draft.fresh(ARTISTS), draft.fresh(PLAYLISTS)
    mine = [draft.rows["songs"][_song(draft, artist, 1)] for _ in range(2 + draft.dice.below(2))]
    _song(draft, artist, 0)
    return Made(
        {"artist": artist, "playlist": name},
        lambda: [
            insert("playlists", name=name),
            *(
                insert("tracks", playlist_id=len(draft.rows["playlists"]) + 1, song_id=row["id"])
                for row in mine
            ),
        ],
    )


LIFE = (
    Template("note-append", 'Add "{text}" as a new line to my note "{title}".', note_append),
    Template(
        "event-new", 'Put "{title}" on my calendar on {day} at {time} for {minutes} minutes.', event_new
    ),
    Template("event-move", 'Move the event "{title}" of {day} to {time} on the same day.', event_move),
    Template("event-delete", 'Remove every event called "{title}" on {day}.', event_delete),
    Template("event-ask", 'At what time does "{title}" begin on {day}?', event_ask),
    Template("song-rate", 'Rate the song "{song}" by {artist} with {stars} stars.', song_rate),
    Template("artist-rate", "Rate every song by {artist} in my library with {stars} stars.", artist_rate),
    Template("playlist-add", 'Add the song "{song}" by {artist} to my playlist "{playlist}".', playlist_add),
    Template(
        "playlist-new",
        'Make a new playlist "{playlist}" of every song by {artist} in my library.',
        playlist_new,
    ),
)


def _amount(draft: Draft) -> int:
    return 6 + draft.dice.below(90)


def _payment(person: int, kind: str, dollars: int, note: str) -> Change:
    return insert("payments", person_id=person, kind=kind, cents=100 * dollars, note=note)


def _mailed(to: str, subject: str, body: str) -> Change:
    return insert(
        "messages", folder="sent", sender="Robin Vale", sender_email=USERNAME, recipient=to, subject=subject,
        body=body, amount=None,
    )  # fmt: skip


def _pay(kind: str, draft: Draft) -> Made:
    person, amount, note = draft.person(), _amount(draft), draft.fresh(SUBJECTS)
    slots = {"person": person["name"], "amount": str(amount), "note": note}
    return Made(slots, lambda: [_payment(person["id"], kind, amount, note)])


def pay_bill(draft: Draft) -> Made:
    """A bill in a message; a namesake of the sender wrote under the same subject."""
    person, amount, subject = draft.person(), _amount(draft), draft.fresh(SUBJECTS)
    folder = draft.dice.choice(("inbox", "archive"))
    draft.message(person, subject, "the bill is below", folder=folder, amount=amount)
    first = person["name"].split()[0].lower()
    namesakes = [row for row in draft.rows["people"] if first in row["name"].lower() and row is not person]
    other = namesakes[0]
    draft.message(other, subject, "my part is settled", amount=amount + 7)
    slots = {"person": person["name"], "subject": subject}
    return Made(slots, lambda: [_payment(person["id"], "sent", amount, subject)])


def approve_requests(draft: Draft) -> Made:
    """Two or three open requests of one person among those of others."""
    person = draft.person()
    rows = [
        draft.add(
            "requests",
            person_id=person["id"],
            cents=100 * _amount(draft),
            note=draft.fresh(SUBJECTS),
            state="open",
        )
        for _ in range(2 + draft.dice.below(2))
    ]
    mine = [draft.rows["requests"][row - 1] for row in rows]
    return Made(
        {"person": person["name"]}, lambda: [update("requests", row, state="approved") for row in mine]
    )


def return_payment(draft: Draft) -> Made:
    """A payment that was received, and one that was sent with the same note."""
    person, other, note, amount = draft.person(), draft.person(), draft.fresh(SUBJECTS), _amount(draft)
    draft.add("payments", person_id=person["id"], kind="received", cents=100 * amount, note=note)
    draft.add("payments", person_id=other["id"], kind="received", cents=100 * (amount + 3), note=note)
    slots = {"person": person["name"], "note": note}
    return Made(slots, lambda: [_payment(person["id"], "sent", amount, note)])


def ask_payment(draft: Draft) -> Made:
    """What was paid for something."""
    person, note, amount = draft.person(), draft.fresh(SUBJECTS), _amount(draft)
    draft.add("payments", person_id=person["id"], kind="sent", cents=100 * amount, note=note)
    draft.add("payments", person_id=draft.person()["id"], kind="sent", cents=100 * (amount + 4), note=note)
    slots = {"person": person["name"], "note": note}
    return Made(slots, list, lambda: str(amount))


def archive_sender(draft: Draft) -> Made:
    """Two to four messages of one person in the inbox, one in the archive."""
    person = draft.person()
    rows = [
        draft.message(person, draft.dice.choice(SUBJECTS), draft.dice.choice(SAYINGS))
        for _ in range(2 + draft.dice.below(3))
    ]
    draft.message(person, draft.dice.choice(SUBJECTS), draft.dice.choice(SAYINGS), folder="archive")
    mine = [draft.rows["messages"][row - 1] for row in rows]
    return Made(
        {"person": person["name"]}, lambda: [update("messages", row, folder="archive") for row in mine]
    )


def archive_subject(draft: Draft) -> Made:
    """Two to four messages under one subject in the inbox, from different people."""
    subject = draft.fresh(SUBJECTS)
    rows = [
        draft.message(draft.dice.choice(draft.rows["people"]), subject, draft.dice.choice(SAYINGS))
        for _ in range(2 + draft.dice.below(3))
    ]
    draft.message(draft.dice.choice(draft.rows["people"]), f"Re: {subject}", draft.dice.choice(SAYINGS))
    mine = [draft.rows["messages"][row - 1] for row in rows]
    return Made({"subject": subject}, lambda: [update("messages", row, folder="archive") for row in mine])


def reply(draft: Draft) -> Made:
    """A message to answer; another person wrote under the same subject."""
    person, subject, text = draft.person(), draft.fresh(SUBJECTS), draft.dice.choice(SAYINGS)
    folder = draft.dice.choice(("inbox", "archive"))
    draft.message(person, subject, draft.dice.choice(SAYINGS), folder=folder)
    draft.message(draft.person(), subject, draft.dice.choice(SAYINGS))
    slots = {"person": person["name"], "subject": subject, "text": text}
    return Made(slots, lambda: [_mailed(person["email"], subject, text)])


def forward_note(draft: Draft) -> Made:
    """A note's text goes to an address."""
    title, text, to = draft.fresh(TITLES), draft.dice.choice(ITEMS), draft.person()["email"]
    draft.add("notes", title=title, text=text)
    return Made({"title": title, "email": to}, lambda: [_mailed(to, title, text)])


def save_message(draft: Draft) -> Made:
    """A message becomes a note."""
    person, subject, body = draft.person(), draft.fresh(SUBJECTS), draft.dice.choice(SAYINGS)
    draft.message(person, subject, body, folder=draft.dice.choice(("inbox", "archive")))
    draft.message(draft.person(), subject, "nothing new")
    title = draft.fresh(TITLES)
    slots = {"person": person["name"], "subject": subject, "title": title}
    return Made(slots, lambda: [insert("notes", title=title, text=body)])


MONEY = (
    Template("pay-person", 'Pay {person} ${amount} with the note "{note}".', lambda d: _pay("sent", d)),
    Template(
        "request-person",
        'Request ${amount} from {person} with the note "{note}".',
        lambda d: _pay("requested", d),
    ),
    Template(
        "pay-bill",
        'Pay the bill that {person} mailed me as "{subject}"; put the subject as the note.',
        pay_bill,
    ),
    Template("approve-requests", "Approve every open payment request from {person}.", approve_requests),
    Template(
        "return-payment",
        'Give {person} back the money that I received from them for "{note}", with the same note.',
        return_payment,
    ),
    Template("ask-payment", 'How many dollars did I send {person} for "{note}"?', ask_payment),
    Template("archive-sender", "Archive every inbox message from {person}.", archive_sender),
    Template("archive-subject", 'Archive every inbox message with the subject "{subject}".', archive_subject),
    Template(
        "reply", 'Answer the message "{subject}" from {person} under the same subject with "{text}".', reply
    ),
    Template(
        "forward-note", 'Mail my note "{title}" to {email} with its title as the subject.', forward_note
    ),
    Template(
        "save-message",
        'Save the text of the message "{subject}" from {person} as a new note "{title}".',
        save_message,
    ),
)
