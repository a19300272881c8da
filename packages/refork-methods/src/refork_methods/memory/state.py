"""What a memory holds, derived from its log and from nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from refork.journal import Entry
from refork_methods.memory.accounts import Accounts
from refork_methods.memory.events import cost_of
from refork_methods.memory.gate import HISTORY, Recurrence
from refork_methods.memory.item import ItemKind, MemoryItem
from refork_methods.memory.retrieve import Document
from refork_methods.memory.tool import Tool


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
    functions when it was admitted; ``refused`` has the last refusal of plans whose code was tried.
    """

    events: int = 0
    items: Mapping[str, MemoryItem] = field(default_factory=dict)
    tools: Mapping[str, Tool] = field(default_factory=dict)
    functions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    demoted: Mapping[str, str] = field(default_factory=dict)
    recurrence: Mapping[str, Recurrence] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
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
        while broken := [
            name for name, tool in live.items() if any(d not in live for d in tool.dependencies)
        ]:
            for name in broken:
                del live[name]
        return tuple(live.values())

    def documents(self) -> tuple[Document, ...]:
        """What can be retrieved."""
        texts = [Document(one.id, one.kind, _told(one)) for one in self.texts()]
        return (*texts, *(Document(t.name, "tool", f"{t.name} {t.doc}") for t in self.live_tools()))

    def count(self, kind: ItemKind) -> int:
        """How many items of a kind there ever were."""
        return sum(one.kind == kind for one in self.items.values())


def _told(item: MemoryItem) -> str:
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
    known = dict(state.items)
    for item in items:
        known[item.id] = item
        if item.supersedes is not None:
            known[item.supersedes] = replace(known[item.supersedes], valid=False)
    return replace(state, items=known)


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
            recurrence[name] = recurrence.get(name, Recurrence()).seen(task, query)
    return replace(state, observed={**state.observed, task: seen}, recurrence=recurrence)


def replay(entries: Iterable[Entry], upto: int | None = None) -> MemoryState:
    """The memory after the first ``upto`` events (None: all)."""
    state = MemoryState()
    for entry in entries:
        if upto is not None and entry.n >= upto:
            break
        state = after(state, entry)
    return state
