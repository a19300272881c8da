"""``shell-agent``: acts in a shell and on small databases as it saw tasks solved; and what became of it.

Lessons are solutions as somebody who knows them types them, run in the real worlds: an agent that is told its
task alone can learn each action from what it has seen. What recorded actors look at on the way it could not.

``shell-agent`` begins as ``world-model-sft``, which knows how these worlds answer and copies names well: a
new model of this size copies none after as many lessons. What it was shown is short enough that it could do
more than it does: what practice has to change. ``shell-agent-real`` practised in the real worlds,
``shell-agent-sim`` in ``world-model`` alone, where no command ever ran.

``shell-agent-warm`` and ``shell-agent-control`` begin alike, as a new model, and differ in what they read
before the same few lessons. Warm-up is the prediction of the next observation in recorded episodes, after
what decides it: the stage of ``world-model-sft``, for fewer steps. The control reads the same episodes with
their observations, and what was said of them, dealt out anew among the turns of a world: the same tokens, all
of them learned as well, and nothing in them tells what an action does.

Source: arXiv 2606.24597 for the warm-up; the control and the sizes are ours.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, final

import numpy as np
import torch

from refork import stats
from refork.forking.arm import graded
from refork.growing import grow
from refork.growing.plant import opening
from refork.policies.base import Sampling
from refork.policies.local import LocalPolicy
from refork.progress import Progress, silent
from refork.tree.tree import Tree
from refork.types import FloatArray, Json, Message
from refork.worlds.base import Episode, Observation, Split, Task, World
from refork.worlds.environment import ActionObservation, Environment, EnvTrajectory, ScriptedAgent
from refork.worlds.open import open_world
from refork_methods.credit.methods import credit_method
from refork_methods.train.loop import TreeTraining, train_policy
from refork_methods.train.schedule import Schedule
from refork_methods.train.weighted import Weighted, WeightedSettings, fit_weighted
from refork_testbed.models.build import build
from refork_testbed.models.packed_training import train_packed
from refork_testbed.models.planted import Planted, planted_model
from refork_testbed.models.recipe import Made, Staged
from refork_testbed.models.recipes import world_model
from refork_testbed.models.recipes.world_model import WORLDS, tokenizer_of
from refork_testbed.models.tokenizer import examples
from refork_testbed.worlds.terminal import agents as terminal
from refork_worlds.tools import agents as tools

Arm = Literal["predict", "control"]

#: An action, and the end of the turn.
SAMPLING = Sampling(max_tokens=48)
SHAPE = Planted(layers=3, width=160, heads=4, hidden=400, context=1024)
#: Held-out tasks of each world that success is measured on.
TASKS = 100
#: Solved tasks of each world that ``shell-agent`` learns from, and that the arms with a warm-up do.
EPISODES, FEW = 2_000, 200
IMITATION = WeightedSettings(
    steps=1_000,
    rows=8,
    schedule=Schedule(peak=5e-4, shape="cosine", warmup=50, final=0.05),
    betas=(0.9, 0.98),
    half=True,
)
#: What the arms read first, and their few lessons after it.
READING = WeightedSettings(
    steps=1_000,
    rows=3,
    schedule=Schedule(peak=6e-4, shape="cosine", warmup=100, final=0.1),
    betas=(0.9, 0.98),
    half=True,
)
ACTING = replace(IMITATION, steps=400)
#: Updates of practice, each of one world: tasks x rollouts of independent draws (GRPO).
PLAN = TreeTraining(updates=24, tasks=8, leaves=8, learning_rate=5e-5, minibatches=2)
#: Training tasks with this seed are other ones than those that were recorded.
SEED = 7


@final
@dataclass(frozen=True)
class _Blind:
    """An episode that shows nothing before the first action."""

    inner: Episode

    @property
    def first(self) -> Observation:
        """Nothing."""
        return Observation("", state_key=self.inner.first.state_key)

    def step(self, action: str) -> Observation:
        """As the world's own."""
        return self.inner.step(action)

    def snapshot(self) -> bytes | None:
        """As the world's own."""
        return self.inner.snapshot()

    def reseed(self, seed: int) -> None:
        """As the world's own."""
        self.inner.reseed(seed)

    def close(self) -> None:
        """As the world's own."""
        self.inner.close()


@final
@dataclass(frozen=True)
class Blind:
    """A real world in which an agent is told its task and no more, as in a simulated one."""

    base: World

    @property
    def name(self) -> str:
        """The base's with ``first=nothing``: of its family, and no world that ``open_world`` knows."""
        return f"{self.base.name}{'&' if '?' in self.base.name else '?'}first=nothing"

    @property
    def version(self) -> str:
        """The base's."""
        return self.base.version

    @property
    def max_turns(self) -> int:
        """The base's."""
        return self.base.max_turns

    @property
    def deterministic(self) -> bool:
        """As the base."""
        return self.base.deterministic

    def tasks(self, split: Split, count: int, seed: int = 0) -> Sequence[Task]:
        """The base's own."""
        return self.base.tasks(split, count, seed)

    def start(self, task: Task, seed: int) -> Episode:
        """An episode of the base that shows nothing first."""
        return _Blind(self.base.start(task, seed))

    def restore(self, task: Task, snapshot: bytes) -> Episode:
        """As the base."""
        return _Blind(self.base.restore(task, snapshot))


def environment(spec: str) -> Environment:
    """One of the recorded worlds."""
    found = open_world(spec)
    assert isinstance(found, Environment)
    return found


def solver(world: Environment, task: Task) -> ScriptedAgent:
    """Who solves a task of either world without a detour."""
    if "script" in task.data:
        return terminal.Scripted(tuple(task.data["script"]))
    drawn = (world.agent(task, seed) for seed in itertools.count())
    return next(one for one in drawn if isinstance(one, tools.Scripted) and one.kind == "solver")


def lessons(spec: str, count: int, progress: Progress = silent) -> list[list[Message]]:
    """Solutions of training tasks of a real world, as conversations; the last answer is never shown.

    Tasks that the solver does not solve are left out.
    """
    world, found = environment(spec), []
    for number, task in enumerate(world.tasks("train", count, 0)):
        progress(f"lessons in {spec}", number, count)
        actor, episode = solver(world, task), world.start(task, 0)
        talk, seen, answer = [opening(task.prompt, "")], list[ActionObservation](), None
        while (action := actor.act(seen)) is not None and (answer is None or not answer.done):
            if answer is not None:
                talk.append({"role": "user", "content": answer.text})
            talk.append({"role": "assistant", "content": action})
            answer = episode.step(action)
            seen.append((action, answer.text))
        episode.close()
        if answer is not None and answer.reward == 1.0:
            found.append(talk)
    return found


def all_lessons(count: int, progress: Progress = silent) -> list[list[Message]]:
    """Lessons of so many tasks of every world, the worlds in turn."""
    each = [lessons(spec, count, progress) for spec in WORLDS]
    return [talk for some in itertools.zip_longest(*each) for talk in some if talk is not None]


def outcomes(
    policy: LocalPolicy, spec: str, tasks: int, *, seed: int = 0, progress: Progress = silent
) -> FloatArray:
    """Success of one rollout of each of some held-out tasks in the real world, [tasks]; broken ones are 0."""
    world = Blind(environment(spec))
    with Tree.memory() as tree:
        groups = grow(
            tree, policy, world, world.tasks("held-out", tasks, 0), draws=1, settings=SAMPLING, seed=seed,
            tasks_at_once=tasks, progress=progress,
        )  # fmt: skip
        values = graded([value for group in groups for value in group.values()])
    return np.asarray(np.nan_to_num(values) >= 1.0, dtype=np.float64)


def measure(policy: LocalPolicy, progress: Progress = silent) -> Json:
    """Success in the real worlds, one rollout of each held-out task, with Wilson intervals."""
    rows: Json = {}
    for spec in WORLDS:
        wins = outcomes(policy, spec, TASKS, progress=progress)
        interval = stats.wilson(int(wins.sum()), len(wins))
        rows[spec] = {
            "tasks": len(wins),
            "rate": interval.estimate,
            "low": interval.low,
            "high": interval.high,
        }
    said = "; ".join(
        f"`{name}` {row['rate']:.3f} [{row['low']:.3f}, {row['high']:.3f}] of {row['tasks']}"
        for name, row in rows.items()
    )
    return {
        "success": rows,
        "told": f"Success in the real worlds, one rollout of each held-out task at temperature 1 (95 % "
        f"Wilson intervals): {said}. It is told the task alone, not what the folder or the tables hold.",
    }


def imitate(policy: LocalPolicy, progress: Progress) -> Made:
    """Learn from solutions, in place."""
    data = examples(policy.codec.tokenizer, all_lessons(EPISODES, progress))
    log = fit_weighted(
        policy.model, [Weighted(item.tokens, item.mask.astype("float32")) for item in data], IMITATION,
        stage="imitation", progress=progress,
    )  # fmt: skip
    last = sum(row["loss"] for row in log[-50:]) / len(log[-50:])
    how = (
        f"{len(log)} steps of {IMITATION.rows} of {len(data)} episodes, AdamW, rate "
        f"{IMITATION.schedule.peak}, cosine; last loss {last:.3f} nats"
    )
    return Made(log, {"examples": len(data), "how": how})


def real_worlds() -> list[World]:
    """The real ones, the agent told its task alone."""
    return [Blind(environment(spec)) for spec in WORLDS]


def simulated_worlds(simulator: LocalPolicy) -> list[World]:
    """The same with a model's answers: the likeliest ones."""
    model = world_model.world_model(simulator)
    return [model.world(environment(spec)) for spec in WORLDS]


def practise(
    policy: LocalPolicy, worlds: Sequence[World], plan: TreeTraining, progress: Progress = silent
) -> Made:
    """Train a policy in place, its updates in the worlds in turn; each world has its own optimiser state.

    Source: GRPO (arXiv 2402.03300) for the advantages; a frozen simulator in place of the world is that of
    arXiv 2606.24597.
    """
    log: list[Json] = []
    share = plan.updates // len(worlds)
    runs = []
    trees = [Tree.memory() for _ in worlds]
    for number, (world, tree) in enumerate(zip(worlds, trees, strict=True)):
        tasks = world.tasks("train", share * plan.tasks, SEED)  # that the recordings do not have
        one = replace(plan, updates=share, seed=plan.seed + number)
        runs.append(
            train_policy(
                tree, policy, world, tasks, one, SAMPLING, grower="independent", credit=credit_method("grpo")
            )
        )
    for turn in range(share):
        for number, (world, run) in enumerate(zip(worlds, runs, strict=True)):
            update = next(run)
            log.append({"world": world.name} | {k: v for k, v in update.flat().items() if k != "seconds"})
            progress("practice", turn * len(worlds) + number + 1, plan.updates, tokens=update.spent)
    for tree in trees:
        tree.close()
    rate = {world.name: [row["success"] for row in log if row["world"] == world.name] for world in worlds}
    told = "; ".join(f"{name}: success {found[0]:.2f} in the first update, {found[-1]:.2f} in the last"
                     for name, found in rate.items())  # fmt: skip
    how = (
        f"{len(log)} updates of {plan.tasks} tasks x {plan.leaves} rollouts, the worlds in turn (GRPO), rate "
        f"{plan.learning_rate}; {told}"
    )
    return Made(log, {"updates": len(log), "tokens": sum(row["tokens"] for row in log), "how": how})


def practise_really(policy: LocalPolicy, progress: Progress) -> Made:
    """Group policy gradient in the real worlds."""
    return practise(policy, real_worlds(), PLAN, progress)


def practise_simulated(policy: LocalPolicy, progress: Progress) -> Made:
    """Group policy gradient in the simulated worlds; the simulator is frozen."""
    simulator = LocalPolicy.load(str(build(world_model.RECIPE.name, progress=progress)))
    return practise(policy, simulated_worlds(simulator), PLAN, progress)


def begin(seed: int = 0, progress: Progress = silent) -> LocalPolicy:
    """A new small model, the same for every arm of a seed."""
    tokenizer = tokenizer_of(world_model.lessons(progress), world_model.SHAPE.context)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LocalPolicy(planted_model(world_model.SHAPE, tokenizer), tokenizer, name="shell-agent")


def dealt(items: Sequence[EnvTrajectory], seed: int) -> list[EnvTrajectory]:
    """The episodes with the observations of each world, and their notes, shuffled over all its turns."""
    rng = np.random.default_rng(seed)
    pools: dict[str, list[tuple[str, str | None]]] = {}
    for source in sorted({item.source for item in items}):
        said = [
            (turn.observation, turn.note) for item in items if item.source == source for turn in item.turns
        ]
        pools[source] = [said[i] for i in rng.permutation(len(said))]
    dealt_out = []
    for item in items:
        drawn = [(turn, *pools[item.source].pop()) for turn in item.turns]
        turns = tuple(replace(turn, observation=text, note=note) for turn, text, note in drawn)
        dealt_out.append(replace(item, turns=turns))
    return dealt_out


def arm(policy: LocalPolicy, kind: Arm, seed: int, progress: Progress = silent) -> Made:
    """Read, then learn to act, in place; the log has both parts."""
    items = world_model.lessons(progress)
    read = items if kind == "predict" else dealt(items, seed)
    done = train_packed(policy, read, replace(READING, seed=seed), progress=progress)
    solved = examples(policy.codec.tokenizer, all_lessons(FEW, progress))
    data = [Weighted(item.tokens, item.mask.astype("float32")) for item in solved]
    log = fit_weighted(policy.model, data, replace(ACTING, seed=seed), stage="lessons", progress=progress)
    policy.refresh()
    tokens = sum(len(item.tokens) for item in data)
    how = (
        f"{len(done.log)} steps of {READING.rows} episodes read, last loss "
        f"{done.facts['loss_last']:.3f} nats, then {len(log)} steps of {ACTING.rows} of {len(data)} solved "
        f"episodes acted ({tokens} tokens), rates "
        f"{READING.schedule.peak} and {ACTING.schedule.peak}"
    )
    return Made([*done.log, *log], {"how": how, "read": done.facts})


RECIPE = Staged(
    name="shell-agent",
    summary="acts in a shell and on small databases, as it saw some tasks solved",
    data=f"solutions of {EPISODES} training tasks of each world, run there",
    parent="world-model-sft",
    train=imitate,
    measure=measure,
    sampling=SAMPLING,
)
REAL = replace(
    RECIPE,
    name="shell-agent-real",
    summary="acts in a shell and on small databases, after practice in the real ones",
    data="training tasks of both worlds that no recording has, in turn",
    parent="shell-agent",
    train=practise_really,
)
SIM = replace(
    REAL,
    name="shell-agent-sim",
    summary="acts in a shell and on small databases, after practice in a simulator alone",
    data=f"{REAL.data}; `world-model` answers, and grading reads its verdicts",
    train=practise_simulated,
)
WARM = Staged(
    name="shell-agent-warm",
    summary="learned first to predict what a shell and small databases answer, then to act from few lessons",
    data=f"the recorded episodes of `world-model`; lessons: {FEW} solved tasks of each world",
    begin=partial(begin, 0),
    train=lambda policy, progress: arm(policy, "predict", 0, progress),
    measure=measure,
    sampling=SAMPLING,
)
CONTROL = replace(
    WARM,
    name="shell-agent-control",
    summary="read first the same episodes with their answers shuffled, then learned to act from few lessons",
    train=lambda policy, progress: arm(policy, "control", 0, progress),
)
