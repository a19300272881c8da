"""A case written by hand: incident, designs and predictions in one TOML or JSON file."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from refork.errors import BadInput
from refork.policies.base import PolicyCard
from refork.tree.score import Producer
from refork.types import Json
from refork_methods.forensics.arm import Arm
from refork_methods.forensics.case import FILE, Case, register
from refork_methods.forensics.design import BASE, ArmPlan, Design, Purpose
from refork_methods.forensics.document import look_up, parse_path
from refork_methods.forensics.hypothesis import Hypothesis
from refork_methods.forensics.incident import Incident, Target
from refork_methods.forensics.intervention import Intervention, factorial
from refork_methods.forensics.standards import Answer


class _Part(BaseModel):
    """No unknown keys, in the dataclasses that a part holds either."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelPart(_Part):
    """Who acted; ``weights`` is a digest where it is known."""

    name: str
    kind: str = "recorded"
    weights: str | None = None


class TargetPart(_Part):
    """What was done, and the grader that says so."""

    action: str
    description: str = ""
    grader: str = "unnamed"
    grader_version: str = "1"
    grader_weights: str | None = None
    grader_config: dict[str, Any] = {}


class EditPart(_Part):
    """One edit: ``value`` sets, ``find`` with ``value`` replaces a span, ``remove`` takes out."""

    path: str
    value: Any = None
    find: str | None = None
    remove: bool = False
    name: str | None = None

    def intervention(self) -> Intervention:
        """The edit as an intervention; raises BadInput where it says nothing, or two things at once."""
        given = self.model_fields_set
        if self.remove and given & {"value", "find"}:
            raise BadInput("an edit removes its field or writes it", where=self.path, hint="one of the two")
        if not self.remove and "value" not in given:
            raise BadInput("an edit needs a value, or remove = true", where=self.path)
        if self.find is not None and not isinstance(self.value, str):
            raise BadInput("what takes the place of a span is text", where=self.path)
        if self.remove:
            return Intervention.remove(self.path, self.name)
        if self.find is not None:
            return Intervention.replace(self.path, self.find, self.value, self.name)
        return Intervention.edit(self.path, self.value, self.name)


class DesignPart(_Part):
    """One test: one edit, several for a factorial, or a path and a grid for a dose-response."""

    name: str
    purpose: Purpose = "counterfactual"
    instrument: str = "rollouts"
    edit: EditPart | None = None
    edits: list[EditPart] = []
    path: str | None = None
    grid: list[int | float] = []

    def design(self, environment: Json) -> Design:
        """The design; raises BadInput where its parts do not fit its purpose."""
        if self.purpose == "dose response":
            if self.path is None or self.edit or self.edits:
                raise BadInput("a dose-response has a path and a grid", where=f"design {self.name!r}")
            now = look_up(environment, parse_path(self.path))
            return Design.dose_response(
                self.path, self.grid, now=now, name=self.name, instrument=self.instrument
            )
        if self.purpose == "factorial":
            cells = factorial(*(edit.intervention() for edit in self.edits))
            return Design.factorial(cells, name=self.name, instrument=self.instrument)
        if self.path is not None or self.edits:
            raise BadInput(f"a {self.purpose} has one edit or none", where=f"design {self.name!r}")
        plain = Intervention.none()
        if self.edit is None:
            return Design(self.name, self.purpose, self.instrument, (ArmPlan(self.name, plain),))
        one = self.edit.intervention()
        arms = (ArmPlan(BASE, plain), ArmPlan(self.name, one))
        return Design(self.name, self.purpose, self.instrument, arms)


class PlanFile(_Part):
    """The whole file. ``environment`` is the document itself, or a JSON file beside the plan.

    Predictions name their design here; a case files them under its digest.
    """

    name: str
    model: ModelPart
    target: TargetPart
    environment: Annotated[dict[str, Any] | str, Field(union_mode="left_to_right")]
    question: str = ""
    tree: str | None = None
    nodes: list[str] = []
    base: dict[Literal["hits", "runs", "failed", "unfinished", "asked"], int] | None = None
    notes: list[str] = []
    designs: list[DesignPart] = []
    hypotheses: list[Hypothesis] = []
    answers: list[Answer] = []


@dataclass(frozen=True, slots=True)
class Plan:
    """An incident, what is to be tested about it, and what is answered by hand."""

    incident: Incident
    designs: tuple[Design, ...]
    hypotheses: tuple[Hypothesis, ...]
    answers: tuple[Answer, ...] = ()


def read_plan(file: Path) -> Plan:
    """A plan from a TOML or JSON file.

    Raises: BadInput naming the first thing that does not fit.
    """
    try:
        text = file.read_text(encoding="utf-8")
        data = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
        told = PlanFile.model_validate(data)
    except OSError as error:
        raise BadInput(f"the file cannot be read: {error.strerror}", where=str(file)) from error
    except ValidationError as error:
        first = error.errors()[0]
        raise BadInput(f"{'.'.join(map(str, first['loc']))}: {first['msg']}", where=str(file)) from error
    except ValueError as error:
        raise BadInput(f"this is no TOML or JSON: {error}", where=str(file)) from error
    return _plan(told, _environment(told, file))


def _environment(told: PlanFile, file: Path) -> Json:
    if isinstance(told.environment, dict):
        return told.environment
    beside = file.parent / told.environment
    try:
        data = json.loads(beside.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"the environment cannot be read: {error}", where=str(beside)) from error
    if not isinstance(data, dict):
        raise BadInput("an environment is a JSON object", where=str(beside))
    return data


def _plan(told: PlanFile, environment: Json) -> Plan:
    config = dict(told.target.grader_config)
    if told.target.grader_weights is not None:
        config["weights"] = told.target.grader_weights
    grader = Producer(told.target.grader, told.target.grader_version, config)
    card = PolicyCard(told.model.name, told.model.kind, told.model.weights, None, None, frozenset())
    base = None
    if told.base is not None:
        subject = told.model.weights or told.model.name
        counts = {"hits": 0, "runs": 0, **told.base}
        base = Arm(name=BASE, grader=grader.id, subject=subject, **counts)  # type: ignore[arg-type]
    incident = Incident(
        told.name, card, environment, Target(told.target.action, grader, told.target.description),
        told.tree, tuple(told.nodes), base, told.question, tuple(told.notes),
    )  # fmt: skip
    designs = tuple(part.design(environment) for part in told.designs)
    hypotheses = tuple(_by_digest(one, designs) for one in told.hypotheses)
    return Plan(incident, designs, hypotheses, tuple(told.answers))


def _by_digest(one: Hypothesis, designs: tuple[Design, ...]) -> Hypothesis:
    ids = {design.name: design.id for design in designs}
    for prediction in one.predictions:
        if prediction.design not in ids:
            raise BadInput(f"no design {prediction.design!r} in this file", where=f"hypothesis {one.name!r}")
    return replace(one, predictions=tuple(replace(p, design=ids[p.design]) for p in one.predictions))


def open_plan(folder: Path, plan: Plan) -> tuple[Case, bool]:
    """The case of a folder with everything of a plan registered, and whether it is new.

    Raises: BadInput where the folder holds the case of another incident.
    """
    new = not (folder / FILE).exists()
    case = Case.create(folder, plan.incident) if new else Case.open(folder)
    if case.incident != plan.incident:
        raise BadInput("this folder holds the case of another incident", where=str(folder),
                       hint="a case's incident never changes: open another folder")  # fmt: skip
    register(case, plan.designs, plan.hypotheses)
    for answer in plan.answers:
        if case.state.answers.get(answer.standard) != answer:
            case.answer(answer)
    return case, new
