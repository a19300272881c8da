"""Demonstrations of a game world as chat conversations."""

from __future__ import annotations

from refork.growing.plant import opening
from refork.types import Message
from refork.worlds.expert import Demonstration


def as_conversation(demonstration: Demonstration) -> list[Message]:
    """The messages that a policy would see and say in this episode; the end's own view is never shown."""
    first, *seen = demonstration.observations
    messages = [opening(demonstration.task.prompt, first.text)]
    for action, after in zip(demonstration.actions, seen, strict=True):
        messages.append({"role": "assistant", "content": action})
        if not after.done:
            messages.append({"role": "user", "content": after.text})
    return messages
