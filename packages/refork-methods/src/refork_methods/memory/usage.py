"""Who uses what, and what it did for them: the ledger, the audit, and demotion of code back to text.

The paper (arXiv:2606.24151) has no demotion; the test and the audit are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from refork.stats import Test, fisher
from refork.types import Json
from refork_methods.memory.admission import fingerprints
from refork_methods.memory.memory import ExperienceMemory
from refork_methods.memory.retrieve import Embedder, near_duplicates
from refork_methods.memory.secrets import in_item, in_text, in_tool
from refork_methods.memory.state import MemoryState


@dataclass(frozen=True, slots=True)
class Use:
    """The use of one item or tool, in tasks: given it, called it (tools), judged, and of those succeeded.

    ``called`` None: a text cannot be called. ``last`` is the id of the latest task that was given it.
    """

    name: str
    kind: str
    given: int
    called: int | None
    judged: int
    succeeded: int
    last: str | None


def ledger(state: MemoryState) -> list[Use]:
    """The use of every item and tool there ever was, in order."""
    uses = [_use(state, name, item.kind, tool=False) for name, item in state.items.items()]
    return uses + [_use(state, name, "tool", tool=True) for name in state.tools]


def _use(state: MemoryState, name: str, kind: str, *, tool: bool) -> Use:
    tasks = {t: o for t, o in state.observed.items() if name in (o.tools if tool else o.items)}
    callers = [o for o in state.observed.values() if name in o.called]
    who = callers if tool else list(tasks.values())
    judged = [o for o in who if o.success is not None]
    return Use(
        name, kind, len(tasks), len(callers) if tool else None, len(judged),
        sum(bool(o.success) for o in judged), next(reversed(tasks), None),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Failing:
    """A tool and how its callers fare beside those who were given its plan and did not call it.

    Counts are (failures, judged tasks); ``test`` is Fisher's, None where a side is empty.
    """

    tool: str
    callers: tuple[int, int]
    others: tuple[int, int]
    test: Test | None

    @property
    def worse(self) -> bool:
        """Whether the callers' failure rate is above the others'."""
        if not self.callers[1] or not self.others[1]:
            return False
        return self.callers[0] / self.callers[1] > self.others[0] / self.others[1]


def failing(state: MemoryState, tool: str) -> Failing:
    """The callers of a tool against the tasks that had its plan or the tool and did not call it."""
    plan = state.tools[tool].plan
    rows = [o for o in state.observed.values() if o.success is not None]
    callers = [o for o in rows if tool in o.called]
    others = [o for o in rows if tool not in o.called and (plan in o.items or tool in o.tools)]
    a = sum(not o.success for o in callers), len(callers)
    b = sum(not o.success for o in others), len(others)
    test = fisher((b[0], b[1]), (a[0], a[1])) if a[1] and b[1] else None
    return Failing(tool, a, b, test)


def demote_failing(memory: ExperienceMemory, alpha: float = 0.05) -> list[Failing]:
    """Make text again of every live tool whose callers fail more often than the others (Fisher, two-sided).

    The tool stays in the log and its plan stays text; it is not built again.
    """
    found = []
    for tool in memory.state.live_tools():
        seen = failing(memory.state, tool.name)
        if seen.worse and seen.test is not None and seen.test.p is not None and seen.test.p < alpha:
            memory.demote(
                tool.name,
                f"{seen.callers[0]} of {seen.callers[1]} callers failed, {seen.others[0]} of "
                f"{seen.others[1]} others (p {seen.test.p:.2g})",
            )
            found.append(seen)
    return found


def changed(state: MemoryState, catalogue: Mapping[str, Json]) -> dict[str, list[str]]:
    """Live tools, and those of their functions that are documented otherwise than when they were admitted.

    Functions that the catalogue does not have are left out here; the audit tells of them.
    """
    found: dict[str, list[str]] = {}
    for tool in state.live_tools():
        now, then = fingerprints(tool, catalogue), state.functions[tool.name]
        names = [name for name in then if name in now and now[name] != then[name]]
        if names:
            found[tool.name] = names
    return found


def demote_changed(memory: ExperienceMemory, catalogue: Mapping[str, Json]) -> dict[str, list[str]]:
    """Make text again of every live tool whose functions are documented otherwise now; see :func:`changed`.

    A text is read against the documentation, code is not: code is only as good as what it was made for.
    """
    found = changed(memory.state, catalogue)
    for name, functions in found.items():
        # An earlier demotion of this loop may have taken it out of the live ones already.
        if any(tool.name == name for tool in memory.state.live_tools()):
            memory.demote(name, f"{', '.join(functions)} changed")
    return found


@dataclass(frozen=True, slots=True)
class Concern:
    """One finding of the audit: what kind, about what, and why."""

    kind: str
    name: str
    words: str


def audit(
    state: MemoryState,
    *,
    idle: int = 30,
    catalogue: Mapping[str, Json] | None = None,
    embedder: Embedder | None = None,
) -> list[Concern]:
    """What a person should look at.

    Tools never called, texts that no task of the last ``idle`` was given, tools that need a function which
    ``catalogue`` has no more, mentions of tools that are gone, what looks like a
    password or key, plans whose code was refused, and items that nearly say the same.
    """
    found = [*_unused(state), *_stale(state, idle), *_broken(state, catalogue), *_secrets(state)]
    for plan, reason in state.refused.items():
        if reason and state.items[plan].valid:
            found.append(Concern("refused code", plan, reason))
    for kind in ("plan", "fact", "pitfall"):
        texts = [one for one in state.texts() if one.kind == kind]
        for first, second, likeness in near_duplicates([one.body for one in texts], embedder):
            words = f"much like {texts[second].id} (cosine {likeness:.2f})"
            found.append(Concern("merge", texts[first].id, words))
    return found


def _unused(state: MemoryState) -> list[Concern]:
    called = {name for seen in state.observed.values() for name in seen.called}
    return [
        Concern("unused tool", tool.name, f"no task called it; {_offers(state, tool.name)} were given it")
        for tool in state.live_tools()
        if tool.name not in called
    ]


def _offers(state: MemoryState, tool: str) -> int:
    return sum(tool in seen.tools for seen in state.observed.values())


def _stale(state: MemoryState, idle: int) -> list[Concern]:
    before = len(state.observed) - idle
    recent = list(state.observed.values())[-idle:]
    used = {name for seen in recent for name in seen.items}
    return [
        Concern(f"stale {one.kind}", one.id, f"none of the last {idle} tasks was given it")
        for one in state.texts()
        # A text that came since could not be given to all of them.
        if one.id not in used and state.since[one.id] <= before
    ]


def _broken(state: MemoryState, catalogue: Mapping[str, Json] | None) -> list[Concern]:
    live = {tool.name for tool in state.live_tools()}
    found = [
        Concern("lost mention", one.id, f"it mentions the tool {name!r}, which is not there")
        for one in state.texts()
        for name in one.refs
        if name not in live
    ]
    for tool in state.live_tools():
        gone = [name for name in tool.functions if catalogue is not None and name not in catalogue]
        found += [
            Concern("lost function", tool.name, f"it needs {name!r}, which is not there") for name in gone
        ]
    for name, functions in changed(state, catalogue or {}).items():
        words = f"what is documented of {', '.join(functions)} is not what it was made for"
        found.append(Concern("changed function", name, words))
    return found


def _secrets(state: MemoryState) -> list[Concern]:
    """What looks like a password, key or token, in valid texts, live tools and the queries of tasks."""
    rows = [(one.id, in_item(one)) for one in state.texts()]
    rows += [(one.name, in_tool(one)) for one in state.live_tools()]
    rows += [(f"task {task}", tuple(in_text(seen.query))) for task, seen in state.observed.items()]
    return [Concern("secret", name, words) for name, found in rows for words in dict.fromkeys(found)]
