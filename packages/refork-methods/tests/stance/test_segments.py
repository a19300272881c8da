from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refork.errors import BadInput
from refork_methods.stance.segments import (
    annotate,
    chunks,
    forward_filled,
    majority,
    oscillations,
    stance_segments,
    word_chunks,
)


def signs(text):
    return np.array([{"+": 1, "-": -1, "0": 0}[c] for c in text])


@pytest.mark.parametrize(
    ("labels", "turns"),
    [("0+0--0+", 2), ("", 0), ("000", 0), ("+++", 0), ("+-", 1), ("+0-", 1), ("-0+0-", 2), ("0-0-+", 1)],
)
def test_oscillations_of_hand_written_labels(labels, turns):
    assert len(oscillations(signs(labels))) == turns


def test_zeros_take_the_last_sign_and_leading_ones_stay():
    assert forward_filled(signs("0+0--0+")).tolist() == [0, 1, 1, -1, -1, -1, 1]
    found = stance_segments(signs("0+0--0+"))
    assert [(s.sign, s.begin, s.end, s.length) for s in found] == [
        (0, 0, 1, 1),
        (1, 1, 3, 2),
        (-1, 3, 6, 3),
        (1, 6, 7, 1),
    ]


def test_short_sides_can_be_left_out():
    assert len(oscillations(signs("++-+++"), 1, 2)) == 1
    assert len(oscillations(signs("++-+++"), 2, 1)) == 1
    assert len(oscillations(signs("++-+++"), 2, 2)) == 0
    with pytest.raises(BadInput, match="at least one chunk"):
        oscillations(signs("+-"), 0, 1)


@given(st.lists(st.sampled_from([-1, 0, 1]), max_size=30))
def test_segments_cover_the_labels_and_turn_at_every_neighbour(labels):
    found = stance_segments(np.array(labels))
    assert sum(s.length for s in found) == len(labels)
    assert all(a.end == b.begin and a.sign != b.sign for a, b in itertools.pairwise(found))
    assert len(oscillations(np.array(labels))) == max(0, sum(s.sign != 0 for s in found) - 1)


def test_sentences_are_merged_up_to_the_limit_and_short_rests_dropped():
    text = "A" * 90 + ". " + "B" * 90 + "! " + "C" * 90 + "? Short."
    found = chunks(text)
    assert [(c.begin, c.end) for c in found] == [(0, 183), (184, 282)]
    assert found[1].text.endswith("Short.")
    assert [c.text for c in chunks("One. Two.", most=4, least=2)] == ["One.", "Two."]
    assert chunks("Tiny.") == []
    assert len(chunks("D" * 500 + ".")) == 1, "a long sentence stays whole"
    assert [c.text for c in word_chunks(" for against ")] == ["for", "against"]


@given(st.text("ab .!?\n", max_size=400))
def test_chunks_are_parts_of_the_text_in_order(text):
    found = chunks(text, most=40, least=3)
    assert all(text[c.begin : c.end] == c.text and len(c.text) > 3 for c in found)
    assert all(a.end <= b.begin for a, b in itertools.pairwise(found))


def test_the_majority_of_three_and_what_it_cannot_resolve():
    votes = np.array([[1, 1, 0], [1, 0, -1], [-1, -1, -1], [1, 1, np.nan]])
    found = majority(votes)
    assert found[[0, 2]].tolist() == [1, -1]
    assert np.isnan(found[[1, 3]]).all()
    with pytest.raises(BadInput, match="odd number"):
        majority(votes[:, :2])


def test_annotators_are_asked_chunk_by_chunk_or_all_at_once():
    class Whole:
        def labels(self, prompt, parts):
            return [len(prompt) - 1, None]

    def broken(part):
        if part == "b":
            raise ValueError(part)
        return 0

    table = annotate([lambda part: 1, Whole(), broken], "p", ["a", "b"])
    assert table[0].tolist() == [1, 0, 0]
    assert table[1, 0] == 1
    assert np.isnan(table[1, 1:]).all()
    for odd in (2, -0.5, "1", np.array([1, 0])):
        with pytest.raises(BadInput, match="must give"):
            annotate([lambda part, odd=odd: odd], "p", ["a"])
    assert annotate([lambda part: np.int64(-1)], "p", ["a"]).tolist() == [[-1.0]]
    with pytest.raises(BadInput, match=r"\+1, 0 or -1"):
        stance_segments(np.array([1.0, np.nan]))
