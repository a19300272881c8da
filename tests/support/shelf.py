"""A planted environment for simulators: a folder of names, a scripted model that answers as it would."""

import json
import re
from dataclasses import dataclass, field

from refork.errors import CannotDo
from refork.policies.scripted import ScriptedPolicy
from refork.worlds.base import Observation, Task
from refork.worlds.environment import Brief
from refork_methods.simulate.world import WorldModel

WORDS = ("<prediction>", "</prediction>")
RIGHT, WRONG = "right , you are done", "wrong , you are done"


def answer(files, actions):
    """What the real folder says to the last of these actions."""
    have = set(files)
    said = ""
    for action in actions:
        verb, _, name = action.partition(" ")
        if verb == "ls":
            said = " ".join(sorted(have))
        elif verb == "touch" and name:
            said = "ok"
            have.add(name)
        elif verb == "rm":
            said = "ok" if name in have else f"{name} : No such file"
            have.discard(name)
        elif verb == "submit":
            said = RIGHT if name == str(len(have)) else WRONG
        else:
            said = "what ?"
    return said


@dataclass(frozen=True)
class Shelf:
    """``shelf``: say how many files there are. ``saves`` and ``runs`` say what the real one can do here."""

    saves: bool = True
    runs: bool = True
    changed: bool = False
    name: str = "shelf"
    version: str = "1"
    max_turns: int = 4
    deterministic: bool = True
    domain: str = "terminal"
    log: list = field(default_factory=list, compare=False)

    def tasks(self, split, count, seed=0):
        files = [sorted({"a", "b", "c"} - {"abc"[i % 3]}) for i in range(count)]
        return [
            Task(f"shelf/{split}/{i}", "shelf", split, "how many files ?", {"files": files[i]})
            for i in range(count)
        ]

    def start(self, task, seed):
        if not self.runs:
            raise CannotDo("the real folder is not here")
        return RealShelf(self, task, [])

    def restore(self, task, snapshot):
        if not self.runs:
            raise CannotDo("the real folder is not here")
        return RealShelf(self, task, json.loads(snapshot))

    def brief(self, task):
        return Brief(task_description=task.prompt, initial_state="files : " + " ".join(task.data["files"]))

    def agent(self, task, seed):
        raise NotImplementedError

    def standing(self, task, seen):
        last = seen[-1][1] if seen else ""
        done = last in (RIGHT, WRONG)
        return done, (float(last == RIGHT) if done else None)


class RealShelf:
    first = Observation("")

    def __init__(self, world, task, done):
        self.world, self.task, self.done = world, task, list(done)

    def step(self, action):
        self.done.append(action)
        self.world.log.append(action)
        text = answer(self.task.data["files"], self.done)
        if self.world.changed:
            text += " !"
        done, reward = self.world.standing(self.task, [(action, text)])
        return Observation(text, done=done, reward=reward)

    def snapshot(self):
        return json.dumps(self.done).encode() if self.world.saves else None

    def reseed(self, seed):
        pass

    def close(self):
        pass


def respond(prompt):
    """The right answer to a rendered prompt."""
    files = re.search(r"files : ([a-z ]*)", prompt)
    return [answer(files[1].split() if files else [], re.findall(r"([^\n>]*)\n(?=<prediction>)", prompt))]


def scripted_simulator(choices=respond, name="shelf-model"):
    """A model that says one of ``choices(prompt)`` in the tag, each equally likely."""

    def law(text):
        if text.endswith("</prediction>"):
            return {"": 1.0}
        before, closed, rest = text.rpartition("</prediction>")
        head, mark, said = rest.rpartition("\n<prediction>")
        if not mark:
            return {"<prediction>": 1.0}
        fitting = [one for one in choices(before + closed + head + mark) if one.startswith(said)]
        following = [one[len(said) : len(said) + 1] or "</prediction>" for one in fitting]
        return {token: following.count(token) / len(following) for token in set(following)}

    return ScriptedPolicy.from_text(law, WORDS, name=name)


def model(choices=respond, **settings):
    return WorldModel(scripted_simulator(choices), **settings)
