"""What forks, sweeps, growing and sequential comparisons have in common: one value, and its keywords."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, cast, final

from refork.judge import Judge
from refork.policies.base import Sampling
from refork.progress import Progress, silent
from refork.worlds.base import World
from refork.worlds.simulated import Simulator

if TYPE_CHECKING:
    from refork.forking.backend import Backend

C = TypeVar("C", bound=Callable[..., Any])


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ForkSettings:
    """How draws are made, whichever call makes them.

    Attributes:
        settings: how tokens are drawn; None: as the turn was recorded.
        world: every draw goes on until it ends; None: a draw is the rest of the policy's turn.
        judge: who grades beside the world.
        seed: address of the noise, with the point, the draw and the position.
        max_turns: answers of the world at most; None: the world's own limit, and 8 of a simulator.
        any_weights: go on with other weights than the recorded ones, though no change swaps them.
        simulator: answers where there is no world, or where it can neither restore nor replay what is
            recorded; the record, every answer and the scores say so.
        progress: hears how far it is.
        backend: who does the draws; None: this process. What is recorded is the same.
    """

    settings: Sampling | None = None
    world: World | None = None
    judge: Judge | None = None
    seed: int = 0
    max_turns: int | None = None
    any_weights: bool = False
    simulator: Simulator | None = None
    progress: Progress = silent
    backend: Backend | None = None

    def options(self) -> ForkOptions:
        """The keywords that give this value."""
        return cast("ForkOptions", {one.name: getattr(self, one.name) for one in fields(self)})


# Keywords and not one more argument, since `fork(point, policy, draws=64, seed=3)` is what people write and
# what an editor completes. Type checkers read them here; a test holds them against the fields above.


class DrawOptions(TypedDict, total=False):
    """Keywords of :class:`ForkSettings` for calls that name world and sampling themselves."""

    judge: Judge | None
    seed: int
    max_turns: int | None
    any_weights: bool
    simulator: Simulator | None
    progress: Progress
    backend: Backend | None


class ForkOptions(DrawOptions, total=False):
    """All keywords of :class:`ForkSettings`."""

    settings: Sampling | None
    world: World | None


def takes_fork_settings(call: C) -> C:
    """Show the fields of :class:`ForkSettings` in a call's signature, where help and notebooks look."""
    own = inspect.signature(call)
    named = [one for one in own.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    shared = [
        inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=one.type)
        for one in fields(ForkSettings)
        if one.name not in own.parameters
    ]
    shown: Any = call
    shown.__signature__ = own.replace(parameters=[*named, *shared])
    return call
