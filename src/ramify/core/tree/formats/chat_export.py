"""Writes walks as OpenAI chat JSON lines: what the policy saw and said at the end of each walk.

A walk that was read from such a file is written as it was read; of others the messages and tools are written,
for that is what fine-tuning takes. Where a context was rewritten, the line begins there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import IO, final

from ramify.core.tree.formats.base import Record
from ramify.core.tree.formats.recorded import continues, recorded, said, shown, walks_of
from ramify.core.tree.node import Node, Step, Trajectory
from ramify.core.types import Json, Message


def messages_of(walk: Trajectory) -> Iterator[tuple[Message, Node]]:
    """The messages of a walk's last context, each with its node; a turn said in several nodes is one."""
    turns: list[list[Step]] = []
    for step in walk.context:
        before = turns[-1][-1] if turns else None
        if step.node.kind == "action" and before is not None and continues(step, before):
            turns[-1].append(step)
        else:
            turns.append([step])
    for steps in turns:
        node = steps[-1].node
        if node.kind == "action":
            message = said(steps)
            found = [] if message is None else [message]
        else:
            found = [] if node.extra.get("scaffold") else shown(steps[0])
        yield from ((message, node) for message in found)


def written(lines: Iterable[Json], out: IO[str]) -> int:
    """Write objects as JSON lines; returns how many."""
    count = 0
    for line in lines:
        out.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
        count += 1
    return count


def rest_of(walk: Trajectory, form: str) -> Json | None:
    """What a line said beside its messages, of a walk that was read from a format; None of others."""
    leaf = walk.leaf
    if not leaf.key.startswith(f"{form}/"):
        return None
    rest = leaf.extra.get("line", {})
    return dict(rest) if isinstance(rest, dict) else {}


@final
class OpenAIChatWriter:
    """Writes OpenAI chat JSON lines."""

    name = "openai-chat"

    def write(self, records: Iterable[Record], out: IO[str]) -> int:
        """Write a line for each walk; how many."""
        with recorded(records) as tree:
            return written((line for walk in walks_of(tree) if (line := _line(walk)) is not None), out)


def _line(walk: Trajectory) -> Json | None:
    messages = [message for message, _ in messages_of(walk)]
    if not messages:
        return None
    tools = next((step.node.extra["tools"] for step in walk.steps if step.node.extra.get("tools")), None)
    return {"messages": messages} | ({"tools": tools} if tools else {}) | (rest_of(walk, "chat") or {})


def turns_of(walk: Trajectory) -> list[tuple[bool, list[tuple[Message, Node]]]]:
    """Messages in runs: one for each turn of the policy, one for what was shown between two."""
    pairs = list(messages_of(walk))
    return [(kind, list(group)) for kind, group in groupby(pairs, lambda pair: pair[1].kind == "action")]
