"""Localization: is the faulty file found without a model, do names alone find it, and does the finding help?

On single-mutation tasks in forty small projects: the deterministic investigator beside BM25 over files, a
file drawn by chance, and Ochiai, which may run the tests. Then two controls for names: the same tasks with
every identifier of the project renamed, and with code masked in the issue. Then what findings are worth: a
planted agent whose distribution is known, with the break-even precision read off a sweep; and an agent that
searches edits and runs real tests, with the investigator's case file, a gate fitted on other projects,
shuffled and oracle findings. Then real bugs of known projects, where a folder of their clones is given
(parts/localize_bugs.py). And how long reading takes, on the installed networkx package.

--quick takes three tasks of each project (the kinds of mutation in turn), the renamed and the coverage arms
on ten projects, and leaves the searching agent out.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from parts.localize_bugs import figures as real_bugs
from refork import stats
from refork_methods.localize.baseline import FileBm25, random_acc
from refork_methods.localize.index import RepoIndex
from refork_methods.localize.inject import InjectionGate, finding_right
from refork_methods.localize.investigate import investigate
from refork_methods.localize.mask import mask_code
from refork_methods.localize.metrics import Scores, mean_scores, score_locations
from refork_methods.localize.snapshot import Snapshot
from refork_methods.localize.transfer import SettingTransfer, transfer_report
from refork_testbed.trials.localize_repairs import (
    ForkedTask,
    Investigated,
    agent_effects,
    fork_task,
    investigate_task,
    mean_test_runs,
    ochiai_files,
    repair_runs,
    task_spectrum,
)
from refork_testbed.trials.planted_repairs import TrialRow, break_evens, trial_table
from refork_testbed.worlds.repair.projects import project_names, shared_runner, split_of_project
from refork_testbed.worlds.repair.tasks import RepairTask, renamed_task, repair_tasks

#: The table that the planted trial is held against: resolved (weak, middle) and mean test runs (strong).
PUBLISHED = {
    "no report": (0.170, 0.944, 4.1),
    "injected, 90 % right": (0.908, 0.978, 5.3),
    "injected, 60 % right": (0.634, 0.918, 11.0),
    "filtered, 60 % right": (0.504, 0.960, 4.9),
}
PACKAGE = "networkx"
ISSUE = "The shortest path ignores the weight of a negative edge and gives a wrong length"


@dataclass(frozen=True, slots=True)
class Arm:
    """Of each task: whether a method's first file is the faulty one (BM25, the investigator, chance)."""

    tasks: list[RepairTask]
    found: list[Investigated]
    scores: list[Scores]
    bm25: np.ndarray
    cleaned: np.ndarray
    investigator: np.ndarray
    chance: np.ndarray


def measured(tasks: Sequence[RepairTask]) -> Arm:
    """BM25 and the investigator on tasks, from the broken project's files and the issue alone."""
    found = [investigate_task(task) for task in tasks]
    scores = [score_locations(one.case, one.task.gold) for one in found]
    bm25 = [bm25_first(one.index.snapshot, one.task.issue) == one.task.path for one in found]
    read = [bm25_first(one.index.snapshot, one.task.issue, True) == one.task.path for one in found]
    return Arm(
        list(tasks),
        found,
        scores,
        np.array(bm25, float),
        np.array(read, float),
        np.array([float(row.acc[1] or 0) for row in scores]),
        np.array([random_acc(len(task.files)) for task in tasks]),
    )


def bm25_first(snapshot: Snapshot, issue: str, cleaned: bool = False) -> str:
    """BM25's first file, by the issue's plain words or by those that the investigator reads out of it."""
    return FileBm25(snapshot).ranked(issue, cleaned=cleaned)[0]


def ochiai_hits(tasks: Sequence[RepairTask]) -> np.ndarray:
    """Whether the most suspicious file is the faulty one; every test is run with its lines traced."""
    runner = shared_runner()
    first = [ochiai_files(task_spectrum(task, runner), sorted(task.files))[0] for task in tasks]
    return np.array([path == task.path for path, task in zip(first, tasks, strict=True)], float)


def share(values: np.ndarray) -> str:
    """A rate with its interval."""
    span = stats.wilson(int(values.sum()), values.size)
    return f"{span.estimate:.3f} [{span.low:.3f}, {span.high:.3f}]"


def gap(base: np.ndarray, other: np.ndarray) -> stats.Interval:
    """Paired difference over tasks."""
    return stats.paired_difference(base, other).interval


def files_table(arm: Arm) -> dict[str, float]:
    """Who finds the faulty file, by split; spans of the investigator's places."""
    lead, over = gap(arm.bm25, arm.investigator), gap(arm.cleaned, arm.investigator)
    print(f"{len(arm.tasks)} tasks in {len({t.project.name for t in arm.tasks})} projects; first file right")
    print(f"  investigator {share(arm.investigator)}\n  BM25         {share(arm.bm25)}")
    print(f"  BM25 with the investigator's words {share(arm.cleaned)}")
    print(f"  chance       {arm.chance.mean():.3f}")
    print(f"  investigator - BM25, paired: {lead.estimate:+.3f} [{lead.low:+.3f}, {lead.high:+.3f}]")
    print(f"  and with its words:          {over.estimate:+.3f} [{over.low:+.3f}, {over.high:+.3f}]")
    splits = np.array([split_of_project(task.project.name) for task in arm.tasks])
    origins = np.array([task.project.origin for task in arm.tasks])
    first = np.array([finding_right(one.case, one.task.gold) for one in arm.found], float)
    print(f"  the first place's lines right: {share(first)}")
    figures = {"first_lines": round(float(first.mean()), 4)}
    for name, rows in (("train", splits == "train"), ("held-out", splits == "held-out")):
        span = gap(arm.bm25[rows], arm.investigator[rows])
        print(
            f"  {name:9s} {int(rows.sum()):3d} tasks: investigator {arm.investigator[rows].mean():.3f}, "
            f"BM25 {arm.bm25[rows].mean():.3f}, {span.estimate:+.3f} [{span.low:+.3f}, {span.high:+.3f}]"
        )
        figures[f"lead_{name.replace('-', '_')}"] = round(span.estimate, 4)
    for name in ("generated", "stdlib"):
        rows = origins == name
        print(
            f"  {name:9s} {int(rows.sum()):3d} tasks: investigator {arm.investigator[rows].mean():.3f}, "
            f"BM25 {arm.bm25[rows].mean():.3f}, chance {arm.chance[rows].mean():.3f}"
        )
    means = mean_scores(arm.scores)
    for name in ("acc@3", "chunk_recall", "chunk_precision", "iou"):
        one, cases = means[name]
        if one is not None:
            print(f"  {name:15s} {one.estimate:.3f} [{one.low:.3f}, {one.high:.3f}]  {cases} cases")
            figures[name.replace("@", "")] = round(one.estimate, 4)
    return figures | {
        "acc1": round(float(arm.investigator.mean()), 4),
        "bm25": round(float(arm.bm25.mean()), 4),
        "random": round(float(arm.chance.mean()), 4),
        "bm25_cleaned": round(float(arm.cleaned.mean()), 4),
        "lead_over_cleaned": round(over.estimate, 4),
        "lead": round(lead.estimate, 4),
        "lead_low": round(lead.low, 4),
        "times_random": round(float(arm.investigator.mean() / arm.chance.mean()), 3),
    }


def names_table(plain: Arm, traced: int) -> dict[str, float]:
    """The same tasks with the project's identifiers renamed, and with code masked in the issue."""
    renamed = measured([renamed_task(task) for task in plain.tasks])
    print(f"\n{len(plain.tasks)} of them with every identifier of the project renamed")
    found: dict[str, float] = {}
    for name, before, after in (
        ("BM25", plain.bm25, renamed.bm25),
        ("investigator", plain.investigator, renamed.investigator),
        ("Ochiai", ochiai_hits(plain.tasks[:traced]), ochiai_hits(renamed.tasks[:traced])),
    ):
        span = gap(after, before)
        print(
            f"  {name:13s} {before.mean():.3f} -> {after.mean():.3f}   drop {span.estimate:+.3f} "
            f"[{span.low:+.3f}, {span.high:+.3f}]  {before.size} tasks"
        )
        found[name] = span.estimate
        found[f"{name} after"] = float(after.mean())
        found[f"{name} before"] = float(before.mean())
    issues = [mask_code(task.issue) for task in plain.tasks]
    both = [
        (bm25_first(one.index.snapshot, text), investigate(one.index, text).paths[:1])
        for one, text in zip(plain.found, issues, strict=True)
    ]
    bm25 = np.array([a == one.task.path for (a, _), one in zip(both, plain.found, strict=True)], float)
    mine = np.array([b == (one.task.path,) for (_, b), one in zip(both, plain.found, strict=True)], float)
    print("  code masked in the issue instead, names in the project kept:")
    print(f"  {'BM25':13s} {bm25.mean():.3f}\n  {'investigator':13s} {mine.mean():.3f}")
    return {
        "masking_drop": round(found["BM25"], 4),
        "masking_drop_ochiai": round(found["Ochiai"], 4),
        "ochiai": round(found["Ochiai before"], 4),
        "masked_acc1": round(found["investigator after"], 4),
        "masked_bm25": round(found["BM25 after"], 4),
        "issue_masked_acc1": round(float(mine.mean()), 4),
        "issue_masked_bm25": round(float(bm25.mean()), 4),
    }


def trial(tasks: int) -> dict[str, float]:
    """The planted agent: its table, the controls, and break-even precisions read off sweeps."""
    rows = {(row.agent, row.arm): row for row in trial_table()}
    print(f"\nplanted edit trial, {20_000:,} tasks: resolved (mean test runs) [published]")
    for arm in dict.fromkeys(arm for _, arm in rows):
        cells = [rows[agent, arm] for agent in ("weak", "middle", "strong")]
        said = PUBLISHED.get(arm)
        shown = "" if said is None else f"   [{said[0]:.3f}, {said[1]:.3f}, ({said[2]:.1f})]"
        print(
            f"  {arm:22s}"
            + "".join(f"{c.resolved.estimate:8.3f} ({c.runs.estimate:4.1f})" for c in cells)
            + shown
        )
    off = [
        abs(rows[agent, arm].resolved.estimate - said[n])
        for arm, said in PUBLISHED.items()
        for n, agent in enumerate(("weak", "middle"))
    ]
    runs_off = [abs(rows["strong", arm].runs.estimate - said[2]) for arm, said in PUBLISHED.items()]
    evens = break_evens(tasks)
    for one in evens:
        low, high = one.effect.threshold_range
        read = "never" if one.crossing is None else f"{one.crossing:.3f}"
        print(
            f"  {one.agent:7s} in {one.unit:8s} G {one.effect.gain.estimate:.3f}, L "
            f"{one.effect.loss.estimate:.3f}: q* {one.effect.threshold:.3f} [{low:.3f}, {high:.3f}], "
            f"the sweep turns at {read}"
        )
    deviation = [1.0 if one.deviation is None else one.deviation for one in evens]
    return {
        "qstar_dev": round(max(deviation), 4),
        "table_max_dev": round(max(off), 4),
        "table_runs_dev": round(max(runs_off), 3),
        **conclusions(rows),
    }


def conclusions(rows: dict[tuple[str, str], TrialRow]) -> dict[str, float]:
    """What the trial must show, each as a figure."""
    shuffled = [row for (_, arm), row in rows.items() if arm.startswith("shuffled")]
    oracle = [row for (_, arm), row in rows.items() if arm.startswith("oracle")]
    base = rows["strong", "no report"].runs.estimate
    return {
        "weak_gain": round(rows["weak", "injected, 60 % right"].gain.estimate, 4),
        "middle_unfiltered": round(rows["middle", "injected, 60 % right"].gain.estimate, 4),
        "middle_gated": round(rows["middle", "filtered, 60 % right"].gain.estimate, 4),
        "strong_runs_ratio": round(rows["strong", "injected, 60 % right"].runs.estimate / base, 3),
        "strong_gated_ratio": round(rows["strong", "gated, 60 % right"].runs.estimate / base, 3),
        "shuffled_best": round(max(row.gain.low for row in shuffled), 4),
        "oracle_worst": round(min(row.gain.high for row in oracle), 4),
    }


def searched(found: Sequence[Investigated], fit: int, held: int) -> dict[str, float]:
    """The searching agent: effects and gate on training projects, arms on held-out ones."""
    halves = {
        split: [one for one in found if split_of_project(one.task.project.name) == split]
        for split in ("train", "held-out")
    }
    effects = agent_effects(forked(halves["train"][:fit], runner_seed=0))
    runs = [one.run for one in halves["train"] if one.run is not None]
    gate = InjectionGate.fit(runs, effects)
    forks = forked(halves["held-out"][:held], runner_seed=10_000)
    right = np.mean([run.right for run in runs])
    print(f"\nsearching agent, real edits and tests: G and L from {fit} training tasks, the gate's chances")
    print(f"from {len(runs)} ({right:.2f} with the right lines first); {len(forks)} held-out tasks")
    figures: dict[str, float] = {}
    for one in effects:
        low, high = one.threshold_range
        print(
            f"  {one.agent:10s} G {one.gain.estimate:+.3f} [{one.gain.low:+.3f}, {one.gain.high:+.3f}]  L "
            f"{one.loss.estimate:+.3f} [{one.loss.low:+.3f}, {one.loss.high:+.3f}]  q* {one.threshold:.2f} "
            f"[{low:.2f}, {high:.2f}]"
        )
    bare = repair_runs(forks, "none")
    for label, arm in (("all", "found"), ("gated", "found"), ("shuffled", "shuffled"), ("oracle", "right")):
        chosen = gate if label == "gated" else None
        report = transfer_report(repair_runs(forks, arm, chosen), bare)
        for row in report.settings:
            print(search_line(label, row, forks, arm if chosen is None else None))
            figures[f"search_{row.setting}_{label}"] = round(row.difference.estimate, 4)
    return figures


def search_line(label: str, row: SettingTransfer, forks: Sequence[ForkedTask], arm: str | None) -> str:
    """One arm of one agent as a line."""
    span = row.difference
    own = next(agent for one in forks for agent, _ in one.attempts if agent == row.setting)
    runs = ""
    if arm is not None:
        before, after = (mean_test_runs(forks, own, one) for one in ("none", arm))
        runs = f"  runs {before:.1f} -> {after:.1f}"
    return (
        f"  {row.setting:10s} {label:9s} {row.without:.3f} -> {row.with_:.3f}  {span.estimate:+.3f} "
        f"[{span.low:+.3f}, {span.high:+.3f}]  Holm p {row.p:.3f}{runs}"
    )


def forked(found: Sequence[Investigated], runner_seed: int) -> list[ForkedTask]:
    """Every task with every finding; the shuffled one is of the next task of the same project."""
    homes: dict[str, list[int]] = {}
    for number, one in enumerate(found):
        homes.setdefault(one.task.project.name, []).append(number)
    out = []
    for number, one in enumerate(found):
        mates = homes[one.task.project.name]
        other = mates[(mates.index(number) + 1) % len(mates)]
        if other == number:
            other = (number + 1) % len(found)
        out.append(fork_task(one, shared_runner(), shuffled=found[other].case, seed=runner_seed + number))
    return out


def reading() -> dict[str, float]:
    """Seconds from a directory to a case file, per ten thousand lines, nothing kept beforehand."""
    spec = importlib.util.find_spec(PACKAGE)
    assert spec is not None
    assert spec.origin is not None
    started = time.perf_counter()
    index = RepoIndex.build(Snapshot(Path(spec.origin).parent))
    case = investigate(index, ISSUE)
    seconds = time.perf_counter() - started
    lines = sum(facts.lines for facts in index.files.values())
    print(f"\n{PACKAGE}: {len(index.files)} files, {lines:,} lines in {seconds:.2f} s")
    print(f"first place for an issue on shortest paths: {case.locations[0].location()}")
    return {"seconds_per_10k_lines": round(seconds / lines * 10_000, 4), "lines_read": lines}


def stratified(tasks: Sequence[RepairTask], each: int) -> list[RepairTask]:
    """``each`` tasks of every project; the kinds of mutation, which take turns in a list, rotate."""
    homes: dict[str, list[RepairTask]] = {}
    for task in tasks:
        homes.setdefault(task.project.name, []).append(task)
    picked = [
        [rows[(number + 3 * turn) % len(rows)] for turn in range(each)]
        for number, rows in enumerate(homes.values())
    ]
    return [row[turn] for turn in range(each) for row in picked]


def part_of(arm: Arm, projects: Sequence[str]) -> Arm:
    """The tasks of some projects."""
    keep = [n for n, task in enumerate(arm.tasks) if task.project.name in projects]
    return Arm(
        [arm.tasks[n] for n in keep],
        [arm.found[n] for n in keep],
        [arm.scores[n] for n in keep],
        arm.bm25[keep],
        arm.cleaned[keep],
        arm.investigator[keep],
        arm.chance[keep],
    )


def main() -> None:
    """Measure, print the tables, and the figures as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="ends within 45 s on 2 quiet cores")
    parser.add_argument(
        "--clones",
        type=Path,
        default=os.environ.get("REFORK_CLONES"),
        help="folder of clones for the real bugs (parts/localize_bugs.py says which); not with --quick",
    )
    args = parser.parse_args()
    quick: bool = args.quick
    started = time.monotonic()

    def so_far() -> None:
        busy = time.process_time()
        print(f"{time.monotonic() - started:.0f} s so far, {busy:.0f} s of them computing here", flush=True)

    figures = reading()
    tasks = repair_tasks(400)
    so_far()
    arm = measured(stratified(tasks, 3) if quick else tasks)
    figures |= files_table(arm)
    so_far()
    names = project_names()
    figures |= names_table(part_of(arm, names[:10] if quick else names), 20 if quick else len(tasks))
    so_far()
    figures |= trial(100_000)
    so_far()
    if not quick:
        figures |= searched(arm.found, 100, 100)
        so_far()
    figures |= real_bugs(None if quick or args.clones is None else Path(args.clones))
    print(f"{time.monotonic() - started:.0f} s")
    print(json.dumps(figures | {"tasks": len(arm.tasks)}))


if __name__ == "__main__":
    main()
