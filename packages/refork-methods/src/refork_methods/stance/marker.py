"""Where the thinking of a turn begins and ends, in token ids.

A template may put the opening marker into the prompt, so the span is looked for in what was said *and* in
what was asked. Ids are compared with ids: nothing is decoded, nothing is tokenised again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, final

import numpy as np

from refork.errors import BadInput, Mismatch
from refork.policies.base import Policy
from refork.types import IntArray, token_array

#: Markers by name: what opens the thinking, what closes it and begins the answer.
FORMATS: Final = {
    "think": ("<think>", "</think>"),
    "harmony": (
        "<|channel|>analysis<|message|>",
        "<|end|><|start|>assistant<|channel|>final<|message|>",
    ),
}


@final
@dataclass(frozen=True, slots=True)
class Marker:
    """Token ids that open the thinking (none: it begins with the turn) and that close it.

    In a channel format ``close`` ends one channel and starts the answer's. ``banned``: ids that may not
    be said while further thinking is forced, by default the first id of ``close``; add the end of the turn
    where the policy might stop instead of closing.
    """

    open: IntArray = field(repr=False)
    close: IntArray = field(repr=False)
    banned: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not len(self.close):
            raise BadInput("the closing marker is empty: the thinking would never end", where="marker")
        if not self.banned:
            object.__setattr__(self, "banned", (int(self.close[0]),))


def marker_of(
    policy: Policy,
    close: str | Sequence[int] = "</think>",
    opening: str | Sequence[int] = "<think>",
    banned: Sequence[int] = (),
) -> Marker:
    """A marker from texts or ids; the name of a format (``think``, ``harmony``) as ``close`` gives both.

    Raises: BadInput where the closing marker has no tokens.
    """
    if isinstance(close, str) and close in FORMATS:
        opening, close = FORMATS[close]

    def ids(part: str | Sequence[int]) -> IntArray:
        if isinstance(part, str):
            return policy.encode(part) if part else token_array([])
        return token_array(part)

    return Marker(ids(opening), ids(close), tuple(int(i) for i in banned))


@final
@dataclass(frozen=True, slots=True)
class Span:
    """The thinking among the said tokens: ids ``begin`` to ``end``; the answer begins at ``answer``.

    ``closed`` False: the marker never came, so ``end`` is where the tokens end and there is no answer.
    ``thought`` False: the prompt had closed an empty thinking already, so all that was said is the answer.
    ``opened`` False: neither prompt nor turn opens it, so there is neither thinking nor a known answer.
    """

    begin: int
    end: int
    answer: int
    closed: bool
    thought: bool = True
    opened: bool = True

    @property
    def length(self) -> int:
        """Thinking tokens."""
        return self.end - self.begin

    def cut(self, share: float) -> int:
        """Tokens of the turn that stand where ``max(1, floor(share * length))`` thinking tokens are kept.

        Raises: BadInput outside (0, 1], or where there is no thinking to cut.
        """
        if not 0 < share <= 1:
            raise BadInput(f"the cut is {share!r}; it must lie in (0, 1]", where="thinking")
        if self.length < 1:
            raise BadInput("there is no thinking token to keep", where="thinking")
        # The margin keeps a share such as 0.6 of 5 tokens at 3, which floats would make 2.
        return self.begin + max(1, int(np.floor(share * self.length + 1e-9)))


def find(tokens: IntArray, wanted: IntArray, start: int = 0) -> int | None:
    """Where ``wanted`` first begins in ``tokens`` at or after ``start``; None where it does not."""
    size = len(wanted)
    if not size or len(tokens) - start < size:
        return None
    windows = np.lib.stride_tricks.sliding_window_view(tokens[start:], size)
    hits = np.flatnonzero((windows == wanted).all(axis=1))
    return start + int(hits[0]) if len(hits) else None


def _last(tokens: IntArray, wanted: IntArray) -> int | None:
    back = find(tokens[::-1], wanted[::-1])
    return None if back is None else len(tokens) - back - len(wanted)


def opened_by(prompt: IntArray, marker: Marker) -> bool:
    """Whether a prompt has opened the thinking and not closed it again."""
    opened = _last(prompt, marker.open) if len(marker.open) else None
    return opened is not None and find(prompt, marker.close, opened + len(marker.open)) is None


def find_thinking(prompt: IntArray, generated: IntArray, marker: Marker) -> Span:
    """The thinking span of what was ``generated`` [m] after ``prompt`` [n]; empty if never opened."""
    begin, thought = 0, True
    if len(marker.open):
        # The turn before the prompt: a prompt may hold closed thinking of turns before this one.
        opened = find(generated, marker.open)
        if opened is not None:
            begin = opened + len(marker.open)
        else:
            # The last opening is this turn's; those of earlier turns come before it and are closed.
            asked = _last(prompt, marker.open)
            if asked is None:
                return Span(0, 0, 0, closed=False, thought=False, opened=False)
            thought = find(prompt, marker.close, asked + len(marker.open)) is None
    if not thought:
        return Span(0, 0, 0, closed=True, thought=False)
    closed = find(generated, marker.close, begin)
    if closed is None:
        return Span(begin, len(generated), len(generated), closed=False)
    return Span(begin, closed, closed + len(marker.close), closed=True)


def never_opened(count: int) -> BadInput:
    """What is said where none of ``count`` turns opens its thinking: the marker is wrong, not the turns."""
    return BadInput(
        f"the thinking is never opened in any of {count} turns",
        where="turns",
        hint="name the marker that opens it, or '' where it begins with the turn",
    )


def same_ids(recorded: IntArray, given: IntArray, where: str) -> None:
    """Refuse a prefix whose ids are not the recorded ones; what was sampled is what is run on from.

    Raises: Mismatch that names the first difference.
    """
    if np.array_equal(recorded, given):
        return
    size = min(len(recorded), len(given))
    differ = np.flatnonzero(recorded[:size] != given[:size])
    at = int(differ[0]) if len(differ) else size
    told = [str(int(ids[at])) if at < len(ids) else "nothing" for ids in (recorded, given)]
    raise Mismatch(
        f"the prefix is not the recorded one: token {at} is {told[1]}, the record has {told[0]}",
        where=where,
        hint="it was tokenised again somewhere; run on from the recorded token ids",
    )
