"""How Gymnasium's toy-text environments are told in words, and what their whole state is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_TAXI_STANDS = ("red", "green", "yellow", "blue")


@dataclass(frozen=True, slots=True)
class Toy:
    """Names of the actions, words for an observation, and the attributes that hold all changing state."""

    actions: tuple[str, ...]
    describe: Callable[[Any, Any], str]
    state: tuple[str, ...]


def _cell(env: Any, seen: Any) -> str:
    columns = env.ncol if hasattr(env, "ncol") else env.shape[1]
    row, column = divmod(int(seen), int(columns))
    return f"row {row} column {column}"


def _taxi(env: Any, seen: Any) -> str:
    row, column, passenger, goal = (int(n) for n in env.decode(int(seen)))
    where = "in taxi" if passenger == len(_TAXI_STANDS) else f"at {_TAXI_STANDS[passenger]}"
    return f"row {row} column {column} ; passenger {where} ; going to {_TAXI_STANDS[goal]}"


def _blackjack(env: Any, seen: Any) -> str:
    del env
    hand, dealer, ace = (int(n) for n in seen)
    return f"hand {hand} ; dealer {dealer} ; {'usable' if ace else 'no'} ace"


#: By environment name, the version left out.
TOYS = {
    "FrozenLake": Toy(("left", "down", "right", "up"), _cell, ("s", "lastaction")),
    "FrozenLake8x8": Toy(("left", "down", "right", "up"), _cell, ("s", "lastaction")),
    "CliffWalking": Toy(("up", "right", "down", "left"), _cell, ("s", "lastaction")),
    "CliffWalkingSlippery": Toy(("up", "right", "down", "left"), _cell, ("s", "lastaction")),
    "Taxi": Toy(
        ("south", "north", "east", "west", "pickup", "dropoff"),
        _taxi,
        ("s", "lastaction", "fickle_step", "taxi_orientation"),
    ),
    "Blackjack": Toy(("stick", "hit"), _blackjack, ("player", "dealer")),
}
