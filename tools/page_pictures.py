"""Draw docs/pictures/*.svg: what the pages' own commands draw, and bars of what benchmarks measured.

A picture of a page is made by running the page as the checks do (tools/run_docs.py) in a folder that is
kept, and taking the file that a command of it wrote. Where that is a report, its first picture is taken, with
the report's light colours. In the dark the site turns light pictures over (docs/stylesheets/pictures.css).

    python tools/page_pictures.py                 all of them
    python tools/page_pictures.py --only route    some of them
    python tools/page_pictures.py --bars          bars alone, which takes no time
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from base64 import b64decode
from dataclasses import dataclass
from pathlib import Path

from results import STORED, look_up, number
from run_docs import Start, environment, home

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "docs" / "pictures"
#: Bytes that one picture may take.
MOST = 150_000


@dataclass(frozen=True, slots=True)
class Drawn:
    """A picture that a page's commands make: the page, and the file in its folder."""

    page: str
    file: str


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars of a benchmark's stored figures: title, and a name for each key (or number of the paper)."""

    benchmark: str
    title: str
    rows: tuple[tuple[str, str | float], ...]


PICTURES: dict[str, Drawn | Bars] = {
    "gate-map": Drawn("methods/gate.md", "map.svg"),
    "route-frontier": Drawn("methods/route.md", "frontier.svg"),
    "recovery-imitation": Drawn("methods/recovery.md", "sft.svg"),
    "stance-variance": Drawn("methods/stance.md", "**/variance.svg"),
    "judge-stringency": Drawn("methods/judge-evolution.md", "**/stringency.svg"),
    "theory-dial": Drawn("methods/theory.md", "shown/dial.svg"),
    "speculate-load": Drawn("methods/speculate-scheduling.md", "load.svg"),
    "world-model-fidelity": Drawn("methods/world-model-fidelity.md", "fidelity.svg"),
    "forensics-dose": Drawn("methods/forensics.md", "cases/planted/report.html"),
    "crosscoder-features": Drawn("methods/crosscoder.md", "**/features.svg"),
    "cliff-potential": Drawn("guides/token-that-sank-it.md", "cliff/report.html"),
    "rot-audit": Drawn("guides/audit-langgraph.md", "audit.html"),
    "tree-sampling-mixed": Bars(
        "uucb_lock",
        "groups with both outcomes, 512 sampled tokens each",
        (
            ("independent rollouts", "mixed_flat"),
            ("random token", "mixed_random"),
            ("random uncertain token", "mixed_random_uncertain"),
            ("surprisal", "mixed_surprisal"),
            ("UUCB", "mixed_uucb"),
            ("UUCB without entropy", "mixed_no_entropy"),
        ),
    ),
    "graph-credit-success": Bars(
        "graph_credit",
        "mean success while learning, advantages of equal size",
        (("GRPO", "grpo"), ("GiGPO", "gigpo"), ("G2PO", "g2po")),
    ),
    "implicit-auroc": Bars(
        "step_grader",
        "AUROC: telling runs that succeed from runs that fail",
        (
            ("sum of log-ratios", "auroc"),
            ("log-prob, 8 filler tokens", "logprob_auroc_filler"),
            ("untrained policy", "untrained_auroc"),
        ),
    ),
    "memory-unused": Bars(
        "memory",
        "share of built tools that no later task called",
        (
            ("code made at once", "eager_never_invoked"),
            ("the same, by the closed form", "closed_form_never_invoked"),
            ("the gate", "gated_never_invoked"),
        ),
    ),
    "localize-first": Bars(
        "localize",
        "share of issues whose faulty file is named first",
        (
            ("investigator", "acc1"),
            ("BM25 with its words", "bm25_cleaned"),
            ("BM25", "bm25"),
            ("by chance", "random"),
        ),
    ),
    "kernel-speed": Bars(
        "kernel_search",
        "times as fast as the compiled source, checked on fresh inputs",
        (
            ("matrix product", "matmul_speedup"),
            ("softmax of rows", "others.softmax.speedup"),
            ("sparse matrix times vector", "others.spmv.speedup"),
            ("stencil", "others.stencil.speedup"),
            ("histogram", "others.histogram.speedup"),
        ),
    ),
}


def bars(picture: Bars) -> str:
    """A bar for each figure, from what is stored."""
    from refork.report import charts

    figures = json.loads((STORED / f"{picture.benchmark}.json").read_text())["figures"]
    found = [(name, key if isinstance(key, float) else look_up(figures, key)) for name, key in picture.rows]
    rows = [(name, value) for name, value in found if value is not None]
    if len(rows) < len(found):
        sys.exit(f"{picture.benchmark}: not all of {[key for _, key in picture.rows]} are stored")
    return charts.bars(rows, name=picture.title, say=number).svg(640)


def alone(text: str) -> str:
    """A picture that says what it is written in, as a file of its own must."""
    return text if "xmlns=" in text else text.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)


def from_report(text: str) -> str:
    """The first picture of a report, with its light colours inside."""
    if inside := re.search(r"data:image/svg\+xml;base64,([\w+/=]+)", text):
        return alone(b64decode(inside[1]).decode())
    dark = re.compile(r"@media[^{]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}")
    styles = dark.sub("", "".join(re.findall(r"<style>(.*?)</style>", text, re.DOTALL)))
    found = re.search(r"<svg.*?</svg>", text, re.DOTALL)
    if found is None:
        sys.exit("the report holds no picture")
    head, rest = found[0].split(">", 1)
    return alone(f"{head}><style>{styles} svg {{ background: #fff; }}</style>{rest}\n")


def drawn(page: str, names: dict[str, str]) -> None:
    """Run a page and take the files that its commands wrote."""
    with tempfile.TemporaryDirectory(prefix="refork-pictures-") as folder:
        command = [sys.executable, str(ROOT / "tools/run_docs.py"), "--in-place", str(ROOT / "docs" / page)]
        subprocess.run(command, cwd=folder, env=environment(Start().commands), check=True)
        for name, file in names.items():
            made = sorted(Path(folder).glob(file))
            if not made:
                sys.exit(f"{page} made no {file}")
            text = made[0].read_text()
            write(name, from_report(text) if made[0].suffix == ".html" else alone(text))


def write(name: str, text: str) -> None:
    """One picture into docs/pictures."""
    if len(text.encode()) > MOST:
        sys.exit(f"{name}.svg is too large: {len(text.encode()):,} bytes")
    OUT.mkdir(exist_ok=True)
    (OUT / f"{name}.svg").write_text(text.rstrip() + "\n")
    print(f"{name}.svg {len(text.encode()):,} bytes", flush=True)


def main() -> None:
    """Draw what is asked for."""
    parser = argparse.ArgumentParser(description="Draw the pictures of the documentation.")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="part of a picture's name"
    )
    parser.add_argument("--bars", action="store_true", help="only bars of what benchmarks stored")
    parser.add_argument("--home", type=Path, help="where what Refork builds is kept")
    args = parser.parse_args()
    pages: dict[str, dict[str, str]] = {}
    for name, picture in PICTURES.items():
        if args.only and not any(part in name for part in args.only):
            continue
        if isinstance(picture, Bars):
            write(name, bars(picture))
        elif not args.bars:
            pages.setdefault(picture.page, {})[name] = picture.file
    with home(args.home):
        for page, names in pages.items():
            drawn(page, names)


if __name__ == "__main__":
    main()
