"""``tools:DATABASE``: typed tools over a small SQLite database, and goals that need several calls.

A turn is one call, ``{"name": ..., "arguments": {...}}``; an answer is one line of JSON. ``submit`` ends an
episode: it is accepted where the rows are those that the goal leads to and the answer is right. DATABASE is
library, shop or tickets (none: all three). Option ``brief``: ``full``; ``short`` for goal and rows alone; or
``labels`` for those with rows and notes in one-word labels (:mod:`refork_worlds.tools.labels`).
``tools:mcp`` is the world of an MCP server instead (:mod:`refork_worlds.tools.mcp`).
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, final

from refork.errors import BadInput
from refork.types import Json
from refork.worlds.base import Observation, Split, Task, World
from refork.worlds.dice import Dice, digest
from refork.worlds.environment import ActionObservation, Brief, DomainName
from refork.worlds.game import different, need, reading
from refork.worlds.spec import Spec
from refork_worlds.tools.agents import SUBMIT, Scripted
from refork_worlds.tools.call import call_line, compact, read_call
from refork_worlds.tools.goals import Goal, Part, after, draw_goal
from refork_worlds.tools.labels import WORDS, all_labels, state, submit_note
from refork_worlds.tools.schema import DATABASES, MOST, PEOPLE, THINGS, Rows, database
from refork_worlds.tools.service import LARGEST_PAGE, PAGE, Answer, Service, refusal, tools_of
from refork_worlds.tools.store import Store

MAX_TURNS = 10
ACCEPTED, REJECTED = "accepted", "rejected"
OVER = "the episode is over"
_PIECES = re.compile(r"[A-Za-z]+|[0-9]+|[^A-Za-z0-9\s]+")
_RULES = (
    "answers are one line of JSON\n"
    f"a list or search shows {PAGE} rows unless limit says otherwise ( at most {LARGEST_PAGE} ) "
    "from row offset on ; next is the offset of the next page or null\n"
    "create update and get answer the row ; a new id is the last id plus 1\n"
    "errors : id is missing ; id must be a number ; there is no argument page ; there is no such tool ; "
    "no row 9 ; title apple is taken ; row 2 is in use ; not a call\n"
    f"submit answers {ACCEPTED} if the goal is reached and nothing else changed , else {REJECTED}"
)


@final
class ToolsEpisode:
    """One live run: the database, the turn, and how it ended."""

    def __init__(
        self,
        task: Task,
        goal: Goal,
        rows: Rows,
        turn: int = 0,
        end: str | None = None,
        labels: bool = False,
    ) -> None:
        self.task = task
        self._goal = goal
        self._service = Service(Store(goal.database, rows), labels)
        self._turn = turn
        self._end = end

    @property
    def first(self) -> Observation:
        """Nothing but the prompt is seen before the first call."""
        return Observation("", digest("tools", self.task.id, self._goal.rows, None))

    def rows(self) -> Rows:
        """All rows as they are now."""
        return self._service.store.rows()

    def step(self, action: str) -> Observation:
        """Run the call of a turn and see its answer; after the end nothing changes."""
        if self._end is not None or self._turn >= MAX_TURNS:
            return self._see(Answer(OVER, ok=False))
        self._turn += 1
        try:
            name, arguments = read_call(action)
        except BadInput:
            return self._see(refusal("not a call"))
        if name == SUBMIT:
            return self._see(self._submit(arguments))
        return self._see(self._service.call(name, arguments))

    def _submit(self, arguments: Mapping[str, Any]) -> Answer:
        extra = next((name for name in arguments if name != "answer"), None)
        if extra is not None:
            return refusal(f"there is no argument {extra[:40]}")
        wanted, given = self._goal.answer, arguments.get("answer")
        reached = self._goal.reached(self.rows())
        said = "" if given is None else str(given).strip().lower()
        right = wanted is None or said == wanted.lower()
        self._end = ACCEPTED if reached and right else REJECTED
        if self._service.labels:
            return Answer(self._end, submit_note(self._goal, self.rows(), said))
        note = "rows right" if reached else "rows wrong"
        return Answer(self._end, note if wanted is None else f"{note} ; wanted {wanted}")

    def _see(self, answer: Answer) -> Observation:
        over = self._end is not None or self._turn >= MAX_TURNS
        info: Json = {"exact": True, "ok": answer.ok}
        if answer.note is not None:
            info["note"] = answer.note
        return Observation(
            text=answer.text,
            state_key=digest("tools", self.task.id, self.rows(), self._end),
            done=over,
            reward=float(self._end == ACCEPTED) if over else None,
            info=info,
        )

    def snapshot(self) -> bytes:
        """The exact state as JSON: all rows, the turn, and the verdict where there is one."""
        record = {"task": self.task.id, "turn": self._turn, "end": self._end, "rows": self.rows()}
        return json.dumps(record, sort_keys=True, separators=(",", ":")).encode()

    def reseed(self, seed: int) -> None:
        """There is no chance."""

    def close(self) -> None:
        """Free the database."""
        self._service.store.close()


@final
@dataclass(frozen=True)
class ToolsWorld:
    """Goals over one database or over all three. Some pairs of kinds of parts are in held-out tasks only."""

    databases: tuple[str, ...]
    short: bool = False
    spec: str = "tools"
    labels: bool = False

    version = "1"
    max_turns = MAX_TURNS
    deterministic = True

    @property
    def name(self) -> str:
        """The specification that opens this world."""
        return self.spec

    @property
    def domain(self) -> DomainName:
        """Typed tools."""
        return "tools"

    def vocabulary(self) -> tuple[str, ...]:
        """Every word, number and run of punctuation of its texts, sorted; numbers up to the largest id."""
        texts = [_RULES, _SPOKEN, *THINGS, *PEOPLE, *map(str, range(MOST + 1))]
        for name in self.databases:
            made = database(name)
            for table in made.tables:
                texts += [table.name, table.one, *(column.name for column in table.columns)]
                texts += [choice for column in table.columns for choice in column.choices]
            texts += [tool.signature for tool in tools_of(made).values()]
            texts += _samples(name, self.labels)
            texts += [*all_labels(made), WORDS] if self.labels else []
        return tuple(sorted({piece for text in texts for piece in _PIECES.findall(text)}))

    def tasks(self, split: Split, count: int, seed: int = 0) -> list[Task]:
        """``count`` different seeded tasks; a shorter list is a prefix of a longer one.

        Raises:
            BadInput: there are not so many.
        """

        def draw(number: int) -> Task | None:
            dice = Dice("tools task", split, seed, number)
            made = database(dice.choice(self.databases))
            goal = draw_goal(made, split, dice)
            if goal is None:
                return None
            data = {"database": made.name, "rows": goal.rows, "parts": [asdict(part) for part in goal.parts]}
            # As a tree gives it back: its lists were tuples, and one task must not have two digests.
            data = json.loads(json.dumps(data))
            return Task(f"tools/{digest(data)[:16]}", self.name, split, _prompt(goal), data)

        return different(count, draw, f"{split} tasks of {self.name}")

    def start(self, task: Task, seed: int) -> ToolsEpisode:
        """Begin; there is no chance."""
        del seed
        goal = goal_of(task)
        return ToolsEpisode(task, goal, goal.rows, labels=self.labels)

    def restore(self, task: Task, snapshot: bytes) -> ToolsEpisode:
        """An episode in the state of a snapshot; raises BadInput where it is not one of this task."""
        goal = goal_of(task)
        with reading(self.name, task, snapshot, sqlite3.Error) as record:
            turn, end, rows = int(record["turn"]), record["end"], record["rows"]
            if set(rows) != set(goal.rows) or end not in (None, ACCEPTED, REJECTED):
                raise ValueError("other tables, or another end")
            return ToolsEpisode(task, goal, rows, turn, end, self.labels)

    def action_in(self, turn: str) -> str:
        """The call of a policy's turn as one line of JSON; what is no call as it stands."""
        return call_line(turn)

    def brief(self, task: Task) -> Brief:
        """The goal and all rows; unless it is to be short, the tools and the rules too."""
        goal = goal_of(task)
        told = f"goal : {goal.text}"
        if self.labels:
            return Brief(task_description=told, initial_state=state(goal.database, goal.rows))
        rows = "\n".join(
            f"{table} : " + "\n".join([str(len(these)), *map(compact, these)])
            for table, these in goal.rows.items()
        )
        if self.short:
            return Brief(task_description=told, initial_state=rows)
        return Brief(
            task_description=f"You are the tools of a {goal.database.name} database . {told}",
            action_space=_tools(goal),
            initial_state=rows,
            simulation_instruction=_RULES,
        )

    def tool_schemas(self, task: Task) -> list[Json]:
        """The tools of a task as function schemas, from the models that check their arguments."""
        found: list[Json] = [
            {"name": name, "description": f"{tool.doc}: {tool.signature}", "parameters": tool.parameters}
            for name, tool in tools_of(goal_of(task).database).items()
        ]
        answer = {"type": "object", "properties": {"answer": {"type": "string"}}}
        told = "The task is done; the answer, if asked."
        return [*found, {"name": SUBMIT, "description": told, "parameters": answer}]

    def agent(self, task: Task, seed: int) -> Scripted:
        """One that solves, errs or explores."""
        return Scripted(goal_of(task), task.id, seed)

    def standing(self, task: Task, history: Sequence[ActionObservation]) -> tuple[bool, float | None]:
        """Over once a submission was judged, or no turn is left."""
        del task
        verdicts = [text.strip() for _, text in history if text.strip() in (ACCEPTED, REJECTED)]
        if verdicts:
            return True, float(verdicts[0] == ACCEPTED)
        return (True, 0.0) if len(history) >= MAX_TURNS else (False, None)


_SPOKEN = f"goal : ; then tools : You are the of a library shop tickets database . {OVER}"


@lru_cache(maxsize=8)
def _samples(name: str, labels: bool) -> tuple[str, ...]:
    """Texts in which every run of punctuation and every fixed word of a database's answers stands."""
    world = ToolsWorld((name,), labels=labels)
    texts: list[str] = []
    for split in ("train", "held-out"):
        part: Split = "train" if split == "train" else "held-out"
        for task in world.tasks(part, 24):
            brief = world.brief(task)
            texts += [task.prompt, brief.text]
            for seed in range(2):
                episode, actor = world.start(task, 0), world.agent(task, seed)
                seen: list[ActionObservation] = []
                while (action := actor.act(seen)) is not None and len(seen) < MAX_TURNS:
                    answer = episode.step(action)
                    seen.append((action, answer.text))
                    texts += [action, answer.text, str(answer.info.get("note", ""))]
                episode.close()
    return tuple(texts)


def _tools(goal: Goal) -> str:
    lines = [tool.signature for tool in tools_of(goal.database).values()]
    return "\n".join([*lines, f"{SUBMIT}([answer])"])


def _prompt(goal: Goal) -> str:
    """What the policy is told: the tools and the goal."""
    return f"tools :\n{_tools(goal)}\ngoal : {goal.text}"


@lru_cache(maxsize=1024)
def _goal(text: str) -> Goal:
    data = json.loads(text)
    made = database(str(data["database"]))
    parts = tuple(
        Part(
            **{
                **part,
                "parents": tuple(map(tuple, part["parents"])),
                "values": tuple(map(tuple, part["values"])),
            }
        )
        for part in data["parts"]
    )
    rows: Rows = {
        table.name: [
            {name: row[name] for name in ("id", *(column.name for column in table.columns))}
            for row in data["rows"][table.name]
        ]
        for table in made.tables
    }
    end = rows
    for part in parts:
        end = after(end, part)
    return Goal(made, rows, parts, end)


def goal_of(task: Task) -> Goal:
    """The goal that a task's data holds; raises BadInput where it holds none."""
    need(task.data, ("database", "rows", "parts"), "tools")
    try:
        return _goal(json.dumps(task.data, sort_keys=True))
    except (TypeError, KeyError, StopIteration, ValueError) as error:
        raise BadInput(f"not a task of tools: {error!r}", where=f"task {task.id}") from error


def open_tools(spec: Spec) -> World:
    """``tools:DATABASE``, ``tools:mcp``: tools over SQLite (library, shop, tickets), or any MCP server's."""
    if spec.argument == "mcp":
        from refork_worlds.tools.mcp import mcp_world

        spec.typed("an MCP server")
        return mcp_world(spec)
    options = spec.take({"brief": str})
    shown = options.get("brief", "full")
    if shown not in ("full", "short", "labels"):
        raise BadInput(f"there is no brief {shown!r}", where="tools", hint="full, short or labels")
    names = (database(spec.argument).name,) if spec.argument else tuple(DATABASES)
    name = "tools" + (f":{spec.argument}" if spec.argument else "") + (f"?{spec.query}" if spec.query else "")
    return ToolsWorld(names, shown == "short", name, shown == "labels")
