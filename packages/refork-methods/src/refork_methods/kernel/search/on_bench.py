"""The evaluator that builds, runs and profiles: the bench and the diagnosis behind the search's seam."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import final

from refork_methods.kernel.bench import Bench, Calibration, Candidate, Evaluated
from refork_methods.kernel.diagnose import diagnose
from refork_methods.kernel.search.model import Observation

#: What is measured of a kernel that is written from; sampling adds a run and little that a rewrite could use.
PARTS = ("code", "cachegrind")
REPEATS, DUEL = 7, 15


@final
class BenchEvaluator:
    """An open bench as an evaluator. ``workers``: builds at once (None: as many as processors).

    ``repeats``: timings of each in the search; 15 in the last duel. ``parts``: see
    :func:`refork_methods.kernel.diagnose.diagnose`.
    """

    def __init__(
        self,
        bench: Bench,
        calibration: Calibration,
        *,
        workers: int | None = None,
        repeats: int = REPEATS,
        duel: int = DUEL,
        parts: Sequence[str] = PARTS,
    ) -> None:
        self.bench, self.calibration = bench, calibration
        self._workers = workers or os.cpu_count() or 1
        self._repeats, self._duel, self._parts = repeats, duel, tuple(parts)

    @property
    def noise(self) -> float:
        """As calibrated."""
        return self.calibration.noise

    def prepare(self, candidates: Sequence[Candidate]) -> None:
        """Build several at once; what fails says so when it is evaluated."""
        if len(candidates) < 2 or self._workers < 2:
            return
        with ThreadPoolExecutor(min(self._workers, len(candidates))) as pool:
            list(pool.map(self.bench.build, candidates))

    def evaluate(self, candidate: Candidate) -> Evaluated:
        """By the bench, timed in turns with the original."""
        return self.bench.evaluate(candidate, repeats=self._repeats)

    def observe(self, candidate: Candidate, evaluated: Evaluated) -> Observation:
        """By the diagnosis; its time is the one that is known."""
        found = diagnose(
            self.bench.problem, candidate, bench=self.bench, calibration=self.calibration, quick=True,
            parts=self._parts, seconds=evaluated.seconds,
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
