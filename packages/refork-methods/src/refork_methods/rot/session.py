"""A recorded session as the model calls that it made: what each call was shown, and what it answered.

Readers of frameworks' own state (LangGraph checkpoints, AutoGen's ``save_state``) stand beside their
adapters in :mod:`refork_methods.pin.frameworks` and return a :class:`SessionLog`, best by :func:`session_of`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from refork.compaction import CompactionResult, SummaryCall, account, checked_ids
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
    held: list[ModelCall] = []  # calls since the last kept one that may be a summariser's
    for number, call in enumerate(calls):
        if call.summariser or (call.compaction is None and _is_summary(number, calls)):
            held.append(call)
            continue
        if call.compaction is None and kept and _shortened(kept[-1], call):
            asked = tuple(SummaryCall(c.context, text_of(c.answer)) for c in held if c.answer is not None)
            kept.append(replace(call, compaction=_between(kept[-1], call, asked), prompted=False))
        else:
            kept.append(call)
        held.clear()
    return kept


def _is_summary(number: int, calls: Sequence[ModelCall]) -> bool:
    """Whether a call's answer stands inside a new message, not a turn of its own, of the next other context.

    Its beginning is enough, for harnesses cut long summaries. Tool results are left out: a sub-agent's answer
    arrives in one.
    """
    call = calls[number]
    said = text_of(call.answer).split() if call.answer is not None else []
    if not said or number == 0:
        return False
    before = calls[number - 1]
    begins = " ".join(said[:_BEGINNING])
    for later in calls[number + 1 :]:
        fresh = [m for m in later.context if m["id"] not in _ids(before.context)]
        # The next context carries it on as the agent's own turn, so it is no summary.
        if any(m.get("role") == "assistant" and text_of(m).split() == said for m in fresh):
            return False
        if any(m.get("role") != "tool" and begins in " ".join(text_of(m).split()) for m in fresh):
            return _shortened(before, later)
    return False


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
    seen = [str(m["id"]) for m in history if text_of(m) and text_of(m) in everything]
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
