"""Tasks in a folder: what is there, what is wanted, and one way to get it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, final

from refork.types import Json
from refork.worlds.base import Split
from refork.worlds.dice import Dice, split_of
from refork_testbed.worlds.terminal.words import ENDINGS, FOLDERS, STEMS, WORDS


@final
@dataclass(frozen=True, slots=True)
class Goal:
    """What a folder must be like at the end; what is not named must be as it was.

    ``files``: path -> content; ``gone``: paths that are not there; ``folders``: that are; ``modes``: path ->
    mode; ``answer``: what is submitted.
    """

    files: dict[str, str] = field(default_factory=dict)
    gone: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    modes: dict[str, int] = field(default_factory=dict)
    answer: str | None = None


@final
@dataclass(frozen=True, slots=True)
class Drawn:
    """A task: the files at its beginning, its words, its goal and the commands of one solution."""

    kind: str
    files: dict[str, str]
    folders: tuple[str, ...]
    brief: str
    goal: Goal
    script: tuple[str, ...]

    def to_json(self) -> Json:
        """Plain JSON: the data of a task."""
        goal = {
            "files": self.goal.files, "gone": list(self.goal.gone), "folders": list(self.goal.folders),
            "modes": self.goal.modes, "answer": self.goal.answer,
        }  # fmt: skip
        return {
            "kind": self.kind, "files": self.files, "folders": list(self.folders), "told": self.brief,
            "goal": goal, "script": list(self.script),
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Drawn:
        """Inverse of :meth:`to_json`."""
        want = data["goal"]
        goal = Goal(
            dict(want["files"]), tuple(want["gone"]), tuple(want["folders"]),
            {key: int(value) for key, value in want["modes"].items()}, want["answer"],
        )  # fmt: skip
        return cls(
            str(data["kind"]), dict(data["files"]), tuple(data["folders"]), str(data["told"]), goal,
            tuple(data["script"]),
        )  # fmt: skip


@final
class Scene:
    """A random folder. Its paths belong to one split only, and so no command on them is in both."""

    def __init__(self, dice: Dice, split: Split) -> None:
        self.dice, self.split = dice, split
        self.folders = tuple(sorted(dice.sample(FOLDERS, 2 + dice.below(2))))
        self.files: dict[str, str] = {}
        for number in range(4 + dice.below(3)):
            self.files[self.fresh()] = self.text(numbers=number == 0)

    def fresh(self) -> str:
        """A path of this split where nothing is."""
        while True:
            folder = self.dice.choice(("", *self.folders, *self.folders))
            path = f"{folder}/" * bool(folder) + f"{self.dice.choice(STEMS)}.{self.dice.choice(ENDINGS)}"
            if split_of(path) == self.split and path not in self.files:
                return path

    def text(self, *, numbers: bool = False) -> str:
        """Two to four short lines."""
        if numbers:
            return "".join(f"{1 + self.dice.below(20)}\n" for _ in range(3))
        words = self.dice.sample(WORDS, 3)
        rows = [
            [self.dice.choice(words) for _ in range(1 + self.dice.below(2))]
            for _ in range(2 + self.dice.below(3))
        ]
        return "".join(" ".join(row) + "\n" for row in rows)

    def numbers(self) -> str:
        """The file of numbers."""
        return next(iter(self.files))

    def some(self) -> str:
        """A file of words."""
        return self.dice.choice(list(self.files)[1:])


Made = tuple[str, Goal, tuple[str, ...]]


def _count(scene: Scene) -> Made:
    path = scene.some()
    answer = str(scene.files[path].count("\n"))
    return f"how many lines are in {path}", Goal(answer=answer), (f"wc -l {path}", f"submit {answer}")


def _sum(scene: Scene) -> Made:
    path = scene.numbers()
    answer = str(sum(map(int, scene.files[path].split())))
    return (
        f"what is the sum of the numbers in {path}",
        Goal(answer=answer),
        (f"cat {path}", f"submit {answer}"),
    )


def _largest(scene: Scene) -> Made:
    path = scene.numbers()
    answer = str(max(map(int, scene.files[path].split())))
    script = (f"sort -n {path} | tail -n 1", f"submit {answer}")
    return f"what is the largest number in {path}", Goal(answer=answer), script


def _find(scene: Scene) -> Made | None:
    path = scene.some()
    word = scene.dice.choice(scene.files[path].split())
    if sum(word in text.split() for text in scene.files.values()) != 1:
        return None
    script = (f"grep -rl {word} . | sort", f"submit {path}")
    return f"which file holds the word {word}", Goal(answer=path), script


def _often(scene: Scene) -> Made | None:
    path = scene.some()
    best = Counter(scene.files[path].splitlines()).most_common(2)
    # A tie would have two right answers.
    if len(best) > 1 and best[0][1] == best[1][1]:
        return None
    script = (f"sort {path} | uniq -c", f"submit {best[0][0]}")
    return f"which line is most often in {path}", Goal(answer=best[0][0]), script


def _written(scene: Scene, told: str, command: str, content: str, to: str) -> Made:
    return told, Goal(files={to: content}), (f"{command} > {to}", f"cat {to}", "submit")


def _sorted(scene: Scene) -> Made:
    path, to = scene.some(), scene.fresh()
    text = "".join(sorted(scene.files[path].splitlines(True)))
    return _written(scene, f"write the lines of {path} sorted to {to}", f"sort {path}", text, to)


def _different(scene: Scene) -> Made:
    path, to = scene.some(), scene.fresh()
    text = "".join(sorted(set(scene.files[path].splitlines(True))))
    return _written(scene, f"write the different lines of {path} sorted to {to}", f"sort -u {path}", text, to)


def _first(scene: Scene) -> Made:
    path, to = scene.some(), scene.fresh()
    text = "".join(line.split()[0] + "\n" for line in scene.files[path].splitlines())
    command = f"cut -d ' ' -f 1 {path}"
    return _written(scene, f"write the first word of each line of {path} to {to}", command, text, to)


def _with(scene: Scene) -> Made:
    path, to = scene.some(), scene.fresh()
    word = scene.dice.choice(scene.files[path].split())
    # As grep does: a word that is part of another counts.
    text = "".join(line for line in scene.files[path].splitlines(True) if word in line)
    return _written(scene, f"write the lines with {word} of {path} to {to}", f"grep {word} {path}", text, to)


def _join(scene: Scene) -> Made | None:
    path, other, to = scene.some(), scene.some(), scene.fresh()
    if path == other:
        return None
    text = scene.files[path] + scene.files[other]
    return _written(scene, f"write {path} and then {other} to {to}", f"cat {path} {other}", text, to)


def _upper(scene: Scene) -> Made:
    path, to = scene.some(), scene.fresh()
    old, new = scene.dice.sample(sorted({*scene.files[path].split(), *WORDS[:6]}), 2)
    text = scene.files[path].replace(old, new)
    return _written(
        scene, f"write {path} with {new} for {old} to {to}", f"sed s/{old}/{new}/g {path}", text, to
    )


def _move(scene: Scene) -> Made:
    path, to = scene.some(), scene.fresh()
    goal = Goal(files={to: scene.files[path]}, gone=(path,))
    return f"move {path} to {to}", goal, (f"mv {path} {to}", f"cat {to}", "submit")


def _copy(scene: Scene) -> Made:
    path, to = scene.some(), scene.fresh()
    return (
        f"copy {path} to {to}",
        Goal(files={to: scene.files[path]}),
        (f"cp {path} {to}", f"cat {to}", "submit"),
    )


def _remove(scene: Scene) -> Made:
    path = scene.some()
    return f"remove {path}", Goal(gone=(path,)), (f"rm {path}", "ls", "submit")


def _append(scene: Scene) -> Made:
    path, word = scene.some(), scene.dice.choice(WORDS)
    goal = Goal(files={path: f"{scene.files[path]}{word}\n"})
    return f"add the line {word} to {path}", goal, (f"echo {word} >> {path}", f"cat {path}", "submit")


def _write(scene: Scene) -> Made:
    to, words = scene.fresh(), " ".join(scene.dice.sample(WORDS, 2))
    return _written(scene, f"write the line {words} to {to}", f"echo {words}", f"{words}\n", to)


def _build(scene: Scene) -> Made:
    folder = scene.dice.choice([one for one in FOLDERS if one not in scene.folders])
    place = f"{scene.dice.choice(scene.folders)}/{folder}"
    return f"make the folder {place}", Goal(folders=(place,)), (f"mkdir {place}", "ls -R", "submit")


def _mode(scene: Scene) -> Made:
    path = scene.some()
    mode = scene.dice.choice(("600", "755", "444", "640"))
    goal = Goal(modes={path: int(mode, 8)})
    return f"set the mode of {path} to {mode}", goal, (f"chmod {mode} {path}", f"stat -c %a {path}", "submit")


KINDS: dict[str, Callable[[Scene], Made | None]] = {
    "count": _count, "sum": _sum, "largest": _largest, "find": _find, "often": _often, "sorted": _sorted,
    "different": _different, "first": _first, "with": _with, "join": _join, "replace": _upper, "move": _move,
    "copy": _copy, "remove": _remove, "append": _append, "write": _write, "build": _build, "mode": _mode,
}  # fmt: skip


def draw(dice: Dice, split: Split) -> Drawn:
    """A random task of a split."""
    while True:
        scene = Scene(dice, split)
        kind = dice.choice(tuple(KINDS))
        files = dict(sorted(scene.files.items()))
        made = KINDS[kind](scene)
        if made is not None:
            told, goal, script = made
            return Drawn(kind, files, scene.folders, told, goal, script)
