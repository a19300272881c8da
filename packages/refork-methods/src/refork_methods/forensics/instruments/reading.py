"""Judges of sentences, replies and traces: patterns, callables, or a model that is asked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from refork.chat import ask
from refork.errors import BadInput
from refork.policies.base import Policy, Sampling
from refork.tree.score import Producer
from refork.types import Json


@runtime_checkable
class Reader(Protocol):
    """Labels texts. ``labels`` are all it may give; None: it cannot say."""

    @property
    def producer(self) -> Producer:
        """Name, version and configuration."""
        ...

    @property
    def labels(self) -> tuple[str, ...]:
        """Every label it may give."""
        ...

    def read(self, texts: Sequence[str]) -> list[str | None]:
        """A label for every text."""
        ...


@dataclass(frozen=True, slots=True)
class Patterns:
    """The label of the first regular expression that is found in a text; ``otherwise`` where none is."""

    patterns: tuple[tuple[str, str], ...]
    otherwise: str | None = "other"

    def __post_init__(self) -> None:
        for _, pattern in self.patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise BadInput(f"not a regular expression: {error}", where=repr(pattern)) from error
        if not self.patterns:
            raise BadInput("a reader needs at least one pattern")

    @classmethod
    def of(cls, otherwise: str | None = "other", **patterns: str) -> Patterns:
        r"""``Patterns.of(yes=r"\byes\b", no=r"\bno\b")``; the first that is found counts."""
        return cls(tuple(patterns.items()), otherwise)

    @property
    def producer(self) -> Producer:
        """This reader with its patterns."""
        config: Json = {"patterns": [list(p) for p in self.patterns]}
        # Beside the patterns alone where it is the usual one: readers on record have that id.
        config |= {} if self.otherwise == "other" else {"otherwise": self.otherwise}
        return Producer("patterns", "1", config)

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels in order, the fallback last."""
        rest = () if self.otherwise is None else (self.otherwise,)
        return tuple(dict.fromkeys([*(label for label, _ in self.patterns), *rest]))

    def read(self, texts: Sequence[str]) -> list[str | None]:
        """A label for every text."""
        return [
            next((label for label, p in self.patterns if re.search(p, text)), self.otherwise)
            for text in texts
        ]


@dataclass(frozen=True, slots=True)
class AskModel:
    """A model that is asked about every text; its label is the first of ``labels`` that its answer holds.

    ``question`` holds ``{text}``. Its producer names the weights, so that a model that judges itself is
    noticed.
    """

    policy: Policy
    question: str
    labels: tuple[str, ...] = ("yes", "no")
    settings: Sampling = field(default_factory=lambda: Sampling(temperature=0.0, max_tokens=64))

    def __post_init__(self) -> None:
        if "{text}" not in self.question or not self.labels:
            raise BadInput(
                "the question must hold {text}, and there must be labels", where=repr(self.question)
            )

    @property
    def producer(self) -> Producer:
        """The model, its weights, the question and the labels."""
        card = self.policy.card
        config = {
            "weights": card.weights or card.name,
            "question": self.question,
            "labels": list(self.labels),
        }
        return Producer(f"ask:{card.name}", "1", config | {"settings": self.settings.to_json()})

    def read(self, texts: Sequence[str]) -> list[str | None]:
        """A label for every text; None where the answer holds none, or no answer came."""
        answers = ask(self.policy, [self.question.replace("{text}", text) for text in texts], self.settings)
        return [None if answer is None else first_label(answer, self.labels) for answer in answers]


def first_label(answer: str, labels: Sequence[str]) -> str | None:
    """The label that stands first in an answer as a whole word, in any case; the longer of two there."""
    found = [
        (hit.start(), -len(label), label)
        for label in labels
        if (hit := re.search(rf"(?<!\w){re.escape(label)}(?!\w)", answer, re.IGNORECASE))
    ]
    return min(found)[2] if found else None
