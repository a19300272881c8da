"""What gcc says of its vectoriser: which loops it vectorised, which not, and why (-fopt-info-vec-all)."""

from __future__ import annotations

import re

from refork.errors import BadInput
from refork_methods.kernel.cpu import metrics as m
from refork_methods.kernel.cpu.metrics import Metric

WHERE = "gcc -fopt-info-vec-all"
_RECORD = re.compile(
    r"^(?P<file>.+?):(?P<line>\d+):(?P<column>\d+): (?P<kind>optimized|missed|note): *(?P<what>.*)$"
)
_BYTES = re.compile(r"loop vectorized using (\d+) byte vectors")
#: Words of gcc 12 and 13, and what they mean; the first that fits counts.
_REASONS: tuple[tuple[Metric, tuple[str, ...]], ...] = (
    (m.MISSED_REDUCTION, ("reduction:", "fp math", "reduction used in loop", "not commutative")),
    (m.MISSED_ALIAS, ("possible alias", "may alias", "bad data dependence", "dependence distance")),
    (m.MISSED_CALL, ("statement clobbers memory", "function calls")),
    (m.MISSED_STRIDE, ("complicated access pattern", "strided", "not consecutive", "gather")),
    (m.MISSED_CONTROL, ("control flow", "number of iterations", "multiple exits", "early break")),
    (m.MISSED_COST, ("not profitable", "cost model", "vectorization costs")),
)  # fmt: skip


def parse(text: str, *, lines: range | None = None) -> tuple[dict[str, float], tuple[str, ...]]:
    """Loops by source line, and reasons; ``lines`` are the kernel's in its file (None: the whole file).

    A loop that gcc vectorised in one of several versions is vectorised. Returns metrics by name, and the
    records that name a loop or a reason, each once, vectorised ones first.

    Raises:
        BadInput: text without one record.
    """
    records = [record for line in text.splitlines() if (record := _RECORD.match(line.rstrip()))]
    if not records:
        raise BadInput(
            "no record of the vectoriser", where=WHERE, hint="compile with -O2 or -O3 and this flag"
        )
    done: set[int] = set()
    failed: set[int] = set()
    widths: list[int] = []
    why: dict[Metric, set[int]] = {metric: set() for metric, _ in _REASONS}
    said: dict[str, int] = {}
    for record in records:
        line, what = int(record["line"]), record["what"]
        if lines is not None and line not in lines:
            continue
        if record["kind"] == "optimized" and (width := _BYTES.search(what)):
            done.add(line)
            widths.append(int(width[1]))
            said.setdefault(record[0].strip(), 0)
        elif record["kind"] == "missed":
            if "couldn't vectorize loop" in what:
                failed.add(line)
            reason = next((one for one, words in _REASONS if any(word in what for word in words)), None)
            if reason is not None:
                why[reason].add(line)
                said.setdefault(record[0].strip(), 1)
    values = {m.VECTORISED.name: float(len(done)), m.MISSED.name: float(len(failed - done))}
    if widths:
        values[m.VECTOR_BYTES.name] = max(widths)
    values |= {metric.name: float(len(at)) for metric, at in why.items()}
    return values, tuple(sorted(said, key=lambda one: said[one]))


def reason(values: dict[str, float]) -> str | None:
    """The reason with the most lines, by metric name; None where gcc gave none."""
    given = [(metric.name, values.get(metric.name, 0.0)) for metric, _ in _REASONS]
    name, count = max(given, key=lambda one: one[1])
    return name if count else None
