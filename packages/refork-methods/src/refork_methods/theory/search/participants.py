"""Who answers an experiment: people drawn from a hidden theory, or people whose choices are in a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, final, runtime_checkable

import numpy as np

from refork.errors import BadInput
from refork.plain import content_hash
from refork.sandbox import Sandbox
from refork.types import Json
from refork_methods.theory.chooser import Chooser
from refork_methods.theory.experiment import Experiment
from refork_methods.theory.grammar import Domain
from refork_methods.theory.read import Foreign, read_choices
from refork_methods.theory.search.spec import TheorySpec, spec_of
from refork_methods.theory.simulate import simulate
from refork_methods.theory.trials import Observation, Trials


@runtime_checkable
class Participants(Protocol):
    """Answers experiments. The same experiment and seed give the same choices, or none at all."""

    @property
    def name(self) -> str:
        """Who they are, with all that matters, for the record."""
        ...

    @property
    def offers(self) -> tuple[Experiment, ...] | None:
        """The only experiments that they answer; None: any."""
        ...

    def remaining_people(self, experiment: Experiment, planned: int) -> int:
        """How many people will be left to compare, as far as is known before anybody answers."""
        ...

    def answer(self, experiment: Experiment, people: int, seed: int) -> Trials:
        """Their choices."""
        ...

    def held_out(self, domain: Domain, count: int, people: int, seed: int) -> tuple[Observation, ...]:
        """Observations that no round opens."""
        ...


@final
class SimulatedPeople:
    """People drawn from a theory that the search does not see; a share of their choices is a coin's."""

    def __init__(self, spec: TheorySpec, domain: Domain, sandbox: Sandbox, random_share: float = 0.0) -> None:
        if not 0 <= random_share <= 1:
            raise BadInput(f"the share of random choices is {random_share}; it must lie in [0, 1]")
        self._chooser: Chooser = spec.chooser("hidden", domain, sandbox)
        self._share, self._spec = random_share, spec

    @property
    def name(self) -> str:
        """With the digest of the theory and the share of random choices."""
        return f"simulated:{self._spec.rule or self._spec.digest[:12]}, noise {self._share:g}"

    @property
    def offers(self) -> None:
        """Any experiment."""
        return

    def remaining_people(self, experiment: Experiment, planned: int) -> int:
        """All."""
        del experiment
        return planned

    def answer(self, experiment: Experiment, people: int, seed: int) -> Trials:
        """Their choices."""
        return simulate(self._chooser, experiment, people, seed, random_share=self._share)

    def held_out(self, domain: Domain, count: int, people: int, seed: int) -> tuple[Observation, ...]:
        """Fresh random designs, answered by fresh people."""
        found = []
        for number in range(count):
            rng = np.random.default_rng([seed, number])
            design = domain.design(rng)
            trials = self.answer(design, people, int(rng.integers(2**31)))
            found.append(Observation(f"held out {number + 1}", design, trials))
        return tuple(found)


@final
class RecordedPeople:
    """People whose choices lie in a file: designs are what the file has, each opened at most once.

    Choices of an experiment are looked at only after it was chosen. The ``count`` held-out observations are
    drawn by the seed, and are never offered.
    """

    def __init__(self, observations: Sequence[Observation], name: str, held_out: int, seed: int) -> None:
        if held_out >= len(observations):
            raise BadInput(
                f"{held_out} of {len(observations)} observations held out leave none to search on",
                hint="--hold-out with a smaller number",
            )
        designs = [content_hash(one.experiment.to_json()) for one in observations]
        again = next(
            (one for one, key in zip(observations, designs, strict=True) if designs.count(key) > 1), None
        )
        if again is not None:
            raise BadInput(
                "several observations have one design, which can be chosen and held out but once",
                where=f"observation {again.name!r} of {name}",
                hint="give their people in one observation",
            )
        order = np.random.default_rng([seed, len(observations)]).permutation(len(observations))
        kept = set(order[:held_out].tolist())
        self._held = tuple(one for i, one in enumerate(observations) if i in kept)
        self._open = {
            content_hash(o.experiment.to_json()): o for i, o in enumerate(observations) if i not in kept
        }
        self._name = name

    @property
    def name(self) -> str:
        """The file's digest is in it: other choices are other people."""
        return self._name

    @property
    def offers(self) -> tuple[Experiment, ...]:
        """The designs of the file, but those held out."""
        return tuple(one.experiment for one in self._open.values())

    def remaining_people(self, experiment: Experiment, planned: int) -> int:
        """How many people the file has of it."""
        del planned
        return len(self._of(experiment).trials.people)

    def answer(self, experiment: Experiment, people: int, seed: int) -> Trials:
        """All choices of it."""
        del people, seed
        return self._of(experiment).trials

    def held_out(self, domain: Domain, count: int, people: int, seed: int) -> tuple[Observation, ...]:
        """Those that were kept back."""
        del domain, count, people, seed
        return self._held

    def _of(self, experiment: Experiment) -> Observation:
        found = self._open.get(content_hash(experiment.to_json()))
        if found is None:
            raise BadInput("the file has no choices of this experiment", where=self._name)
        return found


def open_participants(
    spec: str,
    domain: Domain,
    sandbox: Sandbox,
    *,
    random_share: float = 0.0,
    held_out: int = 0,
    seed: int = 0,
    foreign: Foreign = "drop",
) -> Participants:
    """``simulated:THEORY`` (as :func:`refork_methods.theory.search.spec.spec_of`), or ``csv:FILE``.

    Raises: BadInput for another kind, or a file or theory that is none or of another domain.
    """
    kind, _, rest = spec.partition(":")
    if kind == "simulated" and rest:
        return SimulatedPeople(spec_of(rest, domain), domain, sandbox, random_share)
    if kind != "csv" or not rest:
        raise BadInput(f"participants {spec!r}", hint="simulated:THEORY, or csv:FILE")
    if random_share:
        raise BadInput("noise is added to simulated people only", where=spec)
    read = read_choices(Path(rest), foreign=foreign)
    if read.observations[0].experiment.domain != domain.name:
        raise BadInput(f"the choices are not about {domain.name}", where=rest)
    # By what the file holds, not by its path: the same choices elsewhere go on with the same search.
    told: Json = {
        "trials": [
            [one.name, one.experiment.to_json(), one.trials.person.tolist(), one.trials.stimulus.tolist(),
             one.trials.response.tolist()]
            for one in read.observations
        ]
    }  # fmt: skip
    return RecordedPeople(read.observations, f"csv:{content_hash(told)[:16]}", held_out, seed)
