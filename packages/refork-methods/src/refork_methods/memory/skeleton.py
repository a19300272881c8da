"""The call skeleton of a plan: which environment functions it calls, in order, and where arguments come from.

An argument is a literal, a slot of the query, or a part of an earlier result. Five kinds of step are enough
for what procedures over functions do: call, read all pages, find one by its fields, keep some, act on each.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from refork.errors import BadInput
from refork.types import Json

#: call: one function. pages: one function, page after page. find: the one entry of a list whose fields
#: are as given. keep: all such entries. each: one call per entry. return: what the plan gives back.
Op: TypeAlias = Literal["call", "pages", "find", "keep", "each", "return"]
#: JSON schema types of a slot; ``date`` is a string written YYYY-MM-DD.
SlotType: TypeAlias = Literal["string", "integer", "number", "date"]

_NAME = re.compile(r"[a-z_][a-z0-9_]*\Z")
_FUNCTION = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\.[A-Za-z_][A-Za-z0-9_]*\Z")
#: What the entry at hand is called inside a ``find``, ``keep`` or ``each``.
ENTRY = "entry"
_RESERVED = frozenset({ENTRY, "apis", "tools", "next", "range"})


@dataclass(frozen=True, slots=True)
class Constant:
    """A fixed value: a string, number, bool or None."""

    value: str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Slot:
    """A part of the query: ``text`` is how it stands in the query that the plan was learned from."""

    name: str
    text: str
    type: SlotType = "string"


@dataclass(frozen=True, slots=True)
class Result:
    """A part of an earlier result: the step's name and the keys (str) or places (int) that lead there."""

    step: str
    path: tuple[str | int, ...] = ()


Argument: TypeAlias = Constant | Slot | Result


@dataclass(frozen=True, slots=True)
class CallStep:
    """One step of a plan.

    ``name`` is what later steps call its result. ``function`` ("app.function") and ``arguments`` belong to
    call, pages and each; ``over`` (a list) to find, keep and each; ``where`` (field, wanted value) to find
    and keep; ``page`` is the page parameter of pages and ``first`` its first value, ``items`` the key of the
    entries where a page is an object; ``value`` is what return gives back.
    """

    op: Op
    name: str = ""
    function: str = ""
    arguments: tuple[tuple[str, Argument], ...] = ()
    over: Result | None = None
    where: tuple[tuple[str, Argument], ...] = ()
    page: str = ""
    first: int = 0
    items: str = ""
    value: Argument | None = None

    def to_json(self) -> Json:
        """Fields that are set."""
        told: Json = {"op": self.op}
        for key in ("name", "function", "page", "items"):
            if getattr(self, key):
                told[key] = getattr(self, key)
        if self.first:
            told["first"] = self.first
        if self.arguments:
            told["arguments"] = {key: argument_json(one) for key, one in self.arguments}
        if self.where:
            told["where"] = {key: argument_json(one) for key, one in self.where}
        if self.over is not None:
            told["over"] = argument_json(self.over)
        if self.value is not None:
            told["value"] = argument_json(self.value)
        return told

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CallStep:
        """Inverse of :meth:`to_json`.

        Raises:
            BadInput: an unknown key, operation or argument.
        """
        unknown = sorted(set(data) - {*cls.__slots__})
        if unknown:
            raise BadInput(f"a step has no field {unknown[0]!r}", where="skeleton")
        if data.get("op") not in get_args(Op):
            raise BadInput(f"there is no step {data.get('op')!r}", where="skeleton", hint=f"{get_args(Op)}")
        over = argument_of(data["over"]) if "over" in data else None
        if over is not None and not isinstance(over, Result):
            raise BadInput("'over' must be an earlier result", where="skeleton")
        return cls(
            op=data["op"],
            name=str(data.get("name", "")),
            function=str(data.get("function", "")),
            arguments=_pairs(data.get("arguments", {})),
            over=over,
            where=_pairs(data.get("where", {})),
            page=str(data.get("page", "")),
            first=int(data.get("first", 0)),
            items=str(data.get("items", "")),
            value=argument_of(data["value"]) if "value" in data else None,
        )


def argument_json(one: Argument) -> Json:
    """An argument as JSON: ``{"constant": v}``, ``{"slot": ...}`` or ``{"result": ...}``."""
    if isinstance(one, Constant):
        return {"constant": one.value}
    if isinstance(one, Slot):
        return {"slot": one.name, "text": one.text, "type": one.type}
    return {"result": one.step, "path": list(one.path)}


def argument_of(data: Any) -> Argument:
    """Inverse of :func:`argument_json`.

    Raises:
        BadInput: it is none of the three.
    """
    if isinstance(data, Mapping):
        if "constant" in data and (
            data["constant"] is None or isinstance(data["constant"], str | int | float)
        ):
            return Constant(data["constant"])
        if "slot" in data and data.get("type", "string") in get_args(SlotType):
            return Slot(str(data["slot"]), str(data.get("text", "")), data.get("type", "string"))
        if "result" in data:
            path = data.get("path", [])
            if isinstance(path, list) and all(isinstance(key, str | int) for key in path):
                return Result(str(data["result"]), tuple(path))
    raise BadInput(
        f"this is no argument: {data!r}",
        where="skeleton",
        hint='{"constant": v}, {"slot": name} or {"result": step}',
    )


def _pairs(data: Mapping[str, Any]) -> tuple[tuple[str, Argument], ...]:
    if not isinstance(data, Mapping):
        raise BadInput("arguments must be an object", where="skeleton")
    return tuple((str(key), argument_of(one)) for key, one in data.items())


def arguments_of(steps: Sequence[CallStep]) -> Iterator[Argument]:
    """Every argument of the steps, in order."""
    for step in steps:
        if step.over is not None:
            yield step.over
        yield from (one for _, one in step.arguments)
        yield from (one for _, one in step.where)
        if step.value is not None:
            yield step.value


def slots_of(steps: Sequence[CallStep]) -> tuple[Slot, ...]:
    """The distinct slots of the steps, in order of first use."""
    return tuple(dict.fromkeys(one for one in arguments_of(steps) if isinstance(one, Slot)))


def constants_of(steps: Sequence[CallStep]) -> tuple[Constant, ...]:
    """The distinct constants of the steps, in order of first use."""
    return tuple(dict.fromkeys(one for one in arguments_of(steps) if isinstance(one, Constant)))


def functions_of(steps: Sequence[CallStep]) -> tuple[str, ...]:
    """The distinct environment functions of the steps, "app.function", in order of first use."""
    return tuple(dict.fromkeys(step.function for step in steps if step.function))


def checked(steps: Sequence[CallStep]) -> tuple[CallStep, ...]:
    """The steps, if every one is complete and uses only results of earlier ones.

    Raises:
        BadInput: a missing field, a bad name, two steps or slots of one name, or a result used too early.
    """
    known: set[str] = set()
    for number, step in enumerate(steps, 1):
        place = f"skeleton, step {number} ({step.op})"
        _complete(step, place)
        inner = {ENTRY} if step.op == "each" else set()
        for one in arguments_of([step]):
            if isinstance(one, Result) and one.step not in known | inner:
                raise BadInput(f"{one.step!r} is no earlier result", where=place)
        if step.name:
            # The loop over pages that the codifier writes has these two variables beside the result.
            own = {step.name, f"{step.name}_page", f"{step.name}_part"} if step.op == "pages" else {step.name}
            if own & known or not _may_name(step.name):
                raise BadInput(f"{step.name!r} cannot name this result", where=place)
            known |= own
    names: dict[str, Slot] = {}
    for slot in slots_of(steps):
        if names.setdefault(slot.name, slot) != slot or slot.name in known or not _may_name(slot.name):
            raise BadInput(f"{slot.name!r} cannot name this slot", where="skeleton")
    return tuple(steps)


def _may_name(name: str) -> bool:
    """Whether a name may stand in the source of a tool without hiding what it needs."""
    return bool(_NAME.match(name)) and name not in _RESERVED and not keyword.iskeyword(name)


def _complete(step: CallStep, place: str) -> None:
    calls = step.op in {"call", "pages", "each"}
    needs = {
        "function": calls,
        "over": step.op in {"find", "keep", "each"},
        "where": step.op in {"find", "keep"},
        "page": step.op == "pages",
        "name": step.op in {"pages", "find", "keep"},
        "value": step.op == "return",
    }
    for field, needed in needs.items():
        if needed and not getattr(step, field):
            raise BadInput(f"the step has no {field!r}", where=place)
    kept = any(map(keyword.iskeyword, step.function.split(".")))
    if calls and (kept or not _FUNCTION.match(step.function)):
        raise BadInput(f"{step.function!r} is no 'app.function'", where=place)
