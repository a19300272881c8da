"""The closed forms against the installed autogen-core: every message of every history, no tolerance."""

import numpy as np
import pytest

from pin.frameworks.histories import chat, drawn, words
from refork.errors import BadInput
from refork_methods.pin.frameworks.autogen import AutoGenContextCompactor
from refork_methods.pin.frameworks.rules_autogen import buffered, head_and_tail, token_limited
from refork_methods.pin.frameworks.turns import turns

SIZES = [1, 2, 3, 5, 8, 13, 40]


def begun(seed):
    """A history that may begin in the middle, so with the results of calls that are gone."""
    return drawn(seed, 6 + 2 * seed)[seed % 4 :]


def marks(history):
    """Of every turn: whether it is a call, whether it is a result, its tokens."""
    found = turns(history)
    calls = np.array([bool(t[0].get("tool_calls")) for t in found])
    results = np.array([t[0]["role"] == "tool" for t in found])
    return calls, results, np.array([words(t) for t in found])


def shown(compactor, history):
    """Of every turn: whether the real context shows all of it (it never shows a part)."""
    kept = {m["id"] for m in compactor.compact(history).messages}
    found = [{m["id"] in kept for m in turn} for turn in turns(history)]
    assert all(len(one) == 1 for one in found)
    return np.array([one.pop() for one in found])


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("size", SIZES)
def test_buffered(seed, size):
    history = begun(seed)
    _, results, _ = marks(history)
    real = shown(AutoGenContextCompactor.buffered(size), history)
    np.testing.assert_array_equal(buffered(results, size), real)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("head", "tail"), [(1, 1), (1, 6), (2, 3), (3, 2), (5, 5), (8, 1)])
def test_head_and_tail(seed, head, tail):
    history = begun(seed)
    calls, results, _ = marks(history)
    real = shown(AutoGenContextCompactor.head_and_tail(head, tail), history)
    np.testing.assert_array_equal(head_and_tail(calls, results, head, tail), real)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("limit", [1, 5, 12, 30, 60, 100, 1000])
def test_token_limited(seed, limit):
    history = begun(seed)
    _, results, tokens = marks(history)
    real = shown(AutoGenContextCompactor.token_limited(limit, words), history)
    np.testing.assert_array_equal(token_limited(tokens, results, limit), real)


@pytest.mark.parametrize("length", [4, 9, 20])
@pytest.mark.parametrize("rule_at", [0, 1, 3])
@pytest.mark.parametrize("size", [1, 3, 9, 20])
def test_a_rule_is_in_a_buffer_iff_it_is_among_the_last(length, rule_at, size):
    history = chat(length, rule_at)
    kept = AutoGenContextCompactor.buffered(size).compact(history).messages
    assert (history[rule_at] in kept) == (rule_at >= length - size)


@pytest.mark.parametrize("head", [1, 2, 5])
@pytest.mark.parametrize("tail", [1, 4])
def test_head_and_tail_always_shows_the_first(head, tail):
    history = chat(30)
    result = AutoGenContextCompactor.head_and_tail(head, tail).compact(history)
    assert result.messages[0] == history[0]
    assert [m["content"] for m in result.messages if m["id"] in result.inserted] == [
        f"Skipped {30 - head - tail} messages."
    ]


def test_a_token_limit_keeps_the_first_message_as_long_as_it_fits():
    history = chat(30)
    alone = words(history[:1])
    fits = AutoGenContextCompactor.token_limited(alone, words).compact(history)
    assert [m["id"] for m in fits.messages] == ["m0"]
    assert AutoGenContextCompactor.token_limited(alone - 1, words).compact(history).messages == ()


def test_settings_under_one_are_refused():
    none = np.zeros(3, dtype=bool)
    with pytest.raises(BadInput, match="size is 0"):
        buffered(none, 0)
    with pytest.raises(BadInput, match="head is 0"):
        head_and_tail(none, none, 0, 1)
    with pytest.raises(BadInput, match="limit is 0"):
        token_limited(np.ones(3, dtype=int), none, 0)
