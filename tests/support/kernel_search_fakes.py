"""The shipped fakes of both seams: evaluations from a function, proposals from a list of moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

import numpy as np

from refork_methods.kernel.bench.result import Candidate, Evaluated
from refork_methods.kernel.search.model import Observation, Proposal, WriterState
from refork_methods.kernel.tool import Finding


@final
class TableEvaluator:
    """Speed-ups by a function of the candidate; None is a kernel that is wrong. Nothing is run.

    ``result`` gives the findings of a candidate. ``evaluated`` lists what was asked for, in order.
    """

    def __init__(
        self,
        speedup: Callable[[Candidate], float | None],
        result: Callable[[Candidate], Sequence[Finding]] = lambda candidate: (),
        noise: float = 1.0,
    ) -> None:
        self._speedup, self._found, self._noise = speedup, result, noise
        self.evaluated: list[Candidate] = []
        self.prepared: list[tuple[Candidate, ...]] = []

    @property
    def noise(self) -> float:
        """What it was given."""
        return self._noise

    def prepare(self, candidates: Sequence[Candidate]) -> None:
        """Only noted."""
        self.prepared.append(tuple(candidates))

    def evaluate(self, candidate: Candidate) -> Evaluated:
        """From the function; the reference takes one second."""
        self.evaluated.append(candidate)
        return self._evaluated(candidate)

    def observe(self, candidate: Candidate, evaluated: Evaluated) -> Observation:
        """From the function."""
        return Observation(findings=tuple(self._found(candidate)))

    def duel(self, candidates: Sequence[Candidate]) -> list[Evaluated]:
        """As evaluated."""
        return [self._evaluated(one) for one in candidates]

    def _evaluated(self, candidate: Candidate) -> Evaluated:
        speedup = self._speedup(candidate)
        if speedup is None:
            return Evaluated(ok=False, stage="check", why="the result is wrong", error=1.0)
        return Evaluated(
            ok=True, stage="done", error=0.0, seconds=1 / speedup, reference_seconds=1.0, speedup=speedup,
            samples=(1 / speedup,), low=speedup, high=speedup,
        )  # fmt: skip


@final
class WordWriter:
    """Appends one of ``words`` to the source, drawn by the state's key; at most ``longest`` words in all."""

    def __init__(self, words: Sequence[str], longest: int | None = None) -> None:
        self._words, self._longest = tuple(words), longest

    @property
    def name(self) -> str:
        """With its words."""
        return f"words:{','.join(self._words)}"

    def propose(self, state: WriterState) -> Proposal | None:
        """A word that was not tried here."""
        if self._longest is not None and len(state.path) > self._longest:
            return None
        left = [word for word in self._words if word not in state.tried]
        if not left:
            return None
        word = str(np.random.default_rng(state.key).choice(left))
        source = f"{state.candidate.source} {word}".strip()
        return Proposal(source, state.candidate.flags, word, "drawn", family=word)
