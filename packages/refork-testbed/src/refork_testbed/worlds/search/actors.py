"""Scripted searchers for recording: they solve, look around, and err."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from refork.worlds.base import Task
from refork.worlds.dice import Dice
from refork.worlds.environment import Seen
from refork_methods.simulate.search_text import read_action

MANNERS = ("solver", "solver", "explorer", "erring")


@final
class SearchActor:
    """An agent that follows the task's path of pages and then answers; ``manner`` is drawn by the seed.

    An explorer also looks at other pages and results; one that errs says nonsense, opens what is not there,
    and may answer wrongly. What it does next is a function of the task, the seed and what was seen.
    """

    def __init__(self, task: Task, titles: Sequence[str], seed: int) -> None:
        self.task, self._titles, self._seed = task, titles, seed
        self.manner = Dice("search actor", task.id, seed).choice(MANNERS)

    def act(self, seen: Sequence[Seen]) -> str | None:
        """The next action; None after the answer."""
        if seen and (last := read_action(seen[-1][0])) is not None and last.verb == "answer":
            return None
        dice = Dice("search actor", self.task.id, self._seed, len(seen))
        if self.manner == "explorer" and dice.uniform() < 0.5:
            return self._looks_around(dice, seen)
        if self.manner == "erring" and dice.uniform() < 0.4:
            return self._errs(dice)
        return self._solves(seen)

    def _solves(self, seen: Sequence[Seen]) -> str:
        opened = {said.split("\n")[0] for action, said in seen if action.startswith("open:")}
        target = next((title for title in self.task.data["path"] if title not in opened), None)
        if target is None:
            return "answer: " + " ; ".join(self.task.data["answer"])
        action, said = seen[-1] if seen else ("", "")
        for line in said.split("\n") if action.startswith("search:") else ():
            number, _, rest = line.partition(" ")
            if rest.startswith(f"{target} : "):
                return f"open: {number}"
        return f"open: {target}" if action == f"search: {target}" else f"search: {target}"

    def _looks_around(self, dice: Dice, seen: Sequence[Seen]) -> str:
        last = next((action for action, _ in reversed(seen) if action.startswith("search:")), None)
        ways = [f"search: {dice.choice(self._titles)}", f"search: {self.task.data['question']}"]
        if last is not None:
            ways += [f"open: {1 + dice.below(3)}", f"{last.partition(' ;')[0]} ; page {2 + dice.below(2)}"]
        return dice.choice(ways)

    def _errs(self, dice: Dice) -> str:
        wrong = dice.choice(self._titles)
        return dice.choice(["look around", "open: 99", "search:", f"open: no {wrong}", f"answer: {wrong}"])
