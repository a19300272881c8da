"""What counts as going back: a state met again, an undoing tool call, a phrase of retraction, a label."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from refork.errors import BadInput
from refork_methods.recovery.traces import StateKey, Trace, erased


class Event(NamedTuple):
    """One way back: the step at which it was complete or said.

    ``depth`` (states gone ahead) and ``lost`` (steps) are None where the rule cannot tell.
    """

    step: int
    rule: str
    depth: int | None = None
    lost: int | None = None


#: From a trace to its events; write your own where none of these fits.
Rule = Callable[[Trace], Sequence[Event]]

#: Words with which a step is taken back. They also occur where nothing is; check a sample before trusting
#: them.
RETRACTION: Final = (
    r"\b(?:wait,|scratch that|on second thought|let me (?:go back|backtrack|start over|try (?:again|another))"
    r"|(?:that|this) (?:is|was|'s)n't right|(?:that|this) (?:is|was) (?:wrong|a mistake)"
    r"|i made (?:a mistake|an error)|going back to|revert(?:ing)? (?:my|the|that))"
)
UNDO: Final = r"\b(?:undo|revert|rollback|roll_back|git (?:checkout|reset|revert|restore|stash))\b"


def revisit_rule(key: StateKey) -> Rule:
    """A state met again, after at least one other."""

    def rule(trace: Trace) -> Sequence[Event]:
        return [Event(e.end, "revisit", e.depth, e.lost) for e in erased(trace, key).recoveries]

    return rule


def pattern_rule(name: str, pattern: str) -> Rule:
    """A pattern in what was done, upper and lower case alike."""
    try:
        compiled = re.compile(pattern, re.IGNORECASE)
    except re.error as error:
        raise BadInput(f"{pattern!r} is not a pattern: {error}", where=f"rule {name}") from error

    def rule(trace: Trace) -> Sequence[Event]:
        return [Event(i, name) for i, step in enumerate(trace.steps) if compiled.search(step.action)]

    return rule


def label_rule(trace: Trace) -> Sequence[Event]:
    """Steps that the record marks ``backtrack: true``.

    Raises:
        BadInput: a trace without any label.
    """
    if all(step.label is None for step in trace.steps):
        raise BadInput(
            "this trace carries no backtrack labels",
            where=trace.name,
            hint='mark steps with "backtrack": true or false, or use another rule',
        )
    return [Event(i, "label") for i, step in enumerate(trace.steps) if step.label]


def event_rule(name: str, key: StateKey) -> Rule:
    """The rule of a name: revisit, label, tool, phrase, ``tool:PATTERN`` or ``phrase:PATTERN``.

    Raises:
        BadInput: an unknown rule or a bad pattern.
    """
    kind, _, pattern = name.partition(":")
    if name == "revisit":
        return revisit_rule(key)
    if name == "label":
        return label_rule
    if kind in ("tool", "phrase"):
        return pattern_rule(name, pattern or {"tool": UNDO, "phrase": RETRACTION}[kind])
    raise BadInput(
        f"unknown rule {name!r}", hint="rules: revisit, label, tool, phrase, tool:PATTERN, phrase:PATTERN"
    )
