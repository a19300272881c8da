"""Cliff tokens: are they found, are they real, and what do they cost?

On planted chains, whose success probability is known exactly after every token: detection and false rates of
the published test, continuations saved by letting draws serve every point they pass, the bound on drops, and
continuations per found token beside a plain threshold test at every token and pivotal-token search (the
bisection of arXiv 2412.08905, written from its description; also as codelion/pts does it, which estimates
anew at every look), each at the cheapest of many settings that finds enough. On the arithmetic organism:
what deleting a proven cliff is worth on fresh draws, beside random positions of equal depth. Without --quick
also one epoch of single-token DPO on the cliffs of training tasks, three seeds.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from refork import MatchJudge, Tree, plant_prompt, stats
from refork.forking import plan_sweep
from refork.growing import grow
from refork.policies.local import LocalPolicy
from refork.worlds.open import open_world
from refork_methods.cliff.bound import bound_violations
from refork_methods.cliff.candidates import candidates
from refork_methods.cliff.dpo import CliffDpoSettings, cliff_dpo
from refork_methods.cliff.intervene import contrast, random_positions
from refork_methods.cliff.pairs import Pair, cliff_pairs
from refork_methods.cliff.planted import (
    PlantedChain,
    absorbing_values,
    planted_chain,
    record_trace,
)
from refork_methods.cliff.scan import Nominee, Scanned, nominate, token_potential
from refork_methods.cliff.select import choose_traces
from refork_methods.cliff.table import cliff_table, detection_rate
from refork_methods.cliff.verify import Cliff, verify
from refork_testbed.models import build, find

Floats = NDArray[np.float64]
TRIALS = 400_000


def simulated_rate(before: float, after: float, rng: np.random.Generator) -> float:
    """Share of simulated pairs of 64 draws that trip the table."""
    counts = rng.binomial(64, [before, after], size=(TRIALS, 2))
    return float(cliff_table()[counts[:, 0], counts[:, 1]].mean())


def violations(chains: int) -> tuple[int, int]:
    """Exact drops that break the bound, and how many were looked at, over random absorbing chains."""
    broken = seen = 0
    for seed in range(chains):
        rng = np.random.default_rng(seed)
        size = int(rng.integers(4, 30))
        step = np.zeros((size, size))
        for s in range(size - 2):
            step[s, s + 1 :] = rng.dirichlet(np.full(size - s - 1, rng.uniform(0.05, 1.0)))
        value = absorbing_values(step, np.eye(size)[-1])
        said = np.argwhere(step > 0)
        bad = bound_violations(value[said[:, 0]], value[said[:, 1]], step[said[:, 0], said[:, 1]])
        broken, seen = broken + int(bad.sum()), seen + len(said)
    return broken, seen


# -- continuations per found token --------------------------------------------------------------


@dataclass
class Tally:
    """Over traces with one planted fall each: found, false tokens, continuations."""

    traces: int = 0
    found: int = 0
    false: int = 0
    rollouts: int = 0

    def add(self, tokens: Sequence[int], planted: int, rollouts: int) -> None:
        """Count one trace."""
        self.traces += 1
        self.found += planted in tokens
        self.false += sum(t != planted for t in tokens)
        self.rollouts += rollouts

    @property
    def precision(self) -> float:
        """Of the tokens named, the share that is the planted one."""
        return self.found / max(1, self.found + self.false)

    @property
    def price(self) -> float:
        """Continuations per found token."""
        return self.rollouts / max(1, self.found)

    def figures(self) -> dict[str, float]:
        """Found share, false tokens and continuations a trace."""
        return {
            "found": round(self.found / self.traces, 4),
            "false": round(self.false / self.traces, 4),
            "rollouts": round(self.rollouts / self.traces, 1),
        }

    def row(self, name: str) -> str:
        """A line of the table."""
        return (
            f"{name:42s} {self.found / self.traces:7.3f} {self.precision:10.3f} "
            f"{self.false / self.traces:12.3f} {self.rollouts / self.traces:15.0f} {self.price:19.0f}"
        )


def bisect(
    values: Floats, draws: int, threshold: float, rng: np.random.Generator, reuse: bool = True
) -> tuple[list[int], int]:
    """Halve every span whose ends differ by ``threshold``; tokens that fall so, and continuations used.

    The ends' shares are drawn from the exact values: once per boundary, or (``reuse`` False) anew at every
    look. The trace's own end is known.
    """
    known: dict[int, float] = {}
    used = 0

    def at(boundary: int) -> float:
        nonlocal used
        if boundary == len(values) - 1:
            return float(values[-1])
        if boundary not in known or not reuse:
            known[boundary] = rng.binomial(draws, values[boundary]) / draws
            used += draws
        return known[boundary]

    found: list[int] = []
    spans = [(0, len(values) - 1)]
    while spans:
        low, high = spans.pop()
        change = at(low) - at(high)
        if high - low == 1 and change >= threshold:
            found.append(low)
        elif high - low > 1 and abs(change) >= threshold:
            middle = (low + high) // 2
            spans += [(low, middle), (middle, high)]
    return found, used


LENGTH = 60
#: Values that change at some tokens: what is planted, and the token that falls.
PLANTS: dict[str, tuple[dict[int, float], int]] = {
    "a fall of 0.3": ({30: 0.5}, 30),
    "a fall of 0.5": ({30: 0.3}, 30),
    "a fall of 0.5, made good 8 tokens on": ({16: 0.3, 24: 0.8}, 16),
}
#: Settings of ours: draws of the scan, fresh draws a side of the re-test.
OURS = {"ours": (64, 64), "ours 32/64": (32, 64), "ours 32/32": (32, 32)}
#: Settings of the bisection that are tried: continuations a boundary, and the change that counts.
BISECTIONS = [
    (draws, fall) for draws in (10, 16, 24, 32, 48, 64) for fall in (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4)
]
#: What a setting must find to be compared by what it costs, and how many of its tokens must be right.
LEAST = {"a fall of 0.3": 0.5, "a fall of 0.5": 0.9, "a fall of 0.5, made good 8 tokens on": 0.9}
PRECISION = 0.9


def plant(changes: dict[int, float]) -> PlantedChain:
    """A wrong trace of LENGTH tokens that begins at 0.8 and takes new values behind some tokens."""
    values, chances = np.full(LENGTH + 1, 0.8), np.full(LENGTH, 0.87)
    for token, value in changes.items():
        values[token + 1 :] = value
        chances[token] = 0.2
    values[-1], chances[-1] = 0.0, 0.2
    return planted_chain(values, chances)


def search(name: str, repeats: int, simulated: int) -> tuple[dict[str, Tally], float]:
    """A planted fall looked for in several ways, and how many draws a continuation served.

    The last token is left out: there every wrong trace loses what it had left. The peers' counts are drawn
    from the exact values, which is what their fresh continuations at every boundary would give.
    """
    changes, planted = PLANTS[name]
    chain = plant(changes)
    tallies = {way: Tally() for way in (*OURS, "bisection 10", "bisection 64", "every token")}
    inner = range(LENGTH - 1)
    rng = np.random.default_rng(7)
    for _ in range(simulated):
        for way, draws in (("bisection 10", 10), ("bisection 64", 64)):
            tokens, used = bisect(chain.values, draws, 0.2, rng)
            tallies[way].add([t for t in tokens if t in inner], planted, used)
        counts = rng.binomial(64, chain.values[:-1])
        tokens = [t for t in inner if cliff_table()[counts[t], counts[t + 1]]]
        tallies["every token"].add(tokens, planted, 64 * LENGTH)
    judge, policy = MatchJudge("right"), chain.policy()
    served = []
    for seed in range(repeats):
        with Tree.memory() as tree:
            end = record_trace(plant_prompt(tree, policy, "Well?"), policy, chain.text)
            served.append(64 * LENGTH / plan_sweep(end, policy, 64, judge=judge, seed=seed).continuations)
            for way, (draws, retest) in OURS.items():
                scanned = token_potential(end, policy, draws, judge=judge, seed=seed)
                nominees = [n for n in nominate(scanned) if n.index in inner]
                cliffs = verify(nominees, policy, retest, judge=judge, seed=seed)
                used = scanned.curve.sampled + sum(c.sampled for c in cliffs)
                tallies[way].add([c.nominee.index for c in cliffs if c.real], planted, used)
    return tallies, float(np.mean(served))


def pivotal(name: str, simulated: int) -> dict[str, list[Tally]]:
    """Every setting of the bisection: with shares estimated once, and anew at every look."""
    changes, planted = PLANTS[name]
    values = plant(changes).values
    told: dict[str, list[Tally]] = {}
    for way, reuse in (("once", True), ("anew", False)):
        rng = np.random.default_rng(8)
        told[way] = [Tally() for _ in BISECTIONS]
        for tally, (draws, fall) in zip(told[way], BISECTIONS, strict=True):
            for _ in range(simulated):
                tokens, used = bisect(values, draws, fall, rng, reuse)
                tally.add([t for t in tokens if t < LENGTH - 1], planted, used)
    return told


def cheapest(tallies: Sequence[Tally], least: float) -> Tally | None:
    """The setting with the fewest continuations per found token, of those that find enough and are right."""
    good = [t for t in tallies if t.found >= least * t.traces and t.precision >= PRECISION]
    return min(good, key=lambda tally: tally.price, default=None)


def beside_pivotal(name: str, tallies: dict[str, Tally], simulated: int) -> dict[str, float | None]:
    """What the peer pays per found token over what we pay, each at its cheapest setting; printed as well.

    ``any``: the same where a peer's setting may find as little as it likes. None: no setting finds enough.
    """
    mine = cheapest([tallies[way] for way in OURS], LEAST[name])
    told: dict[str, float | None] = {}
    for way, found in pivotal(name, simulated).items():
        best, loose = cheapest(found, LEAST[name]), cheapest(found, 0.0)
        right = [t.found / t.traces for t in found if t.precision >= PRECISION]
        label = {"once": "pivotal tokens, best setting", "anew": "the same, estimated anew"}[way]
        print(best.row(label) if best else f"{label:42s} finds at most {max(right, default=0.0):.3f}")
        for key, other in ((way, best), (f"{way}_any", loose if loose and loose.found else None)):
            told[key] = round(other.price / mine.price, 3) if other and mine else None
        told[f"{way}_most"] = round(max(right, default=0.0), 4)
    return told | {"ours_found": round(tallies["ours"].found / tallies["ours"].traces, 4)}


# -- the arithmetic organism ----------------------------------------------------------------------


@dataclass(frozen=True)
class Lab:
    """The organism, its world and a tree of its rollouts."""

    policy: LocalPolicy
    world: object
    tree: Tree
    rate: float


def open_lab(tasks: int, seed: int = 11, split: str = "held-out") -> Lab:
    """Load the organism (built if missing) and grow four rollouts of each task."""
    place = build("arithmetic")
    recipe = find("arithmetic")
    world = open_world(str(recipe.world))
    policy = LocalPolicy.load(str(place))
    tree = Tree.memory()
    chosen = world.tasks(split, tasks, seed)  # type: ignore[arg-type]
    groups = grow(
        tree, policy, world, chosen, draws=4, settings=recipe.sampling, seed=seed, tasks_at_once=tasks
    )
    values = [v for g in groups for v in g.values() if v is not None]
    return Lab(policy, world, tree, float(np.mean(values)))


def scan_lab(lab: Lab, traces: int, deadline: Callable[[], bool]) -> tuple[list[Scanned], list[Cliff]]:
    """Scan wrong rollouts of often solved tasks and re-test what was nominated."""
    found: list[Scanned] = []
    for end in choose_traces(lab.tree, "wrong")[:traces]:
        if deadline():
            break
        found.append(token_potential(end, lab.policy, 64, world=lab.world, seed=1))  # type: ignore[arg-type]
    nominees = [n for trace in found for n in nominate(trace)]
    return found, verify(nominees, lab.policy, 64, world=lab.world, seed=2)  # type: ignore[arg-type]


def organism(lab: Lab, traces: int, deadline: Callable[[], bool]) -> dict[str, float]:
    """Deleting against keeping at proven cliffs and at random positions, on fresh draws."""
    found, cliffs = scan_lab(lab, traces, deadline)
    real = [c for c in cliffs if c.real]
    kept = [c.nominee for c in real]
    effect = contrast(kept, lab.policy, 64, world=lab.world, seed=3)  # type: ignore[arg-type]
    gain = effect.gain()
    everyone: list[Nominee] = [c.nominee for c in cliffs]
    places = random_positions(everyone, found, each=2, seed=4)
    control = contrast(places, lab.policy, 64, world=lab.world, seed=3).gain()  # type: ignore[arg-type]
    kinds = [c.kind for c in real]
    sampled = sum(t.curve.sampled for t in found)
    print(f"\narithmetic organism, {lab.rate:.0%} of rollouts right, {len(found)} wrong traces")
    print(
        f"{sum(len(t.curve) for t in found)} tokens scanned with {sampled} continuations that served "
        f"{sum(t.curve.served for t in found)} draws; {len(cliffs)} nominated, {len(real)} survive: "
        + ", ".join(f"{kinds.count(k)} {k}" for k in sorted({str(k) for k in kinds}))
    )
    print("                          deleted    kept    gain      95 % interval")
    for k in (1, 2, 4):
        gone, stay = effect.pass_at(k)
        told = effect.gain(k)
        print(
            f"pass@{k} at proven cliffs    {gone:6.3f}  {stay:6.3f}  {told.estimate:+6.3f}  "
            f"[{told.low:+.3f}, {told.high:+.3f}]"
        )
    print(
        f"pass@1 at random positions  ({len(places)})        {control.estimate:+6.3f}  "
        f"[{control.low:+.3f}, {control.high:+.3f}]"
    )
    return {
        "deletion_gain": gain.estimate,
        "deletion_low": gain.low,
        "random_control": control.estimate,
        "max_survivor_pi": max(c.chance for c in real),
        "survivors": len(real),
        "nominated": len(cliffs),
    }


def success(policy: LocalPolicy, temperature: float, draws: int, tasks: int) -> Floats:
    """Mean success of each of some held-out tasks."""
    recipe = find("arithmetic")
    world = open_world(str(recipe.world))
    sampling = recipe.sampling.but(temperature=temperature)
    chosen = world.tasks("held-out", tasks, 77)
    with Tree.memory() as tree:
        groups = grow(
            tree, policy, world, chosen, draws=draws, settings=sampling, seed=9, tasks_at_once=tasks
        )
        return np.array([np.mean([v for v in g.values() if v is not None]) for g in groups])


def training(pairs: Sequence[Pair], tasks: int = 500) -> dict[str, dict[str, list[float]]]:
    """One epoch of single-token DPO on uncertain and sampled-off pairs, three seeds: what success gains."""
    wanted = [p for p in pairs if p.kind in ("uncertain", "sampled-off")]
    ways = {"sampled": (1.0, 4), "greedy": (0.0, 1)}
    plain = LocalPolicy.load(str(build("arithmetic")))
    before = {way: success(plain, *sampling, tasks) for way, sampling in ways.items()}
    told: dict[str, dict[str, list[float]]] = {way: {"gain": [], "low": [], "high": []} for way in ways}
    for seed in (42, 43, 44):
        policy = LocalPolicy.load(str(build("arithmetic")))
        settings = CliffDpoSettings(
            beta=0.1, learning_rate=1e-4, rows=8, accumulate=8, lora=None, held_out=0.0, seed=seed
        )
        done = cliff_dpo(policy, wanted, settings)
        for way, sampling in ways.items():
            after = success(policy, *sampling, tasks)
            change = stats.paired_difference(before[way], after).interval
            for name, value in (("gain", change.estimate), ("low", change.low), ("high", change.high)):
                told[way][name].append(round(float(value), 4))
            print(
                f"seed {seed}, {done.pairs} pairs, {done.loss_tokens} loss tokens: {way} success "
                f"{before[way].mean():.3f} -> {after.mean():.3f} "
                f"({change.estimate:+.3f} [{change.low:+.3f}, {change.high:+.3f}])"
            )
    return told


def train_pairs() -> list[Pair]:
    """Pairs at proven cliffs of wrong rollouts of training tasks."""
    lab = open_lab(250, seed=21, split="train")
    _, cliffs = scan_lab(lab, 250, lambda: False)
    real = [cliff for cliff in cliffs if cliff.real]
    tried = candidates(real, lab.policy, 4, 32, world=lab.world, seed=5)  # type: ignore[arg-type]
    return cliff_pairs(tried, lab.policy)


def main() -> None:
    """Measure, print the tables, and the figures as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="ends within 50 s on 2 cores")
    options = parser.parse_args()
    torch.set_num_threads(1)
    quick: bool = options.quick
    build("arithmetic")
    started = time.monotonic()
    rng = np.random.default_rng(0)
    pairs = {"mid": (0.5, 0.2), "high": (0.9, 0.6), "flat": (0.5, 0.5)}
    rates = {name: simulated_rate(*pair, rng) for name, pair in pairs.items()}
    print("published test, 64 draws a side   simulated    exact")
    for name, (before, after) in pairs.items():
        print(f"{before:.1f} -> {after:.1f}  {rates[name]:32.4f} {detection_rate(before, after):8.4f}")
    broken, seen = violations(300 if quick else 3000)
    print(f"{broken} of {seen} exact drops break V(before) - V(after) <= (1 - pi) (1 - V(after))\n")
    search_figures: dict[str, dict[str, dict[str, float]]] = {}
    factors: list[float] = []
    beside: dict[str, dict[str, float | None]] = {}
    for name in PLANTS:
        tallies, factor = search(name, 12 if quick else 100, 500 if quick else 5000)
        print(f"60 tokens, {name}; a continuation serves {factor:.1f} draws where every value is wanted")
        print(f"{'':42s}   found  precision  false/trace  rollouts/trace  rollouts/found token")
        ways = {
            "ours": "reuse, stopping, re-test, FDR (sampled)",
            "ours 32/64": "the same, scan of 32, re-test of 64",
            "ours 32/32": "the same, scan of 32, re-test of 32",
            "bisection 10": "bisection, |dP| >= 0.2, 10 samples",
            "bisection 64": "bisection, |dP| >= 0.2, 64 samples",
            "every token": "published test at every token",
        }
        for way, tally in tallies.items():
            print(tally.row(ways[way]))
        beside[name] = beside_pivotal(name, tallies, 200 if quick else 2000)
        search_figures[name] = {way: tally.figures() for way, tally in tallies.items()}
        factors.append(factor)
    print(f"{time.monotonic() - started:.0f} s so far")
    lab = open_lab(64 if quick else 400)
    measured = organism(lab, 24 if quick else 400, lambda: quick and time.monotonic() - started > 30)
    trained = {} if quick else {"training": training(train_pairs())}
    print(f"\n{time.monotonic() - started:.0f} s")
    print(
        json.dumps(
            {
                "detect_mid": rates["mid"],
                "detect_high": rates["high"],
                "false_rate": rates["flat"],
                "bound_violations": broken,
            }
            | {name: round(float(value), 4) for name, value in measured.items()}
            | {"reuse_factor": round(min(factors), 3), "search": search_figures}
            | {"pivotal": dict(zip(("small", "large", "cancelled"), beside.values(), strict=True))}
            | trained
        )
    )


if __name__ == "__main__":
    main()
