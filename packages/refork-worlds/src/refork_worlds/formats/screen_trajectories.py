"""What logs of screens share: a first screen, actions with reasoning apart, screens, a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, final

from refork.plain import content_hash
from refork.tree.node import NewNode, node_id
from refork.types import Json, Message


@final
@dataclass(frozen=True, slots=True)
class ScreenStep:
    """One action, the agent's reasons for it, and the screen after it (None: not recorded)."""

    action: str
    reasons: str
    screen: str | None


def drafts(
    *,
    source: str,
    domain: Literal["phone", "desktop"],
    goal: str,
    first: str,
    turns: Sequence[ScreenStep],
    reward: float | None,
    more: Json,
) -> Iterator[NewNode]:
    """The nodes of one episode; the same episode always has the same keys.

    The agent's reasons stand in ``reasoning_content``, so that an environment's trajectory leaves them out.
    """
    name = content_hash([goal, first, [(one.action, one.reasons, one.screen) for one in turns], more])
    brief = {"task_description": goal} | ({"initial_state": first} if first else {})
    extra: Json = {"source": source, "domain": domain, "brief": brief}
    message: Message = {"role": "user", "content": "\n".join(part for part in (goal, first) if part)}
    root = NewNode(
        kind="task",
        key=f"{source}/{name}",
        text=str(message["content"]),
        message=message,
        origin="real",
        extra=extra | ({"line": more} if more else {}),
    )
    yield root
    at = node_id(None, None, "task", str(root.key))
    for number, turn in enumerate(turns):
        said: Message = {"role": "assistant", "content": turn.action}
        if turn.reasons:
            said["reasoning_content"] = turn.reasons
        acted = NewNode(
            kind="action", parent=at, key=f"{source}/{number}a", text=turn.action, message=said, finish="stop"
        )
        yield acted
        at = node_id(at, None, "action", str(acted.key))
        if turn.screen is None:
            continue
        shown: Message = {"role": "user", "content": turn.screen}
        key = f"{source}/{number}o"
        yield NewNode(kind="observation", parent=at, key=key, text=turn.screen, message=shown, origin="real")
        at = node_id(at, None, "observation", key)
    if reward is not None:
        text = "success" if reward >= 1.0 else "failure"
        yield NewNode(
            kind="verdict",
            parent=at,
            key=f"{source}/v",
            text=text,
            extra={"reward": reward, "reason": source},
        )
