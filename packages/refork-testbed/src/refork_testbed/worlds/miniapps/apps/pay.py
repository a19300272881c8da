"""Pay: people, payments, and requests for money."""

from __future__ import annotations

from refork.types import Json
from refork_testbed.worlds.miniapps.service import Refusal, entry, paged
from refork_testbed.worlds.miniapps.shift import Shift
from refork_testbed.worlds.miniapps.store import Store


def dollars(cents: int) -> int | float:
    """Dollars as they are shown: whole where they are."""
    return cents // 100 if cents % 100 == 0 else cents / 100


def find_people(store: Store, shift: Shift, given: Json) -> Json:
    """People whose name holds a text, in the order of the directory."""
    rows = store.query("SELECT * FROM people ORDER BY id")
    found = [row for row in rows if given["name"].lower() in row["name"].lower()]
    return paged([{"user_id": r["id"], "name": r["name"], "email": r["email"]} for r in found], given, shift)


def list_payments(store: Store, shift: Shift, given: Json) -> Json:
    """Payments of both directions, newest first."""
    rows = store.query(
        "SELECT payments.*, people.name AS name FROM payments JOIN people ON people.id = person_id "
        "ORDER BY payments.id DESC"
    )
    items = [
        {
            "payment_id": r["id"], "kind": r["kind"], "user_id": r["person_id"], "name": r["name"],
            "amount": dollars(r["cents"]), "note": r["note"],
        }
        for r in rows
    ]  # fmt: skip
    return paged(items, given, shift)


def list_requests(store: Store, shift: Shift, given: Json) -> Json:
    """Open requests for the user's money, newest first."""
    rows = store.query(
        "SELECT requests.*, people.name AS name FROM requests JOIN people ON people.id = person_id "
        "WHERE state = 'open' ORDER BY requests.id DESC"
    )
    items = [
        {"request_id": r["id"], "name": r["name"], "amount": dollars(r["cents"]), "note": r["note"]}
        for r in rows
    ]
    return paged(items, given, shift)


def _new(store: Store, shift: Shift, given: Json, kind: str) -> Json:
    person = entry(store, "people", given["user_id"], "user")
    if given["amount"] != int(given["amount"]) or given["amount"] <= 0:
        raise Refusal(422, f"amount: {given['amount']!r} is not a whole number above 0")
    cents = int(given["amount"]) * shift.cents_per_unit
    new = store.insert("payments", person_id=person["id"], kind=kind, cents=cents, note=given["note"])
    return {"payment_id": new, "kind": kind, "name": person["name"], "amount_shown": f"${cents / 100:.2f}"}


def send(store: Store, shift: Shift, given: Json) -> Json:
    """Send money."""
    return _new(store, shift, given, "sent")


def request(store: Store, shift: Shift, given: Json) -> Json:
    """Ask for money."""
    return _new(store, shift, given, "requested")


def approve(store: Store, shift: Shift, given: Json) -> Json:
    """Approve a request; one that is not open is refused."""
    row = entry(store, "requests", given["request_id"], "request")
    if row["state"] != "open":
        raise Refusal(409, f"request {row['id']} is not open")
    store.update("requests", row["id"], state="approved")
    return {"request_id": row["id"], "state": "approved", "note": row["note"]}


def cancel(store: Store, shift: Shift, given: Json) -> Json:
    """Take back what the user sent or requested; received money stays."""
    row = entry(store, "payments", given["payment_id"], "payment")
    if row["kind"] == "received":
        raise Refusal(409, f"payment {row['id']} was received, not sent")
    store.delete("payments", row["id"])
    return {"payment_id": row["id"], "state": "cancelled"}
