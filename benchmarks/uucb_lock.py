"""What an informed choice of fork points is worth: the share of prompts with mixed outcomes, at equal tokens.

World ``lock``: 32 tokens, four of them hidden choices, success 1/256 on average; 512 sampled tokens per
prompt for every side. Sides: independent rollouts (flat), random points (every token, and, stronger, only
the uncertain ones), forks by surprisal, UUCB, and UUCB without entropy. Points of equal prefix are merged for
all of them; random token, surprisal and UUCB have the best or near-best settings of a scan. The rollouts are
simulated from the lock's distribution; the choices are made by the shipped selectors.

A success is known to nobody before it happens, so until then a run does not depend on the hidden code: its
chance to be mixed is the number of different codes it tries, over 256. That expectation is what is reported;
``counted`` is the plain share with the codes drawn. Then leaves that an allocator moves between prompts.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count, product

import numpy as np

from parts.lock_allocator import all_parts
from refork.growing import (
    EVERY,
    UUCB,
    Candidates,
    Group,
    Independent,
    Logged,
    RandomNode,
    Selector,
    Surprisal,
    grow_trees,
)
from refork.growing.points import candidates
from refork.growing.selector import needs_of
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.tree import Tree
from refork.worlds.lock import CHOICES, LENGTH, PIVOTS, PROBABILITIES, LockWorld, lock_distribution

BUDGET = 512
CODES = len(CHOICES) ** len(PIVOTS)
LAW = np.array(PROBABILITIES)
ENTROPY = float(-(LAW * np.log(LAW)).sum())
#: From (choices made, node, token): the name of the new rollout's own node, and its other choices.
Sampler = Callable[[tuple[int, ...], str, int], tuple[str, tuple[int, ...]]]


@dataclass(slots=True)
class LockTree:
    """The rollouts of one lock as a prefix tree, counted as the real candidates are.

    A point is (choices made, position); ``names`` holds the node and token that first showed it.
    """

    inside: int
    code: tuple[int, ...] | None = None
    rows: dict[tuple[tuple[int, ...], int], int] = field(default_factory=dict)
    names: list[tuple[str, int]] = field(default_factory=list)
    position: list[int] = field(default_factory=list)
    children: list[int] = field(default_factory=list)
    leaves: list[int] = field(default_factory=list)
    wins: list[float] = field(default_factory=list)
    said: list[dict[int, float]] = field(default_factory=list)
    codes: list[tuple[int, ...]] = field(default_factory=list)

    def add(self, start: int, made: tuple[int, ...], name: str, root: str = "root") -> None:
        """A rollout that began at a position and made these four choices; ``name`` of its own node."""
        self.codes.append(made)
        won = float(made == self.code)
        for at in range(LENGTH):
            before = made[: sum(p < at for p in PIVOTS)]
            row = self.rows.get((before, at))
            if row is None:
                if at and self.inside != EVERY and at not in PIVOTS:
                    continue
                row = self.rows[before, at] = len(self.names)
                self.names.append((name, at - start) if at else (root, -1))
                for column, zero in ((self.children, 0), (self.leaves, 0), (self.wins, 0.0)):
                    column.append(zero)
                self.position.append(at)
                self.said.append({})
            self.children[row] += at >= start
            self.leaves[row] += 1
            self.wins[row] += won
            if at in PIVOTS:
                choice = made[PIVOTS.index(at)]
                self.said[row][choice] = PROBABILITIES[choice]
            else:
                self.said[row][0] = 1.0

    def candidates(self) -> Candidates:
        """As :func:`refork.growing.points.candidates` would give them."""
        position = np.array(self.position)
        pivot = np.isin(position, PIVOTS)
        first = np.array([next(iter(said.values())) for said in self.said])
        return Candidates(
            node=tuple(name for name, _ in self.names),
            token=np.array([token for _, token in self.names]),
            depth=position,
            children=np.array(self.children),
            leaves=np.array(self.leaves),
            wins=np.array(self.wins),
            entropy=np.where(pivot, ENTROPY, 0.0),
            cost=np.maximum(LENGTH - position, 1).astype(np.float64),
            unseen=np.clip([1.0 - sum(said.values()) for said in self.said], 0.0, 1.0),
            surprisal=-np.log(first),
            drawn=len(self.codes),
            note="exact",
        )


def simulate(
    selector: Selector, sample: Sampler, code: tuple[int, ...] | None = None, root: str = "root"
) -> tuple[LockTree, list[tuple[tuple[str, int], float]], float]:
    """Grow one lock's tree to the token budget; the tree, the choices with their scores, seconds choosing."""
    tree = LockTree(needs_of(selector).inside, code)
    empty = Candidates(
        (root,), np.array([-1]), np.array([0]), *(np.zeros(1) for _ in range(4)), np.array([LENGTH])
    )  # type: ignore[arg-type]
    spent, round_, seconds = 0, 0, 0.0
    made: list[tuple[tuple[str, int], float]] = []
    while True:
        room = BUDGET - spent
        known = tree.candidates() if round_ else empty
        known = known.only(known.cost <= room)
        if not len(known):
            return tree, made, seconds
        started = time.perf_counter()
        picks = selector.select(known, int(room // known.cost.min()), round_)
        seconds += time.perf_counter() - started
        if not picks:
            return tree, made, seconds
        prefixes = {row: key for key, row in tree.rows.items()}
        for pick in picks:
            cost = int(known.cost[pick.index])
            for _ in range(min(pick.draws, room // cost)):
                place = (known.node[pick.index], int(known.token[pick.index]))
                row = tree.names.index(place) if round_ else -1
                before, at = prefixes[row] if round_ else ((), 0)
                made.append((place, pick.terms.get("score", np.nan)))
                name, rest = sample(before, *place)
                tree.add(at, before + rest, name, root)
                spent += cost
                room -= cost
        round_ += 1


def drawing(rng: np.random.Generator) -> Sampler:
    """Choices drawn from the lock's distribution."""
    numbers = count()

    def sample(before: tuple[int, ...], node: str, token: int) -> tuple[str, tuple[int, ...]]:
        del node, token
        rest = rng.choice(len(CHOICES), len(PIVOTS) - len(before), p=LAW)
        return f"rollout {next(numbers)}", tuple(int(c) for c in rest)

    return sample


@dataclass(frozen=True, slots=True)
class Side:
    """One side's figures over prompts."""

    mixed: float
    error: float
    counted: float
    leaves: float
    ms: float


def measure(selector: Selector, prompts: int, seed: int) -> Side:
    """Mean over prompts, with its standard error; the same hidden codes for every side."""
    codes = np.random.default_rng(seed).integers(0, len(CHOICES), (prompts, len(PIVOTS)))
    tried, counted, leaves, seconds, choices = [], [], [], 0.0, 0
    for i in range(prompts):
        tree, made, used = simulate(selector, drawing(np.random.default_rng([seed, i])), root=f"root {i}")
        different = set(tree.codes)
        tried.append(len(different) / CODES)
        counted.append(tuple(int(c) for c in codes[i]) in different and len(different) > 1)
        leaves.append(len(tree.codes))
        seconds += used
        choices += len(made)
    error = float(np.std(tried, ddof=1) / np.sqrt(prompts))
    return Side(
        float(np.mean(tried)),
        error,
        float(np.mean(counted)),
        float(np.mean(leaves)),
        1000 * seconds / choices,
    )


def jensen(leaves: int = 16) -> list[float]:
    """P(any success) of 16 leaves that all part after pivot 0, 1, 2 or 3; exact, mean over hidden codes."""
    chances = np.array(list(product(PROBABILITIES, repeat=len(PIVOTS))))
    found = []
    for shared in range(len(PIVOTS)):
        reach, rest = chances[:, :shared].prod(1), chances[:, shared:].prod(1)
        found.append(float((reach * (1 - (1 - rest) ** leaves)).mean()))
    return found


def real(selector: Selector, prompts: int) -> dict[str, float]:
    """The same selector on the real world and policy: share of equal choices, and its cost in ms.

    The simulation is fed what the policy really drew; every choice must then name the same node and token.
    """
    world, policy = LockWorld(), ScriptedPolicy.from_text(lock_distribution, name="lock")
    tasks = world.tasks("train", prompts)
    settings = Sampling(max_tokens=LENGTH)
    equal, total, mixed = 0, 0, 0
    with Tree.memory() as tree:
        started = time.perf_counter()
        groups, log = grow_trees(
            tree, policy, world, tasks, selector=selector, tokens=BUDGET, settings=settings
        )
        growing = time.perf_counter() - started
        for task, group in zip(tasks, groups, strict=True):
            known = [entry for entry in log if entry.task == task.id]
            code = tuple(CHOICES.index(c) for c in task.data["right"])
            _, made, _ = simulate(selector, replaying(group, known), code, group.root.node.id)
            told = [f"{node}:{'end' if token < 0 else token}" for (node, token), _ in made]
            said = [entry.point for entry in known for _ in range(entry.choice.draws)]
            equal += sum(a == b for a, b in zip(told, said, strict=False))
            total += max(len(told), len(said))
            mixed += len({v for v in group.values() if v is not None}) > 1
        trajectories = [trajectory for arm in groups[0].forks for trajectory in arm.leaves()]
        traces: dict[str, object] = {}
        candidates(tree, trajectories, inside=needs_of(selector).inside, known=traces)  # type: ignore[arg-type]
        started = time.perf_counter()
        for _ in range(20):
            found = candidates(tree, trajectories, inside=needs_of(selector).inside, known=traces)  # type: ignore[arg-type]
            selector.select(found, 1, 1)
        choosing = (time.perf_counter() - started) / 20
    return {
        "equal": equal / total, "ms": 1000 * choosing, "share": choosing * total / growing,
        "mixed": mixed / prompts,
    }  # fmt: skip


def replaying(group: Group, log: list[Logged]) -> Sampler:
    """What was really drawn, in the order in which it was chosen."""
    drawn = iter(recorded(group, log))

    def sample(before: tuple[int, ...], node: str, token: int) -> tuple[str, tuple[int, ...]]:
        del node, token
        name, made = next(drawn)
        return name, made[len(before) :]

    return sample


def recorded(group: Group, log: list[Logged]) -> list[tuple[str, tuple[int, ...]]]:
    """Node and choices of every draw of a group, in the order in which they were chosen."""
    waiting = {arm.point.address: iter(arm.leaves()) for arm in group.forks}
    found = []
    for entry in log:
        for _ in range(entry.choice.draws):
            trajectory = next(waiting[entry.point])
            spoken = "".join(step.text for step in trajectory if step.node.kind == "action")
            node = next(s.node for s in reversed(trajectory.steps) if s.node.kind == "action")
            found.append((node.id, tuple(CHOICES.index(spoken[p]) for p in PIVOTS)))
    return found


def main() -> None:
    """Measure, print the table, and the figures as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="ends within 50 s on 2 cores")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    prompts = 150 if options.quick else 1000
    sides: dict[str, Selector] = {
        "flat": Independent(),
        "random": RandomNode(options.seed, inside=EVERY),
        "random_uncertain": RandomNode(options.seed, inside=4),
        "surprisal": Surprisal(roots=8, top=1, draws=2, rounds=30),
        "uucb": UUCB(c=0.25, entropy_coef=2, entropy="unseen"),
        "uucb_plain": UUCB(),
        "uucb_every_token": UUCB(inside=EVERY),
        "no_entropy_term": UUCB(c=0.25, entropy_coef=0),
        "no_entropy": UUCB(c=0.25, entropy_coef=0, inside=EVERY),
    }
    started = time.monotonic()
    found = {name: measure(selector, prompts, options.seed) for name, selector in sides.items()}
    print("side               mixed   +-      counted  leaves  tokens/leaf  ms/choice")
    for name, side in found.items():
        print(
            f"{name:18s} {side.mixed:6.3f} {side.error:7.4f} {side.counted:7.3f} {side.leaves:8.1f} "
            f"{BUDGET / side.leaves:9.1f} {side.ms:11.3f}"
        )
    control = jensen()
    print("all 16 leaves part after pivot 0/1/2/3, P(any success):", " ".join(f"{p:.3f}" for p in control))
    check = real(sides["uucb"], 4 if options.quick else 16)
    print(
        f"on the real tree: {check['equal']:.0%} of the choices equal, {check['ms']:.1f} ms per expansion "
        f"({check['share']:.0%} of the time), {prompts} prompts, {time.monotonic() - started:.0f} s"
    )
    moved = all_parts(options.quick)
    mixed = {name: round(side.mixed, 4) for name, side in found.items()}
    print(
        json.dumps(
            {f"mixed_{name}": value for name, value in mixed.items()}
            | {
                "uucb_over_flat": round(mixed["uucb"] / mixed["flat"], 3),
                "uucb_over_random": round(mixed["uucb"] / mixed["random"], 3),
                "uucb_over_random_uncertain": round(mixed["uucb"] / mixed["random_uncertain"], 3),
                "no_entropy_loss": round(1 - mixed["no_entropy"] / mixed["uucb"], 3),
                "jensen": [round(p, 4) for p in control],
                "leaves": {name: round(side.leaves, 1) for name, side in found.items()},
                "counted": {name: side.counted for name, side in found.items()},
                "select_ms": round(found["uucb"].ms, 3),
                "expansion_ms": round(check["ms"], 2),
                "real_equal": check["equal"],
                "prompts": prompts,
            }
            | moved
        )
    )


if __name__ == "__main__":
    main()
