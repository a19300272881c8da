"""Audit of a user's own session: for every rule, the call at which it went out of view, and who broke it.

Visibility is mechanical: the rule stands in a message of the call's context, word for word or escaped as XML,
JSON or a Python literal (:func:`refork.compaction.spellings`), or it does not. A rule may be lost and come
back; the first call without it is named. Where the log says, or lets infer, what the summariser was shown, a
loss is a trim (never shown) or an omission (shown and left out).

Source: arXiv:2606.22528 defines survival and violation; the audit of foreign logs is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

from refork.compaction import quotes
from refork.errors import BadInput
from refork.formats.openai_chat import text_of
from refork.plain import to_json
from refork.types import Json, Message
from refork_methods.pin.checkers import grade
from refork_methods.pin.constraint import MARK, Constraint
from refork_methods.rot.context_diff import context_diffs
from refork_methods.rot.readers import read_sessions
from refork_methods.rot.session import ModelCall, SessionLog
from refork_methods.rot.survival import recall_of

#: How a rule went: see the module. ``unrecorded``: the log does not tell what a summariser was shown.
Loss: TypeAlias = Literal["trimmed", "omitted", "unrecorded"]


@dataclass(frozen=True, slots=True)
class RuleAtCall:
    """One rule at one call, calls counted from 1.

    ``visible``: it is in the context; ``copies``: how often byte for byte, 0 where only an escaped copy
    stands there; ``pinned``: how many of them in a pinned block; ``protected``: whether one stands in a
    system or developer message. ``shown``: whether a summariser saw it on the way to this call, None where no
    compaction came before or nobody knows. ``violated`` None: the rule was not stated yet or has no checker,
    there was no answer, or the answer cannot be read.
    """

    rule: str
    visible: bool
    copies: int
    pinned: int
    protected: bool
    shown: bool | None
    lost: Loss | None
    violated: bool | None
    outcome: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class CallRow:
    """One model call: its size, whether a compaction came before it, and every rule."""

    call: int
    messages: int
    characters: int
    compacted: bool
    reason: str
    answer: str
    rules: tuple[RuleAtCall, ...]


@dataclass(frozen=True, slots=True)
class RuleVerdict:
    """What became of one rule in the session. Calls are counted from 1; None: it never happened.

    ``paraphrase``: the share of its content words in the first context without it. ``rebuilt``: the contexts
    are worked out from an agent's saved state, so what its model node adds by itself is not in them.
    """

    rule: str
    text: str
    stated_at: int | None
    lost_at: int | None
    loss: Loss | None
    back_at: int | None
    violated_at: tuple[int, ...]
    paraphrase: float | None
    rebuilt: bool = False

    @property
    def has_loss(self) -> bool:
        """Whether there is something to act on: a loss or a violation."""
        return self.lost_at is not None or bool(self.violated_at)

    @property
    def words(self) -> str:
        """The verdict in one sentence."""
        if self.stated_at is None:
            return "never stood in any context word for word"
        parts = [f"stated at call {self.stated_at}"]
        if self.lost_at is not None:
            how = {
                "trimmed": "dropped before any summariser saw it",
                "omitted": "left out by the summariser",
                "unrecorded": "gone; the log does not tell what a summariser was shown",
                None: "gone",
            }[self.loss]
            where = "not in the saved state" if self.rebuilt else "not visible"
            parts.append(f"{where} from call {self.lost_at} on: {how}")
        else:
            parts.append("visible ever after")
        if self.back_at is not None:
            parts.append(f"back at call {self.back_at}")
        if self.violated_at:
            parts.append(f"broken at call {', '.join(map(str, self.violated_at))}")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class Audit:
    """A session's calls and rules; ``warnings`` say what cannot be told, and why."""

    session: str
    calls: tuple[CallRow, ...]
    rules: tuple[RuleVerdict, ...]
    warnings: tuple[str, ...]

    @property
    def has_loss(self) -> bool:
        """Whether any rule was lost or broken."""
        return any(rule.has_loss for rule in self.rules)

    def to_json(self) -> Json:
        """Plain fields, with the verdicts in words."""
        body = asdict(self)
        for told, rule in zip(body["rules"], self.rules, strict=True):
            told["words"] = rule.words
        return body | {"found": self.has_loss}


def audit(log: SessionLog, rules: Sequence[Constraint]) -> Audit:
    """Follow rules through the model calls of a session.

    Raises:
        BadInput: no rules, an id twice, no rule that ever stands in a context word for word, or a checker
            that fails; it names the rule and the call.
    """
    names = [rule.id for rule in rules]
    if not rules or len(set(names)) < len(names):
        twice = next((name for name in names if names.count(name) > 1), None)
        raise BadInput(f"two rules have the id {twice!r}" if twice else "there are no rules to audit")
    # From the first call that holds each on: nobody breaks a rule that was not stated yet.
    stated = {
        rule.id: next((n for n, call in enumerate(log.calls) if _holding(rule, call)), len(log.calls))
        for rule in rules
    }
    rows = tuple(
        _row(number, log.calls, rules, frozenset(id_ for id_, first in stated.items() if first <= number))
        for number in range(len(log.calls))
    )
    rebuilt = log.extra.get("contexts") == "rebuilt"
    verdicts = tuple(
        replace(_verdict(place, rule, rows, log.calls), rebuilt=rebuilt) for place, rule in enumerate(rules)
    )
    if all(verdict.stated_at is None for verdict in verdicts):
        raise BadInput(
            "none of the rules stands in any context word for word, so none can be followed",
            where=log.name,
            hint="write each rule in the policy file as the session states it",
        )
    return Audit(log.name, rows, verdicts, tuple(_warnings(rows, verdicts, log, rules)))


def _holding(rule: Constraint, call: ModelCall) -> list[tuple[Message, str]]:
    """The messages of a call's context that hold a rule, with their texts."""
    return [(m, text) for m in call.context if quotes(text := text_of(m), rule.text)]


def _row(
    number: int, calls: Sequence[ModelCall], rules: Sequence[Constraint], stated: frozenset[str]
) -> CallRow:
    call = calls[number]
    fired = call.compaction is not None and call.compaction.fired
    return CallRow(
        call=number + 1,
        messages=len(call.context),
        characters=sum(len(text_of(m)) for m in call.context),
        compacted=fired,
        reason=call.compaction.reason if call.compaction is not None else "",
        answer=text_of(call.answer) if call.answer is not None else "",
        rules=tuple(_at(rule, number, calls, rule.id in stated) for rule in rules),
    )


def _at(rule: Constraint, number: int, calls: Sequence[ModelCall], stated: bool) -> RuleAtCall:
    call = calls[number]
    holding = _holding(rule, call)
    lost: Loss | None = None
    shown: bool | None = None
    done = call.compaction
    if done is not None and done.fired:
        # An inferred compaction whose summariser's calls are not in the log does not tell what was shown.
        known = call.prompted or bool(done.calls)
        shown = any(quotes(text_of(m), rule.text) for c in done.calls for m in c.prompt) if known else None
    before = calls[number - 1].context if number else ()
    if not holding and any(quotes(text_of(m), rule.text) for m in before):
        lost = _loss(rule, call)
    outcome, reason = _outcome(rule, call, number) if stated else (None, "")
    return RuleAtCall(
        rule=rule.id,
        visible=bool(holding),
        copies=sum(text.count(rule.text) for _, text in holding),
        pinned=sum(f"<{MARK} " in text and text.count(rule.entry) for _, text in holding),
        protected=any(m.get("role") in ("system", "developer") for m, _ in holding),
        shown=shown,
        lost=lost,
        violated={"violation": True, "allowed": False, "refused": False}.get(outcome or ""),
        outcome=outcome,
        reason=reason,
    )


def _loss(rule: Constraint, call: ModelCall) -> Loss:
    done = call.compaction
    if done is None or not done.fired or not (call.prompted or done.calls):
        return "unrecorded"
    shown = any(quotes(text_of(m), rule.text) for c in done.calls for m in c.prompt)
    return "omitted" if shown else "trimmed"


def _outcome(rule: Constraint, call: ModelCall, number: int) -> tuple[str | None, str]:
    if rule.checker is None or call.answer is None:
        return None, ""
    found = grade(call.answer, rule.checker)
    # Left silent, a checker's fault would pass for a rule that was kept.
    if found.outcome == "error":
        raise BadInput(found.reason, where=f"rule {rule.id!r}, call {number + 1}", hint="mend the checker")
    return found.outcome, found.reason


def _verdict(
    place: int, rule: Constraint, rows: Sequence[CallRow], calls: Sequence[ModelCall]
) -> RuleVerdict:
    seen = [row.rules[place] for row in rows]
    stated = next((i for i, one in enumerate(seen) if one.visible), None)
    lost = back = None
    if stated is not None:
        lost = next((i for i in range(stated + 1, len(seen)) if not seen[i].visible), None)
    if lost is not None:
        back = next((i for i in range(lost + 1, len(seen)) if seen[i].visible), None)
    return RuleVerdict(
        rule=rule.id,
        text=rule.text,
        stated_at=None if stated is None else stated + 1,
        lost_at=None if lost is None else lost + 1,
        loss=None if lost is None else seen[lost].lost,
        back_at=None if back is None else back + 1,
        violated_at=tuple(i + 1 for i, one in enumerate(seen) if one.violated),
        paraphrase=None if lost is None else recall_of(rule.text, calls[lost].context),
    )


def _warnings(
    rows: Sequence[CallRow], verdicts: Sequence[RuleVerdict], log: SessionLog, rules: Sequence[Constraint]
) -> list[str]:
    told: list[str] = []
    for place, (verdict, rule) in enumerate(zip(verdicts, rules, strict=True)):
        seen = [row.rules[place] for row in rows]
        stated = [one for one in seen if one.visible]
        if verdict.stated_at is None:
            told.append(f"{rule.id}: its text never stands in a context word for word; it cannot be followed")
        elif len(stated) == len(seen) and all(one.protected and not one.pinned for one in seen):
            told.append(
                f"{rule.id}: it stands in the system message of every call, which no compaction touches: "
                "there is nothing to measure"
            )
        if rule.checker is None:
            told.append(f"{rule.id}: it has no checker, so it cannot be told whether it was broken")
        unread = sum(one.outcome == "unparseable" for one in seen)
        if unread:
            told.append(f"{rule.id}: {unread} answers call tools in a way that cannot be read")
        told += _copies(rule, seen)
    told += _rebuilt(verdicts)
    if not any(row.compacted for row in rows):
        told.append("no compaction fired in this session: nothing could be lost by one")
    for number, call in enumerate(log.calls, 1):
        asked = call.compaction.calls if call.compaction is not None else ()
        if any(c.answer is not None and not c.answer.strip() for c in asked):
            told.append(f"call {number}: the summariser answered with an empty text")
    return told


def _copies(rule: Constraint, seen: Sequence[RuleAtCall]) -> list[str]:
    told = []
    escaped = next((n for n, one in enumerate(seen, 1) if one.visible and not one.copies), None)
    if escaped is not None:
        told.append(f"{rule.id}: at call {escaped} the context holds it only in an escaped spelling")
    if any(one.pinned > 1 for one in seen):
        told.append(f"{rule.id}: a context holds its pinned copy more than once")
    return told


def _rebuilt(verdicts: Sequence[RuleVerdict]) -> list[str]:
    if not any(verdict.rebuilt and verdict.lost_at is not None for verdict in verdicts):
        return []
    return [
        "the contexts were rebuilt from checkpoints, which do not hold what the model node adds: if it pins "
        "(pinned_model, PinningMiddleware), read the thread with checkpoint_session(..., pinned=buffer), if "
        "it adds a prompt or more, with context=..."
    ]


def audit_file(path: Path | str, rules: Sequence[Constraint]) -> Json:
    """The audits of all sessions of a log file, with the contexts around every compaction, as plain data.

    A session that states none of the rules is left out and named under ``skipped``.

    Raises:
        BadInput: the file is no log, or none of its sessions states any of the rules.
    """
    told: list[Json] = []
    skipped: list[str] = []
    for log in read_sessions(path):
        if not any(_holding(rule, call) for rule in rules for call in log.calls):
            skipped.append(log.name)
            continue
        diffs = [to_json(diff) for diff in context_diffs(log, rules)]
        told.append(audit(log, rules).to_json() | {"diffs": diffs})
    if not told:
        raise BadInput(
            "none of the rules stands in any context word for word, so none can be followed",
            where=str(path),
            hint="write each rule in the policy file as the session states it",
        )
    return {"sessions": told, "skipped": skipped, "found": any(one["found"] for one in told)}
