"""Is the output's law that of plain decoding? By enumeration, on vocabularies small enough for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from itertools import product
from typing import Literal, Protocol, TypeAlias, final, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from refork.errors import BadInput
from refork.stats.results import Array
from refork.types import Json
from refork_methods.speculate.schedule import Lengths, PrefixScheduler, Scheduler
from refork_methods.speculate.step_cost import StepCost
from refork_methods.speculate.tiny import (
    Outcomes,
    Prefix,
    TinyWorld,
    counterexample,
    jagged,
    random_world,
    single_draft,
)

EXACT = 1e-12
"""An enumerated law further from the target's than this is another law."""


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
    """One check: how far the law is from the target's (``tv``, enumerated), or the samples' p-value ``p``.

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
    most ``error_rate``. ``mismatches``: greedy answers that differ, None where none were compared.
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
    """The law of the first ``length`` tokens of every request, round after round, by enumeration.

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
        plain = [world.said(prefix, (0,) * world.block, 0) for prefix in prefixes]
        return [(_joined(said, open_, plain, 1.0, length), before)]
    split: dict[bytes, tuple[Outcomes, Rule, Lengths]] = {}
    for drafted in product(*(world.blocks(prefix) for prefix in prefixes)):
        tokens = [block for block, _ in drafted]
        view = View(
            np.array([world.survival(x, t) for x, t in zip(prefixes, tokens, strict=True)]),
            np.array(tokens),
            np.array([world.own(x, t) for x, t in zip(prefixes, tokens, strict=True)]),
        )
        key = b"" if shows else view.survival.tobytes()
        if shows or key not in split:
            after = before if shows else deepcopy(before)
            lengths = after.choose(view) if isinstance(after, Chooser) else after.plan(view.survival)
            if len(lengths) != len(open_) or (lengths < 0).any() or (lengths > world.block).any():
                raise BadInput(f"the rule chose lengths {lengths.tolist()} of blocks of {world.block}")
            split[key] = (split[key][0] if key in split else {}, after, lengths)
        outcomes, _, lengths = split[key]
        said_next = [world.said(x, t, int(n)) for x, t, n in zip(prefixes, tokens, lengths, strict=True)]
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
    """Half the summed distance of two laws; 0 is equal, 1 disjoint."""
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
    """Enumerate the law of the output under a rule on tiny vocabularies, against the target's law.

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
    """The law of the first request's first token."""
    found = np.zeros(world.vocabulary)
    for tokens, chance in emitted(world, rule, 1).items():
        found[tokens[0][0]] += chance
    return found
