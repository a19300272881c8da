"""``specialists``: questions of four domains, and four workers whose skill in each is planted.

A prompt and every observation show one question::

    harness : 3 questions , one letter each
    question 4711 of botany : a b c d ?

One of the four letters is right. The worker ``scripted:specialist@I`` knows it with the chance
``skill[I, domain]``. In the harness (three questions one after the other, rewarded where all are answered
right) these chances differ from those for a question asked alone (``specialists?alone=true``): in two of the
domains another worker is best.

Source: arXiv:2606.21228 reports that a model's standalone score does not predict its score inside a harness;
the world and its numbers are ours.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Final, final

import numpy as np
from jaxtyping import Float

from refork.errors import BadInput
from refork.policies.scripted import Distribution, ScriptedPolicy
from refork.tree.node import Trajectory
from refork.worlds.base import Observation, Split, Task
from refork.worlds.dice import Dice, digest, split_of
from refork.worlds.game import need, reading
from refork.worlds.spec import Spec

DOMAINS: Final = ("algebra", "botany", "chess", "law")
LETTERS: Final = ("a", "b", "c", "d")
TURNS: Final = 3
_SERIALS: Final = 1_000_000
_HEADER: Final = f"harness : {TURNS} questions , one letter each"
_QUESTION: Final = re.compile(rf"question (\d+) of ({'|'.join(DOMAINS)}) : ")

#: Chance that worker i (row) is right in domain d (column), for a question asked alone ...
ALONE: Final = np.full((4, 4), 0.4) + 0.5 * np.eye(4)
#: ... and in the harness: worker 1 is best in domain 2 and worker 0 in domain 3.
HARNESS: Final = ALONE.copy()
HARNESS[[2, 1], [2, 2]] = 0.5, 0.9
HARNESS[[3, 0], [3, 3]] = 0.4, 0.9
# Shared by all who import them: a write would change the world for everyone.
for _matrix in (ALONE, HARNESS):
    _matrix.flags.writeable = False


def success(shares: Float[np.ndarray, "domains workers"]) -> float:
    """The exact chance that a whole run succeeds where a turn's worker is drawn with ``shares[domain]``.

    Domains are equally likely and independent, so it is the mean skill of the chosen workers to the third
    power. Raises: BadInput for shares that are no probabilities [4, 4].
    """
    p = np.asarray(shares, dtype=np.float64)
    if p.shape != HARNESS.shape or (p < 0).any() or not np.allclose(p.sum(axis=1), 1):
        raise BadInput("shares must be probabilities [4 domains, 4 workers]")
    return float((p * HARNESS.T).sum(axis=1).mean() ** TURNS)


def success_of(workers: tuple[int, ...] | list[int]) -> float:
    """:func:`success` of a router that sends domain d to ``workers[d]``."""
    return success(np.eye(4)[list(workers)])


def question(serial: int, domain: int) -> str:
    """One question's text."""
    return f"question {serial} of {DOMAINS[domain]} : {' '.join(LETTERS)} ?"


def right_letter(serial: int, domain: str) -> str:
    """The letter that answers a question."""
    return LETTERS[int(digest("specialists", serial, domain)[:8], 16) % 4]


def domain_of(text: str) -> int | None:
    """The domain of the last question in a text; None where there is none."""
    found = _QUESTION.findall(text)
    return DOMAINS.index(found[-1][1]) if found else None


def features(text: str, d: int = 32) -> Float[np.ndarray, "d"]:
    """What a backbone might see of a text's last question: its domain's direction and noise of its own.

    A pure function of the question. Raises BadInput for a text without one.
    """
    found = _QUESTION.findall(text)
    if not found:
        raise BadInput("there is no question in this text")
    serial, domain = found[-1]
    # A fixed seed: the directions are part of the world, and no run may have others.
    directions = np.random.default_rng(0).normal(size=(len(DOMAINS), d))
    own = np.random.default_rng([1, int(serial), DOMAINS.index(domain)]).normal(size=d)
    return np.asarray(directions[DOMAINS.index(domain)] + 0.3 * own)


@final
class SpecialistsEpisode:
    """Asks its questions one after the other, never says which answers were right, and grades at the end."""

    def __init__(self, task: Task, answers: tuple[str, ...] = ()) -> None:
        self._task = task
        self._questions = _questions(task)
        self._answers = answers

    @property
    def first(self) -> Observation:
        """The prompt shows the first question."""
        return Observation(text="", state_key=digest("specialists", self._task.id))

    def step(self, action: str) -> Observation:
        """Answer the open question; after the last one the same end is given again."""
        if len(self._answers) < len(self._questions):
            self._answers += (action.strip(),)
        done = len(self._answers) == len(self._questions)
        rights = [
            right_letter(*asked) == said for asked, said in zip(self._questions, self._answers, strict=False)
        ]
        return Observation(
            text="" if done else question(*_question_of(self._questions[len(self._answers)])),
            state_key=digest("specialists", self._task.id, rights),
            done=done,
            reward=float(all(rights)) if done else None,
            info={"right": rights[-1]},
        )

    def snapshot(self) -> bytes:
        """The answers so far."""
        return json.dumps({"task": self._task.id, "answers": self._answers}).encode()

    def reseed(self, seed: int) -> None:
        """There is no chance in the world; the workers have it."""

    def close(self) -> None:
        """Nothing is held."""


@final
@dataclass(frozen=True)
class SpecialistsWorld:
    """Three questions in a harness, or one alone; every question's domain is drawn anew."""

    alone: bool = False
    version: str = field(default="1", init=False)
    deterministic: bool = field(default=True, init=False)

    @property
    def name(self) -> str:
        """The specification that opens this world."""
        return "specialists?alone=true" if self.alone else "specialists"

    @property
    def max_turns(self) -> int:
        """One turn for every question."""
        return 1 if self.alone else TURNS

    def tasks(self, split: Split, count: int, seed: int = 0) -> list[Task]:
        """``count`` different tasks; a shorter list is a prefix of a longer one."""
        dice, found = Dice(self.name, seed), dict[str, Task]()
        while len(found) < count:
            asked = [[dice.below(_SERIALS), DOMAINS[dice.below(4)]] for _ in range(self.max_turns)]
            mark = digest(asked)
            if split_of(mark) == split:
                first = question(*_question_of((int(asked[0][0]), str(asked[0][1]))))
                prompt = first if self.alone else f"{_HEADER}\n{first}"
                found[mark] = Task(f"{self.name}/{mark[:16]}", self.name, split, prompt, {"questions": asked})
        return list(found.values())

    def start(self, task: Task, seed: int) -> SpecialistsEpisode:
        """Begin; there is no chance."""
        del seed
        return SpecialistsEpisode(task)

    def restore(self, task: Task, snapshot: bytes) -> SpecialistsEpisode:
        """An episode in the state of a snapshot; raises BadInput where it is not one of this task."""
        with reading(self.name, task, snapshot) as record:
            answers = tuple(str(said) for said in record["answers"])
        return SpecialistsEpisode(task, answers)


def _question_of(asked: tuple[int, str]) -> tuple[int, int]:
    return asked[0], DOMAINS.index(asked[1])


def _questions(task: Task) -> tuple[tuple[int, str], ...]:
    need(task.data, ("questions",), "specialists")
    asked = tuple((int(serial), str(domain)) for serial, domain in task.data["questions"])
    if not asked or any(domain not in DOMAINS for _, domain in asked):
        raise BadInput("these are no questions of this world", where=f"task {task.id}")
    return asked


def specialist_distribution(worker: int, text: str) -> Distribution:
    """What worker ``worker`` says next after a text: the right letter with its skill, else a wrong one."""
    said = text.rpartition("\n")[2]
    found = _QUESTION.findall(text)
    # One letter is the whole answer; behind it the turn ends.
    if said or not found:
        return {"": 1.0}
    serial, domain = found[-1]
    skill = float((HARNESS if _HEADER in text else ALONE)[worker, DOMAINS.index(domain)])
    right = right_letter(int(serial), domain)
    return {letter: skill if letter == right else (1 - skill) / 3 for letter in LETTERS}


def specialist(worker: int) -> ScriptedPolicy:
    """``scripted:specialist@I``, I from 0 to 3. Raises BadInput for another number."""
    if worker not in range(len(HARNESS)):
        raise BadInput(f"there is no specialist {worker}", hint="0 to 3")
    words = ("question ", " of ", " : a b c d ?", *DOMAINS, _HEADER)
    return ScriptedPolicy.from_text(
        lambda text: specialist_distribution(worker, text), words, name=f"scripted:specialist@{worker}"
    )


def turn_right(trajectory: Trajectory, turn: int) -> float | None:
    """Whether a recorded run's answer number ``turn`` (from 0) was right; None where there was none."""
    task = trajectory.root.extra.get("task") or {}
    asked = _questions(Task(**task))
    said = [step.text.strip() for step in trajectory if step.node.kind == "action"]
    if not turn < min(len(said), len(asked)):
        return None
    return float(said[turn] == right_letter(*asked[turn]))


def open_specialists(spec: Spec) -> SpecialistsWorld:
    """``specialists``: three questions of four domains for workers of planted skill (option alone)."""
    spec.alone()
    return SpecialistsWorld(**spec.take({"alone": bool}))


def specialist_script(argument: str) -> ScriptedPolicy:
    """``specialist@I``: answers the specialists world's questions with worker I's planted skill, I 0 to 3."""
    return specialist(int(argument) if argument.isdigit() else -1)
