"""Which messages each AutoGen context shows its model, in closed form.

Every function takes arrays over the framework's messages (one entry each, oldest first; the results of one
round of calls are one message) and returns which are visible. They were derived from autogen-core 0.7.5 and
are compared with it, message by message, in the tests. The agent's ``system_message`` is in none: it stands
outside the context and is always visible.

Source: arXiv:2606.22528 drives the buffered context only; the rules are ours.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int

from refork.errors import BadInput
from refork.stats.results import Array


def buffered(results: Bool[Array, "n"], size: int) -> Bool[Array, "n"]:
    """Visible under ``BufferedChatCompletionContext(size)``: index >= n - size.

    But for the first of them where it is a function result (``results``), since its call is gone.
    Raises: BadInput for a size under 1.
    """
    _at_least_one(size=size)
    n = len(results)
    start = max(n - size, 0)
    return _from(start + int(start < n and bool(results[start])), n)


def head_and_tail(
    calls: Bool[Array, "n"], results: Bool[Array, "n"], head: int, tail: int
) -> Bool[Array, "n"]:
    """Visible under ``HeadAndTailChatCompletionContext(head, tail)``.

    All where n <= head + tail. Else the first ``head`` but for the last of them where it is a function call
    (``calls``), and the last ``tail`` but for the first of them where it is a function result. So index 0 is
    always visible unless head is 1 and it is a call; a rule is none.
    Raises: BadInput for a head or tail under 1.
    """
    _at_least_one(head=head, tail=tail)
    n = len(results)
    if n <= head + tail:
        return np.ones(n, dtype=np.bool_)
    end = head - int(calls[head - 1])
    start = n - tail + int(results[n - tail])
    return np.asarray(~_from(end, n) | _from(start, n))


def token_limited(tokens: Int[Array, "n"], results: Bool[Array, "n"], limit: int) -> Bool[Array, "n"]:
    """Visible under ``TokenLimitedChatCompletionContext(token_limit=limit)``, for tokens that add up.

    It takes the message at half the length away until the rest fits, so what stays is the first ceil(r / 2)
    and the last floor(r / 2), for the largest r that fits. The first of them goes where it is a function
    result. So index 0 stays whenever it fits alone.
    Raises: BadInput for a limit under 1.
    """
    _at_least_one(limit=limit)
    n = len(tokens)
    sums = np.concatenate([[0], np.cumsum(tokens)])
    for kept in range(n, -1, -1):
        end, start = (kept + 1) // 2, n - kept // 2
        if sums[end] + sums[n] - sums[start] <= limit:
            break
    visible = np.asarray(~_from(end, n) | _from(start, n))
    if kept and results[0]:
        visible[0] = False
    return visible


def _from(start: int, n: int) -> Bool[Array, "n"]:
    return np.asarray(np.arange(n) >= start)


def _at_least_one(**values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise BadInput(f"{name} is {value}; it must be at least 1")
