"""Is a decoder's law that of plain decoding? Chi-square on samples, and greedy answers token for token."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from refork.errors import BadInput
from refork.policies.base import NextLaw, Policy, Request, Sampling, sample_all
from refork.progress import Progress, silent
from refork.sampling.noise import NoiseKey, stream_of
from refork.stats import holm
from refork.types import IntArray, token_array
from refork_methods.speculate.lossless import Case, Certificate
from refork_methods.speculate.tiny import Prefix

Counts: TypeAlias = Counter[Prefix]
LEAST_EXPECTED = 5.0
"""Cells that expect fewer samples are pooled, so that the statistic is near its law."""
POWER = 0.9
_MOST_PREFIXES = 4096
_AT_ONCE = 8192


def check_decoder(
    plain: Policy,
    speculative: Policy,
    prefixes: Sequence[IntArray],
    settings: Mapping[str, Sampling],
    *,
    samples: int = 100_000,
    tokens: int = 2,
    greedy: Sequence[IntArray] = (),
    greedy_tokens: int = 32,
    level: float = 0.001,
    seed: int = 0,
    progress: Progress = silent,
) -> Certificate:
    """Sample tokens after every prefix under every setting; compare their law with that of plain decoding.

    Where the plain policy can say the law of the next token and there are few enough continuations, the
    samples are held against the exact law; else against as many samples of the plain policy. ``samples`` is
    per setting, shared out among the prefixes. ``greedy`` prompts are also answered at temperature 0 by
    both. The certificate's ``error_rate`` is ``level``: so often is an exact decoder refused (Holm over all
    cases).

    Raises:
        BadInput: nothing to compare, or settings at temperature 0 (those belong in ``greedy``).
    """
    if not (prefixes and settings) and not greedy:
        raise BadInput("there is nothing to compare", hint="give prefixes and settings, or greedy prompts")
    if any(s.temperature == 0 for s in settings.values()):
        raise BadInput("samples at temperature 0 are all equal", hint="give those prompts as greedy")
    cases: list[Case] = []
    each = max(1, samples // max(len(prefixes), 1))
    total = len(settings) * len(prefixes)
    for name, given in settings.items():
        setting = given.but(max_tokens=tokens, ignore_eos=True)
        for place, prefix in enumerate(prefixes):
            progress("sampling", len(cases), total)
            stream = stream_of("check-lossless", name, place)
            seen = _counts(speculative, prefix, setting, each, seed, stream)
            expected = exact_law(plain, prefix, setting)
            label = f"{name}, prompt {place + 1}"
            if expected is not None:
                cases.append(against_law(label, seen, expected))
            else:
                other = stream_of("check-lossless plain", name, place)
                cases.append(against_samples(label, seen, _counts(plain, prefix, setting, each, seed, other)))
    mismatches = _greedy(plain, speculative, greedy, greedy_tokens) if greedy else None
    ps = [case.p for case in cases if case.p is not None]
    least = float(np.min(holm(np.array(ps), level).p)) if ps else None
    lossless = (least is None or least > level) and not mismatches
    return Certificate(
        speculative.card.name, "chi-square", lossless, None, least, level, tuple(cases), mismatches
    )


def exact_law(policy: Policy, prefix: IntArray, settings: Sampling) -> dict[Prefix, float] | None:
    """The law of the next ``max_tokens`` tokens; None where it cannot be had or is too large.

    A repetition penalty acts on logits, of which log-probabilities do not tell where 0 is.
    """
    import torch

    from refork.sampling.distribution import History, SoFar, restrict

    if not isinstance(policy, NextLaw) or settings.penalties[0] != 1.0:
        return None
    living: dict[Prefix, float] = {(): 1.0}
    for step in range(settings.max_tokens):
        if len(living) > _MOST_PREFIXES:
            return None
        laws = policy.next_logprobs([token_array([*prefix, *said]) for said in living])
        logits = torch.from_numpy(np.stack(laws)).float()
        first = torch.full((len(living),), step == 0)
        history = None
        if settings.penalised:
            whole = [token_array([*prefix, *said]) for said in living]
            history = History.of([SoFar(tokens, step) for tokens in whole], logits.device)
        scores = restrict(logits, settings, first, history=history)
        law = torch.softmax(scores, dim=-1, dtype=torch.float64).numpy()
        living = {
            (*said, int(token)): chance * float(law[row, token])
            for row, (said, chance) in enumerate(living.items())
            for token in np.flatnonzero(law[row])
        }
    return living


def against_law(name: str, seen: Counts, law: Mapping[Prefix, float]) -> Case:
    """Chi-square of counts against an exact law; anything seen that the law excludes has p = 0."""
    from scipy.stats import chisquare

    total = sum(seen.values())
    if any(tokens not in law for tokens in seen):
        return Case(name, p=0.0, samples=total, cells=len(law))
    order = sorted(law, key=lambda t: -law[t])
    expected = np.array([law[t] for t in order])
    observed = np.array([seen[t] for t in order], dtype=np.float64)
    expected, observed = _pooled(total * expected / expected.sum(), observed, LEAST_EXPECTED)
    if len(expected) < 2:
        return Case(name, p=1.0, samples=total, cells=len(expected))
    p = float(chisquare(observed, expected).pvalue)
    return Case(name, p=p, samples=total, cells=len(expected), detectable=_detectable(total, len(expected)))


def against_samples(name: str, seen: Counts, plain: Counts) -> Case:
    """Chi-square of two samples, pooled until both expect enough in every cell."""
    from scipy.stats import chi2_contingency

    total = sum(seen.values())
    order = sorted(seen.keys() | plain.keys(), key=lambda t: -(seen[t] + plain[t]))
    table = np.array([[seen[t] for t in order], [plain[t] for t in order]], dtype=np.float64)
    both = table.sum(axis=0)
    share = min(table.sum(axis=1)) / table.sum()
    pooled = np.stack([_pooled(both * share, row, LEAST_EXPECTED)[1] for row in table])
    if pooled.shape[1] < 2:
        return Case(name, p=1.0, samples=total, cells=pooled.shape[1])
    p = float(chi2_contingency(pooled, correction=False).pvalue)
    cells = pooled.shape[1]
    # Two samples of n tell two laws apart about as one of n / 2 tells one from a known law.
    return Case(name, p=p, samples=total, cells=cells, detectable=_detectable(total / 2, cells))


def _pooled(expected: np.ndarray, observed: np.ndarray, least: float) -> tuple[np.ndarray, np.ndarray]:
    """Cells in falling order of what they expect, the smallest put together until each expects ``least``."""
    keep = int((expected >= least).sum())
    while 0 < keep < len(expected) and expected[keep:].sum() < least:
        keep -= 1
    if keep == len(expected):
        return expected, observed
    return (
        np.append(expected[:keep], expected[keep:].sum()),
        np.append(observed[:keep], observed[keep:].sum()),
    )


def _detectable(samples: float, cells: int, level: float = 0.001) -> float:
    """A total variation between the pooled laws that is found with 90 % chance, whatever its shape.

    The statistic's noncentrality is at least 4 n TV^2, by the inequality of Cauchy and Schwarz.
    """
    from scipy.optimize import brentq
    from scipy.stats import chi2, ncx2

    freedom = cells - 1
    cut = float(chi2.isf(level, freedom))
    needed = brentq(lambda x: float(ncx2.sf(cut, freedom, x)) - POWER, 1e-6, 40.0 * (cut + 10.0))
    return float(min(1.0, 0.5 * np.sqrt(needed / samples)))


def _counts(
    policy: Policy, prefix: IntArray, settings: Sampling, samples: int, seed: int, stream: int
) -> Counts:
    """How often each continuation came."""
    found: Counts = Counter()
    for start in range(0, samples, _AT_ONCE):
        draws = range(start, min(start + _AT_ONCE, samples))
        requests = [Request(prefix, NoiseKey(seed, stream, draw)) for draw in draws]
        found.update(tuple(item.tokens.tolist()) for item in policy.sample(requests, settings))
    return found


def _greedy(plain: Policy, speculative: Policy, prompts: Sequence[IntArray], tokens: int) -> int:
    """How many prompts the two answer differently at temperature 0."""
    settings = Sampling(temperature=0.0, max_tokens=tokens)
    requests = [Request(prompt, NoiseKey(0, 0, i)) for i, prompt in enumerate(prompts)]
    first, second = (sample_all(policy, requests, settings) for policy in (plain, speculative))
    return sum(
        not np.array_equal(a.tokens, b.tokens) or a.finish != b.finish
        for a, b in zip(first, second, strict=True)
    )
