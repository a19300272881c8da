"""What people chose: who, which stimulus, which option, in trial order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float, Int

from refork.errors import BadInput
from refork.stats.results import Array
from refork_methods.theory.experiment import Experiment


@final
@dataclass(frozen=True, slots=True, eq=False)
class Trials:
    """Choices of people, in the order in which each person made them.

    ``person`` and ``stimulus`` are numbers from 0, ``response`` is 0 (A) or 1 (B); all have one length.

    Raises: BadInput for unequal lengths, negative numbers, another response, or no trial at all.
    """

    person: Int[Array, "trials"]
    stimulus: Int[Array, "trials"]
    response: Int[Array, "trials"]

    def __post_init__(self) -> None:
        for name in ("person", "stimulus", "response"):
            # np.array copies: the flag below must not be set on the caller's array.
            array = np.array(getattr(self, name), dtype=np.int64).reshape(-1)
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        if not len(self.person) == len(self.stimulus) == len(self.response):
            raise BadInput("persons, stimuli and responses of trials must have one length")
        if not self.person.size:
            raise BadInput("there are no trials")
        if min(self.person.min(), self.stimulus.min()) < 0:
            raise BadInput("persons and stimuli are numbered from 0")
        if not np.isin(self.response, (0, 1)).all():
            raise BadInput("a response is 0 (option A) or 1 (option B)")

    @classmethod
    def of_table(cls, orders: Int[Array, "people shown"], responses: Int[Array, "people shown"]) -> Trials:
        """Trials of people who all saw equally many."""
        people, shown = orders.shape
        return cls(np.repeat(np.arange(people), shown), orders.reshape(-1), responses.reshape(-1))

    @property
    def people(self) -> tuple[int, ...]:
        """Numbers of the people who gave a response, ascending."""
        return tuple(np.flatnonzero(np.bincount(self.person)).tolist())

    def of(self, person: int) -> Trials:
        """One person's trials. Raises BadInput where there are none."""
        return self.where(self.person == person)

    def where(self, mask: Array) -> Trials:
        """The trials that a mask [trials] keeps. Raises BadInput where it keeps none."""
        return Trials(self.person[mask], self.stimulus[mask], self.response[mask])

    def counts(self, stimuli: int) -> tuple[Float[Array, "people stimuli"], Float[Array, "people stimuli"]]:
        """How often each person chose B, and how often they were shown it, of each of the stimuli.

        Rows are in the order of :attr:`people`. Raises BadInput for a stimulus that is not among them.
        """
        if int(self.stimulus.max()) >= stimuli:
            raise BadInput(f"a trial shows stimulus {int(self.stimulus.max())}, and there are {stimuli}")
        people = self.people
        # People's numbers may have gaps, as after an exclusion: rows are ranks.
        cells = np.searchsorted(np.asarray(people), self.person) * stimuli + self.stimulus
        shape, size = (len(people), stimuli), len(people) * stimuli
        shown = np.bincount(cells, minlength=size).astype(np.float64)
        chosen = np.bincount(cells, weights=self.response, minlength=size)
        return chosen.reshape(shape), shown.reshape(shape)

    def rates(self, stimuli: int) -> Float[Array, "stimuli"]:
        """Share of B among all choices of each stimulus; NaN where it was never shown."""
        if int(self.stimulus.max()) >= stimuli:
            raise BadInput(f"a trial shows stimulus {int(self.stimulus.max())}, and there are {stimuli}")
        total = np.bincount(self.stimulus, minlength=stimuli)
        chosen = np.bincount(self.stimulus, weights=self.response, minlength=stimuli)
        rates: Float[Array, "stimuli"] = np.full(stimuli, np.nan)
        np.divide(chosen, total, out=rates, where=total > 0)
        return rates


@final
@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """An experiment and what people chose in it. ``name`` says which one it is, for messages and tables.

    Raises: BadInput for a trial of a stimulus that the experiment has not.
    """

    name: str
    experiment: Experiment
    trials: Trials

    def __post_init__(self) -> None:
        if int(self.trials.stimulus.max()) >= self.experiment.stimuli:
            raise BadInput("a trial shows a stimulus that the experiment has not", where=self.name)
