"""Log-probs of tokens in the two forms that OpenAI's interface has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from refork.serve.served import Delta, Top
from refork.types import Json

#: How a token is spelled.
Spell: TypeAlias = Callable[[int], str]

#: JSON has no infinity: what a token that cannot be drawn gets, as vLLM has it.
LEAST = -9999.0


def finite(value: float) -> float:
    """A log-prob that JSON can hold."""
    return max(float(value), LEAST)


def by_id(token: int) -> str:
    """A token's spelling that no other token has."""
    return f"token_id:{token}"


def completion_logprobs(
    tokens: Sequence[int],
    values: Sequence[float | None],
    tops: Sequence[Top | None] | None,
    ends: Sequence[int],
    begin: int,
    spell: Spell,
) -> Json:
    """The form of ``/v1/completions``; the first token begins at ``begin``, each ends at its ``ends``.

    Spellings that several tokens share keep the likeliest one's log-prob.
    """
    return {
        "tokens": [spell(token) for token in tokens],
        "token_logprobs": [None if value is None else finite(value) for value in values],
        "top_logprobs": None
        if tops is None
        else [_by_name(*row, spell) for row in zip(tops, tokens, values, strict=True)],
        "text_offset": [begin, *ends[:-1]] if len(ends) else [],
    }


def _by_name(top: Top | None, token: int, value: float | None, spell: Spell) -> dict[str, float] | None:
    """The likeliest tokens by name, and the one that was said."""
    if top is None:
        return None
    # Best first, so the likeliest of a name is written last.
    pairs = list(zip(top[0].tolist(), top[1].tolist(), strict=True))
    found = {spell(other): finite(one) for other, one in reversed(pairs)}
    if value is not None:
        found.setdefault(spell(token), finite(value))
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def chat_logprobs(delta: Delta, spell: Spell) -> list[Json]:
    """The form of ``/v1/chat/completions``: one entry a token."""
    tops: Sequence[Top | None] = delta.top or [None] * len(delta.tokens)
    return [
        {
            **_entry(token, value, spell),
            "top_logprobs": []
            if top is None
            else [_entry(t, v, spell) for t, v in zip(top[0].tolist(), top[1].tolist(), strict=True)],
        }
        for token, value, top in zip(delta.tokens, delta.logprobs, tops, strict=True)
    ]


def _entry(token: int, value: float, spell: Spell) -> Json:
    name = spell(token)
    known = None if "\ufffd" in name else list(name.encode())
    return {"token": name, "logprob": finite(value), "bytes": known}
