"""``terminal``: a real shell in a folder of its own, with tasks whose end is checked in the folder.

A turn is a command line, answered by what it prints, or ``submit`` (with an answer where the task asks a
question), answered by ``accepted`` or ``rejected``. Files, folder and variables are what outlives a command;
functions, aliases and processes end with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import final

from refork.errors import BadInput
from refork.sandbox.result import Layer
from refork.sandbox.shell import Shell, ShellLimits, ShellState, shared_shell
from refork.types import Json
from refork.worlds.base import Observation, Split, Task
from refork.worlds.dice import Dice, digest
from refork.worlds.environment import ActionObservation, Brief, DomainName, ScriptedAgent
from refork.worlds.game import different, need, reading
from refork.worlds.spec import Spec
from refork_testbed.worlds.terminal import agents
from refork_testbed.worlds.terminal.actions import action_in, knowable, note, submitted
from refork_testbed.worlds.terminal.goals import Drawn, Goal
from refork_testbed.worlds.terminal.goals import draw as draw_task
from refork_testbed.worlds.terminal.labels import Trace, labelled, labelled_note, traced

ACCEPTED, REJECTED = "accepted", "rejected"
OPTIONS: dict[str, type | tuple[type, ...]] = {"turns": int, "unconfined": bool, "chars": int, "brief": str}
_KEYS = ("kind", "files", "folders", "told", "goal", "script")
#: So long that a busy machine ends none of the quick commands that agents give here: what else runs must not
#: decide what is recorded.
LIMITS = ShellLimits(seconds=20.0)
ACTIONS = (
    "A command line of sh. It is answered by what it prints, nothing where it prints nothing.\n"
    "submit : the task is done. submit X : the answer is X. It is answered by accepted or rejected, and ends."
)
DESCRIPTION = "A shell in the folder /home/agent . The user : {told} ."


@dataclass(frozen=True)
class ShellWorld:
    """What worlds of a real shell share: commands, then a submission; ``chars`` of an answer are shown."""

    turns: int = 10
    unconfined: bool = False
    chars: int = 2000
    options: str = ""
    domain: DomainName = "terminal"

    version = "1"
    deterministic = True

    def __post_init__(self) -> None:
        if self.turns < 1 or self.chars < 1:
            raise BadInput("turns and chars are 1 or more", where=self.domain)

    @property
    def name(self) -> str:
        """The specification that opens this world."""
        return f"{self.domain}?{self.options}" if self.options else self.domain

    @property
    def max_turns(self) -> int:
        """Commands, the submission included."""
        return self.turns

    @property
    def layers(self) -> tuple[Layer, ...]:
        """What holds commands back on this system, and what does not."""
        return self.shell().layers

    def shell(self) -> Shell:
        """The shell that all episodes of this process share."""
        return shared_shell(LIMITS, unconfined=self.unconfined)

    def action_in(self, turn: str) -> str:
        """The command of a policy's whole turn."""
        return action_in(turn)

    def standing(self, task: Task, history: Sequence[ActionObservation]) -> tuple[bool, float | None]:
        """Over after a submission (1 where it was accepted) or the last turn (0)."""
        for action, answer in history:
            if submitted(action_in(action)) is not None:
                return True, float(answer.strip() == ACCEPTED)
        return (True, 0.0) if len(history) >= self.turns else (False, None)


@final
@dataclass(frozen=True)
class TerminalWorld(ShellWorld):
    """Small folders and one request in each.

    ``brief_form``: ``full``, or ``labels`` for lines with names, and notes that point to them.
    """

    brief_form: str = "full"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.brief_form not in ("full", "labels"):
            raise BadInput(f"there is no brief {self.brief_form!r}", where="terminal", hint="full or labels")

    def tasks(self, split: Split, count: int, seed: int = 0) -> list[Task]:
        """``count`` different seeded tasks; no file's path is in tasks of both splits.

        Raises:
            BadInput: there are not so many.
        """

        def draw(number: int) -> Task:
            drawn = draw_task(Dice("terminal", split, seed, number), split)
            data = drawn.to_json()
            prompt = f"{DESCRIPTION.format(told=drawn.brief)}\n{ACTIONS}"
            return Task(f"terminal/{digest(data)[:16]}", self.name, split, prompt, data)

        return different(count, draw, f"{split} tasks of {self.name}")

    def start(self, task: Task, seed: int) -> TerminalEpisode:
        """Begin; there is no chance."""
        del seed
        drawn = _drawn(task)
        return TerminalEpisode(self, task, drawn, ShellState.of_files(drawn.files, drawn.folders))

    def restore(self, task: Task, snapshot: bytes) -> TerminalEpisode:
        """An episode in the state of a snapshot; raises BadInput where it is not one of this task."""
        drawn = _drawn(task)
        with reading(self.name, task, snapshot) as record:
            turn = int(record["turn"])
            state = ShellState.from_json(record["state"])
            trace = Trace.from_json(record["trace"]) if "trace" in record else None
            seen = None if record["seen"] is None else Observation(**record["seen"])
        return TerminalEpisode(self, task, drawn, state, turn=turn, observation=seen, trace=trace)

    def brief(self, task: Task) -> Brief:
        """The request, and every file and folder with its content."""
        drawn = _drawn(task)
        return Brief(
            task_description=DESCRIPTION.format(told=drawn.brief),
            action_space=ACTIONS,
            initial_state=self.folder_text(ShellState.of_files(drawn.files, drawn.folders)),
        )

    def folder_text(self, begin: ShellState) -> str:
        """The folder of a beginning in the form that this world's briefs have."""
        return labelled(begin) if self.brief_form == "labels" else listing(begin)

    def agent(self, task: Task, seed: int) -> ScriptedAgent:
        """Solves, errs or looks around, by the seed."""
        split: Split = "held-out" if task.split == "held-out" else "train"
        return agents.agent(_drawn(task), split, self.turns, Dice("terminal actor", task.id, seed))


def open_terminal(spec: Spec) -> TerminalWorld:
    """``terminal``: requests in a real shell, in a folder of its own (options turns, chars)."""
    if spec.argument:
        raise BadInput(f"terminal takes no argument, not {spec.argument!r}", where="terminal")
    options = spec.take(OPTIONS)
    form = str(options.pop("brief", "full"))
    return TerminalWorld(**options, brief_form=form, options=spec.query)


@final
class TerminalEpisode:
    """A folder, and a shell in it."""

    def __init__(
        self, world: TerminalWorld, task: Task, drawn: Drawn, state: ShellState, *, turn: int = 0,
        observation: Observation | None = None, trace: Trace | None = None,
    ) -> None:  # fmt: skip
        self.task, self.state = task, state
        self._world, self._drawn, self._turn, self._seen = world, drawn, turn, observation
        self._trace = trace or Trace.of(drawn.files)

    @property
    def first(self) -> Observation:
        """The files and folders, before any command."""
        begin = ShellState.of_files(self._drawn.files, self._drawn.folders)
        return Observation(self._world.folder_text(begin), key(self.task, begin, False))

    def step(self, action: str) -> Observation:
        """Run a command and see what it prints, or submit and be graded.

        Raises:
            ShellLostError: the process that runs commands was lost or altered.
        """
        if self._seen is not None and self._seen.done:
            return self._seen
        self._turn += 1
        command = action_in(action)
        answer = submitted(command)
        if answer is not None:
            self._seen = self._graded(answer)
            return self._seen
        before = self.state
        ran = self._world.shell().run(before, command).checked()
        self.state = ran.state
        info: Json = {
            "exact": knowable(command, ran),
            "note": self._note(before, command, ran.output),
            "status": ran.status,
        }
        text = printed(ran.output, ran.ended, self._world.chars)
        done = self._turn >= self._world.turns
        self._seen = Observation(text, key(self.task, self.state, done), done, 0.0 if done else None, info)
        return self._seen

    def _note(self, before: ShellState, command: str, output: str) -> str:
        if self._world.brief_form != "labels":
            return note(before, command)
        # The note is written from what was known before this command.
        known = self._trace
        self._trace = traced(command, before, self.state, known)
        return labelled_note(before, command, output, known, self._drawn.files)

    def _graded(self, answer: str) -> Observation:
        why = shortcoming(self._drawn, self.state, answer)
        reward = float(why is None)
        info: Json = {"exact": True, "note": why or "all as asked"}
        text = ACCEPTED if why is None else REJECTED
        return Observation(text, key(self.task, self.state, True), True, reward, info)

    def snapshot(self) -> bytes:
        """Files with their modes, folder, variables, turn and last answer, as JSON; what notes need, too."""
        seen = None if self._seen is None else asdict(self._seen)
        record = {"task": self.task.id, "turn": self._turn, "state": self.state.to_json(), "seen": seen}
        if self._world.brief_form == "labels":
            record["trace"] = self._trace.to_json()
        return json.dumps(record, sort_keys=True).encode()

    def reseed(self, seed: int) -> None:
        """There is no chance."""

    def close(self) -> None:
        """The shell is shared by all episodes of the process."""


def printed(output: str, ended: str, most: int) -> str:
    """What is shown of a command's output."""
    text = output.rstrip()
    if len(text) > most:
        text = f"{text[:most]}\n( {len(text) - most} more characters )"
    told = {"time": "( stopped : it took too long )", "output": "( stopped : it said too much )"}
    return "\n".join(part for part in (text, told.get(ended, "")) if part)


def listing(state: ShellState) -> str:
    """Every folder, and every file with its lines."""
    parts = []
    for entry in state.entries:
        if entry.kind == "folder":
            parts.append(f"folder {entry.path}")
        else:
            parts.append(f"file {entry.path}\n{entry.text}".rstrip("\n"))
    return "\n".join(parts)


def key(task: Task, state: ShellState, done: bool) -> str:
    """Equal where files, modes, folder and variables are."""
    return digest("terminal", task.id, state.to_json(), done)


def shortcoming(task: Drawn, state: ShellState, answer: str) -> str | None:
    """The first thing that is not as the task asks for; None where all is."""
    return next(_shortcomings(task.goal, task.files, state, answer), None)


def _shortcomings(goal: Goal, begin: dict[str, str], state: ShellState, answer: str) -> Iterator[str]:
    files, folders = state.files(), state.folders()
    modes = {entry.path: entry.mode for entry in state.entries}
    if goal.answer is not None and answer != goal.answer:
        yield f"the answer is {goal.answer}"
    yield from (f"{path} is there" for path in goal.gone if path in files or path in folders)
    yield from (f"no folder {path}" for path in goal.folders if path not in folders)
    # Content that files must have: as asked for, and else as it was.
    kept = {path: text for path, text in begin.items() if path not in goal.gone}
    for path, text in {**kept, **goal.files}.items():
        if path not in files:
            yield f"no {path}"
        elif files[path] != text:
            yield f"{path} is not as asked"
    yield from (f"{path} has another mode" for path, mode in goal.modes.items() if modes.get(path) != mode)


def _drawn(task: Task) -> Drawn:
    need(task.data, _KEYS, "terminal")
    try:
        return Drawn.from_json(task.data)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise BadInput(f"not a task of the terminal: {error!r}", where=f"task {task.id}") from error
