"""A statistic as plain data, so that it can be recorded, sent to a model, and computed again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from refork.errors import BadInput
from refork.sandbox import Sandbox, refusal
from refork_methods.theory.experiment import Experiment
from refork_methods.theory.metrics import Metric, agreement, lag_one, share_of_b, share_of_b_at, switch_rate
from refork_methods.theory.trials import Trials

# A TypeError or NameError is no missing value but a fault of the code: it ends the call.
#: Runs beside the code of a statistic: one value for each list of trials, None where it fails on one.
_DRIVER: Final = """

def refork_values(apis, tools, lists):
    found = []
    for trials in lists:
        try:
            value = metric(tuple(dict(one) for one in trials))
        except (ArithmeticError, IndexError, KeyError, ValueError):
            value = None
        if isinstance(value, bool):
            value = float(value)
        if value is not None and not isinstance(value, (int, float)):
            raise ValueError("metric must return a number or None, and returned " + repr(value)[:200])
        found.append(value)
    return found
"""


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Named(_Data):
    """``share_of_b``, ``switch_rate`` or ``lag_one``."""

    kind: Literal["share_of_b", "switch_rate", "lag_one"]


class ShareAt(_Data):
    """Share of B at some stimuli, numbered from 0."""

    kind: Literal["share_of_b_at"]
    stimuli: list[int]


class Agreement(_Data):
    """Share of choices on one side: a number for each stimulus, above 0 for B, below 0 for A, 0 left out."""

    kind: Literal["agreement"]
    name: str
    sides: list[float]


class Code(_Data):
    """Python code of ``metric(trials)``: a tuple of {"stimulus", "number", "response"} in trial order."""

    kind: Literal["code"]
    name: str
    source: str


Statistic = Annotated[Named | ShareAt | Agreement | Code, Field(discriminator="kind")]


_READER: Final[TypeAdapter[Named | ShareAt | Agreement | Code]] = TypeAdapter(Statistic)


def read_statistic(data: Any, where: str | None = None) -> Named | ShareAt | Agreement | Code:
    """A statistic from plain JSON. Raises BadInput naming what does not fit."""
    try:
        return _READER.validate_python(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the statistic"
        raise BadInput(f"{place}: {first['msg']}", where=where) from error


def metric_of(
    statistic: Named | ShareAt | Agreement | Code, experiment: Experiment, sandbox: Sandbox
) -> Metric:
    """The metric of a statistic on an experiment; code runs in the sandbox.

    Raises: BadInput for stimuli that the experiment has not, or code that may not run.
    """
    if isinstance(statistic, Named):
        return {"share_of_b": share_of_b, "switch_rate": switch_rate, "lag_one": lag_one}[statistic.kind]()
    if isinstance(statistic, ShareAt):
        if any(not 0 <= one < experiment.stimuli for one in statistic.stimuli):
            raise BadInput(f"stimuli {statistic.stimuli}, and there are {experiment.stimuli} from 0")
        return share_of_b_at(statistic.stimuli)
    if isinstance(statistic, Agreement):
        if len(statistic.sides) != experiment.stimuli or not any(statistic.sides):
            raise BadInput(
                f"{len(statistic.sides)} sides for {experiment.stimuli} stimuli", hint="one each, not all 0"
            )
        return agreement(statistic.name, np.asarray(statistic.sides))
    return _coded(statistic, experiment, sandbox)


def _number(value: Any) -> float | None:
    try:
        return None if value is None else float(value)
    except OverflowError:
        return None  # a whole number beyond any float


def _coded(statistic: Code, experiment: Experiment, sandbox: Sandbox) -> Metric:
    where = f"statistic {statistic.name!r}"
    if reason := refusal(statistic.source):
        raise BadInput(f"its code may not run: {reason}", where=where)
    stimuli = [experiment.stimulus(i) for i in range(experiment.stimuli)]

    def many(lists: Sequence[Trials]) -> list[float | None]:
        told = [
            [
                {"stimulus": stimuli[at], "number": at, "response": chosen}
                for at, chosen in zip(one.stimulus.tolist(), one.response.tolist(), strict=True)
            ]
            for one in lists
        ]
        result = sandbox.run(statistic.source + _DRIVER, "refork_values", {"lists": told})
        if not result.ok:
            raise BadInput(f"its code ended by {result.kind}: {result.error}", where=where)
        if not isinstance(result.value, list) or len(result.value) != len(lists):
            raise BadInput("its code returned no value for each person", where=where)
        return [_number(v) for v in result.value]

    return Metric(statistic.name, lambda trials: many([trials])[0], many=many)
