"""Benchmarks to documentation: run them, keep their figures, write docs/results.md. No number is typed.

The figures that other pages quote (docs/papers.md, docs/real-logs.md) are written there as well.

Each benchmark prints one JSON object as its last line. ``--run`` stores it in benchmarks/results/ with a
description of the machine; the page is made from what is stored. benchmarks/claims/ says what each
benchmark claims, what was published or asked for, and what a reader should know before quoting it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BENCHMARKS = ROOT / "benchmarks"
CLAIMS = BENCHMARKS / "claims"
STORED = BENCHMARKS / "results"
PAGE = ROOT / "docs/results.md"
#: Pages that quote figures; the title of each link to the page of results is the figure's key.
QUOTING = (ROOT / "docs/papers.md", ROOT / "docs/real-logs.md")
QUOTED = re.compile(r'\[[^\[\]]*\](\(results\.md#([a-z0-9-]+) "([^"]+)"\))')


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
    """One benchmark: its file's stem, its claim, its figures and an honest note.

    ``device``: where it runs; where there is none, what was measured elsewhere stays.
    """

    name: str
    group: str
    claim: str
    figures: tuple[Figure, ...]
    note: str
    device: str = "cpu"


#: Order of the page.
GROUPS = ("product", "credit and training", "looking inside", "decisions and speed", "search and discovery")


def read_entry(path: Path) -> Entry:
    """The claim of one benchmark: benchmarks/claims/NAME.toml."""
    data = tomllib.loads(path.read_text())
    if data["group"] not in GROUPS:
        raise ValueError(f"{path.name}: group is {data['group']!r}; one of {', '.join(GROUPS)}")
    text = {name: " ".join(data[name].split()) for name in ("claim", "note")}
    figures = tuple(Figure(**f) for f in data["figure"])
    return Entry(path.stem, data["group"], text["claim"], figures, text["note"], data.get("device", "cpu"))


def read_registry() -> tuple[Entry, ...]:
    """All claims, by group and name."""
    entries = [read_entry(path) for path in CLAIMS.glob("*.toml")]
    return tuple(sorted(entries, key=lambda entry: (GROUPS.index(entry.group), entry.name)))


REGISTRY = read_registry()


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
    """A figure by its dotted key, of a list by its place; None where the benchmark did not give it."""
    value: Any = figures
    for part in key.split("."):
        if isinstance(value, list):
            value = value[int(part)] if part.isdigit() and int(part) < len(value) else None
        else:
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
    lines = [f"### {entry.name.replace('_', ' ').capitalize()}", "", entry.claim, ""]
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
    parts = [head]
    for group in GROUPS:
        entries = [entry for entry in REGISTRY if entry.group == group]
        if entries:
            parts.append(f"## {group.capitalize()}\n")
            parts += [section(entry, stored.get(entry.name)) for entry in entries]
    return "\n".join(parts)


def quote(text: str, stored: dict[str, dict[str, Any]]) -> str:
    """A page whose quoted figures are those that are stored.

    Raises:
        ValueError: a quoted figure is not among those that the benchmark claims.
    """
    claimed = {(entry.name, figure.key) for entry in REGISTRY for figure in entry.figures}

    def figure(found: re.Match[str]) -> str:
        name, key = found[2].replace("-", "_"), found[3]
        if (name, key) not in claimed:
            raise ValueError(f"benchmark {name} claims no {key!r}")
        value = look_up(stored[name]["figures"], key) if name in stored else None
        return f"[{'not run yet' if value is None else number(value)}]{found[1]}"

    return QUOTED.sub(figure, text)


def has(device: str) -> bool:
    """Whether PyTorch can use a device of that kind here."""
    import torch

    return device == "cuda" and torch.cuda.is_available()


def run(entry: Entry, quick: bool) -> None:
    """Run one benchmark, its output shown live, and store what its last line says."""
    command = ["python", f"benchmarks/{entry.name}.py", *(["--quick"] if quick else [])]
    if entry.device != "cpu" and not has(entry.device):
        print(f"\n== {entry.name} is left as it is: this machine has no {entry.device} device", flush=True)
        return
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
        print(f"no claim in benchmarks/claims for: {', '.join(wrong)}")
        return 2
    for entry in REGISTRY if args.run else ():
        if not args.only or entry.name in args.only:
            run(entry, args.quick)
    stored = read_stored()
    pages = {PAGE: render(stored)} | {page: quote(page.read_text(), stored) for page in QUOTING}
    if args.check:
        stale = [path for path, page in pages.items() if not path.exists() or path.read_text() != page]
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not what benchmarks/results says; run tools/results.py")
        return 1 if stale else 0
    for path, page in pages.items():
        path.write_text(page)
    print(f"{PAGE.relative_to(ROOT)}: {len(stored)} of {len(REGISTRY)} benchmarks")
    return 0


if __name__ == "__main__":
    sys.exit(main())
