"""Who acts while the terminal world is recorded: one that solves, one that errs, one that looks around."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from refork.worlds.base import Split
from refork.worlds.dice import Dice, split_of
from refork.worlds.environment import ActionObservation, ScriptedAgent
from refork_testbed.worlds.terminal.goals import Drawn
from refork_testbed.worlds.terminal.words import ENDINGS, FOLDERS, MISSING, STEMS, TYPOS, WORDS


@final
@dataclass(frozen=True, slots=True)
class Scripted:
    """Says its lines whatever it sees."""

    lines: tuple[str, ...]

    def act(self, history: Sequence[ActionObservation]) -> str | None:
        """The next line; None after the last."""
        return self.lines[len(history)] if len(history) < len(self.lines) else None


def agent(task: Drawn, split: Split, turns: int, dice: Dice) -> ScriptedAgent:
    """The actor of a task: a third each solves, errs and explores."""
    words = Explorer(task, split, dice)
    role = dice.choice(("solve", "err", "explore"))
    if role == "explore":
        count = 5 + dice.below(max(1, turns - 5))
        lines = [words.command() for _ in range(count - 1)]
        return Scripted((*lines, words.wrong() if dice.uniform() < 0.8 else "submit")[:turns])
    lines = [words.look() for _ in range(1 + dice.below(3))]
    for line in task.script:
        if role == "err" and dice.uniform() < 0.6:
            lines.append(words.slip(line))
        lines.append(line)
    spare = turns - len(lines)
    for _ in range(dice.below(spare + 1) if spare > 0 else 0):
        lines.insert(dice.below(len(lines)), words.command() if role == "err" else words.look())
    return Scripted(tuple(_safe(lines, turns)))


def _safe(lines: list[str], turns: int) -> list[str]:
    """No more lines than turns; the last one stays."""
    return lines if len(lines) <= turns else [*lines[: turns - 1], lines[-1]]


@final
class Explorer:
    """Draws commands over the folder of a task. It keeps track of what it made, roughly, and not of errors.

    Paths that are not there yet are of the task's split, so that none is named in both.
    """

    def __init__(self, task: Drawn, split: Split, dice: Dice) -> None:
        self.dice, self.split = dice, split
        self.paths = list(task.files)
        self.folders = list(task.folders)
        self.words = sorted({word for text in task.files.values() for word in text.split() if word.isalpha()})
        self.answer = task.goal.answer

    def path(self) -> str:
        """A file that should be there."""
        return self.dice.choice(self.paths)

    def fresh(self) -> str:
        """A path of this split where nothing should be."""
        while True:
            folder = self.dice.choice(("", *self.folders))
            path = f"{folder}/" * bool(folder) + f"{self.dice.choice(STEMS)}.{self.dice.choice(ENDINGS)}"
            if split_of(path) == self.split and path not in self.paths:
                return path

    def look(self) -> str:
        """A command that changes nothing."""
        path, word = self.path(), self.dice.choice(self.words or ["red"])
        folder = self.dice.choice(self.folders or ["."])
        name = path.rpartition("/")[2]
        return self.dice.choice(
            (
                "ls", f"ls {folder}", "ls -R", "pwd", f"cat {path}", f"cat {path}",
                f"wc -l {path}",
                f"wc -w {path}", f"head -n 1 {path}", f"tail -n 1 {path}", f"head -n 2 {path}",
                f"sort {path}",
                f"sort -r {path}", f"sort {path} | uniq", f"sort {path} | uniq -c", f"sort -u {path}",
                f"grep {word} {path}", f"grep -c {word} {path}", f"grep -n {word} {path}",
                f"grep -v {word} {path}", f"grep -rl {word} . | sort", f"cut -d ' ' -f 1 {path}",
                f"cat {path} | wc -l", f"ls {folder} | wc -l", f"find . -name {name}",
                f"test -f {path} && echo yes", f"stat -c %a {path}", f"cat {path} {self.path()}",
            )
        )  # fmt: skip

    def change(self) -> str:
        """A command that changes the folder."""
        path, word = self.path(), self.dice.choice(WORDS)
        kind = self.dice.below(10)
        if kind == 0:
            folder = self.dice.choice([one for one in FOLDERS if one not in self.folders] or ["box"])
            self.folders.append(folder)
            return f"mkdir {folder}"
        if kind in (1, 2):
            to = self.fresh()
            self.paths.append(to)
            if kind == 1:
                self.paths.remove(path)
            return f"{'mv' if kind == 1 else 'cp'} {path} {to}"
        if kind == 3 and len(self.paths) > 2:
            self.paths.remove(path)
            return f"rm {path}"
        if kind in (4, 5):
            return f"echo {word} >> {path}"
        if kind == 6:
            return f"sed -i s/{self.dice.choice(self.words or ['red'])}/{word}/ {path}"
        if kind == 7:
            return f"chmod {self.dice.choice(('600', '755', '444'))} {path}"
        to = self.fresh()
        self.paths.append(to)
        return f"echo {word} > {to}" if kind == 8 else f"sort {path} > {to}"

    def wrong(self) -> str:
        """A command that fails, or a submission that is not accepted."""
        miss, path = self.dice.choice(MISSING), self.path()
        folder = self.dice.choice(self.folders or ["."])
        word, typo = self.dice.choice(WORDS), self.dice.choice(TYPOS)
        return self.dice.choice(
            (
                f"cat {miss}.txt", f"cat {folder}/{miss}.md", f"ls {miss}", f"cd {miss}", f"rm {miss}.txt",
                f"cat {folder}", f"rm {folder}", f"mkdir {folder}", f"wc -l {miss}.csv",
                f"grep {word} {miss}.txt", f"mv {miss}.txt {folder}", f"cp {miss}.md {folder}",
                f"rmdir {folder}", f"sort {miss}.txt", f"head -n 1 {miss}.md", f"{typo} {path}",
                f"touch {miss}/{miss}.txt", f"echo {miss} > {miss}/{miss}.txt",
            )
        )  # fmt: skip

    def command(self) -> str:
        """Any command: mostly looks, some changes, some errors."""
        roll = self.dice.uniform()
        return self.look() if roll < 0.5 else self.change() if roll < 0.8 else self.wrong()

    def slip(self, line: str) -> str:
        """A line as somebody in a hurry types it: another name, or another command."""
        head, _, rest = line.partition(" ")
        if head == "submit":
            return self.look()
        if self.dice.uniform() < 0.5:
            return f"{self.dice.choice(TYPOS)} {rest}".strip()
        names = [word for word in rest.split() if "." in word]
        return line.replace(names[0], f"{self.dice.choice(MISSING)}.txt") if names else self.wrong()
