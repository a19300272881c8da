"""The memory: text first, code where a plan was used again and again; all of it derived from one log.

Source: arXiv:2606.24151. Ours: the log, the roles by rule, the deterministic codifier, demotion, accounts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from refork.errors import BadInput, ServerError
from refork.policies.base import Cost, total_cost
from refork.progress import Progress, silent
from refork.types import Json
from refork_methods.memory.admission import Guard
from refork_methods.memory.agreement import agreement
from refork_methods.memory.codifier import codifier_input
from refork_methods.memory.events import checked_event, open_log
from refork_methods.memory.gate import Recurrence, RecurrenceGate
from refork_methods.memory.induce import only_reads
from refork_methods.memory.item import ItemKind, MemoryItem
from refork_methods.memory.registry import ToolRegistry
from refork_methods.memory.retrieve import Retriever
from refork_methods.memory.roles.lesson import Lesson, Most
from refork_methods.memory.roles.team import Roles
from refork_methods.memory.secrets import Hidden, hidden
from refork_methods.memory.state import MemoryState, after, replay
from refork_methods.memory.tool import Tool
from refork_methods.memory.trajectory import RunTrajectory


@dataclass(frozen=True, slots=True)
class Selection:
    """What was chosen for a query: texts to read, tools to call, and the candidates they were chosen from.

    ``callable`` is all that the task may call: the tools, those that the texts mention, and what they need.
    """

    query: str
    items: tuple[MemoryItem, ...] = ()
    tools: tuple[Tool, ...] = ()
    candidates: tuple[tuple[str, tuple[str, ...]], ...] = ()
    callable: tuple[str, ...] = ()

    def to_json(self) -> Json:
        """Texts whole, tools as a catalogue shows them."""
        return {
            "query": self.query,
            "items": [{"id": i.id, "kind": i.kind, "body": i.body} for i in self.items],
            "tools": [{"name": t.name, "doc": t.doc, "parameters": t.parameters} for t in self.tools],
            "candidates": {kind: list(names) for kind, names in self.candidates},
            "callable": list(self.callable),
        }


@final
class ExperienceMemory:
    """A memory in a folder (None: in this process only).

    Every change is one event of an append-only log, and what the memory holds follows from the log alone.
    ``hide_secrets``: passwords, keys and tokens of runs are replaced by names before anything reads them.
    ``reads`` says of a function that it changes nothing: another run need not have called it as a plan does.
    ``clock`` gives seconds, for the accounts.
    """

    def __init__(
        self,
        store: str | Path | None = None,
        *,
        roles: Roles | None = None,
        gate: RecurrenceGate | None = None,
        retriever: Retriever | None = None,
        most: Most | None = None,
        hide_secrets: bool = True,
        reads: Callable[[str], bool] = only_reads,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.store = None if store is None else Path(store)
        self.roles = roles or Roles()
        self.gate = gate or RecurrenceGate()
        self.retriever = retriever or Retriever()
        self.most = most or Most()
        self.hide_secrets = hide_secrets
        self.reads = reads
        self.clock = clock
        self.log = open_log(self.store)
        #: Bytes of a last line that a crash cut short: that event never counted.
        self.torn = self.log.torn
        self._state = replay(self.log)

    @property
    def state(self) -> MemoryState:
        """What the memory holds now."""
        return self._state

    def at(self, events: int) -> MemoryState:
        """What it held after the first ``events`` events. Raises BadInput for more than there are."""
        if not 0 <= events <= len(self.log):
            raise BadInput(f"the log has {len(self.log)} events, not {events}")
        return replay(self.log, events)

    def record(self, kind: str, body: Json) -> None:
        """Append one event; it is on the disk when this returns.

        Raises:
            BadInput: no such event, or fields that do not fit.
            TreeBusy: another process wrote to the memory.
            DiskFull: nothing was written.
        """
        entry = self.log.append(kind, checked_event(kind, body))
        self._state = after(self._state, entry)

    def reflect(self, run: RunTrajectory) -> tuple[MemoryItem, ...]:
        """Learn from a finished run; the items that entered the memory.

        Raises:
            BadInput: a run of this task was read before.
            ServerError: a model gave no usable reply.
        """
        if run.task in self._state.reflected:
            raise BadInput(
                "a run of this task was read before", where=f"task {run.task!r}", hint="task ids must differ"
            )
        began = self.clock()
        safe = hidden(run) if self.hide_secrets else Hidden(run)
        run = safe.run
        seen = self._state.observed.get(run.task)
        given = [i for i in self._state.texts() if seen is not None and i.id in seen.items]
        found = self.roles.reflector.reflect(run, given)
        lessons = tuple(map(safe.lesson, found.lessons))
        screened = self.roles.screener.screen(lessons, self._known())
        pairs = list(zip(lessons, screened.reasons, strict=True))
        items = self._made([lesson for lesson, reason in pairs if reason is None], run.query)
        self._replayed(run, given)
        self.record(
            "reflect",
            {
                "task": run.task,
                "query": run.query,
                "success": run.success,
                "items": [item.to_json() for item in items],
                "dropped": [{"body": lesson.body, "reason": reason} for lesson, reason in pairs if reason],
                "by": self.roles.reflector.name,
                "cost": self.spent(began, found.cost, screened.cost),
            },
        )
        return tuple(self._state.items[item.id] for item in items)

    def _known(self) -> tuple[MemoryItem, ...]:
        """The texts that a lesson may repeat; calls that other runs disproved bar no better ones."""
        return tuple(
            replace(one, skeleton=()) if self.gate.disproved(self._state.agreements.get(one.id, ())) else one
            for one in self._state.texts()
        )

    def _replayed(self, run: RunTrajectory, given: Sequence[MemoryItem]) -> None:
        """Record how a run agrees with the plans that it had; a failed one shows nothing of a plan."""
        if run.success is False:
            return
        for plan in given:
            found = agreement(plan, run, self.reads)
            if found is not None:
                self.record(
                    "replay",
                    {"task": run.task, "plan": plan.id, "verdict": found.verdict, "words": found.words},
                )

    def add(self, lessons: Sequence[Lesson], *, query: str = "", by: str = "hand") -> tuple[MemoryItem, ...]:
        """Enter items without a run. Raises BadInput for a revision of an item that is not there."""
        items = self._made(lessons, query)
        self.record("add", {"items": [item.to_json() for item in items], "by": by})
        return tuple(self._state.items[item.id] for item in items)

    def merge(self, first: str, second: str, body: str) -> MemoryItem:
        """One item in the place of two of a kind: it revises the first, and the second falls.

        A plan keeps the first one's calls and query, and begins to count anew.

        Raises:
            BadInput: items that are not there, not valid, of two kinds, or one and the same.
        """
        one, other = self._valid(first), self._valid(second)
        if one.kind != other.kind or first == second:
            raise BadInput(f"{first!r} and {second!r} cannot be merged", hint="two items of one kind can")
        evidence = tuple(dict.fromkeys((*one.evidence, *other.evidence)))
        refs = tuple(dict.fromkeys((*one.refs, *other.refs)))
        lesson = Lesson(one.kind, body, evidence, one.skeleton, refs, first)
        (merged,) = self.add([lesson], query=one.query, by="merge")
        self.invalidate(second, f"merged into {merged.id}")
        return merged

    def invalidate(self, item: str, reason: str) -> None:
        """Never return an item again; code that was made from it is not called either.

        Raises:
            BadInput: there is no such valid item.
        """
        self._valid(item)
        self.record("invalidate", {"item": item, "reason": reason})

    def demote(self, tool: str, reason: str) -> None:
        """Make a tool text again: its plan stays, the code is never called nor built again.

        Raises:
            BadInput: there is no such tool that may be called.
        """
        self._live(tool)
        self.record("demote", {"tool": tool, "reason": reason})

    def select(self, query: str, *, task: str | None = None) -> Selection:
        """Texts and tools for a query. Nothing counts as used before :meth:`observe`.

        Raises:
            BadInput: an empty query.
            ServerError: a model gave no usable reply.
        """
        began = self.clock()
        state = self._state
        found = self.retriever.candidates(state.documents(), query)
        plans = {tool.name: tool.plan for tool in state.live_tools()}
        chosen = self.roles.manager.choose(query, found, state.items, plans, self.most)
        items = tuple(self._valid(name) for name in chosen.items)
        tools = tuple(self._live(name) for name in chosen.tools)
        names = {kind: [one.document.id for one in row] for kind, row in found.items()}
        self.record(
            "select",
            {
                "task": task,
                "query": query,
                "candidates": names,
                "items": [item.id for item in items],
                "tools": [tool.name for tool in tools],
                "by": self.roles.manager.name,
                "cost": self.spent(began, chosen.cost),
            },
        )
        found_names = tuple((kind, tuple(row)) for kind, row in names.items())
        return Selection(query, items, tools, found_names, self._closed(items, tools))

    def observe(
        self,
        task: str,
        selected: Selection,
        *,
        called: Iterable[str] = (),
        success: bool | None = None,
        steps: int | None = None,
        cost: Cost | None = None,
    ) -> None:
        """Say that a task ran with a selection: each chosen plan gathers the task, whatever its outcome.

        ``called`` are the tools that the run invoked; ``cost`` goes to the execution account.

        Raises:
            BadInput: a selection with an unknown or invalid item, an unknown tool, or no query.
        """
        if not task.strip() or not selected.query.strip():
            raise BadInput("a task needs an id and a query", where=f"task {task!r}")
        for item in selected.items:
            self._valid(item.id)
        names = [tool.name for tool in selected.tools]
        for name in names:
            self._live(name)
        strange = sorted(set(called) - {tool.name for tool in self._state.tools.values()})
        if strange:
            raise BadInput(f"there is no tool {strange[0]!r}", where=f"task {task!r}")
        self.record(
            "observe",
            {
                "task": task,
                "query": selected.query,
                "items": [item.id for item in selected.items],
                "tools": names,
                "called": sorted(set(called)),
                "success": success,
                "steps": steps,
                "cost": (cost or Cost()).to_json(),
            },
        )

    def selection(self, query: str, items: Iterable[str] = (), tools: Iterable[str] = ()) -> Selection:
        """A selection of given ids and names. Raises BadInput for one that may not be returned."""
        texts, code = tuple(map(self._valid, items)), tuple(map(self._live, tools))
        return Selection(query, texts, code, callable=self._closed(texts, code))

    def due(self) -> list[tuple[MemoryItem, Recurrence]]:
        """Plans that the gate lets through now, oldest first, with what they gathered."""
        state = self._state
        coded = {tool.plan for tool in state.tools.values()}
        found = []
        for plan in state.texts("plan"):
            gathered = state.recurrence.get(plan.id, Recurrence())
            tried = self.gate.eager and plan.id in state.refused
            if plan.id not in coded and not tried and self.gate.due(gathered.tasks):
                found.append((plan, gathered))
        return found

    def spent(self, began: float, *costs: Cost) -> Json:
        """Costs of roles together, and the seconds since ``began``."""
        seconds = round(self.clock() - began, 6)
        return replace(total_cost(costs), seconds=seconds).to_json()

    def _made(self, lessons: Sequence[Lesson], query: str) -> list[MemoryItem]:
        items: list[MemoryItem] = []
        numbers: dict[ItemKind, int] = {}
        for lesson in lessons:
            if lesson.supersedes is not None and self._valid(lesson.supersedes).kind != lesson.kind:
                raise BadInput(f"a {lesson.kind} cannot revise {lesson.supersedes!r}")
            # Invalid items count too: an id is never given twice.
            first = self._state.count(lesson.kind) + 1
            number = numbers[lesson.kind] = numbers.get(lesson.kind, first - 1) + 1
            fields: dict[str, Any] = {
                "skeleton": lesson.skeleton,
                "supersedes": lesson.supersedes,
                "evidence": lesson.evidence,
                "refs": lesson.refs,
                "query": query if lesson.kind == "plan" else "",
            }
            name = f"{lesson.kind}-{number}"
            items.append(MemoryItem(name, lesson.kind, lesson.body, created=len(self.log), **fields))
        return items

    def _closed(self, items: Sequence[MemoryItem], tools: Sequence[Tool]) -> tuple[str, ...]:
        """Everything that a task with these texts and tools may call."""
        registry = ToolRegistry(self._state.live_tools())
        mentioned = [name for item in items for name in item.refs if name in registry]
        return tuple(sorted(registry.close([tool.name for tool in tools] + mentioned)))

    def _valid(self, name: str) -> MemoryItem:
        item = self._state.items.get(name)
        if item is None:
            raise BadInput(f"the memory has no item {name!r}")
        if not item.valid:
            raise BadInput(f"the item {name!r} was superseded or found wrong; it is never returned")
        return item

    def _live(self, name: str) -> Tool:
        for tool in self._state.live_tools():
            if tool.name == name:
                return tool
        raise BadInput(f"the memory has no tool {name!r} that may be called")


# Plans that are due become tools: codifier, guard, and what the log says of it.

NOTHING = Cost(tokens_in=0, tokens_out=0, seconds=0.0)


@dataclass(frozen=True, slots=True)
class Built:
    """What became of a plan that was due: the tools admitted, or why there is none.

    ``failed``: a model gave no usable reply, so nothing was recorded and the plan stays due.
    """

    plan: str
    tasks: tuple[str, ...]
    tools: tuple[Tool, ...] = ()
    reasons: tuple[str, ...] = ()
    failed: bool = False


def codify_due(memory: ExperienceMemory, guard: Guard) -> list[Built]:
    """Make code of every plan that is due, and empty its buffer into its history.

    Rulings are written before the buffer is emptied: a crash between leaves the plan due or done, never lost.
    """
    return [_built(memory, plan, gathered, guard) for plan, gathered in memory.due()]


def _built(memory: ExperienceMemory, plan: MemoryItem, gathered: Recurrence, guard: Guard) -> Built:
    began = memory.clock()
    given = codifier_input(
        plan,
        gathered.queries,
        gathered.history,
        support=1 if memory.gate.eager else 2,
        taken=tuple(memory.state.tools),
    )
    codifier = memory.roles.codifier
    try:
        found = codifier.codify(given)
    except ServerError as error:
        return Built(plan.id, gathered.tasks, reasons=(str(error),), failed=True)
    spent = memory.spent(began, found.cost)
    admitted: list[Tool] = []
    reasons = [found.refused] if found.refused else []
    for tool in found.tools:
        entered, reason = _ruled(memory, tool, guard)
        admitted += [entered] if entered is not None else []
        reasons += [reason] if entered is None else []
    memory.record(
        "codify",
        {
            "plan": plan.id,
            "tasks": list(gathered.tasks),
            "queries": list(gathered.queries),
            "history": list(gathered.history),
            "by": codifier.name,
            "tools": [tool.name for tool in admitted],
            "refused": "" if admitted else "; ".join(reasons),
            "cost": spent,
        },
    )
    return Built(plan.id, gathered.tasks, tuple(admitted), tuple(reasons))


def _ruled(memory: ExperienceMemory, tool: Tool, guard: Guard) -> tuple[Tool | None, str]:
    """The tool as it entered, or None and why not."""
    ruling = guard.admit(tool, memory.state.live_tools())
    # Without a repair the cost is 0, not unknown: one unknown cost leaves the account without a total.
    told = {"repaired": ruling.repaired, "cost": (ruling.cost if ruling.repaired else NOTHING).to_json()}
    reason = ruling.reason
    if ruling.admitted and memory.state.items[tool.plan].skeleton:
        reason = memory.gate.unconfirmed(memory.state.agreements.get(tool.plan, ()))
    if ruling.admitted and not reason:
        digests = guard.fingerprints(ruling.tool)
        memory.record("admit", {"tool": ruling.tool.to_json(), "functions": digests, **told})
        return ruling.tool, ""
    memory.record("reject", {"tool": ruling.tool.to_json(), "reason": reason, **told})
    return None, f"{tool.name}: {reason}"


# Reading finished runs into a memory, in order.


@dataclass(frozen=True, slots=True)
class Ingested:
    """What came of it: runs read, runs passed over, new items, and (task, reason) of runs that failed."""

    read: int
    skipped: int
    items: tuple[MemoryItem, ...]
    failed: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> Json:
        """Counts, items, and failures."""
        return {
            "read": self.read,
            "skipped": self.skipped,
            "items": [item.to_json() for item in self.items],
            "failed": [{"task": task, "reason": reason} for task, reason in self.failed],
        }


def ingest(
    memory: ExperienceMemory,
    runs: Sequence[RunTrajectory],
    *,
    observe: bool = True,
    skip_known: bool = False,
    progress: Progress = silent,
) -> Ingested:
    """Reflect on every run; ``observe`` first counts what the memory would have chosen for its query.

    That is how recurrence is found in logs of agents that had no memory. A run on which a model gives no
    usable reply is told among the failed and can be read again.

    Raises:
        BadInput: two runs of one task, or one that was read before (unless ``skip_known``).
    """
    _check(memory, runs, skip_known)
    items: list[MemoryItem] = []
    failed: list[tuple[str, str]] = []
    read = skipped = 0
    for place, whole in enumerate(runs):
        progress("reading runs", place, len(runs))
        # Here too, not in reflect() alone: select() and observe() below record the query.
        run = hidden(whole).run if memory.hide_secrets else whole
        if run.task in memory.state.reflected:
            skipped += 1
            continue
        try:
            # A run whose reflection failed earlier was observed then: reading it again must not count twice.
            if observe and run.task not in memory.state.observed:
                chosen = memory.select(run.query, task=run.task)
                given = memory.selection(run.query, [item.id for item in chosen.items])
                memory.observe(run.task, given, success=run.success, steps=len(run.steps), cost=run.cost)
            items += memory.reflect(run)
            read += 1
        except ServerError as error:
            failed.append((run.task, error.what))
    progress("reading runs", len(runs), len(runs))
    return Ingested(read, skipped, tuple(items), tuple(failed))


def _check(memory: ExperienceMemory, runs: Sequence[RunTrajectory], skip_known: bool) -> None:
    """Refuse before anything is written."""
    seen: set[str] = set()
    for run in runs:
        if run.task in seen:
            raise BadInput(f"two runs have the task id {run.task!r}")
        seen.add(run.task)
    known = sorted(seen & memory.state.reflected)
    if known and not skip_known:
        raise BadInput(
            f"a run of the task {known[0]!r} was read before", hint="pass over such runs: --skip-known"
        )
