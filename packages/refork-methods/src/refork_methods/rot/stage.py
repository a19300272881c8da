"""One condition of one scenario, ready to be asked: the history, what compaction made of it, the request."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from refork.compaction import CompactionResult, Compactor, Counter, fate, holds
from refork.errors import BadChange
from refork.forking.change import Diff, Plan
from refork.forking.context import conversation
from refork.formats.openai_chat import text_of
from refork.policies.chat import tools_of
from refork.types import Json, Message
from refork_methods.rot.session import compaction_json, content_ids
from refork_methods.rot.survival import RuleSurvival, recall_of, survival_of


@dataclass(frozen=True, slots=True)
class Round:
    """One compaction: the history before it, and its result."""

    before: tuple[Message, ...]
    result: CompactionResult


@dataclass(frozen=True, slots=True)
class Stage:
    """A condition made into a context.

    ``history``: every message before the request, as if nothing was ever compacted. ``rounds``: the
    compactions, oldest first; empty where the condition has none. ``rest``: messages that came after the last
    one. ``request``: the turn that the agent is asked to answer. ``wanted``: how many compactions the
    condition asked for. ``tools``: the function schemas that the agent is given.
    """

    condition: str
    history: tuple[Message, ...]
    request: Message
    rounds: tuple[Round, ...] = ()
    rest: tuple[Message, ...] = ()
    wanted: int = 0
    compactor: str | None = None
    tools: tuple[Json, ...] = ()

    @property
    def asked(self) -> list[Message]:
        """The context as a policy is sent it: bare messages, the first of which carries the tools."""
        return bare(self.context, self.tools)

    @property
    def context(self) -> tuple[Message, ...]:
        """The exact messages that the agent is asked with."""
        if not self.rounds:
            return (*self.history, self.request)
        return (*self.rounds[-1].result.messages, *self.rest, self.request)

    @property
    def valid(self) -> bool:
        """Whether every compaction that the condition asked for really fired."""
        # All of them: with one round that did not fire, the context is not the one that the condition names.
        return sum(r.result.fired for r in self.rounds) >= self.wanted

    def survival(self, rule: str) -> RuleSurvival | None:
        """What is left of a rule in the context; None where nothing was compacted.

        Of several rounds the one counts in which the rule's bytes went.
        """
        if not self.rounds:
            return None
        if holds(self.context, rule):
            return RuleSurvival("visible", None)
        last = self.rounds[-1]
        lost = next(
            (r for r in self.rounds if fate(rule, r.before, r.result) in ("trimmed", "omitted")), last
        )
        new = {name for r in self.rounds for name in r.result.inserted}
        written = [m for m in last.result.messages if m.get("id") in new]
        recall = recall_of(rule, written) if written else None
        return RuleSurvival(survival_of(rule, lost.before, lost.result).fate, recall)

    def tokens(self, counter: Counter) -> tuple[int, int]:
        """Tokens of the whole history with the request, and of the context."""
        return counter([*self.history, self.request]), counter(self.context)

    @property
    def summary_calls(self) -> int:
        """Questions to the summariser, all rounds together."""
        return sum(len(r.result.calls) for r in self.rounds)

    def account(self) -> Json:
        """The record of the edge: before ids, after ids, summariser calls, who and why."""
        reasons = [r.result.reason for r in self.rounds if r.result.reason]
        return {
            "condition": self.condition,
            "compactor": self.compactor,
            "before": [str(m["id"]) for m in self.history],
            "after": [str(m["id"]) for m in self.context],
            "rounds": [
                {"before": [str(m["id"]) for m in r.before], **compaction_json(r.result)} for r in self.rounds
            ],
            "reason": "; ".join(reasons) or self.condition,
        }


def run_rounds(
    condition: str,
    segments: Sequence[Sequence[Message]],
    request: Message,
    compactor: Compactor,
    rest: Sequence[Message] = (),
) -> Stage:
    """Compact after every segment of a history, each time what the round before left and what came since.

    Raises: what the compactor raises (BadInput for an empty summary or a message without an id).
    """
    rounds: list[Round] = []
    now: tuple[Message, ...] = ()
    for segment in segments:
        before = (*now, *segment)
        result = compactor.compact(before)
        rounds.append(Round(before, result))
        now = result.messages
    history = tuple(m for segment in segments for m in segment) + tuple(rest)
    return Stage(condition, history, request, tuple(rounds), tuple(rest), len(rounds), compactor.name)


def bare(messages: Sequence[Message], tools: Sequence[Json] = ()) -> list[Message]:
    """The messages without our ids, which servers may refuse; tools are put on the first."""
    plain = [{key: value for key, value in m.items() if key != "id"} for m in messages]
    if tools and plain:
        plain[0] = {**plain[0], "tools": list(tools)}
    return plain


@dataclass(frozen=True, slots=True)
class NewContext:
    """The change of a fork that a stage is: another context, with the account of how it came to be."""

    stage: Stage
    kind: ClassVar[str] = "context"

    def touches(self) -> frozenset[str]:  # noqa: D102
        return frozenset({"messages", "tail"})

    def apply(self, plan: Plan) -> Plan:  # noqa: D102
        return replace(plan, messages=tuple(self.stage.asked), account=self.stage.account())

    def diff(self, plan: Plan) -> Diff:  # noqa: D102
        before = conversation(plan.trajectory).messages
        return Diff(self.stage.condition, _joined(before), _joined(self.stage.context))

    def to_json(self) -> Json:
        """Kind, condition, compactor and a digest of context and account; the rewrite node holds both."""
        body = json.dumps([self.stage.asked, self.stage.account()], sort_keys=True)
        digest = hashlib.blake2b(body.encode(), digest_size=16).hexdigest()
        return {
            "kind": self.kind,
            "condition": self.stage.condition,
            "compactor": self.stage.compactor,
            "digest": digest,
        }


def _joined(messages: Sequence[Message]) -> str:
    return "\n".join(text_of(m) for m in messages)


def compact_conversation(
    messages: Sequence[Message], compactor: Compactor, condition: str = "compaction"
) -> Stage:
    """A recorded conversation as a stage: all but its last message go through the compactor.

    Raises: BadChange where nothing stands before the request; what the compactor raises.
    """
    # Tools ride on a message that the compactor may drop: taken off here, they are put back by ``asked``.
    tools = tuple(tools_of(messages))
    named = content_ids([{k: v for k, v in m.items() if k != "tools"} for m in messages])
    if len(named) < 2:
        raise BadChange(
            f"there are {len(named)} messages; a history and one request after it are needed",
            hint="fork at the end of a user's message that has something before it",
        )
    return replace(run_rounds(condition, [named[:-1]], named[-1], compactor), tools=tools)
