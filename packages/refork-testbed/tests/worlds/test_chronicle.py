"""Chronicles: texts that agree with themselves, and whose choices can be told from them."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest

from refork_testbed.worlds.chronicle import (
    _PART,
    ASIDES,
    EVENTS,
    GOODS,
    MEN,
    NUMBERS,
    TOWNS,
    TRADES,
    WOMEN,
    _Writer,
    chronicles,
    words,
)

PERSON = "|".join([*MEN, *WOMEN, *(f"the {trade}" for trade in TRADES), "he", "she"])
THINGS = "|".join(form for pair in GOODS for form in pair)
SLOTS = {
    **dict.fromkeys("AOBGTPQ", PERSON),
    "he": "he|she",
    "him": "him|her",
    "his": "his|her",
    "year": r"\d{4}",
    "town": "|".join(TOWNS),
    "place": "|".join(TOWNS),
    "n": "|".join(NUMBERS),
    "goods": THINGS,
    "was": "was|were",
    "dealtwas": "was|were",
    "dealt": f"(?:{'|'.join(NUMBERS)}) (?:{THINGS})",
    "price": r"\d\d",
    "coin": "pence|shillings",
    "paid": r"\d\d (?:pence|shillings)",
    "nights": "nights?",
    "weeks": "weeks?",
}


def shape(wording):
    """A wording as an expression, with a group for every choice and slot."""
    parts = [
        re.escape(plain) if plain else f"({choice or SLOTS[slot]})"
        for choice, slot, plain in _PART.findall(wording)
    ]
    return re.compile("".join(parts))


SHAPES = [shape(wording) for event in EVENTS.values() for wording in event.wordings]


def sentences(text):
    """All but the first, without asides and as in the middle of a sentence."""
    for sentence in text[:-1].split(". ")[1:]:
        plain = next((sentence.removesuffix(f", {a}") for a in ASIDES if sentence.endswith(a)), sentence)
        yield plain[0].lower() + plain[1:] if not plain.startswith((*MEN, *WOMEN)) else plain


@pytest.fixture(scope="module")
def found():
    return list(chronicles(5, 200))


def test_the_same_seed_writes_the_same_and_others_differ(found):
    assert list(chronicles(5, 3)) == found[:3]
    assert len({item.text for item in (*found, *chronicles(6, 3))}) == 203


def test_the_first_sentence_names_the_people_again(found):
    for item in found:
        people = item.opening.partition(": ")[2]
        town = item.opening.split()[2]
        assert item.text.startswith(f"In {town} lived {people} ")


def test_every_sentence_is_told_in_exactly_one_wording(found):
    for sentence in itertools.chain.from_iterable(sentences(item.text) for item in found):
        fits = [match for expression in SHAPES if (match := expression.fullmatch(sentence))]
        assert len(fits) == 1, sentence


def test_numbers_agree(found):
    text = " ".join(item.text for item in found)
    many = "|".join(NUMBERS[1:])
    assert not re.search(rf"\b(?i:one) (?:{'|'.join(pair[1] for pair in GOODS)}|weeks|nights)\b", text)
    assert not re.search(rf"\b(?i:{many}) (?:{'|'.join(pair[0] for pair in GOODS)}|week|night)\b", text)
    assert not re.search(rf"(?i:one) (?:{THINGS}) were\b", text)
    assert not re.search(rf"(?i:{many}) (?:{THINGS}) was\b", text)


def test_a_payment_is_that_of_the_last_deal_and_years_advance(found):
    deal = re.compile(rf"({'|'.join(NUMBERS)}) ({THINGS})(?: to [^.,]*)?(?: and asked)? for (\d\d \w+)")
    paid = re.compile(rf"[Ff]or the ((?:{'|'.join(NUMBERS)}) (?:{THINGS})) [^.]* (?:paid|gave) (\d\d \w+)")
    seen = 0
    for item in found:
        last, year = None, int(re.search(r"\d{4}", item.opening)[0])
        for sentence in sentences(item.text):
            if made := deal.search(sentence):
                last = (f"{made[1]} {made[2]}", made[3])
            if told := paid.match(sentence):
                seen += 1
                assert (told[1], told[2]) == last
            for now in re.findall(r"\d{4}", sentence):
                assert int(now) > year
                year = int(now)
    assert seen > 50


def test_pronouns_name_the_last_subject():
    for number in range(100):
        writer = _Writer(np.random.default_rng(number))
        writer.opening()
        for _ in range(12):
            before = writer.subject
            said = writer.sentence()
            if said.startswith(("He ", "She ")):
                assert before is writer.subject
                assert said.startswith("She ") == before.woman


def test_surprise_is_minus_the_log_of_the_chance_of_the_choices():
    writer = _Writer(np.random.default_rng(0))
    picked = [writer.pick([1.0, 3.0]) for _ in range(4000)]
    # Five standard errors of a share of 3/4 in 4000.
    assert np.mean(picked) == pytest.approx(0.75, abs=5 * math.sqrt(0.75 * 0.25 / 4000))
    assert writer.surprise == pytest.approx(
        -sum(math.log(0.75) if choice else math.log(0.25) for choice in picked)
    )
    assert writer.pick([0.0, 2.0, 0.0]) == 1


def test_words_are_all_the_words(found):
    known = set(words())
    for item in found:
        assert set(re.findall(r"[A-Za-z]+", f"{item.opening} {item.text}")) <= known
