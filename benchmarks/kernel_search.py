"""How fast the search makes five naive C kernels without a model, against gcc -O3 -march=native of each.

Each kernel is a file in parts/search_kernels: a matrix product, a 5-point stencil, softmax of rows, a
histogram, and a sparse matrix times a vector. The search rewrites, builds, checks, times and diagnoses, with
the shipped writer and tools; the fastest few are then timed again in turns with the original, and those are
the figures. ``roof_share`` is the bytes that must move (each array's once: what a store fetches only to
write over it is not needed), over the time, over the calibrated triad, which is the better of one with
ordinary stores and one whose stores pass by the caches. Beside it NumPy or SciPy on one thread, and the same
source with ``-Ofast -march=native``, timed in turns with the original too. The jail holds gcc alone: clang
with Polly is not beside it.

The long form is the claim's setting: 40 evaluations each at full size. The quick form searches too, with
fewer evaluations, on smaller inputs; the matrix product at 128, where simulated caches take a second, and the
stencil at 1024, both with the last duel at full size.

Then the corpus: over 60 C functions like those of public benchmarks (refork_testbed.kernels). Every rule is
asked of every function; of what is offered, some rewrites are drawn, made, compiled and held against the
function at its size and at others; each function is searched for a few evaluations (of the quick form a few
functions). A rule, tool or reader that raises is a crash. Where a search says "faster", the calls on warm
caches are timed once more by whole programs and the system's clock, without the bench: slower there is a warm
regression. ``--corpus`` runs this part alone.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import math
import subprocess
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from refork.errors import BadInput
from refork_methods.kernel.bench import Bench, Calibration, Candidate, Evaluated, Limits, calibrate
from refork_methods.kernel.bench.bench import speedup
from refork_methods.kernel.bench.process import SKEW
from refork_methods.kernel.cpu.perf import repeated
from refork_methods.kernel.problem import Problem, read_problem
from refork_methods.kernel.rewrite import Move, apply, moves
from refork_methods.kernel.search.folder import fastest
from refork_methods.kernel.search.model import KernelSearchSettings
from refork_methods.kernel.search.on_file import BenchEvaluator, open_writer
from refork_methods.kernel.search.run import run_search
from refork_methods.kernel.tool import Slip
from refork_testbed.kernels import functions

HERE = Path(__file__).parent / "parts" / "search_kernels"
CLAIM = 512
#: What a caller who asks for speed and takes any rounding has without a search.
OFAST = ("-Ofast", "-march=native")


@dataclass(frozen=True)
class Task:
    """A kernel with its sizes in both forms, and how many versions the quick form tries."""

    name: str
    sizes: dict[str, int]
    quick: dict[str, int]
    tries: int

    @property
    def again(self) -> bool:
        """Whether the quick form has its last duel at full size, which the search is too slow for."""
        return self.name in ("matmul", "stencil")


TASKS = (
    Task("matmul", {"n": CLAIM}, {"n": 128}, 14),
    Task("stencil", {"n": 2048}, {"n": 1024}, 3),
    Task("softmax", {"rows": 2048, "n": 1024}, {"rows": 256, "n": 1024}, 3),
    Task("histogram", {"n": 1 << 22, "bins": 256}, {"n": 1 << 18, "bins": 256}, 6),
    Task("spmv", {"rows": 2048, "nnz": 1 << 21}, {"rows": 256, "nnz": 1 << 18}, 4),
)


@dataclass(frozen=True)
class Outcome:
    """The best version in its last duel, on which problem, and what led there."""

    problem: Problem
    final: Evaluated
    chain: tuple[str, ...]
    tried: int
    right: int
    seconds: float
    ofast: Evaluated

    @property
    def speedup(self) -> float:
        """Over the original; 1 where nothing faster stands."""
        return max(1.0, self.final.speedup or 1.0)

    def rate(self, amount: float | None) -> float:
        """An amount of one call per second."""
        return (amount or 0.0) / (self.final.seconds or float("inf"))


def problem_of(task: Task, sizes: dict[str, int]) -> Problem:
    """The task at these sizes."""
    return read_problem(HERE / f"{task.name}.c", sizes=sizes)


def searched(task: Task, known: Calibration, quick: bool, seed: int, scratch: Path) -> Outcome:
    """One search, and the last duel at the claim's size."""
    started = time.monotonic()
    problem = problem_of(task, task.quick if quick else task.sizes)
    settings = KernelSearchSettings(
        evaluations=task.tries if quick else 40,
        seed=seed,
        batch=1,
        # The stencil's small form fits a cache that its full one does not: all three are timed again.
        finalists=2 if quick and task.name != "stencil" else 3,
    )
    limits = Limits(arrays=12 << 20) if quick else None
    ofast = Candidate(problem.source, OFAST)
    with Bench(problem, scratch / "build", seed, limits, calibration=known) as bench:
        evaluator = BenchEvaluator(bench, known, duel=7 if quick else 15)
        found = run_search(
            problem,
            settings,
            scratch / "search",
            evaluator=evaluator,
            writer=open_writer("rewrite", settings),
            calibration=known,
        )
        (rival_,) = bench.duel([ofast], repeats=7 if quick else 15)
    best, final = found.best.number, found.final
    if quick and task.again:
        problem = problem_of(task, task.sizes)
        some = fastest(found.nodes, settings.finalists)
        with Bench(problem, scratch / "claim", seed, calibration=known) as bench:
            *times, rival_ = bench.duel([*(node.candidate for node in some), ofast], repeats=7)
        pairs = [(told.speedup or 0.0, node.number, told) for told, node in zip(times, some, strict=True)]
        _, best, final = max(pairs, key=lambda row: row[0])
    right = sum(node.evaluated.ok for node in found.nodes[1:])
    spent = time.monotonic() - started
    return Outcome(problem, final, found.moves_to(best), len(found.nodes) - 1, right, spent, rival_)


def rival(problem: Problem) -> tuple[str, float]:
    """What NumPy or SciPy takes for the same, in seconds of this thread; and its name.

    As in the bench, each call has inputs of its own, so that none finds them in a near cache.
    """
    rng, n = np.random.default_rng(0), problem.sizes
    name, make = RIVALS[problem.name]
    copies = max(2, math.ceil(12e6 / (problem.bytes or 12e6)))
    calls = [make(rng, n) for _ in range(copies)]
    for call in calls[:2]:
        call()
    found = []
    for turn in range(7 * copies):
        started = time.thread_time()
        calls[turn % copies]()
        found.append(time.thread_time() - started)
    return name, min(found)


def matmul_rival(rng: np.random.Generator, n: Mapping[str, int]) -> Callable[[], object]:
    a, b = (rng.standard_normal((n["n"], n["n"]), dtype=np.float32) for _ in range(2))
    out = np.empty_like(a)
    return lambda: np.matmul(a, b, out=out)


def stencil_rival(rng: np.random.Generator, n: Mapping[str, int]) -> Callable[[], object]:
    x = rng.standard_normal((n["n"], n["n"]), dtype=np.float32)
    out = np.zeros_like(x)

    def five() -> None:
        inner = out[1:-1, 1:-1]
        np.add(x[:-2, 1:-1], x[2:, 1:-1], out=inner)
        for part in (x[1:-1, 1:-1], x[1:-1, :-2], x[1:-1, 2:]):
            inner += part
        inner *= np.float32(0.2)

    return five


def softmax_rival(rng: np.random.Generator, n: Mapping[str, int]) -> Callable[[], object]:
    from scipy.special import softmax

    rows = rng.standard_normal((n["rows"], n["n"]), dtype=np.float32)
    return lambda: softmax(rows, axis=1)


def histogram_rival(rng: np.random.Generator, n: Mapping[str, int]) -> Callable[[], object]:
    share = np.arange(1, n["bins"] + 1) ** -SKEW
    drawn = rng.choice(n["bins"], n["n"], p=share / share.sum()).astype(np.int32)
    return lambda: np.bincount(drawn, minlength=n["bins"])


def spmv_rival(rng: np.random.Generator, n: Mapping[str, int]) -> Callable[[], object]:
    from scipy.sparse import csr_array

    starts = np.sort(rng.integers(n["nnz"] + 1, size=n["rows"] + 1)).astype(np.int32)
    starts[[0, -1]] = 0, n["nnz"]
    columns = rng.integers(n["rows"], size=n["nnz"], dtype=np.int32)
    values = rng.standard_normal(n["nnz"], dtype=np.float32)
    matrix = csr_array((values, columns, starts), shape=(n["rows"], n["rows"]))
    vector = rng.standard_normal(n["rows"], dtype=np.float32)
    return lambda: matrix @ vector


RIVALS: dict[str, tuple[str, Callable[[np.random.Generator, Mapping[str, int]], Callable[[], object]]]] = {
    "matmul": ("numpy matmul (OpenBLAS)", matmul_rival),
    "stencil": ("numpy slices", stencil_rival),
    "softmax": ("scipy softmax", softmax_rival),
    "histogram": ("numpy bincount", histogram_rival),
    "spmv": ("scipy csr", spmv_rival),
}


def print_kernel(task: Task, done: Outcome, known: Calibration) -> dict[str, float | None]:
    """Print one kernel; its shares of the peak and of the triad, and what others make of it."""
    flops, moved = done.rate(done.problem.flops), done.rate(done.problem.bytes)
    name, seconds = rival(done.problem)
    sizes = " ".join(f"{key}={value}" for key, value in done.problem.sizes.items())
    last = done.final
    span = "" if last.low is None or last.high is None else f" [{last.low:.2f}, {last.high:.2f}]"
    print(f"\n{task.name} {sizes}: {done.tried} tried, {done.right} right, {done.seconds:.0f} s")
    print(f"  {' > '.join(done.chain) or 'the original'}")
    print(
        f"  {done.speedup:.2f}{span} times as fast, {flops / 1e9:.2f} GF/s = {flops / known.flops:.3f} peak"
    )
    proof = f"{done.problem.bytes or 0:.4g} bytes / {last.seconds or 0:.4g} s / {known.bandwidth:.4g} B/s"
    print(f"  {proof} = {moved / known.bandwidth:.3f} of the triad")
    mine = last.seconds or float("nan")
    print(f"  {name}, one thread: {seconds:.4g} s, {seconds / mine:.2f} times ours", flush=True)
    plain = done.ofast.speedup if done.ofast.ok else None
    said = done.ofast.why if plain is None else f"{plain:.2f} times as fast as the source as compiled"
    print(
        f"  {' '.join(OFAST)}: {said}; with warm caches ours is {last.warm or float('nan'):.2f}", flush=True
    )
    return {
        "speedup": round(done.speedup, 3), "warm": None if last.warm is None else round(last.warm, 3),
        "peak_share": round(flops / known.flops, 4), "roof_share": round(moved / known.bandwidth, 3),
        "ofast": None if plain is None else round(plain, 3), "library": round(seconds / mine, 3),
    }  # fmt: skip


@dataclass
class Corpus:
    """What came of the functions: what broke, what was wrong, and verdicts that warm caches contradict."""

    crashes: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    regressions: list[str] = field(default_factory=list)
    offered: Counter[str] = field(default_factory=Counter)
    functions: int = 0
    checked: int = 0
    silent: int = 0
    searched: int = 0
    faster: int = 0

    def slipped(self, name: str, slips: list[Slip]) -> None:
        """Keep rules and tools that broke."""
        for slip in slips:
            self.crashes.append(f"{name}: {slip.rule}: {slip.error}")
            print(slip.trace, flush=True)


def drawn(found: list[Move], count: int, rng: np.random.Generator) -> list[Move]:
    """Some moves, no two of a kind; flags change no statement."""
    names = sorted({one.name for one in found} - {"flags"})
    chosen: list[Move] = []
    for at in rng.permutation(len(names))[:count]:
        alike = [one for one in found if one.name == names[int(at)]]
        chosen.append(alike[int(rng.integers(len(alike)))])
    return chosen


def rewritten(problem: Problem, bench: Bench, count: int, rng: np.random.Generator, told: Corpus) -> None:
    """All rules asked of a function, and some of their offers held against it, also after ``restrict``."""
    slips: list[Slip] = []
    own = moves(problem.source, problem.entry, problem.flags, slips)
    told.offered.update(one.name for one in own)
    told.silent += not any(one.name not in ("flags", "restrict", "unroll_pragma") for one in own)
    ways = [(problem.source, problem.flags, one) for one in drawn(own, count, rng)]
    for key in (one for one in own if one.name == "restrict"):
        source, flags = apply(problem.source, problem.entry, problem.flags, key)
        opened = moves(source, problem.entry, flags, slips)
        known = {one.id for one in own}
        ways += [
            (source, flags, one) for one in drawn([one for one in opened if one.id not in known], count, rng)
        ]
    told.slipped(problem.name, slips)
    for source, flags, move in ways:
        found = bench.check(Candidate(*apply(source, problem.entry, flags, move)), draws=1)
        told.checked += 1
        if not found.ok:
            told.wrong.append(f"{problem.name} {move.id}: {found.why}")
            print(f"  WRONG {told.wrong[-1]}", flush=True)


def warm_ratio(
    bench: Bench, other: Candidate, turns: int = 5, least: float = 0.02
) -> tuple[float, float, float]:
    """How many times as fast a version is on the same inputs, by whole programs' times; and its interval."""
    drivers = [bench.profiled(one) for one in (bench.original, other)]

    def took(which: int, calls: int) -> float:
        process = subprocess.Popen(repeated(drivers[which], calls).argv, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"a program ended with {process.returncode}")
        return used.ru_utime + used.ru_stime

    # By the difference of two runs, so that starting and drawing inputs fall out.
    calls = 1
    while took(0, 1 + calls) - took(0, 1) < least and calls < 1 << 22:
        calls *= 4
    pairs = [[max(took(which, 1 + calls) - took(which, 1), 1e-6) for which in (0, 1)] for _ in range(turns)]
    first, second = zip(*pairs, strict=True)
    return speedup(first, second, np.random.default_rng(0))


def looked_for(
    problem: Problem, bench: Bench, known: Calibration, tries: int, folder: Path, told: Corpus
) -> None:
    """A short search, and its verdict held against calls on warm caches."""
    settings = KernelSearchSettings(evaluations=tries, batch=1, finalists=1)
    found = run_search(
        problem, settings, folder / "search", evaluator=BenchEvaluator(bench, known, duel=7),
        writer=open_writer("rewrite", settings), calibration=known,
    )  # fmt: skip
    told.searched += 1
    told.slipped(problem.name, list(found.slips))
    if not found.faster:
        return
    told.faster += 1
    ratio, low, high = warm_ratio(bench, found.best.candidate)
    last = found.final
    print(
        f"  {problem.name}: {last.speedup or 0:.2f} cold, {last.warm or 0:.2f} warm, "
        f"{ratio:.2f} [{low:.2f}, {high:.2f}] by another clock: {' > '.join(found.chain)}", flush=True,
    )  # fmt: skip
    if high < 1 and ratio < 1 / known.noise:
        told.regressions.append(f"{problem.name}: {ratio:.2f}")


def corpus(
    known: Calibration, names: list[str], *, checks: int, tries: int, searches: int, seed: int
) -> Corpus:
    """Each function: ``checks`` rewrites, as many after ``restrict``; the first ``searches`` are searched."""
    told = Corpus()
    chosen = [(name, functions()[name]) for name in names]
    told.functions = len(chosen)
    for number, (name, path) in enumerate(chosen):
        rng = np.random.default_rng([seed, number])
        try:
            problem = read_problem(path)
            with (
                tempfile.TemporaryDirectory() as scratch,
                Bench(
                    problem, Path(scratch) / "build", seed, Limits(arrays=4 << 20), calibration=known
                ) as bench,
            ):
                rewritten(problem, bench, checks, rng, told)
                said = f"{sum(told.offered.values())} rewrites offered, {told.checked} checked"
                print(
                    f"  {name}: so far {said}, {len(told.wrong)} wrong, {len(told.crashes)} crashes",
                    flush=True,
                )
                if number < searches:
                    looked_for(problem, bench, known, tries, Path(scratch), told)
        except BadInput as refused:
            print(f"  {name} is refused: {refused}", flush=True)
            told.wrong.append(f"{name}: {refused}")
        except Exception as error:
            traceback.print_exc()
            told.crashes.append(f"{name}: {type(error).__name__}: {error}")
    offered = sum(told.offered.values())
    print(f"\ncorpus: {len(chosen)} functions, {offered} rewrites offered, {told.checked} checked")
    print(f"  nothing but flags and hints offered for {told.silent}")
    for label in ("crashes", "wrong", "regressions"):
        print(f"  {label}: {'; '.join(getattr(told, label)) or 'none'}")
    return told


def figures_of(told: Corpus) -> dict[str, int]:
    """The corpus's part of the last line."""
    return {
        "corpus": told.functions, "crashes_on_corpus": len(told.crashes), "corpus_checked": told.checked,
        "corpus_wrong": len(told.wrong), "corpus_searched": told.searched, "corpus_faster": told.faster,
        "warm_regressions": len(told.regressions),
    }  # fmt: skip


def main() -> None:
    """Search, print, and the figures as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="fewer evaluations; ends within 50 s on 2 quiet cores"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="one kernel")
    parser.add_argument("--corpus", action="store_true", help="the corpus alone")
    parser.add_argument("--functions", help="of the corpus: these alone, with commas between them")
    parser.add_argument("--searches", type=int, help="of the corpus: how many functions are searched")
    parser.add_argument(
        "--checks", type=int, help="of the corpus: how many rewrites of a function are checked"
    )
    given = parser.parse_args()
    started = time.monotonic()
    known = calibrate()
    print(f"{known.machine['processor']}, {known.machine['gcc']}: {known.flops / 1e9:.1f} GF/s, "
          f"{known.bandwidth / 1e9:.2f} GB/s, noise {known.noise:.3f}")  # fmt: skip
    figures: dict[str, object] = {}
    others: dict[str, dict[str, float | None]] = {}
    for task in TASKS:
        if given.corpus or given.only not in (None, task.name):
            continue
        with tempfile.TemporaryDirectory() as scratch:
            done = searched(task, known, given.quick, given.seed, Path(scratch))
        row = print_kernel(task, done, known)
        if task.name == "matmul":
            figures |= {f"matmul_{key}": value for key, value in row.items() if key != "roof_share"}
        else:
            others[task.name] = {key: value for key, value in row.items() if key != "peak_share"}
    if given.only is None:
        every, searches = (10, 1) if given.quick else (1, 1000)
        names = given.functions.split(",") if given.functions else list(functions())[::every]
        done_all = corpus(
            known, names, checks=given.checks or (1 if given.quick else 2), tries=4,
            searches=searches if given.searches is None else given.searches, seed=given.seed,
        )  # fmt: skip
        figures |= figures_of(done_all)
    met = [(one["speedup"] or 0) >= 1.5 or (one["roof_share"] or 0) >= 0.80 for one in others.values()]
    print(f"\n{time.monotonic() - started:.0f} s")
    print(json.dumps(figures | {"others": others, "others_met": sum(met), "seed": given.seed}))


if __name__ == "__main__":
    main()
