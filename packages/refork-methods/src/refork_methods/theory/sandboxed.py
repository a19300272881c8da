"""A theory's own code as a participant: every call of it runs in a sandbox, under limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, final

import numpy as np
from jaxtyping import Float, Int

from refork.errors import BadInput, CannotDo
from refork.sandbox import Limits, Sandbox
from refork.stats.results import Array
from refork_methods.theory.chooser import check_domain
from refork_methods.theory.experiment import Experiment, generator, trial_orders
from refork_methods.theory.priors import Parameters, sample_priors
from refork_methods.theory.theory_file import Theory

#: Wall time, memory and size of one call into the sandbox; no call out of it.
LIMITS: Final = Limits(seconds=10.0, calls=0)
#: Choices asked for in one call.
_BLOCK: Final = 20_000
#: Runs beside the theory's code. History is a tuple of {"stimulus", "response"}, oldest first.
_DRIVER: Final = """

def refork_copy(value):
    if isinstance(value, dict):
        return {name: refork_copy(one) for name, one in value.items()}
    return [refork_copy(one) for one in value] if isinstance(value, list) else value


def refork_probs(parameters, stimulus, history):
    chances = predict(dict(parameters), stimulus, history)
    if not isinstance(chances, (list, tuple)) or len(chances) != 2:
        raise ValueError("predict must return two probabilities, and returned " + repr(chances)[:200])
    chances = [float(chances[0]), float(chances[1])]
    if not (chances[0] >= 0 and chances[1] >= 0 and abs(chances[0] + chances[1] - 1) <= 1e-6):
        raise ValueError("predict returned " + repr(chances) + ": two chances that sum to 1 are needed")
    return chances


def refork_chances(apis, tools, people, stimuli):
    return [[refork_probs(p, refork_copy(s), ())[1] for s in stimuli] for p in people]


def refork_respond(apis, tools, people, stimuli, orders, noise, remember):
    answers = []
    for p, order, numbers in zip(people, orders, noise):
        history, row = (), []
        for shown, number in zip(order, numbers):
            action = policy(refork_probs(p, refork_copy(stimuli[shown]), history), number)
            if isinstance(action, bool) or action not in (0, 1):
                raise ValueError("policy must return 0 or 1, and returned " + repr(action)[:200])
            row.append(action)
            if remember:
                history = history + ({"stimulus": refork_copy(stimuli[shown]), "response": action},)
        answers.append(row)
    return answers
"""


@final
class SandboxedTheory:
    """A :class:`Theory` that can be simulated. The sandbox is the caller's, and stays open.

    Every method that runs the code raises BadInput where the sandbox refuses it, or where it fails, runs
    over a limit, or returns no chances.
    """

    def __init__(self, theory: Theory, sandbox: Sandbox) -> None:
        self.theory = theory
        self._sandbox = sandbox
        self._source = theory.source + _DRIVER
        self._reads_history = theory.reads_history

    @property
    def name(self) -> str:
        """The theory's name."""
        return self.theory.name

    @property
    def domain(self) -> str:
        """The theory's domain."""
        return self.theory.domain

    @property
    def reads_history(self) -> bool:
        """Whether ``predict`` names its history."""
        return self._reads_history

    def draw(self, experiment: Experiment, people: int, rng: np.random.Generator) -> Parameters:
        """Parameters of people, from the priors. Raises BadInput for an experiment of another domain."""
        check_domain(self.name, self.domain, experiment)
        return sample_priors(self.theory.parameters, rng, people, experiment.context())

    def chances(self, experiment: Experiment, parameters: Parameters) -> Float[Array, "people 3 stimuli"]:
        """P(B) at each stimulus: the same whatever was chosen before.

        Raises: CannotDo where ``predict`` reads its history, which may be longer than one choice.
        """
        if self.reads_history:
            raise CannotDo(
                f"theory {self.name!r} reads the whole history, so it has no table of chances",
                hint="simulate it",
            )
        people = _rows(parameters, _people(parameters))
        stimuli = [experiment.stimulus(i) for i in range(experiment.stimuli)]
        step = max(1, _BLOCK // len(stimuli))
        rows: list[list[float]] = []
        for start in range(0, len(people), step):
            part = people[start : start + step]
            rows += self._run("refork_chances", {"people": part, "stimuli": stimuli}, len(part))
        table = self._table(rows, (len(people), len(stimuli)))
        # The driver has checked this too, but it runs beside the theory's code, which is not to be trusted.
        if not ((table >= 0) & (table <= 1)).all():
            raise BadInput("predict returned what is no chance", where=f"theory {self.name!r}")
        return np.broadcast_to(table[:, None], (len(people), 3, len(stimuli)))

    def respond(
        self,
        experiment: Experiment,
        parameters: Parameters,
        orders: Int[Array, "people shown"],
        noise: Float[Array, "people shown"],
    ) -> Int[Array, "people shown"]:
        """The option chosen in each trial, by ``predict`` and ``policy``."""
        people, shown = orders.shape
        rows = _rows(parameters, people)
        stimuli = [experiment.stimulus(i) for i in range(experiment.stimuli)]
        step = max(1, _BLOCK // shown)
        answers: list[list[float]] = []
        for start in range(0, people, step):
            end = min(people, start + step)
            job = {
                "people": rows[start:end],
                "stimuli": stimuli,
                "orders": orders[start:end].tolist(),
                "noise": noise[start:end].tolist(),
                "remember": self.reads_history,
            }
            answers += self._run("refork_respond", job, end - start)
        table = self._table(answers, (people, shown))
        if not np.isin(table, (0, 1)).all():
            raise BadInput("policy returned what is no option", where=f"theory {self.name!r}")
        return table.astype(np.int64)

    def _run(self, name: str, arguments: Mapping[str, Any], expected: int) -> list[list[float]]:
        result = self._sandbox.run(self._source, name, arguments)
        where = f"theory {self.name!r}"
        if not result.ok:
            raise BadInput(f"its code ended by {result.kind}: {result.error}", where=where)
        if not isinstance(result.value, list) or len(result.value) != expected:
            raise BadInput("its code returned no answer for each person", where=where)
        return result.value

    def _table(self, rows: list[list[float]], shape: tuple[int, int]) -> Float[Array, "people columns"]:
        try:
            table = np.asarray(rows, dtype=np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise BadInput("its code returned no table of numbers", where=f"theory {self.name!r}") from error
        if table.shape != shape:
            raise BadInput(f"its code returned a table of shape {table.shape}", where=f"theory {self.name!r}")
        return table


def _people(parameters: Parameters) -> int:
    """How many people there are: a theory without parameters has one kind of person."""
    return next((len(values) for values in parameters.values()), 1)


def _rows(parameters: Parameters, people: int) -> list[dict[str, Any]]:
    """One dictionary of plain values for each person."""
    columns = {name: values.tolist() for name, values in parameters.items()}
    return [{name: column[i] for name, column in columns.items()} for i in range(people)]


def check_theory(theory: SandboxedTheory, experiment: Experiment, seed: int, *, people: int = 4) -> None:
    """Run a theory on few people, forwards and backwards: only its arguments may count.

    Raises: BadInput where the code fails, returns no chances, or remembers people it has seen.
    """
    parameters = theory.draw(experiment, people, generator(seed, "parameters"))
    orders = trial_orders(experiment, people, seed)
    noise = generator(seed, "choices").random(orders.shape)
    forwards = theory.respond(experiment, parameters, orders, noise)
    turned = {name: values[::-1] for name, values in parameters.items()}
    backwards = theory.respond(experiment, turned, orders[::-1], noise[::-1])[::-1]
    if not (forwards == backwards).all():
        raise BadInput(
            "its choices depend on who was simulated before",
            where=f"theory {theory.name!r}",
            hint="predict and policy must be functions of their arguments",
        )
