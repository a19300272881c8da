"""Traces of any agent as steps: what was seen, what was done, and how it ended."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

from refork.errors import BadInput
from refork.types import Json
from refork_methods.recovery.surgery import Erased, erase_loops


@final
@dataclass(frozen=True, slots=True)
class Step:
    """One decision.

    ``state`` is the text of what was seen, ``action`` the text of what was done; ``recorded`` the state key
    that the record holds, ``label`` whether the record marks the step as a way back (None: it does not say).
    ``observed`` and ``actions`` are the pieces of the source that the two came from.
    """

    state: str
    action: str
    recorded: str | None = None
    label: bool | None = None
    observed: tuple[Any, ...] = ()
    actions: tuple[Any, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class Trace:
    """One run: its steps, what was seen after the last of them (None: not recorded), and its outcome.

    ``name`` says where it stands; ``rest`` is what else the source holds about the whole run. ``changed``:
    steps were taken out since it was read.
    """

    name: str
    steps: tuple[Step, ...]
    end: Step | None
    outcome: float
    rest: Json = field(default_factory=dict)
    changed: bool = False


def label_of(marks: Iterable[Any]) -> bool | None:
    """What the pieces of one step are marked as; None where no mark is true or false."""
    known = [mark for mark in marks if isinstance(mark, bool)]
    return any(known) if known else None


#: From a step (the end of a trace is one too) to the state it is in; equal keys are one state. None, where
#: nothing was seen (a tool that answers with nothing), is never a state that was met before.
StateKey = Callable[[Step], Hashable]


def exact_key(step: Step) -> Hashable:
    """The text as it stands."""
    return step.state if step.state.strip() else None


def normalised_key(step: Step) -> Hashable:
    """The text without regard to case and white space."""
    return " ".join(step.state.casefold().split()) or None


def masked_key(step: Step) -> Hashable:
    """The normalised text with every number read as the same."""
    seen = normalised_key(step)
    return None if seen is None else re.sub(r"\d+", "#", str(seen))


def recorded_key(step: Step) -> Hashable:
    """The state key that the record holds.

    Raises:
        BadInput: it holds none.
    """
    if step.recorded is None:
        raise BadInput(
            "this trace records no state keys",
            where=step.state[:40],
            hint="use the key normalised, or regex:PATTERN",
        )
    return step.recorded


def pattern_key(pattern: str) -> StateKey:
    """The first group of a pattern in the text (the whole match where it has none).

    Raises:
        BadInput: not a pattern; and, when used, a text in which nothing matches.
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise BadInput(f"{pattern!r} is not a pattern: {error}", where="state key") from error

    def key(step: Step) -> Hashable:
        found = compiled.search(step.state)
        if found is None:
            raise BadInput(
                f"the pattern {pattern!r} finds no state in {step.state[:60]!r}", where="state key"
            )
        return str(found.group(1) if compiled.groups else found.group()).strip()

    return key


_KEYS: dict[str, StateKey] = {
    "exact": exact_key,
    "normalised": normalised_key,
    "masked": masked_key,
    "recorded": recorded_key,
}


def state_key(name: str) -> StateKey:
    """The key function of a name: exact, normalised, masked, recorded or ``regex:PATTERN``.

    Raises:
        BadInput: an unknown name.
    """
    kind, colon, pattern = name.partition(":")
    if kind == "regex" and colon:
        return pattern_key(pattern)
    if name not in _KEYS:
        raise BadInput(f"unknown state key {name!r}", hint="keys: " + ", ".join([*_KEYS, "regex:PATTERN"]))
    return _KEYS[name]


def keys_of(trace: Trace, key: StateKey) -> list[Hashable]:
    """The state of every step, and of the end where it is recorded."""
    visits = [*trace.steps, trace.end] if trace.end is not None else [*trace.steps]
    return [key(step) for step in visits]


def erased(trace: Trace, key: StateKey) -> Erased:
    """The excursions of a trace."""
    return erase_loops(keys_of(trace, key))


def shorten(trace: Trace, key: StateKey) -> Trace:
    """A trace without its excursions: at each state what was seen first and done last.

    This is what "cleaning" worked solutions does. No visit of the result was arrived at by going back, so a
    student of it is never taught to recover.
    """
    found = erased(trace, key)
    visits = [*trace.steps, trace.end] if trace.end is not None else [*trace.steps]
    if len(found.first) == len(visits):
        return trace
    pairs = list(zip(found.first.tolist(), found.last.tolist(), strict=True))
    if trace.end is not None:
        # The last state is the end, at which nothing was done.
        pairs.pop()
    steps = [
        replace(
            visits[first], action=visits[last].action, actions=visits[last].actions, label=visits[last].label
        )
        for first, last in pairs
    ]
    return replace(trace, steps=tuple(steps), changed=True)


def successful(traces: Sequence[Trace], threshold: float = 1.0) -> list[Trace]:
    """The traces whose outcome is at least ``threshold``."""
    return [trace for trace in traces if trace.outcome >= threshold]
