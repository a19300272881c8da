"""Notes: titles and texts."""

from __future__ import annotations

from refork.types import Json
from refork_testbed.worlds.miniapps.service import entry, paged
from refork_testbed.worlds.miniapps.shift import Shift
from refork_testbed.worlds.miniapps.store import Store


def list_notes(store: Store, shift: Shift, given: Json) -> Json:
    """Ids and titles, oldest first."""
    rows = store.query("SELECT id AS note_id, title FROM notes ORDER BY id")
    return paged(rows, given, shift)


def show(store: Store, shift: Shift, given: Json) -> Json:
    """A whole note."""
    row = entry(store, "notes", given["note_id"], "note")
    return {"note_id": row["id"], "title": row["title"], "text": row["text"]}


def create(store: Store, shift: Shift, given: Json) -> Json:
    """A new note; titles may repeat."""
    new = store.insert("notes", title=given["title"], text=given["text"])
    return {"note_id": new, "title": given["title"]}


def append(store: Store, shift: Shift, given: Json) -> Json:
    """A line more."""
    row = entry(store, "notes", given["note_id"], "note")
    text = f"{row['text']}\n{given['text']}"
    store.update("notes", row["id"], text=text)
    return {"note_id": row["id"], "title": row["title"], "lines": len(text.split("\n"))}


def replace(store: Store, shift: Shift, given: Json) -> Json:
    """Another text."""
    row = entry(store, "notes", given["note_id"], "note")
    store.update("notes", row["id"], text=given["text"])
    return {"note_id": row["id"], "title": row["title"], "lines": len(given["text"].split("\n"))}
