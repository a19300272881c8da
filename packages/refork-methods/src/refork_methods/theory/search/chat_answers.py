"""What a chat model answered, read strictly: unknown fields, wrong types and odd values are refused."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from refork.errors import BadInput
from refork.plain import content_hash
from refork.types import Json
from refork_methods.theory.pool import Verdict
from refork_methods.theory.search.scientist import Designed, Judged, View
from refork_methods.theory.search.spec import TheorySpec
from refork_methods.theory.search.statistic import Statistic, metric_of
from refork_methods.theory.theory_file import Theory

M = TypeVar("M", bound=BaseModel)


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Design(_Answer):
    experiment: dict[str, Any]
    statistics: list[Statistic] = Field(min_length=1, max_length=8)
    why: str


class _Verdict(_Answer):
    ruling: Literal["new_model", "new_theory"]
    target: Literal[1, 2]
    why: str


class _Revision(_Answer):
    name: str
    predict: str
    theory: str | None = None
    policy: str | None = None
    parameters: dict[str, str | float | int] = {}
    rationale: str | None = None


class _Done(_Answer):
    done: Literal[True]


def _read(kind: type[M], body: Json) -> M:
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the answer"
        raise BadInput(f"{place}: {first['msg']}") from error


def read_design(body: Json, view: View) -> Designed:
    """An experiment of the domain with statistics that fit it.

    Raises: BadInput for what does not fit, an experiment that people cannot answer any more.
    """
    found = _read(_Design, body)
    experiment = view.domain.read(found.experiment, "experiment")
    offered = view.offers
    if offered is not None:
        digest = content_hash(experiment.to_json())
        if digest not in {content_hash(one.to_json()) for one in offered}:
            raise BadInput("people can answer only the experiments on offer", hint="copy one of them")
    for one in found.statistics:
        metric_of(one, experiment, view.sandbox)
    return Designed(experiment, tuple(found.statistics), found.why)


def read_verdict(body: Json) -> Judged:
    """A verdict. Raises BadInput."""
    found = _read(_Verdict, body)
    return Judged(Verdict(found.ruling, found.target), found.why)


def read_revision(body: Json, view: View, verdict: Verdict, *, may_end: bool) -> TheorySpec | None:
    """A theory; None for ``{"done": true}``, where there is one already.

    A revision of the model keeps the prose of the theory that it revises. Raises BadInput.
    """
    if "done" in body:
        _read(_Done, body)
        if not may_end:
            raise BadInput("nothing was accepted yet, so this cannot be the end")
        return None
    found = _read(_Revision, body)
    prose = found.theory
    if verdict.ruling == "new_model":
        old = view.theories[view.slots[verdict.target - 1]].theory(view.domain)
        prose = old.theory if old is not None else prose
    if prose is None:
        raise BadInput("theory: a new theory needs its prose")
    told = {**found.model_dump(exclude_none=True), "theory": prose, "domain": view.domain.name}
    text = yaml.safe_dump(told, sort_keys=False, allow_unicode=True)
    return TheorySpec(yaml=Theory.from_yaml(text, "the answer").to_yaml())
