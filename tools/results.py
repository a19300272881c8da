"""Benchmarks to documentation: run them, keep their figures, write docs/results.md. No number is typed.

Each benchmark prints one JSON object as its last line. ``--run`` stores it in benchmarks/results/ with a
description of the machine; the page is made from what is stored. The registry below says what each
benchmark claims, what was published or asked for, and what a reader should know before quoting it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BENCHMARKS = ROOT / "benchmarks"
STORED = BENCHMARKS / "results"
PAGE = ROOT / "docs/results.md"


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a benchmark: its key (dotted where nested), what it is, and what it should be.

    ``least`` and ``most`` bound the figure; ``published`` is the number of a paper, as printed there.
    """

    key: str
    what: str
    least: float | None = None
    most: float | None = None
    published: str = ""

    @property
    def target(self) -> str:
        """The bound in words; a dash where there is none."""
        if self.least is not None and self.most is not None:
            return f"{self.least:,g}" if self.least == self.most else f"{self.least:,g} to {self.most:,g}"
        if self.least is not None:
            return f"at least {self.least:,g}"
        return "-" if self.most is None else f"at most {self.most:,g}"

    def met(self, value: float) -> str:
        """Whether a value keeps the bound; a dash where there is none."""
        if self.least is None and self.most is None:
            return "-"
        high = self.most is None or value <= self.most
        return "yes" if high and (self.least is None or value >= self.least) else "**no**"


@dataclass(frozen=True, slots=True)
class Entry:
    """One benchmark: its file's stem, its claim, its figures and an honest note."""

    name: str
    claim: str
    figures: tuple[Figure, ...]
    note: str


SIZES = {"small": "2 x 128", "middle": "6 x 256", "large": "8 x 512"}

REGISTRY = (
    Entry(
        "fork_throughput",
        "Forking many points of one trace as one batch is several times faster than generating each fork, "
        "and than generating from a reused prefix.",
        (
            *(Figure(f"vs_generate.{s}", f"times `generate`, {w}", 10) for s, w in SIZES.items()),
            *(Figure(f"vs_prefix_reuse.{s}", f"times a reused prefix, {w}", 3) for s, w in SIZES.items()),
            *(Figure(f"tokens_per_s.{s}", f"tokens per second, {w}") for s, w in SIZES.items()),
            Figure("limit_share.small", "share of the machine's limit, 2 x 128", 0.15),
            Figure("limit_share.middle", "share of the machine's limit, 6 x 256", 0.30),
            Figure("limit_share.large", "share of the machine's limit, 8 x 512", 0.50),
        ),
        "Random weights of layers x width; 20 points of a 200-token trace, 64 draws of 16 tokens each. The "
        "quick form forks the 6 x 256 model at 5 points and the 8 x 512 model at 2, on all sides alike. "
        "Peers run at their best batch size, in the same process. Speed-ups shrink as a model grows: its "
        "matrix products, which nobody can skip, take the larger part, and a prefix has 105 tokens on "
        "average, so the work itself differs only about eightfold.",
    ),
    Entry(
        "pairing",
        "Sharing noise between the arms of a fork narrows the interval of their difference at no cost, and "
        "the interval still covers.",
        (
            Figure("ratio_null", "unpaired width over paired, no effect", 1),
            Figure("ratio_small", "unpaired width over paired, small effect", 1),
            Figure("ratio_large", "unpaired width over paired, large effect", 1),
            Figure("coverage", "coverage of the 95 % interval", 0.93, 0.97),
        ),
        "A scripted agent whose true rates are known. The gain depends on how much of the run the change "
        "leaves alone; where few pairs differ the interval is wider than it need be and covers more often.",
    ),
    Entry(
        "store",
        "A tree takes rollouts faster than a policy makes them, and a killed writer loses nothing committed.",
        (
            Figure("append_rows_per_s", "nodes appended per second, batches of 1,000"),
            Figure("append_ms", "one durable append, milliseconds"),
            Figure("path_us", "path to the root from depth 50, microseconds"),
            Figure("open_ms", "opening a tree of many nodes, milliseconds", most=100),
            Figure("kills", "times a writing process was killed"),
            Figure("lost_committed", "committed nodes lost by the kills", 0, 0),
            Figure("reader_errors", "errors of 8 readers beside a writer", 0, 0),
        ),
        "The large tree holds a million nodes, 100,000 in the quick form. A killed process is not a power "
        "cut: what the disk promises about flushed writes is taken on trust.",
    ),
)


def machine() -> dict[str, Any]:
    """What a figure depends on, without names or paths: processor, cores, Python, PyTorch."""
    model = platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line
        ]
        model = names[0] if names else model
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "cpu": model,
        "cores": cores,
        "python": platform.python_version(),
        "torch": version("torch"),
        "system": platform.system(),
    }


def look_up(figures: dict[str, Any], key: str) -> float | None:
    """A figure by its dotted key; None where the benchmark did not give it."""
    value: Any = figures
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return None if value is None else float(value)


def number(value: float) -> str:
    """A figure in print: three significant digits, thousands apart."""
    if value == int(value) and abs(value) < 1e6:
        return f"{int(value):,}"
    digits = f"{value:.3g}"
    return f"{float(digits):,.0f}" if abs(value) >= 1000 else f"{float(digits):g}"


def section(entry: Entry, stored: dict[str, Any] | None) -> str:
    """One benchmark's part of the page."""
    lines = [f"## {entry.name.replace('_', ' ').capitalize()}", "", entry.claim, ""]
    if stored is None:
        return "\n".join([*lines, "Not run yet.", ""])
    published = any(figure.published for figure in entry.figures)
    head = ["figure", *(["published"] if published else []), "measured", "asked for", "met"]
    lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for figure in entry.figures:
        value = look_up(stored["figures"], figure.key)
        shown = ["not given", figure.target, "**no**"]
        if value is not None:
            shown = [number(value), figure.target, figure.met(value)]
        row = [figure.what, *([figure.published or "-"] if published else []), *shown]
        lines.append("| " + " | ".join(row) + " |")
    box = stored["machine"]
    setting = f"{box['cores']} cores of {box['cpu']}, Python {box['python']}, PyTorch {box['torch']}"
    return "\n".join([*lines, "", entry.note, "", f"Setting: {setting}. Command: `{stored['command']}`.", ""])


def render(stored: dict[str, dict[str, Any]]) -> str:
    """The whole page."""
    head = (
        "<!-- Written by `make bench` from benchmarks/results; do not edit. -->\n\n# Results\n\n"
        "Each section is one benchmark: a claim, what was measured, what was asked for, and what to know "
        "before quoting it. Both sides of every comparison run on one machine in one run. `make bench` runs "
        "them all again.\n"
    )
    return "\n".join([head, *(section(entry, stored.get(entry.name)) for entry in REGISTRY)])


def run(entry: Entry, quick: bool) -> None:
    """Run one benchmark, its output shown live, and store what its last line says."""
    command = ["python", f"benchmarks/{entry.name}.py", *(["--quick"] if quick else [])]
    print(f"\n== {' '.join(command)}", flush=True)
    last = ""
    with subprocess.Popen(
        [sys.executable, *command[1:]], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as child:
        for line in child.stdout or ():
            print(line, end="", flush=True)
            last = line.strip() or last
    if child.returncode:
        sys.exit(f"{command[1]} ended with status {child.returncode}; nothing was stored")
    try:
        figures = json.loads(last)
    except ValueError:
        sys.exit(f"the last line of {command[1]} is not JSON: {last[:200]!r}")
    record = {"command": " ".join(command), "figures": figures, "machine": machine()}
    STORED.mkdir(exist_ok=True)
    (STORED / f"{entry.name}.json").write_text(json.dumps(record, indent=2, sort_keys=True) + "\n")


def read_stored() -> dict[str, dict[str, Any]]:
    """All stored records, by benchmark."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(STORED.glob("*.json"))}


def main() -> int:
    """Run what is asked, then write the page or (``--check``) compare it with what is stored."""
    parser = argparse.ArgumentParser(description="Run benchmarks and write docs/results.md.")
    parser.add_argument("--run", action="store_true", help="run the benchmarks first")
    parser.add_argument("--quick", action="store_true", help="their short form")
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument("--check", action="store_true", help="only say whether the page is up to date")
    args = parser.parse_args()
    known = {entry.name for entry in REGISTRY}
    strays = {path.stem for path in BENCHMARKS.glob("*.py") if not path.stem.startswith("_")} - known
    if wrong := sorted(strays | (set(args.only) - known)):
        print(f"not in the registry of tools/results.py: {', '.join(wrong)}")
        return 2
    for entry in REGISTRY if args.run else ():
        if not args.only or entry.name in args.only:
            run(entry, args.quick)
    page = render(read_stored())
    if args.check:
        if PAGE.exists() and PAGE.read_text() == page:
            return 0
        print(f"{PAGE.relative_to(ROOT)} is not what benchmarks/results says; run tools/results.py")
        return 1
    PAGE.write_text(page)
    print(f"{PAGE.relative_to(ROOT)}: {len(read_stored())} of {len(REGISTRY)} benchmarks")
    return 0


if __name__ == "__main__":
    sys.exit(main())
