"""Hostile trees and flipped bits: what files from strangers do, and what damage goes unnoticed.

Run alone: python benchmarks/parts/walls_trees.py [--quick].
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing as mp
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "tests"))

from refork.errors import ReforkError
from refork.tree import NewNode, Tree
from support.flips import flippable, flips
from support.hostile_trees import Hostile, hostile, raw, small

#: A tree that opens for longer than this hangs; none takes a second.
_HANGS: Final = 60.0
_FORK: Final = mp.get_context("fork")
_QUICK_FLIPS: Final = 400


def _used(file: Path) -> None:
    """What a user does with a file that somebody sent: look at it, check it, write to it."""
    for mode in ("r", "a"):
        with contextlib.suppress(ReforkError), Tree.open(file, mode) as tree:
            list(tree.verify())
            tree.stats()
            if mode == "a":
                tree.append(NewNode(kind="task", text="new"))


def _state(folder: Path) -> dict[str, bytes | None]:
    return {path.name: path.read_bytes() if path.is_file() else None for path in folder.iterdir()}


def _has_effect(case: Hostile, folder: Path) -> bool:
    """Whether a hostile tree that is used does anything: hangs, changes a file, or is taken for a tree."""
    folder.mkdir()
    file = small(folder / "tree.db")
    case.make(file)
    before = _state(folder)
    user = _FORK.Process(target=_used, args=(file,))
    user.start()
    user.join(_HANGS)
    if user.is_alive():
        user.kill()
        user.join()
        return True
    if "tree.db-wal" in before and "victim" not in before:
        # A journal that is sound belongs to the file, and is folded into it by the last who closes it.
        with raw(file) as connection:
            return connection.execute("SELECT group_concat(row) FROM nodes").fetchone() != ("1,2,3,4,5",)
    after = _state(folder)
    for own in ("tree.db-wal", "tree.db-shm"):  # what reading a tree makes beside it
        if own not in before:
            after.pop(own, None)
    return user.exitcode != 0 or after != before


def trees(quick: bool) -> dict[str, int]:
    """Counts of hostile trees, of those with an effect, of flipped bits, and of flips that nobody notices.

    A flip is unnoticed where the tree opens, ``verify`` finds nothing, and something else is read than was
    written. Without ``quick`` one bit of every byte is flipped, which takes minutes.
    """
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cases = hostile()
        effects = [
            case.name for number, case in enumerate(cases) if _has_effect(case, folder / f"hostile{number}")
        ]
        file = flippable(folder / "flip.db")
        places = range(file.stat().st_size)
        chosen = sorted(rng.sample(places, _QUICK_FLIPS)) if quick else places
        fates = Counter(what for *_, what in flips(file, ((byte, rng.randrange(8)) for byte in chosen)))
    for effect in effects:
        print(f"this hostile tree had an effect: {effect}", file=sys.stderr)
    print(f"flips: {dict(fates)}", file=sys.stderr)
    return {
        "hostile_trees": len(cases),
        "hostile_tree_effects": len(effects),
        "flips_tried": fates.total(),
        "flips_unnoticed": fates["unnoticed"],
    }


if __name__ == "__main__":
    print(json.dumps(trees("--quick" in sys.argv)))
