"""A planted loop of turns with roles: who should think, work and verify is known, and so is what it earns.

A plan by ``planner`` makes ``maker`` right more often, and only ``checker`` tells right answers from wrong
ones; everybody else's plan is empty, and they accept whatever there is. The workers are chat models that read
their role off its prompt, so the loop that runs them is the shipped one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, final

import numpy as np
from jaxtyping import Float

from refork.chat import Reply
from refork.policies.base import Cost
from refork.types import Json, Message
from refork.worlds.base import Split
from refork_methods.route.conduct.coins import Coins, SeededCoins
from refork_methods.route.conduct.world import Query, in_rounds
from refork_methods.route.head import SelectionHead
from refork_methods.route.pool import Price, Worker, WorkerPool
from refork_methods.route.turns import MOST_TURNS, PROMPTS, ROLES, Role

WORKERS: Final = ("planner", "maker", "checker")
#: Chance of a right answer: by maker without and with a plan, and by anybody else.
UNPLANNED, PLANNED, OTHERS = 0.5, 0.8, 0.3
#: Chance that checker accepts a right answer, and a wrong one.
HIT, MISS = 0.95, 0.1
_EVENTS: Final = ("start", "thought", "answer", "verdict")
#: What may be seen before a turn: whether there is a plan, and what was last.
Observed: TypeAlias = tuple[bool, str]
OBSERVED: Final[tuple[Observed, ...]] = tuple(
    (planned, event) for planned in (False, True) for event in _EVENTS
)
WIDTH = len(OBSERVED)
Choice: TypeAlias = tuple[str, Role]


def accepted(worker: str, right: bool | None) -> float:
    """Chance that a worker accepts; ``right`` None: there is no answer yet."""
    if worker != "checker":
        return 1.0
    return 0.0 if right is None else HIT if right else MISS


def solved(worker: str, planned: bool) -> float:
    """Chance of a right answer in the role of a worker."""
    return OTHERS if worker != "maker" else PLANNED if planned else UNPLANNED


def observed(messages: Sequence[Message]) -> Observed:
    """What a conversation shows without saying which answers are right."""
    said = [str(message.get("content") or "") for message in messages if message["role"] == "assistant"]
    last = said[-1] if said else ""
    event = (
        "start" if not said else "verdict" if "VERDICT" in last else "answer" if last.isdigit() else "thought"
    )
    return "a plan" in said, event


def read(conversations: Sequence[Sequence[Message]]) -> Float[np.ndarray, "n d"]:
    """States of conversations: one-hot in what is seen."""
    return np.eye(WIDTH)[[OBSERVED.index(observed(messages)) for messages in conversations]]


@final
@dataclass(frozen=True, slots=True)
class CastWorker:
    """One worker. The right answer to a question is its number."""

    name: str
    coins: Coins

    def reply(self, messages: Sequence[Message], *, tools: Sequence[Json] = (), draw: int = 0) -> Reply:
        """What it says in the role that the last message names."""
        del tools
        role = next(role for role in ROLES if PROMPTS[role] == messages[-1]["content"])
        talk = messages[:-1]
        question = str(talk[0]["content"])
        said = [str(m["content"]) for m in talk if m["role"] == "assistant"]
        answers = [text for text in said if text.isdigit()]
        if role == "thinker":
            text = "a plan" if self.name == "planner" else "hm"
        elif role == "worker":
            right = self.coins(solved(self.name, "a plan" in said), self.name, "works", question, draw)
            text = question if right else str(int(question) + 1)
        else:
            known = answers[-1] == question if answers else None
            yes = self.coins(accepted(self.name, known), self.name, "verifies", question, draw)
            text = f"VERDICT: {'accept' if yes else 'reject'}"
        return Reply({"role": "assistant", "content": text}, cost=Cost(len(messages), 1))


@final
class Numbers:
    """Questions that are numbers, answered by the same."""

    name = "numbers"

    def draw(self, split: Split, count: int, seed: int) -> list[Query]:
        """256 of each side, in seeded order."""
        first = 100 if split == "train" else 500
        order = np.random.default_rng([seed, first]).permutation(256)
        return in_rounds([Query(str(first + i), str(first + i), split) for i in order.tolist()], count)

    def quality(self, query: Query, answer: str) -> float:
        """1 where it is the number."""
        return float(answer == query.text)


def cast_pool(coins: Coins | None = None) -> WorkerPool:
    """The three workers, a call of each at one unit of money."""
    flips = coins or SeededCoins()
    return WorkerPool(
        tuple(Worker(name, chat=CastWorker(name, flips), price=Price(0, 0, 1)) for name in WORKERS)
    )


def value(choose: Callable[[Observed], Choice], most: int = MOST_TURNS) -> float:
    """The exact chance that a loop ends with a right answer, where each sight has one choice."""
    won = 0.0
    alive: dict[tuple[bool, str, bool | None], float] = {(False, "start", None): 1.0}
    for _ in range(most):
        after: dict[tuple[bool, str, bool | None], float] = {}
        for (planned, event, right), chance in alive.items():
            worker, role = choose((planned, event))
            ends: list[tuple[tuple[bool, str, bool | None], float]]
            if role == "thinker":
                ends = [((planned or worker == "planner", "thought", right), 1.0)]
            elif role == "worker":
                p = solved(worker, planned)
                ends = [((planned, "answer", True), p), ((planned, "answer", False), 1 - p)]
            else:
                yes = accepted(worker, right)
                # An accept before any answer accepts nothing.
                won += chance * yes if right else 0.0
                ends = [((planned, "verdict", right), 1 - yes if right is not None else 1.0)]
            for place, p in ends:
                after[place] = after.get(place, 0.0) + chance * p
        alive = after
    return won + sum(chance for (_, _, right), chance in alive.items() if right)


def value_of(head: SelectionHead) -> float:
    """The exact value of a head as it is served."""

    def choose(sight: Observed) -> Choice:
        state = np.eye(WIDTH)[[OBSERVED.index(sight)]]
        role = ROLES[int(head.role_probabilities(state)[0].argmax())]
        return head.workers[int(head.choose(state)[0])], role

    return value(choose)


def best_value() -> float:
    """The most that any choice by sight earns: all of them are tried, sight by sight as they are reached."""
    choices: list[Choice] = [(worker, role) for worker in WORKERS for role in ROLES]
    best = 0.0

    def tried(known: dict[Observed, Choice]) -> Iterator[dict[Observed, Choice]]:
        missing: list[Observed] = []

        def choose(sight: Observed) -> Choice:
            if sight not in known:
                missing.append(sight)
                raise LookupError
            return known[sight]

        try:
            nonlocal best
            best = max(best, value(choose))
        except LookupError:
            for choice in choices:
                yield {**known, missing[0]: choice}

    waiting: list[dict[Observed, Choice]] = [{}]
    while waiting:
        waiting.extend(tried(waiting.pop()))
    return best


#: Plan, work, verify, and after a reject work again: 0.76 + 0.22 * 0.8.
CAST: Final[dict[Observed, Choice]] = {
    (False, "start"): ("planner", "thinker"),
    (True, "thought"): ("maker", "worker"),
    (True, "answer"): ("checker", "verifier"),
    (True, "verdict"): ("maker", "worker"),
}
