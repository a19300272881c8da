"""Simulated participants: people drawn from a theory's priors, who answer an experiment."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from refork.errors import BadInput
from refork.stats.results import Array
from refork_methods.theory.chooser import Chooser
from refork_methods.theory.experiment import TRIALS, Experiment, generator, trial_orders
from refork_methods.theory.priors import Parameters
from refork_methods.theory.trials import Trials

#: People evaluated at a time: bounds memory, and changes no result.
_BLOCK = 1000


def simulate(
    chooser: Chooser,
    experiment: Experiment,
    people: int,
    seed: int,
    *,
    random_share: float = 0.0,
    shared_order: bool = False,
    parameters: Parameters | None = None,
    trials: int = TRIALS,
) -> Trials:
    """What people drawn from a theory's priors choose; with chance ``random_share`` they toss a coin instead.

    One seed gives every theory the same orders and the same noise, so their difference is the theories'.
    ``parameters`` replaces the draw from the priors.

    Raises: BadInput for no people, a share outside [0, 1], or an experiment of another domain.
    """
    if not 0 <= random_share <= 1:
        raise BadInput(f"the share of random choices is {random_share}; it must lie in [0, 1]")
    orders = trial_orders(experiment, people, seed, shared=shared_order, trials=trials)
    drawn = parameters
    if drawn is None:
        drawn = chooser.draw(experiment, people, generator(seed, "parameters"))
    noise = generator(seed, "choices").random(orders.shape)
    responses = chooser.respond(experiment, drawn, orders, noise)
    if random_share:
        # Two numbers a trial, whether it is tossed or not: the share does not move the other choices.
        coins = generator(seed, "lapses").random((*orders.shape, 2))
        tossed = (coins[..., 1] < 0.5).astype(np.int64)
        responses = np.where(coins[..., 0] < random_share, tossed, responses)
    return Trials.of_table(orders, responses)


def predicted_rates(
    chooser: Chooser, experiment: Experiment, draws: int, seed: int
) -> Float[Array, "stimuli"]:
    """P(B) of each stimulus by the theory's priors alone: nothing is fitted.

    A theory without a memory is averaged over ``draws`` of its parameters, without choosing; one that reads
    the history is simulated in shuffled order.

    Raises: BadInput for no draws, or an experiment of another domain.
    Source: arXiv:2606.26448 draws choices too; the mean of their chances has the same expectation.
    """
    return prior_predictions(chooser, experiment, draws, seed)[0]


def prior_predictions(
    chooser: Chooser, experiment: Experiment, draws: int, seed: int
) -> tuple[Float[Array, "stimuli"], Float[Array, "stimuli"]]:
    """:func:`predicted_rates`, and the variance that each has from drawing finitely often.

    Raises: BadInput as :func:`predicted_rates`.
    """
    if draws < 1:
        raise BadInput(f"{draws} draws of the priors", hint="at least one")
    if chooser.reads_history:
        runs = simulate(chooser, experiment, draws, seed)
        rates = runs.rates(experiment.stimuli)
        chosen, shown = runs.counts(experiment.stimuli)
        spread = ((chosen / shown - rates) ** 2).mean(axis=0)
    else:
        parameters = chooser.draw(experiment, draws, generator(seed, "parameters"))
        total, squares = np.zeros((2, experiment.stimuli))
        for start in range(0, draws, _BLOCK):
            part = {name: values[start : start + _BLOCK] for name, values in parameters.items()}
            chances = chooser.chances(experiment, part)[:, 0]
            total += chances.sum(axis=0)
            squares += (chances**2).sum(axis=0)
        rates = total / draws
        spread = np.maximum(squares / draws - rates**2, 0)
    # One draw shows no spread: the greatest that chances of this mean can have.
    variance: Float[Array, "stimuli"] = spread / (draws - 1) if draws > 1 else rates * (1 - rates)
    return rates, variance
