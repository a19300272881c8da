"""Who acts while repositories are recorded: one that mends, one that errs first, one that looks around."""

from __future__ import annotations

import re

from refork.worlds.dice import Dice
from refork.worlds.environment import Actor
from refork_testbed.worlds.repair.mutation import lines
from refork_testbed.worlds.swe.repository import Repository
from refork_testbed.worlds.terminal.actors import Scripted
from refork_testbed.worlds.terminal.words import MISSING


def actor(home: Repository, turns: int, dice: Dice) -> Actor:
    """The actor of a task: half of them mend at once, a quarter err first, a quarter explore."""
    role = dice.choice(("mend", "mend", "err", "explore"))
    said = [_look(home, dice) for _ in range(1 + dice.below(3))]
    if role == "explore":
        said += [_any(home, dice) for _ in range(3 + dice.below(max(1, turns - 7)))]
        return Scripted(tuple([*said, "submit"][-turns:]))
    said += ["pytest"] if dice.uniform() < 0.7 else []
    said += [f"grep -n 'def ' {home.path}"] if dice.uniform() < 0.4 else []
    if role == "err":
        said += [_spoilt(home, dice), "pytest"]
    said += home.edits if role == "mend" or dice.uniform() < 0.8 else ()
    said += [] if role == "mend" else [f"git checkout {home.path}", *home.edits]
    said += ["pytest"] if dice.uniform() < 0.8 else []
    said += ["git diff"] if dice.uniform() < 0.5 else []
    said += [f"git commit -qam 'mend {home.function}'", "git status"] if dice.uniform() < 0.5 else []
    return Scripted(tuple([*said, "submit"][-turns:]))


def _number(home: Repository, dice: Dice) -> int:
    return 1 + dice.below(len(lines(home.files[home.path])))


def _look(home: Repository, dice: Dice) -> str:
    path, test = home.path, next(iter(home.tests))
    first = _number(home, dice)
    name = home.function.rpartition(".")[2]
    return dice.choice(
        (
            "git log --oneline", "git status", "ls", "git ls-files", f"cat {path}", f"cat {path}",
            f"cat {test}", f"sed -n {first},{first + 5}p {path}", f"grep -n {name} {path}",
            f"grep -c def {test}",
            f"wc -l {path}", "git show --stat HEAD", "git log --format=%s", f"git log --format=%s -- {path}",
            f"head -n 5 {test}",
        )
    )  # fmt: skip


def _wrong(home: Repository, dice: Dice) -> str:
    miss = dice.choice(MISSING)
    return dice.choice(
        (
            f"cat {miss}.py", f"git show {miss}", f"edit {miss}.py 3: pass", f"edit {home.path} 9999: pass",
            f"pytest tests/{miss}.py", f"git checkout {miss}", "git commit -m nothing",
            f"git {miss}", f"ls {miss}",
        )
    )  # fmt: skip


def _spoilt(home: Repository, dice: Dice) -> str:
    """An edit of the right line, or of another, that mends nothing."""
    number, _, code = home.edits[0].removeprefix(f"edit {home.path} ").partition(": ")
    if dice.uniform() < 0.5:
        changed = re.sub(r"\d+", lambda one: str(int(one[0]) + 1), code, count=1)
        changed = changed if changed != code else code.replace(" + ", " - ") + "  # mended"
        return f"edit {home.path} {number}: {changed}"
    return f"edit {home.path} {_number(home, dice)}: pass"


def _any(home: Repository, dice: Dice) -> str:
    roll = dice.uniform()
    if roll < 0.45:
        return _look(home, dice)
    if roll < 0.7:
        return _wrong(home, dice)
    return dice.choice(
        ("pytest", "git diff", "git diff --stat", _spoilt(home, dice), "git add -A", "git stash -q",
         f"git commit -qam 'change {home.function}'", f"git checkout {home.path}", "git reset -q --hard")
    )  # fmt: skip
