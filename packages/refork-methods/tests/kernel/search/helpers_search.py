"""A tiny problem and its search with the shipped fakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from refork_methods.kernel.bench.result import Candidate
from refork_methods.kernel.problem import Argument, Problem
from refork_methods.kernel.search.model import KernelSearchSettings
from refork_methods.kernel.search.run import SearchResult, run_search
from refork_methods.kernel.tool import Finding
from support.kernel_search_fakes import TableEvaluator, WordWriter

PROBLEM = Problem(
    name="scale",
    entry="scale",
    source="start",
    suffix=".c",
    arguments=(
        Argument(name="n", ctype="int", length=None, role="size"),
        Argument(name="x", ctype="float", length="n", role="inout"),
    ),
    sizes={"n": 8},
    flops=8.0,
    bytes=64.0,
    rtol=1e-4,
    atol=1e-6,
)
FINDING = Finding(
    tool="Strided", category="memory", severity="warn", cause="It strides.", action="Interchange the loops.",
    metrics={"misses": 0.5}, expected_gain=(2.0, 3.0), evidence=("a.c:3: Dr=5",),
)  # fmt: skip


def speed(one: Candidate) -> float | None:
    """``d`` fails; each ``a`` is worth 1.5, anything else .9."""
    words = one.source.split()[1:]
    if "d" in words:
        return None
    return float(1.5 ** words.count("a") * 0.9 ** (len(words) - words.count("a")))


def evaluator() -> TableEvaluator:
    return TableEvaluator(speed, lambda one: (FINDING,))


def search(folder: Path, tried: TableEvaluator | None = None, **given: Any) -> SearchResult:
    """A search of 20 evaluations in a folder."""
    settings = KernelSearchSettings(**{"evaluations": 20, **given})
    return run_search(
        PROBLEM, settings, folder, evaluator=tried or evaluator(), writer=WordWriter(("a", "b", "c", "d"))
    )
