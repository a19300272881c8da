"""Tasks as roots of the tree."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict

from refork.errors import BadInput
from refork.policies.base import Policy
from refork.tree.node import NewNode, Point
from refork.tree.tree import Tree
from refork.types import Message, token_array
from refork.worlds.base import Task, World


def opening(prompt: str, first: str) -> Message:
    """The first message of a task: what the policy is told, then what it sees before it acts."""
    return {"role": "user", "content": "\n".join(part for part in (prompt, first) if part)}


def openings(task: Task, first: str) -> list[Message]:
    """All messages a task begins with: ``data["messages"]`` where a session is behind it, else its prompt."""
    session = task.data.get("messages")
    if not session:
        return [opening(task.prompt, first)]
    shown = [{"role": "user", "content": first}] if first else []
    return [*(dict(message) for message in session), *shown]


def plant(tree: Tree, policy: Policy, world: World, tasks: Sequence[Task]) -> list[Point]:
    """Points from which rollouts of tasks begin; a task already on the tree is found, not doubled.

    The same task read by another tokenizer is another root, for its token ids are others.
    """
    new_nodes = []
    card = policy.card
    exact = card.can("tokens")
    for task in tasks:
        episode = world.start(task, 0)
        first = episode.first
        episode.close()
        messages = openings(task, first.text)
        rendered = policy.render([], token_array([]), messages) if exact else None
        new_nodes.append(
            NewNode(
                kind="task",
                key=f"{world.name}/{world.version}/{task.id}/{(card.tokenizer or 'chat')[:16]}",
                text="\n".join(str(m.get("content") or "") for m in messages),
                tokens=rendered.tokens if rendered else None,
                message=messages[0] if len(messages) == 1 else None,
                state_key=first.state_key,
                origin="real",
                extra={"world": world.name, "task": asdict(task)}
                | ({"messages": messages} if len(messages) > 1 else {})
                | ({"tokenizer": card.tokenizer} if card.tokenizer else {}),
            )
        )
    return [tree.at(node) for node in tree.append(new_nodes)]


def plant_prompt(tree: Tree, policy: Policy, prompt: str | Sequence[Message]) -> Point:
    """A point to run on from, made of a text or of chat messages; the same prompt is one root."""
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    if not messages:
        raise BadInput("the prompt is empty: there is nothing to run on from")
    card = policy.card
    exact = card.can("tokens")
    rendered = policy.render([], token_array([]), messages) if exact else None
    body = json.dumps([messages, card.tokenizer], sort_keys=True)
    new_node = NewNode(
        kind="task",
        key=f"prompt/{hashlib.blake2b(body.encode(), digest_size=16).hexdigest()}",
        text="\n".join(str(m.get("content") or "") for m in messages),
        tokens=rendered.tokens if rendered else None,
        message=messages[0] if len(messages) == 1 else None,
        extra=({"messages": messages} if len(messages) > 1 else {})
        | ({"tokenizer": card.tokenizer} if card.tokenizer else {}),
    )
    return tree.at(tree.append([new_node])[0])
