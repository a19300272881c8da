"""What a memory holds and what it costs, derived from its log and from nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from refork.errors import BadInput
from refork.policies.base import Cost
from refork.types import Json
from refork_methods.journal import Entry
from refork_methods.memory.agreement import Agreement
from refork_methods.memory.events import cost_of
from refork_methods.memory.gate import HISTORY, Recurrence
from refork_methods.memory.item import ItemKind, MemoryItem
from refork_methods.memory.retrieve import Document
from refork_methods.memory.tool import Tool

# What the memory costs and what it saves: three accounts kept apart, and the break-even.

#: build: reflection and code. selection: retrieval and manager. execution: the tasks themselves.
AccountName: TypeAlias = Literal["build", "selection", "execution"]
#: Which account an event's cost belongs to.
BOOKED: Mapping[str, AccountName] = {
    "reflect": "build",
    "codify": "build",
    "admit": "build",
    "reject": "build",
    "select": "selection",
    "observe": "execution",
}


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum of which parts may be unknown: what is known, and how many parts were not."""

    known: float = 0.0
    unknown: int = 0

    @property
    def total(self) -> float | None:
        """The sum; None where a part is not known."""
        return None if self.unknown else self.known

    def plus(self, part: float | None) -> Sum:
        """With one more part."""
        return (
            replace(self, unknown=self.unknown + 1)
            if part is None
            else replace(self, known=self.known + part)
        )


@dataclass(frozen=True, slots=True)
class Account:
    """Tokens in and out, seconds, and the number of entries."""

    entries: int = 0
    tokens_in: Sum = field(default_factory=Sum)
    tokens_out: Sum = field(default_factory=Sum)
    seconds: Sum = field(default_factory=Sum)

    @property
    def tokens(self) -> float | None:
        """All tokens; None where an entry did not know its own, 0 where there were none."""
        one, other = self.tokens_in.total, self.tokens_out.total
        return None if one is None or other is None else one + other

    def booked(self, cost: Cost) -> Account:
        """With one more entry."""
        return Account(
            self.entries + 1,
            self.tokens_in.plus(cost.tokens_in),
            self.tokens_out.plus(cost.tokens_out),
            self.seconds.plus(cost.seconds),
        )

    def to_json(self) -> Json:
        """Totals, null where not known, and how many entries were not known."""
        return {
            "entries": self.entries,
            "tokens_in": self.tokens_in.total,
            "tokens_out": self.tokens_out.total,
            "seconds": self.seconds.total,
            "unknown": {name: getattr(self, name).unknown for name in ("tokens_in", "tokens_out", "seconds")},
        }


@dataclass(frozen=True, slots=True)
class Accounts:
    """The three accounts."""

    build: Account = field(default_factory=Account)
    selection: Account = field(default_factory=Account)
    execution: Account = field(default_factory=Account)

    def booked(self, kind: str, cost: Cost) -> Accounts:
        """With the cost of an event on its account; events that cost nothing by nature change nothing."""
        name = BOOKED.get(kind)
        if name == "build":
            return replace(self, build=self.build.booked(cost))
        if name == "selection":
            return replace(self, selection=self.selection.booked(cost))
        return replace(self, execution=self.execution.booked(cost)) if name else self

    def to_json(self) -> Json:
        """Each account's totals."""
        return {
            "build": self.build.to_json(),
            "selection": self.selection.to_json(),
            "execution": self.execution.to_json(),
        }


def break_even(build: float, without: float, execution: float, selection: float = 0.0) -> int | None:
    """Tasks after which the memory has paid for itself; None where it never does.

    ``build`` in all; ``without``, ``execution`` (with the memory) and ``selection`` per task; one unit.

    Raises:
        BadInput: a cost that is negative or not finite.
    """
    costs = {"build": build, "without": without, "execution": execution, "selection": selection}
    for name, value in costs.items():
        if not math.isfinite(value) or value < 0:
            raise BadInput(f"{name} is {value}; a cost is 0 or more", where=name)
    saving = without - execution - selection
    if saving > 0:
        return math.ceil(build / saving)
    return 0 if build == 0 and saving == 0 else None


@dataclass(frozen=True, slots=True)
class Observed:
    """One task that ran: what it was given, what it called, how it went."""

    query: str
    items: frozenset[str] = frozenset()
    tools: frozenset[str] = frozenset()
    called: frozenset[str] = frozenset()
    success: bool | None = None
    steps: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryState:
    """The memory after some events.

    ``items`` and ``tools`` are all there ever were, by id and by name, in order; what may be returned is in
    :meth:`texts` and :meth:`live_tools`. ``functions`` are digests of what was documented of a tool's
    functions when it was admitted; ``since`` says how many tasks had been observed when an item came;
    ``refused`` has the last refusal of plans whose code was tried. ``agreements`` say how the other runs that
    had a plan agree with it.
    """

    events: int = 0
    items: Mapping[str, MemoryItem] = field(default_factory=dict)
    since: Mapping[str, int] = field(default_factory=dict)
    tools: Mapping[str, Tool] = field(default_factory=dict)
    functions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    demoted: Mapping[str, str] = field(default_factory=dict)
    recurrence: Mapping[str, Recurrence] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    agreements: Mapping[str, tuple[Agreement, ...]] = field(default_factory=dict)
    reflected: frozenset[str] = frozenset()
    observed: Mapping[str, Observed] = field(default_factory=dict)
    accounts: Accounts = field(default_factory=Accounts)

    def texts(self, kind: ItemKind | None = None) -> tuple[MemoryItem, ...]:
        """Valid items, of one kind or all, oldest first."""
        return tuple(one for one in self.items.values() if one.valid and kind in (None, one.kind))

    def live_tools(self) -> tuple[Tool, ...]:
        """Tools that may be called: admitted, not demoted, their plan valid, and so all that they need."""
        live = {
            name: tool
            for name, tool in self.tools.items()
            if name not in self.demoted and tool.plan in self.items and self.items[tool.plan].valid
        }
        # Until nothing falls: a tool may need one that has only just fallen.
        while broken := [
            name for name, tool in live.items() if any(d not in live for d in tool.dependencies)
        ]:
            for name in broken:
                del live[name]
        return tuple(live.values())

    def documents(self) -> tuple[Document, ...]:
        """What can be retrieved."""
        texts = [Document(one.id, one.kind, _item_text(one)) for one in self.texts()]
        return (*texts, *(Document(t.name, "tool", f"{t.name} {t.doc}") for t in self.live_tools()))

    def count(self, kind: ItemKind) -> int:
        """How many items of a kind there ever were."""
        return sum(one.kind == kind for one in self.items.values())


def _item_text(item: MemoryItem) -> str:
    return f"{item.body} {item.query}" if item.query else item.body


def after(state: MemoryState, entry: Entry) -> MemoryState:
    """The memory after one more event. Pure."""
    body = entry.body
    state = replace(state, events=entry.n + 1, accounts=state.accounts.booked(entry.kind, cost_of(body)))
    match entry.kind:
        case "reflect":
            state = replace(state, reflected=state.reflected | {body["task"]})
            return _with_items(state, [MemoryItem.from_json(one) for one in body["items"]])
        case "add":
            return _with_items(state, [MemoryItem.from_json(one) for one in body["items"]])
        case "replay":
            plan, found = body["plan"], Agreement(body["verdict"], body["words"])
            known = (*state.agreements.get(plan, ()), found)
            return replace(state, agreements={**state.agreements, plan: known})
        case "invalidate":
            return _with_items(state, [replace(state.items[body["item"]], valid=False)])
        case "observe":
            return _observed(state, entry)
        case "admit":
            tool = Tool.from_json(body["tool"])
            return replace(
                state,
                tools={**state.tools, tool.name: tool},
                functions={**state.functions, tool.name: body["functions"]},
            )
        case "codify":
            plan = body["plan"]
            gathered = state.recurrence.get(plan, Recurrence()).folded(HISTORY)
            return replace(
                state,
                recurrence={**state.recurrence, plan: gathered},
                refused={**state.refused, plan: body["refused"]},
            )
        case "demote":
            return replace(state, demoted={**state.demoted, body["tool"]: body["reason"]})
        case _:
            return state


def _with_items(state: MemoryState, items: Iterable[MemoryItem]) -> MemoryState:
    known, since = dict(state.items), dict(state.since)
    for item in items:
        known[item.id] = item
        since.setdefault(item.id, len(state.observed))
        if item.supersedes is not None:
            known[item.supersedes] = replace(known[item.supersedes], valid=False)
    return replace(state, items=known, since=since)


def _observed(state: MemoryState, entry: Entry) -> MemoryState:
    """A task counts for a plan once, whatever its outcome: recurrence is no credit."""
    body = entry.body
    task, query = body["task"], body["query"]
    before = state.observed.get(task, Observed(query))
    seen = Observed(
        query,
        before.items | set(body["items"]),
        before.tools | set(body["tools"]),
        before.called | set(body["called"]),
        body["success"] if body["success"] is not None else before.success,
        body["steps"] if body["steps"] is not None else before.steps,
    )
    recurrence = dict(state.recurrence)
    for name in body["items"]:
        if state.items[name].kind == "plan":
            recurrence[name] = recurrence.get(name, Recurrence()).with_task(task, query)
    return replace(state, observed={**state.observed, task: seen}, recurrence=recurrence)


def replay(entries: Iterable[Entry], upto: int | None = None) -> MemoryState:
    """The memory after the first ``upto`` events (None: all)."""
    state = MemoryState()
    for entry in entries:
        if upto is not None and entry.n >= upto:
            break
        state = after(state, entry)
    return state
