"""An evaluation as files: ``report.json`` and ``turns.jsonl`` beside the kept predictions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from refork.plain import canonical, to_json
from refork.types import Json
from refork_methods.simulate.compare import Comparison
from refork_methods.simulate.evaluate import Evaluation

#: What a figure cannot tell; told with every report.
NOTES = (
    "One step at a time, with the real history: errors that build up over an episode do not show here.",
    "A turn without a valid prediction counts as wrong.",
    "Exact match asks for the letter; where the answer is not determined, read the rules and the rubric.",
)


def report(
    evaluation: Evaluation, others: Sequence[Evaluation] = (), comparisons: Sequence[Comparison] = ()
) -> Json:
    """An evaluation, those beside it, and the differences, as plain JSON."""
    found: Json = to_json(evaluation.fidelity)
    found["complete"] = not any(one.stopped for one in (evaluation, *others))
    found["others"] = [to_json(other.fidelity) for other in others]
    found["comparisons"] = [to_json(one) for one in comparisons]
    found["notes"] = list(NOTES)
    return found


def write_report(folder: Path, told: Json, evaluation: Evaluation) -> None:
    """Write both files, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "report.json", [canonical(told)])
    turns: list[Any] = [to_json(turn) for turn in evaluation.turns]
    _write(folder / "turns.jsonl", (canonical(turn) for turn in turns))


def _write(file: Path, lines: Iterable[str]) -> None:
    part = file.with_name(file.name + ".tmp")
    part.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    part.replace(file)
