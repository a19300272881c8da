"""What a comparison will do: worlds, arms, seeds and one token budget for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import Field, field_validator

from refork.errors import BadInput
from refork.registry import Kind, known, names
from refork.runs.recipe import RecipePart
from refork.types import Json

ARMS = (
    "independent+grpo",
    "uucb+grpo",
    "independent+g2po",
    "uucb+g2po",
    "uucb+g2po+implicit",
)


@dataclass(frozen=True, slots=True)
class Arm:
    """A selector and a credit; ``implicit``: the selector's values are implicit advantages."""

    selector: str
    credit: str
    implicit: bool

    @classmethod
    def parse(cls, text: str) -> Arm:
        """An arm from ``SELECTOR+CREDIT`` or ``uucb+CREDIT+implicit``; raises BadInput for any other."""
        selector, _, rest = text.partition("+")
        credit, _, more = rest.partition("+")
        named: tuple[tuple[Kind, str], ...] = (("selectors", selector), ("credits", credit))
        if not all(":" in name or known(kind, name) for kind, name in named) or more not in ("", "implicit"):
            raise BadInput(
                f"{text!r} names no arm",
                hint=f"SELECTOR+CREDIT[+implicit] with a selector of {', '.join(names('selectors'))} "
                f"and a credit of {', '.join(names('credits'))}",
            )
        if more and selector != "uucb":
            raise BadInput(f"{text!r}: implicit values belong to the uucb selector")
        return cls(selector, credit, bool(more))


class WorldPlan(RecipePart):
    """A world of the comparison, its organism (None: the world's own), and how one update is made there.

    An update grows blocks of ``tasks`` tasks until it has sampled ``budget`` tokens.
    """

    world: str
    organism: str | None = None
    learning_rate: float = Field(default=1e-3, gt=0)
    tasks: int = Field(default=12, ge=1)
    budget: int = Field(default=4000, ge=1)


#: A weak start: most groups of plain rollouts fail alike, which is where the methods should differ.
HOUSEHOLD = WorldPlan(
    world="household:2", organism="household-novice", learning_rate=5e-4, tasks=16, budget=6000
)
ARITHMETIC = WorldPlan(world="reasoning-gym:chain_sum", learning_rate=2e-4, tasks=32, budget=16_000)


def places_named(worlds: Sequence[str]) -> list[Json]:
    """The places of these worlds as a recipe writes them: those of the default recipe as they stand there."""
    known = {place.world: place for place in (HOUSEHOLD, ARITHMETIC)}
    return [known.get(world, WorldPlan(world=world)).model_dump(mode="json") for world in worlds]


class CompareRecipe(RecipePart):
    """Arms by worlds by seeds, each one training run of ``updates`` updates of the same token budget.

    Run i of every arm has the same starting weights, training tasks and evaluation noise.
    """

    #: Worlds, each with its policy and the size of an update, and each once.
    worlds: tuple[WorldPlan, ...] = (HOUSEHOLD, ARITHMETIC)
    #: SELECTOR+CREDIT[+implicit], each once.
    arms: tuple[str, ...] = ARMS
    #: The arm that all others are compared with.
    baseline: str = "independent+grpo"
    #: Training runs of each arm and world.
    seeds: int = Field(default=3, ge=1)
    #: Run i of every arm has seed first_seed + i.
    first_seed: int = 0
    #: Updates of a run.
    updates: int = Field(default=10, ge=1)
    #: Rollouts of each task.
    leaves: int = Field(default=8, ge=2)
    #: Plain rollouts that begin every tree.
    roots: int = Field(default=6, ge=1)
    #: Forks of a round.
    at_once: int = Field(default=2, ge=1)
    #: Learning rates of single arms.
    rates: dict[str, float] = Field(default_factory=dict)
    #: Updates between two measurements of success.
    evaluate_every: int = Field(default=2, ge=1)
    #: Tasks that success is measured on.
    held_out: int = Field(default=96, ge=2)
    #: Rollouts of each of them.
    draws: int = Field(default=2, ge=1)

    @field_validator("worlds")
    @classmethod
    def _apart(cls, worlds: tuple[WorldPlan, ...]) -> tuple[WorldPlan, ...]:
        if len(set(worlds)) != len(worlds) or not worlds:
            raise BadInput("name each world once, and at least one", where="worlds")
        return worlds

    @field_validator("arms")
    @classmethod
    def _known(cls, arms: tuple[str, ...]) -> tuple[str, ...]:
        for text in arms:
            Arm.parse(text)
        if len(set(arms)) != len(arms) or not arms:
            raise BadInput("name each arm once, and at least one", where="arms")
        return arms

    def checked(self) -> CompareRecipe:
        """Itself; raises BadInput where parts do not fit one another."""
        if self.baseline not in self.arms:
            raise BadInput(f"the baseline {self.baseline!r} is not among the arms", hint=", ".join(self.arms))
        if self.roots > self.leaves:
            raise BadInput(f"{self.roots} roots do not fit {self.leaves} leaves", where="comparison")
        if stray := sorted(set(self.rates) - set(self.arms)):
            raise BadInput(f"rates names an arm that is not compared: {stray[0]!r}", where="comparison")
        return self
