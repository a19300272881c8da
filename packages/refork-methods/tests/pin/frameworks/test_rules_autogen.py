"""The closed forms against the installed autogen-core: every message of every history, no tolerance."""

import numpy as np
import pytest

from pin.frameworks.histories import chat, drawn, words
from refork.errors import BadInput
from refork_methods.pin.frameworks.autogen import AutoGenContextCompactor
from refork_methods.pin.frameworks.rules_autogen import buffered, head_and_tail, token_limited
from refork_methods.pin.frameworks.turns import turns


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


#: Contexts beside their closed forms, which take (calls, results, tokens), one entry a turn.
CONTEXTS = [
    *(
        (AutoGenContextCompactor.buffered(n), lambda _, results, __, n=n: buffered(results, n))
        for n in (1, 2, 3, 5, 8, 13, 40)
    ),
    *(
        (
            AutoGenContextCompactor.head_and_tail(*ends),
            lambda calls, results, _, ends=ends: head_and_tail(calls, results, *ends),
        )
        for ends in [(1, 1), (1, 6), (2, 3), (3, 2), (5, 5), (8, 1)]
    ),
    *(
        (
            AutoGenContextCompactor.token_limited(limit, words),
            lambda _, results, tokens, limit=limit: token_limited(tokens, results, limit),
        )
        for limit in (1, 5, 12, 30, 60, 100, 1000)
    ),
]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("compactor", "rule"), CONTEXTS, ids=[c.name for c, _ in CONTEXTS])
def test_what_a_context_shows(seed, compactor, rule):
    history = begun(seed)
    np.testing.assert_array_equal(rule(*marks(history)), shown(compactor, history))


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
