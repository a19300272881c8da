"""Sequences in token ids as trainers keep them: a prompt, a completion, and which of it the policy said."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final, final

import numpy as np

from refork.errors import BadInput
from refork.formats.conversation import tools_of
from refork.formats.openai_chat import text_of
from refork.plain import content_hash
from refork.policies.base import Policy
from refork.tree.node import NewNode, node_id
from refork.tree.records import Record, Remark
from refork.tree.score import Producer, Score
from refork.types import Finish, FloatArray, IntArray, Json, Message, token_array

#: The column of our rows, a JSON text, that says of every turn where in the completion it starts and which
#: pieces it has: tokens, characters, whether it was put there, how many tokens the policy was made to say.
TURNS: Final = "turn_pieces"
_LARGEST: Final = float(np.finfo(np.float32).max)
_FINISHES: Final[dict[str, Finish]] = {
    "stop": "stop", "length": "length", "error": "error", "tool_calls": "stop", "tool_call": "stop",
    "function_call": "stop", "eos": "stop", "max_tokens": "length", "end_turn": "stop", "tool_use": "stop",
}  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class SampledSequence:
    """One sequence: token ids of prompt and completion, and per completion token what is known of it.

    ``generated_mask``: whether the policy said a token (None: all of them). ``logprobs``: under the
    distribution that was sampled from. ``values``: further scores, one per completion token. None where a
    number is not known. ``answers``: the completion's messages, which name the stretches of one speaker where
    they are as many. ``turns``: what our own rows say of turns that a mask does not tell apart
    (:data:`TURNS`).
    """

    prompt: Sequence[int]
    completion: Sequence[int]
    messages: Sequence[Message] = ()
    answers: Sequence[Message] = ()
    generated_mask: Sequence[Any] | None = None
    logprobs: Sequence[Any] | None = None
    logprobs_t1: Sequence[Any] | None = None
    ref_logprobs: Sequence[Any] | None = None
    values: Mapping[str, Sequence[Any] | None] = field(default_factory=dict)
    policy: str | None = None
    finish: Finish | None = None
    turns: Any = None


def finish_of(reason: Any) -> Finish | None:
    """Why sampling ended, in a tree's words; None where it is not said, or said otherwise."""
    return _FINISHES.get(reason.lower()) if isinstance(reason, str) else None


@final
class SampledReader:
    """Makes a path of a sequence: a task, then an action or observation for each stretch of one speaker."""

    def __init__(self, policy: Policy | None = None) -> None:
        self._policy = policy

    def records(
        self,
        one: SampledSequence,
        rest: Json,
        line: str,
        where: str,
        producer: Producer,
        scores: Mapping[str, Any],
    ) -> Iterator[Record]:
        """Drafts, then scores of the end and of tokens; ``rest`` is kept with the end, tools with the task.

        Raises:
            BadInput: ids that are none, or numbers for another count of tokens.
        """
        prompt = _ids(one.prompt, "the prompt", where)
        completion = _ids(one.completion, "the completion", where)
        if not len(completion) and any(map(text_of, one.answers)):
            raise BadInput("the completion has messages and no tokens", where=where)
        said = _flags(one.generated_mask, len(completion), where)
        yield from self._unfit(one, len(completion), where)
        yield Remark("lost", "times: the file has none", where)
        new_nodes = [self._task(one, prompt, tools_of(rest.get("tools"), where))]
        stretches = _told_stretches(one, said)
        if stretches is None and one.turns is not None:
            yield Remark("lost", f"{TURNS} that do not fit the row", where)
        # A rollout in which nothing was said failed, and counts: it is an answer of no tokens.
        stretches = stretches or _stretches(one.answers, said) or [_Segment((0, 0), True, tuple(one.answers))]
        for number, stretch in enumerate(stretches, start=1):
            new_nodes.append(self._segment_node(one, completion, stretch, new_nodes[-1], f"{line}/{number}"))
        kept = {key: value for key, value in rest.items() if key != "tools"}
        if kept:
            new_nodes[-1].extra["line"] = kept
        yield from new_nodes
        yield from self._scores(one, new_nodes, stretches, len(said), producer, scores)

    def _task(self, one: SampledSequence, prompt: IntArray, tools: Any) -> NewNode:
        messages = list(one.messages)
        extra: Json = {"messages": messages} if len(messages) > 1 else {}
        extra |= {"tools": tools} if tools else {}
        text = "\n".join(filter(None, map(text_of, messages)))
        return NewNode(
            kind="task",
            key=f"sampled/{content_hash([prompt.tolist(), messages, tools])}",
            text=text or self._decoded(prompt),
            tokens=prompt,
            message=messages[0] if len(messages) == 1 else None,
            origin="real",
            extra=extra,
        )

    def _segment_node(
        self, one: SampledSequence, ids: IntArray, stretch: _Segment, above: NewNode, key: str
    ) -> NewNode:
        span, messages = stretch.span, stretch.messages
        tokens = ids[span[0] : span[1]]
        known = stretch.text is not None or bool(messages)
        text = stretch.text
        if text is None:
            text = "\n".join(filter(None, map(text_of, messages))) if messages else self._decoded(tokens)
        message = messages[0] if len(messages) == 1 else None
        if stretch.says and text and not known:
            message = {"role": "assistant", "content": text}
        if stretch.inner:
            message = None
        names = ("logprobs", "logprobs_t1", "ref_logprobs") if stretch.says and not stretch.given else ()
        arrays: Json = {name: _numbers(getattr(one, name), span, len(ids)) for name in names}
        extra: Json = {"messages": list(messages)} if len(messages) > 1 else {}
        return NewNode(
            kind="action" if stretch.says else "observation",
            parent=draft_id(above),
            key=key,
            text=text,
            tokens=tokens,
            policy=one.policy if stretch.says and not stretch.given else None,
            settings={"forced": tokens[: stretch.forced].tolist()} if stretch.forced else None,
            finish=one.finish if stretch.says and span[1] == len(ids) else None,
            message=message,
            origin="real",
            extra=extra | ({"edit": "insert"} if stretch.given else {}),
            **arrays,
        )

    def _scores(
        self,
        one: SampledSequence,
        new_nodes: Sequence[NewNode],
        stretches: Sequence[_Segment],
        count: int,
        producer: Producer,
        scores: Mapping[str, Any],
    ) -> Iterator[Record]:
        found = [Score(draft_id(new_nodes[-1]), name, value, producer.id) for name, value in finite(scores)]
        for name, values in one.values.items():
            for new_node, stretch in zip(new_nodes[1:], stretches, strict=True):
                numbers = _numbers(values, stretch.span, count)
                if stretch.says and not stretch.given and numbers is not None and len(numbers):
                    found.append(Score(draft_id(new_node), name, numbers.astype(np.float64), producer.id))
        if found:
            yield producer
            yield from found

    def _unfit(self, one: SampledSequence, count: int, where: str) -> Iterator[Remark]:
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


def total(reward: Any) -> float | None:
    """A reward, or the sum of one for each token; None where one of them is not known."""
    if isinstance(reward, list):
        known = bool(reward) and all(isinstance(one, (int, float)) for one in reward)
        return float(sum(reward)) if known else None
    return float(reward) if isinstance(reward, (int, float)) else None


def _ids(raw: Any, what: str, where: str) -> IntArray:
    # By type, for a truth value is a whole number to isinstance.
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


@final
@dataclass(frozen=True, slots=True)
class _Segment:
    """Tokens of one node to be: whose, and what is known of them beside.

    ``text``: a part of the turn's text, where the row says so. ``given``: nobody said it. ``forced``: how
    many tokens the policy was made to say first. ``inner``: one of several nodes of a turn.
    """

    span: tuple[int, int]
    says: bool
    messages: tuple[Message, ...] = ()
    text: str | None = None
    given: bool = False
    forced: int = 0
    inner: bool = False


def _stretches(answers: Sequence[Message], said: Sequence[bool]) -> list[_Segment]:
    """What a mask tells apart: one speaker's tokens in a row."""
    spans, at = [], 0
    for _, run in groupby(said):
        size = len(list(run))
        spans.append((at, at + size))
        at += size
    speakers = [said[start] for start, _ in spans]
    groups = _grouped(answers)
    # Where they are not as many as the stretches, speaker for speaker, nobody knows whose words are whose.
    if [group[0]["role"] == "assistant" for group in groups] != speakers:
        groups = [()] * len(spans)
    return [_Segment(*one) for one in zip(spans, speakers, groups, strict=True)]


def _told_stretches(one: SampledSequence, said: Sequence[bool]) -> list[_Segment] | None:
    """The stretches as :data:`TURNS` tells them; None where it is not there, or does not fit the row."""
    turns = _turns_of(one.turns, len(said))
    if turns is None:
        return None
    groups = _grouped(one.answers)
    found: list[_Segment] = []
    at = 0
    # A turn without pieces at the end, so that what was shown after the last one is taken too.
    for start, pieces in [*turns, (len(said), [])]:
        shown = bool(groups) and groups[0][0]["role"] != "assistant"
        if start > at or shown:
            found.append(_Segment((at, start), False, groups.pop(0) if shown else ()))
        if any(said[at:start]):
            return None
        at = start
        if not pieces:
            continue
        message = groups.pop(0)[0] if groups else None
        made = _turn(start, pieces, message)
        if made is None:
            return None
        found += made
        at = found[-1].span[1]
    return None if groups else found


def _turn(start: int, pieces: Sequence[Sequence[int]], message: Message | None) -> list[_Segment] | None:
    """One turn's stretches; None where its pieces are not what its message says."""
    if message is not None and message["role"] != "assistant":
        return None
    text = None if message is None else text_of(message)
    if len(pieces) == 1 and not pieces[0][2]:
        messages = () if message is None else (message,)
        return [_Segment((start, start + pieces[0][0]), True, messages, forced=pieces[0][3])]
    if text is not None and len(text) != sum(piece[1] for piece in pieces):
        return None
    # What a message has beside its text stands with the beginning of the turn.
    more = message is not None and bool(set(message) - {"role", "content"})
    found: list[_Segment] = []
    at, character = start, 0
    for tokens, characters, given, forced in pieces:
        part = None if text is None else text[character : character + characters]
        span = (at, at + tokens)
        own = ({**(message or {}), "content": part},) if more and not found else ()
        found.append(_Segment(span, True, own, part, bool(given), forced, inner=not own))
        at, character = at + tokens, character + characters
    return found


def _turns_of(raw: Any, count: int) -> list[tuple[int, list[list[int]]]] | None:
    """The checked content of :data:`TURNS`: turns in order, none beyond the completion."""
    try:
        body = json.loads(raw) if isinstance(raw, str) else raw
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, list):
        return None
    found: list[tuple[int, list[list[int]]]] = []
    at = 0
    for turn in body:
        pieces = turn.get("pieces") if isinstance(turn, Mapping) else None
        start = turn.get("start") if isinstance(turn, Mapping) else None
        if not isinstance(pieces, list) or not pieces or type(start) is not int or start < at:
            return None
        for piece in pieces:
            if (
                not isinstance(piece, list)
                or len(piece) != 4
                or any(type(n) is not int or n < 0 for n in piece)
            ):
                return None
        at = start + sum(piece[0] for piece in pieces)
        found.append((start, pieces))
    return found if at <= count else None


def _grouped(answers: Sequence[Message]) -> list[tuple[Message, ...]]:
    """Messages as turns alone, and what was shown between two together."""
    groups: list[tuple[Message, ...]] = []
    for said, run in groupby(answers, lambda message: message["role"] == "assistant"):
        listed = list(run)
        groups += [(one,) for one in listed] if said else [tuple(listed)]
    return groups


def _numbers(values: Any, span: tuple[int, int], count: int) -> FloatArray | None:
    """The numbers of a stretch; None unless there is one for every token of it."""
    if not isinstance(values, (list, tuple)) or len(values) != count:
        return None
    return known_numbers(values[span[0] : span[1]])


def known_numbers(values: Sequence[Any]) -> FloatArray | None:
    """Numbers as an array; None where one of them is none, or not known, or beyond 32 bits.

    ``-Infinity`` is the log-prob of a token that could not have been said, and was forced.
    """
    for one in values:
        # NaN compares false, and so counts as not known.
        if one != "-Infinity" and not (isinstance(one, (int, float)) and abs(one) <= _LARGEST):
            return None
    return np.array([float(one) for one in values], dtype=np.float32)


def draft_id(new_node: NewNode) -> str:
    """The id that a draft with a key will have."""
    return node_id(new_node.parent, new_node.keep, new_node.kind, str(new_node.key))
