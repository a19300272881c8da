"""What the final turn of the model loop is worth: the same reader with and without it, turn cap 6, paired.

The reader is a script that searches the issue's words; what it has not answered by the cap it answers from
what it has seen, if it is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from refork import stats
from refork.stats import Interval, Test
from refork.types import Json
from refork_methods.localize.loop import Localizer
from refork_methods.localize.metrics import score_locations
from refork_methods.localize.session import LoopSettings
from refork_methods.localize.snapshot import Snapshot
from refork_methods.localize.tools import RepoTools
from refork_testbed.trials.planted_reader import PlantedReader
from refork_testbed.worlds.repair.tasks import RepairTask, repair_tasks

CAP = 6


@final
@dataclass(frozen=True, slots=True)
class SynthesisEffect:
    """acc@1 and how runs ended, with the final turn and without; the paired difference and its test."""

    tasks: int
    acc1: float
    without: float
    difference: Interval
    test: Test
    statuses: dict[str, dict[str, int]]

    def to_json(self) -> Json:
        """Plain figures."""
        return {
            "tasks": self.tasks, "acc1": self.acc1, "without": self.without,
            "difference": [self.difference.estimate, self.difference.low, self.difference.high],
            "p": self.test.p, "statuses": self.statuses,
        }  # fmt: skip


def synthesis_effect(
    count: int = 400, *, cap: int = CAP, searches: int = 6, seed: int = 0,
    tasks: Sequence[RepairTask] | None = None,
) -> SynthesisEffect:  # fmt: skip
    """Run both arms on ``count`` mutation tasks (or the given ones) and compare acc@1 pair by pair."""
    chosen = repair_tasks(count, seed) if tasks is None else list(tasks)
    hit: dict[bool, list[bool]] = {True: [], False: []}
    statuses: dict[str, dict[str, int]] = {}
    for task in chosen:
        tools = RepoTools(Snapshot.from_files(task.files))
        for synthesis in (True, False):
            settings = LoopSettings(max_turns=cap, synthesis=synthesis)
            case = Localizer(PlantedReader(searches), tools, settings).run(task.issue)
            hit[synthesis].append(score_locations(case, task.gold).acc[1] == 1.0)
            row = statuses.setdefault("with" if synthesis else "without", {})
            row[case.status] = row.get(case.status, 0) + 1
    pairs = list(zip(hit[True], hit[False], strict=True))
    gains = sum(one and not other for one, other in pairs)
    losses = sum(other and not one for one, other in pairs)
    both = sum(one and other for one, other in pairs)
    return SynthesisEffect(
        len(chosen),
        sum(hit[True]) / len(chosen),
        sum(hit[False]) / len(chosen),
        stats.newcombe_paired(both, gains, losses, len(chosen) - both - gains - losses),
        stats.mcnemar(gains, losses),
        statuses,
    )
