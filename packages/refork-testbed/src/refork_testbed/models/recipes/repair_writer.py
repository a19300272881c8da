"""``repair-writer``: mends a line of a code base that it knows, and errs in a known share of its turns.

It has seen every generated project of the repair world, with four fifths of the mutations of each: not how
to repair programs, but how this code reads and what its bugs look like. The others are held out. Its mistakes
are those of repairers: an edit in the wrong place, another bug in the right place, code that does not parse.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import final

import numpy as np

from refork.policies.base import Sampling
from refork.types import Message
from refork_methods.train.sft import SftSettings
from refork_testbed.models.recipe import Conversation, Recipe, Shape
from refork_testbed.worlds.repair.generated import generated, trades
from refork_testbed.worlds.repair.mutation import KINDS, Mutation, lines, mutations
from refork_testbed.worlds.repair.small import mutation_split, small_prompt, span

DIALOGUES = 36_000
#: Shares of dialogues of one, two and three turns.
TURNS = (0.8, 0.15, 0.05)
#: Chance that a turn is wrong, and what wrong turns are: another bug in the mutated line, one in another line
#: of the function, and code that does not parse.
ERR = 0.05
ERRORS = {"flawed": 0.5, "miss": 0.3, "syntax": 0.2}
#: A word is a token of its own where it stands so often in the code shown.
OFTEN = 5
#: The longest file has fewer lines.
LONGEST = 60
CRITICS = ("syntax", "ruff", "public")
UNTOLD = "not right yet"
#: What the world answers in the small wording.
COUNTS = ("0 of 2", "1 of 2", "2 of 2")
TAILS = (" (", " ]", " ==")


@final
@dataclass(frozen=True, slots=True)
class Bug:
    """A mutation of a file, ``source``; ``rest`` are all mutations of the same function."""

    source: str
    mutation: Mutation
    rest: tuple[Mutation, ...]


@cache
def bugs() -> dict[str, list[Bug]]:
    """The training split's mutations of all generated projects, by kind; no test is run."""
    found: dict[str, list[Bug]] = {kind: [] for kind in KINDS}
    for number in range(len(trades())):
        for source in generated(number)[1].values():
            by_function: dict[tuple[int, int], list[Mutation]] = {}
            for one in mutations(source):
                by_function.setdefault(span(source, one.line), []).append(one)
            for several in by_function.values():
                for one in several:
                    if mutation_split(source, one) == "train":
                        found[one.kind].append(Bug(source, one, tuple(several)))
    return found


def answer(source: str, number: int) -> str:
    """The edit that gives line ``number`` of a file the text it has in ``source``."""
    return f"line {number}: {lines(source)[number - 1].strip()}"


def dialogue(bug: Bug, rng: np.random.Generator) -> list[Message]:
    """A repair of one to three turns: each mends a line that is still wrong, or errs."""
    broken = bug.mutation.apply(bug.source)
    talk: list[Message] = [say("user", small_prompt(bug.source, bug.mutation.line, broken))]
    wrong, last = [bug.mutation.line], bug.mutation.line
    for turn in range(1 + int(rng.choice(len(TURNS), p=TURNS))):
        if turn:
            talk.append(say("user", test_feedback(str(talk[-1]["content"]), bool(wrong), rng)))
        if rng.random() < ERR:
            number, said = mistake(bug, rng)
            wrong = [*(line for line in wrong if line != number), number]
        else:
            # Where nothing is wrong any more it stands by what it wrote.
            number = int(rng.choice(wrong)) if wrong else last
            said, last = answer(bug.source, number), number
            wrong = [line for line in wrong if line != number]
        talk.append(say("assistant", said))
    return talk


def mistake(bug: Bug, rng: np.random.Generator) -> tuple[int, str]:
    """A wrong edit: its line, and its text."""
    kind = str(rng.choice(list(ERRORS), p=list(ERRORS.values())))
    here = [
        one
        for one in bug.rest
        if (one.line == bug.mutation.line) == (kind == "flawed") and one.id != bug.mutation.id
    ]
    if kind == "syntax" or not here:
        number = bug.mutation.line
        return number, answer(bug.source, number) + str(rng.choice(TAILS))
    other = here[int(rng.integers(len(here)))]
    return other.line, answer(other.apply(bug.source), other.line)


def test_feedback(output: str, wrong: bool, rng: np.random.Generator) -> str:
    """What a turn is answered: failed critics as the gate names them, or the world's count of tests."""
    if rng.random() < 0.3:
        return f"{rng.choice(COUNTS) if wrong else COUNTS[-1]} public tests pass"
    if not wrong:
        return UNTOLD
    failed = CRITICS if output.endswith(TAILS) else CRITICS[1 + int(rng.random() < 0.8) :]
    return "\n".join(f"{name}: failed" for name in failed)


def say(role: str, content: str) -> Message:
    """A message."""
    return {"role": role, "content": content}


def conversations() -> list[Conversation]:
    """Dialogues about training mutations, all kinds as often."""
    rng = np.random.default_rng(40)
    pools = bugs()
    found: list[Conversation] = []
    for turn in range(DIALOGUES):
        pool = pools[KINDS[turn % len(KINDS)]]
        found.append(dialogue(pool[int(rng.integers(len(pool)))], rng))
    return found


def words() -> Sequence[str]:
    """Names, numbers and signs of the projects, line numbers, and the words of the answers."""
    count: Counter[str] = Counter()
    for number in range(len(trades())):
        for source in generated(number)[1].values():
            for line in {span(source, one.line)[0] for one in mutations(source)}:
                count.update(re.findall(r"[A-Za-z]+|[0-9]+|[^A-Za-z0-9\s]+", small_prompt(source, line)))
    spoken = re.findall(r"[A-Za-z]+", " ".join((*CRITICS, UNTOLD, "line failed of public tests pass")))
    often = [word for word, seen in count.items() if seen >= OFTEN and not word.isdigit()]
    return sorted({*often, *map(str, range(LONGEST)), *spoken})


RECIPE = Recipe(
    name="repair-writer",
    summary="mends one line of a function of a code base that it knows",
    data=f"{DIALOGUES} dialogues of one to three edits about mutations of the twenty generated projects, a "
    f"fifth of the mutations held out; each turn errs with probability {ERR}",
    words=words,
    conversations=conversations,
    shape=Shape(layers=3, width=96, heads=4, hidden=192, context=384),
    training=SftSettings(steps=1200, rows=32, learning_rate=3e-3, warmup=50),
    world="repair?origin=generated&splits=mutations&turns=1&wording=small",
    sampling=Sampling(max_tokens=80),
)
