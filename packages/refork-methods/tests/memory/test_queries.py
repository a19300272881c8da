from __future__ import annotations

import pytest

from refork_methods.memory.queries import (
    best_match,
    free_literals,
    masked,
    match_query,
    place_of,
    sentences_of,
    structurally_different,
    template,
    tokens_of,
    two_different,
)
from refork_methods.memory.skeleton import Slot

OWN = 'Send 20 dollars to Ann Lee for "rent"'
SLOTS = (Slot("amount", "20", "integer"), Slot("name", "Ann Lee"), Slot("note", "rent"))


def test_tokens_have_kinds():
    text = 'Tell Bob May\'s boss "x y" at 10:30 on 2024-02-03, a.b@c.co -3.5. See it.'
    assert [(t.kind, t.text) for t in tokens_of(text) if t.kind != "word"] == [
        ("name", "Bob May"), ("quoted", "x y"), ("time", "10:30"), ("date", "2024-02-03"),
        ("email", "a.b@c.co"), ("number", "-3.5"),
    ]  # fmt: skip
    assert masked(OWN) == "send <number> dollars to <name> for <quoted>"


def test_a_capital_at_the_start_makes_no_name():
    assert [t.kind for t in tokens_of("Pay now. Then go. Ask Ann")] == ["word"] * 5 + ["name"]


def test_texts_are_found_as_whole_tokens_or_runs_of_words():
    tokens = tokens_of('add my road trip song to "Road Trip" 12')
    assert place_of("road trip", tokens) == (2, 4)
    assert place_of("Road Trip", tokens[5:]) == (1, 2)
    assert place_of("1", tokens) is None
    assert place_of("trip", tokens) == (3, 4)


def test_slots_are_bound_whatever_varies():
    found = match_query(OWN, 'Send 3.5 dollars to Bob May for "a new book"', SLOTS)
    assert dict(found.bound) == {"amount": "3.5", "name": "Bob May", "note": "a new book"}
    assert (found.fits, found.stray) == (True, ())
    assert found.text("note") == "a new book"


def test_a_run_of_words_can_be_a_slot_of_another_length():
    own, slots = "Book a table for dinner in town", (Slot("what", "dinner"),)
    found = match_query(own, "Book a table for a late lunch in town", slots)
    assert dict(found.bound) == {"what": "a late lunch"}
    assert (found.fits, found.stray) == (True, ())


@pytest.mark.parametrize(
    ("query", "stray"),
    [
        ('Send 20 euros to Bob May for "food"', "dollars / euros"),
        ('Send 20 dollars to Bob May for "food" on 2024-01-01', "2024-01-01"),
    ],
)
def test_what_varies_and_is_no_slot_is_a_stray(query, stray):
    found = match_query(OWN, query, SLOTS)
    assert stray in found.stray


def test_added_words_are_wording():
    found = match_query(OWN, 'Please send 20 dollars to Bob May now for "food"', SLOTS)
    assert (found.fits, found.stray) == (True, ())


def test_another_order_is_bound_by_kind():
    found = match_query("Pay 20 to Ann Lee", "To Bob May pay 7", (SLOTS[0], SLOTS[1]))
    assert dict(found.bound) == {"amount": "7", "name": "Bob May"}


def test_a_query_without_the_slots_does_not_fit():
    assert not match_query(OWN, "List my notes", SLOTS).fits


def test_a_sentence_of_a_longer_request_fits():
    query = 'Archive all. Then: Send 7 dollars to Bob May for "food"'
    assert sentences_of(query) == ["Archive all.", 'Send 7 dollars to Bob May for "food"']
    found = best_match(OWN, query, SLOTS)
    assert (found.fits, found.stray, found.text("amount")) == (True, (), "7")
    assert best_match(OWN, "List my notes", SLOTS).query == "List my notes"


def test_two_queries_differ_in_wording_or_in_two_slots():
    first = match_query(OWN, OWN, SLOTS)
    one_slot = match_query(OWN, OWN.replace("20", "30"), SLOTS)
    two_slots = match_query(OWN, OWN.replace("20", "30").replace("rent", "food"), SLOTS)
    wording = match_query(OWN, "Please " + OWN, SLOTS)
    assert not structurally_different(first, one_slot)
    assert structurally_different(first, one_slot, differing=1)
    assert structurally_different(first, two_slots)
    assert structurally_different(first, wording)
    assert two_different([first, one_slot, two_slots])
    assert not two_different([first, first])


def test_a_literal_of_some_queries_only_is_free():
    queries = [OWN, OWN.replace("rent", "food")]
    assert free_literals(["rent", "dollars", "inbox", 20, 1, True, None], queries) == ("rent",)
    assert free_literals([2], queries) == ()  # 20 holds no 2


def test_a_template_names_the_slots():
    assert template(OWN, SLOTS) == 'Send {amount} dollars to {name} for "{note}"'
