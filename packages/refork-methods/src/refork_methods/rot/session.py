"""A recorded session as the model calls that it made: what each call was shown, and what it answered.

Readers of frameworks' own state (LangGraph checkpoints, AutoGen's ``save_state``) stand beside their
adapters in :mod:`refork_methods.pin.frameworks` and return a :class:`SessionLog`, best by :func:`session_of`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from refork.compaction import CompactionResult, SummaryCall, account, checked_ids, quotes
from refork.errors import BadInput
from refork.formats.openai_chat import text_of
from refork.plain import from_json, to_json
from refork.types import Json, Message

#: Words of an answer by which it is known again inside a later message.
_BEGINNING = 12


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One call of the agent's model.

    ``context``: the exact messages it was shown, each with an ``id``. ``answer``: its assistant message,
    None where the log ends before it. ``compaction``: what made the history this context, None where
    nothing did. ``prompted``: the compaction is on record; else it was inferred by comparing two contexts,
    and what a summariser was shown is known only where its own call is in the log. ``summariser``: the log
    says that this call is a summariser's, not the agent's.
    """

    context: tuple[Message, ...]
    answer: Message | None
    compaction: CompactionResult | None = None
    prompted: bool = True
    summariser: bool = False

    def __post_init__(self) -> None:
        checked_ids(self.context)


@dataclass(frozen=True, slots=True)
class SessionLog:
    """The model calls of one session, in order. ``tools``: the function schemas that the agent was given.

    ``extra``: what else the reader knows; ``{"contexts": "rebuilt"}`` where contexts were worked out from an
    agent's saved state, so that what was added on the way to the model is not in them.
    """

    name: str
    calls: tuple[ModelCall, ...]
    tools: tuple[Json, ...] = ()
    extra: Json = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.calls:
            raise BadInput("this session holds no model call", where=self.name)


def session_of(
    calls: Iterable[ModelCall | tuple[Sequence[Message], Message | None]],
    name: str = "session",
    *,
    tools: Sequence[Json] = (),
    extra: Json | None = None,
) -> SessionLog:
    """A session from its model calls, or from bare pairs of context and answer.

    Messages without an id are named by their content, so one message has one id in all calls. Where a call's
    context lost messages of the call before and no compaction is given, one is inferred. Calls whose answer
    became a message of a later, shortened context are the summariser's, and belong to that compaction.
    """
    bare = [call if isinstance(call, ModelCall) else _call(*call) for call in calls]
    return SessionLog(name, tuple(_inferred(bare)), tuple(tools), extra or {})


def content_ids(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages, those without an id named by their role and content, equal ones counted apart."""
    seen: dict[str, int] = {}
    named: list[Message] = []
    for message in messages:
        if message.get("id"):
            named.append(message)
            continue
        body = json.dumps([message.get("role"), text_of(message), message.get("tool_call_id")])
        # Counted from the front: a repeated message keeps its name while no equal one before it is dropped.
        digest = hashlib.blake2b(body.encode(), digest_size=6).hexdigest()
        seen[digest] = seen.get(digest, -1) + 1
        named.append({**message, "id": f"{digest}.{seen[digest]}"})
    return tuple(named)


def _call(context: Sequence[Message], answer: Message | None) -> ModelCall:
    return ModelCall(content_ids(context), answer)


def _ids(messages: Iterable[Message]) -> set[str]:
    return {str(message["id"]) for message in messages}


def _shortened(before: ModelCall, now: ModelCall) -> bool:
    """Whether a call no longer holds a message of an earlier call."""
    return not _ids(before.context) <= _ids(now.context)


def _inferred(calls: Sequence[ModelCall]) -> list[ModelCall]:
    """The agent's own calls, with the compactions that their contexts show."""
    kept: list[ModelCall] = []
    held: list[ModelCall] = []  # calls since the last kept one that are a summariser's
    summaries = _summaries(calls)
    for number, call in enumerate(calls):
        if number in summaries:
            held.append(call)
            continue
        if call.compaction is None and kept and _shortened(kept[-1], call):
            asked = tuple(SummaryCall(c.context, text_of(c.answer)) for c in held if c.answer is not None)
            kept.append(replace(call, compaction=_between(kept[-1], call, asked), prompted=False))
        else:
            kept.append(call)
        held.clear()
    return kept


def _summaries(calls: Sequence[ModelCall]) -> set[int]:
    """Which calls are a summariser's: so marked, or known by what became of their answers."""
    # From the last: what stands in a summary is the summariser's, so it must be known before the agent's.
    found: set[int] = set()
    for number in reversed(range(len(calls))):
        call = calls[number]
        if call.summariser or (call.compaction is None and _is_summary(number, calls, found)):
            found.add(number)
    return found


def _is_summary(number: int, calls: Sequence[ModelCall], known: set[int]) -> bool:
    """Whether a call's answer stands inside a new message, no turn of its own, of a later, shorter context.

    Its beginning is enough, for harnesses cut long summaries. It is none where it calls tools, where a tool's
    result carries it (a sub-agent's), where a summariser's prompt quotes it together with the question that
    it answers, and where the words are those of a summary known already.
    """
    call = calls[number]
    if number == 0 or call.answer is None or call.answer.get("tool_calls"):
        return False
    said = text_of(call.answer).split()
    if not said:
        return False
    own = _ids(call.context)
    turns = _turns(call, said)
    talk = any(m.get("role") in ("assistant", "tool") for m in call.context)
    for place in range(number + 1, len(calls)):
        later = calls[place]
        fresh = [m for m in later.context if m["id"] not in own]
        # The next context carries it on as the agent's own turn, so it is no summary.
        if _turns(later, said) > turns or any(_is_turn(m, said) for m in fresh):
            return False
        if place in known and talk:  # a history quoted from its middle: the question may have been cut off
            continue
        others = [text_of(calls[i].answer or {}) for i in sorted(known) if number < i < place]
        found = {_carried(text_of(m), call, others) for m in fresh if m.get("role") != "tool"}
        if "in a transcript" in found:
            return False
        if "alone" in found:
            return _shortened(_earlier(number, later, calls), later)
    return False


def _is_turn(message: Message, words: list[str]) -> bool:
    return message.get("role") == "assistant" and text_of(message).split() == words


def _turns(call: ModelCall, words: list[str]) -> int:
    return sum(_is_turn(m, words) for m in call.context)


def _carried(text: str, call: ModelCall, others: Sequence[str]) -> Literal["alone", "in a transcript"] | None:
    """Whether a text holds a call's answer, other summaries apart, and whether its question is beside it."""
    text = " ".join(text.split())
    for other in others:
        text = _without(text, other.split())
    rest = _without(text, text_of(call.answer or {}).split())
    if rest == text:
        return None
    asked = next((words for m in reversed(call.context) if (words := " ".join(text_of(m).split()))), "")
    return "in a transcript" if asked and quotes(rest, asked) else "alone"


def _without(text: str, words: list[str]) -> str:
    """A text without the longest beginning of some words that stands in it, their first dozen at least."""
    if not words:
        return text
    at = text.find(" ".join(words[:_BEGINNING]))
    if at < 0:
        return text
    count = min(len(words), _BEGINNING)
    while count < len(words) and text.startswith(" ".join(words[: count + 1]), at):
        count += 1
    return f"{text[:at]} {text[at + len(' '.join(words[:count])) :]}"


def _earlier(number: int, later: ModelCall, calls: Sequence[ModelCall]) -> ModelCall:
    """The last call before one that shares a message with a later call; where none does, the one before."""
    ids = _ids(later.context)
    return next((c for c in reversed(calls[:number]) if ids & _ids(c.context)), calls[number - 1])


def _between(before: ModelCall, now: ModelCall, asked: tuple[SummaryCall, ...]) -> CompactionResult:
    """The compaction between two calls: what was there is the earlier context and what came after it."""
    old = _ids(before.context)
    # Where nothing was kept, the first new message stands for the history.
    last = max((i for i, m in enumerate(now.context) if m["id"] in old), default=0)
    arrived = list(now.context[last + 1 :])
    answer = content_ids([before.answer]) if before.answer is not None else ()
    turn = [m for m in answer if text_of(m) not in {text_of(n) for n in now.context}]
    history = [*before.context, *(m for m in turn if m["id"] not in old | _ids(arrived)), *arrived]
    shown = {text_of(m) for c in asked for m in c.prompt}
    # Harnesses put a whole history into one prompt: a message is looked for inside it, not beside it.
    everything = "\n".join(shown)
    seen = [str(m["id"]) for m in history if text_of(m) and quotes(everything, text_of(m))]
    return account(
        history, now.context, seen=seen, calls=asked, reason="inferred from two contexts of the log"
    )


def compaction_json(result: CompactionResult) -> Json:
    """A compaction as plain data, without the messages of its result: only their ids, as ``after``."""
    told: Json = to_json(result)
    return told | {"after": [str(m.get("id")) for m in told.pop("messages")]}


def compaction_from_json(data: Json, after: Sequence[Message], where: str = "compaction") -> CompactionResult:
    """Inverse of :func:`compaction_json`, given the messages that it left.

    Raises: BadInput where a field is missing or is of another kind.
    """
    try:
        return from_json(CompactionResult, {**data, "messages": after})
    except BadInput as error:
        raise BadInput(
            f"this is no account of a compaction: {error.what}",
            where=where,
            hint='it needs "fired", and may have seen, dropped, inserted, calls and reason',
        ) from error
