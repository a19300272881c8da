"""Preference pairs at cliffs: another token at the same place against the one that fell.

Source: arXiv 2606.25524 for both variants; that only cliffs which survived a re-test make pairs, and the
check of the text form, are our own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from refork.errors import BadInput
from refork.forking.context import conversation
from refork.policies.base import Policy
from refork.types import Json, Message, token_array
from refork_methods.cliff.candidates import Candidate, Choices, falls
from refork_methods.cliff.detect import Count

Variant = Literal["1:N", "hard"]


@dataclass(frozen=True, slots=True)
class Pair:
    """One pair: after ``prompt_tokens``, ``chosen`` is to be said rather than ``rejected``.

    The values are success probabilities before the token, after the chosen and after the rejected one. The
    text form (``messages``, the turn so far, the two tokens as text) is None where it would not give the same
    token ids again.
    """

    prompt_tokens: tuple[int, ...]
    chosen: int
    rejected: int
    kind: str | None
    value_before: float
    value_chosen: float
    value_rejected: float
    messages: tuple[Message, ...] | None = None
    turn: str | None = None
    chosen_text: str | None = None
    rejected_text: str | None = None
    cliff: str = ""

    def __post_init__(self) -> None:
        if not self.prompt_tokens:
            raise BadInput("a pair needs the token ids before it", where="preference pair")
        if self.chosen == self.rejected:
            raise BadInput(f"token {self.chosen} is both chosen and rejected", where="preference pair")

    def to_json(self) -> Json:
        """Plain fields."""
        plain = asdict(self)
        plain["prompt_tokens"] = list(self.prompt_tokens)
        plain["messages"] = None if self.messages is None else list(self.messages)
        return plain

    @classmethod
    def from_json(cls, data: Json) -> Pair:
        """Inverse of :meth:`to_json`; raises BadInput where a field is missing."""
        try:
            messages = None if data["messages"] is None else tuple(data["messages"])
            return cls(**{**data, "prompt_tokens": tuple(data["prompt_tokens"]), "messages": messages})
        except (KeyError, TypeError) as error:
            raise BadInput(f"this is no preference pair: {error}", where="pairs file") from error


def chosen_tokens(
    before: Count, rejected: int, options: Sequence[Candidate], variant: Variant = "1:N"
) -> list[Candidate]:
    """Candidates that may be preferred to the rejected token.

    ``1:N``: every graded one that is no cliff itself. ``hard``: those also at least as good as the point.

    Raises: BadInput for an unknown variant.
    """
    if variant not in ("1:N", "hard"):
        raise BadInput(f"unknown variant {variant!r}", hint="1:N or hard")
    value = before[0] / before[1]
    return [
        c
        for c in options
        if c.token != rejected
        and c.value is not None
        and not falls(before, c.count)
        and (variant == "1:N" or c.value >= value)
    ]


def cliff_pairs(
    result: Iterable[Choices], policy: Policy, variant: Variant = "1:N", *, unproven: bool = False
) -> list[Pair]:
    """The pairs of cliffs whose candidates are known; those that did not survive only if ``unproven``."""
    pairs: list[Pair] = []
    for choices in result:
        cliff, before = choices.cliff, choices.cliff.nominee.before
        if not (cliff.real or unproven):
            continue
        assert before.tree is not None
        trajectory = before.tree.path(before)
        talk = conversation(trajectory)
        for option in chosen_tokens(cliff.before, cliff.nominee.token, choices.candidates, variant):
            prompt = tuple(int(t) for t in trajectory.tokens)
            text = _text(policy, prompt, talk.messages, talk.pending or "", option.token, cliff.nominee.token)
            messages, turn, chosen_text, rejected_text = text or (None, None, None, None)
            pairs.append(
                Pair(
                    prompt,
                    option.token,
                    cliff.nominee.token,
                    cliff.kind,
                    cliff.before[0] / cliff.before[1],
                    float(option.value or 0.0),
                    cliff.after[0] / cliff.after[1],
                    messages,
                    turn,
                    chosen_text,
                    rejected_text,
                    before.address,
                )
            )
    return pairs


def _text(
    policy: Policy, prompt: tuple[int, ...], messages: tuple[Message, ...], turn: str, *tokens: int
) -> tuple[tuple[Message, ...], str, str, str] | None:
    """Messages, turn and both tokens as text; None unless all of it reads back as the same ids."""
    opening = policy.render([], token_array([]), messages).tokens
    texts = [policy.decode(token_array([token])) for token in tokens]
    # A token alone may be part of a character, or merge with the text before it when that is read anew.
    for token, text in zip(tokens, texts, strict=True):
        said = policy.encode(turn + text) if turn + text else token_array([])
        if not np.array_equal(np.concatenate([opening, said]), np.array([*prompt, token])):
            return None
    return messages, turn, texts[0], texts[1]


def write_pairs(pairs: Iterable[Pair], file: Path) -> int:
    """Pairs as JSON lines, replacing the file in one step; how many."""
    rows = [json.dumps(pair.to_json()) for pair in pairs]
    part = file.with_suffix(".part")
    part.write_text("".join(row + "\n" for row in rows))
    part.replace(file)
    return len(rows)


def read_pairs(file: Path) -> list[Pair]:
    """Pairs of a JSON-lines file; raises BadInput where there is none, naming a bad line."""
    if not file.exists():
        raise BadInput("there are no pairs yet", where=str(file), hint="refork cliff pairs")
    pairs = []
    for number, line in enumerate(file.read_text().splitlines(), 1):
        try:
            pairs.append(Pair.from_json(json.loads(line)))
        except (ValueError, BadInput) as error:
            raise BadInput(f"line {number} is no preference pair", where=str(file)) from error
    return pairs
