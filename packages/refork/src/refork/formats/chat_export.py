"""Writes trajectories as OpenAI chat JSON lines: what the policy saw and said at the end of each trajectory.

A trajectory that was read from such a file is written as it was read; of others the messages and tools are
written, for that is what fine-tuning takes. Where a context was rewritten, the line begins there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import IO, Final, final

from refork.formats.recorded import leaf_trajectories, recorded
from refork.plain import finite
from refork.tree.node import Trajectory
from refork.tree.records import Record
from refork.tree.turn import ContextStep, Part, parts_of
from refork.types import Json, Message

_plain: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def messages_of(trajectory: Trajectory) -> Iterator[tuple[Message, Part]]:
    """The messages of a trajectory's last context, each with the part that it is of."""
    for part in parts_of(trajectory.context):
        if isinstance(part, ContextStep):
            yield from ((message, part) for message in part.messages)
        elif (message := part.message) is not None:
            yield message, part


def written(lines: Iterable[Json], out: IO[str]) -> int:
    """Write objects as JSON lines; returns how many."""
    count = 0
    for line in lines:
        try:
            text = _plain(line)
        except ValueError:
            # The log-prob of a forced token that could not have been said, or an infinite score.
            text = _plain(finite(line))
        out.write(text + "\n")
        count += 1
    return count


def rest_of(trajectory: Trajectory, form: str) -> Json | None:
    """What a line said beside its messages, of a trajectory that was read from a format; None of others."""
    leaf = trajectory.leaf
    if not leaf.key.startswith(f"{form}/"):
        return None
    rest = leaf.extra.get("line", {})
    return dict(rest) if isinstance(rest, dict) else {}


@final
class OpenAIChatWriter:
    """Writes OpenAI chat JSON lines."""

    name = "openai-chat"

    def write(self, records: Iterable[Record], out: IO[str]) -> int:
        """Write a line for each trajectory; how many."""
        with recorded(records) as tree:
            return written(
                (line for trajectory in leaf_trajectories(tree) if (line := _line(trajectory)) is not None),
                out,
            )


def _line(trajectory: Trajectory) -> Json | None:
    messages = [message for message, _ in messages_of(trajectory)]
    if not messages:
        return None
    tools = next(
        (step.node.extra["tools"] for step in trajectory.steps if step.node.extra.get("tools")), None
    )
    return {"messages": messages} | ({"tools": tools} if tools else {}) | (rest_of(trajectory, "chat") or {})
