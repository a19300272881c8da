"""Templates about money and mail."""

from __future__ import annotations

from refork_testbed.worlds.miniapps.population import ITEMS, SAYINGS, SUBJECTS, TITLES, Draft
from refork_testbed.worlds.miniapps.service import USERNAME
from refork_testbed.worlds.miniapps.template import Change, Made, Template, insert, update


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


TEMPLATES = (
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
