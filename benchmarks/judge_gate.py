"""100,000 stored verdicts: may the judge be swapped, and what becomes stale? Timed from file to answer.

Two judges each gave 40,000 verdicts as JSON lines, the better one on other items too, and 20,000 more scores
are means that read the old judge. 2,000 items have true labels. The time is of everything: reading, the exact
test with intervals, and writing the list of stale scores.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np

from refork.plain import canonical
from refork_methods.evolve.on_files import gate_files, write_stale

ITEMS, DERIVED, LABELLED = 40_000, 20_000, 2_000
#: The new judge has not seen the first items.
UNSEEN = 5_000
ERRORS = {"old": 0.25, "new": 0.15}


def write_verdicts(folder: Path, seed: int = 0) -> tuple[Path, Path]:
    """The verdicts and the anchor as files."""
    rng = np.random.default_rng([seed, 178])
    truth = rng.integers(2, size=ITEMS + UNSEEN)
    lines: list[str] = []
    for judge, first in (("old", 0), ("new", UNSEEN)):
        wrong = rng.random(ITEMS) < ERRORS[judge]
        for number, flipped in enumerate(wrong, first):
            source = "ai" if number % 2 else "human"
            row = {"item": f"a{number}", "judge": judge, "value": int(truth[number] ^ flipped)}
            lines.append(canonical(row | {"source": source}))
    lines += [
        canonical({"item": f"a{number}", "judge": "mean", "value": int(truth[number])})
        for number in range(DERIVED)
    ]
    labelled = rng.choice(np.arange(UNSEEN, ITEMS), LABELLED, replace=False)
    anchor = [canonical({"id": f"a{number}", "label": int(truth[number])}) for number in labelled]
    files = folder / "verdicts.jsonl", folder / "anchor.jsonl"
    for file, text in zip(files, (lines, anchor), strict=True):
        file.write_text("\n".join(text) + "\n", encoding="utf-8")
    return files


def main() -> None:
    """Measure, print, and the figure as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three repetitions instead of ten")
    quick = parser.parse_args().quick
    times: list[float] = []
    processor: list[float] = []
    with tempfile.TemporaryDirectory() as scratch:
        verdicts, anchor = write_verdicts(Path(scratch))
        for _ in range(3 if quick else 10):
            started, before = time.perf_counter(), time.process_time()
            found = gate_files([verdicts], "old", "new", anchor, reads=["mean=old"])
            write_stale(found.stale, Path(scratch) / "stale.jsonl")
            times.append(time.perf_counter() - started)
            processor.append(time.process_time() - before)
    stale = found.stale
    print(f"{found.answer}: {found.reason}")
    print(
        f"{len(stale.ids):,} stale scores of {', '.join(stale.judges)}, {len(stale.to_rescore):,} items to "
        f"judge again, {stale.unaffected:,} scores stay"
    )
    expected = (found.answer, len(stale.ids), len(stale.to_rescore)) == ("yes", ITEMS + DERIVED, UNSEEN)
    if not expected:
        raise SystemExit("the gate's answer is not the planted one")
    print("seconds: " + " ".join(f"{one:.2f}" for one in times) + "; the least counts")
    print(f"of them the processor was ours for {float(np.median(processor)):.2f}")
    print(json.dumps({"seconds": round(min(times), 3)}))


if __name__ == "__main__":
    main()
