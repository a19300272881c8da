"""From a plan that came back often enough to a tool: the codifier's input, and one that needs no model."""

from __future__ import annotations

import keyword
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, final, runtime_checkable

from refork.errors import BadInput
from refork.policies.base import Cost
from refork.types import Json
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
from refork_methods.memory.skeleton import (
    ENTRY,
    Argument,
    CallStep,
    Constant,
    Result,
    Slot,
    SlotType,
    constants_of,
    functions_of,
    slots_of,
)
from refork_methods.memory.tool import Tool

# A plan's call skeleton as Python source: one function in the calling convention of generated tools.

_PYTHON: dict[SlotType, str] = {"string": "str", "date": "str", "integer": "int", "number": "float"}
#: Pages after which a tool gives up: an environment that never ends its list must not hold it for ever.
MOST_PAGES = 1000


def tool_name(steps: Sequence[CallStep], taken: Sequence[str] = ()) -> str:
    """A name from the last function called and the slots, unlike the taken ones."""
    functions = functions_of(steps)
    stem = functions[-1].replace(".", "_").lower() if functions else "plan"
    slots = [slot.name for slot in slots_of(steps)]
    name = f"{stem}_by_{'_'.join(slots)}"[:60].rstrip("_") if slots else f"{stem}_routine"
    fresh, number = name, 1
    while fresh in taken or keyword.iskeyword(fresh):
        number += 1
        fresh = f"{name}_{number}"
    return fresh


def parameters_schema(slots: Sequence[Slot]) -> Json:
    """The JSON schema of the tool's keywords."""
    properties: Json = {}
    for slot in slots:
        kind = "string" if slot.type == "date" else slot.type
        told = f"for example {slot.text!r}" + (", as YYYY-MM-DD" if slot.type == "date" else "")
        properties[slot.name] = {"type": kind, "description": told}
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def emit(name: str, steps: Sequence[CallStep], slots: Sequence[Slot], doc: str) -> str:
    """Source of the function: one statement or loop per step, a docstring, typed keywords."""
    keywords = "".join(f", {slot.name}: {_PYTHON[slot.type]}" for slot in slots)
    head = f"def {name}(apis, tools{', *' + keywords if keywords else ''}) -> object:"
    lines = [head, *_docstring(doc, slots)]
    for step in steps:
        lines += ["    " + line for line in _step(step)]
    if not steps or steps[-1].op != "return":
        last = next((step.name for step in reversed(steps) if step.name), "")
        lines.append(f"    return {last or None}")
    return "\n".join(lines) + "\n"


def _docstring(doc: str, slots: Sequence[Slot]) -> list[str]:
    text = doc.replace("\\", "\\\\").replace('"""', "'''")
    # A quote at the end would close the docstring one character early.
    if text.endswith('"'):
        text += " "
    if not slots:
        return [f'    """{text}"""']
    told = [f"        {slot.name}: {slot.type}" for slot in slots]
    return [f'    """{text}', "", "    Args:", *told, '    """']


def _expression(one: Argument) -> str:
    if isinstance(one, Constant):
        return repr(one.value)
    if isinstance(one, Slot):
        return one.name
    return one.step + "".join(f"[{key!r}]" for key in one.path)


def _keyword(key: str, value: str) -> str:
    """A keyword argument; names that Python keeps for itself go in by ``**``."""
    plain = key.isidentifier() and not keyword.iskeyword(key)
    return f"{key}={value}" if plain else f"**{{{key!r}: {value}}}"


def _call(step: CallStep, extra: str = "") -> str:
    given = [_keyword(key, _expression(one)) for key, one in step.arguments]
    return f"apis.{step.function}({', '.join([*given, *([extra] if extra else [])])})"


def _test(step: CallStep) -> str:
    return " and ".join(f"{ENTRY}[{key!r}] == {_expression(one)}" for key, one in step.where)


def _step(step: CallStep) -> list[str]:
    if step.op == "return":
        return [f"return {_expression(step.value)}" if step.value is not None else "return None"]
    if step.op == "call":
        return [f"{step.name} = {_call(step)}" if step.name else _call(step)]
    if step.op == "pages":
        return _pages(step)
    over = _expression(step.over) if isinstance(step.over, Result) else "()"
    if step.op == "each":
        if not step.name:
            return [f"for {ENTRY} in {over}:", f"    {_call(step)}"]
        return [f"{step.name} = []", f"for {ENTRY} in {over}:", f"    {step.name}.append({_call(step)})"]
    if step.op == "keep":
        return [f"{step.name} = [{ENTRY} for {ENTRY} in {over} if {_test(step)}]"]
    wanted = " and ".join(
        f"{key} {{{one.name}!r}}" if isinstance(one, Slot) else key for key, one in step.where
    )
    return [
        f"{step.name} = next(({ENTRY} for {ENTRY} in {over} if {_test(step)}), None)",
        f"if {step.name} is None:",
        f'    raise LookupError(f"nothing has {wanted}")',
    ]


def _pages(step: CallStep) -> list[str]:
    part = f"{step.name}_part"
    page = f"{step.name}_page"
    entries = f"{part}[{step.items!r}]" if step.items else part
    return [
        f"{step.name} = []",
        f"for {page} in range({step.first}, {step.first + MOST_PAGES}):",
        f"    {part} = {_call(step, _keyword(step.page, page))}",
        f"    if not {entries}:",
        "        break",
        f"    {step.name}.extend({entries})",
    ]


# The input's type holds a plan, queries, and nothing of any trajectory: what a run did cannot reach the
# tool.
# Source: arXiv:2606.24151, its pattern-aware code generation. The paper's codifier is a language model; the
# deterministic one, its grammar and its mechanical refusals are ours.


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
        # A query that leaves a slot empty is another task's; one that fills all but varies elsewhere refuses.
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
            # With one query no constant can stand in some of them only: this asks for two at least.
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
