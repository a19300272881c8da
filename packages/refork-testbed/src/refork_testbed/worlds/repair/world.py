"""``repair``: mend one broken function of a small Python project.

The prompt holds a user's report, the broken function with line numbers, and a failing public test. A turn is
an edit (``line N: code`` or a unified diff), answered by the public tests, or ``submit``. The episode ends
with ``submit`` or the last turn; its reward is 1 where the hidden suite passes then, else 0.

In the small wording the prompt is the numbered function alone, and an answer the count of public tests.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, final

from refork.errors import BadInput
from refork.types import Json
from refork.worlds.base import Observation, Split, Task
from refork.worlds.dice import digest
from refork.worlds.game import need, reading
from refork.worlds.spec import Spec
from refork_testbed.worlds.repair.critics import Verdict, hidden_tests, public_tests
from refork_testbed.worlds.repair.edits import EditError, edited
from refork_testbed.worlds.repair.mutation import lines
from refork_testbed.worlds.repair.projects import project_names, split_of_project
from refork_testbed.worlds.repair.small import small_prompt, span
from refork_testbed.worlds.repair.tasks import RepairTask, repair_tasks, task_from_json

SUBMIT = "submit"
#: Types of the options of a specification.
OPTIONS: dict[str, type | tuple[type, ...]] = {"turns": int, "origin": str, "wording": str, "splits": str}
_KEYS = ("project", "path", "mutation", "broken", "public", "issue")


@final
@dataclass(frozen=True)
class RepairWorld:
    """Forty projects, half of them for either split; ``origin`` keeps the generated or the standard ones.

    ``splits`` "mutations": every project is in both splits, with other mutations. ``wording``: full or small.
    """

    turns: int = 4
    origin: str | None = None
    options: str = ""
    wording: str = "full"
    splits: str = "projects"

    version = "1"
    deterministic = True

    def __post_init__(self) -> None:
        if self.turns < 1:
            raise BadInput(f"a repair has at least one turn, not {self.turns}", where="repair")
        if self.origin not in (None, "generated", "stdlib"):
            raise BadInput(f"there is no origin {self.origin!r}", where="repair", hint="generated or stdlib")
        if self.wording not in ("full", "small"):
            raise BadInput(f"there is no wording {self.wording!r}", where="repair", hint="full or small")
        if self.splits not in ("projects", "mutations"):
            hint = "projects or mutations"
            raise BadInput(f"there are no splits by {self.splits!r}", where="repair", hint=hint)

    @property
    def name(self) -> str:
        """The specification that opens this world."""
        return f"repair?{self.options}" if self.options else "repair"

    @property
    def max_turns(self) -> int:
        """Edits, the submission included."""
        return self.turns

    def tasks(self, split: Split, count: int, seed: int = 0) -> list[Task]:
        """``count`` seeded tasks; a project belongs to one split with all of its tasks, or mutations do.

        Raises:
            BadInput: there are not so many.
        """
        names = [name for name in project_names() if self._wanted(name)]
        if self.splits == "mutations":
            found = repair_tasks(count, seed, names=names, among=split)
        else:
            names = [name for name in names if split_of_project(name) == split]
            found = repair_tasks(count, seed, names=names)
        return [self._as_task(one, split) for one in found]

    def _wanted(self, name: str) -> bool:
        return self.origin is None or name.startswith("std-") == (self.origin == "stdlib")

    def _as_task(self, one: RepairTask, split: Split) -> Task:
        said = small_prompt(one.broken, one.mutation.line) if self.wording == "small" else prompt(one)
        return Task(id=one.id, world=self.name, split=split, prompt=said, data=one.to_json())

    def start(self, task: Task, seed: int) -> RepairEpisode:
        """Begin; there is no chance."""
        del seed
        return RepairEpisode(task, _repair(task), self.turns, brief=self.wording == "small")

    def restore(self, task: Task, snapshot: bytes) -> RepairEpisode:
        """An episode in the state of a snapshot; raises BadInput where it is not one of this task."""
        home = _repair(task)
        with reading(self.name, task, snapshot) as record:
            changed, turn = dict(record["changed"]), int(record["turn"])
            seen = None if record["seen"] is None else Observation(**record["seen"])
            if not all(isinstance(text, str) and path in home.files for path, text in changed.items()):
                raise ValueError("files that the project has not")
        brief = self.wording == "small"
        return RepairEpisode(
            task, home, self.turns, changed=changed, turn=turn, observation=seen, brief=brief
        )


@final
class RepairEpisode:
    """A project under repair: edits add up, and the tests of every state are run once."""

    def __init__(
        self,
        task: Task,
        home: RepairTask,
        turns: int,
        *,
        changed: Mapping[str, str] | None = None,
        turn: int = 0,
        observation: Observation | None = None,
        brief: bool = False,
    ) -> None:
        self.task, self._brief = task, brief
        self._home, self._turns, self._turn = home, turns, turn
        self._changed = dict(changed or {})
        self._seen = observation

    @property
    def first(self) -> Observation:
        """Nothing but the prompt is seen before the first edit."""
        return Observation(text="", state_key=digest("repair", self.task.id, {}, False))

    @property
    def files(self) -> dict[str, str]:
        """Path -> source as it stands now."""
        return {**self._home.files, **self._changed}

    def step(self, action: str) -> Observation:
        """Edit and see the public tests, or submit and be graded."""
        if self._seen is not None and self._seen.done:
            return self._seen
        self._turn += 1
        if (action.strip().split("\n") or [""])[-1].strip().lower() == SUBMIT:
            self._seen = self._graded("submitted")
            return self._seen
        try:
            files = edited(self.files, self._home.path, action)
        except EditError as error:
            text, info = f"nothing happens ; {error}", {"invalid": True}
        else:
            broken = self._home.files
            self._changed = {path: files[path] for path in files if files[path] != broken[path]}
            text, info = self._public()
        if self._turn >= self._turns:
            self._seen = self._graded(f"{text}\ntime is up", info)
        else:
            self._seen = Observation(text, self._key(False), info=info)
        return self._seen

    def _public(self) -> tuple[str, Json]:
        verdict = _verdict(self._home, "public", tuple(sorted(self._changed.items())))
        count = len(self._home.public)
        head = f"{count - verdict.failed} of {count} public tests pass"
        told = "" if self._brief else verdict.note
        return f"{head}\n{told}".rstrip("\n"), {"public": verdict.passed}

    def _graded(self, text: str, info: Json | None = None) -> Observation:
        hidden = _verdict(self._home, "hidden", tuple(sorted(self._changed.items()))).passed
        told = "passes" if hidden else "fails"
        return Observation(
            text=f"{text} ; the hidden suite {told}",
            state_key=self._key(True),
            done=True,
            reward=float(hidden),
            info={**(info or {}), "hidden": hidden},
        )

    def _key(self, done: bool) -> str:
        return digest("repair", self.task.id, self._changed, done)

    def snapshot(self) -> bytes:
        """Changed files, turn and the last observation, as JSON."""
        seen = None if self._seen is None else asdict(self._seen)
        record = {"task": self.task.id, "changed": self._changed, "turn": self._turn, "seen": seen}
        return json.dumps(record, sort_keys=True).encode()

    def reseed(self, seed: int) -> None:
        """There is no chance."""

    def close(self) -> None:
        """The runner is shared by all episodes of the process."""


def prompt(task: RepairTask) -> str:
    """What a repairer is told: the report, the broken function with line numbers, one failing public test."""
    first, last = _function(task)
    rows = lines(task.broken)
    shown = "".join(f"{number:5d}  {rows[number - 1]}" for number in range(first, last + 1))
    path, _, function = task.public[0].partition("::")
    return (
        f"Task {task.id}\n\n{task.issue}\n\n"
        f"The cause is in this function of {task.path}:\n\n{shown.rstrip()}\n\n"
        f"A test that fails:\n\n{_source_of(task.tests[path], function)}\n\n"
        f"Answer with one edit: 'line N: code', or a unified diff. When you are done: {SUBMIT}"
    )


def _function(task: RepairTask) -> tuple[int, int]:
    """First and last line of the innermost function that holds the mutation."""
    # The mutation's line is of the right source; the broken one may be longer or shorter.
    grown = len(lines(task.broken)) - len(lines(task.project.files[task.path]))
    first, last = span(task.project.files[task.path], task.mutation.line)
    return first, last + grown


def _source_of(source: str, function: str) -> str:
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return "".join(lines(source)[node.lineno - 1 : node.end_lineno]).rstrip("\n")
    raise BadInput(f"there is no test {function!r}")


@lru_cache(maxsize=256)
def _repaired(key: str) -> RepairTask:
    return task_from_json(json.loads(key))


def _repair(task: Task) -> RepairTask:
    need(task.data, _KEYS, "repair")
    return _repaired(json.dumps(task.data, sort_keys=True))


_SEEN: dict[tuple[Any, ...], Verdict] = {}
_MOST = 4096


def _verdict(task: RepairTask, suite: str, changed: tuple[tuple[str, str], ...]) -> Verdict:
    """The verdict on a state of the files; each state is tried once."""
    key = (task.id, suite, changed)
    if key not in _SEEN:
        if len(_SEEN) >= _MOST:
            _SEEN.clear()
        files = {**task.files, **dict(changed)}
        _SEEN[key] = (public_tests if suite == "public" else hidden_tests)(task, files)
    return _SEEN[key]


def open_repair(spec: Spec) -> RepairWorld:
    """``repair``: mend one function of a small Python project by its tests (options turns, origin)."""
    spec.alone()
    return RepairWorld(**spec.take(OPTIONS), options=spec.query)
