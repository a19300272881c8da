"""Whether another run of a plan's kind made the calls that the plan makes. Pure, and without a model.

A plan is induced from one run, in which a value of the query may equal an earlier result by chance, or a
detour may have gone well. Another run that had the plan's kind of query shows it: the plan is gone through
step by step, with the answers that this run recorded. Ours; arXiv:2606.24151 looks at no run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from refork_methods.memory.item import MemoryItem
from refork_methods.memory.queries import best_match
from refork_methods.memory.skeleton import ENTRY, Argument, CallStep, Constant, Slot, slots_of
from refork_methods.memory.trajectory import RunStep, RunTrajectory

#: same: the run's acts are just the plan's. other: the plan does what the run did not, or finds nothing where
#: it looks. open: the run did not record what the plan reads, or did more than the plan.
Verdict: TypeAlias = Literal["same", "other", "open"]


@dataclass(frozen=True, slots=True)
class Agreement:
    """How a plan and a run agree, and where they part ("" where they do not)."""

    verdict: Verdict
    words: str = ""


class _Parted(Exception):
    """Where plan and run part."""

    def __init__(self, verdict: Verdict, words: str) -> None:
        super().__init__(words)
        self.agreement = Agreement(verdict, words)


def agreement(plan: MemoryItem, run: RunTrajectory, reads: Callable[[str], bool]) -> Agreement | None:
    """The plan gone through with the answers of a run; None where that says nothing of the plan.

    That is where the plan has no calls, the query does not fit, or the run called a tool, whose own calls a
    run does not record.

    ``reads`` says of a function that it changes nothing: only what changes something must agree.
    """
    slots = slots_of(plan.skeleton)
    found = best_match(plan.query, run.query, slots)
    if not plan.skeleton or not found.fits or found.stray:
        return None
    calls = [step for step in run.steps if step.function and not step.failed]
    if any(step.function.startswith("tools.") for step in calls):
        return None
    try:
        bound = {slot.name: _typed(found.text(slot.name), slot) for slot in slots}
        trace = _Trace(calls, reads, bound)
        for step in plan.skeleton:
            trace.go(step, run)
    except _Parted as parted:
        return parted.agreement
    more = [step for step in calls if not reads(step.function) and step.id not in trace.done]
    # A plan for one of the query's sentences leaves the others to somebody else.
    if more and found.query == run.query:
        return Agreement("open", f"the run did {more[0].function} too")
    if not trace.done and not any(step.op == "return" for step in plan.skeleton):
        return Agreement("open", "there was nothing to do")
    return Agreement("same")


def _typed(text: str, slot: Slot) -> Any:
    if slot.type in ("string", "date"):
        return text
    try:
        return float(text) if slot.type == "number" or "." in text else int(text)
    except ValueError:
        raise _Parted("other", f"{text!r} is no {slot.type}") from None


@dataclass(slots=True)
class _Trace:
    """How far a plan has been gone through. A step may have several results: a repeated read, a new token."""

    calls: Sequence[RunStep]
    reads: Callable[[str], bool]
    bound: Mapping[str, Any]
    results: dict[str, list[Any]] = field(default_factory=dict)
    cut: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)

    def go(self, step: CallStep, run: RunTrajectory) -> None:
        """One step. Raises _Parted."""
        match step.op:
            case "call":
                self.results[step.name] = self._called(step)
            case "pages":
                self.results[step.name] = [self._pages(step)]
            case "find" | "keep":
                self.results[step.name] = self._looked(step)
            case "each":
                lists = self._values(step.over) if step.over is not None else []
                made = [self._called(step, entry)[0] for entry in next(iter(lists), [])]
                self.results[step.name] = [made]
            case "return":
                self._answered(step, run)

    def _values(self, one: Argument, entry: Any = None) -> list[Any]:
        """What an argument may be here."""
        if isinstance(one, Constant):
            return [one.value]
        if isinstance(one, Slot):
            return [self.bound[one.name]]
        roots = [entry] if one.step == ENTRY else self.results[one.step]
        found = [value for root in roots for value in _reached(root, one.path)]
        if not found:
            raise _Parted("other", f"{'.'.join([one.step, *map(str, one.path)])} is not there")
        return found

    def _fitting(self, step: CallStep, entry: Any = None) -> list[RunStep]:
        """The run's calls of the function with these arguments, pages aside."""
        wanted = {key: self._values(one, entry) for key, one in step.arguments}
        return [
            call
            for call in self.calls
            if call.function == step.function
            and set(call.arguments) - {step.page} == set(wanted)
            and all(any(_equal(call.arguments[key], v) for v in may) for key, may in wanted.items())
        ]

    def _called(self, step: CallStep, entry: Any = None) -> list[Any]:
        found = self._fitting(step, entry)
        if self.reads(step.function):
            if not found:
                raise _Parted("open", f"the run did not ask {step.function} this")
            return [call.result for call in found]
        # An act counts once: done twice it is another deed.
        fresh = next((call for call in found if call.id not in self.done), None)
        if fresh is None:
            raise _Parted("other", f"the run did no such {step.function}")
        self.done.add(fresh.id)
        return [fresh.result]

    def _pages(self, step: CallStep) -> list[Any]:
        found = self._fitting(step)
        if not found:
            raise _Parted("open", f"the run did not ask {step.function} this")
        pages: dict[Any, list[Any]] = {}
        ended = False
        for call in found:
            told = call.result if isinstance(call.result, Mapping) else {}
            part = told.get(step.items) if step.items else call.result
            entries = part if isinstance(part, list) else []
            at = call.arguments.get(step.page, told.get(step.page, step.first))
            pages[at] = entries
            ended = ended or not entries or told.get("last_page") == at
        if not ended:
            self.cut.add(step.name)
        return [entry for at in sorted(pages, key=repr) for entry in pages[at]]

    def _looked(self, step: CallStep) -> list[Any]:
        """The first entry that fits, or all of them, in each of the lists."""
        assert step.over is not None
        wanted = [(key, self._values(one)) for key, one in step.where]
        found: list[Any] = []
        for entries in self._values(step.over):
            fits = (
                [e for e in entries if isinstance(e, Mapping) and _has(e, wanted)]
                if isinstance(entries, list)
                else []
            )
            found += [fits] if step.op == "keep" and fits else fits[:1]
        if not found:
            # The run may not have read as far as the entry.
            verdict: Verdict = "open" if step.over.step in self.cut else "other"
            raise _Parted(verdict, f"{step.over.step} has no such entry")
        return found

    def _answered(self, step: CallStep, run: RunTrajectory) -> None:
        last = run.steps[-1] if run.steps else None
        said = None if last is None or last.function else last.arguments.get("answer")
        may = [] if step.value is None else self._values(step.value)
        if not any(str(value) == str(said) for value in may):
            raise _Parted("other", f"the run answered {said!r}")


def _has(entry: Mapping[str, Any], wanted: Sequence[tuple[str, list[Any]]]) -> bool:
    return all(key in entry and any(_equal(entry[key], v) for v in may) for key, may in wanted)


def _equal(one: Any, other: Any) -> bool:
    # True is 1 in Python.
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _reached(root: Any, path: Sequence[str | int]) -> Iterator[Any]:
    try:
        for key in path:
            root = root[key]
    except (KeyError, IndexError, TypeError):
        return
    yield root
