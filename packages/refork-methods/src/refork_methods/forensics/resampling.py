"""Sentence and repeated resampling of a case's rollouts, written into its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

from refork.plain import content_hash
from refork.progress import Progress, silent
from refork.tree.node import Point
from refork.types import Json
from refork_methods.forensics.bench import Bench
from refork_methods.forensics.case import Case
from refork_methods.forensics.export import write_whole
from refork_methods.forensics.instruments.reading import Patterns
from refork_methods.forensics.instruments.repeated_resampling import repeated_resample
from refork_methods.forensics.instruments.sentence_resampling import sentence_resample
from refork_methods.forensics.instruments.sentences import Unit

#: The label that a pattern's sentences get.
CLASS = "class"


def resampled_case(
    case: Case,
    bench: Bench,
    end: Point,
    k: int,
    unit: str = "sentence",
    *,
    recorded: bool = True,
    progress: Progress = silent,
) -> Json:
    """The profile of one rollout as JSON, also written to the case's folder as ``resample-NODE.json``.

    ``recorded``: sample as the rollout was; else under the bench's settings.
    """
    found = sentence_resample(
        end, bench.policy, k, grader=bench.grader, unit=cast("Unit", unit), world=bench.restart.world,
        settings=None if recorded else bench.settings, seed=bench.seed, progress=progress,
    )  # fmt: skip
    return _written(case, found.to_json() | {"k": k}, f"resample-{end.node.id[:12]}")


def redrawn_case(
    case: Case,
    bench: Bench,
    pattern: str,
    n: int,
    unit: str = "sentence",
    max_tries: int = 20,
    progress: Progress = silent,
) -> Json:
    """What redrawing every sentence that matches does, as JSON, also written as ``redraw-DIGEST.json``."""
    start = bench.restart.point(bench.tree, bench.policy, case.incident.environment)
    reader = Patterns(((CLASS, pattern),))
    found = repeated_resample(
        start, bench.policy, n, reader, CLASS, grader=bench.grader, max_tries=max_tries,
        unit=cast("Unit", unit), settings=bench.settings, world=bench.restart.world, seed=bench.seed,
        progress=progress,
    )  # fmt: skip
    return _written(case, found.to_json() | {"pattern": pattern}, f"redraw-{content_hash(pattern)[:12]}")


def _written(case: Case, told: Json, name: str) -> Json:
    folder = case.folder
    if folder is None:
        return told | {"file": None}
    file: Path = folder / f"{name}.json"
    write_whole(file, json.dumps(told, indent=1, ensure_ascii=False) + "\n")
    return told | {"file": str(file)}
