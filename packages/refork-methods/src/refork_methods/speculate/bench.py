"""Plain against speculative decoding of one model: the same requests, in turns, in one process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from refork.errors import BadInput
from refork.policies.base import Continuation, Policy, Request, Sampling, sample_all
from refork.policies.local import LocalPolicy
from refork.progress import Progress, silent
from refork.sampling.noise import NoiseKey, stream_of
from refork.types import FloatArray, IntArray, Json, token_array
from refork_methods.speculate.data import Prompt
from refork_methods.speculate.decoder import SpeculativeDecoder
from refork_methods.speculate.speculator import SpeculationStats


@final
@dataclass(frozen=True, slots=True, eq=False)
class BatchResult:
    """One batch size: seconds [repeats] and tokens [repeats] of both ways, and what the rounds came to.

    ``other_tokens`` counts requests whose tokens differ from plain decoding's (None: the rule does not
    promise them). ``logprob_gap`` is the largest distance in nats between the log-probs given with the tokens
    and those of scoring the same tokens.
    """

    batch: int
    plain_seconds: tuple[float, ...]
    seconds: tuple[float, ...]
    plain_tokens: tuple[int, ...]
    tokens: tuple[int, ...]
    stats: SpeculationStats
    other_tokens: int | None
    logprob_gap: float

    @property
    def plain_speed(self) -> float:
        """Tokens per second of plain decoding, the median of the repeats."""
        return float(np.median(np.divide(self.plain_tokens, self.plain_seconds)))

    @property
    def speed(self) -> float:
        """Tokens per second with the drafter, the median of the repeats."""
        return float(np.median(np.divide(self.tokens, self.seconds)))

    @property
    def ratios(self) -> tuple[float, ...]:
        """How much faster each repeat was than the plain one beside it, sorted."""
        plain = np.divide(self.plain_tokens, self.plain_seconds)
        return tuple(sorted((np.divide(self.tokens, self.seconds) / plain).tolist()))

    @property
    def ratio(self) -> float:
        """The median of :attr:`ratios`."""
        return float(np.median(self.ratios))

    def to_json(self) -> Json:
        """Plain figures."""
        return {
            "batch": self.batch,
            "plain_tokens_per_s": self.plain_speed,
            "tokens_per_s": self.speed,
            "ratio": self.ratio,
            "ratio_range": [self.ratios[0], self.ratios[-1]],
            "other_tokens": self.other_tokens,
            "logprob_gap": self.logprob_gap,
            **self.stats.to_json(),
        }


def prompt_tokens(target: LocalPolicy, prompts: Sequence[Prompt]) -> list[IntArray]:
    """The contexts that prompts begin: their text, or their first messages in the model's template."""
    nothing = token_array([])
    return [
        target.encode(p.text) if p.text is not None else target.render([], nothing, p.stages[0]).tokens
        for p in prompts
    ]


def bench(
    decoder: SpeculativeDecoder,
    prompts: Sequence[IntArray],
    settings: Sampling,
    *,
    batches: Sequence[int] = (1, 8, 32),
    repeats: int = 5,
    seed: int = 0,
    progress: Progress = silent,
) -> list[BatchResult]:
    """Time a drafter at several batch sizes; plain and speculative draws take turns in going first.

    Every batch draws that many continuations at once, of the prompts in turn; no prefix is remembered between
    draws. Both get the same requests and noise. One draw of each before the first counts for nothing.

    Raises:
        BadInput: no prompt, or a batch or a number of repeats below 1.
    """
    if not prompts:
        raise BadInput("there is no prompt to time")
    if repeats < 1 or not batches or min(batches) < 1:
        raise BadInput("batches and repeats must be at least 1")
    results = []
    for number, batch in enumerate(batches):
        progress(f"batch {batch}", number, len(batches))
        results.append(_batch(decoder, prompts, settings, batch, repeats, seed))
    progress("done", len(batches), len(batches))
    return results


def _batch(
    decoder: SpeculativeDecoder,
    prompts: Sequence[IntArray],
    settings: Sampling,
    batch: int,
    repeats: int,
    seed: int,
) -> BatchResult:
    target = decoder.target
    ways: tuple[Policy, Policy] = (target, decoder)
    took: tuple[list[float], list[float]] = ([], [])
    counts: tuple[list[int], list[int]] = ([], [])
    other, gap = 0, 0.0
    for repeat in range(-1, repeats):
        asked = _requests(prompts, batch, repeat, seed)
        if repeat == 0:
            decoder.reset()
        said: dict[int, list[Continuation]] = {}
        for way in (0, 1) if repeat % 2 else (1, 0):
            target.decoder.cache.clear()
            began = time.perf_counter()
            said[way] = sample_all(ways[way], asked, settings)
            if repeat >= 0:
                took[way].append(time.perf_counter() - began)
                counts[way].append(sum(len(item.tokens) for item in said[way]))
        pairs = zip(*said.values(), strict=True)
        other += sum(not np.array_equal(a.tokens, b.tokens) for a, b in pairs)
        if repeat == repeats - 1:
            gap = _gap(target, asked, said[1])
    promised = decoder.rule == "coupled" or settings.temperature == 0.0
    return BatchResult(
        batch,
        tuple(took[0]),
        tuple(took[1]),
        tuple(counts[0]),
        tuple(counts[1]),
        decoder.stats,
        other if promised else None,
        gap,
    )


def _requests(prompts: Sequence[IntArray], batch: int, repeat: int, seed: int) -> list[Request]:
    stream, first = stream_of("speculate bench", batch), (repeat + 1) * batch
    return [
        Request(prompts[(first + i) % len(prompts)], NoiseKey(seed, stream, first + i)) for i in range(batch)
    ]


def _gap(target: LocalPolicy, asked: Sequence[Request], said: Sequence[Continuation]) -> float:
    """How far log-probs given with tokens are from those of scoring them, at temperature 1."""
    whole = [np.concatenate([r.tokens, c.tokens]).astype(np.int32) for r, c in zip(asked, said, strict=True)]
    worst = 0.0
    for request, item, scores in zip(asked, said, target.logprobs(whole), strict=True):
        given: FloatArray | None = item.logprobs_t1
        if given is not None and len(given):
            worst = max(worst, float(np.abs(scores[len(request.tokens) - 1 :] - given).max()))
    return worst
