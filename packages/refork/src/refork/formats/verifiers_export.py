"""Writes trajectories for verifiers: v1 traces, and rows of the older results where such were read.

A trace that was read is put together again, branches, token ids and all. Any other trajectory becomes a trace
of one branch: a node for each message, with the token ids that it added and the mask of what was sampled.

Source: ``v1/trace.py`` and ``v1/graph.py`` of PrimeIntellect-ai/verifiers 0.4, ``save_utils.py`` of 0.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any, final

import numpy as np

from refork.formats.chat_export import messages_of, rest_of, written
from refork.formats.recorded import leaf_trajectories, recorded, scores_of
from refork.formats.verifiers_graph import PIECES, NodeRun, runs_of
from refork.tree.node import Node, Step, Trajectory, node_id
from refork.tree.records import Record
from refork.tree.turn import ContextStep, Turn, parts_of
from refork.types import Json, Message

if TYPE_CHECKING:
    from refork.tree.tree import Tree


@final
class VerifiersWriter:
    """Writes verifiers' JSON lines."""

    name = "verifiers"

    def write(self, records: Iterable[Record], out: IO[str]) -> int:
        """Write a line for each rollout; how many."""
        with recorded(records) as tree:
            return written(_lines(tree), out)


def _lines(tree: Tree) -> Iterator[Json]:
    for trajectory in leaf_trajectories(tree):
        rest = rest_of(trajectory, "verifiers")
        if rest is not None and isinstance(rest.get("nodes"), list):
            yield _trace(tree, trajectory, rest)
        elif rest is not None and "branch" not in trajectory.leaf.extra:
            yield _row(trajectory, rest)
        elif rest is None and (made := _new(tree, trajectory))["nodes"]:
            yield made


def _row(trajectory: Trajectory, rest: Json) -> Json:
    """A row of prompt and completion."""
    pairs = list(messages_of(trajectory))
    first = next((at for at, (_, part) in enumerate(pairs) if isinstance(part, Turn)), len(pairs))
    tools = trajectory.root.extra.get("tools")
    body: Json = {"prompt": [m for m, _ in pairs[:first]], "completion": [m for m, _ in pairs[first:]]}
    return body | rest | ({"tool_defs": tools} if tools else {})


def _trace(tree: Tree, trajectory: Trajectory, rest: Json) -> Json:
    """The trace that a trajectory is the first branch of."""
    nodes: list[Json] = [dict(form) for form in rest.pop("nodes")]
    for part in runs_of(nodes, "trace"):
        node = tree.node(nodes[part.members[0]].pop("at"))
        messages = list(node.extra.get("messages") or ([node.message] if node.message else []))
        if part.sampled:
            messages = [one] if (one := _read_turn(tree, node).message) else []
        for number, message in zip(part.members, messages, strict=False):
            nodes[number]["message"] = _message(message) | nodes[number].pop("more", {})
        if node.tokens is not None and part.sampled:
            number = part.members[0]
            turn = _read_turn(tree, node)
            first = turn.steps[0].node
            before, after = _scaffold(tree, first.parent), _scaffold(tree, _after(node))
            nodes[number] |= _turn(turn, nodes[number].pop("before", before), after)
        elif node.tokens is not None:
            _shared_out(nodes, part, _ids(node))
    return rest | {"nodes": nodes} | _tools(trajectory)


def _read_turn(tree: Tree, node: Node) -> Turn:
    """The turn that ends with a node of a trace: its own, and those of its pieces."""
    steps = [Step(node, None)]
    while (parent := steps[0].node.parent) is not None:
        above = tree.node(parent)
        if not above.key.startswith(f"{node.key}/piece/"):
            break
        steps.insert(0, Step(above, None))
    return Turn(tuple(steps))


def _after(node: Node) -> str:
    return node_id(node.id, None, "observation", f"{node.key}t")


def _scaffold(tree: Tree, id_: str | None) -> list[int]:
    """Token ids of the template that stand in a node of their own; none where it is no such node."""
    if id_ is None or not tree.has(id_):
        return []
    node = tree.node(id_)
    return _ids(node) if node.extra.get("scaffold") else []


def _shared_out(nodes: list[Json], part: NodeRun, ids: list[int]) -> None:
    """Give a part's token ids to its members; what is left stood before each answer to it."""
    at = 0
    for number in part.members:
        count = int(nodes[number].pop("tokens", 0))
        nodes[number] |= {"token_ids": ids[at : at + count], "mask": [False] * count}
        at += count
    if at < len(ids):
        for child in part.children:
            nodes[child.members[0]]["before"] = ids[at:]


def _message(message: Message) -> Message:
    """A message as v1 writes it: a call's name and arguments beside its id."""
    calls = message.get("tool_calls")
    if not calls:
        return message
    flat = [{"id": c["id"]} if "id" in c else {} for c in calls]
    return message | {"tool_calls": [one | c.get("function", {}) for one, c in zip(flat, calls, strict=True)]}


def _ids(node: Node) -> list[int]:
    return [] if node.tokens is None else [int(one) for one in node.tokens]


def _new(tree: Tree, trajectory: Trajectory) -> Json:
    """A trace of a trajectory that was not read from one."""
    nodes: list[Json] = []
    pieces: Json = {}
    # Token ids of the template that stand in a node of their own go with the message after them.
    waiting: list[int] = []
    for part in parts_of(trajectory.context):
        messages = part.messages if isinstance(part, ContextStep) else [part.message] if part.message else []
        ids = None if part.tokens is None else part.tokens.tolist()
        for message in messages:
            form: Json = {
                "parent": len(nodes) - 1 if nodes else None,
                "message": _message(message),
                "sampled": isinstance(part, Turn),
            }
            nodes.append(form)
        if not messages:
            waiting += ids or []
        elif isinstance(part, Turn) and ids is not None:
            if (told := _pieces(part)) is not None:
                pieces[str(len(nodes) - 1)] = {"start": len(waiting), "pieces": told}
            nodes[-1] |= _turn(part, waiting)
            waiting = []
        elif isinstance(part, ContextStep) and ids is not None and part.exact:
            # A node of several messages has one run of tokens, which the last of them stands for.
            for number in range(len(nodes) - len(messages), len(nodes)):
                nodes[number] |= {"token_ids": [], "mask": []}
                if number < len(nodes) - 1:
                    pieces[str(number)] = {"start": 0, "pieces": [[0, 0, 0, 0]]}
            nodes[-1] |= {"token_ids": waiting + ids, "mask": [False] * (len(waiting) + len(ids))}
            waiting = []
    # A trajectory of ids alone has no message that they could go with.
    if waiting and nodes and "token_ids" in nodes[-1]:
        nodes[-1]["token_ids"] += waiting
        nodes[-1]["mask"] += [False] * len(waiting)
    scores = [one for one in scores_of(tree, trajectory.leaf) if not isinstance(one.value, np.ndarray)]
    rewards = {one.name: {"score": float(one.value), "weight": 1.0} for one in scores}
    errors = [{"type": "Error", "message": trajectory.leaf.error}] if trajectory.leaf.error else []
    model = next((step.node.policy for step in trajectory.steps if step.node.policy), None)
    data: Json = {"idx": 0, "prompt": nodes[0]["message"].get("content") if nodes else None}
    return (
        {
            "version": 1,
            "id": trajectory.leaf.id,
            "task": {"type": "Task", "data": data},
            "agent": {"config": {"model": model or "unknown"}, "name": "agent"},
            "nodes": nodes,
            "rewards": rewards,
            "errors": errors,
            "is_completed": True,
            "ok": not errors,
        }
        | ({"info": {PIECES: pieces}} if pieces else {})
        | _tools(trajectory)
    )


def _pieces(turn: Turn) -> list[list[int]] | None:
    """What a turn is made of, as tokens, characters, put there, forced; None where its policy said it all."""
    found = [
        [0 if one.tokens is None else len(one.tokens), len(one.text), int(one.given), one.forced]
        for one in turn.pieces
    ]
    return None if len(found) == 1 and not (found[0][2] or found[0][3]) else found


def _turn(turn: Turn, before: list[int], after: Sequence[int] = ()) -> Json:
    """Token ids of a turn, between those of the template, and which of them its policy chose."""
    ids, said = turn.tokens, ~turn.given
    values = turn.values("logprobs")
    made: Json = {
        "token_ids": [*before, *([] if ids is None else ids.tolist()), *after],
        "mask": [False] * len(before) + said.tolist() + [False] * len(after),
    }
    known = values is not None and not np.isnan(values[said]).any()
    return made | ({"logprobs": values[said].tolist()} if values is not None and known else {})


def _tools(trajectory: Trajectory) -> Json:
    tools: Any = trajectory.root.extra.get("tools")
    return {"tools": tools} if tools else {}
