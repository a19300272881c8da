"""Does the log-ratio of a trained policy and its reference grade steps, where plain log-probs do not?

Exact part: a random stochastic MDP, on which the identity must hold to rounding. Toy part: the corridor
agent after 10, 100 and 1000 updates of exact KL-regularised policy gradient, graded on a mixture of
optimum and reference, with 0, 2 and 8 filler tokens per action; and failed runs with one planted mistake.
Neural part (not in the quick form): a small transformer, fine-tuned on demonstrations (kept as
reference), then trained by group policy gradient with a KL price; rules chosen on a separate split.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from refork.growing import grow
from refork.policies.base import Sampling
from refork.policies.local import LocalPolicy
from refork.stats import auroc
from refork.tree.node import Trajectory
from refork.tree.tree import Tree
from refork.worlds.base import Observation, Task
from refork_methods.implicit.aggregate import PairLogprobs, sensitivity_grid, trajectory_score
from refork_methods.implicit.attribute import decisive_step, step_accuracy
from refork_methods.implicit.choose import select_best
from refork_methods.implicit.corridor import ACTIONS, JUMP, REFERENCE, START, corridor
from refork_methods.implicit.on_tree import model_pairs
from refork_methods.implicit.pair import ImplicitPair
from refork_methods.implicit.predict import tune
from refork_methods.implicit.soft_values import (
    FiniteMdp,
    Runs,
    along,
    chance_split,
    expectations,
    log_ratio_advantages,
    simulate,
    soft_value_iteration,
)
from refork_methods.train.batch import trajectories_to_batch
from refork_methods.train.loop import group_trajectories
from refork_methods.train.objectives import PolicyGradientSettings
from refork_methods.train.policy_gradient import group_advantages, policy_gradient_step
from refork_methods.train.sft import SftSettings, train
from refork_testbed.models.build import new_model
from refork_testbed.models.recipe import Shape
from refork_testbed.models.tokenizer import examples, make_tokenizer
from refork_testbed.trials.regularised import ascend, regularised_values

Floats = NDArray[np.float64]
BETA, RATE = 0.3, 1.0
FILLERS = (0, 2, 8)
UPDATES = (10, 100, 1000)
NEURAL_BETA = 0.05
SAMPLING = Sampling(max_tokens=8)


def random_mdp(rng: np.random.Generator, states: int = 12, actions: int = 4, steps: int = 6) -> FiniteMdp:
    """Dense random transitions and rewards that depend on where a step led."""
    chances = rng.dirichlet(np.full(states, 0.3), size=(states, actions))
    rewards = rng.normal(size=(states, actions, states))
    return FiniteMdp(chances, rewards, np.zeros(states, dtype=bool), steps)


def identity() -> dict[str, float]:
    """The largest error of each identity, and what part of the return's variance is luck."""
    rng = np.random.default_rng(0)
    mdp = random_mdp(rng)
    best = soft_value_iteration(mdp, rng.dirichlet(np.ones(4), size=12), BETA)
    values, quality = regularised_values(mdp, best.policy, best.reference, BETA)
    ratio = log_ratio_advantages(best.policy, best.reference, BETA)
    means = expectations(best)
    runs = simulate(mdp, best.policy, 20_000, rng)
    split = chance_split(best, runs)
    errors = {
        "log-ratio and advantage by evaluation": np.abs(ratio - (quality - values[:-1, :, None])).max(),
        "value by recursion and by evaluation": np.abs(values - best.values).max(),
        "E_ref exp(A/beta) = 1": np.abs(means.exp_reference - 1).max(),
        "E_pi A = beta KL": np.abs(means.policy_mean - means.policy_kl).max(),
        "E_ref A = -beta KL": np.abs(means.reference_mean + means.reference_kl).max(),
        "return = baseline + A + luck": np.abs(
            split.returns - split.baseline - split.advantage - split.chance
        ).max(),
    }
    print("identity                                  largest error")
    for name, error in errors.items():
        print(f"{name:40s}  {error:.1e}")
    parts = {"return": split.returns, "advantage": split.advantage, "luck": split.chance}
    print("variance: " + ", ".join(f"{name} {part.var():.3f}" for name, part in parts.items()))
    return {name: float(error) for name, error in errors.items()}


def mixture(mdp: FiniteMdp, laws: list[Floats], count: int, seed: int) -> Runs:
    """Episodes of several distributions in equal parts, shuffled."""
    rng = np.random.default_rng(seed)
    parts = [simulate(mdp, distribution, count // len(laws), rng, START) for distribution in laws]
    order = rng.permutation(sum(len(part.states) for part in parts))
    return Runs(
        np.concatenate([part.states for part in parts])[order],
        np.concatenate([part.actions for part in parts])[order],
        np.concatenate([part.rewards for part in parts])[order],
    )


@dataclass(frozen=True)
class Grades:
    """One row of the table."""

    auroc: float
    best: float
    mean: float
    oracle: float


def grade(scores: Floats, returns: Floats) -> Grades:
    """AUROC, and what best-of-8 earns when ties are broken at random (the mean over all ways)."""
    tasks = [i // 8 for i in range(len(scores))]
    chosen = select_best(scores, tasks, returns, seed=1)
    return Grades(auroc(scores, returns).estimate, chosen.expected, chosen.mean, chosen.oracle)


def with_filler(action: Floats, fillers: int, seed: int = 5) -> Floats:
    """Log-probs [n, H, 1 + fillers]: each action, then tokens that both models find equally likely."""
    rng = np.random.default_rng(seed)
    filler = -rng.exponential(size=(*action.shape, fillers))
    return np.concatenate([action[..., None], filler], axis=-1)


def score(runs: Runs, policy: Floats, reference: Floats, fillers: int) -> tuple[Floats, Floats]:
    """Sum of the tokens' log-ratios, and mean log-prob of the tokens under the policy, [n] each."""
    mine = with_filler(along(np.log(policy), runs), fillers)
    other = with_filler(along(np.log(reference), runs), fillers)
    taken = runs.actions >= 0
    ratio = np.where(taken[..., None], mine - other, 0.0).sum((1, 2))
    tokens = taken.sum(1) * (1 + fillers)
    return BETA * ratio, np.where(taken[..., None], mine, 0.0).sum((1, 2)) / tokens


def toy(count: int) -> dict[str, float]:
    """The corridor table; what the claim is about."""
    mdp = corridor()
    best = soft_value_iteration(mdp, REFERENCE, BETA)
    runs = mixture(mdp, [best.policy, best.reference], count, seed=0)
    returns, truth = runs.returns, along(best.advantages, runs)
    taken = runs.actions >= 0
    print(f"\ncorridor, {count} trajectories of the 50/50 mixture of optimum and reference, beta {BETA}")
    print("policy          filler  corr. with A*  AUROC ratio  AUROC log-prob  best-of-8 ratio  log-prob")
    distributions = {"optimum": best.policy, "untrained": best.reference}
    distributions |= {
        f"{n} updates": ascend(mdp, REFERENCE, BETA, n, rate=RATE, start=START) for n in UPDATES
    }
    table: dict[tuple[str, int], tuple[Grades, Grades]] = {}
    change = 0.0
    for name, distribution in distributions.items():
        plain = score(runs, distribution, best.reference, 0)[0]
        own = along(log_ratio_advantages(distribution, best.reference, BETA), runs)[taken]
        like = float(np.corrcoef(own, truth[taken])[0, 1]) if np.ptp(own) > 0 else float("nan")
        for fillers in FILLERS:
            ratio, logprob = score(runs, distribution, best.reference, fillers)
            change = max(change, float(np.abs(ratio - plain).max()))
            # Equal scores must stay ties: filler leaves rounding errors of about 1e-15.
            a, b = grade(np.round(ratio, 10), returns), grade(logprob, returns)
            table[name, fillers] = a, b
            print(
                f"{name:15s} {fillers:6d} {like:14.3f} {a.auroc:12.3f} {b.auroc:15.3f} "
                f"{a.best:16.3f} {b.best:9.3f}"
            )
    first = table["optimum", 0][0]
    print(
        f"mean success {first.mean:.3f}, oracle of 8 {first.oracle:.3f}; filler changes a sum by {change:.1e}"
    )
    late = [table[f"{n} updates", f][0] for n in UPDATES if n >= 100 for f in FILLERS]
    filled = [table[f"{n} updates", 8][1] for n in UPDATES if n >= 100] + [table["optimum", 8][1]]
    idle = table["untrained", 0][0]
    return {
        "auroc": min(g.auroc for g in late),
        "best_of_8_over_mean": min(g.best / g.mean for g in late),
        "filler_change": change,
        "logprob_auroc_filler": max(g.auroc for g in filled),
        "untrained_auroc": idle.auroc,
        "untrained_best_over_mean": idle.best / idle.mean,
        "best_of_8": min(g.best for g in late),
        "oracle_of_8": first.oracle,
    }


def planted(mdp: FiniteMdp, law: Floats, count: int, seed: int) -> tuple[Runs, NDArray[np.int64]]:
    """Failed episodes that would have succeeded: one action of a successful run was made a risky jump.

    Returns them and the step (0-based) of the planted jump, drawn evenly from the steps of the run.
    """
    rng = np.random.default_rng(seed)
    natural = simulate(mdp, law, 12 * count, rng, START)
    length = (natural.actions >= 0).sum(1)
    at = (rng.random(len(length)) * length).astype(np.int64)
    states, actions, rewards = natural.states.copy(), natural.actions.copy(), natural.rewards.copy()
    moves, distributions = np.cumsum(mdp.chances, -1), np.cumsum(law, -1)
    for step in range(mdp.steps):
        rows = np.flatnonzero(step >= at)
        here = states[rows, step]
        draw = (
            (rng.random(len(rows))[:, None] >= distributions[step, here])
            .sum(-1)
            .clip(max=distributions.shape[-1] - 1)
        )
        chosen = np.where(step == at[rows], JUMP, draw)
        after = (rng.random(len(rows))[:, None] >= moves[here, chosen]).sum(-1).clip(max=len(mdp.over) - 1)
        over = mdp.over[here]
        states[rows, step + 1] = np.where(over, here, after)
        actions[rows, step] = np.where(over, -1, chosen)
        rewards[rows, step] = np.where(over, 0.0, mdp.rewards[here, chosen, after])
    # Where the natural run jumped there itself, nothing was planted.
    new = (natural.actions[np.arange(len(at)), at] != JUMP) & (natural.returns > 0)
    failed = np.flatnonzero((rewards.sum(1) == 0) & new)[:count]
    return Runs(states[failed], actions[failed], rewards[failed]), at[failed]


def attribution(count: int) -> dict[str, float]:
    """Hit rates of both rules and of log-probs, for three settings; the first is the claim."""
    mdp = corridor()
    cases = ((0.1, REFERENCE), (0.3, REFERENCE), (0.1, (0.1, 0.3, 0.3, 0.3)))
    print("\nplanted mistake: share of failed runs whose decisive step is named (integers)")
    print("beta  reference jumps  chance  lowest  running sum  sharpest drop  log-prob, 8 fillers  runs")
    figures: list[dict[str, float]] = []
    for number, (beta, reference) in enumerate(cases):
        best = soft_value_iteration(mdp, reference, beta)
        runs, at = planted(mdp, best.policy, count, seed=10 + number)
        length = (runs.actions >= 0).sum(1)
        ratio = along(best.advantages, runs)
        logprob = with_filler(along(np.log(best.policy), runs), 8).mean(-1)
        hits = {
            rule: step_accuracy([decisive_step(row, rule).step for row in ratio], at.tolist()).exact
            for rule in ("lowest", "running-sum", "drop")
        }
        hits["logprob"] = step_accuracy([int(np.nanargmin(row)) for row in logprob], at.tolist()).exact
        hits["chance"] = float((1 / length).mean())
        print(
            f"{beta:4.1f} {reference[JUMP]:16.1f} {hits['chance']:7.2f} {hits['lowest']:7.3f} "
            f"{hits['running-sum']:12.3f} {hits['drop']:14.3f} {hits['logprob']:20.3f} {len(at):5d}"
        )
        figures.append(hits)
    first = figures[0]
    return {
        "attribution_lowest": first["lowest"],
        "attribution_running_sum": first["running-sum"],
        "attribution_logprob": first["logprob"],
        "attribution_chance": first["chance"],
    }


WORDS = ("so", "then", "now", "well", "next", "and")
NOISE = ("fog", "rain", "sun", "wind")
SAY = 4  # filler words of a turn, some of them rare
HABIT = (0.45, 0.25, 0.15, 0.08, 0.05, 0.02)


@dataclass(frozen=True)
class Hall:
    """The corridor as a shorter text world: goal at +4 in 8 turns, with weather that means nothing."""

    name: str = "hall"
    version: str = "1"
    max_turns: int = 8
    deterministic: bool = False

    def tasks(self, split: str, count: int, seed: int = 0) -> list[Task]:
        """Tasks that differ in their number only."""
        return [Task(f"hall/{split}/{seed + i}", "hall", split, "reach 4") for i in range(count)]

    def start(self, task: Task, seed: int) -> HallEpisode:
        """At 0."""
        return HallEpisode(seed)

    def restore(self, task: Task, snapshot: bytes) -> HallEpisode:
        """As a snapshot says."""
        seed, turn, place = (int(part) for part in snapshot.split())
        return HallEpisode(seed, turn, place)


@dataclass
class HallEpisode:
    """One trajectory; chance is a function of seed and turn."""

    seed: int
    turn: int = 0
    place: int = 0

    @property
    def first(self) -> Observation:
        """The start."""
        return self._see()

    def _see(self, done: bool = False, reward: float | None = None) -> Observation:
        noise = NOISE[int(np.random.default_rng([self.seed, self.turn, 1]).integers(4))]
        text = f"at {self.place} left {8 - self.turn} {noise}"
        return Observation(text, f"{self.place}/{self.turn}", done, reward)

    def step(self, action: str) -> Observation:
        """The first word acts."""
        luck = np.random.default_rng([self.seed, self.turn, 0]).random()
        word = (action.split() or [""])[0]
        self.turn += 1
        if word == "jump" and luck >= 0.3:
            return self._see(True, 0.0)
        move = {"forward": int(luck >= 0.15), "jump": 2, "back": -1}.get(word, 0)
        self.place = max(-8, min(4, self.place + move))
        if self.place == 4:
            return self._see(True, 1.0)
        return self._see(self.turn == 8, 0.0 if self.turn == 8 else None)

    def snapshot(self) -> bytes:
        """Seed, turn and place."""
        return f"{self.seed} {self.turn} {self.place}".encode()

    def reseed(self, seed: int) -> None:
        """Another chance from here on."""
        self.seed = seed

    def close(self) -> None:
        """Nothing is held."""


def demonstrations(count: int, seed: int) -> list[list[dict[str, Any]]]:
    """Trajectories of the reference distribution, each turn an action and filler words by habit."""
    rng, found = np.random.default_rng(seed), []
    for number in range(count):
        episode = HallEpisode(1_000_000 + number)
        seen = episode.first
        messages = [{"role": "user", "content": f"reach 4\n{seen.text}"}]
        while not seen.done:
            said = [str(rng.choice(["forward", "back", "jump", "wait"], p=REFERENCE))]
            said += [str(word) for word in rng.choice(WORDS, SAY, p=HABIT)]
            messages.append({"role": "assistant", "content": " ".join(said)})
            seen = episode.step(messages[-1]["content"])
            if not seen.done:
                messages.append({"role": "user", "content": seen.text})
        found.append(messages)
    return found


def fine_tuned(seed: int) -> tuple[LocalPolicy, LocalPolicy]:
    """A two-layer transformer of width 64 after fine-tuning, twice: to be trained, and to be kept."""
    words = ["reach", "at", "left", "-", *map(str, range(9)), *ACTIONS, *WORDS, *NOISE]
    tokenizer = make_tokenizer(words, 256)
    torch.manual_seed(seed)
    model = new_model(Shape(layers=2, width=64, heads=2, hidden=128, context=256), tokenizer)
    plan = SftSettings(steps=250, rows=32, learning_rate=3e-3, seed=seed)
    train(model, examples(tokenizer, demonstrations(1500, seed)), plan)
    reference = LocalPolicy(copy.deepcopy(model), tokenizer, name="reference")
    return LocalPolicy(model, tokenizer, name="policy", reference=reference), reference


def rollouts(policy: LocalPolicy, tasks: list[Task], draws: int, seed: int) -> list[tuple[Trajectory, float]]:
    """Graded trajectories, in order of tasks."""
    found = []
    with Tree.memory() as tree:
        for group in grow(tree, policy, Hall(), tasks, draws=draws, settings=SAMPLING, seed=seed):
            trajectories, outcomes = group_trajectories(group)
            found += list(zip(trajectories, outcomes, strict=True))
    return found


@dataclass(frozen=True)
class Graded:
    """Trajectories of some tasks: both models' log-probs, outcomes, task names, and a name for each path."""

    pairs: list[PairLogprobs]
    outcomes: Floats
    tasks: list[str]
    names: list[str]

    def part(self, rows: list[int]) -> Graded:
        """Some of the trajectories."""
        return Graded(
            [self.pairs[i] for i in rows],
            self.outcomes[rows],
            [self.tasks[i] for i in rows],
            [self.names[i] for i in rows],
        )


def graded(policy: LocalPolicy, reference: LocalPolicy, first: int, seed: int) -> dict[str, Graded]:
    """Trajectories of 60 tasks, 8 each: of the reference alone, and half of them from either model."""
    tasks = Hall().tasks("held-out", 60, first)
    trajectories = rollouts(reference, tasks, 8, seed) + rollouts(policy, tasks, 4, seed + 1)
    pairs = model_pairs([w for w, _ in trajectories], ImplicitPair(policy, reference, beta=NEURAL_BETA))
    names = [w.root.extra["task"]["id"] for w, _ in trajectories]
    whole = Graded(pairs, np.array([o for _, o in trajectories]), names, [w.leaf.id for w, _ in trajectories])
    return {
        "reference": whole.part(list(range(480))),
        "mixture": whole.part([*(i for i in range(480) if i % 8 < 4), *range(480, len(trajectories))]),
    }


def report(policy: LocalPolicy, reference: LocalPolicy, seed: int, updates: int) -> list[dict[str, Any]]:
    """Two rows: rules fixed on tasks 0-59, everything reported on tasks 100-159."""
    tuning = graded(policy, reference, 0, 1000 + seed)
    rows = []
    for trajectories, there in graded(policy, reference, 100, 2000 + seed).items():
        grids = [sensitivity_grid(pair) for pair in tuning[trajectories].pairs]
        columns = {name: [grid[name] for grid in grids] for name in grids[0]}
        chosen, _ = tune(
            columns,
            tuning[trajectories].outcomes,
            tuned_on=tuning[trajectories].names,
            reported_on=there.names,
        )
        scores = {
            "sum": np.array([trajectory_score(p) for p in there.pairs]),
            "tuned": np.array([sensitivity_grid(p)[chosen] for p in there.pairs]),
            "logprob": np.array([p.policy[p.step_id >= 0].mean() for p in there.pairs]),
        }
        row: dict[str, Any] = {"seed": seed, "updates": updates, "walks": trajectories, "tuned": chosen}
        for name, values in scores.items():
            best = select_best(values, there.tasks, there.outcomes)
            row |= {f"auroc_{name}": auroc(values, there.outcomes).estimate, f"best_{name}": best.expected}
            row |= {"mean": best.mean, "oracle": best.oracle}
        print(
            f"{seed:4d} {updates:7d}  {trajectories:9s} {row['mean']:6.3f} {row['auroc_sum']:10.3f} "
            f"{row['auroc_tuned']:6.3f} {row['auroc_logprob']:9.3f} {row['best_sum']:14.3f} "
            f"{row['best_tuned']:6.3f} {row['best_logprob']:9.3f} {row['oracle']:7.3f}  {chosen}",
            flush=True,
        )
        rows.append(row)
    return rows


def neural(seeds: int, updates: int) -> list[dict[str, Any]]:
    """The neural table, one row per seed and checkpoint; every figure is on tasks that chose nothing."""
    print(f"\ntransformer, group policy gradient with KL weight {NEURAL_BETA}, {SAY} filler words a turn")
    print(
        "seed updates  trajectories of    mean  AUROC sum  tuned  log-prob  best-of-8 sum  tuned  log-prob  "
        "oracle  tuned is"
    )
    rows = []
    for seed in range(seeds):
        policy, reference = fine_tuned(seed)
        optimizer = torch.optim.AdamW(policy.model.parameters(), lr=1e-3, weight_decay=0.0)
        settings = PolicyGradientSettings(kl_weight=NEURAL_BETA)
        for number in range(1, updates + 1):
            tasks = Hall().tasks("train", 4, 4 * number)
            trajectories = rollouts(policy, tasks, 24, seed * 10_000 + number)
            names = [trajectory.root.id for trajectory, _ in trajectories]
            earned = group_advantages([outcome for _, outcome in trajectories], names, "mean")
            batch = trajectories_to_batch([trajectory for trajectory, _ in trajectories], list(earned))
            policy_gradient_step(policy.model, optimizer, batch, settings)
            policy.refresh()
            if number in (updates // 3, updates):
                rows += report(policy, reference, seed, number)
    return rows


def main() -> None:
    """Measure, print the tables, and the figures as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="ends within 50 s on 2 cores; no neural part")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of the neural part")
    parser.add_argument("--updates", type=int, default=60, help="updates of the neural part")
    options = parser.parse_args()
    started = time.monotonic()
    figures: dict[str, Any] = {"identity_error": max(identity().values())}
    figures |= toy(8000)
    figures |= attribution(2000)
    if not options.quick:
        figures["neural"] = neural(options.seeds, options.updates)
    print(f"{time.monotonic() - started:.0f} s")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
