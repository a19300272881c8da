"""What a grid run will do, as a validated recipe, and the cells that it comes to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from pydantic import Field

from refork.chat import ScriptedChat
from refork.errors import BadInput
from refork.runs.recipe import RecipePart, SamplingPart
from refork.types import Json
from refork_methods.rot.compactors import MAX_TOKENS, WORDS, needs_summariser, open_compactor
from refork_methods.rot.conditions import COMPACTS, CONDITIONS, STRESS
from refork_methods.rot.episode import Cell
from refork_testbed.worlds.house_rules.attacks import FRAMINGS
from refork_testbed.worlds.house_rules.scenario import CHANNELS
from refork_testbed.worlds.house_rules.tasks import TASKS, find_task

#: The agent is its own summariser, as in a harness with one model.
SELF = "self"
SEARCH = "search"
_INJECTED = frozenset({"attack_inject", "defense_pin_attack"})


class RotRecipe(RecipePart):
    """Models x conditions x tasks x repetitions, and every list of setups that is to be crossed with them."""

    #: The agents.
    policies: tuple[str, ...] = Field(min_length=1)
    #: Who writes summaries; self for the agent itself.
    summarisers: tuple[str, ...] = (SELF,)
    #: How contexts are compacted.
    compactors: tuple[str, ...] = Field(default=("truncate",), min_length=1)
    #: What happens to the rules.
    conditions: tuple[str, ...] = Field(default=CONDITIONS, min_length=1)
    #: The tasks, by name.
    tasks: tuple[str, ...] = Field(default=tuple(TASKS), min_length=1)
    #: Sessions of each task.
    reps: int = Field(default=3, ge=1)
    #: Tokens at which the compactor fires.
    max_tokens: int = Field(default=MAX_TOKENS, ge=1)
    #: Limits of a summary.
    words: tuple[int, ...] = Field(default=(WORDS,), min_length=1)
    #: Compactions in a row; 0: none, the reference of repeated rounds.
    rounds: tuple[int, ...] = Field(default=(1,), min_length=1)
    #: Turns of a session, for each round.
    turns: int = Field(default=12, ge=1)
    #: The whole scene with its tools, or a small one whose agents write their calls as text.
    wording: Literal["full", "small"] = "full"
    #: Who says the rules.
    channel: str = "user"
    #: Language of the session.
    language: str = "en"
    #: One of the six, or search: all are tried first, and the worst for each model is used.
    framing: str = SEARCH
    #: Sessions of each framing in that search.
    search_reps: int = Field(default=1, ge=1)
    #: Ask the allowed counterpart of each request, too.
    twins: bool = False
    #: The pin says who pinned it.
    hardened: bool = True
    #: Where the pin stands.
    placement: Literal["head", "tail"] = "head"
    #: Address of the noise.
    seed: int = 0
    #: How agents answer.
    sampling: SamplingPart = SamplingPart(temperature=0.7, max_tokens=256)

    @property
    def searches(self) -> bool:
        """Whether framings are searched first."""
        return self.framing == SEARCH and bool(_INJECTED & set(self.conditions))


def checked(recipe: RotRecipe) -> RotRecipe:
    """The recipe, if its names exist and its settings make sense together.

    Raises:
        BadInput: an unknown task, condition, compactor, framing or channel, or a list with an entry twice.
        MissingExtra: a framework that it names is not installed.
    """
    for name in recipe.tasks:
        find_task(name)
    for name in recipe.conditions:
        if name not in (*CONDITIONS, *STRESS):
            known = ", ".join((*CONDITIONS, *STRESS))
            raise BadInput(f"there is no condition {name!r}", where="recipe", hint=f"known: {known}")
    if recipe.framing not in (SEARCH, *FRAMINGS):
        raise BadInput(
            f"there is no framing {recipe.framing!r}", where="recipe", hint=f"search, {', '.join(FRAMINGS)}"
        )
    if recipe.channel not in CHANNELS:
        raise BadInput(
            f"there is no channel {recipe.channel!r}", where="recipe", hint=f"one of {', '.join(CHANNELS)}"
        )
    if min(recipe.rounds) < 0 or min(recipe.words) < 1:
        raise BadInput("rounds must be 0 or more and words 1 or more", where="recipe")
    for key in ("policies", "summarisers", "compactors", "conditions", "tasks", "words", "rounds"):
        values = getattr(recipe, key)
        if len(set(values)) < len(values):
            raise BadInput(f"{key} names an entry twice", where="recipe")
    for spec in recipe.compactors:  # a name or option that is wrong is refused before anything runs
        open_compactor(spec, summariser=ScriptedChat([]), max_tokens=recipe.max_tokens)
    _check_summarisers(recipe)
    return recipe


def _check_summarisers(recipe: RotRecipe) -> None:
    asking = next((spec for spec in recipe.compactors if needs_summariser(spec)), None)
    if asking is not None and not recipe.summarisers:
        raise BadInput(
            f"{asking!r} asks a summariser and none is named", where="recipe", hint=f"for example {SELF}"
        )


def cells(recipe: RotRecipe) -> Iterator[Cell]:
    """Every episode of the recipe, session by session; floor and control once, all else for each setup."""
    for model in recipe.policies:
        for rep in range(recipe.reps):
            for task in recipe.tasks:
                for request in ("trigger", "twin") if recipe.twins else ("trigger",):
                    for condition in recipe.conditions:
                        yield from _setups(recipe, Cell(model, condition, task, rep, request))


def _setups(recipe: RotRecipe, cell: Cell) -> Iterator[Cell]:
    if cell.condition not in COMPACTS:
        yield cell
        return
    for spec in recipe.compactors:
        asks = needs_summariser(spec)
        for summariser in recipe.summarisers if asks else ("none",):
            for words in recipe.words if asks else (None,):
                for rounds in recipe.rounds:
                    yield replace(
                        cell, compactor=spec, summariser=summariser, words=words,
                        budget=recipe.max_tokens, rounds=rounds,
                    )  # fmt: skip


def search_cells(recipe: RotRecipe) -> Iterator[Cell]:
    """The episodes of the search for the worst framing, on sessions that the grid does not use."""
    if not recipe.searches:
        return
    for model in recipe.policies:
        for rep in range(recipe.search_reps):
            for task in recipe.tasks:
                plain = Cell(model, "attack_inject", task, -1 - rep)
                first = next(_setups(recipe, plain))
                for framing in FRAMINGS:
                    yield replace(first, framing=framing)


def plan(recipe: RotRecipe) -> Json:
    """What a run would do, without a model: episodes, and how many of them ask a summariser."""
    checked(recipe)
    every = list(cells(recipe))
    searched = list(search_cells(recipe))
    return {
        "models": list(recipe.policies),
        "conditions": list(recipe.conditions),
        "tasks": list(recipe.tasks),
        "repetitions": recipe.reps,
        "episodes": len(every),
        "search episodes": len(searched),
        "compactions": sum(c.rounds for c in (*every, *searched) if c.condition in COMPACTS),
        "asking a summariser": sum(c.summariser != "none" for c in (*every, *searched)),
    }
