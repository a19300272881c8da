"""A trajectory as turns: what was shown and what was said, whole, with its token ids.

One turn may lie in several nodes: a fork cuts it, an edit puts tokens in, and a rewritten context carries its
beginning. Whoever needs a conversation, in messages or in token ids, reads it here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadPoint
from refork.tree.node import Node, Step, Trajectory
from refork.types import IntArray, Json, Message, token_array

#: What a rewrite node keeps of a turn that it carries the beginning of: its text, and how many of the node's
#: last token ids are of it.
PENDING, PENDING_TOKENS = "pending", "pending_tokens"
_NONE: Final = token_array([])


@final
@dataclass(frozen=True, slots=True)
class TurnPiece:
    """A part of a turn: ``given`` where it was put there, not said.

    ``forced``: how many of its first tokens the policy was made to say. ``step`` is None for the beginning
    that a rewritten context carries.
    """

    text: str
    tokens: IntArray | None
    given: bool
    forced: int = 0
    step: Step | None = None


@final
@dataclass(frozen=True, slots=True)
class Turn:
    """What was said in one turn: the action steps it lies in, after the rewrite that carries its beginning.

    One of both is always there.
    """

    steps: tuple[Step, ...]
    opening: Step | None = None

    @property
    def node(self) -> Node:
        """The last node of the turn."""
        last = self.steps[-1] if self.steps else self.opening
        assert last is not None
        return last.node

    @property
    def pieces(self) -> tuple[TurnPiece, ...]:
        """The parts of the turn in their order; without any text where a turn was cut at its beginning."""
        found = []
        if self.opening is not None:
            count = _carried(self.opening.node)
            ids = self.opening.tokens
            known = None if ids is None or count is None else ids[len(ids) - count :]
            found.append(TurnPiece(str(self.opening.node.extra[PENDING]), known, given=True))
        for step in self.steps:
            put = step.node.extra.get("edit") == "insert"
            forced = 0 if put else len((step.node.settings or {}).get("forced") or ())
            size = step.node.length if step.keep is None else step.keep
            found.append(TurnPiece(step.text, step.tokens, put, min(forced, size), step))
        return tuple(found)

    @property
    def text(self) -> str:
        """All that was said."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def tokens(self) -> IntArray | None:
        """The token ids of all that was said; None where some of them are not known."""
        return _joined(piece.tokens for piece in self.pieces)

    def values(self, name: str) -> NDArray[np.float64] | None:
        """Numbers of a node's array (``logprobs``), one per token of the turn, NaN where it was given.

        None where a token id, or the number of something that was said, is not known.
        """
        found: list[NDArray[np.float64]] = []
        for piece in self.pieces:
            given = None if piece.step is None else getattr(piece.step.node, name)
            if piece.tokens is None or (given is None and not piece.given and len(piece.tokens)):
                return None
            size = len(piece.tokens)
            found.append(np.full(size, np.nan) if given is None else given[:size].astype(np.float64))
        return np.concatenate(found) if found else np.zeros(0)

    @property
    def given(self) -> NDArray[np.bool_]:
        """Which tokens of the turn the policy did not choose: put there, or forced on it."""
        found = []
        for piece in self.pieces:
            mask = np.full(0 if piece.tokens is None else len(piece.tokens), piece.given)
            mask[: piece.forced] = True
            found.append(mask)
        return np.concatenate(found) if found else np.zeros(0, dtype=np.bool_)

    @property
    def whole(self) -> bool:
        """Whether the turn is one node, as it was recorded."""
        return self.opening is None and len(self.steps) == 1 and self.steps[0].keep is None

    @property
    def message(self) -> Message | None:
        """The turn as a message; None where nothing of what was said is known."""
        if self.whole and self.node.message is not None:
            return self.node.message
        text = self.text
        first = self.steps[0] if self.opening is None and self.steps else None
        if (
            first is not None
            and first.keep is None
            and (first.node.message or {}).get("content") == first.text
        ):
            # What a log has beside the text, as a reasoning, stays with a turn that goes on from it.
            return {**(first.node.message or {}), "content": text}
        known = bool(self.steps) and all(step.node.offsets is not None for step in self.steps)
        return {"role": "assistant", "content": text} if text or known else None

    def goes_on(self, step: Step) -> bool:
        """Whether an action belongs to this turn; else it is a turn of its own, as in a log."""
        if not self.steps:
            return True
        last = self.steps[-1]
        edited = "edit" in last.node.extra or "edit" in step.node.extra
        return last.keep is not None or edited or step.node.message is None


@final
@dataclass(frozen=True, slots=True)
class ContextStep:
    """What a policy was shown: a task, an observation, or a rewritten context."""

    step: Step

    @property
    def node(self) -> Node:
        """The node that shows it."""
        return self.step.node

    @property
    def messages(self) -> list[Message]:
        """Its messages; none where a template's tokens have a node of their own."""
        node, keep = self.step.node, self.step.keep
        if node.extra.get("scaffold") or keep == 0:
            return []
        if node.kind == "rewrite" or node.extra.get("messages"):
            return [dict(one) for one in node.extra.get("messages") or ()]
        if self._cut and node.offsets is not None:
            return [{**(node.message or {"role": "user"}), "content": self.step.text}]
        if node.message is not None:
            return [node.message]
        return [{"role": "user", "content": node.text}] if node.text else []

    @property
    def tokens(self) -> IntArray | None:
        """Its token ids, without the beginning of a turn that a rewrite carries; None where not known."""
        ids = self.step.tokens
        if self.step.node.kind != "rewrite" or not self.step.node.extra.get(PENDING):
            return ids
        count = _carried(self.step.node)
        return None if ids is None or count is None else ids[: self.step.node.length - count]

    @property
    def exact(self) -> bool:
        """Whether the messages are what the token ids say: not where a node is cut and keeps no offsets."""
        node = self.step.node
        plain = node.offsets is not None and not node.extra.get("messages")
        return not self._cut or self.step.keep == 0 or plain

    @property
    def _cut(self) -> bool:
        return self.step.keep is not None and self.step.keep < self.step.node.length


Part: TypeAlias = ContextStep | Turn


def parts_of(steps: Iterable[Step]) -> list[Part]:
    """What steps of a trajectory show and say, in order; verdicts are neither.

    A turn that was open when the context was rewritten goes on after it, with as much of its beginning as the
    rewrite carries: it is there once, whole.
    """
    parts: list[Part] = []
    for step in steps:
        last = parts[-1] if parts else None
        if step.node.kind == "verdict":
            continue
        if step.node.kind == "action":
            if isinstance(last, Turn) and last.goes_on(step):
                parts[-1] = replace(last, steps=(*last.steps, step))
            else:
                parts.append(Turn((step,)))
            continue
        carried = step.node.kind == "rewrite" and bool(step.node.extra.get(PENDING))
        if carried and step.keep is not None and step.keep < step.node.length:
            carried = _reaches_turn(step)
        if step.node.kind == "rewrite" and isinstance(last, Turn) and PENDING in step.node.extra:
            # The rewrite carries the open turn: with both, its beginning would be there twice.
            parts.pop()
        parts.append(ContextStep(step))
        if carried:
            parts.append(Turn((), opening=step))
    return parts


def last_said(trajectory: Trajectory, *, answered: bool = False) -> list[Turn]:
    """The turns that a trajectory ends with, verdicts aside; none where it ends with something shown.

    ``answered``: the last ones, though something was shown after them.
    """
    found: list[Turn] = []
    for part in reversed(parts_of(trajectory)):
        if isinstance(part, Turn):
            found.append(part)
        elif found or not answered:
            break
    return found[::-1]


def carrying(pending: str, tokens: int) -> Json:
    """What a rewrite node says of the turn whose beginning ends it."""
    return {PENDING: pending, PENDING_TOKENS: tokens}


def _carried(node: Node) -> int | None:
    """How many token ids at a rewrite's end are of an open turn; None where an older tree does not say."""
    count = node.extra.get(PENDING_TOKENS)
    return count if isinstance(count, int) and 0 <= count <= node.length else None


def _reaches_turn(step: Step) -> bool:
    """Whether a cut rewrite holds any of the turn that it carries: it does not, or nobody knows what of it.

    Raises:
        BadPoint: it is cut inside the turn.
    """
    count = _carried(step.node)
    if count is not None and step.keep == step.node.length - count:
        return False
    raise BadPoint(
        "this rewritten context is cut inside, where nobody knows what of its text is left",
        where=f"node {step.node.id[:12]}, token {step.keep}",
        hint="fork at its end, or inside a turn",
    )


def _joined(arrays: Iterable[IntArray | None]) -> IntArray | None:
    found = []
    for one in arrays:
        if one is None:
            return None
        found.append(one)
    return token_array(np.concatenate(found)) if found else _NONE


def turn_begun(trajectory: Trajectory, encode: Callable[[str], IntArray]) -> int:
    """Tokens at the end of a trajectory that are of the turn it ends in; 0 where it ends between turns.

    ``encode`` is that of the policy: an older tree does not say how long a rewrite's part of a turn is.
    """
    total = 0
    for step in reversed(trajectory.context):
        if step.node.kind == "action":
            total += 0 if step.tokens is None else len(step.tokens)
            continue
        pending = step.node.extra.get(PENDING) if step.node.kind == "rewrite" else None
        if not pending:
            return total
        count = _carried(step.node)
        return total + (len(encode(pending)) if count is None else count)
    return total
