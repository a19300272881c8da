"""Does the closed loop find the theory behind choices, by priors alone, and none where there is none?

Exact checks of theories, divergence, gate, scores and replay. Then searches by the scripted scientist: people
are drawn from a hidden theory, the two others of Take-the-Best, Tallying and WADD are the seeds, and the
theory that the search holds best (by what it observed, not by the truth) is compared with the hidden one's
rates on all 120 four-cue pairs. It is recovered where mse_pB is at most 0.01 and a fifth of the seeds' mean,
or with noise .75 below both seeds. Then people who toss coins, people who only follow their last choice,
gambles, and 247 people's recorded choices, where they lie beside the repository or in REFORK_HUMAN_CHOICES.

Then winners are counted on generated data sets: the generator is among the theories scored, or none of them
is it, or people toss coins, or two of the theories predict alike. A winner is false unless it generated them
and no other theory scored predicts the same. One exception is counted apart, as near_winners: a theory whose
rates on the pairs shown differ from an unscored generator's by less than a hundredth of a coin's mse_pB.
coin_rule_false is how many would be false if the nearest won wherever it beats a coin.

--quick runs 5 seeds of each family, and 2 data sets of each generator. The long form runs 20 and 12, and says
how many are recovered; the last line has the first 5 families in both. --winners N only counts winners, on N
data sets of each generator.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import numpy as np

from refork.sandbox import Sandbox
from refork_methods.theory.chooser import Rule
from refork_methods.theory.cues.designs import every_binary_pair, random_design, steep_and_flat
from refork_methods.theory.cues.experiment import CueExperiment
from refork_methods.theory.cues.rules import RANKED, RULES
from refork_methods.theory.discriminability import discriminability, jsd
from refork_methods.theory.domains import domain_named
from refork_methods.theory.gambles import rules as gamble_rules
from refork_methods.theory.gambles.experiment import random_gambles
from refork_methods.theory.gate import welch_from_moments
from refork_methods.theory.metrics import mse_pb
from refork_methods.theory.order import score_order
from refork_methods.theory.pool import Pool
from refork_methods.theory.predictive import score_theories
from refork_methods.theory.priors import Parameters
from refork_methods.theory.read import read_human_choices
from refork_methods.theory.sandboxed import LIMITS
from refork_methods.theory.scores import aggregate_loss, relative_scores
from refork_methods.theory.search import ScriptedScientist, SimulatedPeople, TheorySearch, TheorySettings
from refork_methods.theory.search.figures import scoreboard
from refork_methods.theory.search.loop import Outcome
from refork_methods.theory.search.record import Record
from refork_methods.theory.search.spec import TheorySpec
from refork_methods.theory.simulate import predicted_rates, simulate
from refork_testbed.trials.choice_generators import generated
from refork_testbed.trials.theory_fit import fit

ROOT = Path(__file__).resolve().parents[1]
HUMAN = Path(os.environ.get("REFORK_HUMAN_CHOICES") or ROOT.parent / "shared/data/human-choices")
FAMILIES = ("take-the-best", "tallying", "wadd")
PAIRS = every_binary_pair((0.9, 0.8, 0.7, 0.6))
#: People of each observation, and observations: how few, the published setting, and how many.
SIZES = ((12, 4), (25, 6), (50, 8))
#: Of a coin's mse_pB: rates this near to an unscored generator's are the generator's.
NEAR = 0.01
ONE = {"beta": np.full(1, 3.0), "lapse": np.full(1, 0.1)}


@dataclass(frozen=True)
class Task:
    """A search: who is hidden, who stands at the beginning, and the share of coin tosses."""

    hidden: str
    seeds: tuple[str, ...]
    seed: int
    noise: float = 0.0
    domain: str = "cues"


@dataclass(frozen=True)
class Found:
    """What came of it. ``error`` and ``seeds``: mse_pB of the chosen theory and the seeds, by the truth."""

    task: Task
    title: str
    state: str
    observations: int
    error: float
    seeds: tuple[float, float]
    winner: str | None
    lag: float
    people_lag: float
    plain_lag: float
    digest: str

    @property
    def recovered(self) -> bool:
        """Near enough, as the head of this file says."""
        if self.task.noise:
            return self.error < min(self.seeds)
        return self.error <= 0.01 and 5 * self.error <= sum(self.seeds) / 2


def searched(task: Task, sandbox: Sandbox, record: Record | None = None, stop: int | None = None) -> tuple[
    TheorySearch, Outcome
]:  # fmt: skip
    """One search; with ``stop`` it is stopped after so many recorded steps."""
    domain = domain_named(task.domain)
    one, other = (TheorySpec(rule=name) for name in task.seeds)
    people = SimulatedPeople(TheorySpec(rule=task.hidden), domain, sandbox, task.noise)
    search = TheorySearch(
        domain, (one, other), people, ScriptedScientist(), TheorySettings(seed=task.seed), sandbox, record
    )
    return search, search.run(stopped=lambda: stop is not None and len(search.record) >= stop)


def measure(task: Task) -> Found:
    """A search and its distances from the truth."""
    with Sandbox(LIMITS) as sandbox:
        search, outcome = searched(task, sandbox)
        design = PAIRS if task.domain == "cues" else random_gambles(np.random.default_rng(5), 60)
        hidden = TheorySpec(rule=task.hidden).chooser("hidden", search.domain, sandbox)
        truth = predicted_rates(hidden, design, 5000, 9) * (1 - task.noise) + task.noise / 2

        def error(label: str) -> float:
            chooser = search.theories[label].chooser(label, search.domain, sandbox)
            return mse_pb(predicted_rates(chooser, design, 5000, 9), truth) or 0.0

        best = outcome.best
        board = scoreboard(search)
        assert best is not None
        assert board is not None
        order = score_order(
            [search.theories[label].chooser(label, search.domain, sandbox) for label in (best, "pi_1")],
            [one.observation for one in search.observed],
            seed=1,
        )
        people = order[0].people
        return Found(
            task, search.theories[best].title(search.domain), outcome.state,
                    len(search.observed), error(best),
            (error("pi_1"), error("pi_2")), board.winner(), order[0].theory or 0.0,
            0.0 if people is None else people.estimate, order[1].theory or 0.0, search.record.digest,
        )  # fmt: skip


def exact_checks() -> Iterator[tuple[str, bool]]:
    """Closed forms and identities; what is named fails where False stands beside it."""
    swapped = CueExperiment(PAIRS.validities, PAIRS.a + PAIRS.b, PAIRS.b + PAIRS.a)
    dial, tally, ttb = RULES["dial"], RULES["tallying"], RULES["take-the-best"]

    def chances(rule: Rule, design: CueExperiment = swapped, **more: float) -> np.ndarray:
        parameters: Parameters = {**ONE, **{name: np.full(1, x) for name, x in more.items()}}
        return np.asarray(rule.chances(design, parameters)[0, 0])

    alike = [
        np.allclose(chances(dial, beta=b, g=0.0), chances(tally, beta=b), atol=1e-12) for b in (0.1, 1, 7, 15)
    ]
    yield "dial at 0 is Tallying, 240 ordered pairs, every beta", all(alike)
    yield (
        "dial at 1 is WADD with w = 1",
        np.allclose(chances(dial, g=1.0), chances(RULES["equal-weight"])),
    )
    side = np.sign(chances(ttb) - 0.5)
    for g, count in ((1, 220), (3, 230), (5, 240)):
        same = int((np.sign(np.round(chances(dial, g=float(g), lapse=0.0) - 0.5, 12)) == side).sum())
        yield f"dial at {g} agrees with Take-the-Best on {count} of 240 ({same})", same == count
    graded = random_design(np.random.default_rng(1), top=10)
    linear, concave = RULES["equal-weight"], RULES["diminishing-wadd"]
    total = float(graded.weights().sum())
    same = np.allclose(chances(concave, graded, a=1.0, s=2.0), chances(linear, graded, beta=3.0 / total))
    yield "Diminishing Returns WADD at a = 1 is normalised WADD", same
    scale = (1.5**0.4 - 0.5**0.4) / sum(PAIRS.validities)
    same = np.allclose(chances(concave, a=0.4, s=0.5), chances(linear, beta=3.0 * scale))
    yield "on 0/1 cues a concave utility only rescales beta", same
    flat = steep_and_flat((0.9, 0.7, 0.6), 0, 1, low=1, high=6, step=2)
    for rule, more in ((linear, {}), (dial, {"g": 2.7})):
        yield f"steep-and-flat pairs halve {rule.name}", abs(chances(rule, flat, **more).mean() - 0.5) < 1e-12
    yield "diminishing returns take the steep side", chances(concave, flat, a=0.4, s=0.5).mean() < 0.5
    yield from _laws()
    yield from _tables()


def _laws() -> Iterator[tuple[str, bool]]:
    rng = np.random.default_rng(3)
    p, q = rng.dirichlet(np.ones(4), (2, 200))
    both = jsd(p, q)
    yield (
        "divergence symmetric, in [0, ln 2]",
        np.allclose(both, jsd(q, p)) and bool(((both >= 0) & (both <= np.log(2))).all()),
    )
    ends = np.asarray([1.0, 0, 0, 0]), np.asarray([0, 1.0, 0, 0])
    yield (
        "divergence 0 of equals, ln 2 of disjoint distributions",
        bool(np.allclose(jsd(p, p), 0, atol=1e-12) and np.isclose(jsd(*ends), np.log(2))),
    )
    from scipy.stats import ttest_ind

    x, y = rng.normal(0, 1, 25), rng.normal(0.4, 2, 25)
    mine = welch_from_moments((x.mean(), x.var(ddof=1)), (y.mean(), y.var(ddof=1)), 25).p
    yield "Welch's p as in scipy", bool(np.isclose(mine, ttest_ind(x, y, equal_var=False).pvalue, rtol=1e-10))


def _tables() -> Iterator[tuple[str, bool]]:
    scores = relative_scores(np.asarray([[0.0, 0.3], [0.1, 0.1], [0.2, 0.2]]))
    lengths = np.sqrt([1.0, 0.25, 1.25])
    yield "leaderboard by hand", bool(np.allclose(scores, 1 - lengths / lengths.max()))
    loss = aggregate_loss(np.asarray([0.2, np.nan]), np.asarray([0.5, 0.1]), [[0.8], [0.3]])
    yield "aggregate loss by hand", bool(np.isclose(loss, (0.3 / 0.6 + 1) / 2))
    rates = {
        rule.name: predicted_rates(rule, PAIRS, 20000, 1)
        for rule in (
            RULES["take-the-best"],
            RULES["tallying"],
            RULES["wadd"],
            RULES["random"],
        )
    }
    for one, other, published in (
        ("take-the-best", "wadd", 0.043), ("take-the-best", "tallying", 0.065), ("wadd", "tallying", 0.008),
        ("random", "take-the-best", 0.123), ("random", "tallying", 0.099), ("random", "wadd", 0.063),
    ):  # fmt: skip
        value = mse_pb(rates[one], rates[other]) or 0.0
        yield (
            f"mse_pB of {one} and {other} {value:.4f}, reference {published}",
            abs(value - published) < 0.0015,
        )


def replay_checks() -> Iterator[tuple[str, bool]]:
    """A search that is stopped after any of its steps, and one that is not, end alike."""
    task = Task("take-the-best", ("tallying", "wadd"), 3)
    with Sandbox(LIMITS) as sandbox:
        whole, ended = searched(task, sandbox)
        steps = len(whole.record)
        for stop in (1, steps // 3, 2 * steps // 3, steps - 1):
            half, _ = searched(task, sandbox, stop=stop)
            again, outcome = searched(task, sandbox, half.record)
            same = (again.record.digest, outcome.pool.digest) == (whole.record.digest, ended.pool.digest)
            yield f"stopped after step {stop} of {steps}, and gone on", same
        read = Pool.from_json(json.loads(json.dumps(ended.pool.to_json())))
        yield "labels, slots and scores of a stored pool", read.replay() == ended.pool.replay()
    with ProcessPoolExecutor(1) as other:
        yield (
            "the same in another process",
            other.submit(measure, task).result().digest == whole.record.digest,
        )


def jsd_median() -> tuple[float, float, float]:
    """Quartiles of the sequence divergence over 50 random designs and three pairs of theories."""
    rng = np.random.default_rng(0)
    theories = dict(
        zip(
            FAMILIES,
            (RULES["take-the-best"], RULES["tallying"], RULES["wadd"]),
            strict=True,
        )
    )
    values = []
    for number in range(50):
        design = random_design(rng)
        for one, other in (FAMILIES[:2], FAMILIES[1:], FAMILIES[::2]):
            values.append(discriminability(theories[one], theories[other], design, number))
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75]).tolist()
    return low, middle, high


def parameters_recovered() -> tuple[bool, list[float]]:
    """Correlations of fitted with true parameters of prospect theory, eight people of 1,200 choices."""
    design, rule, rng = (
        random_gambles(np.random.default_rng(2), 60),
        gamble_rules.RULES["prospect-theory"],
        np.random.default_rng(8),
    )
    names, true, fitted = ("alpha", "loss", "gamma", "delta"), [], []
    for seed in range(8):
        own = dict(zip(names, (rng.uniform(0.5, 1), rng.uniform(1, 3), *rng.uniform(0.4, 1, 2)), strict=True))
        person: Parameters = {n: np.full(1, x) for n, x in {**own, "beta": 12.0, "lapse": 0.02}.items()}
        trials = simulate(rule, design, 1, seed, parameters=person, trials=1200)
        got = fit(rule, design, trials, seed, screened=400, starts=2).parameters
        true.append([own[name] for name in names])
        fitted.append([got[name] for name in names])
    r = [
        float(np.corrcoef(np.asarray(true)[:, i], np.asarray(fitted)[:, i])[0, 1]) for i in range(len(names))
    ]
    return min(r) > 0.8, r


@dataclass(frozen=True)
class Counted:
    """Claims about one generator's data sets. ``false`` and ``near``: the winners that are none, told."""

    kind: str
    name: str
    claims: Counter[str]
    right: Counter[int]
    false: list[str]
    near: list[str]


def counted(place: int, seeds: int) -> Counted:
    """What is claimed of ``seeds`` data sets of a generator, sizes taking turns."""
    case = list(generated())[place]
    told = Counted(case.kind, case.name, Counter(), Counter(), [], [])
    for number in range(seeds):
        people, observations = SIZES[(place + number) % len(SIZES)]
        seen = case.observations(people, observations, 7_000_000 + number)
        board = score_theories(case.scored, seen, seed=1, draws=1000, redraws=400)
        named = [one for one in case.scored if one.name in board.untold()]
        decision = board.decide(score_order(named, seen, seed=1, redraws=400))
        told.claims[decision.claim] += 1
        told.claims[f"at {people}"] += 1
        wrong = case.kind != "inside" or board.theories[0].name != case.name
        told.claims["coin rule"] += decision.better and wrong
        if decision.winner is None:
            continue
        if case.kind == "inside" and decision.winner == case.name:
            told.right[people] += 1
            continue
        apart = case.distance(decision.winner, seen)
        line = f"{people} people, {observations} observations: {decision.words}; "
        line += f"{apart:.4f} of a coin's distance"
        (told.near if case.kind == "outside" and apart < NEAR else told.false).append(line)
    return told


def winners(rows: list[Counted]) -> dict[str, object]:
    """Print what was claimed of the generated data sets; the figures."""
    print("\nwinners among generated data sets")
    claims = ("winner", "not told apart", "does not fit", "too few people", "no better than a coin")
    for one in rows:
        shown = ", ".join(f"{one.claims[claim]} {claim}" for claim in claims if one.claims[claim])
        print(f"  {one.kind:8s} {one.name:34s} {shown}")
        for line in one.false:
            print(f"    FALSE {line}")
        for line in one.near:
            print(f"    near  {line}")
    own = [one for one in rows if one.kind == "inside"]
    sets = {people: sum(one.claims[f"at {people}"] for one in own) for people, _ in SIZES}
    right = {people: sum(one.right[people] for one in own) for people, _ in SIZES}
    for people, count in SIZES:
        print(f"  the right one at {people} people, {count} observations: {right[people]} of {sets[people]}")
    return {
        "false_winners": sum(len(one.false) for one in rows),
        "winner_sets": {
            kind: sum(one.claims[claim] for one in rows if one.kind == kind for claim in claims)
            for kind in ("inside", "outside", "coins", "alike")
        },
        "coin_rule_false": sum(one.claims["coin rule"] for one in rows),
        "near_winners": sum(len(one.near) for one in rows),
        "right_winners": sum(right.values()),
        "right_winner_share": {
            f"{people}": round(right[people] / sets[people], 3) for people, _ in SIZES if sets[people]
        },
    }


HUMAN_KEYS = {
    "human_dial": "dial", "human_bayes": "naive-bayes", "human_ttb": "take-the-best", "human_wadd": "wadd",
}  # fmt: skip


def human() -> dict[str, float | None]:
    """The dial against both seeds of the published binary run; None where the data are not here."""
    file = HUMAN / "binary.jsonl.gz"
    if not file.exists():
        print(f"\npeople: {file} is not here; set REFORK_HUMAN_CHOICES to score the recorded choices")
        return dict.fromkeys((*HUMAN_KEYS, "human_low", "human_fit_p", "human_strength_share"))
    read = read_human_choices(file)
    board = score_theories(RANKED, read.observations, seed=1, draws=2000, redraws=1000)
    print(
        f"\npeople: {board.people}, {board.choices} choices; a coin {board.coin:.4f}, floor {board.floor:.4f}"
    )
    print("  published for the search that found the dial: 0.0097, r .917, and 0.0933 for its first cycle")
    for one in board.theories:
        r = "-" if one.r is None else f"{one.r.estimate:.3f}"
        print(
            f"  {one.name:18s} {one.mse_pb.estimate:.4f} [{one.mse_pb.low:.4f}, {one.mse_pb.high:.4f}]  r {r}"
        )
    print(f"  {board.decide(score_order(RANKED, read.observations, seed=1)).words}")
    gaps = [board.difference("dial", name) for name in ("take-the-best", "wadd")]
    bare = board.difference("dial", "take-the-best", at_strength=True)
    bayes = board.difference("dial", "naive-bayes", at_strength=True)
    for name, gap in (("Take-the-Best", bare), ("naive Bayes", bayes)):
        print(f"  {name} less the dial at best strengths {gap.estimate:.4f} [{gap.low:.4f}, {gap.high:.4f}]")
    return {
        **{key: round(board.of(name).mse_pb.estimate, 5) for key, name in HUMAN_KEYS.items()},
        "human_low": round(min(g.low for g in gaps), 5),
        "human_fit_p": round(board.of("dial").noise_p, 4),
        "human_strength_share": round(1 - bare.estimate / gaps[0].estimate, 3),
    }


def print_searches(rows: list[Found], heading: str) -> None:
    """Print searches as a table."""
    print(f"\n{heading}")
    for one in rows:
        task = one.task
        seeds = " ".join(f"{value:.4f}" for value in one.seeds)
        lags = f"lag-1 {one.lag:+.2f} ({one.people_lag:+.2f})"
        print(f"  {task.hidden:16s} {task.seed:2d}  {one.error:.4f}, seeds {seeds}, {lags}  "
              f"{one.observations:2d} obs  {one.title}  winner {one.winner}")  # fmt: skip


def planned(seeds: int) -> list[Task]:
    """All searches."""
    tasks = [
        Task(name, tuple(one for one in FAMILIES if one != name), seed, noise)
        for noise in (0.0, 0.75)
        for name in FAMILIES
        for seed in range(1, seeds + 1)
    ]
    tasks += [Task("random", ("take-the-best", "wadd"), s) for s in range(1, seeds + 1)]
    tasks += [Task(n, ("take-the-best", "wadd"), s) for n in ("alternation", "perseveration") for s in (1, 2)]
    tasks += [Task("prospect-theory", ("expected-value", "maximax"), s, domain="gambles") for s in (1, 2)]
    return tasks


def run_all(seeds: int, sets: int) -> dict[str, object]:
    """Everything; the figures. The checks run while the searches do."""
    failures = []
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1)) as workers:
        searches = workers.map(measure, planned(seeds))
        for make in (exact_checks, replay_checks):
            for name, right in make():
                print(f"  {'ok  ' if right else 'FAIL'} {name}")
                failures += [] if right else [name]
        low, middle, high = jsd_median()
        fitted, r = parameters_recovered()
        rows = list(searches)
        named = list(workers.map(counted, range(len(list(generated()))), repeat(sets)))
    print(f"\nsequence divergence over 150: median {middle:.4f}, quartiles {low:.4f} {high:.4f}")
    print("  published: .041 (.018, .068)")
    recovered: dict[str, int] = {}
    for noise, suffix in ((0.0, ""), (0.75, " noisy")):
        some = [one for one in rows if one.task.noise == noise and one.task.hidden in FAMILIES]
        print_searches(some, f"recovery at noise {noise:g}: mse_pB to the hidden theory")
        for name in FAMILIES:
            own = [one for one in some if one.task.hidden == name]
            recovered[name + suffix] = sum(one.recovered for one in own if one.task.seed <= 5)
            print(f"  {name}: {sum(one.recovered for one in own)} of {len(own)} recovered")
    coins, orders, gambles = (
        [one for one in rows if one.task.hidden in names]
        for names in (("random",), ("alternation", "perseveration"), ("prospect-theory",))
    )
    print_searches(coins, "people who toss coins: no winner may be named")
    print_searches(orders, "people who only follow their last choice: lag-1 of the chosen theory (of people)")
    lag_ok = all(abs(one.lag - one.people_lag) < 0.2 < abs(one.plain_lag - one.people_lag) for one in orders)
    print_searches(gambles, "gambles by prospect theory")
    print(f"  correlations of fitted with true alpha, loss, gamma, delta: {', '.join(f'{x:.3f}' for x in r)}")
    form = domain_named("gambles").grammar.known["prospect-theory"]
    second = fitted and all(one.title.startswith("-".join(form[:3])) for one in gambles)
    tossed = [one.title for one in coins if one.winner is not None]
    return {
        "exact_failures": len(failures), "jsd_median": round(middle, 4), "recovered": recovered,
        "noise_winner": tossed[0] if tossed else None, "lag1_ok": lag_ok, "second_domain_ok": second,
        **winners(named), **human(),
    }  # fmt: skip


def main() -> None:
    """Run, print, and the figures as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="5 seeds; ends within 50 s on 2 quiet cores")
    parser.add_argument(
        "--winners", type=int, help="only count winners, on so many data sets of each generator"
    )
    asked = parser.parse_args()
    started = time.monotonic()
    if asked.winners:
        with ProcessPoolExecutor(min(2, os.cpu_count() or 1)) as workers:
            rows = list(workers.map(counted, range(len(list(generated()))), repeat(asked.winners)))
        figures = winners(rows)
    else:
        figures = run_all(5, 2) if asked.quick else run_all(20, 12)
    print(f"\n{time.monotonic() - started:.0f} s")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
