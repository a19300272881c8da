"""Choice from cues, as the search sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from refork_methods.theory.chooser import Rule
from refork_methods.theory.cues import rules as all_rules
from refork_methods.theory.cues.designs import random_design
from refork_methods.theory.cues.experiment import DOMAIN, CueExperiment
from refork_methods.theory.cues.grammar import cue_grammar
from refork_methods.theory.grammar import Grammar

NAME: Final = DOMAIN
WORDS: Final = """\
People choose between two options, A and B, that the same experts (cues) rate. A stimulus is a dictionary with
`validities` (chance that each expert is right, 0.5 to 1) and the whole ratings `a` and `b` of the options.
Priors may name `validities` and `n_features`. An experiment is
{"validities": [0.9, 0.8, 0.7], "trial_a_ratings": [[1, 0, 0], ...], "trial_b_ratings": [[0, 1, 1], ...]}:
one row of ratings, 0 to 10, for each pair."""


def rules() -> tuple[Rule, ...]:
    """All theories that come along."""
    return (
        *all_rules.standard_rules(),
        all_rules.equal_weight(),
        all_rules.satisficing_wadd(),
        *all_rules.stress_rules(),
        all_rules.random_choice(),
    )


def ranked() -> tuple[Rule, ...]:
    """Those that are ranked unless others are asked for."""
    return all_rules.standard_rules()


def grammar() -> Grammar:
    """The grammar."""
    return cue_grammar()


def design(rng: np.random.Generator) -> CueExperiment:
    """A random binary design."""
    return random_design(rng)


def read(data: Mapping[str, Any], where: str | None = None) -> CueExperiment:
    """A design from plain JSON. Raises BadInput."""
    return CueExperiment.from_json(data, where)
