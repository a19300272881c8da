"""Damage a tree file and read it with every command: a result, or an error that says what and where.

Run: python tools/fuzz_tree.py --files 400 [--first N]

File n is damaged the same way in every run (``tests/support/spoiled.py``). Exit status 1: a command crashed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

#: Seconds after which a file is told of; nothing is concluded from it, for machines differ.
SLOW = 20.0
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))


def main() -> int:
    """Damage files, read them, count what crashed."""
    from support.spoiled import crashes, good, spoil

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--files", type=int, default=400)
    parser.add_argument("--first", type=int, default=0)
    wanted = parser.parse_args()
    warnings.simplefilter("error")
    kinds: Counter[str] = Counter()
    bad = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = good(folder / "good.db")
        for number in range(wanted.first, wanted.first + wanted.files):
            file = folder / f"bad{number}.db"
            done = spoil(source, file, number)
            began = time.monotonic()
            found = list(crashes(file, folder))
            if time.monotonic() - began > SLOW:
                print(f"file {number} ({done}) took {time.monotonic() - began:.0f} s", file=sys.stderr)
            bad += bool(found)
            for left in folder.glob("bad*"):
                left.unlink()
            for command, error in found:
                last = traceback.extract_tb(error.__traceback__)[-1]
                kinds[f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"] += 1
                print(f"file {number} ({done}), {command}: {error!r}"[:300], file=sys.stderr)
    for kind, count in kinds.most_common():
        print(f"{count:5}  {kind}")
    print(f"{bad} of {wanted.files} damaged files crashed a command")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
