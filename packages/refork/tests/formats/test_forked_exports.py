"""Forks of every kind, exported and imported again: the conversation that the policy saw and said."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from refork.forking.arm import fork
from refork.forking.change import (
    Ban,
    Change,
    Compose,
    EditMessage,
    Force,
    Insert,
    Remove,
    Replace,
    Set,
    SwapPolicy,
    SwapWorld,
)
from refork.forking.context import conversation
from refork.formats import reader_for, writer_for
from refork.formats.openai_chat import text_of
from refork.growing.plant import plant
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.tree import Tree
from refork.tree.node import Point, Trajectory
from refork.tree.records import Remark
from refork.tree.turn import ContextStep, parts_of
from support.worlds import TwoTurns

REPLIES = ["go left now", "ask Élan why", " a"]
FORMATS = ["native", "openai-chat", "verifiers", "atif", "otlp", "trl"]


@cache
def policy() -> ScriptedPolicy:
    return ScriptedPolicy.from_replies(REPLIES)


@cache
def other() -> ScriptedPolicy:
    """Another tokenizer."""
    return ScriptedPolicy.from_replies({"go right now": 1.0, "ask": 0.5, " b c": 1.0})


def changes() -> dict[str, Change | None]:
    return {
        "none": None,
        "ban": Ban(text=" left"),
        "force": Force(text="ask"),
        "insert": Insert(text=" hm é"),
        "remove": Remove(1),
        "replace": Replace(1, text=" oh"),
        "message": EditMessage(0, "Another task?"),
        "set": Set(temperature=0.5),
        "policy": SwapPolicy(other()),
        "world": SwapWorld(TwoTurns(luck=0.5)),
        "two": Compose(Ban(text=" why"), Set(temperature=0.5)),
        "policy and insert": Compose(SwapPolicy(other()), Insert(text=" hm")),
        "policy and remove": Compose(SwapPolicy(other()), Remove(1)),
        "message and force": Compose(EditMessage(0, "A third?"), Force(text="ask")),
    }


POINTS = ["task", "start", "middle", "end", "observation", "second turn", "rewrite", "inserted", "nested"]
_ACTS_ON_TOKENS = ("remove", "replace")


def _rollout(tree: Tree) -> Trajectory:
    """Three turns."""
    world = TwoTurns(max_turns=3)
    (start,) = plant(tree, policy(), world, world.tasks("train", 1))
    return fork(start, policy(), 1, world=world, settings=Sampling(max_tokens=12), seed=3).leaves()[0]


def _acts(trajectory: Trajectory) -> list[Any]:
    return [step.node for step in trajectory if step.node.kind == "action"]


def _nodes(trajectory: Trajectory, kind: str) -> list[Any]:
    return [step.node for step in trajectory if step.node.kind == kind]


def _forked(tree: Tree, point: Point, change: Change | None, seed: int = 5) -> Trajectory:
    made = fork(point, policy(), 1, change, world=TwoTurns(max_turns=3), seed=seed)
    return made.leaves()[0]


def point_of(tree: Tree, name: str) -> Point:
    """A point of a rollout of several turns; the last three lie in forks."""
    trajectory = _rollout(tree)
    first, second = _acts(trajectory)[:2]
    if name == "task":
        return tree.at(trajectory.root)
    if name in ("start", "middle"):
        return tree.at(first, 0 if name == "start" else 2)
    if name == "end":
        return tree.at(first)
    if name == "observation":
        return tree.at(_nodes(trajectory, "observation")[0])
    if name == "second turn":
        return tree.at(second, 1)
    if name == "rewrite":
        edited = _forked(tree, tree.at(first, 2), EditMessage(0, "Told otherwise."))
        return tree.at(_nodes(edited, "rewrite")[0])
    if name == "inserted":
        put = _forked(tree, tree.at(first, 1), Insert(text=" well"))
        return tree.at(next(node for node in _acts(put) if "edit" in node.extra))
    inner = _forked(tree, tree.at(first, 2), EditMessage(0, "Told otherwise."))
    deeper = _forked(tree, tree.at(_acts(inner)[0 if len(_acts(inner)) == 1 else -2], 1), Insert(text=" so"))
    return tree.at(_acts(deeper)[-1], 1)


@cache
def forked(point: str, change: str) -> Tree | None:
    """A rollout and two draws of a fork of it; None where the change makes no sense at the point."""
    tree = Tree.memory()
    at = point_of(tree, point)
    made = changes()[change]
    if any(name in change for name in _ACTS_ON_TOKENS) and not (at.keep and at.node.kind == "action"):
        return None
    fork(at, policy(), 2, made, world=TwoTurns(max_turns=3), seed=9)
    return tree


def told(trajectory: Trajectory) -> list[tuple[str, str]]:
    """The conversation of a path's last context, what ended the episode left out: nobody was shown it."""
    talk = conversation(trajectory)
    found = [(str(m["role"]), text_of(m)) for m in talk.messages]
    if talk.pending is not None:
        found.append(("assistant", talk.pending))
    while found and found[-1][0] != "assistant":
        found.pop()
    return found


def flat(messages: list[tuple[str, str]]) -> str:
    """Messages as the scripted policy's template renders them."""
    return "".join(text if role == "assistant" else text + "\n" for role, text in messages)


def exported(tree: Tree, form: str, file: Path) -> Path:
    writer = writer_for(form)
    if hasattr(writer, "binary"):
        with file.open("wb") as out:
            writer.write(tree.records(), out)
    else:
        with file.open("w", encoding="utf-8") as text:
            writer.write(tree.records(), text)
    return file


def imported(file: Path, form: str, reading: ScriptedPolicy | None = None) -> Tree:
    tree = Tree.memory()
    records = reader_for(file, form, reading).read(file)
    if form == "verl":
        # Rows in another tokenizer's ids cannot be read with this one, and are skipped.
        records = (one for one in records if not isinstance(one, Remark))
    tree.load(records)
    return tree


def reading_of(trajectory: Trajectory) -> ScriptedPolicy:
    """Whose tokenizer a trajectory's last context is in."""
    digest = next(
        (s.node.extra["tokenizer"] for s in trajectory.context if "tokenizer" in s.node.extra), None
    )
    return other() if digest == other().card.tokenizer else policy()


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("change", changes())
def test_the_conversation_is_what_the_tokens_say(point, change):
    """The prefix that the policy really saw, decoded, is the conversation that every export is made of."""
    tree = forked(point, change)
    if tree is None:
        pytest.skip("there is no token to take away here")
    for trajectory in tree.paths(tree.leaves()):
        assert flat(told(trajectory)) == reading_of(trajectory).decode(trajectory.tokens)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("change", changes())
def test_what_is_exported_is_imported_again(form, point, change, tmp_path):
    tree = forked(point, change)
    if tree is None:
        pytest.skip("there is no token to take away here")
    file = exported(tree, form, tmp_path / "out")
    again = imported(file, form)
    wanted = Counter(json.dumps(told(trajectory)) for trajectory in tree.paths(tree.leaves()))
    found = Counter(json.dumps(told(trajectory)) for trajectory in again.paths(again.leaves()))
    assert not wanted - found
    if form != "trl":
        # A row of TRL is one context, so a trajectory with a rewritten context is several.
        assert not found - wanted


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("change", changes())
def test_token_ids_agree_with_the_text_they_stand_beside(point, change, tmp_path):
    tree = forked(point, change)
    if tree is None:
        pytest.skip("there is no token to take away here")
    both = (policy(), other())
    rows = pq.read_table(exported(tree, "trl", tmp_path / "rows.parquet")).to_pylist()
    prompts: dict[str, str] = {}
    for row in rows:
        sides = [[(m["role"], m["content"]) for m in row[side]] for side in ("prompt", "completion")]
        ids = [row["prompt_ids"], row["completion_ids"]]
        assert any([one.decode(i) for i in ids] == [flat(side) for side in sides] for one in both)
        assert len(row["env_mask"]) == len(row["completion_ids"])
        prompt = json.dumps([sides[0], ids[0]])
        assert prompts.setdefault(row["group"], prompt) == prompt
    assert len(set(prompts.values())) == len(prompts)
    for line in exported(tree, "atif", tmp_path / "atif.jsonl").read_text().splitlines():
        steps = [step for step in json.loads(line)["steps"] if step["source"] == "agent"]
        # Turns that a rewritten context only shows have no ids of their own.
        for step in (step for step in steps if "metrics" in step):
            assert any(one.decode(step["metrics"]["completion_token_ids"]) == step["message"] for one in both)
    for line in exported(tree, "verifiers", tmp_path / "traces.jsonl").read_text().splitlines():
        nodes = [node for node in json.loads(line)["nodes"] if "token_ids" in node]
        text = flat([(node["message"]["role"], node["message"]["content"]) for node in nodes])
        assert any(one.decode([i for node in nodes for i in node["token_ids"]]) == text for one in both)


@pytest.mark.parametrize("form", ["trl", "verifiers"])
@pytest.mark.parametrize("change", ["none", "insert", "force", "message", "policy and insert"])
@pytest.mark.parametrize("point", ["middle", "nested"])
def test_ids_log_probs_and_who_said_a_token_come_back(form, change, point, tmp_path):
    tree = forked(point, change)
    reading = other() if "policy" in change else policy()
    again = imported(exported(tree, form, tmp_path / "out"), form, reading)

    def known(trajectory: Trajectory) -> list[Any]:
        found: list[Any] = []
        for part in parts_of(trajectory.context):
            ids = None if part.tokens is None else part.tokens.tolist()
            if isinstance(part, ContextStep):
                found += [] if ids is None else ids
                continue
            values = part.values("logprobs")
            # Log-probs of forced tokens have no place in a trace.
            exact = values is not None and not (
                form == "verifiers" and any(piece.forced for piece in part.pieces)
            )
            numbers = np.round(values, 5).tolist() if exact else None
            found.append([ids, part.given.tolist(), None if numbers is None else str(numbers)])
        return found

    wanted = [
        json.dumps(known(trajectory))
        for trajectory in tree.paths(tree.leaves())
        if reading_of(trajectory) is reading
    ]
    found = [json.dumps(known(trajectory)) for trajectory in again.paths(again.leaves())]
    assert wanted
    assert not Counter(wanted) - Counter(found)
    # Once more: what was read is written as it was.
    third = imported(exported(again, form, tmp_path / "again"), form, reading)
    assert Counter(json.dumps(known(trajectory)) for trajectory in third.paths(third.leaves())) == Counter(
        found
    )


@pytest.mark.parametrize("change", ["none", "insert", "message", "policy", "policy and insert"])
@pytest.mark.parametrize("point", ["middle", "second turn", "nested"])
def test_rows_for_training_have_the_prompt_that_their_ids_say(point, change):
    """The credit-bearing export groups by prompt too, and its messages are those of the ids."""
    from refork_methods.train.rows import rollout_rows

    tree = forked(point, change)
    trajectories = tree.paths(tree.leaves())
    rows = rollout_rows(trajectories, [1.0] * len(trajectories), [1.0] * len(trajectories))
    prompts: dict[str, str] = {}
    for row in rows:
        text = flat([(m["role"], text_of(m)) for m in row.messages])
        assert any(one.decode(row.prompt) == text for one in (policy(), other()))
        name = json.dumps([row.messages, row.prompt.tolist()])
        assert prompts.setdefault(row.group, name) == name
    assert len(set(prompts.values())) == len(prompts)
