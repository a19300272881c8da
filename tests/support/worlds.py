"""A two-turn game whose values are known: success if both turns say "a" (and the world's coin allows it)."""

from __future__ import annotations

import json
from dataclasses import dataclass

from refork.sampling.noise import NoiseKey, uniforms
from refork.worlds.base import Observation, Task


@dataclass(frozen=True)
class TwoTurns:
    """With ``luck`` below 1 every "a" is heard only that often, by the world's own chance."""

    luck: float = 1.0
    name: str = "two-turns"
    version: str = "1"
    max_turns: int = 2

    @property
    def deterministic(self):
        return self.luck == 1.0

    def tasks(self, split, count, seed=0):
        return [Task(f"two/{split}/{i}", self.name, split, f"task {i}") for i in range(count)]

    def start(self, task, seed):
        return _Episode(self, [], seed)

    def restore(self, task, snapshot):
        data = json.loads(snapshot)
        return _Episode(self, data["heard"], data["seed"])


class _Episode:
    def __init__(self, world, heard, seed):
        self.world, self.heard, self.seed = world, list(heard), seed
        self.first = Observation("begin", state_key="0")

    def step(self, action):
        coin = uniforms([NoiseKey(self.seed, 1, 0)], 1, start=len(self.heard))[0, 0]
        self.heard.append(bool(action == " a" and coin < self.world.luck))
        done = len(self.heard) == self.world.max_turns
        return Observation(
            f"heard {self.heard}",
            state_key=str(self.heard),
            done=done,
            reward=float(all(self.heard)) if done else None,
        )

    def snapshot(self):
        return json.dumps({"heard": self.heard, "seed": self.seed}).encode()

    def reseed(self, seed):
        self.seed = seed

    def close(self):
        pass
