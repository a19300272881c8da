"""What counts as going back: a state met again, an undoing tool call, a phrase of retraction, a label."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from refork.errors import BadInput
from refork_methods.recovery.traces import StateKey, Trace, erased

#: From a trace to the steps at which a way back was complete or said; write your own where none of these
#: fits.
Rule = Callable[[Trace], Sequence[int]]

LABEL: Final = "label"
#: Words with which a step is taken back. They also occur where nothing is; check a sample before trusting
#: them.
RETRACTION: Final = (
    r"\b(?:wait,|scratch that|on second thought|let me (?:go back|backtrack|start over|try (?:again|another))"
    r"|(?:that|this) (?:is|was|'s)n't right|(?:that|this) (?:is|was) (?:wrong|a mistake)"
    r"|i made (?:a mistake|an error)|going back to|revert(?:ing)? (?:my|the|that))"
)
UNDO: Final = r"\b(?:undo|revert|rollback|roll_back|git (?:checkout|reset|revert|restore|stash))\b"


def labelled(trace: Trace) -> Sequence[int]:
    """Steps that the record marks ``backtrack: true``."""
    return [i for i, step in enumerate(trace.steps) if step.label]


def event_rule(name: str, key: StateKey) -> Rule:
    """The rule of a name: revisit, label, tool, phrase, ``tool:PATTERN`` or ``phrase:PATTERN``.

    Raises:
        BadInput: an unknown rule or a bad pattern.
    """
    kind, _, pattern = name.partition(":")
    if name == "revisit":
        return lambda trace: [loop.end for loop in erased(trace, key).recoveries]
    if name == LABEL:
        return labelled
    if kind not in ("tool", "phrase"):
        raise BadInput(
            f"unknown rule {name!r}",
            hint="rules: revisit, label, tool, phrase, tool:PATTERN, phrase:PATTERN",
        )
    try:
        said = re.compile(pattern or {"tool": UNDO, "phrase": RETRACTION}[kind], re.IGNORECASE)
    except re.error as error:
        raise BadInput(f"{pattern!r} is not a pattern: {error}", where=f"rule {name}") from error
    return lambda trace: [i for i, step in enumerate(trace.steps) if said.search(step.action)]
