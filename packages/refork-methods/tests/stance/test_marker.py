from __future__ import annotations

import numpy as np
import pytest

from refork.errors import BadInput, Mismatch
from refork.policies.scripted import ScriptedPolicy
from refork.types import token_array
from refork_methods.stance.marker import (
    Marker,
    Span,
    find,
    find_thinking,
    marker_of,
    never_opened,
    opened_by,
    same_ids,
)

OPEN, CLOSE = [7], [8, 9]
MARKER = Marker(token_array(OPEN), token_array(CLOSE))
PROMPT = token_array([1, 2, 3])


def span(said, prompt=PROMPT, marker=MARKER):
    return find_thinking(token_array(prompt), token_array(said), marker)


def test_the_span_is_between_the_markers():
    found = span([7, 4, 5, 6, 8, 9, 2, 2])
    assert (found.begin, found.end, found.answer, found.closed, found.length) == (1, 4, 6, True, 3)


def test_the_prompt_may_open_the_thinking():
    assert span([4, 8, 9, 2], prompt=[1, 7]) == Span(0, 1, 3, closed=True)
    assert opened_by(token_array([1, 7]), MARKER)
    assert not opened_by(token_array([1, 7, 8, 9]), MARKER)


def test_an_empty_closed_thinking_in_the_prompt_leaves_an_answer_only():
    found = span([4, 5], prompt=[1, 7, 8, 9])
    assert not found.thought
    assert (found.length, found.answer) == (0, 0)


def test_without_an_opening_marker_it_begins_with_the_turn():
    assert span([4, 8, 9, 2], marker=Marker(token_array([]), token_array(CLOSE))).begin == 0


def test_half_a_channel_marker_does_not_close():
    assert not span([7, 4, 8, 5, 9]).closed
    assert find(token_array([8, 8, 9]), token_array(CLOSE)) == 1
    assert find(token_array([8]), token_array(CLOSE)) is None


@pytest.mark.parametrize(
    ("share", "kept"), [(0.2, 1), (0.4, 2), (0.6, 3), (0.8, 4), (1.0, 5), (0.01, 1), (0.39, 1), (0.999, 4)]
)
def test_a_cut_keeps_whole_tokens_and_at_least_one(share, kept):
    assert Span(2, 7, 9, closed=True).cut(share) == 2 + kept


def test_thinking_that_never_ends_or_never_begins_is_a_span_that_says_so():
    assert span([7, 4, 5]) == Span(1, 3, 3, closed=False)
    assert span([4, 5]) == Span(0, 0, 0, closed=False, thought=False, opened=False)
    assert "any of 3 turns" in never_opened(3).what


def test_a_prefix_with_other_ids_is_refused():
    same_ids(token_array([1, 2]), token_array([1, 2]), "node")
    with pytest.raises(Mismatch, match="token 1 is 3, the record has 2"):
        same_ids(token_array([1, 2]), token_array([1, 3]), "node")
    with pytest.raises(Mismatch, match="token 2 is nothing"):
        same_ids(token_array([1, 2, 3]), token_array([1, 2]), "node")


def test_refusals():
    with pytest.raises(BadInput, match="closing marker is empty"):
        Marker(token_array(OPEN), token_array([]))
    for share in (0, 1.1, -0.2, np.nan):
        with pytest.raises(BadInput, match=r"\(0, 1\]"):
            Span(0, 5, 6, closed=True).cut(share)
    with pytest.raises(BadInput, match="no thinking token"):
        Span(0, 0, 1, closed=True).cut(0.5)


def test_markers_from_text_ids_and_formats():
    policy = ScriptedPolicy.from_text(lambda text: {"": 1.0}, ["<think>", "</think>"])
    by_name, by_text = marker_of(policy, "think"), marker_of(policy, "</think>", "<think>")
    assert [by_name.open.tolist(), by_name.close.tolist()] == [by_text.open.tolist(), by_text.close.tolist()]
    assert by_name.banned == (int(policy.encode("</think>")[0]),)
    ids = marker_of(policy, [8, 9], [7], banned=[8, 0])
    assert (ids.open.tolist(), ids.close.tolist(), ids.banned) == ([7], [8, 9], (8, 0))
    assert len(marker_of(policy, "harmony").close) > 1
