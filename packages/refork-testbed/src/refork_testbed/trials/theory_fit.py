"""A rule's parameters fitted to one person's choices: to check that a theory's parameters can be recovered.

Scores of theories are never fitted (:mod:`refork_methods.theory.predictive`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

import numpy as np
from jaxtyping import Float

from refork.errors import BadInput, CannotDo
from refork.stats.results import Array
from refork_methods.theory.chooser import Rule
from refork_methods.theory.experiment import Experiment, generator
from refork_methods.theory.priors import Fixed, Parameters, Uniform
from refork_methods.theory.trials import Trials

#: Chances nearer to 0 or 1 than this count as this near.
_TINY: Final = 1e-9


@final
@dataclass(frozen=True, slots=True)
class Fit:
    """Most likely parameters within the priors' ranges. ``log_likelihood`` is in nats, over ``choices``."""

    parameters: dict[str, float]
    log_likelihood: float
    choices: int


def log_likelihoods(
    rule: Rule,
    experiment: Experiment,
    parameters: Parameters,
    chosen: Float[Array, "stimuli"],
    presentations: Float[Array, "stimuli"],
) -> Float[Array, "people"]:
    """Log-likelihood, in nats, of counts of B among choices, under each row of parameters.

    Raises: CannotDo for a rule that reads the history, whose choices are not counts.
    """
    if rule.reads_history:
        raise CannotDo(
            f"rule {rule.name!r} reads the history; it is not fitted", hint="fit it without history"
        )
    chance = np.clip(rule.chances(experiment, parameters)[:, 0], _TINY, 1 - _TINY)
    likely: Float[Array, "people"] = np.log(chance) @ chosen + np.log1p(-chance) @ (presentations - chosen)
    return likely


def fit(
    rule: Rule, experiment: Experiment, trials: Trials, seed: int, *, screened: int = 2000, starts: int = 4
) -> Fit:
    """The parameters under which all the trials are most likely, as if one person had made them.

    ``screened`` draws of the priors are tried, and the best ``starts`` of them climbed from.

    Raises: BadInput for no start; CannotDo for a prior that is neither uniform nor fixed, and as
        :func:`log_likelihoods`.
    """
    from scipy.optimize import minimize

    if not 1 <= starts <= screened:
        raise BadInput(f"{starts} starts among {screened} draws", hint="at least one, and no more than draws")
    free, fixed = [], {}
    for name, prior in rule.priors.items():
        if isinstance(prior, Uniform) and prior.times is None and prior.low < prior.high:
            free.append((name, prior))
        elif isinstance(prior, Fixed):
            fixed[name] = prior.value
        else:
            raise CannotDo(
                f"the prior {prior.text()} of {name!r} is not fitted", hint="one uniform value, or fixed"
            )
    chosen, shown = (part.sum(axis=0) for part in trials.counts(experiment.stimuli))
    low = np.asarray([prior.low for _, prior in free])
    width = np.asarray([prior.high - prior.low for _, prior in free])

    def loss(at: Float[Array, "rows free"]) -> Float[Array, "rows"]:
        rows = low + at * width
        parameters = {name: rows[:, i] for i, (name, _) in enumerate(free)}
        parameters |= {name: np.full(len(rows), one) for name, one in fixed.items()}
        return -log_likelihoods(rule, experiment, parameters, chosen, shown)

    if not free:  # nothing to climb for
        return Fit(fixed, -float(loss(np.zeros((1, 0)))[0]), int(shown.sum()))

    def slope(at: Float[Array, "free"]) -> tuple[float, Float[Array, "free"]]:
        step = 1e-5
        sides = np.where(at > 0.5, -step, step)  # never out of the range
        values = loss(np.concatenate([at[None], at + np.diag(sides)]))
        return float(values[0]), (values[1:] - values[0]) / sides

    grid = generator(seed, "starts").random((screened, len(free)))
    best = grid[np.argsort(loss(grid), kind="stable")[:starts]]
    found = [
        minimize(slope, start, jac=True, method="L-BFGS-B", bounds=[(0, 1)] * len(free)) for start in best
    ]
    top = min(found, key=lambda one: float(one.fun))
    values = low + np.asarray(top.x) * width
    parameters = {name: float(values[i]) for i, (name, _) in enumerate(free)} | fixed
    return Fit(parameters, -float(top.fun), int(shown.sum()))
