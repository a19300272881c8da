"""Sequences in token ids as trainers keep them: a prompt, a completion, and which of it the policy said."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final, final

import numpy as np

from ramify.core.errors import BadInput
from ramify.core.plain import content_hash
from ramify.core.policy.base import Policy
from ramify.core.tree.formats.base import Record, Remark
from ramify.core.tree.formats.openai_chat import text_of
from ramify.core.tree.node import Draft, node_id
from ramify.core.tree.score import Producer, Score
from ramify.core.types import Finish, FloatArray, IntArray, Json, Message, NodeKind, token_array

_LARGEST: Final = float(np.finfo(np.float32).max)
_FINISHES: Final[dict[str, Finish]] = {
    "stop": "stop", "length": "length", "error": "error", "tool_calls": "stop", "tool_call": "stop",
    "function_call": "stop", "eos": "stop", "max_tokens": "length", "end_turn": "stop", "tool_use": "stop",
}  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class Sampled:
    """One sequence: token ids of prompt and completion, and per completion token what is known of it.

    ``said``: whether the policy said a token (None: all of them). ``logprobs``: under the law that was
    sampled from. ``values``: further scores, one per completion token. None where a number is not known.
    ``answers``: the completion's messages, which name the stretches of one speaker where they are as many.
    """

    prompt: Sequence[int]
    completion: Sequence[int]
    messages: Sequence[Message] = ()
    answers: Sequence[Message] = ()
    said: Sequence[Any] | None = None
    logprobs: Sequence[Any] | None = None
    logprobs_t1: Sequence[Any] | None = None
    ref_logprobs: Sequence[Any] | None = None
    values: Mapping[str, Sequence[Any] | None] = field(default_factory=dict)
    policy: str | None = None
    finish: Finish | None = None


def finish_of(reason: Any) -> Finish | None:
    """Why sampling ended, in a tree's words; None where it is not said, or said otherwise."""
    return _FINISHES.get(reason.lower()) if isinstance(reason, str) else None


@final
class SampledReader:
    """Makes a walk of a sequence: a task, then an action or observation for each stretch of one speaker."""

    def __init__(self, policy: Policy | None = None) -> None:
        self._policy = policy

    def records(
        self, one: Sampled, rest: Json, line: str, where: str, producer: Producer, scores: Mapping[str, Any]
    ) -> Iterator[Record]:
        """Drafts, then scores of the end and of tokens; ``rest`` is kept with the end, tools with the task.

        Raises:
            BadInput: ids that are none, or numbers for another count of tokens.
        """
        prompt = _ids(one.prompt, "the prompt", where)
        completion = _ids(one.completion, "the completion", where)
        if not len(completion):
            raise BadInput("the completion has no tokens", where=where)
        said = _flags(one.said, len(completion), where)
        yield from self._unfit(one, len(completion), where)
        yield Remark("lost", "times: the file has none", where)
        drafts = [self._task(one, prompt, rest.get("tools"))]
        spans = _spans(said)
        messages = _named(one.answers, [said[start] for start, _ in spans])
        for number, (span, group) in enumerate(zip(spans, messages, strict=True), start=1):
            kind: NodeKind = "action" if said[span[0]] else "observation"
            drafts.append(self._stretch(one, completion, kind, span, group, drafts[-1], f"{line}/{number}"))
        kept = {key: value for key, value in rest.items() if key != "tools"}
        if kept:
            drafts[-1].extra["line"] = kept
        yield from drafts
        yield from self._scores(one, drafts, spans, said, producer, scores)

    def _task(self, one: Sampled, prompt: IntArray, tools: Any) -> Draft:
        messages = list(one.messages)
        extra: Json = {"messages": messages} if len(messages) > 1 else {}
        extra |= {"tools": tools} if tools else {}
        text = "\n".join(str(message.get("content") or "") for message in messages)
        return Draft(
            kind="task",
            key=f"sampled/{content_hash([prompt.tolist(), messages, tools])}",
            text=text or self._decoded(prompt),
            tokens=prompt,
            message=messages[0] if len(messages) == 1 else None,
            origin="real",
            extra=extra,
        )

    def _stretch(
        self,
        one: Sampled,
        ids: IntArray,
        kind: NodeKind,
        span: tuple[int, int],
        messages: Sequence[Message],
        above: Draft,
        key: str,
    ) -> Draft:
        tokens = ids[span[0] : span[1]]
        says = kind == "action"
        text = "\n".join(filter(None, map(text_of, messages))) if messages else self._decoded(tokens)
        message = messages[0] if len(messages) == 1 else None
        if says and text and not messages:
            message = {"role": "assistant", "content": text}
        names = ("logprobs", "logprobs_t1", "ref_logprobs") if says else ()
        arrays: Json = {name: _numbers(getattr(one, name), span, len(ids)) for name in names}
        return Draft(
            kind=kind,
            parent=draft_id(above),
            key=key,
            text=text,
            tokens=tokens,
            policy=one.policy if says else None,
            finish=one.finish if says and span[1] == len(ids) else None,
            message=message,
            origin="real",
            extra={"messages": list(messages)} if len(messages) > 1 else {},
            **arrays,
        )

    def _scores(
        self,
        one: Sampled,
        drafts: Sequence[Draft],
        spans: Sequence[tuple[int, int]],
        said: Sequence[bool],
        producer: Producer,
        scores: Mapping[str, Any],
    ) -> Iterator[Record]:
        found = [Score(draft_id(drafts[-1]), name, value, producer.id) for name, value in finite(scores)]
        for name, values in one.values.items():
            for draft, span in zip(drafts[1:], spans, strict=True):
                numbers = _numbers(values, span, len(said))
                if said[span[0]] and numbers is not None:
                    found.append(Score(draft_id(draft), name, numbers.astype(np.float64), producer.id))
        if found:
            yield producer
            yield from found

    def _unfit(self, one: Sampled, count: int, where: str) -> Iterator[Remark]:
        """Remarks on numbers that are not one per token: they cannot be laid beside the ids."""
        arrays = {name: getattr(one, name) for name in ("logprobs", "logprobs_t1", "ref_logprobs")}
        for name, values in {**arrays, **one.values}.items():
            if values is not None and not isinstance(values, (list, tuple)):
                yield Remark("lost", f"{name} that are no list", where)
            elif values is not None and len(values) != count:
                yield Remark("lost", f"{name} of another count than the completion's tokens", where)
            elif values is None and name == "logprobs":
                yield Remark("lost", "log-probs: the file has none", where)

    def _decoded(self, tokens: IntArray) -> str:
        return "" if self._policy is None or not len(tokens) else self._policy.decode(tokens)


def finite(scores: Mapping[str, Any]) -> list[tuple[str, float]]:
    """The names and values that are finite numbers; truth values count as 1 and 0."""
    return [
        (name, float(value))
        for name, value in scores.items()
        if isinstance(value, (int, float)) and math.isfinite(value)
    ]


def _ids(raw: Any, what: str, where: str) -> IntArray:
    if not isinstance(raw, (list, tuple)) or not all(type(one) is int for one in raw):
        raise BadInput(f"{what} is no list of token ids", where=where)
    if raw and not 0 <= min(raw) <= max(raw) < 2**31:
        raise BadInput(f"{what} has a token id below 0 or beyond 32 bits", where=where)
    return token_array(raw)


def _flags(raw: Any, count: int, where: str) -> list[bool]:
    if raw is None:
        return [True] * count
    if not isinstance(raw, (list, tuple)) or len(raw) != count:
        raise BadInput(f"the mask is not one number for each of {count} tokens", where=where)
    return [bool(one) for one in raw]


def _named(answers: Sequence[Message], speakers: Sequence[bool]) -> list[list[Message]]:
    """The messages of each stretch; none where they are not as many as the stretches, speaker for speaker."""
    groups: list[list[Message]] = []
    for said, run in groupby(answers, lambda message: message["role"] == "assistant"):
        listed = list(run)
        groups += [[one] for one in listed] if said else [listed]
    said_by = [group[0]["role"] == "assistant" for group in groups]
    return groups if said_by == list(speakers) else [[] for _ in speakers]


def _spans(said: Sequence[bool]) -> list[tuple[int, int]]:
    """The stretches of one speaker, as begin and end."""
    spans, at = [], 0
    for _, run in groupby(said):
        size = len(list(run))
        spans.append((at, at + size))
        at += size
    return spans


def _numbers(values: Any, span: tuple[int, int], count: int) -> FloatArray | None:
    """The numbers of a stretch; None unless there is one for every token of it."""
    if not isinstance(values, (list, tuple)) or len(values) != count:
        return None
    return known_numbers(values[span[0] : span[1]])


def known_numbers(values: Sequence[Any]) -> FloatArray | None:
    """Numbers as an array; None where one of them is none, or not known, or beyond 32 bits."""
    if not all(isinstance(one, (int, float)) and abs(one) <= _LARGEST for one in values):
        return None
    return np.array(values, dtype=np.float32)


def draft_id(draft: Draft) -> str:
    """The id that a draft with a key will have."""
    return node_id(draft.parent, draft.keep, draft.kind, str(draft.key))
