"""``miniapps``: five small apps of one user, and requests that need several calls in them.

A turn is one call, ``apis.app.function(name=value)`` or the same as JSON; ``done()`` ends the run. An answer
is JSON; a wrong call is answered with a status code and a message. Reward 1 where every test of the task
passes: all that should have changed did, nothing else did, and the answer is right where one was asked.

Options: ``templates`` (``all`` thirty, the twenty of one sentence ``seen``, the ten combinations ``new``) and
``shift`` (``pages``, ``cents``, ``ids`` or several joined by ``+``), which changes one convention of the apps
and what their documentation says of it. A shifted world has the templates ``new`` unless told otherwise.

Source: apps, state-based tests and scenarios after AppWorld (arXiv 2407.18901); the rest is ours.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, final, runtime_checkable

from refork.errors import BadInput
from refork.sampling.noise import stream_of
from refork.types import Json
from refork.worlds.base import Observation, Split, Task
from refork.worlds.dice import digest, split_of
from refork.worlds.game import need, reading
from refork.worlds.spec import Spec
from refork_methods.memory.grammar import Act, read_turn
from refork_testbed.worlds.miniapps.catalogue import Function, catalogue
from refork_testbed.worlds.miniapps.grading import Report, grade
from refork_testbed.worlds.miniapps.scenarios import SETS, Scenario, prompt_of, scenario
from refork_testbed.worlds.miniapps.service import Service, refused
from refork_testbed.worlds.miniapps.shift import Shift
from refork_testbed.worlds.miniapps.store import Store, load_rows

MAX_TURNS = 40
#: Calls that one tool may make in a turn.
MAX_CALLS = 200
INSTANCES = 3


class Caller(Protocol):
    """How a tool reaches the apps: a function's name and its arguments in, the answer out."""

    def __call__(self, name: str, arguments: Mapping[str, Any], /) -> Any:
        """The answer to one call; a wrong call is an answer with a status code."""
        ...


@runtime_checkable
class ToolLike(Protocol):
    """A procedure that runs in one turn. Whatever ``run`` raises is answered as a failure of the tool."""

    @property
    def name(self) -> str:
        """The name that a turn calls, after ``tools.``."""
        ...

    @property
    def doc(self) -> str:
        """What it does."""
        ...

    @property
    def parameters(self) -> Json:
        """JSON schema of its keywords."""
        ...

    def run(self, arguments: Mapping[str, Any], call: Caller) -> Any:
        """Do it all; returns the tool's own value."""
        ...


@final
class MiniAppsEpisode:
    """One live run: the apps, the turn, and whether it is over."""

    def __init__(
        self,
        task: Task,
        made: Scenario,
        shift: Shift,
        rows: Mapping[str, Any],
        tools: Sequence[ToolLike] = (),
    ) -> None:
        self.task = task
        self._made = made
        self._service = Service(Store(rows), shift)
        self._tools = {tool.name: tool for tool in tools}
        self._turn = 0
        self._end: Json | None = None
        self._calls: list[Json] = []
        self._kept: tuple[int, str] | None = None

    @property
    def tools(self) -> tuple[ToolLike, ...]:
        """The tools that turns can call."""
        return tuple(self._tools.values())

    @property
    def first(self) -> Observation:
        """Nothing but the prompt is seen before the first turn."""
        rows = {table: sorted(these, key=lambda row: row["id"]) for table, these in self._made.rows.items()}
        return Observation("", digest("miniapps", self.task.id, rows, [], ""))

    def call(self, name: str, arguments: Mapping[str, Any] | None = None, /, **more: Any) -> Json:
        """The apps' answer to one call, outside any turn or within a tool's; never an exception."""
        given = {**(arguments or {}), **more}
        if self._end is not None:
            return refused(409, "the run is over")
        if len(self._calls) >= MAX_CALLS:
            return refused(429, f"more than {MAX_CALLS} calls in one turn")
        answer = self._service.call(name, given)
        self._calls.append({"function": name, "arguments": given, "ok": "status_code" not in answer})
        return answer

    def step(self, action: str) -> Observation:
        """Do what a turn says and see the answer."""
        if self._end is not None:
            return self._see("The run is over.", {})
        self._turn += 1
        self._calls = []
        act = read_turn(action)
        if act.kind == "done":
            return self._finish(act.answer, "The run is over.", "done")
        answer = self._answer(act)
        # A lone surrogate in a name is shown as "?": text that cannot be encoded cannot be recorded.
        text = json.dumps(answer, ensure_ascii=False, default=str).encode("utf-8", "replace").decode()
        info: Json = {"calls": _calls_json(self._calls), "ok": "status_code" not in answer}
        if self._turn >= MAX_TURNS:
            return self._finish(None, text, "turns")
        return self._see(text, info)

    def report(self, answer: str | int | float | None = None) -> Report:
        """The tests of the task on the present state."""
        after = self._service.store.rows(hidden=False)
        return grade(self._made.rows, after, self._made.changes, expected=self._made.answer, answer=answer)

    def snapshot(self) -> bytes:
        """The exact state as JSON: all rows, tokens, counters, turn, and the end where there was one."""
        rows = json.loads(self._service.store.dump())
        record = {"task": self.task.id, "turn": self._turn, "end": self._end, "rows": rows}
        return json.dumps(record, sort_keys=True, separators=(",", ":")).encode()

    def load(self, turn: int, end: Json | None) -> None:
        """Set the turn and the end that a snapshot holds."""
        self._turn, self._end = turn, end

    def reseed(self, seed: int) -> None:
        """There is no chance."""

    def close(self) -> None:
        """Free the database."""
        self._service.store.close()

    def _answer(self, act: Act) -> Json:
        if act.kind == "unreadable":
            return refused(400, f"{act.name}. A turn is apis.app.function(name=value), or done()")
        if act.kind == "call":
            return self.call(act.name, act.arguments)
        tool = self._tools.get(act.name)
        if tool is None:
            return refused(404, f"there is no tool {act.name!r}")
        try:
            value = tool.run(act.arguments, self.call)
            # A value that cannot be written is the tool's own failure; it has to show in here.
            json.dumps(value, default=str)
        except Exception as error:  # a tool that breaks is an answer, not the end of the run
            return refused(500, f"tool {act.name} failed: {type(error).__name__}: {error}")
        return {"result": value}

    def _finish(self, answer: str | int | float | None, text: str, ending: str) -> Observation:
        report = self.report(answer)
        reward = float(report.success and ending == "done")
        self._end = {
            "reward": reward,
            "info": {"ending": ending, "calls": _calls_json(self._calls), **report.to_json()},
        }
        return self._see(text, {})

    def _see(self, text: str, info: Json) -> Observation:
        rows, logins = self._state(), self._service.logins()
        key = digest("miniapps", self.task.id, rows, logins, text)
        if self._end is None:
            return Observation(text, key, info=info)
        return Observation(text, key, done=True, reward=self._end["reward"], info=dict(self._end["info"]))

    def _state(self) -> str:
        """A digest of what tasks are about, kept until the next change."""
        if self._kept is None or self._kept[0] != self._service.writes:
            self._kept = (self._service.writes, digest(self._service.store.rows(hidden=False)))
        return self._kept[1]


def _calls_json(calls: Sequence[Json]) -> list[Json]:
    """Calls of a turn as JSON that can be stored."""
    return [json.loads(json.dumps(call, default=str)) for call in calls]


@final
@dataclass(frozen=True)
class MiniAppsWorld:
    """Requests to the five apps. ``tools`` can be called in its episodes beside the apps' functions."""

    templates: str = "all"
    shift: Shift = Shift()  # noqa: RUF009
    options: str = ""
    tools: tuple[ToolLike, ...] = field(default=(), compare=False)
    max_turns = MAX_TURNS
    deterministic = True

    def __post_init__(self) -> None:
        if self.templates not in SETS:
            raise BadInput(
                f"there is no set of templates {self.templates!r}",
                where="miniapps",
                hint=f"sets: {', '.join(SETS)}",
            )
        names = [tool.name for tool in self.tools]
        if len(set(names)) < len(names):
            raise BadInput("two tools have the same name", where="miniapps")

    @property
    def name(self) -> str:
        """The specification that opens this world, its tools left out."""
        return "miniapps" + (f"?{self.options}" if self.options else "")

    @property
    def version(self) -> str:
        """Names the tools too, for they answer turns."""
        told = [[tool.name, tool.doc, tool.parameters, getattr(tool, "digest", "")] for tool in self.tools]
        return "1" + (f"+tools:{digest(told)[:12]}" if told else "")

    def catalogue(self) -> tuple[Function, ...]:
        """All functions of this version of the apps."""
        return catalogue(self.shift)

    def with_tools(self, tools: Iterable[ToolLike]) -> MiniAppsWorld:
        """The same world with these tools instead."""
        return replace(self, tools=tuple(tools))

    def tasks(self, split: Split, count: int, seed: int = 0) -> list[Task]:
        """Tasks in rounds of all templates, three instances of each: rounds never repeat."""
        found: list[Task] = []
        around = 0
        while len(found) < count:
            for template in SETS[self.templates]:
                if len(found) < count:
                    found += self._scenario(template, split, seed, around)
            around += 1
        return found[:count]

    def _scenario(self, template: str, split: Split, seed: int, around: int) -> list[Task]:
        """The three instances of a scenario; a draw whose content is of the other split is drawn again."""
        group = f"{stream_of('miniapps scenario', template, split, seed, around):016x}"
        tasks: list[Task] = []
        attempt = 0
        while len(tasks) < INSTANCES:
            number = stream_of("miniapps", group, attempt)
            attempt += 1
            if split_of(digest(template, scenario(template, number).rows)) == split:
                tasks.append(self._task(template, number, group, len(tasks) + 1, split))
        return tasks

    def _task(self, template: str, seed: int, group: str, instance: int, split: Split) -> Task:
        made = scenario(template, seed)
        return Task(
            id=f"{self.name}/{group}_{instance}",
            world=self.name,
            split=split,
            prompt=prompt_of(made.query, self.shift),
            data={
                "template": template,
                "seed": seed,
                "scenario": group,
                "query": made.query,
                "shift": str(self.shift),
            },
        )

    def start(self, task: Task, seed: int) -> MiniAppsEpisode:
        """Begin; there is no chance."""
        del seed
        made = self._made(task)
        return MiniAppsEpisode(task, made, self.shift, made.rows, self.tools)

    def restore(self, task: Task, snapshot: bytes) -> MiniAppsEpisode:
        """An episode in the state of a snapshot; raises BadInput where it is not one of this task."""
        made = self._made(task)
        with reading(self.name, task, snapshot) as record:
            turn, end = int(record["turn"]), record["end"]
            rows = load_rows(record["rows"])
            if end is not None and not {"reward", "info"} <= set(end):
                raise ValueError("its end has no reward")
        episode = MiniAppsEpisode(task, made, self.shift, rows, self.tools)
        episode.load(turn, end)
        return episode

    def _made(self, task: Task) -> Scenario:
        need(task.data, ("template", "seed", "scenario", "query", "shift"), "miniapps")
        made = scenario(str(task.data["template"]), int(task.data["seed"]))
        if task.data["shift"] != str(self.shift) or task.prompt != prompt_of(made.query, self.shift):
            raise BadInput(
                "the task is of another version of the apps, or its prompt is not its own",
                where=f"task {task.id}",
                hint="open the world that the task names",
            )
        return made


def miniapps_world(shift: str = "", templates: str = "", options: str = "") -> MiniAppsWorld:
    """The world of the five apps; a shifted one has the templates ``new`` unless told otherwise.

    Raises:
        BadInput: no such shift or set of templates.
    """
    changed = Shift.parse(shift)
    return MiniAppsWorld(templates or ("new" if shift else "all"), changed, options)


def scenarios_of(tasks: Iterable[Task]) -> dict[str, str]:
    """Task ids and the scenario of each."""
    return {task.id: str(task.data["scenario"]) for task in tasks}


def open_miniapps(spec: Spec) -> MiniAppsWorld:
    """``miniapps``: five apps and requests that need several calls in them (options shift, templates)."""
    spec.alone()
    return miniapps_world(**spec.take({"shift": str, "templates": str}), options=spec.query)
