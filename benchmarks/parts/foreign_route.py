"""Routers over workers on tasks of several foreign environments: specialists, and a pool with one best.

What the router reads is the task's own prompt and what is seen first, as counts of their words. A specialist
is the scripted expert of some environments, and knows nothing of the others, where it acts at random.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from zlib import crc32

import numpy as np

from parts.foreign_boards import Board, Policy, rollout
from refork.types import Json
from refork_methods.route.stage1 import Stage1Settings, fit_stage1
from refork_methods.route.table import OutcomeTable

#: Error of a worker by environment; the last is what it does elsewhere. 1: every action is equally likely.
Worker = Mapping[str, float]
POOLS: dict[str, dict[str, Worker]] = {
    "specialists": {
        "planner": {"frozenlake": 0.0, "taxi": 0.2, "lava": 0.1, "": 1.0},
        "bot": {"babyai": 0.2, "": 1.0},
        "walkthrough": {"textworld": 0.2, "": 1.0},
        "generalist": {"": 0.35},
    },
    "one_best": {"careful": {"": 0.2}, "hasty": {"": 0.35}, "careless": {"": 0.5}},
}
WORDS, HELD_OUT = 48, 0.5


def features(prompt: str) -> np.ndarray:
    """Counts of a prompt's words in WORDS bins, as shares."""
    found = np.zeros(WORDS)
    for word in prompt.lower().split():
        found[crc32(word.encode()) % WORDS] += 1
    return np.asarray(found / max(found.sum(), 1))


def route(boards: Mapping[str, Sequence[Board]], repeats: int) -> Json:
    """Each pool's router on held-out tasks beside the best single worker."""
    told: Json = {"environments": len(boards)}
    tasks = [(name, board) for name, of in boards.items() for board in of]
    # Maps that differ read alike in FrozenLake: tasks of equal text count once together.
    texts = [f"{board.task.prompt}\n{board.text(0)}" for _, board in tasks]
    read = np.array([features(text) for text in texts])
    for pool, workers in POOLS.items():
        reward = np.zeros((len(tasks), len(workers), repeats))
        for row, (name, board) in enumerate(tasks):
            for column, worker in enumerate(workers.values()):
                rng = random.Random(f"{pool} {row} {column}")
                policy = Policy(board, worker.get(name, worker[""]))
                reward[row, column] = [rollout(policy, rng)[1] for _ in range(repeats)]
        names = [f"{name} {number}" for number, (name, _) in enumerate(tasks)]
        table = OutcomeTable.from_arrays(reward, list(workers), names, features=read, texts=texts)
        made = fit_stage1(table, settings=Stage1Settings(held_out=HELD_OUT, seed=1))
        verdict = made.verdict
        if verdict is None:
            told[pool] = {"verdict": None}
            continue
        print(f"route, {pool}: {verdict.sentence}")
        told[pool] = {
            "tasks": len(tasks), "held_out": verdict.tasks, "router": round(verdict.router, 4),
            "single": round(verdict.single, 4), "gain": round(verdict.difference.estimate, 4),
            "gain_low": round(verdict.difference.low, 4), "gain_high": round(verdict.difference.high, 4),
            "wins": int(verdict.outcome == "wins"), "constant": int(made.constant),
            "sentence": verdict.sentence,
        }  # fmt: skip
    return told
