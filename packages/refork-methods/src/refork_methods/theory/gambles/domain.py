"""Choice between gambles, as the search sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from refork_methods.theory.chooser import Rule
from refork_methods.theory.gambles import rules as all_rules
from refork_methods.theory.gambles.experiment import DOMAIN, GambleExperiment, random_gambles
from refork_methods.theory.gambles.grammar import gamble_grammar
from refork_methods.theory.grammar import Grammar

NAME: Final = DOMAIN
#: Pairs of a random design: four repetitions of each within 96 trials.
PAIRS: Final = 24
WORDS: Final = """\
People choose between two gambles, A and B. A stimulus is a dictionary with `a` and `b`, each a list of
[outcome, chance] whose chances sum to 1, and `scale`, the largest amount in the experiment. Priors may name
`scale`. An experiment is {"a": [[[100, 0.5], [0, 0.5]], ...], "b": [[[40, 1.0]], ...]}: one gamble on each
side for each pair; amounts below 0 are losses."""


def rules() -> tuple[Rule, ...]:
    """All theories that come along."""
    return *all_rules.standard_rules(), all_rules.random_choice()


def ranked() -> tuple[Rule, ...]:
    """Those that are ranked unless others are asked for."""
    return all_rules.standard_rules()


def grammar() -> Grammar:
    """The grammar."""
    return gamble_grammar()


def design(rng: np.random.Generator) -> GambleExperiment:
    """A random design of gains, losses and mixed gambles."""
    return random_gambles(rng, PAIRS)


def read(data: Mapping[str, Any], where: str | None = None) -> GambleExperiment:
    """A design from plain JSON. Raises BadInput."""
    return GambleExperiment.from_json(data, where)
