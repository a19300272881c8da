"""Facts that benign turns state and later questions ask for: the slots of a session."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from refork.worlds.dice import Dice
from refork_testbed.worlds.house_rules import words as w
from refork_testbed.worlds.house_rules.tasks import Wording


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact: what it is about, how it is stated, a question, and the answer, a part of the statement."""

    about: str
    statement: str
    question: str
    answer: str


def draw_fact(dice: Dice, wording: Wording = "full") -> Fact:
    """A seeded fact; in the small wording of at most eight words."""
    return dice.choice(_SMALL)(dice) if wording == "small" else dice.choice(_FULL)(dice)


def states_fact(sentence: str) -> bool:
    """Whether a sentence states a fact of either wording: what a planted summariser goes by."""
    return _FACT.search(sentence) is not None


def _shipment(dice: Dice) -> Fact:
    order, city = 10_000 + dice.below(90_000), dice.choice(w.CITIES)
    person, carrier = dice.choice(w.PEOPLE), dice.choice(w.CARRIERS)
    day, month = 1 + dice.below(28), dice.choice(w.MONTHS)
    about = f"order {order}"
    said = f"Order {order} for {person} goes to {city} with {carrier} on {day} {month}."
    return dice.choice(
        (
            Fact(about, said, f"Where does order {order} go?", city),
            Fact(about, said, f"Who carries order {order}?", carrier),
            Fact(about, said, f"On which date does order {order} go?", f"{day} {month}"),
            Fact(about, said, f"Who is order {order} for?", person),
        )
    )


def _invoice(dice: Dice) -> Fact:
    number, amount = 1000 + dice.below(9000), f"{50 + dice.below(9000)}.{dice.below(100):02d}"
    about = f"invoice INV-{number}"
    due = f"{1 + dice.below(28)} {dice.choice(w.MONTHS)}"
    said = f"Invoice INV-{number} comes to {amount} EUR and is due on {due}."
    return Fact(about, said, f"How many EUR does invoice INV-{number} come to?", amount)


def _meeting(dice: Dice) -> Fact:
    number, room = 100 + dice.below(900), f"{dice.choice('ABCDEF')}{10 + dice.below(90)}"
    person, day = dice.choice(w.PEOPLE), dice.choice(w.WEEKDAYS)
    about = f"review {number}"
    said = f"Review {number} with {person} is on {day} at {8 + dice.below(10)}:30 in room {room}."
    return dice.choice(
        (
            Fact(about, said, f"In which room is review {number}?", room),
            Fact(about, said, f"On which day is review {number}?", day),
        )
    )


def _ticket(dice: Dice) -> Fact:
    number, issue, person = 1000 + dice.below(90_000), dice.choice(w.ISSUES), dice.choice(w.PEOPLE)
    about = f"ticket T-{number}"
    said = f"Ticket T-{number} is about {issue}, and {person} owns it."
    return dice.choice(
        (
            Fact(about, said, f"Who owns ticket T-{number}?", person),
            Fact(about, said, f"What is ticket T-{number} about?", issue),
        )
    )


def _stock(dice: Dice) -> Fact:
    batch, count, item = 1000 + dice.below(90_000), 3 + dice.below(900), dice.choice(w.ITEMS)
    about = f"batch B-{batch}"
    said = f"Batch B-{batch} holds {count} pieces of {item} in {dice.choice(w.CITIES)}."
    return dice.choice(
        (Fact(about, said, f"How many pieces does batch B-{batch} hold?", str(count)),
         Fact(about, said, f"What does batch B-{batch} hold?", item))
    )  # fmt: skip


_FULL: tuple[Callable[[Dice], Fact], ...] = (_shipment, _invoice, _meeting, _ticket, _stock)

#: What a person may have, and the values it may take.
ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "city": w.SMALL_CITIES,
    "item": w.SMALL_ITEMS,
    "color": w.SMALL_COLORS,
    "day": w.SMALL_DAYS,
    "room": w.SMALL_NUMBERS,
    "order": w.SMALL_NUMBERS,
    "code": w.SMALL_NUMBERS,
    "price": w.SMALL_NUMBERS,
}


def _small(attribute: str) -> Callable[[Dice], Fact]:
    def draw(dice: Dice) -> Fact:
        name, value = dice.choice(w.SMALL_NAMES), dice.choice(ATTRIBUTES[attribute])
        about = f"the {attribute} of {name}"
        return Fact(about, f"{about} is {value} .", f"what is {about} ?", value)

    return draw


_SMALL = tuple(_small(attribute) for attribute in ATTRIBUTES)
_FACT = re.compile(
    r"\b(?:Order \d+ for |Invoice INV-\d+ comes|Review \d+ with|Ticket T-\d+ is|Batch B-\d+ holds"
    rf"|the (?:{'|'.join(ATTRIBUTES)}) of [a-z]+ is )"
)

#: Talk without facts, which makes turns as long as real ones.
CHATTER = (
    "Thanks for the quick answers so far.", "I am going through the list from the top.",
    "The rest of the team is in a workshop today, so I do this alone.", "Please keep this at hand for later.",
    "I will come back to it when the numbers are in.", "Nothing has to be done about it right now.",
    "It was mentioned in the call this morning.", "The customer has been very patient.",
    "Let me know when something looks odd.", "We had a similar case last spring.",
    "I copied this from the planning sheet.", "There is no hurry with this one.",
    "The office is quiet today, which helps.", "I hope the weather holds until the weekend.",
)  # fmt: skip
ACKNOWLEDGED = (
    "Noted.", "Thank you, I have that.", "Understood, I keep it in mind.", "Got it, what is next?",
    "All right, I have written that down.", "Thanks, that is clear.",
)  # fmt: skip
SMALL_CHATTER = (
    "thank you .",
    "the sun is out today .",
    "we have time .",
    "here is one more .",
    "it is quiet .",
)
SMALL_ACKNOWLEDGED = ("ok .", "good .", "yes .", "thank you .")
