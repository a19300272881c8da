"""A run of the model loop as data: its turns, what they cost, and the case file it ended in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

from refork.chat import Reply
from refork.policies.base import Cost, total_cost
from refork.tool_calls import ToolCall
from refork.types import Json, Message
from refork_methods.localize.casefile import CaseFile
from refork_methods.localize.facts import Span

#: What a turn was: a call that ran, the same call again, a call that could not be read, a cut or over-long
#: answer, one without call and case file, a case file that ended the run, one that does not stand.
Kind: TypeAlias = Literal["call", "repeat", "malformed", "length", "silent", "case", "rejected"]


@final
@dataclass(frozen=True, slots=True)
class Turn:
    """One answer of the model and what it was told then.

    ``messages``: the answer, then what was told. ``spans``: lines that it showed. ``collapsed``: earlier
    turns that stood as single lines when the model was asked.
    """

    number: int
    kind: Kind
    reply: Reply
    messages: tuple[Message, ...]
    call: ToolCall | None = None
    repairs: tuple[str, ...] = ()
    spans: tuple[Span, ...] = ()
    error: str | None = None
    line: str = ""
    collapsed: int = 0
    offered: bool = True

    def to_json(self) -> Json:
        """Plain fields, without seconds and money: the same for the same turn."""
        return {
            "turn": self.number,
            "kind": self.kind,
            "messages": [dict(one) for one in self.messages],
            "finish": self.reply.finish,
            "call": None if self.call is None else [self.call.name, self.call.arguments],
            "repairs": list(self.repairs),
            "shown": [[one.path, one.start, one.end] for one in self.spans],
            "error": self.error,
            "collapsed": self.collapsed,
            "offered": self.offered,
        }

    def bytes(self) -> bytes:
        """The turn as bytes, to compare two runs by."""
        return json.dumps(self.to_json(), sort_keys=True, ensure_ascii=False).encode()


@final
@dataclass(frozen=True, slots=True)
class Ledger:
    """What a run used, in total and by turn; None: some answer did not say."""

    by_turn: tuple[Cost, ...]

    @property
    def total(self) -> Cost:
        """All turns together."""
        return total_cost(self.by_turn)

    @property
    def tokens(self) -> int | None:
        """Tokens in and out together."""
        total = self.total
        if total.tokens_in is None or total.tokens_out is None:
            return None
        return total.tokens_in + total.tokens_out

    def to_json(self) -> Json:
        """Totals, and tokens in and out of each turn."""
        total = self.total
        return {
            "turns": len(self.by_turn),
            "tokens": self.tokens,
            "tokens_in": total.tokens_in,
            "tokens_out": total.tokens_out,
            "seconds": total.seconds,
            "money": total.money,
            "by_turn": [[one.tokens_in, one.tokens_out] for one in self.by_turn],
        }


@final
@dataclass(frozen=True, slots=True)
class Trace:
    """A finished run: ``first`` messages, turns, case file; ``error``: why the model stopped answering."""

    issue: str
    model: str
    draw: int
    first: tuple[Message, ...]
    turns: tuple[Turn, ...]
    case: CaseFile
    error: str | None = None
    start: CaseFile | None = None

    @property
    def ledger(self) -> Ledger:
        """What it used."""
        return Ledger(tuple(turn.reply.cost for turn in self.turns))

    @property
    def viewed(self) -> dict[int, tuple[Span, ...]]:
        """The lines that each turn showed."""
        return {turn.number: turn.spans for turn in self.turns}

    def replies(self, before: int | None = None) -> tuple[Reply, ...]:
        """The model's answers of the turns below ``before``, or of all."""
        return tuple(turn.reply for turn in self.turns if before is None or turn.number < before)


def recovered(turns: Sequence[Turn]) -> dict[str, int]:
    """How often each part of the recovery layer acted."""
    kinds = [turn.kind for turn in turns]
    return {
        "repeated": kinds.count("repeat"),
        "repaired": sum(bool(turn.repairs) for turn in turns),
        "malformed": kinds.count("malformed"),
        "re-prompted": kinds.count("length") + kinds.count("silent"),
        "rejected": kinds.count("rejected"),
        "truncated": sum(turn.collapsed > 0 for turn in turns),
    }
