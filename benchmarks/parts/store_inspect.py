"""One log in a tree and in inspect_ai's own file: open, filter, read, search, and how large the files are.

inspect_ai writes the log, and the tree is imported from it, so both hold the same samples, messages and
scores. Every step opens its file anew; the sides take turns, and what they find is compared.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from parts.peer_env import Worker, peer_python
from refork.formats import import_file
from refork.formats.inspect_ai import InspectAI
from refork.tree import Tree

PEER = ("inspect_ai==0.3.285",)
NAMED = "REFORK_INSPECT"
TURNS, SAID = 20, 40
WORDS = (
    "go",
    "take",
    "open",
    "look",
    "north",
    "key",
    "door",
    "lamp",
    "red",
    "put",
    "the",
    "and",
    "with",
    "to",
)
#: Said in a few messages only; what a search looks for.
RARE = "xylophone"


def planted(file: Path, samples: int) -> None:
    """Texts of samples, TURNS messages of SAID words each, and whether each succeeded, as lines of JSON."""
    rng = np.random.default_rng(0)
    with file.open("w") as out:
        for _ in range(samples):
            said = [" ".join(rng.choice(WORDS, SAID)) for _ in range(TURNS)]
            if rng.random() < 0.02:
                said[int(rng.integers(TURNS))] += f" {RARE}"
            print(json.dumps([said, bool(rng.random() < 0.7)]), file=out)


def clock(work: Callable[[], Any]) -> tuple[float, Any]:
    """Milliseconds of a call, and what it found."""
    begun = time.perf_counter()
    found = work()
    return 1e3 * (time.perf_counter() - begun), found


class Ours:
    """The same steps on a tree."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self) -> str:
        """Open the file and read its first task."""
        with Tree.open(self.path, "r") as tree:
            return next(tree.tasks()).id

    def filter(self) -> list[str]:
        """The ends of the trajectories that failed."""
        with Tree.open(self.path, "r") as tree:
            return [score.node for score in tree.scores(name="success") if score.value == 0]

    def read(self, leaf: str) -> list[str]:
        """The messages of one trajectory."""
        with Tree.open(self.path, "r") as tree:
            return [step.node.text for step in tree.path(leaf)]

    def search(self, word: str) -> int:
        """How many trajectories say a word: the ends below the nodes that do, each once."""
        with Tree.open(self.path, "r") as tree:
            said = [node for node in tree.walk() if word in node.text]
            return len({leaf.id for node in said for leaf in tree.leaves(node)})


def compare(folder: Path, samples: int, rounds: int, *, make: bool) -> dict[str, float]:
    """Milliseconds of each step, medians of rounds in turns, and megabytes; nothing without the peer."""
    python = peer_python(PEER, NAMED, make=make)
    if python is None:
        return {}
    texts, log, path = folder / "texts.jsonl", folder / "log.eval", folder / "log.db"
    planted(texts, samples)
    ours = Ours(path)
    with Worker(python, Path(__file__).parent / "inspect_worker.py") as peer:
        written = peer.ask(do="write", file=str(log), texts=str(texts))["ms"]
        with Tree.open(path, "x") as tree:
            imported, _ = clock(lambda: import_file(tree, log, InspectAI()))
        spent: dict[str, tuple[list[float], list[float]]] = {}
        for number in range(rounds):
            leaves = ours.filter()
            ids = peer.ask(do="filter", file=str(log))["found"]
            assert len(leaves) == len(ids), "the two sides do not hold the same samples"
            pick = number * 7 % len(ids)
            steps: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
                "open": (ours.open, {}),
                "filter": (ours.filter, {}),
                "read": (lambda pick=pick, leaves=leaves: ours.read(leaves[pick]), {"id": ids[pick]}),
                "search": (lambda: ours.search(RARE), {"word": RARE}),
            }
            for name, (mine, more) in steps.items():
                told = peer.ask(do=name, file=str(log), **more)
                ms, found = clock(mine)
                if name in ("read", "search"):
                    assert found == told["found"], f"{name}: the two sides found different things"
                spent.setdefault(name, ([], []))
                spent[name][0].append(ms)
                spent[name][1].append(told["ms"])
    figures: dict[str, float] = {"samples": samples, "import_ms": imported, "peer_write_ms": written}
    for name, (mine_ms, peer_ms) in spent.items():
        figures |= {f"{name}_ms": statistics.median(mine_ms), f"peer_{name}_ms": statistics.median(peer_ms)}
        pairs = zip(peer_ms, mine_ms, strict=True)
        figures[f"{name}_ratio"] = statistics.median(theirs / own for theirs, own in pairs)
    figures["mb"], figures["peer_mb"] = path.stat().st_size / 1e6, log.stat().st_size / 1e6
    figures["size_ratio"] = figures["peer_mb"] / figures["mb"]
    return figures
