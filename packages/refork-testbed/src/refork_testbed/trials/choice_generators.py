"""Generated choices on which a winner is right, or false: who chooses, and which theories are scored on them.

A false winner is one named where the generator is another theory, none of those scored, or a coin, or where
two theories that predict alike are scored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias, final

import numpy as np
from jaxtyping import Float

from refork.stats.results import Array
from refork_methods.theory.chooser import Gap, Rule
from refork_methods.theory.cues.experiment import CueExperiment
from refork_methods.theory.cues.rules import STRESS
from refork_methods.theory.domains import DOMAINS, domain_named
from refork_methods.theory.metrics import mse_pb
from refork_methods.theory.priors import Fixed, Parameters, Prior, Uniform
from refork_methods.theory.simulate import predicted_rates, simulate
from refork_methods.theory.trials import Observation, Trials

#: ``inside``: the generator is scored; ``outside``: it is not; ``alike``: two that predict alike are scored.
Kind: TypeAlias = Literal["inside", "outside", "coins", "alike"]
_SOFTMAX: Final[Mapping[str, Prior]] = {"beta": Uniform(0.1, 20), "lapse": Uniform(0, 0.5)}


@final
@dataclass(frozen=True, slots=True)
class Generated:
    """Who chooses and what is scored. ``parts``: the people are divided among them evenly."""

    kind: Kind
    name: str
    domain: str
    parts: tuple[Rule, ...]
    scored: tuple[Rule, ...]

    def observations(self, people: int, count: int, seed: int) -> tuple[Observation, ...]:
        """What ``people`` choose in each of ``count`` random designs."""
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=tuple(self.name.encode())))
        found = []
        for number in range(count):
            design = domain_named(self.domain).design(rng)
            runs = [
                simulate(part, design, len(range(at, people, len(self.parts))), int(rng.integers(2**31)))
                for at, part in enumerate(self.parts)
            ]
            trials = Trials(
                np.concatenate([run.person * len(self.parts) + at for at, run in enumerate(runs)]),
                np.concatenate([run.stimulus for run in runs]),
                np.concatenate([run.response for run in runs]),
            )
            found.append(Observation(f"design {number + 1}", design, trials))
        return tuple(found)

    def distance(self, theory: str, observations: tuple[Observation, ...]) -> float:
        """mse_pb of a scored theory to the generator's own rates, in units of a coin's."""
        scored = next(one for one in self.scored if one.name == theory)
        own, other = (
            np.concatenate([
                np.mean([predicted_rates(part, seen.experiment, 4000, 1) for part in parts], axis=0)
                for seen in observations
            ])
            for parts in (self.parts, (scored,))
        )  # fmt: skip
        apart, coin = mse_pb(other, own), mse_pb(np.full(own.size, 0.5), own)
        return float("inf") if not coin or apart is None else apart / coin


def _parity(e: CueExperiment, p: Parameters) -> Float[Array, "people stimuli"]:
    even = e.differences().astype(np.int64).sum(axis=1) % 2 == 0
    return _alike(np.where(even, 1.0, -1.0), p)


def _two_best(e: CueExperiment, p: Parameters) -> Float[Array, "people stimuli"]:
    first = np.argsort(-e.weights(), kind="stable")[:2]
    return _alike(e.differences()[:, first].sum(axis=1), p)


def _leaning(gap: Gap, by: float) -> Gap:
    return lambda e, p: gap(e, p) + by


def _alike(gap: Array, p: Parameters) -> Float[Array, "people stimuli"]:
    everybody: Float[Array, "people stimuli"] = np.broadcast_to(gap, (len(p["beta"]), len(gap)))
    return everybody


def _again(rule: Rule, name: str, **priors: Prior) -> Rule:
    """The same theory, its parameters drawn in another order; with some priors replaced."""
    return replace(rule, name=name, priors=dict(reversed({**rule.priors, **priors}.items())))


def generated() -> Iterator[Generated]:
    """All kinds in both domains.

    ``outside`` holds each ranked theory scored without itself, and generators that no form of the grammar
    says: parity of cues, the two best cues, worst cues, leaning to one side, repeating, sure people, and two
    kinds of people at once.
    """
    for name, domain in DOMAINS.items():
        ranked = domain.ranked
        for rule in ranked:
            yield Generated("inside", rule.name, name, (rule,), ranked)
            others = tuple(one for one in ranked if one is not rule)
            yield Generated("outside", f"{rule.name}, not scored", name, (rule,), others)
        yield Generated("coins", f"coins on {name}", name, (domain.rules["random"],), ranked)
        first, second = ranked[:2]
        sure = {**first.priors, "beta": Uniform(5, 20), "lapse": Uniform(0, 0.1)}
        yield Generated("outside", f"sure {first.name}", name, (replace(first, priors=sure),), ranked)
        yield Generated("outside", f"{first.name} and {second.name}", name, (first, second), ranked)
        for rule in (first, ranked[2]):
            lean = replace(rule, gap=_leaning(rule.gap, 0.2))
            yield Generated("outside", f"leaning {rule.name}", name, (lean,), ranked)
        weak = replace(first, history="repeat", priors={**first.priors, "beta": Uniform(0.1, 3)})
        yield Generated("outside", f"repeating {first.name}", name, (weak,), ranked)
        same = _again(first, f"{first.name} again")
        yield Generated("alike", f"{first.name} twice", name, (first,), (*ranked, same))
    cues, gambles = (domain_named(name) for name in ("cues", "gambles"))
    rules, ranked = cues.rules, cues.ranked
    for rule in (Rule("parity", "cues", _SOFTMAX, _parity), Rule("two-best", "cues", _SOFTMAX, _two_best),
                 *(one for one in STRESS if one.history == "none")):  # fmt: skip
        yield Generated("outside", rule.name, "cues", (rule,), ranked)
    for base, power in (("tallying", 0.0), ("equal-weight", 1.0)):
        held = _again(rules["dial"], f"dial at {power:g}", g=Fixed(power), **_SOFTMAX)
        others = tuple(one for one in ranked if one.name not in ("dial", base))
        own = rules[base]
        yield Generated("alike", f"{base} and {held.name}", "cues", (own,), (own, held, *others))
    ones = {name: Fixed(1) for name in ("alpha", "loss", "gamma", "delta")}
    plain = _again(gambles.rules["prospect-theory"], "prospect at 1", **ones)
    others = tuple(one for one in gambles.ranked if one.name != "prospect-theory")
    own = gambles.rules["expected-value"]
    yield Generated("alike", "expected-value and prospect at 1", "gambles", (own,), (*others, plain))
