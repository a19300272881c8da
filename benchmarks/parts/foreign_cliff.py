"""Cliffs of whole turns on foreign boards, where the errors of the policy are known.

The policy is the expert that errs; what is looked at are its lost runs. The potential before every turn is
measured by forks, falls are nominated, drawn again and tested together, by the method's own rules. An error
is a turn on which the policy did not do what the expert advises.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from parts.foreign_boards import Board, Policy, fork_once, rollout
from refork.stats import paired_t
from refork.types import Json
from refork_methods.cliff.curve import Curve
from refork_methods.cliff.detect import screen, survivors

#: Continuations a value; the fall, by four times as many fresh ones, from which an error is costly.
DRAWS, COSTLY = 64, 0.25


def outcomes(policy: Policy, state: int, turn: int, rng: random.Random) -> np.ndarray:
    """DRAWS continuations from a state with so many turns taken, 1 for a win."""
    return np.array([fork_once(policy, state, turn, rng) for _ in range(DRAWS)], dtype=np.float64)


def curve_of(
    policy: Policy, places: Sequence[tuple[int, int]], chances: Sequence[float], rng: random.Random
) -> Curve:
    """The potential along a lost run, each value by draws of its own."""
    drawn = np.array([outcomes(policy, state, turn, rng) for state, turn in places])
    differences = drawn[:-1] - drawn[1:]
    count = len(chances)
    return Curve(
        drawn[:-1].sum(1), np.full(count, DRAWS), float(drawn[-1].mean()), np.array(chances),
        np.full(count, DRAWS), differences.sum(1), (differences**2).sum(1),
        DRAWS * count, DRAWS * count, 0,
    )  # fmt: skip


def lost_runs(policy: Policy, wanted: int, rng: random.Random) -> list[list[tuple[int, int]]]:
    """States and actions of some lost runs; fewer where the policy hardly ever loses."""
    found = []
    for _ in range(40 * wanted):
        steps, won = rollout(policy, rng)
        if not won:
            found.append(steps)
        if len(found) == wanted:
            break
    return found


def cliff(boards: Sequence[Board], error: float, runs: int) -> Json:
    """Precision and recall against the known errors, and what deletion gains at cliffs and elsewhere."""
    turns: list[dict[str, object]] = []
    for task, board in enumerate(boards):
        policy, rng = Policy(board, error), random.Random(f"cliff {task}")
        for steps in lost_runs(policy, runs, rng):
            last_state, last_action = steps[-1]
            ends = [place for _, place in board.step(last_state, last_action) if board.won(place) is not True]
            places = [(s, turn) for turn, (s, _) in enumerate(steps)] + [(ends[0], len(steps))]
            chances = [policy.row(s)[a] for s, a in steps]
            nominated = set(screen(curve_of(policy, places, chances, rng)).tolist())
            for turn, (state, action) in enumerate(steps):
                turns.append(
                    {
                        "task": task, "policy": policy, "before": places[turn], "after": places[turn + 1],
                        "error": action != board.advice(state), "nominated": turn in nominated,
                    }
                )  # fmt: skip
    named = [one for one in turns if one["nominated"]]
    fresh = random.Random("fresh draws")

    def count(one: dict[str, object], side: str) -> tuple[int, int]:
        return int(outcomes(one["policy"], *one[side], fresh).sum()), DRAWS  # type: ignore[misc, arg-type]

    verdicts = survivors([count(one, "before") for one in named], [count(one, "after") for one in named])
    cliffs = [one for one, real in zip(named, verdicts.survives, strict=True) if real]
    errors = [one for one in turns if one["error"]]
    for one in errors:
        fall = np.mean([count(one, "before")[0] - count(one, "after")[0] for _ in range(4)]) / DRAWS
        one["costly"] = fall > COSTLY
    costly = [one for one in errors if one["costly"]]
    hits = sum(bool(one["error"]) for one in cliffs)
    found = sum(bool(one.get("costly")) for one in cliffs)
    told: Json = {
        "runs_turns": len(turns), "errors": len(errors), "nominated": len(named), "cliffs": len(cliffs),
        "errors_share": round(len(errors) / len(turns), 4),
        "precision": round(hits / len(cliffs), 4) if cliffs else None,
        "recall": round(hits / len(errors), 4) if errors else None,
        "costly": len(costly),
        "recall_costly": round(found / len(costly), 4) if costly else None,
    }  # fmt: skip
    others = [one for one in turns if not one["nominated"]]
    control = random.Random("control").sample(others, min(len(others), max(2 * len(cliffs), 2)))
    for name, chosen in (("deletion", cliffs), ("random", control)):
        tasks = sorted({one["task"] for one in chosen})  # type: ignore[type-var]
        if len(tasks) < 2:
            continue
        # One value a task, so that a task with many falls counts once.
        kept, gone = (
            np.array(
                [
                    np.mean([count(one, side)[0] / DRAWS for one in chosen if one["task"] == task])
                    for task in tasks
                ]
            )
            for side in ("after", "before")
        )
        gain = paired_t(kept, gone).interval
        told[f"{name}_tasks"] = len(tasks)
        told[f"{name}_gain"] = round(gain.estimate, 4)
        told[f"{name}_low"], told[f"{name}_high"] = round(gain.low, 4), round(gain.high, 4)
    return told
