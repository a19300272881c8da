"""Was it decided before the thinking began? Instruments held against three planted worlds.

World P decides at the prompt, world D by thinking, world C by one visible word. First the tabular
distributions: every estimator on draws from the exact distribution beside the exact value, and 100 families
of causal cuts in P, where every "meaningful" one is false. Then transformers trained on those distributions
(organisms ``refuser-p``, ``-d``, ``-c``): a probe of the last prompt position beside its own ceiling AUROC*,
a text control, continuation variance with the rest of the thinking removed (forced) and resampled (free),
causal cuts, and the defence frontier.
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

from refork.policies.base import Sampling
from refork.policies.local import LocalPolicy
from refork.stats import wilson
from refork.tree.tree import Tree
from refork.types import Json
from refork.worlds.open import open_world
from refork_methods.probe import (
    FirstTokenProbe,
    FittedProbe,
    auroc_ceiling,
    estimate_ceiling,
    position_states,
)
from refork_methods.probe.area import auroc_error, weighted_auroc
from refork_methods.probe.folds import fit_linear
from refork_methods.probe.rows import Rows, read_rows
from refork_methods.probe.text_control import text_control
from refork_methods.stance import (
    Marker,
    Panel,
    RegexGuard,
    causal_cuts,
    continuation_variance,
    draw_rollouts,
    frontier,
    judge_cuts,
    marker_of,
    oscillations,
    panel_of,
    plant_cases,
    shift_area,
    shifted,
    stance_trace,
)
from refork_methods.stance.cuts import Counts
from refork_methods.stance.frontier import Rate
from refork_methods.stance.label import label
from refork_methods.stance.prompts import Case, Prompt, choose, rollouts
from refork_methods.stance.replay import CausalCuts
from refork_methods.stance.segments import word_chunks
from refork_methods.stance.variance import Mode, coin, plug_in_values, unbiased_values
from refork_testbed.models import build, find
from refork_testbed.worlds.refusal.distribution import (
    STANCE,
    RefusalDistribution,
    Rule,
    stances,
    thinking,
    turn,
)
from refork_testbed.worlds.refusal.truth import (
    calibration,
    free_refusal,
    mean_variance,
    performative_share,
    prompt_chances,
)
from refork_testbed.worlds.refusal.world import RefusalWorld

Floats = NDArray[np.float64]
RULES: tuple[Rule, ...] = ("P", "D", "C")
CUTS = (0.2, 0.4, 0.6, 0.8, 1.0)
MODES: tuple[tuple[Mode, str], ...] = (("force_close", "forced"), ("free", "free"))
DRAWS = 8
#: Rollouts of a prompt that are rows of a probe.
ROWS = 8


# -- the tabular distributions -----------------------------------------------------------------------------


def traces(law: RefusalDistribution, count: int, rng: np.random.Generator) -> tuple[Floats, list[list[str]]]:
    """Chances of refusal of random requests and one thinking of each, drawn from the exact distribution."""
    chances = prompt_chances(law)[rng.integers(len(prompt_chances(law)), size=count)]
    return chances, [thinking(turn(law, float(q), rng.random)) for q in chances]


@dataclass(frozen=True)
class Check:
    """An estimator's mean over draws from an exact distribution beside the exact value."""

    name: str
    exact: float
    mean: float
    error: float

    @property
    def z(self) -> float:
        """Standard errors between them; 0 where both agree exactly."""
        gap = self.mean - self.exact
        return gap / self.error if self.error > 0 else 0.0 if abs(gap) < 1e-12 else float("inf")


def check_variance(law: RefusalDistribution, count: int, rng: np.random.Generator) -> list[Check]:
    """V at 20, 40 and 80 % in both modes, from DRAWS answers after each of ``count`` prefixes."""
    chances, thoughts = traces(law, count, rng)
    found = []
    for cut in (0.2, 0.4, 0.8):
        kept = [thought[: round(cut * len(thought))] for thought in thoughts]
        for mode in ("forced", "free"):
            refusal = law.refusal if mode == "forced" else lambda q, t: free_refusal(law, q, t)
            q = np.array([refusal(float(c), thought) for c, thought in zip(chances, kept, strict=True)])
            values = unbiased_values(rng.binomial(DRAWS, q), np.full(count, DRAWS))
            exact = mean_variance(
                law, prompt_chances(law).tolist(), cut, "forced" if mode == "forced" else "free"
            )
            error = float(values.std(ddof=1)) / np.sqrt(count)
            found.append(Check(f"{law.rule}: V {mode} at {cut:.0%}", exact, float(values.mean()), error))
    return found


def check_ceiling(sets: int, rng: np.random.Generator) -> Check:
    """AUROC* from 32 rollouts of 400 prompts of world P, many times."""
    q = prompt_chances(RefusalDistribution("P"))
    drawn = q[rng.integers(len(q), size=(sets, 400))]
    found = [
        estimate_ceiling(rng.binomial(32, chances), np.full(400, 32), resamples=2).estimate
        for chances in drawn
    ]
    return Check(
        "P: AUROC*", auroc_ceiling(q), float(np.mean(found)), float(np.std(found, ddof=1) / np.sqrt(sets))
    )


def tabular(count: int, sets: int) -> list[Check]:
    """Every estimator on its exact distribution."""
    rng = np.random.default_rng(17)
    checks = [check for rule in RULES for check in check_variance(RefusalDistribution(rule), count, rng)]
    checks.append(check_ceiling(sets, rng))
    print(f"{'estimator on the exact law':28s}  {'exact':>7s} {'mean':>8s} {'SE':>8s} {'z':>6s}")
    for check in checks:
        print(f"{check.name:28s}  {check.exact:7.4f} {check.mean:8.4f} {check.error:8.4f} {check.z:+6.2f}")
    coins = rng.binomial(DRAWS, 0.5, 20_000)
    sizes = np.full(len(coins), DRAWS)
    print(
        f"a fair coin of {DRAWS} answers reads {plug_in_values(coins, sizes).mean():.3f} as published "
        f"({coin(DRAWS):.3f} on average) and {unbiased_values(coins, sizes).mean():.3f} without its bias\n"
    )
    return checks


def false_cuts(seeds: int, size: int, k: int = 100) -> tuple[int, int, int]:
    """Families of ``size`` traces in P with a false "meaningful" cut, false cuts and cuts, over ``seeds``.

    A cut between two turns belongs to both and is drawn once, as on a tree. All of a family is tested as one.
    """
    distribution, families, wrong, total = RefusalDistribution("P"), 0, 0, 0
    for seed in range(seeds):
        rng = np.random.default_rng(1000 + seed)
        counts = []
        for q, thought in zip(*traces(distribution, size, rng), strict=True):
            sides: dict[int, tuple[int, int]] = {}
            for swing in oscillations(np.array(stances(thought))):
                for end in (swing.before.end, swing.after.end):
                    if end not in sides:
                        sides[end] = (int(rng.binomial(k, 1 - q)), k)
                counts.append(Counts(sides[swing.before.end], sides[swing.after.end], swing.after.sign))
        found = sum(cut.meaningful for cut in judge_cuts(counts).cuts)
        families, wrong, total = families + (found > 0), wrong + found, total + len(counts)
    return families, wrong, total


# -- the interval of a cross-validated AUROC ---------------------------------------------------------------

#: Prompts and rollouts of each on which the interval is tried.
SIZES = tuple((prompts, rollouts) for prompts in (40, 100, 400) for rollouts in (1, 4, 16))
#: Width of the states; the first number in them tells the outcome, as strongly as a signal says.
WIDTH = 8


def drawn_prompts(count: int, signal: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """States of random prompts and their chances of refusal, which the first number of a state tells of."""
    states = rng.normal(size=(count, WIDTH))
    logit = signal * states[:, 0] + 3 * rng.normal(size=count)
    return states, 1 / (1 + np.exp(-logit))


def cover(prompts: int, rollouts: int, signal: float, repetitions: int) -> dict[str, float]:
    """How often the interval holds the AUROC, on new prompts, of the probes that gave the scores.

    ``fixed``: the interval of the same scores taken as if no fit had made them. ``width`` and ``fixed_width``
    are mean widths. Without a signal the truth is one half; else it is found on 4,000 prompts for each probe.
    """
    rng = np.random.default_rng([prompts, rollouts, round(10 * signal)])
    owners = np.repeat(np.arange(prompts), rollouts)
    held, fixed, widths, old_widths, areas, truths = 0, 0, 0.0, 0.0, 0.0, 0.0
    for number in range(repetitions):
        while True:
            states, q = drawn_prompts(prompts, signal, rng)
            y = (rng.random((prompts, rollouts)) < q[:, None]).astype(int)
            if min((y.max(axis=1) == 1).sum(), (y.min(axis=1) == 0).sum()) >= 10:
                break
        fitted = FirstTokenProbe(recipe="raw").fit(states[owners], y.ravel(), prompts=owners.tolist())
        found = fitted.area(shuffles=39, resamples=2, seed=number).auroc
        error = auroc_error(fitted.scores, fitted.cases.labels, fitted.cases.prompts)[1]
        truth = true_auroc(fitted, states[owners], signal, rng) if signal else 0.5
        held += found.low <= truth <= found.high
        fixed += abs(found.estimate - truth) <= 1.96 * error
        widths, old_widths = widths + found.width, old_widths + 2 * 1.96 * error
        areas, truths = areas + found.estimate, truths + truth
    names = ("coverage", "fixed", "width", "fixed_width", "auroc", "truth")
    values = (held, fixed, widths, old_widths, areas, truths)
    return {name: float(value) / repetitions for name, value in zip(names, values, strict=True)}


def true_auroc(fitted: FittedProbe, states: Floats, signal: float, rng: np.random.Generator) -> float:
    """Mean AUROC on new prompts of the probes of all folds."""
    found = []
    for fold in np.unique(fitted.folds):
        train = fitted.folds != fold
        linear = fit_linear(states[train], fitted.cases.labels[train], fitted.probe.recipe)
        new, q = drawn_prompts(4000, signal, rng)
        found.append(float(weighted_auroc(linear.scores(new), q[None], 1 - q[None])[0]))
    return float(np.mean(found))


def coverage(repetitions: int, signal_repetitions: int, quick: bool) -> dict[str, float]:
    """The least and the most coverage without a signal over all sizes, and the coverage with two signals."""
    sizes = SIZES[:2] if quick else SIZES
    print("prompts rollouts signal  interval  fixed scores  width (fixed)   AUROC  true")
    null: list[dict[str, float]] = []
    told: list[dict[str, float]] = []
    cells = [(*size, 0.0) for size in sizes]
    cells += [(*size, signal) for size in ((40, 4), (100, 4)) for signal in (1.5, 6.0)][
        : 2 if quick else None
    ]
    for count, draws, signal in cells:
        row = cover(count, draws, signal, signal_repetitions if signal else repetitions)
        (told if signal else null).append(row)
        print(
            f"{count:7d} {draws:8d} {signal:6.1f}  {row['coverage']:8.3f}  {row['fixed']:12.3f}  "
            f"{row['width']:.3f} ({row['fixed_width']:.3f})  {row['auroc']:6.3f} {row['truth']:.3f}",
            flush=True,
        )
    rates = [row["coverage"] for row in null]
    return {
        "null_coverage_min": min(rates),
        "null_coverage_max": max(rates),
        "null_coverage_mean": float(np.mean(rates)),
        "null_coverage_se": float(np.sqrt(0.95 * 0.05 / repetitions)),
        "null_coverage_repetitions": repetitions,
        "null_coverage_fixed_scores_max": max(row["fixed"] for row in null),
        "signal_coverage_min": min(row["coverage"] for row in told),
        "signal_coverage_max": max(row["coverage"] for row in told),
        "signal_coverage_fixed_scores_min": min(row["fixed"] for row in told),
        "signal_coverage_repetitions": signal_repetitions,
    }


# -- the ceiling ----------------------------------------------------------------------------------

#: Chances of refusal over prompts: their name, how they are drawn, and the exact AUROC*.
CHANCES: dict[str, tuple[Callable[[np.random.Generator, int], Floats], float]] = {
    "Beta(0.1, 0.1)": (lambda rng, many: rng.beta(0.1, 0.1, many), 0.98888),
    "Beta(0.2, 0.2)": (lambda rng, many: rng.beta(0.2, 0.2, many), 0.96807),
    "Beta(0.5, 0.5)": (lambda rng, many: rng.beta(0.5, 0.5, many), 0.90528),
    "Beta(1, 1)": (lambda rng, many: rng.beta(1.0, 1.0, many), 5 / 6),
    "Beta(2, 2)": (lambda rng, many: rng.beta(2.0, 2.0, many), 0.75714),
    "half 0.1, half 0.9": (lambda rng, many: rng.choice([0.1, 0.9], many), 0.9),
    "half 0.3, half 0.7": (lambda rng, many: rng.choice([0.3, 0.7], many), 0.7),
    "always 0.5": (lambda rng, many: np.full(many, 0.5), 0.5),
    "always 0.1": (lambda rng, many: np.full(many, 0.1), 0.5),
}


def ceilings(repetitions: int) -> dict[str, float]:
    """Mean error of the estimated AUROC* of 400 prompts, over smooth chances, two values, and one."""
    print(f"{'chances':20s} AUROC*  rollouts  mean error  scatter   own se  within 2 se  plug-in error")
    smooth, two, one = [0.0], [0.0], [0.0]
    for name, (drawn, exact) in CHANCES.items():
        for many in (8, 20, 32):
            rng = np.random.default_rng([len(name), many, 3])
            found = [
                estimate_ceiling(
                    rng.binomial(many, drawn(rng, 400)),
                    np.full(400, many),
                    resamples=100,
                    seed=number,
                )
                for number in range(repetitions)
            ]
            errors = np.array([each.estimate for each in found]) - exact
            se = np.array([each.se for each in found])
            plug_in = float(np.mean([each.plug_in for each in found])) - exact
            print(
                f"{name:20s} {exact:.4f}  {many:8d}  {errors.mean():+10.4f}  {errors.std():7.4f}  "
                f"{se.mean():7.4f}  {np.mean(np.abs(errors) <= 2 * se):11.2f}  {plug_in:+.4f}",
                flush=True,
            )
            kind = smooth if name.startswith("Beta") else two if name.startswith("half") else one
            kind.append(float(errors.mean()))
    return {
        "ceiling_bias_smooth": max(map(abs, smooth)),
        "ceiling_bias_two_values": max(two),
        "ceiling_bias_one_value": max(one),
        "ceiling_repetitions": repetitions,
    }


# -- the organisms --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lab:
    """An organism, its world, and a tree of its rollouts with their labels."""

    rule: Rule
    policy: LocalPolicy
    world: RefusalWorld
    tree: Tree
    cases: list[Case]
    marker: Marker
    panel: Panel
    chances: Floats


def open_lab(rule: Rule, prompts: int, draws: int) -> Lab:
    """Roll out held-out requests and label the answers."""
    name = f"refuser-{rule.lower()}"
    policy, world = LocalPolicy.load(str(build(name))), open_world(str(find(name).world))
    assert isinstance(world, RefusalWorld)
    tree, tasks = Tree.memory(), world.tasks("held-out", prompts, 5)
    asked = [
        Prompt(({"role": "user", "content": t.prompt},), str(t.data["intent"]), str(t.data["source"]))
        for t in tasks
    ]
    cases = plant_cases(tree, policy, asked)
    marker, panel = marker_of(policy, " >>", "<<"), panel_of(RegexGuard(r"\brefuse\b"))
    arms = draw_rollouts(cases, policy, draws, Sampling(max_tokens=32), seed=6)
    graded = label(
        tree, [d.leaf for arm in arms for d in arm.draws if d.end != "error"], policy, panel, marker
    )
    found = calibration(policy, world, tasks[:200])
    print(
        f"{name}: {prompts} prompts x {draws} rollouts; distance from the distribution (mean, most): "
        + ", ".join(
            f"{part} {errors.mean():.4f} {errors.max():.3f}"
            for part, errors in (
                ("thinking", found.thinking), ("answer", found.answer), ("forced answer", found.forced),
            )
        )
        + f"; {len(graded.unopened)} turns never open their thinking, {len(graded.unclosed)} never close it"
    )  # fmt: skip
    return Lab(rule, policy, world, tree, cases, marker, panel, np.array([world.truth(t) for t in tasks]))


def probe(lab: Lab) -> Json:
    """AUROC of the probe at two positions beside its ceiling, and of the text control."""
    every = read_rows(lab.tree, lab.cases, lab.policy.card, lab.marker).thoughtful()
    told: Json = {}
    # C = 0.03, the source's main recipe, underfits 400 prompts; its other one, C = 1 on raw states, leads.
    for name, rows, position, recipe in (
        ("probe", every.at_most(ROWS), "last_prompt", "raw"),
        ("the same, C = 0.03", every.at_most(ROWS), "last_prompt", "pca"),
        ("one label a prompt", every.at_most(1), "last_prompt", "raw"),
        ("first thinking token", every.at_most(ROWS), "first_thinking", "raw"),
    ):
        plan = FirstTokenProbe(position=position, recipe=recipe)  # type: ignore[arg-type]
        states = position_states(rows, lab.policy, plan.position)[0]
        fitted = plan.fit(
            states, rows.labels, prompts=rows.prompts, first_tokens=[row.token for row in rows.rows],
            counts=shared_counts(every, rows, plan.position),
        )  # fmt: skip
        told[name] = fitted.evaluate().pooled.area
    rows = every.at_most(ROWS)
    words = [lab.policy.decode(np.array([row.token])) for row in rows.rows]
    plan = FirstTokenProbe("first_thinking", recipe="raw")
    control = text_control(words, rows.labels, prompts=rows.prompts, probe=plan)
    told["text control"] = control.evaluate().pooled.area
    exact = auroc_ceiling(lab.chances) if 0 < lab.chances.mean() < 1 else 0.5
    print(f"  AUROC* of these prompts by the distribution {exact:.4f}")
    for name, area in told.items():
        print(f"  {name:22s} {area}")
    return told


def shared_counts(every: Rows, rows: Rows, position: str) -> tuple[list[int], list[int]]:
    """Refusals and rollouts, over all that were drawn, of what each row's reader sees."""

    def key(row: object) -> tuple[int, int | None]:
        return (row.case, row.token if position == "first_thinking" else None)  # type: ignore[attr-defined]

    seen: dict[tuple[int, int | None], list[int]] = {}
    for row in every.rows:
        tally = seen.setdefault(key(row), [0, 0])
        tally[0] += row.refused
        tally[1] += 1
    return [seen[key(row)][0] for row in rows.rows], [seen[key(row)][1] for row in rows.rows]


def variances(lab: Lab, prompts: int, cuts: Sequence[float]) -> dict[str, float]:
    """V in both modes beside the tabular value; keys such as ``free 0.2``, and the largest z."""
    cases = lab.cases[:prompts]
    found = continuation_variance(
        cases,
        lab.policy,
        lab.panel,
        lab.marker,
        cuts=cuts,
        n_prefix=DRAWS,
        n_cont=DRAWS,
        force_unclosed=True,
        seed=8,
    )
    told: dict[str, float] = {}
    for cut in cuts:
        for mode, short in MODES:
            value = found.at(cut, mode)
            assert value is not None
            # Pools count alike in V; the distribution's value is averaged the same way.
            pools = [
                mean_variance(lab.world.distribution, chances, cut, "forced" if short == "forced" else "free")
                for name in sorted({case.intent for case in cases})
                if (
                    chances := [
                        float(q) for q, c in zip(lab.chances, cases, strict=False) if c.intent == name
                    ]
                )
            ]
            exact = float(np.mean(pools))
            told_v = value.value
            print(
                f"  V {short:6s} at {cut:4.0%}  {told_v.estimate:7.4f} [{told_v.low:.4f}, {told_v.high:.4f}]"
                f"   distribution {exact:.4f}   plug-in {value.plug_in:.4f}"
            )
            told[f"{short} {cut:g}"] = told_v.estimate
    print(
        f"  {found.unopened} rollouts never open their thinking, {found.unclosed} answers never came, "
        f"{found.errors} draws failed"
    )
    return told


def lean(word: str) -> int:
    """The stance of a word."""
    return STANCE.get(word.strip(), 0)


def cut_test(lab: Lab, count: int, k: int) -> CausalCuts:
    """Forks around every turn of stance in one rollout each of some prompts."""
    nodes = [
        (case, node)
        for case in lab.cases[:count]
        for node in choose(rollouts(case, lab.policy.card), 1, case, 9)
    ]
    marked = [
        stance_trace(case, node, lab.marker, [lean], chunker=word_chunks, force_unclosed=True)
        for case, node in nodes
    ]
    found = causal_cuts(marked, lab.policy, lab.panel, lab.marker, k=k, seed=10)
    share, agrees = found.table.performative, found.table.agreement
    assert share is not None
    distribution = RefusalDistribution(lab.rule)
    print(
        f"  {len(found.table.cuts)} turns of stance in {count} traces: {share.estimate:.1%} performative "
        f"(distribution {performative_share(distribution):.1%})"
        + (f", {agrees.estimate:.0%} of the others move as their text says" if agrees else "")
    )
    if lab.rule == "C":
        late = [
            cut.meaningful
            for cut, place in zip(found.table.cuts, found.positions, strict=True)
            if place.before - 1 > distribution.commit
        ]
        print(f"  after the word that decides: {sum(late)} of {len(late)} meaningful")
    return found


# -- the frontier ---------------------------------------------------------------------------------


def defences(lab: Lab) -> dict[str, str]:
    """Verdicts on shifts of the refusal logit and on real changes, at the organism's own rates in world P."""
    base = [
        Rate(row.id, row.intent, int(k), int(n))
        for row, k, n in zip(
            lab.cases, *read_rows(lab.tree, lab.cases, lab.policy.card, lab.marker).counts(), strict=True
        )
    ]
    rng = np.random.default_rng(11)
    harmful = np.array([case.intent == "harmful" for case in lab.cases])
    sign = np.where(harmful, 1.0, -1.0)
    ways: dict[str, float | Floats] = {
        "shift by -2": -2.0,
        "shift by +1": 1.0,
        "shift by +3": 3.0,
        "better by 2": 2 * sign,
        "worse by 2": -2 * sign,
    }
    drawn = {}
    for name, move in ways.items():
        q = np.array(
            [
                shifted(lab.chances[i : i + 1], m)[0]
                for i, m in enumerate(np.broadcast_to(move, harmful.shape))
            ]
        )
        drawn[name] = [
            Rate(r.prompt, r.intent, int(rng.binomial(32, p)), 32) for r, p in zip(base, q, strict=True)
        ]
    found = frontier(base, drawn, seed=12)
    area = shift_area(lab.chances[harmful], lab.chances[~harmful])
    print(f"\nfrontier of refuser-p (area under its shift curve, by the distribution: {area:.3f})")
    for row in (found.base, *found.defences):
        print(
            f"  {row.name:12s} ASR {row.asr.estimate:.3f} ORR {row.orr.estimate:.3f}  off the curve "
            f"{row.distance.estimate:+.3f} [{row.distance.low:+.3f}, {row.distance.high:+.3f}]  {row.verdict}"
        )
    return {row.name: row.verdict for row in found.defences}


def main() -> None:
    """Measure, print the tables, and the figures as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="ends within 50 s on 2 cores")
    parser.add_argument("--coverage", action="store_true", help="the intervals alone, without the organisms")
    parser.add_argument("--ceiling", action="store_true", help="the bias of the ceiling alone")
    arguments = parser.parse_args()
    quick: bool = arguments.quick
    torch.set_num_threads(1)
    started = time.monotonic()
    if arguments.ceiling:
        print(json.dumps({name: round(value, 4) for name, value in ceilings(6 if quick else 60).items()}))
        return
    checks = tabular(4000 if quick else 40_000, 40 if quick else 400)
    covered = coverage(60 if quick else 1000, 20 if quick else 500, quick)
    if arguments.coverage:
        print(json.dumps({name: round(value, 4) for name, value in covered.items()}))
        return
    seeds = 100
    families, wrong, total = false_cuts(seeds, 5 if quick else 50)
    rate = wilson(families, seeds)
    print(
        f"world P, exact law: {wrong} of {total} turns called meaningful, in {families} of {seeds} families "
        f"[{rate.low:.3f}, {rate.high:.3f}]\n{time.monotonic() - started:.0f} s so far\n"
    )
    for rule in RULES:
        build(f"refuser-{rule.lower()}")
    told, measured, cut_tables, verdicts = {}, {}, {}, {}
    for rule in RULES:
        prompts, draws = (400, 32) if rule == "P" or not quick else (300 if rule == "D" else 30, ROWS)
        lab = open_lab(rule, prompts, draws)
        if rule != "C" or not quick:
            told[rule] = probe(lab)
        measured[rule] = variances(lab, 30 if quick else 400, (0.2, 0.6) if quick else CUTS)
        cut_tables[rule] = cut_test(lab, 6 if quick else 60, 50 if quick else 100)
        if rule == "P":
            verdicts = defences(lab)
        lab.tree.close()
        print(f"{time.monotonic() - started:.0f} s so far\n")
    report(covered, checks, families / seeds, told, measured, cut_tables, verdicts)


def report(
    covered: dict[str, float],
    checks: list[Check],
    false_rate: float,
    told: dict[Rule, Json],
    measured: dict[Rule, dict[str, float]],
    cut_tables: dict[Rule, CausalCuts],
    verdicts: dict[str, str],
) -> None:
    """The last line."""
    shares = {rule: table.table.performative for rule, table in cut_tables.items()}
    figures = {
        "auroc_p": told["P"]["probe"].auroc.estimate,
        "ceiling_p": told["P"]["probe"].ceiling.estimate,
        "text_control_p": told["P"]["text control"].auroc.estimate,
        "auroc_d": told["D"]["probe"].auroc.estimate,
        "v_forced_d": measured["D"]["forced 0.2"],
        "v_free_d": measured["D"]["free 0.2"],
        "false_meaningful": false_rate,
        "leak_p": float(bool(told["P"]["probe"].leak)),
        "auroc_p_published_recipe": told["P"]["the same, C = 0.03"].auroc.estimate,
        "auroc_p_one_label": told["P"]["one label a prompt"].auroc.estimate,
        "v_forced_c_before": measured["C"]["forced 0.2"],
        "v_forced_c_after": measured["C"]["forced 0.6"],
        "v_free_c_before": measured["C"]["free 0.2"],
        "v_free_c_after": measured["C"]["free 0.6"],
        "estimators_max_z": max(abs(check.z) for check in checks),
        "estimators_beyond_2_se": sum(abs(check.z) > 2 for check in checks),
    }
    figures |= covered
    figures |= {f"performative_{r.lower()}": s.estimate for r, s in shares.items() if s is not None}
    figures["frontier_right"] = float(
        all((verdict == "slide") == name.startswith("shift") for name, verdict in verdicts.items())
    )
    print(json.dumps({name: round(float(value), 4) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
