"""What every arm of a case shares, and how an environment is started afresh from its serialised form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from refork.errors import BadInput
from refork.forking.arm import Fork, prepare, run_jobs
from refork.growing.plant import plant, plant_prompt
from refork.judge import Judge
from refork.plain import content_hash
from refork.policies.base import Policy, Sampling
from refork.progress import Progress, silent
from refork.tree.node import Point
from refork.tree.tree import Tree
from refork.types import Json
from refork.worlds.base import Task, World


@runtime_checkable
class Restart(Protocol):
    """Starts a serialised environment: the seam between a case and whatever the rollouts happen in."""

    @property
    def world(self) -> World | None:
        """The world that answers; None where a rollout is one turn."""
        ...

    def point(self, tree: Tree, policy: Policy, environment: Json) -> Point:
        """Where rollouts of this environment begin; the same environment is the same place."""
        ...


@dataclass(frozen=True, slots=True)
class FromMessages:
    """Environments of chat messages only: ``{"messages": [...]}``; a rollout is the policy's next turn."""

    @property
    def world(self) -> None:
        """None: nothing answers."""
        return

    def point(self, tree: Tree, policy: Policy, environment: Json) -> Point:
        """The prompt as a root; raises BadInput where the environment holds no messages."""
        messages = environment.get("messages")
        if not isinstance(messages, list) or not messages:
            raise BadInput(
                "the environment holds no messages", hint='{"messages": [{"role": ..., "content": ...}]}'
            )
        return plant_prompt(tree, policy, messages)


@dataclass(frozen=True, slots=True)
class FromTask:
    """Environments of a world. ``make`` turns a serialised environment into the world's task."""

    inner: World
    make: Callable[[Json], Task]

    @property
    def world(self) -> World:
        """The world that answers."""
        return self.inner

    def point(self, tree: Tree, policy: Policy, environment: Json) -> Point:
        """The task as a root."""
        return plant(tree, policy, self.inner, [self.make(environment)])[0]


def task_document(task: Task) -> Json:
    """Any task as a document that can be edited: what the policy is told, and what rebuilds the world."""
    return {"prompt": task.prompt, "data": task.data}


def from_document(task: Task) -> Callable[[Json], Task]:
    """Tasks of edited :func:`task_document` documents, each under an id of its own.

    Where a world derives its prompt from its data, an edit of the data alone does not change what is told.
    """
    same = content_hash(task_document(task))

    def make(environment: Json) -> Task:
        if set(environment) != {"prompt", "data"}:
            raise BadInput("the environment of this world has the keys prompt and data", where=task.world)
        mark = content_hash(environment)
        # The unedited document keeps the task's own id, and so the root that is on the tree already.
        name = task.id if mark == same else f"{task.id}#{mark[:16]}"
        return replace(task, id=name, prompt=str(environment["prompt"]), data=environment["data"])

    return make


@runtime_checkable
class FromEnvironment(World, Protocol):
    """A world whose environment is a document of its own, which alone decides the task."""

    def environment_task(self, data: Json) -> Task:
        """The task of a document; raises BadInput where it is none of this world."""
        ...


def recorded_task(tree: Tree, node: str) -> Task | None:
    """The world's task that a recorded rollout began with; None where it began with a plain prompt."""
    data = tree.path(node).root.extra.get("task")
    return Task(**data) if isinstance(data, dict) and "id" in data else None


def restart(world: World | None, task: Task | None = None) -> Restart:
    """How a case's environments are started: chat messages, a world that reads them, or a task of any other.

    Raises: BadInput where a world needs the task whose environment it is.
    """
    if world is None:
        return FromMessages()
    if isinstance(world, FromEnvironment):
        return FromTask(world, world.environment_task)
    if task is None:
        raise BadInput(
            "name the task whose environment this is",
            where=world.name,
            hint="give the incident the nodes of its rollout: its root holds the task",
        )
    return FromTask(world, from_document(task))


@dataclass(frozen=True, slots=True)
class Bench:
    """Tree, policy, grader and the way to restart; ``settings`` and ``seed`` are those of every arm."""

    tree: Tree
    policy: Policy
    grader: Judge
    restart: Restart
    settings: Sampling = field(default_factory=Sampling)
    seed: int = 0
    max_turns: int | None = None

    def with_policy(self, policy: Policy) -> Bench:
        """The same bench for another model."""
        return replace(self, policy=policy)

    def run(
        self,
        environments: Sequence[Json],
        draws: Sequence[Sequence[int]],
        *,
        streams: Sequence[int | None] | None = None,
        progress: Progress = silent,
        stage: str = "rollouts",
    ) -> list[Fork]:
        """The draws of every environment, one batch, recorded; those on the tree are not done again.

        ``draws`` [environments]: the numbers that are wanted. ``streams``: noise to share with another arm.
        """
        jobs = [
            prepare(
                self.restart.point(self.tree, self.policy, environment), self.policy, list(wanted),
                settings=self.settings, world=self.restart.world, seed=self.seed, max_turns=self.max_turns,
                stream=stream,
            )
            for environment, wanted, stream in zip(
                environments, draws, streams or [None] * len(environments), strict=True
            )
        ]  # fmt: skip
        return run_jobs(jobs, judge=self.grader, progress=progress, stage=stage)
