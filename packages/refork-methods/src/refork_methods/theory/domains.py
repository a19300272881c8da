"""The kinds of choice that there are theories of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from refork.errors import BadInput
from refork_methods.theory.cues.rules import CUES
from refork_methods.theory.gambles.rules import GAMBLES
from refork_methods.theory.grammar import Domain

DOMAINS: Final[Mapping[str, Domain]] = {one.name: one for one in (CUES, GAMBLES)}


def domain_named(name: str) -> Domain:
    """A domain. Raises BadInput for another name."""
    if name not in DOMAINS:
        raise BadInput(f"no domain {name!r}", hint=f"one of {', '.join(DOMAINS)}")
    return DOMAINS[name]
