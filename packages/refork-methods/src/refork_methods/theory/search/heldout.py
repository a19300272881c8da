"""Theories of a search on observations that no round opened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from refork.errors import BadInput
from refork.sandbox import Sandbox
from refork_methods.theory.order import OrderScore, score_order
from refork_methods.theory.predictive import Scoreboard, score_theories
from refork_methods.theory.search.folder import people_of, read_theories
from refork_methods.theory.trials import Observation


@final
@dataclass(frozen=True, slots=True)
class HeldOut:
    """Scores on held-out observations, by label. ``chosen``: the best of the search by what it had seen."""

    board: Scoreboard
    order: tuple[OrderScore, ...]
    titles: dict[str, str]
    chosen: str | None


def score_held_out(
    folder: Path,
    sandbox: Sandbox,
    *,
    observations: Sequence[Observation] | None = None,
    draws: int = 2000,
    redraws: int = 2000,
) -> HeldOut:
    """All theories of a folder's search on what it held out, or on other ``observations``.

    Raises: BadInput where nothing was held out, as the readers of folders, or as ``score_theories``.
    """
    recipe, search, outcome = read_theories(folder, sandbox)
    found = observations
    if found is None:
        settings = recipe.settings
        found = people_of(recipe, search.domain, sandbox).held_out(
            search.domain, settings.held_out, settings.people, settings.seed
        )
    if not found:
        raise BadInput("this search held nothing out", where=str(folder), hint="name a file of other choices")
    choosers = [spec.chooser(label, search.domain, sandbox) for label, spec in search.theories.items()]
    board = score_theories(choosers, found, seed=recipe.settings.seed, draws=draws, redraws=redraws)
    order = score_order(choosers, found, seed=recipe.settings.seed)
    titles = {label: spec.title(search.domain) for label, spec in search.theories.items()}
    return HeldOut(board, order, titles, outcome.best)
