"""Credit beside the truth, for ``benchmarks/graph_credit.py``: the key grid with a policy of known values.

A softmax of the shortest way's discounted values, its temperature solved for so that exactly the wanted
share of episodes succeeds. Then V(state, turn) and Q(state, turn, action) follow by backward induction over
72 states and 30 turns, and Q - V is what credit estimates. Every estimator sees the same groups of rollouts.
"""

from __future__ import annotations

import ast
import importlib.util
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refork.errors import CannotDo
from refork_methods.credit.graph import CreditSettings, StateGraph, step_advantages

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]
SIDE, TURNS, ROLLOUTS, WIN, GAMMA = 6, 30, 8, 10.0, 0.95
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1), (0, 0))
STATES, ACTIONS, TAKE = 2 * SIDE * SIDE, len(MOVES), 4
#: Exact success of the policies that are credited.
LEVELS = (0.2, 0.5, 0.8)


@dataclass(frozen=True)
class Chain:
    """One layout: where each action leads, [states, actions, states + 1]; the last state is the goal."""

    step: Float64
    start: int

    @classmethod
    def of(cls, start: int, key: int, goal: int, slip: float) -> Chain:
        """The grid of ``graph_credit.roll``: a slip puts a random action in the place of the one chosen."""
        sure = np.zeros((STATES, ACTIONS, STATES + 1))
        for cell in range(SIDE * SIDE):
            for held in range(2):
                for action, (down, right) in enumerate(MOVES):
                    row = min(max(cell // SIDE + down, 0), SIDE - 1)
                    column = min(max(cell % SIDE + right, 0), SIDE - 1)
                    there = row * SIDE + column
                    has = held or (action == TAKE and there == key)
                    won = has and there == goal
                    sure[cell * 2 + held, action, STATES if won else there * 2 + has] = 1
        return cls((1 - slip) * sure + slip * sure.mean(1, keepdims=True), start * 2)

    def values(self, law: Float64) -> tuple[Float64, Float64]:
        """Chance of success from each state [turns + 1, states + 1] and after each action [turns, ...]."""
        v, q = np.zeros((TURNS + 1, STATES + 1)), np.zeros((TURNS, STATES, ACTIONS))
        v[:, STATES] = 1
        for turn in reversed(range(TURNS)):
            q[turn] = self.step @ v[turn + 1]
            v[turn, :STATES] = (law * q[turn]).sum(1)
        return v, q

    def policy(self, success: float) -> Float64:
        """The softmax distribution [states, actions] that succeeds with exactly this chance."""
        best = np.append(np.zeros(STATES), 1.0)
        for _ in range(4 * TURNS):
            best[:STATES] = (0.9 * self.step @ best).max(1)
        worth = self.step @ best
        low, high = 0.0, 400.0
        for _ in range(40):
            middle = (low + high) / 2
            far = self.values(softmax(middle * worth))[0][0, self.start] > success
            low, high = (low, middle) if far else (middle, high)
        return softmax(low * worth)


def softmax(scores: Float64) -> Float64:
    """Rows that sum to 1."""
    weight = np.exp(scores - scores.max(1, keepdims=True))
    return np.asarray(weight / weight.sum(1, keepdims=True))


@dataclass(frozen=True)
class Rollouts:
    """Groups of ROLLOUTS episodes of one policy, steps in order: states, lengths, success, true advantage."""

    states: Int64
    lengths: Int64
    won: Float64
    truth: Float64

    @property
    def groups(self) -> Int64:
        """The group of each trajectory."""
        return np.repeat(np.arange(len(self.won) // ROLLOUTS), ROLLOUTS)


def rollouts(chain: Chain, success: float, groups: int, rng: np.random.Generator) -> Rollouts:
    """Sample groups, and look up the advantage Q - V of every action taken, in units of the reward."""
    distribution = chain.policy(success)
    value, after = chain.values(distribution)
    count = groups * ROLLOUTS
    at, lengths = np.full(count, chain.start), np.zeros(count, int)
    states, truth = np.zeros((count, TURNS), int), np.zeros((count, TURNS))
    reached = chain.step.cumsum(2)
    chosen = distribution.cumsum(1)
    for turn in range(TURNS):
        on = at < STATES
        here = np.where(on, at, 0)
        pick, luck = rng.random((2, count, 1))
        action = np.minimum((pick > chosen[here]).sum(1), ACTIONS - 1)
        states[:, turn] = here
        truth[:, turn] = WIN * (after[turn, here, action] - value[turn, here])
        there = np.minimum((luck > reached[here, action]).sum(1), STATES)
        lengths += on
        at = np.where(on, there, at)
    taken = np.arange(TURNS) < lengths[:, None]
    return Rollouts(states[taken], lengths, (at == STATES).astype(float), truth[taken])


# -- the estimators ------------------------------------------------------------------------------


def published_gigpo(seen: Rollouts, std: bool = True, weight: float = 1.0) -> Float64:
    """GiGPO as its paper has it (arXiv 2505.10978), step by step, written from the formulas.

    Episode part: a trajectory's reward against those of its group. Step part: the discounted return of each
    step against those of the steps of its group that stand at the same anchor state; one alone there gets 0.
    """

    def against(values: list[float]) -> list[float]:
        if len(values) == 1:
            return [0.0]
        middle = statistics.fmean(values)
        spread = (sum((x - middle) ** 2 for x in values) / (len(values) - 1)) ** 0.5
        return [(x - middle) / (spread + 1e-6 if std else 1.0) for x in values]

    whole: list[float] = []
    for first in range(0, len(seen.won), ROLLOUTS):
        whole += against([WIN * float(won) for won in seen.won[first : first + ROLLOUTS]])
    anchors: dict[tuple[int, int], list[int]] = defaultdict(list)
    found: list[float] = []
    gains: list[float] = []
    states = seen.states.tolist()
    for number, (length, won) in enumerate(zip(seen.lengths.tolist(), seen.won.tolist(), strict=True)):
        for place in range(length):
            anchors[number // ROLLOUTS, states[len(found)]].append(len(found))
            gains.append(WIN * won * GAMMA ** (length - 1 - place))
            found.append(whole[number])
    for members in anchors.values():
        for step, local in zip(members, against([gains[step] for step in members]), strict=True):
            found[step] += weight * local
    return np.array(found)


def trl_groups() -> Callable[[Float64, str], Float64]:
    """TRL's own code for advantages of groups: a statement of its trainer, cut out and run as it stands.

    With the deviation that it uses; importing the whole trainer would take many seconds.

    Raises:
        CannotDo: TRL is missing, or this release has no such statement.
    """
    import torch

    spec = importlib.util.find_spec("trl")
    if spec is None or spec.origin is None:
        raise CannotDo("TRL is not installed", hint="`make setup` installs it")
    folder = Path(spec.origin).parent / "trainer"
    wanted = "self.multi_objective_aggregation == 'sum_then_normalize'"
    choices = _nodes(
        folder / "grpo_trainer.py", lambda n: isinstance(n, ast.If) and ast.unparse(n.test) == wanted
    )
    spreads = _nodes(folder / "utils.py", lambda n: isinstance(n, ast.FunctionDef) and n.name == "nanstd")
    if len(choices) != 1 or len(spreads) != 1:
        raise CannotDo("TRL's code for group advantages was not found", hint="the benchmark knows TRL 1.16")
    known: dict[str, object] = {"torch": torch}
    exec(compile(ast.Module(spreads, []), "trl", "exec"), known)
    code = compile(ast.Module(choices, []), "trl", "exec")

    def groups(rewards: Float64, scale: str) -> Float64:
        told = torch.from_numpy(rewards)[:, None]
        names: dict[str, Any] = {
            "self": SimpleNamespace(
                multi_objective_aggregation="sum_then_normalize",
                reward_weights=torch.ones(1, dtype=told.dtype),
                scale_rewards=scale,
            ),
            "rewards_per_func": told, "num_generations": ROLLOUTS, "device": told.device,
            "unscorable_mask": torch.isnan(told).all(dim=1),
        }  # fmt: skip
        exec(code, known, names)
        return np.asarray(names["advantages"], dtype=np.float64)

    return groups


def _nodes(file: Path, fits: Callable[[ast.AST], bool]) -> list[Any]:
    """The pieces of a source file that fit."""
    return [node for node in ast.walk(ast.parse(file.read_text())) if fits(node)]


def estimators() -> dict[str, Callable[[Rollouts], Float64]]:
    """Every side: per-step advantages of the same rollouts."""
    trl = trl_groups()

    def by_graph(method: str, settings: CreditSettings) -> Callable[[Rollouts], Float64]:
        def estimate(seen: Rollouts) -> Float64:
            graph = StateGraph.from_arrays(seen.states, seen.lengths, WIN * seen.won, seen.groups)
            return step_advantages(graph, method, settings)

        return estimate

    def by_group(scale: str) -> Callable[[Rollouts], Float64]:
        return lambda seen: np.repeat(trl(WIN * seen.won, scale), seen.lengths)

    std, mean = CreditSettings(norm="std"), CreditSettings(norm="mean")
    return {
        "TRL, scaled by group": by_group("group"),
        "TRL, not scaled": by_group("none"),
        "GiGPO as published, std": published_gigpo,
        "GiGPO as published, mean": lambda seen: published_gigpo(seen, std=False),
        "ours: gigpo": by_graph("gigpo", mean),
        "ours: hgpo": by_graph("hgpo", mean),
        "ours: graphgpo": by_graph("graphgpo", mean),
        "ours: g2po, std": by_graph("g2po", std),
        "ours: g2po, mean": by_graph("g2po", mean),
    }


# -- beside the truth ----------------------------------------------------------------------------

#: The settings at which each side is best stand for it; what is shown names them all.
SIDES = {
    "trl": ("TRL, scaled by group", "TRL, not scaled"),
    "gigpo": ("GiGPO as published, std", "GiGPO as published, mean"),
    "g2po": ("ours: g2po, std",),
}


def explained(given: Float64, truth: Float64) -> float:
    """Share of the squared truth that the given credit explains under its best single scale, 0 to 1."""
    size = float(given @ given) * float(truth @ truth)
    return float(given @ truth) ** 2 / size if size else 0.0


def signed(given: Float64, truth: Float64) -> float:
    """Share of the steps that matter (above the truth's root mean square) whose sign is right."""
    large = np.abs(truth) > np.sqrt(np.mean(truth**2))
    return float(np.mean(np.sign(given[large]) == np.sign(truth[large])))


def compare(layouts: Sequence[Int64], slips: Sequence[float], groups: int) -> dict[str, Float64]:
    """Explained share and share of right signs of every side, [2, settings, layouts]."""
    sides = estimators()
    told = {name: np.zeros((2, len(slips) * len(LEVELS), len(layouts))) for name in sides}
    for column, (start, key, goal) in enumerate(layouts):
        for row, (slip, success) in enumerate((s, level) for s in slips for level in LEVELS):
            seen = rollouts(
                Chain.of(start, key, goal, slip), success, groups, np.random.default_rng([column, row, 162])
            )
            for name, estimate in sides.items():
                given = estimate(seen)
                told[name][:, row, column] = explained(given, seen.truth), signed(given, seen.truth)
    return told


def agreement(seen: Rollouts) -> float:
    """Largest difference between our GiGPO and the one written from the paper, both norms."""
    graph = StateGraph.from_arrays(seen.states, seen.lengths, WIN * seen.won, seen.groups)
    return max(
        float(np.abs(published_gigpo(seen, norm == "std") - step_advantages(graph, "gigpo", settings)).max())
        for norm in ("std", "mean")
        for settings in [CreditSettings(norm=norm, over="trajectories")]  # type: ignore[arg-type]
    )


def runtimes(groups: int, rounds: int = 5) -> tuple[float, dict[str, float]]:
    """Steps of many groups, and each side's median seconds for them, all sides in turns."""
    seen = rollouts(Chain.of(0, 14, 35, 0.0), 0.5, groups, np.random.default_rng(7))
    sides = estimators()
    spent: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, estimate in sides.items():
            started = time.perf_counter()
            estimate(seen)
            spent[name].append(time.perf_counter() - started)
    return float(len(seen.truth)), {name: statistics.median(values) for name, values in spent.items()}
