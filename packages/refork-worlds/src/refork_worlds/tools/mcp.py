"""``tools:mcp?command=...``: the world of any MCP server, started anew for every episode.

Options: ``command`` (speaks on its standard streams) or ``url``; ``env``, variables that a command is given,
or ``headers`` for a url, both by the names of variables (:mod:`refork_worlds.tools.mcp_server`);
``goals``, a file (:mod:`refork_worlds.tools.mcp_goals`); ``turns``; ``timeout`` of a call and
``start_timeout``, in seconds; ``submit``, the name of the last call; ``deterministic`` where the server is
known to be. Without goals its tasks explore.

There is no snapshot: a fork replays the recorded calls on a fresh server and checks what they answer, which
a server behind a URL, that remembers, may not repeat. A server that dies or hangs breaks its episode, which
is then not graded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, final

from refork.errors import BadInput, CannotDo
from refork.types import Json
from refork.worlds.base import Observation, Split, Task
from refork.worlds.dice import digest, split_of
from refork.worlds.environment import ActionObservation, Brief, DomainName
from refork.worlds.spec import Spec
from refork_worlds.tools.call import call_line, compact, read_call
from refork_worlds.tools.mcp_agent import McpAgent
from refork_worlds.tools.mcp_changes import describe_changes
from refork_worlds.tools.mcp_client import Connection, Listed, Result, Server, ServerBroken
from refork_worlds.tools.mcp_goals import read_goals

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
