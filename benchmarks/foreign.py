"""Do credit, recovery, cliffs and routing hold on environments that other people wrote?

FrozenLake (random slippery maps) and Taxi of Gymnasium, LavaCrossing of MiniGrid, PickupLoc of BabyAI, and
treasure hunts that TextWorld makes on the spot. The policy is an expert (value iteration on Gymnasium's own
table, shortest ways, BabyAI's bot, TextWorld's own plan) that errs at a stated rate, chosen on other tasks so
that about half of the episodes succeed. Every task is a graph that is laid bare by real steps through
Refork's adapters, so forks are many.

Credit: how much of the true advantage of the steps of eight-rollout groups graph, anchor and group credit
explain. Recovery: students of cleaned, partly whole and whole traces, equally many decisions. Cliffs: whether
turns that were errors are found, and what deleting them is worth on fresh draws beside random turns. Route:
two pools of workers over all environments, the router beside its best single worker on held-out tasks.
Besides: cliff tokens of a tiny model's real draws on questions of reasoning-gym.

An environment whose package is missing is left out and said to be.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from parts.foreign_boards import PLACES, Board
from parts.foreign_cliff import cliff
from parts.foreign_credit import credit
from parts.foreign_recovery import recovery
from parts.foreign_route import route
from parts.foreign_tokens import WORLDS, tokens
from refork.types import Json


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    share: float
    groups: int
    draws: int
    runs: int
    episodes: int
    lost: int
    repeats: int
    questions: int
    traces: int
    datasets: tuple[str, ...]


FULL = Size(
    share=1.0, groups=4, draws=128, runs=100, episodes=100, lost=4, repeats=8, questions=64, traces=16,
    datasets=tuple(WORLDS),
)  # fmt: skip
QUICK = Size(
    share=0.3, groups=2, draws=32, runs=60, episodes=50, lost=3, repeats=6, questions=24, traces=6,
    datasets=("chain_sum",),
)  # fmt: skip


def show(name: str, found: Json) -> None:
    """One environment's figures."""
    print(f"  {name:12s} " + "  ".join(f"{key} {value}" for key, value in found.items()), flush=True)


def main() -> None:
    """Measure, print the tables, and the figures as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer tasks and draws")
    parser.add_argument("--seed", type=int, default=0, help="seed of the tasks; settings were chosen on 1")
    options = parser.parse_args()
    torch.set_num_threads(1)
    size = QUICK if options.quick else FULL
    started, spent = time.monotonic(), time.process_time()
    boards: dict[str, Sequence[Board]] = {}
    missing = []
    for place in PLACES:
        made = place.boards(size.share, options.seed)
        if made:
            boards[place.name] = made
        else:
            missing.append(place.name)
    if missing:
        print("left out, their packages are missing:", ", ".join(missing))
    errors = {place.name: place.error for place in PLACES}
    told: Json = {"environments": len(boards), "missing": missing}
    for method, measure in (
        ("credit", lambda name: credit(boards[name], errors[name], size.groups, size.draws)),
        ("recovery", lambda name: recovery(boards[name], size.runs, size.episodes)),
        ("cliff", lambda name: cliff(boards[name], errors[name], size.lost)),
    ):
        print(method, flush=True)
        told[method] = {name: measure(name) for name in boards}
        for name, found in told[method].items():
            show(name, found)
        print(f"  {time.process_time() - spent:.0f} s of the processor so far", flush=True)
    told["route"] = route(boards, size.repeats)
    told["tokens"] = tokens(size.questions, size.traces, size.datasets)
    print("cliff tokens of a tiny model")
    for name, found in told["tokens"].items():
        show(name, found)
    print(f"{time.monotonic() - started:.0f} s, {time.process_time() - spent:.0f} s of the processor")
    print(json.dumps(told))


if __name__ == "__main__":
    main()
