"""Settings by which tokens are drawn: a value that is recorded with every sampled node."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

from refork.errors import BadInput
from refork.sampling.grammar import Grammar
from refork.types import Coupling, Json


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn; a value object that is recorded with every sampled node.

    Filters act in this order, vLLM's: grammar, bans, repetition penalty, frequency penalty, presence penalty,
    temperature, min-p, top-k, top-p. ``temperature=0`` is greedy, after bans and penalties.
    ``repetition_penalty`` r reads the prompt and the turn so far: the logit of a token that occurs in either
    is divided by r where it is above 0, else multiplied by r. ``frequency_penalty`` times the number of times
    that the token occurs in the turn so far, and ``presence_penalty`` where it occurs at all, are subtracted;
    these two do not read the prompt. The turn so far holds what was said before the point of a fork inside
    it, and forced tokens. ``min_p`` keeps tokens of at least that share of the likeliest one's probability.
    ``stop`` strings end a continuation after the token that completes one; the text keeps it.
    ``forced`` tokens are emitted first, whatever the distribution says; their log-probs are the
    distribution's. ``banned_first`` acts on the first free token of a turn only, ``banned`` on all.
    ``grammar``: what every whole turn must be; ids that end a turn may come only where it is whole, and other
    ends may cut it.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    max_tokens: int = 256
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    banned: tuple[int, ...] = ()
    banned_first: tuple[int, ...] = ()
    forced: tuple[int, ...] = ()
    coupling: Coupling = "inverse"
    ignore_eos: bool = False
    entropy_top_k: int | None = None
    grammar: Grammar | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None

    def __post_init__(self) -> None:  # noqa: C901 (a list of independent checks)
        def refuse(name: str, rule: str) -> None:
            raise BadInput(f"{name} is {getattr(self, name)!r}; it must be {rule}", where="sampling")

        # A logit over less than that is infinite in float32, and infinities of two tokens have no order.
        if not math.isfinite(self.temperature) or not (self.temperature == 0 or self.temperature >= 1e-30):
            refuse("temperature", "0 (greedy), or a finite number of 1e-30 or more")
        if self.top_k is not None and self.top_k < 1:
            refuse("top_k", "at least 1, or None")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            refuse("top_p", "in (0, 1], or None")
        if self.min_p is not None and not 0 <= self.min_p <= 1:
            refuse("min_p", "in [0, 1], or None")
        if self.repetition_penalty is not None and not 0 < self.repetition_penalty < math.inf:
            refuse("repetition_penalty", "a finite number above 0 (1 changes nothing), or None")
        for name in ("presence_penalty", "frequency_penalty"):
            value = getattr(self, name)
            # Servers' own bounds, OpenAI's: what is recorded can be asked of any of them.
            if value is not None and not -2 <= value <= 2:
                refuse(name, "in [-2, 2] (0 changes nothing), or None")
        if self.max_tokens < 1:
            refuse("max_tokens", "at least 1")
        if self.coupling not in ("inverse", "gumbel"):
            refuse("coupling", "'inverse' or 'gumbel'")
        if len(self.forced) > self.max_tokens:
            refuse("forced", f"no longer than max_tokens ({self.max_tokens})")
        if any(not item for item in self.stop):
            refuse("stop", "free of empty strings")
        grammar: object = self.grammar
        if grammar is not None and not isinstance(grammar, Grammar):
            refuse("grammar", "a Grammar, or None")

    def to_json(self) -> Json:
        """Fields that differ from the defaults, as plain JSON data."""
        # Defaults stay out, so that a new field does not change the ids of arms that were recorded before it.
        plain = Sampling()
        return {
            f.name: _plain(value)
            for f in fields(self)
            if (value := getattr(self, f.name)) != getattr(plain, f.name)
        }

    @classmethod
    def from_json(cls, data: Json) -> Sampling:
        """Inverse of :meth:`to_json`; an unknown key is refused."""
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(data) - known)
        if unknown:
            raise BadInput(f"unknown sampling setting {unknown[0]!r}", hint=f"known: {sorted(known)}")
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        if isinstance(values.get("grammar"), dict):
            values["grammar"] = Grammar.from_json(values["grammar"])
        return cls(**values)

    def but(self, **changes: Any) -> Sampling:
        """A copy with some fields changed."""
        return replace(self, **changes)

    @property
    def distribution(self) -> tuple[object, ...]:
        """What decides the distribution of a free token given the text before, where no grammar does.

        Equal for settings that say the same in other words (``top_p=1`` and ``top_p=None``). What holds for
        the first token alone (``forced``, ``banned_first``) is not in it.
        """
        return (
            self.temperature,
            self.top_k,
            None if self.top_p == 1 else self.top_p,
            self.min_p or None,
            *self.penalties,
            tuple(sorted(set(self.banned))),
        )

    @property
    def penalties(self) -> tuple[float, float, float]:
        """Repetition, frequency and presence penalty; (1, 0, 0) changes nothing."""
        repetition = 1.0 if self.repetition_penalty is None else self.repetition_penalty
        return repetition, self.frequency_penalty or 0.0, self.presence_penalty or 0.0

    @property
    def penalised(self) -> bool:
        """Whether the distribution depends on which tokens were said before, beyond what the model reads."""
        return self.penalties != (1.0, 0.0, 0.0)

    @property
    def filtered(self) -> bool:
        """Whether top-k, top-p or min-p take tokens out."""
        return self.temperature != 0 and (
            self.top_k is not None or self.top_p not in (None, 1) or bool(self.min_p)
        )

    @property
    def is_plain(self) -> bool:
        """Whether free tokens are drawn from the model's own distribution: temperature 1, nothing else."""
        return self.distribution == Sampling().distribution and not self.banned_first and self.grammar is None


def _plain(value: Any) -> Any:
    if isinstance(value, Grammar):
        return value.to_json()
    return list(value) if isinstance(value, tuple) else value
