"""A dose curve by the names that the command line takes."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from refork.errors import BadInput
from refork.types import Json
from refork_methods.recovery.dose import coverage_dose, maze_dose
from refork_methods.recovery.on_tree import read_traces
from refork_methods.recovery.rows import RowPolicy
from refork_methods.recovery.traces import state_key


def parse_fractions(text: str) -> list[float]:
    """Numbers with commas between them.

    Raises:
        BadInput: not numbers in [0, 1].
    """
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        raise BadInput(f"{text!r} is not a list of fractions", hint="for example 0,0.01,0.05") from None
    if not all(0 <= value <= 1 for value in found):
        raise BadInput("fractions must lie in [0, 1]", where="dose")
    return found


def dose_report(
    traces: Path | None,
    teacher: Path | None,
    fractions: str,
    *,
    paths: int = 1000,
    seeds: int = 3,
    key: str = "normalised",
    outcome: str | None = None,
    score: str = "success",
    threshold: float = 1.0,
) -> list[Json]:
    """One record per fraction, of a trace file's coverage or of a maze teacher's students.

    Raises:
        BadInput: neither or both of the two, or what reading them raises.
    """
    shares = parse_fractions(fractions)
    if (traces is None) == (teacher is None):
        raise BadInput("give either a trace file or --teacher", where="dose")
    if traces is not None:
        read = read_traces(traces, outcome=outcome, score=score)
        rows = coverage_dose(read.traces, shares, key=state_key(key), threshold=threshold, seeds=range(seeds))
        return [asdict(row) for row in rows]
    assert teacher is not None
    try:
        policy = RowPolicy.from_json(json.loads(teacher.read_text()))
    except (OSError, ValueError) as error:
        raise BadInput(f"this is not a maze policy: {error}", where=str(teacher)) from error
    return [asdict(row) for row in maze_dose(policy, shares, paths=paths, seeds=range(seeds))]
