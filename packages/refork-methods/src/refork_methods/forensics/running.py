"""What a command runs of a case, designs and resampling, and what it says of them as plain JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

from refork.errors import BadInput
from refork.jsonl import write_whole
from refork.plain import content_hash
from refork.policies.base import Policy
from refork.policies.open import open_policy
from refork.progress import Progress, silent
from refork.tree.node import Point
from refork.types import Json
from refork_methods.forensics import run
from refork_methods.forensics.bench import Bench
from refork_methods.forensics.case import Case
from refork_methods.forensics.design import BASE, ArmPlan, Design, Purpose
from refork_methods.forensics.evidence import Result
from refork_methods.forensics.export import arm_json
from refork_methods.forensics.instruments.reading import Patterns
from refork_methods.forensics.instruments.repeated_resampling import repeated_resample
from refork_methods.forensics.instruments.sentence_resampling import sentence_resample
from refork_methods.forensics.instruments.sentences import Unit
from refork_methods.forensics.intervention import Intervention
from refork_methods.forensics.intervention import factorial as cells_of


def parse_edit(text: str) -> Intervention:
    """``path=value`` (JSON where it is JSON, else text) or ``path-`` to take a field out.

    Raises: BadInput for anything else.
    """
    # At the first sign: a value may hold more of them.
    path, equals, value = text.partition("=")
    if equals and path.strip():
        return Intervention.edit(path.strip(), _value(value.strip()))
    if text.endswith("-") and len(text) > 1:
        return Intervention.remove(text[:-1].strip())
    raise BadInput(f"{text!r} is no edit", hint="path=value, or path- to remove a field")


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def parse_grid(text: str) -> list[float]:
    """Doses from ``0,50,100``; whole numbers stay whole. Raises BadInput for anything else."""
    found = []
    for part in text.split(","):
        value = _value(part.strip())
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadInput(f"{part.strip()!r} is no dose", where=text, hint="for example 0,50,100")
        found.append(value)
    return found


def sweeps(
    case: Case,
    bench: Bench,
    n: int = run.ARM_DRAWS,
    *,
    design: str | None = None,
    path: str | None = None,
    grid: str | None = None,
    confounds: Sequence[str] = (),
    progress: Progress = silent,
) -> list[Json]:
    """Run one dose-response, or all of the case; a row for each.

    Raises: BadInput where there is none to run, or a path comes without a grid.
    """
    if (path is None) != (grid is None):
        raise BadInput("a path and its grid belong together", hint="--path settings.errors --grid 0,50,100")
    fresh = [run.dose_design(case, path, parse_grid(grid))] if path is not None and grid is not None else []
    chosen = fresh or _chosen(case, design, ("dose response",))
    return [_row(case, run.run_design(case, bench, one, n, progress=progress), confounds) for one in chosen]


def factorials(
    case: Case,
    bench: Bench,
    n: int = run.ARM_DRAWS,
    *,
    design: str | None = None,
    edits: Sequence[str] = (),
    confounds: Sequence[str] = (),
    progress: Progress = silent,
) -> list[Json]:
    """Run one counterfactual or factorial, or all of the case; a row for each.

    Raises: BadInput where there is none to run.
    """
    given = [parse_edit(text) for text in edits]
    if len(given) == 1:
        chosen: list[Design] = [Design.counterfactual(given[0])]
    elif given:
        name = " x ".join(one.name for one in given)
        chosen = [Design.factorial(cells_of(*given), name=name)]
    else:
        chosen = _chosen(case, design, ("counterfactual", "factorial"))
    return [_row(case, run.run_design(case, bench, one, n, progress=progress), confounds) for one in chosen]


def run_controls(
    case: Case,
    bench: Bench,
    n: int = run.ARM_DRAWS,
    *,
    without: str | None = None,
    model: Policy | str | None = None,
    planted: Policy | str | None = None,
    confounds: Sequence[str] = (),
    progress: Progress = silent,
) -> list[Json]:
    """Run the base and the controls that are named; without any, the control settings of the case."""
    rows: list[Json] = []
    if without is not None:
        ran = run.control_setting(case, bench, parse_edit(without), n, progress=progress)
        rows.append(_row(case, ran, confounds))
    if model is not None:
        other = open_policy(model) if isinstance(model, str) else model
        ran = run.control_model(case, bench, other, n, progress=progress)
        rows.append(_row(case, ran, confounds))
    if planted is not None:
        agent = open_policy(planted) if isinstance(planted, str) else planted
        ran = run.positive_control(case, bench, agent, n, progress=progress)
        rows.append(_row(case, ran, confounds))
    if rows:
        return rows
    base = Design("base rate", "observation", "rollouts", (ArmPlan(BASE, Intervention.none()),))
    chosen = [base, *(d for d in case.designs if d.purpose == "control setting")]
    return [_row(case, run.run_design(case, bench, one, n, progress=progress), confounds) for one in chosen]


def _chosen(case: Case, name: str | None, purposes: Sequence[Purpose]) -> list[Design]:
    if name is not None:
        one = case.design(name)
        if one.purpose not in purposes:
            raise BadInput(f"design {one.name!r} is a {one.purpose}", hint=f"here: {' or '.join(purposes)}")
        return [one]
    found = [d for d in case.designs if d.purpose in purposes]
    if not found:
        raise BadInput(
            f"the case has no {' or '.join(purposes)}",
            where=case.incident.name,
            hint="give its edits here, or register designs and predictions with open --from",
        )
    return found


def _row(case: Case, ran: run.Ran, confounds: Sequence[str]) -> Json:
    """A design that was run, filed in the case, as plain JSON."""
    _, concerns = run.file_evidence(case, ran, confounds=confounds)
    return {
        "design": ran.design.name,
        "id": ran.design.id,
        "purpose": ran.design.purpose,
        "arms": [arm_json(case, arm) for arm in ran.arms],
        "results": [_result_json(result) for result in ran.results],
        "concerns": [f"{concern.words} ({concern.where})" for concern in concerns],
        "warnings": list(ran.warnings),
    }


def _result_json(result: Result) -> Json:
    found = result.interval
    return {
        "quantity": result.quantity, "estimate": found.estimate, "low": found.low, "high": found.high,
        "p": result.p, "method": result.method, "arms": [arm.name for arm in result.arms],
    }  # fmt: skip


# Sentence and repeated resampling of a case's rollouts, written into its folder.

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
    file = folder / f"{name}.json"
    write_whole(file, json.dumps(told, indent=1, ensure_ascii=False) + "\n")
    return told | {"file": str(file)}
