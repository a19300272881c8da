"""Drawn worlds: people with near namesakes, messages, payments, notes, events, songs.

Every list is longer than a page, names and titles have near duplicates, some events lie just after midnight
at home and so on another day of UTC.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, final

from refork.worlds.dice import Dice
from refork_testbed.worlds.miniapps.apps.calendar import HOME_ZONE, to_utc
from refork_testbed.worlds.miniapps.service import USERNAME
from refork_testbed.worlds.miniapps.store import TABLES

FIRST = (
    "Ann", "Ben", "Cora", "Dan", "Eva", "Finn", "Gina", "Hugo", "Ida", "Jon", "Kim", "Leo", "Mia", "Nils",
)  # fmt: skip
LAST = ("Lee", "Park", "Stone", "Hill", "West", "Ford", "Lund", "Berg", "Marsh", "Cole", "Wood", "Lake")
SUBJECTS = (
    "Boat trip", "Team lunch", "Garden plans", "Train tickets", "Book club", "Choir evening",
    "New bicycle", "Summer house", "Cooking class", "Ski weekend", "Board meeting", "Concert night",
    "Moving boxes", "Tax papers", "Dentist bill", "School fair", "Window repair", "Birthday cake",
    "Museum visit", "Piano lesson",
)  # fmt: skip
SAYINGS = (
    "see you there", "the key is under the pot", "bring warm clothes", "the code is on the door",
    "call me first", "all is settled", "the list is attached", "we meet at the gate", "please confirm",
    "the shop closes early", "ask for the blue box", "it was moved by a week",
)  # fmt: skip
TITLES = (
    "Shopping", "Ideas", "Packing", "Recipes", "Guests", "Repairs", "Wishes", "Readings", "Addresses",
    "Errands", "Savings", "Plants",
)  # fmt: skip
ITEMS = (
    "milk and rice", "a new lamp", "two tickets", "paint the fence", "call the bank", "water filters",
    "a birthday card", "winter tyres", "return the books", "fix the tap",
)  # fmt: skip
EVENTS = (
    "Review", "Yoga", "Choir", "Dentist", "Standup", "Lunch", "Interview", "Workshop", "Tennis", "Planning",
)  # fmt: skip
SONGS = (
    "Blue River", "Night Train", "Paper Moon", "Golden Hour", "Silent Sea", "Red Kite", "Old Bridge",
    "First Snow", "Wild Honey", "Glass House", "Open Road", "Last Light",
)  # fmt: skip
ARTISTS = ("The Larks", "Mono Lake", "Vera Dahl", "Tin Circus", "North Pier")
PLAYLISTS = ("Morning", "Running", "Dinner", "Focus", "Party", "Rain", "Holiday", "Sunday")
TODAY = date(2026, 5, 4)


@final
@dataclass
class Draft:
    """A world while it is drawn: rows of every table, and values that are already taken."""

    dice: Dice
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {table: [] for table in TABLES})
    taken: set[object] = field(default_factory=set)

    def add(self, table: str, **values: Any) -> int:
        """A row; returns its id."""
        new = len(self.rows[table]) + 1
        self.rows[table].append({"id": new, **values})
        return new

    def fresh(self, items: tuple[str, ...]) -> str:
        """One of the items that was not drawn before."""
        chosen = self.dice.choice([item for item in items if item not in self.taken])
        self.taken.add(chosen)
        return chosen

    def person(self) -> dict[str, Any]:
        """A person that was not drawn before."""
        names = [
            row for row in self.rows["people"] if row["name"].count(" ") == 1 and row["id"] not in self.taken
        ]
        chosen = self.dice.choice([row for row in names if row["name"].split()[1] in LAST])
        self.taken.add(chosen["id"])
        return chosen

    def day(self) -> str:
        """A day of the next four weeks."""
        return (TODAY + timedelta(days=1 + self.dice.below(28))).isoformat()

    def time(self) -> str:
        """A time of the day at home."""
        return f"{9 + self.dice.below(9):02d}:{self.dice.choice(('00', '15', '30', '45'))}"

    def message(self, person: dict[str, Any], subject: str, body: str, **values: Any) -> int:
        """A message from somebody to the user."""
        row = {"folder": "inbox", "recipient": USERNAME, "amount": None} | values
        return self.add(
            "messages", sender=person["name"], sender_email=person["email"], subject=subject, body=body, **row
        )

    def event(self, title: str, day: str, time: str, minutes: int = 60) -> int:
        """An event at a time at home."""
        return self.add("events", title=title, start=to_utc(day, time, HOME_ZONE), minutes=minutes)

    def shuffle(self, table: str) -> None:
        """Put rows in random order; ids follow, so what a task needs may stand anywhere."""
        rows = self.dice.sample(self.rows[table], len(self.rows[table]))
        for place, row in enumerate(rows, 1):
            row["id"] = place
        self.rows[table] = rows


def begin(dice: Dice) -> Draft:
    """A draft with the people in it: six, each with one or two near namesakes, in random order."""
    draft = Draft(dice)
    for first, last in zip(dice.sample(FIRST, 6), dice.sample(LAST, 6), strict=True):
        namesakes = [f"{first} {last}son", f"Mary{first.lower()} {last}s"]
        for name in [f"{first} {last}", *dice.sample(namesakes, 1 + dice.below(2))]:
            draft.add("people", name=name, email=f"{name.lower().replace(' ', '.')}@post.example")
    draft.shuffle("people")
    return draft


def fill(draft: Draft) -> None:
    """Add what no task is about, from names that no task has taken, up to the usual size of a world."""
    dice, people = draft.dice, draft.rows["people"]
    free = [row for row in people if row["id"] not in draft.taken]
    subjects = [s for s in SUBJECTS if s not in draft.taken]
    for folder, size in (("inbox", 13), ("archive", 18)):
        while len(draft.rows["messages"]) < size:
            draft.message(dice.choice(free), dice.choice(subjects), dice.choice(SAYINGS), folder=folder)
    while len(draft.rows["payments"]) < 12:
        kind = dice.choice(("sent", "received"))
        draft.add("payments", person_id=dice.choice(free)["id"], kind=kind, cents=100 * (5 + dice.below(90)),
                  note=dice.choice(subjects))  # fmt: skip
    while len(draft.rows["requests"]) < 8:
        draft.add("requests", person_id=dice.choice(free)["id"], cents=100 * (5 + dice.below(90)),
                  note=dice.choice(subjects), state="open")  # fmt: skip
    while len(draft.rows["notes"]) < 9:
        draft.add("notes", title=draft.fresh(TITLES), text=dice.choice(ITEMS))
    while len(draft.rows["events"]) < 12:
        draft.event(dice.choice([e for e in EVENTS if e not in draft.taken]), draft.day(), draft.time())
    while len(draft.rows["songs"]) < 22:
        artist = dice.choice([a for a in ARTISTS if a not in draft.taken])
        draft.add("songs", title=dice.choice(SONGS), artist=artist, owned=dice.below(2), stars=None)
    while len(draft.rows["playlists"]) < 6:
        draft.add("playlists", name=draft.fresh(PLAYLISTS))
