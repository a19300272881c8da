"""Tools that a chance of one run made: worlds in which numbers meet, and what became code there.

Every world has people, songs and events whose ids, prices and ratings are small numbers, drawn anew for each
task, and requests that name numbers of the same range. So in some runs a number of the request is also an id.
An agent that makes no mistake does the requests; nothing is planted. A tool is a coincidence if it is right
on none of the held-out tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from refork.sandbox import Sandbox
from refork_methods.memory import AdmissionGuard, ExperienceMemory, RecurrenceGate, codify_due
from refork_methods.memory.queries import best_match
from refork_methods.memory.registry import ToolRegistry, invoke
from refork_methods.memory.skeleton import slots_of
from refork_methods.memory.tool import Tool
from refork_methods.memory.trajectory import RunStep, RunTrajectory

HELD_OUT = 18
#: Tasks of each kind that a memory learns from.
ROUNDS = 8
#: Ids, prices, amounts, minutes and stars are 1 to this.
MOST = 12
ENTRIES = 6
FIRST = ("Ann", "Bob", "Cora", "Dan", "Eva", "Finn", "Gina", "Hugo")
LAST = ("Berg", "Day", "Ford", "Hill", "Lake", "Marsh", "Park", "Wood")
TITLES = ("Blue River", "Red Kite", "First Snow", "Glass House", "Last Light", "Paper Moon", "Silent Sea")
NOTES = ("rent", "food", "a book", "cake", "the ride", "tickets", "flowers", "a lamp", "bread")


@dataclass
class Desk:
    """The state of one task, and what was done."""

    rows: Mapping[str, list[dict[str, Any]]]
    done: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def call(self, name: str, arguments: dict[str, Any]) -> Any:
        """The answer to one call."""
        app, _, function = name.partition(".")
        if function == "list_all":
            return self.rows[app]
        self.done.append((name, dict(arguments)))
        return {"done": len(self.done)}


@dataclass(frozen=True)
class Asked:
    """One task: its query, the state, the function that does it, and its arguments; or the answer."""

    kind: str
    query: str
    rows: Mapping[str, list[dict[str, Any]]]
    function: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    answer: Any = None


def _rows(rng: np.random.Generator) -> dict[str, list[dict[str, Any]]]:
    def few(*, names: Sequence[str]) -> Iterator[tuple[int, str, int]]:
        ids = rng.permutation(MOST)[:ENTRIES] + 1
        told = rng.permutation(len(names))[:ENTRIES]
        for number, name in zip(ids, told, strict=True):
            yield int(number), names[int(name)], int(rng.integers(1, MOST + 1))

    people = [f"{first} {last}" for first in FIRST for last in LAST]
    return {
        "pay": [{"user_id": i, "name": name} for i, name, _ in few(names=people)],
        "music": [{"song_id": i, "title": name, "price": price} for i, name, price in few(names=TITLES)],
        "calendar": [{"event_id": i, "title": name, "length": n} for i, name, n in few(names=TITLES)],
    }


def _pay(rng: np.random.Generator, rows: Mapping[str, Any]) -> Asked:
    one, amount, note = rng.choice(rows["pay"]), int(rng.integers(1, MOST + 1)), str(rng.choice(NOTES))
    query = f'Send {amount} dollars to {one["name"]} for "{note}"'
    return Asked("pay", query, rows, "pay.send", {"user_id": one["user_id"], "amount": amount, "note": note})


def _rate(rng: np.random.Generator, rows: Mapping[str, Any]) -> Asked:
    one, stars = rng.choice(rows["music"]), int(rng.integers(1, 6))
    query = f'Rate the song "{one["title"]}" with {stars} stars'
    return Asked("rate", query, rows, "music.rate", {"song_id": one["song_id"], "stars": stars})


def _move(rng: np.random.Generator, rows: Mapping[str, Any]) -> Asked:
    one, hours = rng.choice(rows["calendar"]), int(rng.integers(1, MOST + 1))
    query = f'Move the event "{one["title"]}" by {hours} hours'
    return Asked("move", query, rows, "calendar.move", {"event_id": one["event_id"], "hours": hours})


def _price(rng: np.random.Generator, rows: Mapping[str, Any]) -> Asked:
    one, count = rng.choice(rows["music"]), int(rng.integers(2, MOST + 1))
    query = f'I have {count} dollars: what does the song "{one["title"]}" cost?'
    return Asked("price", query, rows, answer=one["price"])


KINDS: tuple[Callable[[np.random.Generator, Mapping[str, Any]], Asked], ...] = (_pay, _rate, _move, _price)
_ACTS = {
    "pay.send": {"user_id": "integer", "amount": "number", "note": "string"},
    "music.rate": {"song_id": "integer", "stars": "integer"},
    "calendar.move": {"event_id": "integer", "hours": "integer"},
}
CATALOGUE = {
    name: {"type": "object", "properties": {k: {"type": v} for k, v in one.items()}, "required": list(one)}
    for name, one in (
        *_ACTS.items(),
        *((f"{app}.list_all", dict[str, str]()) for app in ("pay", "music", "calendar")),
    )
}


def _run(task: str, asked: Asked) -> RunTrajectory:
    """What an agent that makes no mistake does."""
    app = asked.function.partition(".")[0] or "music"
    steps = [RunStep("s1", function=f"{app}.list_all", result=asked.rows[app])]
    if asked.function:
        steps.append(
            RunStep("s2", function=asked.function, arguments=dict(asked.arguments), result={"done": 1})
        )
    steps.append(RunStep("s3", arguments={} if asked.answer is None else {"answer": asked.answer}))
    return RunTrajectory(task, asked.query, tuple(steps), True)


@dataclass(frozen=True)
class Counted:
    """Tools that became code, those right on no held-out task, and those right on all of their kind."""

    tools: int
    coincidences: int
    right: int


def coincidences(worlds: int, seed: int, share: float, theta: int = 3) -> Counted:
    """All worlds' tools at one gate; the same worlds and tasks for every gate."""
    tools = wrong = right = 0
    with Sandbox() as sandbox:
        guard = AdmissionGuard(CATALOGUE, sandbox)
        for world in range(worlds):
            rng = np.random.default_rng([seed, world])
            memory = ExperienceMemory(gate=RecurrenceGate(theta, share=share))
            order = rng.permutation(np.repeat(np.arange(len(KINDS)), ROUNDS))
            for number, kind in enumerate(order):
                asked = KINDS[int(kind)](rng, _rows(rng))
                chosen = memory.select(asked.query, task=f"t{number}")
                memory.observe(f"t{number}", chosen, success=True)
                memory.reflect(_run(f"t{number}", asked))
                codify_due(memory, guard)
            test = [[make(rng, _rows(rng)) for _ in range(HELD_OUT)] for make in KINDS]
            for tool in memory.state.live_tools():
                # Of every kind: a tool may fit the requests of another than its own.
                done = [sum(_right(memory, tool, asked, sandbox) for asked in kind) for kind in test]
                tools, wrong, right = tools + 1, wrong + (max(done) == 0), right + (max(done) == HELD_OUT)
    return Counted(tools, wrong, right)


def _right(memory: ExperienceMemory, tool: Tool, asked: Asked, sandbox: Sandbox) -> bool:
    """Whether the tool alone does a task."""
    plan = memory.state.items[tool.plan]
    found = best_match(plan.query, asked.query, slots_of(plan.skeleton))
    if not found.fits or found.stray:
        return False
    kinds = {name: one["type"] for name, one in tool.parameters["properties"].items()}
    given = {name: _typed(text, kinds[name]) for name, text in found.bound if name in kinds}
    desk = Desk(asked.rows)
    result = invoke(ToolRegistry((tool,)), sandbox, tool.name, given, desk.call)
    if not result.ok:
        return False
    if not asked.function:
        return not desk.done and str(result.value) == str(asked.answer)
    return desk.done == [(asked.function, dict(asked.arguments))]


def _typed(text: str, kind: str) -> Any:
    return int(text) if kind == "integer" else float(text) if kind == "number" else text
