"""Choice between two options that experts rate: cues with validities, ratings of each option."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
from jaxtyping import Float

from refork.errors import BadInput
from refork.stats.results import Array
from refork.types import Json

DOMAIN: Final = "cues"
#: The highest rating; the lowest is 0.
TOP: Final = 10


@final
@dataclass(frozen=True, slots=True)
class CueExperiment:
    """Pairs of options, each rated by the same experts (cues) of known validity.

    ``validities``: chance that a cue is right, one for each cue, in [0.5, 1]. ``a`` and ``b``: whole ratings
    of the options, one row for each pair; 0 or 1 in the binary case, 0 to 10 in the graded one.

    Raises: BadInput for anything outside these ranges, ragged rows, no pair, or options that never differ.
    Source: arXiv:2606.26448.
    """

    validities: tuple[float, ...]
    a: tuple[tuple[int, ...], ...]
    b: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if not self.validities:
            raise BadInput("an experiment needs at least one cue")
        for value in self.validities:
            if not 0.5 <= value <= 1:
                raise BadInput(f"a validity is {value}; it must lie in [0.5, 1]")
        if not self.a or len(self.a) != len(self.b):
            raise BadInput(
                f"{len(self.a)} options A and {len(self.b)} options B", hint="as many, and one or more"
            )
        for row in (*self.a, *self.b):
            if len(row) != len(self.validities):
                raise BadInput(f"an option has {len(row)} ratings, and there are {len(self.validities)} cues")
            if any(isinstance(x, bool) or not isinstance(x, int) or not 0 <= x <= TOP for x in row):
                raise BadInput(f"the ratings {list(row)} must be whole numbers from 0 to {TOP}")
        if self.a == self.b:
            raise BadInput("the two options are the same in every pair: no theory can be told from another")

    @classmethod
    def of(
        cls, validities: Sequence[Any], a: Sequence[Sequence[Any]], b: Sequence[Sequence[Any]]
    ) -> CueExperiment:
        """An experiment from any sequences of numbers. Raises BadInput as the class, or for no numbers."""
        try:
            found = tuple(float(v) for v in validities)
            rows = [tuple(tuple(_whole(x) for x in row) for row in side) for side in (a, b)]
        except (TypeError, ValueError) as error:
            raise BadInput("validities and ratings must be lists of numbers") from error
        if not all(math.isfinite(v) for v in found):
            raise BadInput("a validity is not finite")
        return cls(found, rows[0], rows[1])

    @property
    def domain(self) -> str:
        """Always ``cues``."""
        return DOMAIN

    @property
    def stimuli(self) -> int:
        """How many pairs there are."""
        return len(self.a)

    @property
    def binary(self) -> bool:
        """Whether every rating is 0 or 1."""
        return all(x in (0, 1) for row in (*self.a, *self.b) for x in row)

    def context(self) -> Json:
        """``validities`` and ``n_features``."""
        return {"validities": list(self.validities), "n_features": len(self.validities)}

    def stimulus(self, index: int) -> Json:
        """``validities`` and the ratings ``a`` and ``b`` of one pair."""
        return {"validities": list(self.validities), "a": list(self.a[index]), "b": list(self.b[index])}

    def weights(self) -> Float[Array, "cues"]:
        """The validities as an array."""
        return np.asarray(self.validities, dtype=np.float64)

    def ratings(self) -> Float[Array, "stimuli 2 cues"]:
        """Ratings of A and B."""
        return np.stack([np.asarray(self.a, dtype=np.float64), np.asarray(self.b, dtype=np.float64)], axis=1)

    def differences(self) -> Float[Array, "stimuli cues"]:
        """Rating of B less rating of A."""
        both = self.ratings()
        return both[:, 1] - both[:, 0]

    def to_json(self) -> Json:
        """The design as plain JSON, with the published names."""
        return {
            "domain": DOMAIN,
            "validities": list(self.validities),
            "trial_a_ratings": [list(row) for row in self.a],
            "trial_b_ratings": [list(row) for row in self.b],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], where: str | None = None) -> CueExperiment:
        """Inverse of :meth:`to_json`. Raises BadInput naming the field that is missing or wrong."""
        names = ("validities", "trial_a_ratings", "trial_b_ratings")
        for name in names:
            if not isinstance(data.get(name), list):
                raise BadInput(f"the experiment has no list {name!r}", where=where)
        try:
            return cls.of(*(data[name] for name in names))
        except BadInput as error:
            raise BadInput(error.what, where=where, hint=error.hint) from error


def _whole(value: Any) -> int:
    # JSON may say 1.0 for 1, and True is an int in Python.
    if isinstance(value, bool | str) or int(value) != value:
        raise ValueError(value)
    return int(value)
