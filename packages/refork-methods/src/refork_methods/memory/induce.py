"""A run's calls as a call skeleton, by where every argument came from. Pure, and without a model.

An argument of the query becomes a slot, one that an earlier call returned becomes that result, and what
every task is told stays a constant. Where a value came from nowhere, there is no skeleton: nothing is
guessed. Ours; arXiv:2606.24151 leaves the plan to a language model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, TypeAlias

from refork.errors import BadInput
from refork.types import Json
from refork_methods.memory.queries import QueryToken, place_of, tokens_of
from refork_methods.memory.runtime import PREFIX
from refork_methods.memory.skeleton import (
    ENTRY,
    Argument,
    CallStep,
    Constant,
    Result,
    Slot,
    SlotType,
    arguments_of,
    checked,
)
from refork_methods.memory.trajectory import RunStep, RunTrajectory, leaves

Path: TypeAlias = tuple[str | int, ...]
_READS = ("get", "list", "show", "search", "find", "read", "login", "count", "lookup", "view", "fetch")
_PAGE = ("page", "page_index", "page_number")


class _Unknown(Exception):
    """A value came from nowhere."""


def only_reads(function: str) -> bool:
    """Whether a function's name says that it changes nothing; a catalogue that knows is better."""
    return function.rpartition(".")[2].lower().startswith(_READS)


@dataclass(slots=True)
class _Call:
    """One call, or several that are one: pages of a list, or one call per entry."""

    function: str
    arguments: Json
    result: Any
    page: str = ""
    first: int = 0
    items: str = ""
    many: list[Json] = field(default_factory=list)


@dataclass(slots=True)
class _PartialSkeleton:
    """The skeleton as far as it is built."""

    tokens: tuple[QueryToken, ...]
    context: str
    steps: list[CallStep] = field(default_factory=list)
    results: list[tuple[str, Any]] = field(default_factory=list)
    slots: dict[tuple[str, SlotType], Slot] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    def name(self, wanted: str) -> str:
        """A fresh name."""
        stem = re.sub(r"\W+", "_", wanted).strip("_").lower() or "value"
        fresh, number = stem, 1
        while not _usable(fresh) or fresh in self.names:
            number += 1
            fresh = f"{stem}_{number}"
        self.names |= {fresh}
        return fresh

    def slot(self, wanted: str, value: Any) -> Slot | None:
        """The slot of a value that stands in the query; None where it does not."""
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            return None
        # All digits: a query says an amount whole, and six of them would not be found in it.
        text = value if isinstance(value, str) else repr(int(value) if value == int(value) else value)
        place = place_of(text, self.tokens) if text.strip() else None
        if place is None:
            return None
        run = self.tokens[slice(*place)]
        if isinstance(value, str) and " ".join(token.text for token in run) != value:
            return None
        kind = _type(value, run)
        if (text, kind) not in self.slots:
            self.slots[text, kind] = Slot(self.name(wanted), text, kind)
        return self.slots[text, kind]


def _usable(name: str) -> bool:
    try:
        checked([CallStep("call", name, "a.b")])
    except BadInput:
        return False
    return True


def _type(value: str | int | float, run: Sequence[QueryToken]) -> SlotType:
    if isinstance(value, str):
        return "date" if len(run) == 1 and run[0].kind == "date" else "string"
    return "integer" if isinstance(value, int) else "number"


def skeleton_of(run: RunTrajectory, reads: Callable[[str], bool] = only_reads) -> tuple[CallStep, ...]:
    """The skeleton of a run's successful calls; empty where a value came from nowhere or nothing was done.

    ``reads`` says of a function that it changes nothing; such calls stay only where their result is used.
    """
    draft = _PartialSkeleton(tokens_of(run.query), run.context)
    try:
        for call in _folded([step for step in run.steps if step.function and not step.failed], reads):
            _add(draft, call, reads)
        answer = _answer(draft, run)
    except _Unknown:
        return ()
    if answer is not None:
        draft.steps.append(CallStep("return", value=answer))
    kept = _used(draft.steps, reads)
    return checked(kept) if any(step.function for step in kept) else ()


def _folded(steps: Sequence[RunStep], reads: Callable[[str], bool]) -> list[_Call]:
    """Calls with pages made one, equal reads done once, and calls per entry gathered."""
    calls: list[_Call] = []
    for function, group in groupby(steps, key=lambda step: step.function):
        same = list(group)
        page = next((key for key in _PAGE if key in same[0].arguments or _tells(same[0].result, key)), "")
        if page and reads(function):
            calls += _pages(function, same, page)
        elif len(same) > 1 and not reads(function) and _vary(same) is not None:
            calls.append(_Call(function, same[0].arguments, None, many=[step.arguments for step in same]))
        else:
            calls += [_Call(function, step.arguments, step.result) for step in same]
    return calls


def _tells(result: Any, key: str) -> bool:
    return isinstance(result, Mapping) and isinstance(result.get(key), int)


def _pages(function: str, steps: Sequence[RunStep], page: str) -> list[_Call]:
    """One call for each set of other arguments, the entries of its pages together."""
    found: dict[str, _Call] = {}
    for step in steps:
        others = {key: one for key, one in step.arguments.items() if key != page}
        told: Any = step.result.get(page, 0) if isinstance(step.result, Mapping) else 0
        at = step.arguments.get(page, told)
        if not isinstance(at, int):
            raise _Unknown(f"{function} was called with the page {at!r}, which is no number")
        items, entries = _entries(step.result)
        # Arguments may hold lists and objects, which cannot be hashed: their repr is the key.
        call = found.setdefault(
            repr(sorted(others.items(), key=str)), _Call(function, others, [], page, at, items)
        )
        call.first = min(call.first, at)
        call.items = call.items or items
        call.result += entries
    return list(found.values())


def _entries(result: Any) -> tuple[str, list[Any]]:
    """The list of a page and its key: the page itself, or the one list in it."""
    if isinstance(result, list):
        return "", result
    if isinstance(result, Mapping):
        lists = [(str(key), one) for key, one in result.items() if isinstance(one, list)]
        if len(lists) == 1:
            return lists[0]
    return "", []


def _vary(steps: Sequence[RunStep]) -> str | None:
    """The one argument in which calls differ; None where there is none, several, or one that some lack."""
    keys = set(steps[0].arguments)
    if any(set(step.arguments) != keys for step in steps):
        return None
    varying = [key for key in sorted(keys) if len({repr(step.arguments[key]) for step in steps}) > 1]
    return varying[0] if len(varying) == 1 else None


def _add(draft: _PartialSkeleton, call: _Call, reads: Callable[[str], bool]) -> None:
    if call.many:
        _add_each(draft, call)
        return
    arguments = tuple((key, _source(draft, key, value)) for key, value in call.arguments.items())
    known = next((s for s in draft.steps if s.function == call.function and s.arguments == arguments), None)
    if known is not None and reads(call.function):
        draft.results.append((known.name, call.result))
        return
    name = draft.name(call.function.rpartition(".")[2])
    if call.page:
        step = CallStep(
            "pages", name, call.function, arguments, page=call.page, first=call.first, items=call.items
        )
    else:
        step = CallStep("call", name, call.function, arguments)
    draft.steps.append(step)
    draft.results.append((name, call.result))


def _source(draft: _PartialSkeleton, key: str, value: Any) -> Argument:
    """Where a value came from. Raises _Unknown."""
    if isinstance(value, str) and value.startswith(PREFIX):
        return Constant(value)
    # The query comes before results: what the task says is what the next task says otherwise.
    slot = draft.slot(key, value)
    if slot is not None:
        return slot
    if value is None or isinstance(value, bool):
        return Constant(value)
    if not isinstance(value, str | int | float):
        raise _Unknown
    places = [(name, path) for name, result in reversed(draft.results) for path in _paths(result, value)]
    for name, path in sorted(places, key=lambda one: _unlike(one[1], key)):
        found = _reached(draft, name, path)
        if found is not None:
            return found
    # A value that a result held, but where it cannot be found again, is no constant: it was this run's.
    if not places and (
        _stands(draft.context, value) or (isinstance(value, str) and not re.search(r"\d", value))
    ):
        return Constant(value)
    raise _Unknown


def _unlike(path: Path, key: str) -> int:
    """0 where the last key of a path is named as the argument or ends it, else 1."""
    last = next((str(one) for one in reversed(path) if isinstance(one, str)), "")
    return 0 if last and (key.endswith(last) or last.endswith(key)) else 1


def _stands(context: str, value: Any) -> bool:
    return re.search(rf"(?<!\w){re.escape(str(value))}(?!\w)", context) is not None


def _paths(value: Any, wanted: Any, at: Path = ()) -> Iterator[Path]:
    """Every path to a leaf that is the wanted value, of the same type."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _paths(inner, wanted, (*at, key))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _paths(inner, wanted, (*at, place))
    # The type too: True, 1 and 1.0 are equal in Python.
    elif type(value) is type(wanted) and value == wanted:
        yield at


def _reached(draft: _PartialSkeleton, name: str, path: Path) -> Result | None:
    """The result at a path; inside a list it must be findable by what the query or a result says."""
    place = next((at for at, key in enumerate(path) if isinstance(key, int)), None)
    if place is None:
        return Result(name, path)
    rest = path[place + 1 :]
    if any(isinstance(key, int) for key in rest):
        return None
    entries = _at(next(r for n, r in reversed(draft.results) if n == name and _has(r, path)), path[:place])
    entry = entries[path[place]]
    where = _where(draft, entry)
    if not where:
        return None
    wanted = {key: entry[key] for key, _ in where}
    first = next(
        one for one in entries if isinstance(one, Mapping) and all(one.get(k) == v for k, v in wanted.items())
    )
    # `find` takes the first entry that has these fields, so it must be this one and not one like it.
    if first is not entry:
        return None
    step = CallStep("find", over=Result(name, path[:place]), where=where)
    for known in draft.steps:
        if known.op == "find" and (known.over, known.where) == (step.over, step.where):
            return Result(known.name, rest)
    step = CallStep("find", draft.name(f"{name}_found"), over=step.over, where=where)
    draft.steps.append(step)
    draft.results.append((step.name, entry))
    return Result(step.name, rest)


def _where(draft: _PartialSkeleton, entry: Any) -> tuple[tuple[str, Argument], ...]:
    """The fields of an entry that the query tells."""
    if not isinstance(entry, Mapping):
        return ()
    pairs = [(str(key), draft.slot(str(key), value)) for key, value in entry.items()]
    return tuple((key, slot) for key, slot in pairs if slot is not None)


def _has(result: Any, path: Path) -> bool:
    try:
        _at(result, path)
    except (KeyError, IndexError, TypeError):
        return False
    return True


def _at(result: Any, path: Path) -> Any:
    for key in path:
        result = result[key]
    return result


def _add_each(draft: _PartialSkeleton, call: _Call) -> None:
    """One call per entry of a list: all the entries with a field of the query, and no other."""
    key = next(k for k in call.many[0] if len({repr(one[k]) for one in call.many}) > 1)
    values = [one[key] for one in call.many]
    for name, result in reversed(draft.results):
        found = _field_list(draft, name, result, key, values)
        if found is not None:
            over, last = found
            arguments = tuple(
                (k, Result(ENTRY, (last,)) if k == key else _source(draft, k, v))
                for k, v in call.many[0].items()
            )
            draft.steps.append(CallStep("each", "", call.function, arguments, over=over))
            return
    raise _Unknown


def _field_list(
    draft: _PartialSkeleton, name: str, result: Any, key: str, values: Sequence[Any]
) -> tuple[Result, str] | None:
    """The list whose entries hold exactly the values under one field, kept by what the query tells."""
    for path, entries in _lists(result):
        fields = {key for entry in entries for key in entry}
        holding = [one for one in fields if all(any(e.get(one) == v for e in entries) for v in values)]
        for last in sorted(holding, key=lambda one: (_unlike((one,), key), one)):
            mine = [entry for entry in entries if entry.get(last) in values]
            where = _where(draft, {k: v for k, v in mine[0].items() if all(e.get(k) == v for e in mine)})
            told = {k: mine[0][k] for k, _ in where}
            if where and [e for e in entries if all(e.get(k) == v for k, v in told.items())] == mine:
                step = CallStep("keep", draft.name(f"{name}_kept"), over=Result(name, path), where=where)
                draft.steps.append(step)
                draft.results.append((step.name, mine))
                return Result(step.name), last
            if len(mine) == len(entries):
                return Result(name, path), last
    return None


def _lists(value: Any, at: Path = ()) -> Iterator[tuple[Path, list[Any]]]:
    if isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
        yield at, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _lists(inner, (*at, key))


def _answer(draft: _PartialSkeleton, run: RunTrajectory) -> Argument | None:
    """What the last turn says, where a result holds just that."""
    last = run.steps[-1] if run.steps else None
    said = None if last is None or last.function else last.arguments.get("answer")
    if said is None:
        return None
    for _, result in reversed(draft.results):
        for value in dict.fromkeys(leaves(result)):
            if str(value) == str(said):
                return _source(draft, "answer", value)
    raise _Unknown


def _used(steps: Sequence[CallStep], reads: Callable[[str], bool]) -> list[CallStep]:
    """The steps without those that only read and whose result nobody uses."""
    kept: list[CallStep] = []
    needed: set[str] = set()
    # Backwards: a step that only reads is needed if one after it is kept and uses its result.
    for step in reversed(steps):
        acts = step.op == "return" or (step.op in {"call", "each"} and not reads(step.function))
        if acts or step.name in needed:
            kept.append(step)
            needed |= {one.step for one in arguments_of([step]) if isinstance(one, Result)}
    return kept[::-1]
