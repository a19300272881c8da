"""Any policy on the maze world: the four rows read from its log-probs, and its hitting time by walking.

Source: rows after arXiv 2606.22938. A language model may look at the whole walk, so its rows are read after
one fixed history per state: the straight way there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from refork.errors import BadInput, CannotDo
from refork.growing import grow
from refork.growing.plant import opening
from refork.policies.base import Policy, Sampling
from refork.progress import Progress, silent
from refork.tree.tree import Tree
from refork.types import IntArray, Message, token_array
from refork.worlds.base import Task
from refork.worlds.game import GameWorld
from refork_methods.recovery.censored import CensoredMean, censored_mean
from refork_methods.recovery.graph import Node, State
from refork_methods.recovery.maze import MazeFamily, MazeGame, Position
from refork_methods.recovery.rows import ROWS, Float64, RowPolicy

Maze = GameWorld[Position]


@final
@dataclass(frozen=True, eq=False)
class RowReading:
    """What a policy does in each row: ``desired`` [4, K] given that it takes an exit at all.

    ``mass`` [4, K] is the probability that it says one of the exits; ``states`` how many were read.
    """

    desired: Float64
    mass: Float64
    states: int

    def policy(self, world: Maze) -> RowPolicy:
        """The row policy with these chances, whose hitting time is a prediction for the real one."""
        return RowPolicy.from_desired(_family(world).graph, self.desired)


def _family(world: Maze) -> MazeFamily:
    family = getattr(world, "family", None)
    if not isinstance(family, MazeFamily):
        raise BadInput(f"{world.name} is not a maze", where="maze measure", hint="for example maze:3,2,2")
    return family


def straight_ways(game: MazeGame, branch: int) -> dict[Position, tuple[str, ...]]:
    """The straight way into the deciding states of one branch: out to its leaf and, from a dead leaf, back.

    So rows a and c are read in any branch, rows b and d in dead ones only.
    """
    found: dict[Position, tuple[str, ...]] = {}
    here, path = game.begin, tuple[str, ...]()
    while game.grade(here) is None and not (path and here.state == State(Node("fork"), "in")):
        if here.state.node.role == "fork":
            action = f"go branch {game.names[branch]}"
        else:
            wanted = game.graph.desired(here.state)
            action = next(
                action
                for action in game.actions(here)
                if wanted is None or getattr(game.act(here, action), "state", None) == wanted
            )
        if game.graph.row(here.state) is not None:
            found[here] = path
        after = game.act(here, action)
        assert after is not None
        here, path = after, (*path, action)
    return found


def _conversation(game: MazeGame, task: Task, actions: Sequence[str]) -> list[Message]:
    here = game.begin
    messages = [opening(task.prompt, game.view(here))]
    for action in actions:
        after = game.act(here, action)
        assert after is not None
        here = after
        messages += [{"role": "assistant", "content": action}, {"role": "user", "content": game.view(here)}]
    return messages


def _exits(policy: Policy, game: MazeGame, here: Position) -> tuple[list[IntArray], list[bool]]:
    """The token ids of every exit and whether it leads on; exits must not begin one another."""
    actions = game.actions(here)
    tokens = [policy.encode(action) for action in actions]
    for i, one in enumerate(tokens):
        for j, other in enumerate(tokens):
            if i != j and len(one) <= len(other) and bool((one == other[: len(one)]).all()):
                raise CannotDo(
                    f"{actions[i]!r} begins {actions[j]!r} in this policy's tokens",
                    where="maze measure",
                    hint="measure a maze with fewer parallel edges",
                )
    wanted = game.graph.desired(here.state)
    onward = []
    for action in actions:
        after = game.act(here, action)
        onward.append(after is not None and after.state == wanted)
    return tokens, onward


def read_rows(policy: Policy, world: Maze, tasks: Sequence[Task], progress: Progress = silent) -> RowReading:
    """P(desired) of each row, from the policy's log-probs of every exit at every state.

    Read in one dead branch and in the target's branch of every task, after the straight way there, and
    averaged.

    Raises:
        CannotDo: the policy gives no log-probs of given text, or one exit's tokens begin another's.
        BadInput: the world is not a maze, or there are no tasks.
    """
    graph = _family(world).graph
    if not tasks or graph.branches < 2:
        raise BadInput(
            "reading rows needs a task and a dead branch", where="maze measure", hint="use W of at least 2"
        )
    if not policy.card.can("scores"):
        raise CannotDo(f"{policy.card.name} gives no log-probs of given text", where="maze measure")
    sums, mass = np.zeros((4, graph.diamonds)), np.zeros((4, graph.diamonds))
    count = np.zeros((4, graph.diamonds))
    for number, task in enumerate(tasks):
        game = world.game(task)
        assert isinstance(game, MazeGame)
        for branch in {game.target, (game.target + 1) % graph.branches}:
            for here, path in straight_ways(game, branch).items():
                row = graph.row(here.state)
                assert row is not None
                at = ROWS.index(row), here.state.node.diamond
                good, said = _read(policy, game, here, _conversation(game, task, path))
                sums[at] += good
                mass[at] += said
                count[at] += 1
        progress("reading rows", number + 1, len(tasks))
    return RowReading(sums / count, mass / count, int(count.sum()))


def _read(policy: Policy, game: MazeGame, here: Position, talk: list[Message]) -> tuple[float, float]:
    """P(desired | an exit) and P(an exit) after a conversation."""
    prefix = policy.render([], token_array([]), talk).tokens
    exits, onward = _exits(policy, game, here)
    scored = policy.logprobs([np.concatenate([prefix, exit_]).astype(np.int32) for exit_ in exits])
    chance = np.array([np.exp(found[len(prefix) - 1 :].sum(dtype=np.float64)) for found in scored])
    total = float(chance.sum())
    if total <= 0:
        raise CannotDo(
            "the policy gives every exit probability 0",
            where=talk[-1]["content"],
            hint="is it a maze policy?",
        )
    return float(chance[onward].sum()) / total, total


def measure_hitting(
    policy: Policy,
    world: Maze,
    tasks: Sequence[Task],
    *,
    draws: int = 1,
    settings: Sampling | None = None,
    seed: int = 0,
    tree: Tree | None = None,
    progress: Progress = silent,
) -> CensoredMean:
    """Turns to the target by walking, walks that ran out of turns taken as cut.

    The rollouts go to ``tree`` (one in memory by default). A turn that is no exit counts as a turn.

    Raises:
        BadInput: the world is not a maze, or no rollout was graded.
    """
    _family(world)
    with Tree.memory() as scratch:
        groups = grow(
            scratch if tree is None else tree, policy, world, tasks, draws=draws,
            settings=settings or Sampling(max_tokens=16), seed=seed, progress=progress,
        )  # fmt: skip
        turns, reached = [], []
        for arm in (arm for group in groups for arm in group.forks):
            for walk, value in zip(arm.leaves(), arm.values(), strict=True):
                if value is not None:
                    turns.append(sum(step.node.kind == "action" for step in walk))
                    reached.append(value >= 1.0)
    if not turns:
        raise BadInput("no rollout was graded", where="maze measure")
    return censored_mean(turns, reached)
