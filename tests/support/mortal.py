"""A policy that kills the process it speaks in when it is asked for one draw, opened by workers by name."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence

from refork.policies.base import Continuation, PolicyCard, Rendered, Request, Sampling
from refork.policies.scripted import ScriptedPolicy
from support.chain import TABLE


class Mortal:
    """The chain, but for the draws named: ``kill``: the process dies; ``break``: it raises."""

    def __init__(self, kills: frozenset[int] = frozenset(), breaks: frozenset[int] = frozenset()) -> None:
        self._inner = ScriptedPolicy.from_chain(TABLE)
        self._kills, self._breaks = kills, breaks

    @property
    def card(self) -> PolicyCard:
        return self._inner.card

    def encode(self, text):
        return self._inner.encode(text)

    def decode(self, tokens):
        return self._inner.decode(tokens)

    def render(self, history, tokens, new) -> Rendered:
        return self._inner.render(history, tokens, new)

    def logprobs(self, sequences):
        return self._inner.logprobs(sequences)

    def sample(self, requests: Sequence[Request], settings: Sampling) -> Iterator[Continuation]:
        asked = {request.noise.draw for request in requests}
        if asked & self._kills:
            os.kill(os.getpid(), signal.SIGKILL)
        if asked & self._breaks:
            raise ZeroDivisionError("this draw breaks")
        return self._inner.sample(requests, settings)


def mortal(draws: str = "") -> Mortal:
    return Mortal(kills=_numbers(draws))


def broken(draws: str = "") -> Mortal:
    return Mortal(breaks=_numbers(draws))


def other_weights() -> ScriptedPolicy:
    return ScriptedPolicy.from_replies(["something else"])


def _numbers(text: str) -> frozenset[int]:
    return frozenset(int(part) for part in text.split(",") if part)
