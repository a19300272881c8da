"""A number is hidden; the world says whether a guess is too low or too high."""

from refork.worlds.base import Episode, Observation, Task, World
from refork.worlds.dice import Dice


class Game(Episode):
    first = Observation("")  # the prompt says it all

    def __init__(self, hidden):
        self.hidden = hidden

    def step(self, action):
        guess = int(action) if action.strip().isdecimal() else 0
        said = "right" if guess == self.hidden else "higher" if guess < self.hidden else "lower"
        won = said == "right"
        return Observation(f"{guess}: {said};", done=won, reward=1.0 if won else None)


class Guess(World):
    """``guess?top=9``: a number from 1 to 9 in three guesses."""

    name, version, max_turns, deterministic = "guess", "1", 3, True

    def __init__(self, top: int = 9):
        self.top, self.name = top, f"guess?top={top}"

    def tasks(self, split, count, seed=0):
        prompt = f"Guess a number from 1 to {self.top};"
        drawn = [Dice("guess", split, seed, n).below(self.top) + 1 for n in range(count)]
        ids = [f"guess/{split}/{seed}/{n}" for n in range(count)]
        return [Task(i, self.name, split, prompt, {"hidden": one}) for i, one in zip(ids, drawn, strict=True)]

    def start(self, task, seed):
        return Game(task.data["hidden"])
