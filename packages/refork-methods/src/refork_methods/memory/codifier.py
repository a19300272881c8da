"""From a plan that came back often enough to a tool: the codifier's input, and one that needs no model.

The input's type holds a plan, queries, and nothing of any trajectory: what a run did cannot reach the tool.
Source: arXiv:2606.24151, its pattern-aware code generation. The paper's codifier is a language model; the
deterministic one, its grammar and its mechanical refusals are ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol, final, runtime_checkable

from refork.errors import BadInput
from refork.policies.base import Cost
from refork_methods.memory.emit import emit, parameters_schema, tool_name
from refork_methods.memory.item import MemoryItem
from refork_methods.memory.queries import (
    Match,
    best_match,
    free_literals,
    place_of,
    template,
    tokens_of,
    two_different,
)
from refork_methods.memory.skeleton import Argument, CallStep, Slot, constants_of, functions_of, slots_of
from refork_methods.memory.tool import Tool


@dataclass(frozen=True, slots=True)
class CodifierInput:
    """All that a codifier is told.

    ``plan`` is the plan's id, ``body`` its text, ``skeleton`` its calls, ``query`` the one it was learned
    from; ``queries`` those of the recurrence buffer and ``history`` earlier ones. ``support`` is how many
    queries must carry the tool (1 only where code is made at once), ``taken`` names that are in use.
    """

    plan: str
    body: str
    skeleton: tuple[CallStep, ...]
    query: str
    queries: tuple[str, ...]
    history: tuple[str, ...] = ()
    support: int = 2
    taken: tuple[str, ...] = ()

    @property
    def all_queries(self) -> tuple[str, ...]:
        """The plan's own query, the history and the buffer, each once."""
        return tuple(dict.fromkeys(q for q in (self.query, *self.history, *self.queries) if q))


def codifier_input(
    plan: MemoryItem,
    queries: tuple[str, ...],
    history: tuple[str, ...] = (),
    *,
    support: int = 2,
    taken: tuple[str, ...] = (),
) -> CodifierInput:
    """What a codifier may know of a plan. Raises BadInput for a fact, a pitfall or an invalid plan."""
    if plan.kind != "plan":
        raise BadInput(f"a {plan.kind} is never made into code", where=plan.id)
    if not plan.valid:
        raise BadInput("this plan was superseded or found wrong", where=plan.id)
    return CodifierInput(plan.id, plan.body, plan.skeleton, plan.query, queries, history, support, taken)


@dataclass(frozen=True, slots=True)
class Codified:
    """A codifier's answer: tools (usually one), or the reason why there is none; and what it cost."""

    tools: tuple[Tool, ...] = ()
    refused: str = ""
    cost: Cost = field(default_factory=Cost)


@runtime_checkable
class Codifier(Protocol):
    """Makes tools of a plan and its queries."""

    @property
    def name(self) -> str:
        """Which codifier, for the record."""
        ...

    def codify(self, given: CodifierInput) -> Codified:
        """Tools for the plan, or a refusal with its reason."""
        ...


@final
class SkeletonCodifier:
    """Anti-unifies the queries over the plan's skeleton; the same input gives the same bytes.

    ``differing``: slots in which two queries of one wording must differ to count as structurally different.
    """

    name = "skeleton"

    def __init__(self, differing: int = 2) -> None:
        if differing < 1:
            raise BadInput("queries that differ in no slot do not differ", where="differing")
        self.differing = differing

    def codify(self, given: CodifierInput) -> Codified:
        """One tool, or why not."""
        nothing = Cost(tokens_in=0, tokens_out=0)
        try:
            tool = self._tool(given)
        except _Refusal as refusal:
            return Codified(refused=str(refusal), cost=nothing)
        return Codified((tool,), cost=nothing)

    def _tool(self, given: CodifierInput) -> Tool:
        if not functions_of(given.skeleton):
            raise _Refusal("the plan has no call skeleton")
        own = tokens_of(given.query)
        slots = slots_of(given.skeleton)
        for slot in slots:
            if place_of(slot.text, own) is None:
                raise _Refusal(f"the slot {slot.name!r} ({slot.text!r}) is nowhere in the plan's query")
        matches = [best_match(given.query, query, slots) for query in given.all_queries]
        carried = [match for match in matches if match.fits]
        for match in carried:
            if match.stray:
                raise _Refusal(
                    f"an element varies and is no parameter: {match.stray[0]!r} in {match.query!r}"
                )
        if given.support > 1:
            if len(carried) < given.support or not two_different(carried, self.differing):
                raise _Refusal(
                    f"{len(carried)} of {len(matches)} queries carry it, and no two of them are "
                    "structurally different"
                )
            free = free_literals(
                [one.value for one in constants_of(given.skeleton)], [match.query for match in carried]
            )
            if free:
                raise _Refusal(f"the literal {free[0]!r} is not in every query, and no parameter")
        return _built(given, slots, carried)


class _Refusal(Exception):
    """Why there is no tool."""


def _built(given: CodifierInput, slots: tuple[Slot, ...], carried: list[Match]) -> Tool:
    widened = {slot.name: _widened(slot, carried) for slot in slots}
    skeleton = tuple(_fitted(step, widened) for step in given.skeleton)
    kept = slots_of(skeleton)
    name = tool_name(skeleton, given.taken)
    doc = f"{template(given.query, kept)}".rstrip(".") + "."
    return Tool(
        id=f"tool:{given.plan}:{name}",
        name=name,
        source=emit(name, skeleton, kept, doc),
        doc=doc,
        parameters=parameters_schema(kept),
        needs=functions_of(skeleton),
        plan=given.plan,
        queries=tuple(match.query for match in carried),
    )


def _widened(slot: Slot, carried: list[Match]) -> Slot:
    """The slot with the narrowest type that every query's text has."""
    if slot.type != "integer":
        return slot
    texts = [match.text(slot.name) for match in carried]
    return Slot(slot.name, slot.text, "number") if any("." in text for text in texts) else slot


def _fitted(step: CallStep, widened: dict[str, Slot]) -> CallStep:
    def new(one: Argument) -> Argument:
        return widened[one.name] if isinstance(one, Slot) else one

    return replace(
        step,
        arguments=tuple((key, new(one)) for key, one in step.arguments),
        where=tuple((key, new(one)) for key, one in step.where),
        value=None if step.value is None else new(step.value),
    )
