"""One task's tree while it grows: what was drawn, what it cost, and what may be forked next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from refork.errors import BadInput, CannotDo
from refork.forking.arm import Fork, ReadyArm, prepare, resolved_scores
from refork.forking.run_on import world_producer
from refork.forking.settings import ForkSettings
from refork.growing.distributions import next_distributions
from refork.growing.points import PointArrays, candidates
from refork.growing.selector import Candidates, ForkChoice, Needs, Selector, needs_of
from refork.policies.base import Policy, PolicyCard, Sampling
from refork.tree.node import Point, Step, Trajectory
from refork.tree.score import DrawRecord
from refork.tree.tree import Tree
from refork.worlds.base import Task, World

#: Vocabularies up to here get exact entropies; larger ones the entropy of the likeliest tokens.
_EXACT, _TOP, _TOP_REMOTE = 4096, 64, 20


@dataclass(frozen=True, slots=True)
class Budget:
    """What one task may use: ``leaves`` rollouts, or ``tokens`` sampled tokens. Exactly one is given.

    A rollout begins only while its expected tokens fit, so a token budget is passed by no more than the
    last rollouts' own variation. ``floor``: stop early once outcomes are mixed and the best score per
    expected token falls below it (selectors that score only).
    """

    leaves: int | None = None
    tokens: int | None = None
    floor: float | None = None

    def __post_init__(self) -> None:
        if (self.leaves is None) == (self.tokens is None):
            raise BadInput("a budget is in leaves or in tokens: give exactly one of them", where="budget")
        amount = self.leaves if self.leaves is not None else self.tokens
        unit = "leaves" if self.leaves is not None else "tokens"
        if amount is None or amount < 1:
            raise BadInput(f"{unit} is {amount}; at least 1 is needed", where="budget")

    def check(self, settings: Sampling) -> None:
        """Refuse tokens that may not hold one rollout."""
        if self.tokens is not None and self.tokens < settings.max_tokens:
            raise BadInput(
                f"a budget of {self.tokens} tokens may not hold one turn of up to {settings.max_tokens}",
                where="budget",
                hint="raise the budget, or lower max_tokens",
            )


@dataclass(frozen=True, slots=True)
class Logged:
    """One choice of a selector: task, round, the choice with its terms, the address of the point.

    ``stale``: leaves of the task that were on their way, and unknown to it, when it was made.
    """

    task: str
    round: int
    choice: ForkChoice
    point: str
    stale: int = 0


@dataclass(frozen=True, slots=True)
class GrowSetup:
    """What all tasks of one call share."""

    tree: Tree
    policy: Policy
    world: World
    selector: Selector
    settings: Sampling
    on: ForkSettings

    @property
    def needs(self) -> Needs:
        """What the selector needs."""
        return needs_of(self.selector)

    def outcomes(self, leaves: Sequence[str], score: str = "success") -> dict[str, float]:
        """Known scores of leaves: by this call's judge, else by its world, else the newest.

        What somebody else graded meanwhile does not move the choices of a run that is made again.
        """
        judge = self.on.judge
        if judge is not None and judge.score == score:
            return resolved_scores(self.tree, score, leaves, (judge.producer.id, score))
        own = world_producer(self.world.name, self.world.version).id
        return resolved_scores(self.tree, score, leaves) | self.tree.score_map(score, leaves, own)


def settings_for(needs: Needs, settings: Sampling, card: PolicyCard) -> Sampling:
    """Sampling settings that record what a selector needs: exact entropies, or of the likeliest tokens.

    Raises CannotDo where the policy returns no log-probs and the selector cannot do without entropies.
    """
    if not needs.entropy or settings.entropy_top_k is not None:
        return settings
    if not card.can("logprobs"):
        raise CannotDo(
            f"{card.name!r} returns no log-probs, so there is no entropy to choose points by",
            hint="a selector without entropy: --selector independent, or entropy_coef=0 and inside=0",
        )
    if card.vocabulary is None:
        return settings.but(entropy_top_k=_TOP_REMOTE)
    return settings.but(entropy_top_k=card.vocabulary if card.vocabulary <= _EXACT else _TOP)


@dataclass(slots=True)
class Growing:
    """One task's tree while it grows. Draws count in the order in which they were claimed."""

    task: Task
    root: Point
    budget: Budget
    arms: dict[str, Fork] = field(default_factory=dict)
    claimed: dict[str, int] = field(default_factory=dict)
    order: list[tuple[str, int]] = field(default_factory=list)
    trajectories: dict[tuple[str, int], Trajectory] = field(default_factory=dict)
    spent: dict[tuple[str, int], int] = field(default_factory=dict)
    pending: dict[tuple[str, int], int] = field(default_factory=dict)
    reserved: dict[tuple[str, int], float] = field(default_factory=dict)
    dropped: set[tuple[str, int]] = field(default_factory=set)
    traces: dict[str, PointArrays] = field(default_factory=dict)
    over: bool = False

    @property
    def drawn(self) -> int:
        """Leaves drawn or on their way."""
        return len(self.order) - len(self.dropped)

    @property
    def tokens(self) -> int:
        """Tokens sampled for this task's own draws, recorded ones included."""
        return sum(self.spent.values())

    @property
    def room(self) -> int:
        """Tokens of a token budget that are neither spent nor expected by what is on its way."""
        return (self.budget.tokens or 0) - self.tokens - round(sum(self.reserved.values()))

    @property
    def used(self) -> tuple[int, int]:
        """How much of the budget is used, and all of it, in its own unit."""
        if self.budget.leaves is not None:
            return self.drawn, self.budget.leaves
        return min(self.tokens, self.budget.tokens or 0), self.budget.tokens or 0

    def claim(self, fork: str, address: str, count: int) -> list[int]:
        """The next draws of an arm, as this task's own."""
        first = self.claimed.get(address, 0)
        self.claimed[address] = first + count
        mine = list(range(first, first + count))
        self.order += [(fork, draw) for draw in mine]
        return mine

    def add_arm(self, arm: Fork) -> None:
        """Keep an arm as it is now; what this call sampled for it adds up."""
        before = self.arms.get(arm.record.id)
        if before is not None:
            used = (arm.tokens + before.tokens, arm.ties + before.ties, arm.seconds + before.seconds)
            arm = replace(arm, tokens=used[0], ties=used[1], seconds=used[2])
        self.arms[arm.record.id] = arm

    def take(self, plan: GrowSetup, draws: Sequence[DrawRecord]) -> None:
        """Note finished draws, and what they cost."""
        for record, trajectory in zip(draws, plan.tree.paths([d.leaf for d in draws]), strict=True):
            key = (record.fork, record.draw)
            self.spent[key] = sum(own_turns(trajectory, *key))
            if record.end != "error":
                self.trajectories[key] = trajectory

    def known(self, plan: GrowSetup) -> Candidates:
        """What a selector may choose from now."""
        needs = plan.needs
        done = [
            self.trajectories[key]
            for key in self.order
            if key in self.trajectories and key not in self.dropped
        ]
        bare = [Trajectory((Step(self.root.node, None),))]
        found = candidates(
            plan.tree, done or bare, inside=needs.inside, pending=self.pending, known=self.traces,
            outcomes=plan.outcomes([trajectory.leaf.id for trajectory in done]),
        )  # fmt: skip
        size, top = plan.policy.card.vocabulary, plan.settings.entropy_top_k
        if top is not None and size is not None and top >= size:
            found = replace(found, note="exact")
        if needs.distributions and done:
            found = replace(found, distributions=next_distributions(plan.tree, plan.policy, found))
        return replace(found, drawn=self.drawn)

    def choose(self, plan: GrowSetup, round_: int) -> list[tuple[ForkChoice, Point]]:
        """The selector's next points, as far as the budget goes; the choices say how many draws."""
        if self.over or self.left(plan, None) < 1:
            return []
        known = self.known(plan)
        if round_ > 0 and self.budget.tokens is not None:
            known = known.only(known.cost <= self.room)
            if not len(known):
                return []
        room = self.left(plan, known if round_ > 0 else None)
        tokens = self.room
        picks = []
        for pick in plan.selector.select(known, room, round_):
            draws = min(pick.draws, room)
            if self.budget.tokens is not None and round_ > 0:
                draws = min(draws, int(tokens // known.cost[pick.index]))
            if draws < 1 or self._enough(plan, pick, float(known.cost[pick.index])):
                break
            token = int(known.token[pick.index])
            point = plan.tree.at(known.node[pick.index], None if token < 0 else token)
            picks.append((replace(pick, draws=draws), point))
            room -= draws
            tokens -= int(draws * known.cost[pick.index])
        return picks

    def left(self, plan: GrowSetup, known: Candidates | None) -> int:
        """Draws that may still be begun; of a token budget, how many of the cheapest would fit."""
        if self.budget.leaves is not None:
            return self.budget.leaves - self.drawn
        room = self.room
        if known is None:
            # Nothing is known of the costs: every turn may be as long as allowed. A group needs two.
            worst = plan.settings.max_tokens * plan.world.max_turns
            return max(room // worst, 2) if not self.order else room
        return int(room // float(known.cost.min()))

    def _enough(self, plan: GrowSetup, pick: ForkChoice, cost: float) -> bool:
        floor = self.budget.floor
        if floor is None or "score" not in pick.terms:
            return False
        # A selector that ranks by tokens has divided by the cost already.
        score = pick.terms["score"] / (1.0 if getattr(plan.selector, "per_token", False) else cost)
        return len(set(self.outcomes(plan))) > 1 and score < floor

    def job(self, plan: GrowSetup, point: Point, count: int) -> tuple[ReadyArm, list[int]]:
        """An arm with this task's next draws from a point, ready to run."""
        address = point.address
        # Counted by this call alone: draws that the tree holds already are claimed again, and so found.
        first = self.claimed.get(address, 0)
        job = prepare(point, plan.policy, list(range(first, first + count)), **plan.on.options())
        return job, self.claim(job.record.id, address, count)

    def own_draws(self, arm: Fork) -> tuple[DrawRecord, ...]:
        """This call's draws of an arm; others may be on the tree from elsewhere."""
        mine = {draw for fork, draw in self.order if fork == arm.record.id}
        return tuple(d for d in arm.draws if d.draw in mine and (arm.record.id, d.draw) not in self.dropped)

    def kept_arms(self) -> tuple[Fork, ...]:
        """The arms with this call's draws only."""
        return tuple(replace(arm, draws=self.own_draws(arm)) for arm in self.arms.values())

    def outcomes(self, plan: GrowSetup, score: str = "success") -> list[float]:
        """Known outcomes of this call's leaves so far, in the order of their claims."""
        ends = [
            self.trajectories[key].leaf.id
            for key in self.order
            if key in self.trajectories and key not in self.dropped
        ]
        known = plan.outcomes(ends, score)
        return [known[leaf] for leaf in ends if leaf in known]


def own_turns(trajectory: Trajectory, fork: str, draw: int) -> list[int]:
    """Tokens of each turn that one draw itself sampled; the prefix it began with does not count."""
    turns = []
    for node in (step.node for step in trajectory):
        own = node.fork == fork and node.noise is not None and node.noise.draw == draw
        if node.kind == "action" and own:
            # Text without token ids has length 0; what it cost is then the server's own count.
            turns.append(node.length or node.cost.tokens_out or 0)
    return turns
