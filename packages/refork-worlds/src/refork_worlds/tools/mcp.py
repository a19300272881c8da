"""``tools:mcp?command=...``: the world of any MCP server, started anew for every episode.

Options: ``command`` (speaks on its standard streams) or ``url``; ``env``, variables that a command is given,
or ``headers`` for a url, both by the names of variables (:mod:`refork_worlds.tools.mcp_client`);
``goals``, a file (:func:`read_goals`); ``turns``; ``timeout`` of a call and
``start_timeout``, in seconds; ``submit``, the name of the last call; ``deterministic`` where the server is
known to be. Without goals its tasks explore.

There is no snapshot: a fork replays the recorded calls on a fresh server and checks what they answer, which
a server behind a URL, that remembers, may not repeat. A server that dies or hangs breaks its episode, which
is then not graded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, final, get_args

from refork.errors import BadInput, CannotDo
from refork.jsonl import json_objects
from refork.types import Json
from refork.worlds.base import Observation, Split, Task
from refork.worlds.dice import Dice, digest, split_of
from refork.worlds.environment import ActionObservation, Brief, DomainName
from refork.worlds.spec import Spec
from refork_worlds.tools.call import call_line, call_text, compact, read_call
from refork_worlds.tools.mcp_client import (
    Connection,
    Listed,
    Result,
    Server,
    ServerBroken,
    after,
    describe_changes,
)

# Goals in an MCP server, as JSON lines.
#
# Each has a ``prompt`` and, to be graded, an ``answer`` or ``checks`` (calls and the text that they must
# answer at the end); if known a ``solution`` (calls), an ``initial_state``, a ``split`` and an ``id``.


_GOAL = {"id", "prompt", "answer", "checks", "solution", "initial_state", "split"}


def read_goals(path: Path) -> Iterator[Json]:
    """The goals of a file; raises BadInput naming a line."""
    if not path.is_file():
        raise BadInput("there is no such file", where=str(path))
    named: set[str] = set()
    with path.open(encoding="utf-8") as lines:
        for place, body in json_objects(lines, str(path)):
            _check(body, place)
            if "id" in body:
                if str(body["id"]) in named:
                    raise BadInput(f"another goal has the id {body['id']!r}", where=place)
                named.add(str(body["id"]))
            yield body


def _check(body: Json, place: str) -> None:
    unknown = sorted(set(body) - _GOAL)
    if unknown or not isinstance(body.get("prompt"), str):
        what = f"a goal has no {unknown[0]!r}" if unknown else "a goal has no prompt"
        raise BadInput(what, where=place, hint=", ".join(sorted(_GOAL)))
    if body.get("split") not in (None, *get_args(Split)):
        raise BadInput(f"there is no split {body['split']!r}", where=place, hint=" or ".join(get_args(Split)))
    if isinstance(body.get("answer"), list | dict):
        raise BadInput("an answer is a text or a number", where=place)
    if not _calls(body.get("checks")) or not all(
        isinstance(one.get("answer"), str) for one in body.get("checks") or []
    ):
        raise BadInput("a check has a name, arguments and an answer, a text", where=place)
    if not _calls(body.get("solution")):
        raise BadInput("a solution is a list of calls, each with a name and arguments", where=place)


def _calls(given: Any) -> bool:
    """Whether these are calls, or none."""
    return given is None or (
        isinstance(given, list)
        and all(
            isinstance(one, dict)
            and isinstance(one.get("name"), str)
            and isinstance(one.get("arguments", {}), dict)
            for one in given
        )
    )


# A scripted agent of MCP servers: plays a known solution, or calls tools by their schemas.


_WORD = re.compile(r'"([A-Za-z][\w .-]{0,30})"')
_NUMBER = re.compile(r"\b\d{1,6}\b")
_DEEPEST = 4
_MOST = 20


@final
class McpAgent:
    """Explores with arguments that fit the schemas, taken from what it has seen where that fits.

    One call in six leaves out a required argument. What it does is a function of what it has seen.
    """

    def __init__(
        self,
        tools: Sequence[Listed],
        submit: str,
        solution: Sequence[Json] | None,
        parts: tuple[object, ...],
        turns: int,
    ) -> None:
        self._tools, self._submit, self._parts = tools, submit, parts
        self._solution = None if solution is None else list(solution)
        # One turn is kept for the submission.
        self._length = min(turns - 1, 4 + Dice("mcp actor", *parts).below(5))

    def act(self, history: Sequence[ActionObservation]) -> str | None:
        """The next call; None once it has submitted."""
        turn = len(history)
        if self._solution is not None:
            if turn >= len(self._solution):
                return None
            return call_text(self._solution[turn]["name"], self._solution[turn].get("arguments"))
        if turn > self._length:
            return None
        tools = after(self._tools, (text for _, text in history))
        if turn == self._length or not tools:
            return call_text(self._submit)
        dice = Dice("mcp call", *self._parts, turn)
        tool = dice.choice(tools)
        known = "\n".join(text for _, text in history)
        return call_text(tool.name, self._arguments(tool.parameters, dice, known))

    def _arguments(self, schema: Json, dice: Dice, known: str) -> Json:
        needed = [str(name) for name in schema.get("required") or []]
        required = list(needed)
        if required and dice.below(6) == 0:
            required.remove(dice.choice(required))
        given: Json = {}
        for name, one in (schema.get("properties") or {}).items():
            if name in required or (name not in needed and dice.below(3) == 0):
                given[name] = _value(one, schema, dice, known)
        return given


def _value(one: Any, root: Json, dice: Dice, known: str, depth: int = 0) -> Any:
    """A value that a schema allows, as far as the common keywords say."""
    if not isinstance(one, dict) or depth > _DEEPEST:
        return None
    if "$ref" in one:
        name = str(one["$ref"]).rpartition("/")[2]
        return _value((root.get("$defs") or {}).get(name), root, dice, known, depth + 1)
    allowed = one.get("enum") or ([one["const"]] if "const" in one else [])
    if allowed:
        return dice.choice(allowed)
    for union in ("anyOf", "oneOf"):
        options = [o for o in one.get(union) or [] if isinstance(o, dict) and o.get("type") != "null"]
        if options:
            return _value(dice.choice(options), root, dice, known, depth + 1)
    kind = one.get("type")
    kind = next((k for k in kind if k != "null"), None) if isinstance(kind, list) else kind
    if kind in ("integer", "number"):
        return _number(one, dice, known)
    if kind == "boolean":
        return dice.below(2) == 1
    if kind == "array":
        count = min(max(_bound(one, "minItems", "", 1) or 0, 1), _MOST)
        return [_value(one.get("items"), root, dice, known, depth + 1) for _ in range(count)]
    if kind == "object":
        names = one.get("required") or []
        fields = one.get("properties") or {}
        return {name: _value(fields.get(name), root, dice, known, depth + 1) for name in names}
    return dice.choice(_WORD.findall(known) or ["a", "test", "name"])


def _number(one: Json, dice: Dice, known: str) -> int:
    """A whole number within the bounds: every other time one that was seen."""
    low = _bound(one, "minimum", "exclusiveMinimum", 1)
    high = _bound(one, "maximum", "exclusiveMaximum", -1)
    if low is None:
        low = 0 if high is None else min(0, high)
    high = low + 9 if high is None else high
    seen = [int(number) for number in _NUMBER.findall(known) if low <= int(number) <= high]
    if seen and dice.below(2):
        return dice.choice(seen)
    return low + dice.below(max(1, min(9, high - low + 1)))


def _bound(one: Json, closed: str, open_: str, inwards: int) -> int | None:
    """The whole number nearest to a bound that is within it; None where there is none."""
    found = []
    for name, step in ((closed, 0), (open_, inwards)):
        value = one.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            whole = math.ceil(value) if inwards > 0 else math.floor(value)
            found.append(whole + (step if whole == value else 0))
    return (max(found) if inwards > 0 else min(found)) if found else None


ACCEPTED, REJECTED, ENDED = "accepted", "rejected", "ended"
_OPTIONS: dict[str, type | tuple[type, ...]] = {
    "command": str,
    "url": str,
    "env": str,
    "headers": str,
    "goals": str,
    "turns": int,
    "timeout": (float, int),
    "start_timeout": (float, int),
    "submit": str,
    "deterministic": bool,
}


@final
class McpEpisode:
    """One live connection, closed with the episode; ``tools`` are those that the world's prompts tell of."""

    def __init__(
        self,
        task: Task,
        connection: Connection,
        turns: int,
        submit: str,
        tools: Callable[[], Sequence[Listed]],
    ) -> None:
        self.task = task
        self._connection = connection
        self._turns, self._submit = turns, submit
        self._listed = tools
        self._told: dict[str, Listed] | None = None
        self._gone: set[str] = set()
        self._turn = 0
        self._end: str | None = None

    @property
    def first(self) -> Observation:
        """Nothing but the prompt is seen before the first call."""
        return Observation("")

    def step(self, action: str) -> Observation:
        """Send the call of a turn and see its answer, and what became of the tools.

        Raises:
            ServerBroken: the server died or did not answer in time; the episode is over without a grade.
        """
        self._connection.check()
        if self._end is not None or self._turn >= self._turns:
            return self._see(Result("the episode is over", ok=False))
        self._turn += 1
        try:
            name, arguments = read_call(action)
        except BadInput:
            return self._see(Result(compact({"error": "not a call"}), ok=False))
        if name == self._submit:
            self._end = self._verdict(arguments.get("answer"))
            return self._see(Result(self._end))
        if name in self._gone:
            gone = compact({"error": f"the server has no tool {name!r} any more"})
            return self._see(Result(gone, ok=False))
        return self._see(self._connection.call(name, arguments), self._changed())

    def _changed(self) -> str:
        """What became of the tools since it was last told.

        A server that may change them is asked after every call: its notification may come before the answer
        or after it, and an episode that is replayed has to read the same.
        """
        if not self._connection.changing:
            return ""
        before = self._told if self._told is not None else {tool.name: tool for tool in self._listed()}
        now = self._told = {tool.name: tool for tool in self._connection.tools()}
        # Those that went earlier stay refused until they are listed again.
        self._gone = (self._gone | set(before)) - set(now)
        return describe_changes(before, now)

    def _verdict(self, given: Any) -> str:
        goal = self.task.data
        if not _graded(self.task):
            return ENDED
        right = True
        if goal.get("answer") is not None:
            right = str("" if given is None else given).strip().lower() == str(goal["answer"]).strip().lower()
        for one in goal.get("checks") or []:
            right = (
                right and self._connection.call(one["name"], one.get("arguments", {})).text == one["answer"]
            )
        return ACCEPTED if right else REJECTED

    def _see(self, result: Result, changed: str = "") -> Observation:
        over = self._end is not None or self._turn >= self._turns
        info: Json = {"ok": result.ok}
        if not result.answered:
            info["exact"] = False
        if self._end is None:
            reward = 0.0 if over and _graded(self.task) else None
        else:
            reward = None if self._end == ENDED else float(self._end == ACCEPTED)
        text = "\n".join(part for part in (result.text, changed) if part)
        return Observation(text, done=over, reward=reward, info=info)

    def snapshot(self) -> bytes | None:
        """A server's state is its own."""
        return None

    def reseed(self, seed: int) -> None:
        """A server's chance is its own."""

    def close(self) -> None:
        """End the connection, and a server that was started for it."""
        self._connection.close()


def _graded(task: Task) -> bool:
    return task.data.get("answer") is not None or bool(task.data.get("checks"))


@final
@dataclass(frozen=True)
class McpWorld:
    """An MCP server and goals in it; ``target`` is a server in this process, for tests and demonstrations."""

    server: Server
    goals: str = ""
    turns: int = 10
    submit: str = "submit"
    deterministic: bool = False
    spec: str = "tools:mcp"
    target: Any = None

    def __post_init__(self) -> None:
        if self.turns < 1:
            raise BadInput(f"an episode has at least one turn, not {self.turns}", where="tools:mcp")
        if not self.submit.strip():
            raise BadInput("the last call has no name", where="tools:mcp", hint="submit=NAME")

    @property
    def name(self) -> str:
        """The specification that opens this world."""
        return self.spec

    @property
    def version(self) -> str:
        """Changes with the tools that the server lists."""
        return f"2+{digest([[tool.name, tool.doc, tool.parameters] for tool in self.tools()])[:12]}"

    @property
    def domain(self) -> DomainName:
        """Typed tools."""
        return "tools"

    @property
    def max_turns(self) -> int:
        """Turns after which a run counts as failed."""
        return self.turns

    def tools(self) -> tuple[Listed, ...]:
        """What the server lists; it is asked once per process.

        Raises:
            BadInput: a tool has the name of the last call, or no server can be started.
            CannotDo: the server ended at its start, or does not list its tools.
            ServerError: no server answers at the address.
        """
        listed = _listed(self)
        if any(tool.name == self.submit for tool in listed):
            hint = "name the last call otherwise: submit=NAME"
            raise BadInput(f"the server has a tool {self.submit!r} of its own", where="tools:mcp", hint=hint)
        return listed

    def connect(self) -> Connection:
        """A new connection; a command is started for it."""
        return Connection(self.server, self.target)

    def tasks(self, split: Split, count: int, seed: int = 0) -> list[Task]:
        """Goals of a split in the order of their file, from ``seed`` on; without a file explorations.

        Raises:
            BadInput: the file does not hold that many.
        """
        if not self.goals:
            # Apart by seed, so that the tasks of one do not run into those of the next.
            return [self._task({"explore": seed * 100_000 + n, "in": split}, split) for n in range(count)]
        held = [body for body in read_goals(Path(self.goals)) if _split(body) == split]
        if count > len(held):
            raise BadInput(f"there are {len(held)} goals of split {split}, not {count}", where=self.goals)
        return [self._task(held[(seed + n) % len(held)], split) for n in range(count)]

    def _task(self, body: Json, split: Split) -> Task:
        goal = str(body.get("prompt", "explore the tools"))
        lines = [tool.line for tool in self.tools()]
        prompt = "\n".join(["tools :", *lines, f"{self.submit}([answer])", f"goal : {goal}"])
        name = str(body.get("id", digest(body)[:16]))
        return Task(f"tools-mcp/{name}", self.name, split, prompt, dict(body))

    def start(self, task: Task, seed: int) -> McpEpisode:
        """Connect anew; raises what :meth:`tools` raises."""
        del seed
        return McpEpisode(task, self.connect(), self.turns, self.submit, self.tools)

    def restore(self, task: Task, snapshot: bytes) -> McpEpisode:
        """A server cannot be set to a state; raises CannotDo."""
        raise CannotDo(
            "an MCP server has no snapshots", where=f"task {task.id}", hint="its calls are replayed"
        )

    def action_in(self, turn: str) -> str:
        """The call of a policy's turn as one line of JSON."""
        return call_line(turn)

    def brief(self, task: Task) -> Brief:
        """The goal and the tools with their schemas; the state as far as the goal's file tells it."""
        lines = [
            compact({"name": tool.name, "description": tool.doc, "parameters": tool.parameters})
            for tool in self.tools()
        ]
        return Brief(
            task_description=f"goal : {task.data.get('prompt', 'explore the tools')}",
            action_space="\n".join([*lines, f"{self.submit}([answer])"]),
            initial_state=str(task.data.get("initial_state", "")),
        )

    def agent(self, task: Task, seed: int) -> McpAgent:
        """The goal's solution where there is one, else an exploration of the tools' schemas."""
        return McpAgent(self.tools(), self.submit, task.data.get("solution"), (task.id, seed), self.turns)

    def standing(self, task: Task, history: Sequence[ActionObservation]) -> tuple[bool, float | None]:
        """Over after a verdict or the last turn; what has no answer to check is not graded."""
        last = next((text.strip() for action, text in history if self._submits(action)), None)
        if last in (ACCEPTED, REJECTED, ENDED):
            return True, None if last == ENDED else float(last == ACCEPTED)
        if len(history) >= self.turns:
            return True, 0.0 if _graded(task) else None
        return False, None

    def _submits(self, action: str) -> bool:
        try:
            return read_call(action)[0] == self.submit
        except BadInput:
            return False


@lru_cache(maxsize=16)
def _listed(world: McpWorld) -> tuple[Listed, ...]:
    connection = world.connect()
    try:
        return connection.tools()
    except ServerBroken as error:
        raise CannotDo(
            str(error), where="tools:mcp", hint="see that it is an MCP server with tools"
        ) from error
    finally:
        connection.close()


def _split(body: Json) -> str:
    return str(body.get("split") or split_of(digest(body)))


def mcp_world(spec: Spec) -> McpWorld:
    """The world that ``tools:mcp?...`` names."""
    given = spec.take(_OPTIONS)
    server = Server(
        str(given.get("command", "")),
        str(given.get("url", "")),
        float(given.get("timeout", 20.0)),
        float(given.get("start_timeout", 60.0)),
        _names(given.get("headers", "")),
        _names(given.get("env", "")),
    )
    return McpWorld(
        server,
        str(given.get("goals", "")),
        int(given.get("turns", 10)),
        str(given.get("submit", "submit")),
        bool(given.get("deterministic", False)),
        f"tools:mcp?{spec.query}",
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
