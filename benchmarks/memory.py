"""Memory: does gated code keep what text gives, and what does code cost that was made too soon?

A scripted agent of known slips lives through 90 tasks of the world ``miniapps``, once. Five arms learn from
those same runs: none, text only, code only, eager (both, code at once) and metis (both, code when a plan came
back three times). With the memory frozen they do held-out tasks of the same kinds, and tasks of new kinds on
a version of the apps of which one convention changed; seeds and noise are paired. Beside that: the gate's
closed forms against simulated streams and against the memory itself, the same defect put into a text and in
its tool on forks of one prefix, tools made by a chance of one run, rent or buy, the three accounts, and what
tries to get out of the sandbox.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from typing import TypeAlias

import numpy as np

from parts.memory_asymmetry import RATES, Forks, at_rates, by_seed, forks, pooled, slopes
from parts.memory_coincidence import HELD_OUT, Counted, coincidences
from parts.memory_gate import FAMILIES, TASKS, THETAS, closed_forms, real_memory, rent_or_buy
from parts.memory_streams import ARMS, SHIFTS, Comparison, Tested, compare, live, one_thread
from refork.sandbox import Limits, Sandbox
from refork.stats import Difference, paired_difference
from refork_methods.memory.state import break_even
from refork_testbed.sandbox.escapes import ESCAPES, try_all

#: Seeds of the streams; the agent's rates were settled on others.
FIRST_SEED = 0
ENOUGH_SEEDS = 10
#: Seed of the worlds in which numbers meet, and seeds of the forks; the rules were settled on others.
COINCIDENCE_SEED = 21
FORK_SEEDS = range(1000, 1005)
#: Tools built and never invoked in one stream, when it is done.
Lived: TypeAlias = Future[tuple[int, int]]


def between(found: Sequence[Comparison], base: str, other: str, stream: str) -> Difference:
    """TGC of one arm minus another, paired.

    The unit is the seed (its memory is one draw of experience); with few seeds the scenario.
    """
    pairs = [(_of(one, base, stream), _of(one, other, stream)) for one in found]
    if len(found) >= ENOUGH_SEEDS:
        return paired_difference(np.array([a.tgc for a, _ in pairs]), np.array([b.tgc for _, b in pairs]))
    sides = ([x for a, _ in pairs for x in _scenarios(a)], [x for _, b in pairs for x in _scenarios(b)])
    return paired_difference(np.array(sides[0]), np.array(sides[1]))


def _of(one: Comparison, arm: str, stream: str) -> Tested:
    if stream == "touched":
        rows = _of(one, arm, "shifted").rows
        return Tested(tuple(row for row in rows if row.task in one.touched), 0.0, 0.0)
    if stream in ("few", "enough"):
        rows = _of(one, arm, "repeated").rows
        return Tested(tuple(row for row in rows if (row.task in one.few) == (stream == "few")), 0.0, 0.0)
    if arm == "metis, no demotion":
        return one.unwatched if stream == "shifted" else one.repeated["metis"]
    return (one.repeated if stream == "repeated" else one.shifted)[arm]


def _scenarios(tested: Tested) -> list[float]:
    """Share of tasks done of each scenario, in order."""
    rows: dict[str, list[bool]] = {}
    for row in tested.rows:
        rows.setdefault(row.family, []).append(row.success)
    return [float(np.mean(done)) for done in rows.values()]


def mean(found: Sequence[Comparison], read: Callable[[Comparison], float]) -> float:
    """Mean over seeds."""
    return float(np.mean([read(one) for one in found]))


def tell_gate(runs: int, streams: int, lived: Mapping[int, Sequence[Lived]]) -> dict[str, float]:
    """Closed forms, simulator, the memory itself, and the world's own stream."""
    rows = closed_forms(runs, 1)
    differing, share = 0, {}
    print(
        f"gate: {TASKS} tasks, {FAMILIES} families by Zipf's law, {runs} simulated streams, the memory itself"
    )
    print(
        f"on {streams} streams; and the agent at work on 20 templates by Zipf's law, {len(lived[0])} streams"
    )
    print("theta  tools  simulated  never called  simulated  memory  miniapps: tools  never called")
    for row in rows:
        built, idle, off = real_memory(row.theta, streams, 1 + row.theta)
        differing += off
        line = (
            f"{row.theta:5d}  {row.tools:5.1f}  {row.tools_seen:9.1f}  {row.never / row.tools:12.1%}  "
            f"{row.never_seen / row.tools_seen:9.1%}  {idle / built:6.1%}"
        )
        if row.theta in lived:
            apps = [job.result() for job in lived[row.theta]]
            made, left = sum(a for a, _ in apps), sum(b for _, b in apps)
            share[row.theta] = left / made
            line += f"  {made / len(apps):15.1f}  {left / made:12.1%}"
        print(f"{line}   off by {row.deviation:.2f} se")
    print(
        f"published: over half never called, made at once; memory and simulator differ in {differing} streams"
    )
    return {
        "gate_max_dev": round(max(row.deviation for row in rows), 3),
        "gate_memory_differs": differing,
        "eager_never_invoked": round(share[0], 4),
        "closed_form_never_invoked": round(rows[0].never / rows[0].tools, 4),
        "gated_never_invoked": round(share[3], 4),
    }


def tell_streams(found: Sequence[Comparison]) -> dict[str, float]:
    """The arms, and their paired differences."""
    unit = "seeds" if len(found) >= ENOUGH_SEEDS else "scenarios"
    count = len(found[0].repeated["none"].rows)
    print(f"\narms: {len(found)} seeds, {count} tasks to learn from and {count} held out; TGC SGC steps")
    print("arm                 repeated             shifted              by shift " + " ".join(SHIFTS))
    for arm in (*ARMS, "metis, no demotion"):
        told = [f"{arm:18s}"]
        for stream in ("repeated", "shifted"):
            told.append(
                f"{mean(found, lambda c: _of(c, arm, stream).tgc):6.3f}"  # noqa: B023
                f"{mean(found, lambda c: _of(c, arm, stream).sgc):7.3f}"  # noqa: B023
                f"{mean(found, lambda c: _of(c, arm, stream).steps):7.2f}"  # noqa: B023
            )
        for shift in SHIFTS:
            these = [c for c in found if c.shift == shift]
            told.append(f"{mean(these, lambda c: _of(c, arm, 'shifted').tgc):.3f}" if these else "-")  # noqa: B023
        print("  ".join(told))
    best = max(("text", "code"), key=lambda arm: mean(found, lambda c: c.repeated[arm].tgc))
    rows = {
        "repeated: metis - none": between(found, "none", "metis", "repeated"),
        f"repeated: metis - {best} (best single)": between(found, best, "metis", "repeated"),
        "repeated: eager - metis": between(found, "metis", "eager", "repeated"),
        "repeated, kind too rare for the gate: eager - metis": between(found, "metis", "eager", "few"),
        "repeated, kind often enough: eager - metis": between(found, "metis", "eager", "enough"),
        "shifted: code - none": between(found, "none", "code", "shifted"),
        "shifted: metis - text": between(found, "text", "metis", "shifted"),
        "shifted: metis without demotion - text": between(found, "text", "metis, no demotion", "shifted"),
        "shifted: eager - metis": between(found, "metis", "eager", "shifted"),
        "shifted, touched tasks: code - none": between(found, "none", "code", "touched"),
        "shifted, touched tasks: metis - text": between(found, "text", "metis", "touched"),
    }
    share = mean(found, lambda c: len(c.touched) / len(c.shifted["none"].rows))
    print(f"paired differences of TGC, 95 % intervals over {unit}")
    for name, one in rows.items():
        span = one.interval
        print(f"  {name:51s} {span.estimate:+.3f} [{span.low:+.3f}, {span.high:+.3f}]")
    steps = 1 - mean(found, lambda c: c.repeated["metis"].steps) / mean(
        found, lambda c: c.repeated["none"].steps
    )
    print(f"  steps of a repeated task, metis below none: {steps:.1%}")
    print(f"  shifted tasks whose right way calls a function that changed: {share:.1%}")
    gain, single, eager, rare, often, code, text, unwatched, _, touched, _ = (
        one.interval for one in rows.values()
    )
    return {
        "repeated_gain": round(gain.estimate, 4),
        "repeated_gain_low": round(gain.low, 4),
        "metis_vs_best_single": round(single.estimate, 4),
        "eager_vs_metis": round(eager.estimate, 4),
        "eager_vs_metis_rare": round(rare.estimate, 4),
        "eager_vs_metis_often": round(often.estimate, 4),
        "eager_vs_metis_often_low": round(often.low, 4),
        "steps_saved": round(steps, 4),
        "shifted_code_high": round(code.high, 4),
        "touched_code_high": round(touched.high, 4),
        "shifted_vs_text": round(text.estimate, 4),
        "shifted_vs_text_unwatched": round(unwatched.estimate, 4),
    }


def tell_accounts(found: Sequence[Comparison]) -> dict[str, float]:
    """Build, selection and execution in words, and when it has paid."""
    print("\naccounts in words (build: once; the others: a repeated task)")
    print(
        "arm      reflection     code    selection  execution  pays after (tasks)  tools  called in the test"
    )
    plain = mean(found, lambda c: c.repeated["none"].execution)
    print(f"none   {'':10s} {'':8s} {'':12s}{plain:11.0f}")
    for arm in ARMS[1:]:
        read = mean(found, lambda c: c.learned[arm].reflection)  # noqa: B023
        code = mean(found, lambda c: c.learned[arm].code)  # noqa: B023
        choose = mean(found, lambda c: c.repeated[arm].selection)  # noqa: B023
        work = mean(found, lambda c: c.repeated[arm].execution)  # noqa: B023
        made = sum(c.learned[arm].tools for c in found) / len(found)
        used = sum(len(c.repeated[arm].called) for c in found) / len(found)
        pays = break_even(read + code, plain, work, choose)
        after = "never" if pays is None else f"{pays:,d}"
        print(
            f"{arm:7s}{read:10,.0f} {code:8,.0f} {choose:12.0f}{work:11.0f}  {after:>18s}  "
            f"{made:5.1f}  {used:5.1f}"
        )
    code_ratio, build_ratio = (
        mean(found, lambda c: c.learned["eager"].code + part * c.learned["eager"].reflection)  # noqa: B023
        / mean(found, lambda c: c.learned["metis"].code + part * c.learned["metis"].reflection)  # noqa: B023
        for part in (0, 1)
    )
    print(f"eager over metis: code {code_ratio:.2f} times, all of build {build_ratio:.2f} (published 1.47)")
    return {"eager_code_ratio": round(code_ratio, 3), "eager_build_ratio": round(build_ratio, 3)}


def tell_asymmetry(found: Forks) -> dict[str, float]:
    """The same defect in a text and in its tool."""
    rows = at_rates(found)
    text, code, ratio, low, high = slopes(found, 1000)
    print(
        f"\nasymmetry: {len(found.text)} forks of {len(set(found.task))} prefixes, "
        f"{len(set(found.seed))} seeds; TGC by defect rate"
    )
    print("        " + "".join(f"{e:8.1f}" for e in RATES) + "     slope")
    for name, slope in (("text", text), ("code", code)):
        print(f"{name:8s}" + "".join(f"{value:8.3f}" for value in rows[name]) + f"  {slope:+8.3f}")
    alone = by_seed(found)
    print(f"code over text {ratio:.2f} times [{low:.2f}, {high:.2f}] over seeds and their prefixes")
    print("each seed alone: " + ", ".join(f"{one:.2f}" for one in alone))
    return {
        "slope_ratio": round(ratio, 3),
        "slope_ratio_low": round(low, 3),
        "slope_ratio_high": round(high, 3),
        "slope_seeds": len(alone),
        "slope_ratio_least_seed": round(min(alone), 3),
    }


def tell_coincidences(worlds: int, published: Counted, ours: Counted) -> dict[str, float]:
    """Tools right on none of the held-out tasks, without and with a look at the other runs."""
    print(f"\ncoincidences: {worlds} worlds in which ids, prices and amounts are small numbers")
    print(f"gate          tools  right on all {HELD_OUT} of a kind  on none of any")
    for name, one in (("as published", published), ("replayed", ours)):
        print(f"{name:12s}  {one.tools:5d}  {one.right:24d}  {one.coincidences:14d}")
    return {
        "coincidence_worlds": worlds,
        "coincidence_tools": ours.coincidences,
        "coincidence_tools_unchecked": published.coincidences,
        "tools_replayed": ours.tools,
        "tools_replayed_right": round(ours.right / ours.tools, 4),
        "tools_unchecked_right": round(published.right / published.tools, 4),
    }


def main() -> None:
    """Run and print; the last line is one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three seeds instead of twenty")
    parser.add_argument("--seeds", type=int, help="another number of seeds")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    seeds = range(FIRST_SEED, FIRST_SEED + (args.seeds or (3 if args.quick else 20)))
    began = time.perf_counter()
    with ProcessPoolExecutor(max_workers=args.workers, initializer=one_thread) as pool:
        some = seeds[:1] if args.quick else seeds[:5]
        these = (0, 3) if args.quick else THETAS
        lived = {theta: [pool.submit(live, theta, TASKS, 500 + s) for s in some] for theta in these}
        asymmetry = [pool.submit(forks, 15 if args.quick else 90, 4, seed) for seed in FORK_SEEDS]
        worlds = 40 if args.quick else 200
        counted = [pool.submit(coincidences, worlds, COINCIDENCE_SEED, share) for share in (0.0, 1.0)]
        jobs = [pool.submit(compare, seed, 90) for seed in seeds]
        told = tell_gate(20_000, 2 if args.quick else 20, lived)
        worst, whole = rent_or_buy(0)
        print(
            f"rent or buy, 20,000 cases: at most {worst:.3f} times the clairvoyant's, and one task's saving"
        )
        print(f"(with that saving counted in, up to {whole:.2f} times where hardly any task came)")
        told["rent_worst"] = round(worst, 4)
        with Sandbox(Limits(seconds=0.4)) as sandbox:
            outcomes = try_all(sandbox)
        kept = sum(one.contained for one in outcomes)
        print(f"sandbox: {kept} of {len(ESCAPES)} ways out contained")
        found = [job.result() for job in jobs]
        forked = pooled([job.result() for job in asymmetry])
        unchecked, checked = (job.result() for job in counted)
    told |= tell_streams(found)
    told |= tell_accounts(found)
    told |= tell_asymmetry(forked)
    told |= tell_coincidences(worlds, unchecked, checked)
    told |= {"escapes_tried": len(outcomes), "escapes_contained": kept}
    print(f"\n{time.perf_counter() - began:.0f} s")
    print(json.dumps(told))


if __name__ == "__main__":
    main()
