"""Tasks of other people's environments as graphs, for ``benchmarks/foreign.py``.

A board is one task: states by their key, what each action leads to, and an expert's advice in each state. It
is laid bare where it is walked: a step that nobody took before is taken in the real environment, through
Refork's adapter, from a snapshot or by a replay whose answers are checked, and remembered. Gymnasium's tables
of transitions are taken from Gymnasium. So thousands of forks cost what their different steps cost.
"""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from refork.errors import CannotDo
from refork.worlds.base import Episode, Observation, Task
from refork.worlds.open import open_world

#: A step: the chance of each place that an action leads to.
Step = tuple[tuple[float, int], ...]


class Board(Protocol):
    """One task: states are numbers, 0 the first; ``turns`` is what an episode of it may take."""

    turns: int
    task: Task

    def actions(self, state: int) -> tuple[str, ...]:
        """What can be done there."""
        ...

    def step(self, state: int, action: int) -> Step:
        """Where an action leads."""
        ...

    def won(self, state: int) -> bool | None:
        """Whether the task is solved there; None where it goes on."""
        ...

    def advice(self, state: int) -> int:
        """The expert's action."""
        ...

    def text(self, state: int) -> str:
        """What is seen there."""
        ...


# -- environments that are played through their adapter -------------------------------------------


@dataclass
class Played:
    """A task without chance, played through its adapter; ``expert`` advises by board and state."""

    world: Any
    task: Task
    expert: Callable[[Played, int], int]
    turns: int = 0
    ways: list[list[str]] = field(default_factory=list)
    seen: list[list[Observation]] = field(default_factory=list)
    saved: list[bytes | None] = field(default_factory=list)
    known: dict[str, int] = field(default_factory=dict)
    taken: dict[tuple[int, int], int] = field(default_factory=dict)
    advised: dict[int, int] = field(default_factory=dict)
    live: Episode | None = None
    at: int = 0
    notes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.live = self.world.start(self.task, 0)
        self._add(self.live.first, [], [])

    def _add(self, seen: Observation, way: list[str], before: list[Observation]) -> int:
        key = f"{seen.state_key} {seen.done} {seen.reward}"
        if key not in self.known:
            assert self.live is not None
            self.known[key] = len(self.ways)
            self.ways.append(way)
            self.seen.append([*before, seen])
            self.saved.append(self.live.snapshot())
            self.at = self.known[key]
            self.settled(self.at)
        return self.known[key]

    def settled(self, state: int) -> None:
        """What an expert keeps of a state that was just reached for the first time."""
        if hasattr(self.live, "plan"):
            self.notes[f"plan {state}"] = self.live.plan()

    def actions(self, state: int) -> tuple[str, ...]:
        """What can be done there."""
        told = self.seen[state][-1].info.get("commands")
        return tuple(told) if told is not None else tuple(self.world.actions)

    def step(self, state: int, action: int) -> Step:
        """Where an action leads."""
        if (state, action) not in self.taken:
            self._go(state)
            assert self.live is not None
            said = self.actions(state)[action]
            seen = self.live.step(said)
            place = self._add(seen, [*self.ways[state], said], self.seen[state])
            self.taken[state, action] = self.at = place
        return ((1.0, self.taken[state, action]),)

    def _go(self, state: int) -> None:
        """Stand in a state: stay there, load its snapshot, or replay the way and check every answer."""
        if self.at == state and self.live is not None:
            return
        saved = self.saved[state]
        if saved is not None:
            if not hasattr(self.live, "load"):
                raise CannotDo("this episode loads no snapshot")
            self.live.load(saved)
        else:
            if self.live is not None:
                self.live.close()
            self.live = self.world.start(self.task, 0)
            for said, seen in zip(self.ways[state], self.seen[state][1:], strict=True):
                answer = self.live.step(said)
                assert (answer.text, answer.state_key) == (seen.text, seen.state_key), "a replay diverged"
        self.at = state

    def won(self, state: int) -> bool | None:
        """Whether the task is solved there; None where it goes on."""
        last = self.seen[state][-1]
        return (last.reward or 0.0) >= 1.0 if last.done else None

    def advice(self, state: int) -> int:
        """The expert's action."""
        if state not in self.advised:
            self.advised[state] = self.expert(self, state)
        return self.advised[state]

    def text(self, state: int) -> str:
        """What is seen there."""
        return self.seen[state][-1].text.removeprefix("nothing happens ; ")


def shortest(board: Board, most: int = 4000) -> dict[int, int]:
    """Steps to the goal from every state that can be reached, by walking all of them; without chance only.

    Raises:
        CannotDo: there are more than ``most`` states.
    """
    back: dict[int, list[int]] = {}
    found, todo = {0}, [0]
    while todo:
        state = todo.pop()
        if board.won(state) is not None:
            continue
        for action in range(len(board.actions(state))):
            ((_, place),) = board.step(state, action)
            back.setdefault(place, []).append(state)
            if place not in found:
                found.add(place)
                todo.append(place)
        if len(found) > most:
            raise CannotDo(f"more than {most} states")
    distance = {state: 0 for state in found if board.won(state)}
    ring = list(distance)
    while ring:
        further = []
        for place in ring:
            for state in back.get(place, ()):
                if state not in distance:
                    distance[state] = distance[place] + 1
                    further.append(state)
        ring = further
    return distance


def by_distance(board: Played, state: int) -> int:
    """The first action of a shortest way; where there is none, the first action."""
    if "distance" not in board.notes:
        board.notes["distance"] = shortest(board)
    distance = board.notes["distance"]
    far = [
        distance.get(board.step(state, action)[0][1], 10**6) for action in range(len(board.actions(state)))
    ]
    return int(np.argmin(far))


def by_bot(board: Played, state: int) -> int:
    """What BabyAI's bot does after the turns by which the state was first reached; given up: the first."""
    from refork_worlds.minigrid_bot import Adviser

    adviser = board.notes.setdefault("adviser", Adviser())
    said, _ = adviser.advice(board.world, board.task, board.ways[state])
    return 0 if said is None else board.world.actions.index(said)


def by_plan(board: Played, state: int) -> int:
    """TextWorld's own next command; where it has none, the first."""
    plan = board.notes.get(f"plan {state}") or ()
    actions = board.actions(state)
    return actions.index(plan[0]) if plan and plan[0] in actions else 0


# -- Gymnasium's toy-text environments, by their own tables -----------------------------------------


@dataclass
class Tabled:
    """A task of Gymnasium's, by the environment's own table of transitions."""

    world: Any
    task: Task
    turns: int = 0
    slack: float = 1.0

    def __post_init__(self) -> None:
        env = self.world.make()
        first, _ = env.reset(seed=int(self.task.data["reset_seed"]))
        inner, toy = env.unwrapped, self.world.toy
        size = len(inner.P)
        count = len(inner.P[0])
        self.names = toy.actions
        self.texts = [toy.describe(inner, state) for state in range(size)]
        # The first state is number 0; a win and a loss stand behind all others.
        order = [int(first), *(s for s in range(size) if s != int(first))]
        self.number = {state: place for place, state in enumerate(order)}
        self.texts = [self.texts[s] for s in order] + ["won", "lost"]
        win, lose = size, size + 1
        cliff = self.world.env.startswith("CliffWalking")
        self.table: list[list[Step]] = [[() for _ in range(count)] for _ in range(size)]
        for state in range(size):
            for action in range(count):
                to: dict[int, float] = {}
                for chance, place, reward, done in inner.P[state][action]:
                    good = done and (cliff or reward > 0)
                    end = win if good else lose if done else self.number[int(place)]
                    to[end] = to.get(end, 0.0) + float(chance)
                self.table[self.number[state]][action] = tuple((p, s) for s, p in to.items())
        self.win, self.lose = win, lose
        self.law = np.zeros((size, count, size + 2))
        for state, row in enumerate(self.table):
            for action, step in enumerate(row):
                for chance, place in step:
                    self.law[state, action, place] += chance
        best = np.zeros(size + 2)
        best[win] = 1.0
        for _ in range(3 * self.turns):
            best[:size] = (0.98 * self.law @ best).max(1)
        self.best = np.append(self.law @ best, np.zeros((2, count)), axis=0)
        env.close()

    def actions(self, state: int) -> tuple[str, ...]:
        """What can be done there."""
        return tuple(self.names)

    def step(self, state: int, action: int) -> Step:
        """Where an action leads."""
        return self.table[state][action]

    def won(self, state: int) -> bool | None:
        """Whether the task is solved there; None where it goes on."""
        return state == self.win if state in (self.win, self.lose) else None

    def advice(self, state: int) -> int:
        """The expert's action."""
        # Equal ways differ by rounding; the first of them is the expert's.
        return int(np.argmax(self.best[state] > self.best[state].max() - 1e-9))

    def text(self, state: int) -> str:
        """What is seen there."""
        return self.texts[state]


def agree(board: Tabled, steps: int) -> None:
    """Play through the adapter at random and see that every answer is one that the table allows.

    Raises:
        CannotDo: an answer is none of them.
    """
    rng = random.Random(7)
    episode, state = board.world.start(board.task, 7), 0
    for turn in range(steps):
        action = rng.randrange(len(board.names))
        seen = episode.step(board.names[action])
        places = [place for _, place in board.step(state, action)]
        # An episode ends at its goal, in a hole, or because its turns ran out.
        fits = seen.text in {board.texts[place] for place in places} or (
            seen.done and any(board.won(place) is not None for place in places)
        )
        if not fits:
            raise CannotDo(f"the table does not know this answer: {seen.text!r}", where=board.world.name)
        if seen.done:
            episode, state = board.world.start(board.task, 7 + turn), 0
        else:
            state = next(place for place in places if board.texts[place] == seen.text)
    episode.close()


# -- policies, rollouts and forks -------------------------------------------------------------------


@dataclass
class Policy:
    """The expert that errs: with chance ``error`` another action, all others equally likely; 1: any one."""

    board: Board
    error: float
    rows: dict[int, list[float]] = field(default_factory=dict)

    def row(self, state: int) -> list[float]:
        """Chances of the actions in a state."""
        if state not in self.rows:
            count, rest = len(self.board.actions(state)), 0.0
            if self.error >= 1 or count == 1:
                self.rows[state] = [1 / count] * count
            else:
                best, rest = self.board.advice(state), self.error / (count - 1)
                self.rows[state] = [1 - self.error if a == best else rest for a in range(count)]
        return self.rows[state]


def pick(chances: Sequence[float], rng: random.Random) -> int:
    """A place by its chance."""
    left = rng.random()
    for place, chance in enumerate(chances):
        left -= chance
        if left < 0:
            return place
    return len(chances) - 1


def move(board: Board, state: int, action: int, rng: random.Random) -> int:
    """Where a step leads this time."""
    step = board.step(state, action)
    if len(step) == 1:
        return step[0][1]
    return step[pick([chance for chance, _ in step], rng)][1]


def rollout(policy: Policy, rng: random.Random) -> tuple[list[tuple[int, int]], bool]:
    """States and actions of one episode, and whether it was won."""
    board, state, steps = policy.board, 0, []
    for _ in range(board.turns):
        action = pick(policy.row(state), rng)
        steps.append((state, action))
        state = move(board, state, action, rng)
        if (won := board.won(state)) is not None:
            return steps, won
    return steps, False


def fork_once(policy: Policy, state: int, turn: int, rng: random.Random) -> bool:
    """Whether the policy wins on from a state with ``turn`` turns taken."""
    board = policy.board
    while True:
        if (won := board.won(state)) is not None:
            return won
        if turn >= board.turns:
            return False
        state = move(board, state, pick(policy.row(state), rng), rng)
        turn += 1


@dataclass
class Truth:
    """Advantages by forks: the value of a state and turn from ``draws`` continuations, each measured once."""

    policy: Policy
    draws: int
    rng: random.Random
    values: dict[tuple[int, int], float] = field(default_factory=dict)
    behind: dict[tuple[int, int, int], float] = field(default_factory=dict)

    def value(self, state: int, turn: int) -> float:
        """Chance of success from a state with so many turns taken."""
        if (won := self.policy.board.won(state)) is not None:
            return float(won)
        if turn >= self.policy.board.turns:
            return 0.0
        if (state, turn) not in self.values:
            wins = sum(fork_once(self.policy, state, turn, self.rng) for _ in range(self.draws))
            self.values[state, turn] = wins / self.draws
        return self.values[state, turn]

    def advantage(self, state: int, action: int, turn: int) -> float:
        """Q - V: without chance the value behind less that before, else by forks that begin so."""
        step = self.policy.board.step(state, action)
        if len(step) == 1:
            return self.value(step[0][1], turn + 1) - self.value(state, turn)
        key = (state, action, turn)
        if key not in self.behind:
            self.behind[key] = sum(
                fork_once(self.policy, move(self.policy.board, state, action, self.rng), turn + 1, self.rng)
                for _ in range(self.draws)
            ) / self.draws  # fmt: skip
        return self.behind[key] - self.value(state, turn)


def exact_values(board: Tabled, error: float) -> tuple[np.ndarray, np.ndarray]:
    """V [turns + 1, states + 2] and Q [turns, states, actions] by backward induction over the table."""
    size, count = board.law.shape[:2]
    law = np.full((size, count), error / (count - 1))
    law[np.arange(size), [board.advice(s) for s in range(size)]] = 1 - error
    v, q = np.zeros((board.turns + 1, size + 2)), np.zeros((board.turns, size, count))
    v[:, board.win] = 1
    for turn in reversed(range(board.turns)):
        q[turn] = board.law @ v[turn + 1]
        v[turn, :size] = (law * q[turn]).sum(1)
    return v, q


# -- the environments -------------------------------------------------------------------------------


def needs(package: str) -> bool:
    """Whether a package is installed here."""
    return importlib.util.find_spec(package) is not None


def frozen_maps(count: int, seed: int, side: int = 5) -> Iterator[str]:
    """Maps by Gymnasium's own generator, as options of the world."""
    import json

    from gymnasium.envs.toy_text.frozen_lake import generate_random_map

    for number in range(count):
        rows = [str(row) for row in generate_random_map(size=side, p=0.85, seed=seed * 1000 + number)]
        yield f"desc={json.dumps(rows, separators=(',', ':'))}"


def tabled(env: str, count: int, seed: int, turns: int) -> list[Tabled]:
    """Boards of a toy-text environment: FrozenLake has a random map a task, the others a random start."""
    boards: list[Tabled] = []
    if env == "FrozenLake":
        for options in frozen_maps(count, seed):
            world: Any = open_world(f"gymnasium:FrozenLake-v1?{options}&turns={turns}")
            boards.append(Tabled(world, world.tasks("train", 1)[0], turns))
    else:
        world = open_world(f"gymnasium:{env}?turns={turns}")
        boards = [Tabled(world, task, turns) for task in world.tasks("train", count, seed)]
    agree(boards[0], 10 * turns)
    return boards


def played(
    spec: str, expert: Callable[[Played, int], int], count: int, seed: int, slack: float
) -> list[Board]:
    """Boards of an adapter's world; the turns are a multiple of what the expert takes alone, and one more."""
    world: Any = open_world(spec)
    boards: list[Board] = []
    for task in world.tasks("train", count, seed):
        board = Played(world, task, expert)
        state = steps = 0
        while board.won(state) is None and steps < 40:
            ((_, state),) = board.step(state, board.advice(state))
            steps += 1
        board.turns = int(np.ceil(slack * steps)) + 1
        board.notes["alone"] = steps if board.won(state) else None
        boards.append(board)
    return boards


@dataclass(frozen=True)
class Place:
    """One environment: how its boards are made, the rate of errors, and what it needs."""

    name: str
    make: Callable[[int, int], Sequence[Board]]
    error: float
    tasks: int
    package: str = "gymnasium"

    def boards(self, share: float, seed: int) -> Sequence[Board]:
        """A share of its tasks, at least four, of a seed; none where the package is missing."""
        return self.make(max(4, round(share * self.tasks)), seed) if needs(self.package) else ()


#: The rates of errors were chosen on the tasks of seed 1: about half of the episodes succeed.
PLACES = (
    Place("frozenlake", lambda n, s: tabled("FrozenLake", n, s, 60), 0.1, 24),
    Place("taxi", lambda n, s: tabled("Taxi-v4", n, s, 24), 0.4, 24),
    Place(
        "lava",
        lambda n, s: played("minigrid:MiniGrid-LavaCrossingS9N1-v0?turns=200", by_distance, n, s, 1.3),
        0.25, 8, "minigrid",
    ),
    Place(
        "babyai",
        lambda n, s: played("minigrid:BabyAI-PickupLoc-v0?turns=200", by_bot, n, s, 1.5),
        0.4, 12, "minigrid",
    ),
    Place(
        "textworld",
        lambda n, s: played("textworld:tw-treasure_hunter?level=10&turns=100", by_plan, n, s, 1.6),
        0.4, 8, "textworld",
    ),
)  # fmt: skip
