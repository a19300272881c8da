"""Prompts with an intent and a source on a tree, their rollouts, and rollouts without thinking."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import numpy as np

from refork.errors import BadInput
from refork.forking.arm import Fork, prepare, run_jobs
from refork.forking.change import Change, Insert
from refork.growing.plant import plant_prompt
from refork.jsonl import json_objects, read_utf8
from refork.policies.base import Policy, PolicyCard, Sampling
from refork.progress import Progress, silent
from refork.sampling.noise import stream_of
from refork.tree.node import Node, Point
from refork.tree.tree import Tree
from refork.types import Json, Message
from refork_methods.stance.marker import Marker, opened_by

HARMFUL, BENIGN = "harmful", "benign"
INTENTS: Final = (HARMFUL, BENIGN)


@final
@dataclass(frozen=True, slots=True)
class Prompt:
    """A line of a prompt file: chat messages, what was meant by them, and where they are from."""

    messages: tuple[Message, ...]
    intent: str
    source: str = ""


@final
@dataclass(frozen=True, slots=True)
class Case:
    """A prompt on a tree: the point from which rollouts begin."""

    root: Point
    intent: str
    source: str = ""

    @property
    def id(self) -> str:
        """The id of the prompt's node."""
        return self.root.node.id

    @property
    def tree(self) -> Tree:
        """The tree it is on. Raises BadInput where the point was not taken from one."""
        if self.root.tree is None:
            raise BadInput("this prompt belongs to no tree; take it with tree.at(node)")
        return self.root.tree


def read_prompts(lines: Iterable[str], where: str = "prompts") -> list[Prompt]:
    """Prompts from JSON lines with ``prompt`` (text) or ``messages``, ``intent``, and perhaps ``source``.

    Raises: BadInput naming the line for anything else, and for a file without prompts.
    """
    found = [_prompt(place, row) for place, row in json_objects(lines, where)]
    if not found:
        raise BadInput("there are no prompts", where=where)
    return found


def prompt_file(name: str | None) -> list[Prompt] | None:
    """The prompts of a file; None where none is named. Raises BadInput as :func:`read_prompts`."""
    if name is None:
        return None
    if not Path(name).is_file():
        raise BadInput("there is no such file", where=name)
    return read_prompts(read_utf8(Path(name)).split("\n"), name)


def _prompt(place: str, row: Json) -> Prompt:
    text, messages = row.get("prompt"), row.get("messages")
    if isinstance(text, str) and messages is None and text:
        messages = [{"role": "user", "content": text}]
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
        raise BadInput("a prompt needs 'prompt' (text) or 'messages' (a list of chat messages)", where=place)
    intent = row.get("intent")
    if intent not in INTENTS:
        raise BadInput(f"the intent is {intent!r}", where=place, hint="harmful or benign")
    return Prompt(tuple(messages), str(intent), str(row.get("source", "")))


def plant_cases(tree: Tree, policy: Policy, prompts: Sequence[Prompt] | None) -> list[Case]:
    """The prompts as roots of the tree, found where they are there already; None: :func:`recorded_cases`."""
    if prompts is None:
        return recorded_cases(tree)
    return [Case(plant_prompt(tree, policy, p.messages), p.intent, p.source) for p in prompts]


def recorded_cases(tree: Tree, hint: str = "give the prompts with their intents (--prompts)") -> list[Case]:
    """Cases of a tree that was grown in a world whose tasks carry an ``intent`` (and ``source``).

    Raises: BadInput where no task does; ``hint`` is what helps there.
    """
    found = []
    for node in tree.tasks():
        task = node.extra.get("task")
        data = task.get("data") if isinstance(task, dict) else None
        if isinstance(data, dict) and data.get("intent") in INTENTS:
            found.append(Case(tree.at(node), str(data["intent"]), str(data.get("source", ""))))
    if not found:
        raise BadInput(
            "no task of this tree says what was meant by it",
            where=tree.uri or "tree",
            hint=hint,
        )
    return found


def rollouts(case: Case, card: PolicyCard) -> list[Node]:
    """Complete turns of a policy after a prompt, of unchanged arms only, sorted by id.

    So their order does not depend on when they were drawn.
    """
    tree = case.tree
    unchanged: dict[str | None, bool] = {None: True}
    found = []
    for node in tree.children(case.root.node):
        if node.kind != "action" or "edit" in node.extra or node.tokens is None or node.error is not None:
            continue
        # Weights tell who it was; a name may have been given to two.
        known = (card.weights, node.weights) if card.weights and node.weights else (card.name, node.policy)
        if node.policy is not None and known[0] != known[1]:
            continue
        if node.fork not in unchanged:
            unchanged[node.fork] = tree.fork_record(str(node.fork)).change is None
        if unchanged[node.fork]:
            found.append(node)
    return sorted(found, key=lambda node: node.id)


def choose(nodes: Sequence[Node], count: int, case: Case, seed: int) -> list[Node]:
    """At most ``count`` of a prompt's rollouts, by a draw that depends on the seed and the prompt alone."""
    rng = np.random.default_rng(stream_of("prefixes", seed, case.id))
    return [nodes[int(i)] for i in rng.permutation(len(nodes))[:count]]


def draw_rollouts(
    cases: Sequence[Case],
    policy: Policy,
    count: int,
    settings: Sampling,
    *,
    seed: int = 0,
    progress: Progress = silent,
) -> list[Fork]:
    """``count`` complete rollouts of every prompt; those on the tree are not drawn again."""
    jobs = [prepare(case.root, policy, count, settings=settings, seed=seed) for case in cases]
    return run_jobs(jobs, progress=progress, stage="rolling out")


def draw_answers(
    cases: Sequence[Case],
    policy: Policy,
    marker: Marker,
    count: int,
    settings: Sampling,
    *,
    seed: int = 0,
    progress: Progress = silent,
) -> list[Fork]:
    """``count`` answers to every prompt without thinking: an empty one is put in, already closed."""
    jobs = [
        prepare(
            case.root,
            policy,
            count,
            change=no_thinking(case, marker),
            settings=settings,
            seed=seed,
            room=settings.max_tokens,
        )
        for case in cases
    ]
    return run_jobs(jobs, progress=progress, stage="answering without thinking")


def no_thinking(case: Case, marker: Marker) -> Change:
    """The insertion of an empty, closed thinking: both markers, or the closing one if the prompt opens it."""
    said = case.tree.path(case.root).tokens
    opening = [] if opened_by(said, marker) else marker.open.tolist()
    return Insert(ids=(*opening, *marker.close.tolist()))
