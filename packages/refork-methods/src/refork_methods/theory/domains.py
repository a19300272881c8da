"""What the search needs of a domain: designs, theories, a grammar of theories, and words for a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from refork.errors import BadInput
from refork_methods.theory.chooser import Rule
from refork_methods.theory.cues import domain as cues
from refork_methods.theory.experiment import Experiment
from refork_methods.theory.gambles import domain as gambles
from refork_methods.theory.grammar import Grammar


@final
@dataclass(frozen=True, slots=True)
class Domain:
    """One kind of choice. Nothing of the loop knows more of it than this.

    ``rules`` are all theories by name, ``ranked`` those scored unless others are asked for. ``design`` draws
    an experiment. ``read`` makes one of plain JSON. ``words`` tell a model what stimuli and designs are.
    """

    name: str
    rules: Callable[[], tuple[Rule, ...]]
    ranked: Callable[[], tuple[Rule, ...]]
    grammar: Callable[[], Grammar]
    design: Callable[[np.random.Generator], Experiment]
    read: Callable[[Mapping[str, Any], str | None], Experiment]
    words: str


DOMAINS: Final[Mapping[str, Domain]] = {
    one.NAME: Domain(one.NAME, one.rules, one.ranked, one.grammar, one.design, one.read, one.WORDS)
    for one in (cues, gambles)
}


def domain_named(name: str) -> Domain:
    """A domain. Raises BadInput for another name."""
    if name not in DOMAINS:
        raise BadInput(f"no domain {name!r}", hint=f"one of {', '.join(DOMAINS)}")
    return DOMAINS[name]
