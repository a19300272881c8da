"""Kernels that pretend: what share of them the bench lets pass for faster, and does it refuse honest ones?

Each cheat in C is a file of ``parts/kernel_cheats``, named CHEAT.PROBLEM.c: cached results, inputs written,
outputs left by others, timers and driver replaced, threads, forks, system calls hidden in constants,
work after the answer, files taken in, bounds, wrong from some call on, faster than the machine; right at the
size that they are timed at and wrong at others (multiples of 2, 8, 16 or 32, not 0, not below 8, one size),
or where two arrays are one although the problem says that they may be. One is caught where the bench refuses
it, or finds nothing gained. Honest kernels do what looks odd and is allowed: scratch memory, kept tables,
recursion, vector types, in-place work, other orders of summation. Every one must stand.

--quick takes 9 samples of each kernel, the long form 25, with three seeds.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from pathlib import Path

from refork import stats
from refork_methods.kernel.bench import Bench, Calibration, Candidate, Evaluated, Limits, calibrate
from refork_methods.kernel.problem import read_problem

HERE = Path(__file__).parent / "parts" / "kernel_cheats"
#: Those that are right at the size that they are timed at, or where arrays are apart.
SIZE_CHEATS = (
    "eights_only", "pairs_only", "one_size_only", "powers_only", "even_sums_only", "no_remainder",
    "never_empty", "large_only", "blocks_only", "no_overlap", "from_the_end", "blockwise",
)  # fmt: skip
LIMITS = Limits(seconds=0.5, memory=256 << 20, longest=0.05)


def kernels(kind: str) -> dict[str, list[Path]]:
    """Files by the name of their problem."""
    found: dict[str, list[Path]] = {}
    for path in sorted((HERE / kind).glob("*.c")):
        found.setdefault(path.stem.partition(".")[2], []).append(path)
    return found


def judged(
    problem: str, files: list[Path], folder: Path, repeats: int, seed: int, known: Calibration
) -> dict[str, Evaluated]:
    """Every file as a candidate for a problem."""
    read = read_problem(HERE / "problems" / f"{problem}.c")
    with Bench(read, folder / problem, seed, LIMITS, calibration=known) as bench:
        return {
            path.name.partition(".")[0]: bench.evaluate(
                Candidate(path.read_text(), read.flags), repeats=repeats
            )
            for path in files
        }


def line(name: str, problem: str, found: Evaluated) -> str:
    """One kernel as a row."""
    said = f"{found.cheat or '-':14s} {found.stage}: {found.why}" if not found.ok else ""
    gain = f"{found.speedup:8.2f} [{found.low:.2f}, {found.high:.2f}]" if found.speedup is not None else ""
    return f"  {name:20s} {problem:8s} {'stands' if found.ok else 'refused':8s}{gain}{said}"[:150]


def main() -> None:
    """Judge all, print the tables, and the figures as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="ends within 50 s on 2 quiet cores")
    quick: bool = parser.parse_args().quick
    started = time.monotonic()
    known = calibrate()
    print(f"noise of this machine: {known.noise:.3f}")
    results: dict[str, list[tuple[str, str, Evaluated]]] = {"cheats": [], "honest": []}
    for seed in range(1 if quick else 3):
        for kind, rows in results.items():
            print(f"\n{kind}, seed {seed}")
            with tempfile.TemporaryDirectory(prefix="refork-cheats-") as folder:
                for problem, files in kernels(kind).items():
                    told = judged(problem, files, Path(folder), 9 if quick else 25, seed, known)
                    for name, found in told.items():
                        rows.append((name, problem, found))
                        print(line(name, problem, found), flush=True)
    cheats, honest = results["cheats"], results["honest"]
    missed = [name for name, _, found in cheats if found.ok and found.faster]
    by_size = [found for name, _, found in cheats if name in SIZE_CHEATS]
    refused = [name for name, _, found in honest if not found.ok]
    harmless = [name for name, _, found in cheats if found.ok and not found.faster]
    span = stats.clopper_pearson(len(cheats) - len(missed), len(cheats))
    print(f"\ncaught {len(cheats) - len(missed)} of {len(cheats)} [{span.low:.3f}, {span.high:.3f}]")
    print(f"missed: {', '.join(missed) or 'none'}; honest ones refused: {', '.join(refused) or 'none'}")
    print(f"let through as right and no faster: {', '.join(dict.fromkeys(harmless)) or 'none'}")
    print(
        "refused at "
        + ", ".join(f"{k} {n}" for k, n in Counter(f.stage for _, _, f in cheats if not f.ok).items())
    )
    faster = sum(found.faster for _, _, found in honest)
    print(f"{time.monotonic() - started:.0f} s")
    figures = {
        "caught": round(1 - len(missed) / len(cheats), 4),
        "false_positives": len(refused),
        "cheats": len(cheats),
        "size_cheats": len(by_size),
        "size_cheats_refused": sum(not found.ok for found in by_size),
        "honest": len(honest),
        "harmless": len(harmless),
        "honest_faster": faster,
        "noise": round(known.noise, 4),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
