"""Trajectories and targets as token ids with a weight each, as the model's own chat template writes them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, final

import numpy as np

from refork.errors import BadInput, CannotDo
from refork.policies.chat import Codec
from refork.types import IntArray, Message, token_array
from refork.worlds.environment import EnvTrajectory
from refork_methods.simulate.prompt import Target, answer, messages
from refork_methods.train.supervised import rendered_turns
from refork_methods.train.weighted import Weighted

_PROBE = "\u241f"


@final
class Writer:
    """Chats as tokens for one tokenizer, with its chat template or, without one, the plain rendering.

    What is learned of an answer is its text and the token that ends its turn. In the plain rendering nothing
    ends a turn but the closing tag; the end of sequence follows the last answer only.
    """

    def __init__(self, codec: Codec) -> None:
        self.codec = codec

    @cached_property
    def frames(self) -> dict[str, tuple[str, str]] | None:
        """What the template writes around a message of each role, if that is always the same; else None."""
        if not self.codec.has_template:
            return {"system": ("", "\n"), "user": ("", "\n"), "assistant": ("", "")}
        roles = ("system", "user", "assistant", "user", "assistant")
        probe = [{"role": role, "content": f"{_PROBE}{i}{_PROBE}"} for i, role in enumerate(roles)]
        try:
            text = self.codec.template_text(probe, generate=False)
        except (BadInput, CannotDo):
            return None
        parts = text.split(_PROBE)
        # Content i is part 2 i + 1. An assistant's turn ends with the text that follows the last one.
        if parts[1::2] != [str(i) for i in range(len(roles))]:
            return None
        end = parts[-1]
        if not parts[6].startswith(end) or not parts[2].endswith(parts[6][len(end) :]):
            return None
        user = parts[6][len(end) :]
        middle = parts[2][: len(parts[2]) - len(user)]
        return {"system": (parts[0], middle), "user": (user, parts[4]), "assistant": ("", end)}

    def chat(
        self, chat: Sequence[Message], weights: Sequence[float], kinds: Sequence[int] | None = None
    ) -> list[Weighted]:
        """A conversation as one sequence, each answer with its weight (and kind).

        Where the template rewrites what came before, the rewritten context begins another sequence.

        Raises:
            BadInput: there are not as many weights as answers.
        """
        answers = sum(message["role"] == "assistant" for message in chat)
        if len(weights) != answers or (kinds is not None and len(kinds) != answers):
            raise BadInput(f"{answers} answers but {len(weights)} weights", where="conversation")
        names = [0] * answers if kinds is None else list(kinds)
        quick = self._whole(chat, weights, names)
        found = [quick] if quick is not None else self._in_steps(chat, weights, names)
        return [item for item in found if item.total > 0]

    def prompt(self, chat: Sequence[Message]) -> IntArray:
        """A chat up to where its answer begins."""
        return self.codec.render([], token_array([]), list(chat)).tokens

    def answered(self, chat: Sequence[Message], output: str, kind: int = 0) -> Weighted:
        """A chat and the answer to it, of which only the answer is learned, every token alike."""
        before = self.prompt(chat).tolist()
        tokens = self.codec.encode(output).tolist()
        tokens += self._end([*chat, {"role": "assistant", "content": output}], [*before, *tokens])
        weights = np.zeros(len(before) + len(tokens), dtype=np.float32)
        # The first token of all is predicted from nothing.
        weights[max(1, len(before)) :] = 1.0
        kinds = np.full(len(weights), kind, dtype=np.int32)
        return Weighted(token_array([*before, *tokens]), weights, kinds)

    def _whole(self, chat: Sequence[Message], weights: Sequence[float], kinds: list[int]) -> Weighted | None:
        """The conversation tokenised in one go, if it is certain where its answers lie."""
        tokenizer: Any = self.codec.tokenizer
        if self.frames is None or not getattr(tokenizer, "is_fast", False):
            return None
        text, spans = "", []
        for message in chat:
            before, after = self.frames[str(message["role"])]
            start = len(text) + len(before)
            text += before + str(message["content"]) + after
            if message["role"] == "assistant":
                spans.append((start, start + len(str(message["content"]))))
        plain = not self.codec.has_template
        # The frames are read off a probe: only the template's own text shows that they hold for this chat.
        if not plain and text != self.codec.template_text(chat, generate=False):
            return None
        found = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        opening = self.codec.opening if plain else []
        tokens = np.array(opening + found["input_ids"], dtype=np.int64)
        # Opening tokens stand for no text, so they lie before all of it.
        edges = np.array([(-1, -1)] * len(opening) + found["offset_mapping"], dtype=np.int64).reshape(-1, 2)
        given, named = np.zeros(len(tokens), dtype=np.float32), np.zeros(len(tokens), dtype=np.int32)
        for (start, end), weight, kind in zip(spans, weights, kinds, strict=True):
            # Tokens that lie wholly in the answer: one that reaches over its edge is also the template's.
            first, last = np.searchsorted(edges[:, 0], start), np.searchsorted(edges[:, 1], end, side="right")
            if not plain and last < len(tokens) and int(tokens[last]) in self.codec.eos_ids:
                last += 1
            given[first:last], named[first:last] = weight, kind
        if plain and chat and chat[-1]["role"] == "assistant" and isinstance(tokenizer.eos_token_id, int):
            tokens = np.append(tokens, tokenizer.eos_token_id)
            given = np.append(given, np.float32(weights[-1]))
            named = np.append(named, np.int32(kinds[-1]))
        return Weighted(token_array(tokens), given, named)

    def _in_steps(
        self, chat: Sequence[Message], weights: Sequence[float], kinds: list[int]
    ) -> list[Weighted]:
        """The conversation rendered turn by turn, as it would be sampled."""
        found = []
        # The last number is that of no answer.
        given, named = np.array([*weights, 0.0], dtype=np.float32), np.array([*kinds, 0], dtype=np.int32)
        for tokens, answers in rendered_turns(self.codec, chat, self._end):
            if given[answers[1:]].any():
                found.append(Weighted(tokens, given[answers], named[answers]))
        return found

    def _end(self, history: Sequence[Message], tokens: Sequence[int]) -> list[int]:
        """The token that closes an assistant's turn, else the end of sequence, if there is one."""
        if self.codec.has_template:
            frame = self.frames
            if frame is not None:
                first: list[int] = self.codec.encode(frame["assistant"][1]).tolist()[:1]
            else:
                closing = self.codec.render(history, token_array(tokens), [])
                first = [] if closing.rewrites else closing.tokens[:1].tolist()
            if first and first[0] in self.codec.eos_ids:
                return first
        eos = self.codec.tokenizer.eos_token_id
        return [int(eos)] if isinstance(eos, int) else []


def encode_trajectory(
    writer: Writer,
    trajectory: EnvTrajectory,
    weights: Sequence[float] | None = None,
    kinds: Sequence[int] | None = None,
    *,
    context: int | None = None,
) -> tuple[list[Weighted], int]:
    """All turns of a trajectory as targets, each token of an answer with its turn's weight (default 1).

    Turns of weight 0 stay in the context, and so do those that are no target, whatever weight is given. Of a
    trajectory longer than ``context`` tokens the last turns are
    left out, whole ones; nothing is left where not even the first fits.

    Returns:
        The sequence (several where the template rewrites what came before), and how many turns it holds.
    """
    given = [1.0] * len(trajectory.turns) if weights is None else list(weights)
    if len(given) != len(trajectory.turns):
        raise BadInput(
            f"{len(trajectory.turns)} turns but {len(given)} weights", where=f"trajectory {trajectory.id}"
        )
    given = [0.0 if turn.target is False else w for turn, w in zip(trajectory.turns, given, strict=True)]
    count = len(given)
    while count:
        chat = messages(trajectory.brief, trajectory.history(count))
        found = writer.chat(chat, given[:count], None if kinds is None else kinds[:count])
        longest = max((len(item.tokens) for item in found), default=0)
        if context is None or longest <= context:
            return found, count
        # About as many turns as the tokens allow, and at least one fewer.
        count = min(count - 1, max(1, int(count * context / longest))) if count > 1 else 0
    return [], 0


def encode_target(
    writer: Writer,
    target: Target,
    *,
    prediction: str | None = None,
    note: str | None = None,
    kind: int = 0,
) -> Weighted:
    """One target with its answer: the turn's own observation and note, or what is given instead."""
    said = target.truth if prediction is None else prediction
    thought = target.turn.note if note is None else note
    return writer.answered(target.messages(), answer(said, thought), kind)
