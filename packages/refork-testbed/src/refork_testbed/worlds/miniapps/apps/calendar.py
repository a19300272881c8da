"""Calendar: events, kept in UTC, told in the zone that a call names."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from refork.types import Json
from refork_testbed.worlds.miniapps.service import Refusal, entry, paged
from refork_testbed.worlds.miniapps.shift import Shift
from refork_testbed.worlds.miniapps.store import Store

#: The user's own zone: answers to changes tell the begin in it, as a calendar's screen would.
HOME_ZONE = "+02:00"
_FORM = "%Y-%m-%d %H:%M"
# \Z, for $ also fits before a line break at the end.
_ZONE = re.compile(r"([+-])(0\d|1[0-4]):([0-5]\d)\Z")


def offset(zone: str) -> timedelta:
    """How far a zone is ahead of UTC; refuses what is no zone."""
    if zone == "UTC":
        return timedelta()
    found = _ZONE.match(zone)
    if not found:
        raise Refusal(422, f"zone: {zone!r} is neither UTC nor of the form +HH:MM")
    size = timedelta(hours=int(found[2]), minutes=int(found[3]))
    return size if found[1] == "+" else -size


def to_utc(day: str, time: str, zone: str) -> str:
    """A wall time in UTC, ``YYYY-MM-DD HH:MM``; refuses what is no day of 2000 to 2099 or no time."""
    try:
        wall = datetime.strptime(f"{day} {time}", _FORM)
    except ValueError:
        raise Refusal(422, f"{day!r} {time!r} is not a day YYYY-MM-DD and a time HH:MM") from None
    if not 2000 <= wall.year < 2100:
        raise Refusal(422, f"{day!r} is not a day of the years 2000 to 2099")
    return (wall - offset(zone)).strftime(_FORM)


def in_zone(start: str, zone: str) -> tuple[str, str]:
    """Day and time of a UTC begin in a zone."""
    local = datetime.strptime(start, _FORM) + offset(zone)
    return local.strftime("%Y-%m-%d"), local.strftime("%H:%M")


def list_events(store: Store, shift: Shift, given: Json) -> Json:
    """Events whose begin falls on a day of the zone, in order."""
    to_utc(given["day"], "00:00", given["zone"])
    items = []
    for row in store.query("SELECT * FROM events ORDER BY start, id"):
        day, time = in_zone(row["start"], given["zone"])
        if day == given["day"]:
            items.append(
                {
                    "event_id": row["id"],
                    "title": row["title"],
                    "day": day,
                    "time": time,
                    "minutes": row["minutes"],
                }
            )
    return {**paged(items, given, shift), "zone": given["zone"]}


def _answer(store: Store, row: int) -> Json:
    event = entry(store, "events", row, "event")
    day, time = in_zone(event["start"], HOME_ZONE)
    return {"event_id": row, "title": event["title"], "shown_at_home": f"{day} {time}"}


def create_event(store: Store, shift: Shift, given: Json) -> Json:
    """A new event."""
    start = to_utc(given["day"], given["time"], given["zone"])
    if given["minutes"] < 1:
        raise Refusal(422, f"minutes: {given['minutes']} is below 1")
    return _answer(store, store.insert("events", title=given["title"], start=start, minutes=given["minutes"]))


def move_event(store: Store, shift: Shift, given: Json) -> Json:
    """Another begin."""
    row = entry(store, "events", given["event_id"], "event")
    store.update("events", row["id"], start=to_utc(given["day"], given["time"], given["zone"]))
    return _answer(store, row["id"])


def delete_event(store: Store, shift: Shift, given: Json) -> Json:
    """Remove an event."""
    row = entry(store, "events", given["event_id"], "event")
    store.delete("events", row["id"])
    return {"event_id": row["id"], "title": row["title"], "state": "deleted"}
