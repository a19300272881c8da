"""What a search has observed, and how near a theory's people come to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float

from refork.errors import BadInput
from refork.sandbox import Sandbox
from refork.stats.results import Array
from refork.types import Json
from refork_methods.theory.chooser import Chooser
from refork_methods.theory.metrics import Metric, lag_one, mse_pb
from refork_methods.theory.scores import aggregate_loss
from refork_methods.theory.search.settings import TheorySettings
from refork_methods.theory.search.statistic import Agreement, Code, Named, ShareAt, metric_of
from refork_methods.theory.simulate import predicted_rates, simulate
from refork_methods.theory.trials import Observation


@final
@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """An observation with the statistic it was made for. ``real``: the statistic of people's choices.

    ``key``: its seed, the same for every theory, so that they differ by what they say alone. ``rates`` and
    ``lag``: of people's choices.
    """

    observation: Observation
    statistic: Named | ShareAt | Agreement | Code
    metric: Metric
    real: float
    key: int
    rates: Float[Array, "stimuli"]
    lag: float | None

    @property
    def name(self) -> str:
        """The observation's."""
        return self.observation.name


@final
@dataclass(frozen=True, slots=True)
class Predicted:
    """A theory on one observation, by its priors: the statistic's value, and squared errors.

    ``value``: None where the statistic is not defined. ``mse_pb``: of rates. ``order``: squared difference
    of lag-1, and the greatest that there could be where only people's is defined; None where people's is not.
    """

    value: float | None
    mse_pb: float
    order: float | None

    def to_json(self) -> Json:
        """Plain JSON."""
        return {"value": self.value, "mse_pb": self.mse_pb, "order": self.order}

    @classmethod
    def from_json(cls, data: Json) -> Predicted:
        """Inverse of :meth:`to_json`."""
        return cls(data["value"], data["mse_pb"], data["order"])

    @property
    def error(self) -> float:
        """mse_pB, and the squared error of lag-1 where people have one: in the same observations for all."""
        return self.mse_pb + (self.order or 0.0)


def observed(
    observation: Observation,
    statistic: Named | ShareAt | Agreement | Code,
    key: int,
    sandbox: Sandbox,
) -> Observed:
    """People's side of an observation. Raises BadInput where the statistic is not defined on it."""
    metric = metric_of(statistic, observation.experiment, sandbox)
    real = metric.of_all([observation.trials])[0]
    if real is None:
        raise BadInput(f"{metric.name!r} is not defined on what people chose", where=observation.name)
    trials = observation.trials
    rates = trials.rates(observation.experiment.stimuli)
    return Observed(observation, statistic, metric, real, key, rates, lag_one()(trials))


def predict(chooser: Chooser, observed: Observed, settings: TheorySettings) -> Predicted:
    """A theory's side of an observation, by simulated people. Raises BadInput where its code fails."""
    experiment = observed.observation.experiment
    # The distribution of a theory of order is simulated: more people, or its rates would be noise.
    people = max(settings.simulated, 100) if chooser.reads_history else settings.simulated
    runs = simulate(chooser, experiment, people, observed.key)
    rates = (
        runs.rates(experiment.stimuli)
        if chooser.reads_history
        else predicted_rates(chooser, experiment, settings.draws, observed.key)
    )
    error, lag = mse_pb(rates, observed.rates), lag_one()(runs)
    none = failed(observed)
    order = none.order if lag is None or observed.lag is None else (lag - observed.lag) ** 2
    return Predicted(observed.metric.of_all([runs])[0], none.mse_pb if error is None else error, order)


def failed(observed: Observed) -> Predicted:
    """A theory that says nothing on an observation: no nearer than the farthest that says something."""
    return Predicted(None, 1.0, None if observed.lag is None else (1 + abs(observed.lag)) ** 2)


def loss(
    mine: Sequence[Predicted],
    observed: Sequence[Observed],
    stored: Sequence[Sequence[float]],
    settings: TheorySettings,
) -> float:
    """Loss of a theory over all observations; ``stored`` are the values of all theories on each.

    Raises: BadInput for no observation.
    """
    if settings.judge == "statistics":
        values = np.asarray([np.nan if one.value is None else one.value for one in mine])
        return aggregate_loss(values, np.asarray([one.real for one in observed]), stored)
    if not mine:
        raise BadInput("there is no observation to judge by")
    return float(np.mean([one.error for one in mine]))
