"""Reading finished runs into a memory, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from refork.errors import BadInput, ServerError
from refork.progress import Progress, silent
from refork.types import Json
from refork_methods.memory.item import MemoryItem
from refork_methods.memory.memory import ExperienceMemory
from refork_methods.memory.secrets import hidden
from refork_methods.memory.trajectory import RunTrajectory


@dataclass(frozen=True, slots=True)
class Ingested:
    """What came of it: runs read, runs passed over, new items, and (task, reason) of runs that failed."""

    read: int
    skipped: int
    items: tuple[MemoryItem, ...]
    failed: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> Json:
        """Counts, items, and failures."""
        return {
            "read": self.read,
            "skipped": self.skipped,
            "items": [item.to_json() for item in self.items],
            "failed": [{"task": task, "reason": reason} for task, reason in self.failed],
        }


def ingest(
    memory: ExperienceMemory,
    runs: Sequence[RunTrajectory],
    *,
    observe: bool = True,
    skip_known: bool = False,
    progress: Progress = silent,
) -> Ingested:
    """Reflect on every run; ``observe`` first counts what the memory would have chosen for its query.

    That is how recurrence is found in logs of agents that had no memory. A run on which a model gives no
    usable reply is told among the failed and can be read again.

    Raises:
        BadInput: two runs of one task, or one that was read before (unless ``skip_known``).
    """
    _check(memory, runs, skip_known)
    items: list[MemoryItem] = []
    failed: list[tuple[str, str]] = []
    read = skipped = 0
    for place, whole in enumerate(runs):
        progress("reading runs", place, len(runs))
        run = hidden(whole).run if memory.hide_secrets else whole
        if run.task in memory.state.reflected:
            skipped += 1
            continue
        try:
            if observe and run.task not in memory.state.observed:
                chosen = memory.select(run.query, task=run.task)
                given = memory.selection(run.query, [item.id for item in chosen.items])
                memory.observe(run.task, given, success=run.success, steps=len(run.steps), cost=run.cost)
            items += memory.reflect(run)
            read += 1
        except ServerError as error:
            failed.append((run.task, error.what))
    progress("reading runs", len(runs), len(runs))
    return Ingested(read, skipped, tuple(items), tuple(failed))


def _check(memory: ExperienceMemory, runs: Sequence[RunTrajectory], skip_known: bool) -> None:
    """Refuse before anything is written."""
    seen: set[str] = set()
    for run in runs:
        if run.task in seen:
            raise BadInput(f"two runs have the task id {run.task!r}")
        seen.add(run.task)
    known = sorted(seen & memory.state.reflected)
    if known and not skip_known:
        raise BadInput(
            f"a run of the task {known[0]!r} was read before", hint="pass over such runs: --skip-known"
        )
