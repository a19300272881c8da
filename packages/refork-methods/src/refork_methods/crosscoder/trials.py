"""Prompts that judge an intervention: the same noise in every arm, two token caps from one generation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from refork import stats
from refork.errors import BadInput
from refork.growing.plant import opening
from refork.policies.base import Request, Sampling, sample_all
from refork.policies.local import LocalPolicy
from refork.sampling.noise import NoiseKey, stream_of
from refork.types import IntArray, token_array
from refork.worlds.base import Task, World

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Trials:
    """Prompts with a scorer: ``score(i, text)`` is 1 or 0 for what was said to prompt i.

    ``short`` and ``long`` are token caps. Texts at the short cap are the beginnings of those at the long
    one, so a policy draws once. ``seed`` addresses the noise, which is the same for every policy: arms are
    paired.

    Raises:
        BadInput: fewer than two prompts, or caps that are not 0 < short < long.
    """

    prompts: tuple[IntArray, ...]
    score: Callable[[int, str], float]
    short: int = 12
    long: int = 32
    temperature: float = 1.0
    seed: int = 0
    first: int = 0

    def __post_init__(self) -> None:
        if len(self.prompts) < 2:
            raise BadInput(f"{len(self.prompts)} prompts cannot be compared", where="trials")
        if not 0 < self.short < self.long:
            raise BadInput(f"token caps {self.short} and {self.long}: 0 < short < long", where="trials")

    def part(self, start: int, stop: int) -> Trials:
        """Some of the prompts, with their own noise and scores."""
        score, first = self.score, self.first + start
        return Trials(
            self.prompts[start:stop], lambda i, text: score(i + start, text), self.short, self.long,
            self.temperature, self.seed, first,
        )  # fmt: skip

    def run(self, policy: LocalPolicy) -> Outcomes:
        """What a policy scores on every prompt, at both caps."""
        requests = [
            # The prompt's number in the whole: a part draws with the noise that it had there.
            Request(tokens, NoiseKey(self.seed, stream_of("trials", self.first + i), 0))
            for i, tokens in enumerate(self.prompts)
        ]
        said = sample_all(policy, requests, Sampling(temperature=self.temperature, max_tokens=self.long))
        late = [self.score(i, item.text) for i, item in enumerate(said)]
        early = [self.score(i, policy.decode(item.tokens[: self.short])) for i, item in enumerate(said)]
        tokens = tuple(item.tokens for item in said)
        return Outcomes(np.array(late, dtype=np.float64), np.array(early, dtype=np.float64), tokens)


def world_trials(
    policy: LocalPolicy,
    world: World,
    tasks: Sequence[Task],
    *,
    short: int = 12,
    long: int = 32,
    temperature: float = 1.0,
    seed: int = 0,
) -> Trials:
    """Trials on tasks of a world of one turn: 1 where the world's reward is whole, else 0.

    Raises:
        BadInput: a world whose episodes take more than one turn.
    """
    if world.max_turns != 1:
        raise BadInput(
            f"episodes of {world.name} take up to {world.max_turns} turns; an intervention is judged by one",
            where="trials",
            hint="for example --world toolcall:4",
        )
    first = []
    for task in tasks:
        with closing(world.start(task, 0)) as episode:
            first.append(opening(task.prompt, episode.first.text))
    prompts = tuple(policy.render([], token_array([]), [message]).tokens for message in first)

    def score(number: int, text: str) -> float:
        with closing(world.start(tasks[number], 0)) as episode:
            return float((episode.step(text).reward or 0.0) >= 1.0)

    return Trials(prompts, score, short, long, temperature, seed)


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """Scores of one arm, prompt by prompt, at the long and the short cap, and the drawn tokens."""

    long: Floats
    short: Floats
    tokens: tuple[IntArray, ...]

    def same_tokens(self, other: Outcomes) -> bool:
        """Whether both arms drew exactly the same tokens for every prompt."""
        pairs = zip(self.tokens, other.tokens, strict=True)
        return len(self.tokens) == len(other.tokens) and all(np.array_equal(x, y) for x, y in pairs)


@dataclass(frozen=True, slots=True)
class Gain:
    """An arm against the clean model at both caps, with 95 % intervals of the paired differences.

    ``label``: ``none`` (no interval above 0), ``short cap only`` (the long cap shows nothing, so the model
    may just have become briefer), ``long cap only``, or ``both caps``.
    """

    long: stats.Interval
    short: stats.Interval
    p: float
    label: Literal["none", "short cap only", "long cap only", "both caps"]


def gain(clean: Outcomes, other: Outcomes) -> Gain:
    """What an arm gained over the clean one; p is McNemar's (or t) at the long cap."""
    late = stats.paired_difference(clean.long, other.long)
    early = stats.paired_difference(clean.short, other.short)
    above = (early.interval.low > 0, late.interval.low > 0)
    labels: dict[tuple[bool, bool], Literal["none", "short cap only", "long cap only", "both caps"]] = {
        (False, False): "none",
        (True, False): "short cap only",
        (False, True): "long cap only",
        (True, True): "both caps",
    }
    return Gain(late.interval, early.interval, late.p, labels[above])
