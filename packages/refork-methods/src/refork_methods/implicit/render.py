"""From chat messages to token ids with the policy's own actions marked.

Two ways. ``template``: what the tokenizer's chat template writes; an action is exactly what the policy
says after its turn was opened, its end-of-turn token included, its role tag not. ``flat``: the rendering
of the released code of arXiv 2606.26080: every message is a role tag in brackets and its content on a
line of its own, tokenised apart, the tag counted as part of the action.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from refork.errors import BadInput, CannotDo, WrongTokenizer
from refork.policies.chat import Codec
from refork.policies.renderable import renderable
from refork.types import IntArray, Message, token_array
from refork_methods.implicit.soft_values import Bools, Ints

Render = Literal["template", "flat"]
Actions = Literal["assistant", "every", "every-but-human"]
RENDERS: tuple[Render, ...] = get_args(Render)
ACTIONS: tuple[Actions, ...] = get_args(Actions)
_SILENT = "[assistant action]"


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of text; ``message`` is the number of the message it is an action of (None: no action).

    ``fresh`` pieces are tokenised as texts of their own, others as what continues a stream.
    """

    text: str
    message: int | None
    fresh: bool


@dataclass(frozen=True, slots=True)
class ActionTokens:
    """Tokens of one trajectory and the action each belongs to.

    ``tokens`` and ``step_id`` are [T] (-1: not the policy's), ``messages`` [steps] the message of each
    action, ``cut`` [steps] those that are not whole.
    """

    tokens: IntArray
    step_id: Ints
    messages: tuple[int, ...]
    cut: Bools


def flat_pieces(messages: Sequence[Message], actions: Actions = "assistant") -> list[Piece]:
    """The pieces of the flat rendering.

    ``assistant``: the assistant's turns are actions, with their tool calls, and a placeholder where a turn
    is empty. ``every``: every message that is not blank, whoever speaks, is one (logs of several agents);
    ``every-but-human`` leaves out a first message of a human.

    Source: arXiv 2606.26080, released code. Ours: calls in OpenAI's form (under ``function``) keep their
    names, where that code looks for them at the top only.
    """
    if actions not in ACTIONS:
        raise BadInput(f"unknown choice of actions {actions!r}", hint=f"known: {', '.join(ACTIONS)}")
    pieces = []
    for number, message in enumerate(messages):
        role, content = str(message.get("role", "")), _content(message)
        if actions == "assistant":
            acts = role == "assistant"
            content = _turn_text(content, message) if acts else content
        else:
            acts = bool(content.strip())
            if actions == "every-but-human" and number == 0 and role.lower() == "human":
                acts = False
        start = "\n" if number else ""
        pieces.append(Piece(f"{start}[{role}]: {content}", number if acts else None, True))
    return pieces


def _content(message: Message) -> str:
    """A message's text: parts of text joined, other parts as their names."""
    content = message.get("content")
    if isinstance(content, list):
        content = renderable(None, [{"role": "user", "content": content}]).messages[0]["content"]
    return str(content or "")


def _turn_text(content: str, message: Message) -> str:
    """An assistant's turn as text: what it says, then a line for each call."""
    lines = [content] if content else []
    for call in message.get("tool_calls") or ():
        if call:
            inner = call if "name" in call else call.get("function") or {}
            lines.append(f"tool_call({inner.get('name', '')}, {inner.get('arguments', {})})")
    return "\n".join(lines).strip() or _SILENT


def template_pieces(messages: Sequence[Message], codec: Codec) -> list[Piece]:
    """The pieces of the chat template's rendering; only assistant turns are actions.

    Raises:
        CannotDo: no template, or one that rewrites earlier turns once later ones follow.
        BadInput: the template refuses the messages.
    """
    pieces: list[Piece] = []
    done = ""
    messages = [m | {"content": _content(m)} if isinstance(m.get("content"), list) else m for m in messages]
    for number, message in enumerate(messages):
        if message.get("role") != "assistant":
            continue
        before = codec.template_text(messages[:number], generate=True)
        after = codec.template_text(messages[: number + 1], generate=False)
        if not before.startswith(done) or not after.startswith(before):
            raise CannotDo(
                "this chat template rewrites earlier turns, so an action has no place of its own in the text",
                where=f"message {number}",
                hint="use --render flat, or score what was recorded on a tree",
            )
        if before != done:
            pieces.append(Piece(before[len(done) :], None, not done))
        pieces.append(Piece(after[len(before) :], number, not before))
        done = after
    return pieces


def action_tokens(pieces: Sequence[Piece], codec: Codec, other: Codec, *, bos: bool) -> ActionTokens:
    """Token ids of pieces, the same under both tokenizers.

    ``bos`` puts the beginning-of-sequence token first, where the tokenizer has one. What a template writes
    after an end-of-turn token is nobody's choice and left out of the action.

    Raises:
        WrongTokenizer: a piece has other ids under the other tokenizer.
        BadInput: there is no action.
    """
    first = codec.tokenizer.bos_token_id if bos else None
    rows: list[Ints] = [np.array([] if first is None else [first], dtype=np.int64)]
    ids: list[Ints] = [np.full(len(rows[0]), -1, dtype=np.int64)]
    said: list[int] = []
    for number, piece in enumerate(pieces):
        mine, theirs = _encode(codec, piece), _encode(other, piece)
        if mine != theirs:
            raise WrongTokenizer(
                f"policy and reference read the same text as other tokens: {_first_apart(mine, theirs)}",
                where=f"piece {number}: {piece.text[:40]!r}",
                hint="a log-ratio compares two models on the same tokens",
            )
        marks = np.full(len(mine), -1, dtype=np.int64)
        if piece.message is not None:
            ends = [i for i, token in enumerate(mine) if token in codec.eos_ids]
            marks[: ends[-1] + 1 if ends else len(mine)] = len(said)
            said.append(piece.message)
        rows.append(np.array(mine, dtype=np.int64))
        ids.append(marks)
    if not said:
        raise BadInput(
            "no message of this trajectory is an action",
            hint="actions are messages of role assistant; --actions every takes all speakers",
        )
    cut = np.zeros(len(said), dtype=bool)
    return _known_first(
        ActionTokens(token_array(np.concatenate(rows)), np.concatenate(ids), tuple(said), cut)
    )


def _encode(codec: Codec, piece: Piece) -> list[int]:
    if not piece.fresh:
        return [int(i) for i in codec.encode(piece.text)]
    found: Any = codec.tokenizer(piece.text, add_special_tokens=False, verbose=False)["input_ids"]
    return [int(i) for i in found]


def _first_apart(mine: Sequence[int], theirs: Sequence[int]) -> str:
    for place, (a, b) in enumerate(zip(mine, theirs, strict=False)):
        if a != b:
            return f"token {place} is {a} and {b}"
    return f"{len(mine)} and {len(theirs)} tokens"


def _known_first(found: ActionTokens) -> ActionTokens:
    """An action that begins the sequence is cut: nothing precedes its first token to condition on."""
    cut = found.cut.copy()
    if len(found.step_id) and found.step_id[0] >= 0:
        cut[found.step_id[0]] = True
    return ActionTokens(found.tokens, found.step_id, found.messages, cut)


def cut_left(result: ActionTokens, limit: int) -> ActionTokens:
    """The last ``limit`` tokens; actions that lose a token are marked as cut, never scored as 0."""
    excess = len(result.tokens) - limit
    if excess <= 0:
        return result
    lost = result.step_id[:excess]
    cut = result.cut.copy()
    cut[np.unique(lost[lost >= 0])] = True
    left = ActionTokens(token_array(result.tokens[excess:]), result.step_id[excess:], result.messages, cut)
    return _known_first(left)


def vocabulary_difference(codec: Codec, other: Codec) -> str | None:
    """The first token that two tokenizers number apart, in words; None where they agree."""
    mine, theirs = codec.tokenizer.get_vocab(), other.tokenizer.get_vocab()
    if mine == theirs:
        return None
    for token, number in sorted(mine.items(), key=lambda pair: pair[1]):
        if theirs.get(token) != number:
            return f"token {token!r} is {number} and {theirs.get(token, 'not there')}"
    extra = min((number, token) for token, number in theirs.items() if token not in mine)
    return f"token {extra[1]!r} is not there and {extra[0]}"
