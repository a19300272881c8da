"""What can stand for a person in an experiment: a theory with priors that gives the chance of each choice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, final, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from refork.errors import BadInput
from refork.stats.results import Array
from refork_methods.theory.experiment import Experiment
from refork_methods.theory.priors import Parameters, Prior, sample_priors

#: How a theory carries the last choice over: not, towards the same option, or towards the other one.
History: TypeAlias = Literal["none", "repeat", "alternate"]
_CARRY: dict[str, float] = {"none": 0.0, "repeat": 1.0, "alternate": -1.0}
#: Score of B less score of A, for each person and stimulus.
Gap: TypeAlias = Callable[[Any, Parameters], Float[Array, "people stimuli"]]


@runtime_checkable
class Chooser(Protocol):
    """A theory that can be run. Noise comes from the caller: the same noise gives the same choices."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def domain(self) -> str:
        """The domain whose experiments it can be run on."""
        ...

    @property
    def reads_history(self) -> bool:
        """Whether a choice may depend on what was chosen before."""
        ...

    def draw(self, experiment: Experiment, people: int, rng: np.random.Generator) -> Parameters:
        """Parameters of people, from the priors."""
        ...

    def chances(self, experiment: Experiment, parameters: Parameters) -> Float[Array, "people 3 stimuli"]:
        """P(B) at each stimulus after no choice, after A and after B."""
        ...

    def respond(
        self,
        experiment: Experiment,
        parameters: Parameters,
        orders: Int[Array, "people shown"],
        noise: Float[Array, "people shown"],
    ) -> Int[Array, "people shown"]:
        """The option chosen in each trial, given the stimuli's order and uniform noise in [0, 1)."""
        ...


def choice_chance(gap: Array, beta: Array | float, lapse: Array | float) -> Array:
    """P(B) by a softmax of the scores with lapses: ``(1 - lapse) / (1 + exp(-beta * gap)) + lapse / 2``.

    Source: arXiv:2606.26448 (code).
    """
    from scipy.special import expit

    # expit saturates where 1 / (1 + exp(-x)) would overflow: 20 * gap is large for graded ratings.
    chance: Array = (1 - np.asarray(lapse)) * expit(np.asarray(beta) * gap) + np.asarray(lapse) / 2
    return chance


def follow(
    chances: Float[Array, "people 3 stimuli"],
    orders: Int[Array, "people shown"],
    noise: Float[Array, "people shown"],
    *,
    reads_history: bool = True,
) -> Int[Array, "people shown"]:
    """Choices by inverse sampling, each from the chance after the one before it: B where noise < P(B)."""
    people, shown = orders.shape
    rows = np.arange(people)
    if not reads_history:
        chosen: Int[Array, "people shown"] = (noise < chances[rows[:, None], 0, orders]).astype(np.int64)
        return chosen
    responses = np.empty((people, shown), dtype=np.int64)
    # 0: nothing was chosen yet; else 1 more than the option, as the rows of `chances` are.
    before = np.zeros(people, dtype=np.int64)
    for trial in range(shown):
        responses[:, trial] = noise[:, trial] < chances[rows, before, orders[:, trial]]
        before = responses[:, trial] + 1
    return responses


@final
@dataclass(frozen=True, slots=True)
class Rule:
    """A theory in our own code: a score difference on arrays, softmax with lapses, and perhaps a last choice.

    ``gap`` maps an experiment and parameters to score(B) - score(A) [people, stimuli]. Parameters ``beta``
    (inverse temperature) and ``lapse`` belong to every rule; ``history`` adds +1 or -1 to the score of the
    option chosen before.
    """

    name: str
    domain: str
    priors: Mapping[str, Prior]
    gap: Gap
    history: History = "none"
    words: str = ""

    def __post_init__(self) -> None:
        if self.history not in _CARRY:
            raise BadInput(f"unknown history {self.history!r}", hint=f"one of {', '.join(_CARRY)}")
        if missing := {"beta", "lapse"} - set(self.priors):
            raise BadInput(f"rule {self.name!r} has no prior of {' and '.join(sorted(missing))}")

    @property
    def reads_history(self) -> bool:
        """Whether the last choice counts."""
        return self.history != "none"

    def draw(self, experiment: Experiment, people: int, rng: np.random.Generator) -> Parameters:
        """Parameters of people, from the priors. Raises BadInput for an experiment of another domain."""
        self._check(experiment)
        return sample_priors(self.priors, rng, people, experiment.context())

    def chances(self, experiment: Experiment, parameters: Parameters) -> Float[Array, "people 3 stimuli"]:
        """P(B) at each stimulus after no choice, after A and after B."""
        self._check(experiment)
        gap = np.asarray(self.gap(experiment, parameters), dtype=np.float64)
        beta, lapse = parameters["beta"][:, None], parameters["lapse"][:, None]
        carry = _CARRY[self.history]
        if not carry:
            chance = choice_chance(gap, beta, lapse)[:, None]
            alike: Float[Array, "people 3 stimuli"] = np.broadcast_to(chance, (len(gap), 3, gap.shape[1]))
            return alike
        # The rows are no choice, A, B. The gap is B's score less A's, so an A before counts negatively.
        return np.stack([choice_chance(gap + carry * side, beta, lapse) for side in (0.0, -1.0, 1.0)], axis=1)

    def respond(
        self,
        experiment: Experiment,
        parameters: Parameters,
        orders: Int[Array, "people shown"],
        noise: Float[Array, "people shown"],
    ) -> Int[Array, "people shown"]:
        """The option chosen in each trial."""
        chances = self.chances(experiment, parameters)
        return follow(chances, orders, noise, reads_history=self.reads_history)

    def _check(self, experiment: Experiment) -> None:
        check_domain(self.name, self.domain, experiment)


def check_domain(name: str, domain: str, experiment: Experiment) -> None:
    """Raise BadInput where a theory's domain is not the experiment's."""
    if experiment.domain != domain:
        raise BadInput(f"theory {name!r} is about {domain}, and the experiment about {experiment.domain}")
