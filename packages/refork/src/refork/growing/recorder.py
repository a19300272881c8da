"""Environments recorded: scripted actors act in them, and any recorded path read as its environment saw it.

Source: arXiv 2606.24597 for trajectories of actions and observations without the agent's reasoning.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import final

from refork.errors import BadInput, UserError
from refork.forking.run_on import world_producer
from refork.growing.plant import openings
from refork.interrupt import Interrupt
from refork.jsonl import json_objects
from refork.plain import canonical
from refork.policies.base import Policy
from refork.progress import Progress, silent
from refork.sampling.noise import NoiseKey, stream_of
from refork.tree.node import NewNode, node_id
from refork.tree.score import Score
from refork.tree.tree import Tree
from refork.types import Json, Origin
from refork.worlds.base import Observation, Task
from refork.worlds.environment import ActionObservation, Environment, EnvTrajectory
from refork.worlds.open import task_to_json
from refork.worlds.rendered import with_tokens
from refork.worlds.simulated import simulator_of
from refork.worlds.trajectories import trajectory_of

__all__ = ["Recorded", "read_trajectories", "record", "trajectories", "trajectory_of", "write_trajectories"]
#: Episodes that are committed together.
AT_ONCE = 16


@dataclass(slots=True)
class Recorded:
    """What a recording did: new episodes and turns, those that were there, those that broke.

    ``unsteady`` counts turns that a second run answered otherwise although the world called them exact (None:
    nothing was run twice); such turns are recorded as not exact. ``accepted``: episodes of reward 1.
    """

    trajectories: int = 0
    turns: int = 0
    errors: int = 0
    present: int = 0
    accepted: int = 0
    exact: int = 0
    unsteady: int | None = None
    stopped: bool = False
    reasons: list[str] = field(default_factory=list)

    def to_json(self) -> Json:
        """Plain fields."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class _Step:
    """A turn; ``by`` is who simulated its answer, None where the world is real."""

    action: str
    observation: Observation
    by: Json | None = None


@final
@dataclass(frozen=True)
class _Recorder:
    world: Environment
    tree: Tree
    verify: bool
    stats: Recorded
    policy: Policy | None = None
    pending: list[NewNode] = field(default_factory=list)
    scores: list[Score] = field(default_factory=list)

    def flush(self) -> None:
        """Store what is pending, in one transaction."""
        self.tree.commit(self.pending, (), self.scores)
        self.pending.clear()
        self.scores.clear()

    def recorded(self, task: Task, seeds: Sequence[int], interrupt: Interrupt) -> int:
        """Episodes of a task that are not on the tree yet; how many seeds are done with."""
        new_node = self.root(task)
        if self.policy is not None:
            (new_node,) = with_tokens(self.policy, [new_node])
        root = node_id(None, None, "task", new_node.key or "")
        self.pending.append(new_node)
        # An episode that is there began with an action or broke before it, so one of two nodes tells.
        marks = {
            seed: (
                node_id(root, None, "action", f"record/{seed}/0a"),
                node_id(root, None, "observation", f"record/{seed}/e"),
            )
            for seed in seeds
        }
        missing = set(self.tree.missing([mark for pair in marks.values() for mark in pair]))
        producer = world_producer(self.world.name, self.world.version).id
        for count, seed in enumerate(seeds, 1):
            if not missing.issuperset(marks[seed]):
                self.stats.present += 1
                continue
            found, reward = self.drafts(task, root, seed)
            if self.policy is not None:
                found = with_tokens(self.policy, [new_node, *found])[1:]
            self.pending.extend(found)
            if reward is not None:
                leaf = found[-1]
                name = node_id(leaf.parent, leaf.keep, leaf.kind, leaf.key or "")
                self.scores.append(Score(name, "reward", reward, producer))
                self.scores.append(Score(name, "success", float(reward >= 1.0), producer))
            if interrupt.asked:
                return count
        return len(seeds)

    def root(self, task: Task) -> NewNode:
        """The task's node: all that fork, and a simulator, need to know of it."""
        episode = self.world.start(task, 0)
        try:
            first = episode.first
        finally:
            episode.close()
        messages = openings(task, first.text)
        extra: Json = {
            "world": self.world.name,
            "task": task_to_json(task),
            "brief": self.world.brief(task).to_json(),
            "domain": self.world.domain,
        }
        key = f"{self.world.name}/{self.world.version}/{task.id}/record"
        if self.policy is not None:
            extra["tokenizer"] = self.policy.card.tokenizer
            key += f"/{self.policy.card.tokenizer}"
        return NewNode(
            kind="task",
            key=key,
            text="\n".join(str(message.get("content") or "") for message in messages),
            message=messages[0] if len(messages) == 1 else None,
            state_key=first.state_key,
            origin="real",
            extra=extra | ({"messages": messages} if len(messages) > 1 else {}),
        )

    def played(self, task: Task, seed: int, luck: int) -> tuple[list[_Step], str | None]:
        """The turns of one episode, and why it broke, if it did."""
        steps: list[_Step] = []
        try:
            actor = self.world.agent(task, seed)
            episode = self.world.start(task, luck)
            try:
                seen: list[ActionObservation] = []
                while len(steps) < self.world.max_turns and (action := actor.act(seen)) is not None:
                    answer = episode.step(action)
                    steps.append(_Step(action, answer, simulator_of(episode)))
                    seen.append((action, answer.text))
                    if answer.done:
                        break
            finally:
                episode.close()
        except UserError:
            raise
        except Exception as error:  # a world that breaks ends its episode, not the run
            return steps, repr(error)
        return steps, None

    def checked(self, task: Task, luck: int, steps: list[_Step]) -> list[_Step]:
        """The turns after a second run of the same actions; what it answers otherwise is not exact."""
        again: list[str] = []
        try:
            episode = self.world.start(task, luck)
            try:
                again.extend(episode.step(step.action).text for step in steps)
            finally:
                episode.close()
        except UserError:
            raise
        except Exception:
            pass  # it has answered nothing from here on; the first run stands
        found = []
        for step, text in zip_longest(steps, again):
            same = text == step.observation.text
            if not same and step.observation.info.get("exact"):
                self.stats.unsteady = (self.stats.unsteady or 0) + 1
            loose = replace(step.observation, info={**step.observation.info, "exact": False})
            found.append(step if same else replace(step, observation=loose))
        return found

    def drafts(self, task: Task, root: str, seed: int) -> tuple[list[NewNode], float | None]:
        """The nodes of one episode and its reward."""
        noise = NoiseKey(seed, stream_of(root), 0)
        steps, broken = self.played(task, seed, noise.integer())
        if self.verify and broken is None:
            steps = self.checked(task, noise.integer(), steps)
        found: list[NewNode] = []
        at = root

        def add(new_node: NewNode) -> None:
            nonlocal at
            found.append(new_node)
            at = node_id(new_node.parent, new_node.keep, new_node.kind, new_node.key or "")

        for turn, step in enumerate(steps):
            said = {"role": "assistant", "content": step.action}
            here = noise.at_turn(turn)
            action_key = f"record/{seed}/{turn}a"
            add(NewNode(kind="action", parent=at, key=action_key, text=step.action,
                        message=said, noise=here, finish="stop", extra={"actor": "scripted"}))  # fmt: skip
            shown = {"role": "user", "content": step.observation.text}
            text, key = step.observation.text, step.observation.state_key
            info = step.observation.info | ({} if step.by is None else {"simulator": step.by})
            origin: Origin = "real" if step.by is None else "simulated"
            add(NewNode(kind="observation", parent=at, key=f"record/{seed}/{turn}o", text=text, message=shown,
                        state_key=key, origin=origin, extra=info))  # fmt: skip
        reward: float | None = None
        if broken is not None:
            self.stats.errors += 1
            self.stats.reasons.append(f"{task.id}, seed {seed}: {broken}")
            add(NewNode(kind="observation", parent=at, key=f"record/{seed}/e", error=broken))
        elif steps:
            last = steps[-1].observation
            reward = last.reward if last.done else None
            why = "world" if last.done else "the actor ended"
            text = "ungraded" if reward is None else ("success" if reward >= 1.0 else "failure")
            add(NewNode(kind="verdict", parent=at, key=f"record/{seed}/v", text=text,
                      extra={"reward": reward, "reason": why}))  # fmt: skip
            self.stats.trajectories += 1
            self.stats.turns += len(steps)
            self.stats.exact += sum(bool(step.observation.info.get("exact")) for step in steps)
            self.stats.accepted += reward == 1.0
        return found, reward


def record(
    world: Environment,
    tasks: Sequence[Task],
    tree: Tree,
    *,
    seeds: Sequence[int] = (0,),
    verify: bool = False,
    policy: Policy | None = None,
    progress: Progress = silent,
) -> Recorded:
    """Let scripted actors act, one episode per task and seed; episodes that the tree holds are passed over.

    ``verify`` runs every episode a second time and marks turns whose answers differ as not exact. ``policy``
    gives all text the token ids that it would be shown, so that it can fork the tree. Ctrl-C ends it after
    the episode under way, with everything kept (``stopped``).

    Raises:
        BadInput: the world is none that can be recorded, or there is no task or seed.
        CannotDo: the policy's template rewrites earlier turns.
    """
    if not isinstance(world, Environment):
        raise BadInput(
            f"{world.name} cannot be recorded: it has no brief and no scripted actors",
            where="world record",
            hint="see `refork world list` for those that can",
        )
    if not tasks or not seeds:
        raise BadInput("there is nothing to record: give at least one task and one seed", where=world.name)
    told = Recorded(unsteady=0 if verify else None)
    writer = _Recorder(world, tree, verify, told, policy)
    tree.add_producer(world_producer(world.name, world.version))
    done, total = 0, len(tasks) * len(seeds)
    with Interrupt() as interrupt:
        for number, task in enumerate(tasks, 1):
            done += writer.recorded(task, seeds, interrupt)
            if interrupt.asked or number % AT_ONCE == 0 or number == len(tasks):
                writer.flush()
                progress("recording", done, total)
            if interrupt.asked:
                told.stopped = done < total
                break
    return told


def trajectories(
    tree: Tree, world: Environment | None = None, refused: list[str] | None = None
) -> Iterator[EnvTrajectory]:
    """Every path of a tree as its environment saw it; paths without an answered action are passed over.

    ``world`` gives briefs of tasks that were recorded without one. ``refused`` collects why trajectories
    could not be read; without it the first such trajectory is an error.

    Raises:
        BadInput: as :func:`trajectory_of`.
    """
    for leaf in tree.leaves():
        trajectory = tree.path(leaf)
        if all(step.node.kind != "action" for step in trajectory):
            continue
        try:
            found = trajectory_of(trajectory, world=world)
        except BadInput as error:
            if refused is None:
                raise
            refused.append(str(error))
            continue
        if found.turns:
            yield found


def read_trajectories(path: str | os.PathLike[str]) -> Iterator[EnvTrajectory]:
    """Trajectories of a JSONL file, one a line.

    Raises:
        BadInput: there is no such file, or a line is no trajectory; it names the line.
    """
    file = Path(path)
    if not file.is_file():
        raise BadInput("there is no such file", where=str(file))
    with file.open(encoding="utf-8") as lines:
        for place, body in json_objects(lines, str(file)):
            yield EnvTrajectory.from_json(body, where=place)


def write_trajectories(path: str | os.PathLike[str], items: Iterable[EnvTrajectory]) -> int:
    """Write trajectories as JSONL, whole or not at all; how many."""
    file = Path(path)
    temporary = file.with_name(file.name + ".tmp")
    count = 0
    try:
        with temporary.open("w", encoding="utf-8") as out:
            for item in items:
                out.write(canonical(item.to_json()) + "\n")
                count += 1
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
    return count
