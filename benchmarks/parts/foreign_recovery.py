"""Students that imitate an expert on foreign boards: flawless paths, a dose of recoveries, erring runs.

``golden``: the expert's own runs without an error. ``dose``: the same, one trace in ten replaced by a run of
the expert with errors that went back and won. ``whole``: such runs and all others with errors that won;
``cleaned``: those, their detours cut out; ``masked``: those without the decisions that were errors, which
a loss mask over a trace does. All sets have equally many decisions. The student is a table: in a
state that its set holds it acts as the set does, elsewhere at random. It is watched while it is pushed: with
a small chance a turn does something else, so that it leaves its path.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from parts.foreign_boards import Board, Policy, move, pick, rollout
from refork.stats import paired_t
from refork.types import Json
from refork_methods.recovery.distillation import build_distillation_set
from refork_methods.recovery.traces import Step, Trace, erased, recorded_key, successful

#: Chance of an error in the recorded runs and of a push while the student is watched; share that stays whole.
ERROR, PUSH, DOSE = 0.15, 0.2, 0.1
#: Decisions that every student is given, and what the turns of a board are multiplied with.
DECISIONS, PATIENCE = 600, 1


def recorded(board: Board, error: float, count: int, rng: random.Random) -> list[Trace]:
    """Runs of the expert that errs so often, as traces."""
    policy, traces = Policy(board, error), []
    for number in range(count):
        steps, won = rollout(policy, rng)
        made = tuple(Step(board.text(s), board.actions(s)[a], recorded=str(s)) for s, a in steps)
        traces.append(Trace(f"run {number}", made, None, float(won)))
    return traces


def table(
    traces: Sequence[Trace], rng: random.Random, dose: Sequence[Trace] = ()
) -> dict[int, dict[str, int]]:
    """What a set does in each state: traces drawn until there are DECISIONS, the last one cut.

    Where there is a ``dose``, one trace in ten is drawn from it.
    """
    counts: dict[int, dict[str, int]] = {}
    left = DECISIONS
    while left:
        chosen = rng.choice(dose if dose and rng.random() < DOSE else traces)
        for step in chosen.steps[:left]:
            row = counts.setdefault(int(step.recorded or 0), {})
            row[step.action] = row.get(step.action, 0) + 1
            left -= 1
    return counts


def masked(board: Board, trace: Trace) -> Trace:
    """A run without the decisions that the expert would not have made."""

    def right(step: Step) -> bool:
        state = int(step.recorded or 0)
        return step.action == board.actions(state)[board.advice(state)]

    return replace(trace, steps=tuple(filter(right, trace.steps)))


def watched(
    board: Board, student: dict[int, dict[str, int]] | None, push: float, episodes: int, rng: random.Random
) -> float:
    """Share of episodes that the student (None: the expert) wins while it is pushed."""
    wins = 0
    for _ in range(episodes):
        state = 0
        for _ in range(PATIENCE * board.turns):
            names = board.actions(state)
            row = {names[board.advice(state)]: 1} if student is None else student.get(state)
            if row is None or rng.random() < push:
                action = rng.randrange(len(names))
            else:
                said = list(row)
                action = names.index(said[pick([row[name] / sum(row.values()) for name in said], rng)])
            state = move(board, state, action, rng)
            if (won := board.won(state)) is not None:
                wins += won
                break
    return wins / episodes


def recovery(boards: Sequence[Board], runs: int, episodes: int) -> Json:
    """Success of the five students, pushed and not, and paired differences over tasks."""
    arms = ("golden", "dose", "cleaned", "whole", "masked")
    found: dict[str, list[float]] = {name: [] for name in (*arms, "golden_still", "whole_still", "expert")}
    for number, board in enumerate(boards):
        rng = random.Random(f"recovery {number}")
        golden = successful(recorded(board, 0.0, runs, rng), 1.0)
        erring = successful(recorded(board, ERROR, runs, rng), 1.0)
        if not golden or not erring:
            continue
        back = [trace for trace in erring if erased(trace, recorded_key).recoveries]
        sets: dict[str, tuple[list[Trace], list[Trace]]] = {
            "golden": (golden, []),
            "dose": (golden, back),
            "cleaned": (build_distillation_set(erring, key=recorded_key, keep_recoveries=False), []),
            "whole": (build_distillation_set(erring, key=recorded_key), []),
            "masked": ([masked(board, trace) for trace in erring], []),
        }
        # What no student can mend: the expert itself, which knows the way from everywhere, is pushed as well.
        found["expert"].append(watched(board, None, PUSH, episodes, random.Random(f"push {number}")))
        for name, (made, dose) in sets.items():
            student = table(made, random.Random(f"set {number}"), dose)
            found[name].append(watched(board, student, PUSH, episodes, random.Random(f"push {number}")))
            if f"{name}_still" in found:
                still = watched(board, student, 0.0, episodes, random.Random(f"still {number}"))
                found[f"{name}_still"].append(still)
    values = {name: np.array(of) for name, of in found.items()}
    told: Json = {"tasks": len(values["golden"])}
    told |= {name: round(float(of.mean()), 4) for name, of in values.items()}
    for name in arms[1:]:
        gain = paired_t(values["golden"], values[name]).interval
        told[f"{name}_gain"] = round(gain.estimate, 4)
        told[f"{name}_low"], told[f"{name}_high"] = round(gain.low, 4), round(gain.high, 4)
    return told
