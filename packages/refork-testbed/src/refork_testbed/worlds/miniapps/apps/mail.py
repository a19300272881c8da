"""Mail: an inbox, an archive, and what was sent."""

from __future__ import annotations

from refork.types import Json
from refork_testbed.worlds.miniapps.service import USERNAME, Refusal, entry, paged
from refork_testbed.worlds.miniapps.shift import Shift
from refork_testbed.worlds.miniapps.store import Store


def _head(row: Json) -> Json:
    return {
        "message_id": row["id"], "folder": row["folder"], "sender": row["sender"],
        "sender_email": row["sender_email"], "subject": row["subject"],
    }  # fmt: skip


def list_inbox(store: Store, shift: Shift, given: Json) -> Json:
    """Heads of the messages in the inbox, newest first."""
    rows = store.query("SELECT * FROM messages WHERE folder = 'inbox' ORDER BY id DESC")
    return paged([_head(row) for row in rows], given, shift)


def search(store: Store, shift: Shift, given: Json) -> Json:
    """Heads of the messages in inbox and archive whose sender or subject holds a text."""
    wanted = given["query"].lower()
    rows = store.query("SELECT * FROM messages WHERE folder != 'sent' ORDER BY id DESC")
    found = [row for row in rows if wanted in row["sender"].lower() or wanted in row["subject"].lower()]
    return paged([_head(row) for row in found], given, shift)


def show(store: Store, shift: Shift, given: Json) -> Json:
    """A whole message; its amount is in dollars."""
    row = entry(store, "messages", given["message_id"], "message")
    return {**_head(row), "body": row["body"], "amount": row["amount"]}


def send(store: Store, shift: Shift, given: Json) -> Json:
    """Send to an address; what is no address is refused."""
    name, at, domain = given["to"].partition("@")
    if not name or not at or "." not in domain or " " in given["to"]:
        raise Refusal(422, f"to: {given['to']!r} is not a mail address")
    new = store.insert(
        "messages", folder="sent", sender="Robin Vale", sender_email=USERNAME, recipient=given["to"],
        subject=given["subject"], body=given["body"], amount=None,
    )  # fmt: skip
    return {"message_id": new, "to": given["to"], "subject": given["subject"]}


def archive(store: Store, shift: Shift, given: Json) -> Json:
    """Inbox to archive; a message that is elsewhere is refused."""
    row = entry(store, "messages", given["message_id"], "message")
    if row["folder"] != "inbox":
        raise Refusal(409, f"message {row['id']} is not in the inbox but in {row['folder']}")
    store.update("messages", row["id"], folder="archive")
    return {"message_id": row["id"], "folder": "archive", "sender": row["sender"], "subject": row["subject"]}
