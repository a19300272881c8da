"""Workflows on the tree: query, plan, and of every step its context, its answer and what that cost.

A step is handed over to another model, so its whole context is a ``rewrite`` node; the worker's answer is the
``action`` node behind it. The trajectory to the last of them is the workflow, in order.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

from refork.policies.base import Cost
from refork.tree.node import NewNode, Node
from refork.tree.tree import Tree
from refork.types import Json
from refork_methods.route.conduct.execute import Execution, StepRun


def record(
    tree: Tree,
    query: str,
    execution: Execution,
    *,
    text: str | None = None,
    author: str | None = None,
    planning: Cost | None = None,
    draw: int = 0,
) -> Node:
    """Store a run and return the node of its last answer; the same run again is found, not doubled.

    ``text`` is the plan as it was written, ``author`` who wrote it (None: given by hand), ``planning`` what
    that cost.
    """
    written = text if text is not None else json.dumps(execution.plan.to_json())
    # Seconds differ between two runs of the same calls, and are no part of what a run is.
    said = [(step.worker, step.output, step.error) for step in execution.steps]
    mark = _digest([query, written, said, draw])
    task = NewNode(
        kind="task", key=f"conduct/{_digest(query)}", text=query,
        message={"role": "user", "content": query}, origin="real",
    )  # fmt: skip
    (asked,) = tree.append([task])
    plan = NewNode(
        kind="action", parent=asked.id, key=f"conduct/{_digest([written, author, draw])}/plan",
        text=written, message={"role": "assistant", "content": written}, policy=author, origin="real",
        cost=planning or Cost(), extra={"workflow": execution.plan.to_json()},
    )  # fmt: skip
    (under,) = tree.append([plan])
    for step in execution.steps:
        # The key has the run's mark, for two runs of one plan may differ in any answer.
        context, answer = _drafts(step, under.id, f"conduct/{mark}/{step.step}")
        (given,) = tree.append([context])
        (under,) = tree.append([replace(answer, parent=given.id)])
    return under


def _drafts(step: StepRun, parent: str, key: str) -> tuple[NewNode, NewNode]:
    messages = [dict(message) for message in step.messages]
    context = NewNode(
        kind="rewrite", parent=parent, key=f"{key}r", policy=step.worker,
        text="\n".join(str(message.get("content") or "") for message in messages),
        extra={
            "messages": messages,
            "reason": f"step {step.step} is handed over to {step.worker}",
            "shown": [one.step for one in step.earlier_steps],
        },
    )  # fmt: skip
    known = [price for price in step.prices if price is not None]
    money = sum(known) if step.prices and len(known) == len(step.prices) else None
    extra: Json = {"step": step.step, "calls": step.calls}
    if step.tools:
        extra["tools"] = [one.to_json() for one in step.tools]
    if step.inside is not None:
        extra["inside"] = step.inside
    cost = Cost(step.cost.tokens_in, step.cost.tokens_out, step.cost.seconds, money)
    answer = NewNode(
        kind="action", key=f"{key}a", text=step.output or "", policy=step.worker, origin="real",
        message=None if step.output is None else {"role": "assistant", "content": step.output},
        finish="error" if step.output is None else "stop", error=step.error, cost=cost, extra=extra,
    )  # fmt: skip
    return context, answer


def _digest(value: object) -> str:
    return hashlib.blake2b(json.dumps(value).encode(), digest_size=16).hexdigest()
