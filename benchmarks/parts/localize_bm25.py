"""BM25 at its best: every setting of a grid on all mutation tasks, beside the investigator.

The best setting is picked on the very tasks it is reported on, which favours BM25. Run it by hand:
``PYTHONPATH=benchmarks python -m parts.localize_bm25``.
"""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from refork import stats
from refork_methods.localize.baseline import FileBm25
from refork_testbed.trials.localize_repairs import investigate_task
from refork_testbed.worlds.repair.tasks import repair_tasks

GRID = [
    (method, k1, b)
    for method in ("lucene", "bm25l", "bm25+")
    for k1, b in ((1.2, 0.75), (1.5, 0.75), (2.0, 0.75), (2.0, 1.0))
]


def hits(part: int) -> np.ndarray:
    """[tasks, 1 + 2 settings]: whether the first file is the faulty one; every second task of 400."""
    rows = []
    for task in repair_tasks(400)[part::2]:
        found = investigate_task(task)
        row = [found.case.locations[0].path == task.path if found.case.locations else False]
        for method, k1, b in GRID:
            index = FileBm25(found.index.snapshot, k1=k1, b=b, method=method)
            row += [index.ranked(task.issue, cleaned=read)[0] == task.path for read in (False, True)]
        rows.append(row)
    return np.array(rows, float)


def main() -> None:
    """Print the grid, and the investigator's lead over the best setting of either query."""
    with ProcessPoolExecutor(max_workers=2) as pool:
        found = np.concatenate(list(pool.map(hits, (0, 1))))
    told: dict[str, float | str] = {"investigator": round(float(found[:, 0].mean()), 4)}
    for shift, query in enumerate(("plain", "read")):
        rates = found[:, 1 + shift :: 2].mean(axis=0)
        for setting, rate in zip(GRID, rates, strict=True):
            print(f"{query:5s} {setting}: {rate:.4f}")
        best = int(rates.argmax())
        lead = stats.paired_difference(found[:, 1 + shift + 2 * best], found[:, 0]).interval
        told |= {
            f"{query}_best": round(float(rates[best]), 4),
            f"{query}_setting": str(GRID[best]),
            f"{query}_lead": round(lead.estimate, 4),
            f"{query}_low": round(lead.low, 4),
            f"{query}_high": round(lead.high, 4),
        }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
