"""A search on a problem, with everything that it needs: calibration, bench, writer, tree."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import final

from refork.chat import PolicyChat
from refork.errors import BadInput
from refork.policies.base import Sampling
from refork.policies.open import open_policy
from refork.progress import Progress, silent, waits
from refork.tree.tree import Tree
from refork.types import Json
from refork_methods.kernel import rewrite
from refork_methods.kernel.bench import Bench, Calibration, Candidate, Evaluated, calibrate
from refork_methods.kernel.diagnose import diagnose
from refork_methods.kernel.problem import Problem
from refork_methods.kernel.search.chatting import ChatWriter
from refork_methods.kernel.search.model import KernelSearchSettings, Observation, Writer
from refork_methods.kernel.search.on_tree import record_on_tree
from refork_methods.kernel.search.rewriting import RewriteWriter
from refork_methods.kernel.search.run import SearchResult, run_search

#: What is measured of a kernel that is written from; sampling adds a run and little that a rewrite could use.
PARTS = ("code", "cachegrind")
REPEATS, DUEL = 7, 15


@final
class BenchEvaluator:
    """An open bench as an evaluator. ``duel``: timings of each in the last duel; 7 in the search."""

    def __init__(self, bench: Bench, calibration: Calibration, *, duel: int = DUEL) -> None:
        self.bench, self.calibration, self._duel = bench, calibration, duel

    @property
    def noise(self) -> float:
        """As calibrated."""
        return self.calibration.noise

    def prepare(self, candidates: Sequence[Candidate]) -> None:
        """Build several at once, one a processor; what fails says so when it is evaluated."""
        # The compiler is a process of its own, so threads do; list, so that a bug in one is raised here.
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            list(pool.map(self.bench.build, candidates))

    def evaluate(self, candidate: Candidate) -> Evaluated:
        """By the bench, timed in turns with the original."""
        return self.bench.evaluate(candidate, repeats=REPEATS)

    def observe(self, candidate: Candidate, evaluated: Evaluated) -> Observation:
        """By the diagnosis; its time is the one that is known."""
        found = diagnose(
            self.bench.problem, candidate, bench=self.bench, calibration=self.calibration, quick=True,
            parts=PARTS, seconds=evaluated.seconds,
        )  # fmt: skip
        values = found.signals.values
        counters = {
            f"{source}.{name}": value for source, some in values.items() for name, value in some.items()
        }
        absent = {str(source): why for source, why in found.signals.absent.items()}
        return Observation(found.diagnosis.findings, counters, absent, found.diagnosis.slips)

    def duel(self, candidates: Sequence[Candidate]) -> list[Evaluated]:
        """All in turns with the original."""
        return self.bench.duel(candidates, repeats=self._duel)


#: Tokens of one answer of a model, unless said otherwise.
ANSWER = 8192


def open_writer(
    spec: str, settings: KernelSearchSettings, *, max_tokens: int = ANSWER, progress: Progress = silent
) -> Writer:
    """``rewrite``, or ``chat:POLICY`` with a policy's name, asked at temperature 0.7.

    Raises:
        BadInput: another name, or rewrites that are to be guided by raw counters, which they cannot read.
    """
    if spec == "rewrite":
        if settings.feedback == "raw":
            raise BadInput(
                "the rewriting writer reads findings, not counters",
                where="--feedback raw",
                hint="diagnosed or none, or a model as --writer chat:SPEC",
            )
        return RewriteWriter(rewrite, settings.unguided, keys=("restrict",))
    kind, _, name = spec.partition(":")
    if kind != "chat" or not name:
        raise BadInput(f"writer {spec!r}", where="kernel search", hint="rewrite, or chat:openai:URL#MODEL")
    policy = open_policy(name, on_wait=waits(progress))
    sampling = Sampling(temperature=0.7, max_tokens=max_tokens)
    return ChatWriter(PolicyChat(policy, sampling, settings.seed))


def search_problem(
    problem: Problem,
    settings: KernelSearchSettings,
    out: Path,
    *,
    writer: str = "rewrite",
    max_tokens: int = ANSWER,
    asked: Json | None = None,
    progress: Progress = silent,
) -> SearchResult:
    """Search for a faster version of a problem's kernel in ``out``, which then holds a ``tree.db`` as well.

    The machine is calibrated first where it was not.

    Raises: as :func:`refork_methods.kernel.search.run.run_search` and :func:`open_writer`.
    """
    writes = open_writer(writer, settings, max_tokens=max_tokens, progress=progress)
    known = calibrate(progress=progress)
    with Bench(problem, out / "build", settings.seed, calibration=known) as bench:
        evaluator = BenchEvaluator(bench, known)
        found = run_search(
            problem, settings, out, evaluator=evaluator, writer=writes, calibration=known, asked=asked,
            progress=progress,
        )  # fmt: skip
    with Tree.open(out / "tree.db") as tree:
        record_on_tree(out, tree)
    return found
