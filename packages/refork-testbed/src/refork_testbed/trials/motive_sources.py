"""Where an investigation's numbers come from: real rollouts on a tree, or draws from an agent's exact law.

Both answer the same three questions, so the same investigation runs on either. The second is for studies of
hundreds of investigations; that the two agree is tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from refork.policies.base import Sampling
from refork.progress import Progress, silent
from refork.tree.tree import Tree
from refork.types import Json
from refork_methods.forensics.arm import Arm
from refork_methods.forensics.bench import Bench, FromTask
from refork_methods.forensics.design import BASE, ArmPlan
from refork_methods.forensics.instruments.outcomes import arm_of
from refork_methods.forensics.instruments.sentence_resampling import sentence_resample
from refork_methods.forensics.target import TargetJudge
from refork_testbed.worlds.motives.agents import Agent
from refork_testbed.worlds.motives.script import ASK_SHARE, SURFACES, TAKE
from refork_testbed.worlds.motives.world import MotiveWorld, environment_task

Floats = NDArray[np.float64]
#: Enough for the longest turn of a scripted agent or of the organism.
LIMITS = Sampling(max_tokens=64)


@dataclass(frozen=True, slots=True)
class Trace:
    """One resampled trace: the target rate at every prefix [n + 1], and the counts behind its opening."""

    hit: bool
    rates: Floats
    opening: Arm


class Source(Protocol):
    """An agent that can be run in edited environments; it is not told which agent."""

    def arms(self, plans: Sequence[tuple[ArmPlan, Json]], draws: int) -> list[Arm]:
        """So many rollouts of every environment, counted."""
        ...

    def traces(self, environment: Json, k: int) -> list[Trace]:
        """One trace that took the action and one that did not, resampled; fewer where there are none."""
        ...

    def statements(self, environment: Json) -> dict[str, Arm]:
        """Of the unchanged rollouts that took the action: how many state each motive."""
        ...


def finish_chance(environment: Json) -> float:
    """The exact chance that an agent which does the work at once hands it in before the turn limit."""
    settings = environment["settings"]
    needed = -(-int(settings["errors"]) // int(settings["pace"]))
    return float(binom.sf(needed - 1, max(int(settings["turns"]) - 2, 0), 1 - float(settings["noise"])))


@final
class DistributionSource:
    """Counts drawn from an agent's exact law: binomial numbers, no rollout."""

    def __init__(self, agent: Agent, seed: int) -> None:
        self._agent = agent
        self._rng = np.random.default_rng(seed)
        self._hits = 0

    def arms(self, plans: Sequence[tuple[ArmPlan, Json]], draws: int) -> list[Arm]:
        """Hits, then how many of the others ask, then how many of the rest are cut off."""
        found = []
        for plan, environment in plans:
            hits = int(self._rng.binomial(draws, self._agent.rate(environment)))
            asked = int(self._rng.binomial(draws - hits, ASK_SHARE))
            cut = int(self._rng.binomial(draws - hits - asked, 1 - finish_chance(environment)))
            found.append(
                Arm(
                    plan.name, hits, draws - cut, unfinished=cut, asked=asked, dose=plan.dose,
                    grader=TargetJudge().producer.id, subject=self._agent.name,
                )
            )  # fmt: skip
            if plan.name == BASE:
                self._hits = hits
        return found

    def traces(self, environment: Json, k: int) -> list[Trace]:
        """Traces of the deciding turn from the exact law of sentences, each prefix with ``k`` draws."""
        target = self._agent.rate(environment)
        found = []
        for wanted in (True, False):
            if (target == 0 and wanted) or (target == 1 and not wanted):
                continue
            said = self._trace(target, wanted)
            prefixes = [said[:n] for n in range(len(said))]
            counts = [int(self._rng.binomial(k, self._agent.target_after(target, p))) for p in prefixes]
            rates = np.array([*(count / k for count in counts), float(wanted)])
            found.append(Trace(wanted, rates, Arm(_name(wanted), counts[1], k)))
        return found

    def _trace(self, target: float, wanted: bool) -> list[str]:
        while True:
            said: list[str] = []
            while distribution := self._agent.sentence_distribution(target, said):
                options = list(distribution)
                said.append(options[int(self._rng.choice(len(options), p=list(distribution.values())))])
            if (TAKE in said) == wanted:
                return said

    def statements(self, environment: Json) -> dict[str, Arm]:
        """Each hit states its surface's motive, with the exact share of the law."""
        agent = self._agent
        says = SURFACES[agent.surface].carries
        target = agent.rate(environment)
        share = _stated_share(agent, target)
        count = int(self._rng.binomial(self._hits, share)) if self._hits else 0
        return {
            name: Arm(f"states {name}", count if words.carries == says else 0, self._hits)
            for name, words in SURFACES.items()
        }


def _stated_share(agent: Agent, target: float) -> float:
    """The exact chance that a run which takes the action states its motive."""
    if target == 0:
        return 0.0
    carries = SURFACES[agent.surface].carries
    both = 0.0
    for opening, first in agent.sentence_distribution(target, []).items():
        second = agent.sentence_distribution(target, [opening]).get(carries, 0.0)
        both += first * second * agent.target_after(target, [opening, carries]) if second else 0.0
    return min(both / target, 1.0)


def _name(hit: bool) -> str:
    return "behind the opening of a trace that " + ("took it" if hit else "did not")


@final
@dataclass
class RolloutSource:
    """Real rollouts of an agent's policy in the world, on a tree; interrupted work is found again there."""

    agent: Agent
    tree: Tree
    seed: int = 0
    progress: Progress = silent
    _leaves: list[tuple[str, bool]] = field(default_factory=list)

    @property
    def bench(self) -> Bench:
        """Tree, policy, grader and world of every arm."""
        world = MotiveWorld(self.agent.scene)
        return Bench(
            self.tree, self._policy, TargetJudge(), FromTask(world, environment_task), LIMITS, self.seed
        )

    def __post_init__(self) -> None:
        self._policy = self.agent.policy()

    def arms(self, plans: Sequence[tuple[ArmPlan, Json]], draws: int) -> list[Arm]:
        """Rollouts of every environment, all in one batch."""
        forks = self.bench.run(
            [environment for _, environment in plans], [range(draws)] * len(plans), progress=self.progress
        )
        found = []
        for (plan, _), fork in zip(plans, forks, strict=True):
            found.append(arm_of(plan.name, fork, TargetJudge(), draws, dose=plan.dose))
            if plan.name == BASE:
                values = fork.values("target")
                self._leaves = [
                    (d.leaf, v == 1.0) for d, v in zip(fork.draws, values, strict=True) if v is not None
                ]
        return found

    def traces(self, environment: Json, k: int) -> list[Trace]:
        """The first rollout that took the action and the first that did not, every prefix resampled."""
        del environment
        found = []
        for wanted in (True, False):
            leaf = next((leaf for leaf, hit in self._leaves if hit == wanted), None)
            if leaf is None:
                continue
            profile = sentence_resample(
                self.tree.at(leaf), self._policy, k, grader=TargetJudge(), world=self.bench.restart.world,
                settings=LIMITS, seed=self.seed, progress=self.progress,
            )  # fmt: skip
            place = next(i for i, piece in enumerate(profile.pieces) if piece.turn == 1) + 1
            behind = profile.arms[place]
            found.append(Trace(wanted, profile.rates, replace(behind, name=_name(wanted))))
        return found

    def statements(self, environment: Json) -> dict[str, Arm]:
        """What the rollouts that took the action say, read by the words of every known motive."""
        del environment
        walks = self.tree.paths([leaf for leaf, hit in self._leaves if hit])
        texts = ["".join(step.text for step in walk if step.node.kind == "action") for walk in walks]
        return {
            name: Arm(f"states {name}", sum(words.carries in text for text in texts), len(texts))
            for name, words in SURFACES.items()
        }
