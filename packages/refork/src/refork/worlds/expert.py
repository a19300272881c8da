"""Shortest ways through a game, and demonstrations that make and mend mistakes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from refork.errors import BadInput, CannotDo
from refork.worlds.base import Observation, Task
from refork.worlds.game import Game, GameEpisode, GameWorld

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One demonstrated episode: ``observations`` has one entry more than ``actions`` (the first view).

    ``mistakes`` marks the actions that were drawn at random; ``reward`` is the world's.
    """

    task: Task
    observations: tuple[Observation, ...]
    actions: tuple[str, ...]
    mistakes: tuple[bool, ...]
    reward: float | None


def shortest(game: Game[Any], state: Any) -> tuple[str, ...] | None:
    """The shortest admissible action sequence to a reward of 1, by breadth-first search.

    Empty where the state already has it; None where no way leads there. Ties go to the action that
    the game lists first.
    """
    if game.grade(state) is not None:
        return () if (game.grade(state) or 0.0) >= 1.0 else None
    came: dict[Any, tuple[Any, str] | None] = {state: None}
    queue = deque([state])
    while queue:
        here = queue.popleft()
        for action in game.useful(here):
            there = game.act(here, action)
            if there is None or there in came:
                continue
            came[there] = (here, action)
            reward = game.grade(there)
            if reward is not None and reward >= 1.0:
                return _trace(came, there)
            # A state that ends the episode without the full reward leads nowhere.
            if reward is None:
                queue.append(there)
    return None


def _trace(came: dict[Any, tuple[Any, str] | None], state: Any) -> tuple[str, ...]:
    actions: list[str] = []
    while (step := came[state]) is not None:
        state, action = step
        actions.append(action)
    return tuple(reversed(actions))


def expert(world: GameWorld[Any], at: Task | GameEpisode[Any]) -> tuple[str, ...]:
    """The shortest action sequence from a task's beginning or an episode's present state.

    It knows the whole layout and counts on nothing slipping.

    Raises:
        CannotDo: no way leads to the goal from there.
    """
    if isinstance(at, Task):
        game = world.game(at)
        found, task = shortest(game, game.begin), at
    else:
        found, task = shortest(at.game, at.state), at.task
    if found is None:
        raise CannotDo("no action sequence reaches the goal from this state", where=f"task {task.id}")
    return found


def demonstrate(
    world: GameWorld[Any], task: Task, rng: np.random.Generator, *, mistakes: float = 0.0, seed: int = 0
) -> Demonstration:
    """An episode of an expert that errs: each turn is a mistake with probability ``mistakes``.

    A mistake is drawn uniformly from the admissible actions that are not the expert's; after it the
    expert plans anew from where it is, so the demonstration shows the recovery too. The episode ends
    as the world ends it, a fatal mistake or the turn limit included. ``seed`` is the world's chance.
    """
    if not 0.0 <= mistakes <= 1.0:
        raise BadInput(f"mistakes is {mistakes!r}; it must be a probability")
    episode = world.start(task, seed)
    seen = [episode.first]
    said: list[str] = []
    wrong: list[bool] = []
    plan: tuple[str, ...] = ()
    expected: Any = None
    while not seen[-1].done:
        # A slip leads elsewhere than the plan says: the expert plans anew from where it is.
        if not plan or episode.state != expected:
            plan = shortest(episode.game, episode.state) or ()
        # None where no way leads to the goal any more: from there on every action is drawn.
        best = plan[0] if plan else None
        others = [a for a in episode.game.actions(episode.state) if a != best]
        err = best is None or (bool(others) and rng.random() < mistakes)
        action = others[int(rng.integers(len(others)))] if err else str(best)
        if not err:
            expected, plan = episode.game.act(episode.state, action), plan[1:]
        else:
            plan = ()
        seen.append(episode.step(action))
        said.append(action)
        wrong.append(err)
    return Demonstration(task, tuple(seen), tuple(said), tuple(wrong), seen[-1].reward)
