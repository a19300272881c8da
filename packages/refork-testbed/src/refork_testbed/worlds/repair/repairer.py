"""A planted repairer, which knows the gold edit and proposes it with a stated chance, for tests and docs.

A turn begins with a thought, one of 1024 equally likely tokens; what follows is a function of the transcript
and the thought. So the noise of a draw decides, and a fork at any token is exact.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias, final

from refork.policies.scripted import END, TURN, Distribution, ScriptedPolicy, Words, chance_of
from refork.worlds.dice import Dice
from refork_testbed.worlds.repair.edits import EditError, as_action, edited
from refork_testbed.worlds.repair.mutation import Mutation, mutations
from refork_testbed.worlds.repair.tasks import RepairTask, known_task, mutations_of
from refork_testbed.worlds.repair.world import SUBMIT

THOUGHTS = 1024
#: Characters of the longest word.
_LONGEST = 16
ProposalKind: TypeAlias = Literal["gold", "flawed", "miss", "syntax"]
_WORDS = (
    "line ", "--- a/", "+++ b/", "@@ -", " @@", "\n+", "\n-", "\n ", "    ", "        ", "            ",
    " return ", " for ", " in ", " if ", " else ", " and ", " or ", " not ", " is ", " None", "len(",
    "range(", "sum(", " = ", " += ", " == ", ".py", "self.", "def ", SUBMIT,
)  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class Skill:
    """Chances of one proposal: ``gold`` mends all, ``syntax`` does not parse, the rest is wrong.

    Of the wrong ones a share ``flawed`` undo the mutation and make another that some test executes, which few
    public tests may miss: in the same function, or as often in another of the file. The others leave the
    mutation there and make another in the same function.
    """

    gold: float = 0.4
    syntax: float = 0.05
    flawed: float = 0.6


@final
@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposed text of the task's file, and of what kind it was meant to be."""

    kind: ProposalKind
    text: str


def propose(task: RepairTask, thought: int, skill: Skill | None = None) -> Proposal:
    """The proposal of a thought (0 to 1023): a pure function of task, thought and skill."""
    chances = skill or Skill()
    fixed = task.project.files[task.path]
    # The middle of the thought's interval: shares of thoughts are the chances to within one thought.
    place = (thought + 0.5) / THOUGHTS
    if place < chances.gold:
        return Proposal("gold", fixed)
    dice = Dice("repairer", task.id, thought)
    if place < chances.gold + chances.syntax:
        return Proposal("syntax", _unparsable(fixed, task.mutation.line, dice))
    flawed = dice.uniform() < chances.flawed
    base = fixed if flawed else task.broken
    others = _others(task.id, "flawed" if flawed else "miss", inside=not flawed or dice.uniform() < 0.5)
    text = dice.choice(others).apply(base) if others else task.broken
    return Proposal("flawed" if flawed else "miss", text)


@lru_cache(maxsize=1024)
def _others(name: str, kind: ProposalKind, *, inside: bool) -> tuple[Mutation, ...]:
    """Mutations of the mended text, in lines that a test executes, or of the broken one.

    ``inside`` the mutated function or outside of it.
    """
    task = known_task(name)
    fixed = task.project.files[task.path]
    covered = frozenset().union(*task.project.spectrum.values())
    found = []
    for one in mutations_of(task.project.name, task.path) if kind == "flawed" else mutations(task.broken):
        if (one.function == task.mutation.function) != inside:
            continue
        if kind == "flawed":
            wanted = (task.path, one.line) in covered and one.id != task.mutation.id
        else:
            wanted = one.apply(task.broken) != fixed
        found += [one] if wanted else []
    return tuple(found)


def _unparsable(source: str, line: int, dice: Dice) -> str:
    rows = source.split("\n")
    broken = rows[line - 1].rstrip()
    rows[line - 1] = broken + dice.choice([" (", " ]", " =="])
    return "\n".join(rows)


def repairer(skill: Skill | None = None, *, name: str = "scripted:repairer") -> ScriptedPolicy:
    """The planted repairer as a policy: it edits until the public tests pass, then submits.

    It knows the tasks that this process has built. Turns may be long: sample with ``max_tokens`` of 2048.
    """
    chances = skill or Skill()
    words = Words([*_thoughts(), *_WORDS])
    identity = ["repairer", 1, chances.gold, chances.syntax, chances.flawed]
    return ScriptedPolicy(_Speaker(chances, words), words, name=name, identity=identity)


def _thoughts() -> tuple[str, ...]:
    return tuple(f"# {number:04d}\n" for number in range(THOUGHTS))


@final
class _Speaker:
    """The distribution of the next token of a transcript."""

    def __init__(self, skill: Skill, words: Words) -> None:
        self._skill, self._words = skill, words
        self._first: Distribution = dict.fromkeys(_thoughts(), 1.0 / THOUGHTS)
        self._turn = lru_cache(maxsize=1024)(self._whole_turn)

    def __call__(self, tokens: Sequence[int]) -> Distribution:
        start = len(tokens) - tokens[::-1].index(TURN) if TURN in tokens else 0
        said = self._words.pieces(tokens[start:])[0]
        if not said.startswith("# ") or "\n" not in said:
            return self._first if not said else {"": 1.0}
        whole = self._turn(tuple(tokens[:start]), int(said[2:6]) if said[2:6].isdigit() else 0)
        if not whole.startswith(said):  # somebody else began this turn: it ends there
            return {"": 1.0}
        rest = whole[len(said) :]
        return {self._words.pieces(self._words.encode(rest[:_LONGEST])[:1])[0] if rest else "": 1.0}

    def _whole_turn(self, before: tuple[int, ...], thought: int) -> str:
        heading = f"# {thought:04d}\n"
        parts, start = list[str](), 0
        for row, token in enumerate(before):
            if token in (TURN, END):
                parts.append(self._words.pieces(before[start:row])[0])
                start = row + 1
        named = re.search(r"Task (repair/\S+)", parts[0] if parts else "")
        if named is None:
            return heading + SUBMIT
        if len(parts) > 2 and _all_pass(parts[-1]):
            return heading + SUBMIT
        task = known_task(named[1])
        files = task.files
        for said in parts[1::2]:
            try:
                files = edited(files, task.path, without_thought(said))
            except EditError:
                continue
        proposal = propose(task, thought, self._skill)
        if proposal.text == files[task.path]:
            return heading + SUBMIT
        return heading + as_action(task.path, files[task.path], proposal.text)


def without_thought(output: str) -> str:
    """A turn of the repairer without its thought."""
    return re.sub(r"\A# \d{4}\n", "", output)


def _all_pass(seen: str) -> bool:
    found = re.search(r"(\d+) of (\d+) public tests pass", seen)
    return found is not None and found[1] == found[2]


def repairer_script(argument: str) -> ScriptedPolicy:
    """``repairer[@CHANCE]``: mends the repair world's functions with a chance, 0.4 unless told otherwise."""
    skill = Skill(gold=chance_of("repairer", argument, 0.0)) if argument else None
    return repairer(skill, name=f"scripted:repairer@{argument or 0.4}")
