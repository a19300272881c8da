"""Is the distribution of the output that of plain decoding? Enumerated on tiny vocabularies, and sampled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import product
from typing import Literal, Protocol, TypeAlias, final, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.policies.base import NextDistribution, Policy, Request, Sampling, sample_all
from refork.sampling.noise import NoiseKey, stream_of
from refork.stats import holm
from refork.stats.results import Array
from refork.types import IntArray, Json, token_array
from refork_methods.speculate.accept import keep_chance, residual
from refork_methods.speculate.schedule import Lengths, PrefixScheduler, Scheduler, global_search
from refork_methods.speculate.step_cost import StepCost

# Tiny speculative decoders whose every outcome can be enumerated: distributions, drafts and confidences are
# known.
#
# A request's prefix is a tuple that begins with the request's own number, so requests have distributions of
# their own.

Prefix: TypeAlias = tuple[int, ...]
Distribution: TypeAlias = NDArray[np.float64]
#: Probabilities of outcomes: the tokens said by every request.
Outcomes: TypeAlias = dict[tuple[Prefix, ...], float]


@lru_cache(maxsize=1 << 16)
def _verdict(p: tuple[float, ...], q: tuple[float, ...], token: int) -> tuple[float, tuple[float, ...]]:
    """The chance that a draft is kept, and the distribution after a rejection, by the decoder's functions."""
    laws = (torch.tensor(law, dtype=torch.float64) for law in (p, q))
    target, draft = laws
    keep = float(keep_chance(target[token], draft[token]))
    return keep, tuple(residual(target, draft).tolist())


@final
@dataclass(frozen=True, slots=True)
class TinyWorld:
    """Distributions [V] of the target and of the draft after a prefix, and the confidence at that place.

    ``confidence(prefix)`` is c for the token that comes next: it may read every token of the prefix,
    drafted ones included, and never the token itself. ``cost`` is the table schedules are given.
    """

    name: str
    requests: int
    block: int
    vocabulary: int
    target: Callable[[Prefix], Distribution]
    draft: Callable[[Prefix], Distribution]
    confidence: Callable[[Prefix], float]
    cost: StepCost

    def blocks(self, prefix: Prefix) -> list[tuple[Prefix, float]]:
        """Every block that may be drafted after a prefix, with its probability."""
        found = []
        for tokens in product(range(self.vocabulary), repeat=self.block):
            chance = 1.0
            for k, token in enumerate(tokens):
                chance *= float(self.draft(prefix + tokens[:k])[token])
            if chance > 0:
                found.append((tokens, chance))
        return found

    def survival(self, prefix: Prefix, tokens: Prefix) -> Float[np.ndarray, "g"]:
        """Stated survivals of a drafted block."""
        return np.cumprod([self.confidence(prefix + tokens[:k]) for k in range(self.block)])

    def own(self, prefix: Prefix, tokens: Prefix) -> Float[np.ndarray, "g"]:
        """The draft's probabilities of its own tokens."""
        return np.array([self.draft(prefix + tokens[:k])[t] for k, t in enumerate(tokens)])

    def generated(self, prefix: Prefix, tokens: Prefix, length: int) -> list[tuple[Prefix, float]]:
        """What a request says when the first ``length`` drafts are verified, with probabilities."""
        found: list[tuple[Prefix, float]] = []
        reach = 1.0
        for k in range(length):
            p, q = self.target(prefix + tokens[:k]), self.draft(prefix + tokens[:k])
            keep, rest = _verdict(tuple(p.tolist()), tuple(q.tolist()), tokens[k])
            if keep < 1.0:
                found += [((*tokens[:k], v), reach * (1 - keep) * r) for v, r in enumerate(rest) if r]
            reach *= keep
        bonus = self.target(prefix + tokens[:length])
        return found + [((*tokens[:length], v), reach * b) for v, b in enumerate(bonus.tolist()) if b]

    def truth(self, length: int) -> Outcomes:
        """The target's distribution of the first ``length`` tokens of every request."""
        single = []
        for request in range(self.requests):
            chances: dict[Prefix, float] = {}
            for tokens in product(range(self.vocabulary), repeat=length):
                chance = 1.0
                for k, token in enumerate(tokens):
                    chance *= float(self.target((request, *tokens[:k]))[token])
                chances[tokens] = chance
            single.append(chances)
        return {
            tokens: float(np.prod([single[r][t] for r, t in enumerate(tokens)]))
            for tokens in product(*single)
        }


def jagged(seconds: Array) -> StepCost:
    """A table over 1, 2, ... tokens."""
    return StepCost.of({b + 1: float(s) for b, s in enumerate(seconds)})


def counterexample() -> TinyWorld:
    """One request, two drafts, and a second confidence that gives away what the first draft is.

    Source: arXiv 2607.05147 (why an arg-max over lengths is not lossless); table and distributions as there.
    """
    p, q = np.array([0.7, 0.3]), np.array([0.5, 0.5])
    return TinyWorld(
        "counterexample", 1, 2, 2,
        target=lambda prefix: p,
        draft=lambda prefix: q,
        confidence=lambda prefix: 0.8 if len(prefix) == 1 else (0.9 if prefix[1] == 0 else 0.0),
        cost=jagged(1 / np.array([1.0, 0.5, 0.45])),
    )  # fmt: skip


def single_draft() -> TinyWorld:
    """One request, one draft, p = (0.7, 0.3) and q = (0.6, 0.4): for rules that read the draft's probs."""
    p, q = np.array([0.7, 0.3]), np.array([0.6, 0.4])
    return TinyWorld(
        "single draft", 1, 1, 2,
        target=lambda prefix: p,
        draft=lambda prefix: q,
        confidence=lambda prefix: 0.9,
        cost=jagged(np.array([1.0, 1.0])),
    )  # fmt: skip


def random_world(
    seed: int,
    cost: StepCost,
    *,
    requests: int = 2,
    block: int = 2,
    vocabulary: int = 2,
    context_only: bool = False,
) -> TinyWorld:
    """Distributions and confidences drawn anew for every prefix.

    Confidences are true acceptances pushed up or down by what was drafted before, to tempt schedules to
    read them; with ``context_only`` they depend on the position and the request alone.
    """
    known: dict[tuple[str, Prefix], Distribution] = {}

    def drawn(kind: str, prefix: Prefix) -> Distribution:
        key = (kind, prefix)
        if key not in known:
            # numpy pads seeds with zeros: without the + 1 a prefix that ends in 0 has a shorter one's seed.
            rng = np.random.default_rng([seed, len(kind), *(t + 1 for t in prefix)])
            known[key] = rng.dirichlet(np.full(vocabulary, 0.8))
        return known[key]

    def confidence(prefix: Prefix) -> float:
        seen = (prefix[0], *(0 for _ in prefix[1:])) if context_only else prefix
        rng = np.random.default_rng([seed, 9, *(t + 1 for t in seen)])
        return float(rng.beta(0.7, 0.5))

    def target(prefix: Prefix) -> Distribution:
        return drawn("target", prefix)

    def draft(prefix: Prefix) -> Distribution:
        # Half the target's own distribution: good drafts, so that lengths matter.
        return 0.5 * drawn("target", prefix) + 0.5 * drawn("draft", prefix)

    name = f"{requests} requests, distributions {seed}"
    return TinyWorld(name, requests, block, vocabulary, target, draft, confidence, cost)


# Is the output's distribution that of plain decoding? By enumeration, on vocabularies small enough for it.

EXACT = 1e-12
"""An enumerated distribution further from the target's than this is another distribution."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class View:
    """All that a round's drafts show: survivals, tokens and their own draft probabilities, [R, g] each."""

    survival: Float[Array, "R g"]
    tokens: Int[Array, "R g"]
    own: Float[Array, "R g"]


@runtime_checkable
class Chooser(Protocol):
    """A rule that is shown everything and has no past; a :class:`Scheduler` sees the survivals only."""

    def choose(self, view: View) -> Lengths:
        """Lengths [R]."""
        ...


Rule: TypeAlias = Scheduler | Chooser
#: Makes a rule with no past for a table.
Make: TypeAlias = Callable[[StepCost], Rule]


@final
@dataclass(frozen=True, slots=True)
class Case:
    """One check: how far the output is from the target's (``tv``, enumerated), or the samples' p-value ``p``.

    ``p`` is None where the samples are too few to tell any two outcomes apart: nothing was tested.
    ``detectable`` is the total variation that the samples would have shown with 90 % chance.
    """

    name: str
    tv: float | None = None
    p: float | None = None
    samples: int | None = None
    cells: int | None = None
    detectable: float | None = None


@final
@dataclass(frozen=True, slots=True)
class Certificate:
    """Whether a rule or decoder is lossless, and how that is known.

    ``enumeration``: the largest total variation over all cases, exact up to rounding. ``chi-square``: the
    least p-value, corrected for the number of cases (Holm); an exact decoder is refused with probability at
    most ``error_rate``, and one of which a case could not be tested is not called lossless.
    ``mismatches``: greedy answers that differ, None where none were compared.
    """

    subject: str
    method: Literal["enumeration", "chi-square"]
    lossless: bool
    max_tv: float | None
    min_p: float | None
    error_rate: float
    cases: tuple[Case, ...]
    mismatches: int | None = None

    def to_json(self) -> Json:
        """Plain fields."""
        return asdict(self)


def emitted(world: TinyWorld, rule: Rule, length: int) -> Outcomes:
    """The distribution of the first ``length`` tokens of every request, round after round, by enumeration.

    A request leaves when it has said them. ``rule`` is copied wherever its past splits.

    Raises:
        BadInput: lengths outside 0 .. g.
    """
    done: Outcomes = {}
    living: list[tuple[tuple[Prefix, ...], float, Rule]] = [(((),) * world.requests, 1.0, deepcopy(rule))]
    while living:
        following: dict[tuple[tuple[Prefix, ...], int], tuple[float, Rule]] = {}
        for said, chance, mine in living:
            for outcomes, after in _round(world, mine, said, length):
                for tokens, share in outcomes.items():
                    if all(len(t) == length for t in tokens):
                        done[tokens] = done.get(tokens, 0.0) + chance * share
                    else:
                        # The value holds ``after``, so no other rule can get its id while this dict lives.
                        key = (tokens, id(after))
                        before = following[key][0] if key in following else 0.0
                        following[key] = (before + chance * share, after)
        living = [(tokens, chance, after) for (tokens, _), (chance, after) in following.items()]
    return done


def _round(
    world: TinyWorld, rule: Rule, said: tuple[Prefix, ...], length: int
) -> list[tuple[Outcomes, Rule]]:
    """One round of all requests that are not done: outcomes and the rule after them, for each past."""
    open_ = [r for r in range(world.requests) if len(said[r]) < length]
    prefixes = [(r, *said[r]) for r in open_]
    shows = isinstance(rule, Chooser)
    before = rule if shows else deepcopy(rule)
    if not getattr(before, "drafts", lambda n: True)(len(open_)):
        # At length 0 nothing of the block is read: any will do.
        plain = [world.generated(prefix, (0,) * world.block, 0) for prefix in prefixes]
        return [(_joined(said, open_, plain, 1.0, length), before)]
    split: dict[bytes, tuple[Outcomes, Rule, Lengths]] = {}
    for drafted in product(*(world.blocks(prefix) for prefix in prefixes)):
        tokens = [block for block, _ in drafted]
        view = View(
            np.array([world.survival(x, t) for x, t in zip(prefixes, tokens, strict=True)]),
            np.array(tokens),
            np.array([world.own(x, t) for x, t in zip(prefixes, tokens, strict=True)]),
        )
        # A scheduler is shown survivals alone, so drafts with equal ones leave it one and the same past.
        key = b"" if shows else view.survival.tobytes()
        if shows or key not in split:
            after = before if shows else deepcopy(before)
            lengths = after.choose(view) if isinstance(after, Chooser) else after.plan(view.survival)
            if len(lengths) != len(open_) or (lengths < 0).any() or (lengths > world.block).any():
                raise BadInput(f"the rule chose lengths {lengths.tolist()} of blocks of {world.block}")
            split[key] = (split[key][0] if key in split else {}, after, lengths)
        outcomes, _, lengths = split[key]
        said_next = [world.generated(x, t, int(n)) for x, t, n in zip(prefixes, tokens, lengths, strict=True)]
        chance = float(np.prod([share for _, share in drafted]))
        for what, share in _joined(said, open_, said_next, chance, length).items():
            outcomes[what] = outcomes.get(what, 0.0) + share
    return [(outcomes, after) for outcomes, after, _ in split.values()]


def _joined(
    said: tuple[Prefix, ...],
    open_: Sequence[int],
    parts: Sequence[list[tuple[Prefix, float]]],
    chance: float,
    length: int,
) -> Outcomes:
    """What all requests have said after a round, those that were not in it unchanged."""
    found: Outcomes = {}
    for combination in product(*parts):
        now = list(said)
        share = chance
        for request, (more, part) in zip(open_, combination, strict=True):
            now[request] = (said[request] + tuple(int(t) for t in more))[:length]
            share *= part
        found[tuple(now)] = found.get(tuple(now), 0.0) + share
    return found


def total_variation(first: Outcomes, second: Outcomes) -> float:
    """Half the summed distance of two distributions; 0 is equal, 1 disjoint."""
    return 0.5 * sum(abs(first.get(x, 0.0) - second.get(x, 0.0)) for x in first.keys() | second.keys())


#: Seconds over 1 .. 6 tokens with dips of throughput, which tempt a schedule to look ahead.
JAGGED: dict[str, tuple[float, ...]] = {
    "late dip": (1.0, 1.0, 1.6, 1.6, 2.3, 2.3),
    "steep first step": (1.0, 1.0, 1.75, 1.8, 1.85, 1.9),
    "plateaus": (1.0, 1.0, 1.5, 1.5, 1.9, 1.9),
}


def worlds(seeds: Sequence[int] = (0, 1, 2, 3), context_only: bool = False) -> list[TinyWorld]:
    """The counterexample, the single draft, and two-request worlds on jagged tables."""
    fixed = [] if context_only else [counterexample(), single_draft()]
    return fixed + [
        random_world(seed, jagged(np.array(seconds)), context_only=context_only)
        for seed in seeds
        for seconds in JAGGED.values()
    ]


def check_lossless(
    rule: Make | PrefixScheduler,
    *,
    name: str | None = None,
    among: Sequence[TinyWorld] | None = None,
    length: int = 2,
) -> Certificate:
    """Enumerate the output's distribution under a rule on tiny vocabularies, against the target's.

    ``rule`` is a scheduler of ours, or makes a rule for a table. A scheduler ``context_only`` is tried on
    confidences that read no draft, as it demands. For a decoder see :func:`check_decoder`.

    Raises:
        BadInput: a rule that chooses lengths outside 0 .. g.
    Source: arXiv 2607.05147 (non-anticipation); enumeration and worlds are ours.
    """
    make: Make = rule.on if isinstance(rule, PrefixScheduler) else rule
    subject = name or str(
        rule.mode if isinstance(rule, PrefixScheduler) else getattr(rule, "__name__", "rule")
    )
    if among is None:
        among = worlds(context_only=isinstance(rule, PrefixScheduler) and rule.mode == "context_only")
    cases = tuple(
        Case(world.name, tv=total_variation(emitted(world, make(world.cost), length), world.truth(length)))
        for world in among
    )
    largest = max(case.tv or 0.0 for case in cases)
    return Certificate(subject, "enumeration", largest <= EXACT, largest, None, 0.0, cases)


def first_token(world: TinyWorld, rule: Rule) -> Float[np.ndarray, "V"]:
    """The distribution of the first request's first token."""
    found = np.zeros(world.vocabulary)
    for tokens, chance in emitted(world, rule, 1).items():
        found[tokens[0][0]] += chance
    return found


# Negative controls: schedules that look harmless and change the distribution of the output, and a lossless
# twin.
#
# They are here to be caught (:func:`refork_methods.speculate.lossless.check_lossless`), not to be used.
#
# Source: arXiv 2607.05147 (the retrospective arg-max); the other two are ours.


@final
class RetrospectiveArgmax:
    """Leaks: the best lengths of this step, by confidences that read the drafts.

    Whether the first draft is verified then depends on the second confidence, which depends on the first
    draft.
    """

    def __init__(self, step_cost: StepCost) -> None:
        self.cost = step_cost

    def drafts(self, requests: int, recent: Float[Array, "g"] | None = None) -> bool:
        """Always."""
        return requests > 0

    def plan(
        self, survival: Float[Array, "R g"], limits: Int[Array, "R"] | None = None, others: int = 0
    ) -> Lengths:
        """The arg-max over the whole ranking."""
        return global_search(np.asarray(survival), self.cost)


@final
class DropUnlikely:
    """Leaks: a draft is dropped because its own draft probability is below ``cut``."""

    def __init__(self, cut: float) -> None:
        self.cut = _cut(cut)

    def choose(self, view: View) -> Lengths:
        """Lengths up to the first unlikely draft, without it."""
        return np.asarray(np.cumprod(view.own >= self.cut, axis=1).sum(axis=1), dtype=np.int64)


@final
class StopAfterUnlikely:
    """Lossless twin of :class:`DropUnlikely`: the unlikely draft is still verified, then it stops."""

    def __init__(self, cut: float) -> None:
        self.cut = _cut(cut)

    def choose(self, view: View) -> Lengths:
        """Lengths up to the first unlikely draft, with it."""
        likely = np.cumprod(view.own >= self.cut, axis=1).sum(axis=1)
        return np.asarray(np.minimum(likely + 1, view.own.shape[1]), dtype=np.int64)


def _cut(cut: float) -> float:
    if not 0 <= cut <= 1:
        raise BadInput(f"the cut is {cut}; it is a probability")
    return cut


# Is a decoder's distribution that of plain decoding? Chi-square on samples, and greedy answers token for
# token.

Counts: TypeAlias = Counter[Prefix]
LEAST_EXPECTED = 5.0
"""Cells that expect fewer samples are pooled, so that the statistic is near its distribution."""
LEVEL = 0.001
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
    seed: int = 0,
) -> Certificate:
    """Sample tokens after every prefix under every setting; compare them with those of plain decoding.

    Where the plain policy can say the distribution of the next token and there are few enough continuations,
    the samples are held against the exact distribution; else against as many samples of the plain policy.
    ``samples`` is per setting, shared out among the prefixes. ``greedy`` prompts are also answered at
    temperature 0 by both. The certificate's ``error_rate`` is how often an exact decoder is refused (Holm
    over all cases).

    Raises:
        BadInput: nothing to compare, or settings at temperature 0 (those belong in ``greedy``).
    """
    if not (prefixes and settings) and not greedy:
        raise BadInput("there is nothing to compare", hint="give prefixes and settings, or greedy prompts")
    if any(s.temperature == 0 for s in settings.values()):
        raise BadInput("samples at temperature 0 are all equal", hint="give those prompts as greedy")
    cases: list[Case] = []
    each = max(1, samples // max(len(prefixes), 1))
    for name, given in settings.items():
        setting = given.but(max_tokens=tokens, ignore_eos=True)
        for place, prefix in enumerate(prefixes):
            stream = stream_of("check-lossless", name, place)
            seen = _counts(speculative, prefix, setting, each, seed, stream)
            expected = exact_distribution(plain, prefix, setting)
            label = f"{name}, prompt {place + 1}"
            if expected is not None:
                cases.append(against_distribution(label, seen, expected))
            else:
                other = stream_of("check-lossless plain", name, place)
                cases.append(against_samples(label, seen, _counts(plain, prefix, setting, each, seed, other)))
    mismatches = _greedy(plain, speculative, greedy, greedy_tokens) if greedy else None
    ps = [case.p for case in cases if case.p is not None]
    least = float(np.min(holm(np.array(ps), LEVEL).p)) if ps else None
    tested = len(ps) == len(cases)
    lossless = tested and (least is None or least > LEVEL) and not mismatches
    return Certificate(
        speculative.card.name, "chi-square", lossless, None, least, LEVEL, tuple(cases), mismatches
    )


def exact_distribution(policy: Policy, prefix: IntArray, settings: Sampling) -> dict[Prefix, float] | None:
    """The distribution of the next ``max_tokens`` tokens; None where it cannot be had or is too large.

    A repetition penalty acts on logits, of which log-probabilities do not tell where 0 is.
    """
    import torch

    from refork.sampling.distribution import History, SoFar, restrict

    if not isinstance(policy, NextDistribution) or settings.penalties[0] != 1.0:
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


def against_distribution(name: str, counts: Counts, distribution: Mapping[Prefix, float]) -> Case:
    """Chi-square of counts against an exact distribution; a count of what it excludes has p = 0.

    Samples too few for two cells test nothing (p is None), except of a distribution of one outcome.
    """
    from scipy.stats import chisquare

    total = sum(counts.values())
    if any(tokens not in distribution for tokens in counts):
        return Case(name, p=0.0, samples=total, cells=len(distribution))
    order = sorted(distribution, key=lambda t: -distribution[t])
    expected = np.array([distribution[t] for t in order])
    observed = np.array([counts[t] for t in order], dtype=np.float64)
    expected, observed = _pooled(total * expected / expected.sum(), observed, LEAST_EXPECTED)
    if len(expected) < 2:
        p = 1.0 if len(distribution) == 1 and total else None
        return Case(name, p=p, samples=total, cells=len(expected))
    found = float(chisquare(observed, expected).pvalue)
    return Case(
        name, p=found, samples=total, cells=len(expected), detectable=_detectable(total, len(expected))
    )


def against_samples(name: str, counts: Counts, plain: Counts) -> Case:
    """Chi-square of two samples, pooled until both expect enough in every cell.

    Samples too few for two cells test nothing (p is None), unless both are of one outcome alone.
    """
    from scipy.stats import chi2_contingency

    total = sum(counts.values())
    order = sorted(counts.keys() | plain.keys(), key=lambda t: -(counts[t] + plain[t]))
    if not order:
        return Case(name, samples=total, cells=0)
    table = np.array([[counts[t] for t in order], [plain[t] for t in order]], dtype=np.float64)
    both = table.sum(axis=0)
    share = min(table.sum(axis=1)) / table.sum()
    pooled = np.stack([_pooled(both * share, row, LEAST_EXPECTED)[1] for row in table])
    if pooled.shape[1] < 2:
        alike = len(order) == 1 and min(table.sum(axis=1)) >= LEAST_EXPECTED
        return Case(name, p=1.0 if alike else None, samples=total, cells=pooled.shape[1])
    p = float(chi2_contingency(pooled, correction=False).pvalue)
    cells = pooled.shape[1]
    # Two samples of n tell two distributions apart about as one of n / 2 tells one from a known distribution.
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


def _detectable(samples: float, cells: int) -> float:
    """A total variation between the pooled distributions that is found with 90 % chance, whatever its shape.

    The statistic's noncentrality is at least 4 n TV^2, by the inequality of Cauchy and Schwarz.
    """
    from scipy.optimize import brentq
    from scipy.stats import chi2, ncx2

    freedom = cells - 1
    cut = float(chi2.isf(LEVEL, freedom))
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
