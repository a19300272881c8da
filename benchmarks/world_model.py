"""A language world model of four million parameters against a real shell and real SQLite databases.

Sealed tasks: drawn with a seed that nothing else uses, after everything was chosen; none was trained on or
looked at, their paths (terminal) and their compositions of goals (tools) are in no training task, and the run
itself checks that. One prediction a turn, the real history before it; a missing prediction is a wrong one.
Intervals count tasks, not turns. Baselines learn from the same recordings, and the retrieval baseline is
taken in whichever of its settings does best here. ``--quick`` takes tasks that were looked at before, so that
the sealed ones stay sealed.

Run: python benchmarks/world_model.py [--quick]
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from itertools import pairwise
from typing import Literal

import numpy as np
import torch

from parts import world_model_sealed as sealing
from refork.policies.local import LocalPolicy
from refork.stats import Interval, macro_mean
from refork.worlds.environment import EnvTrajectory, Transition
from refork_methods.simulate.baselines import CommonAnswer, CopyLast, NearestTurn
from refork_methods.simulate.data import loss_weights, sampled_turns, turn_stats
from refork_methods.simulate.evaluate import Evaluation, Predictor, evaluate
from refork_methods.simulate.fidelity import Gap, compare_simulators
from refork_testbed.models.build import build
from refork_testbed.models.recipes.world_model import WORLDS, lessons, trajectories, world_model

STAGES = ("world-model-cpt", "world-model-sft", "world-model")
DOMAINS = ("terminal", "tools")
#: Sealed tasks of each world; all their turns are predicted.
TASKS = 80
#: Statistics of turns by hand: overlap, novelty, Jaccard index, ratio of lengths.
FIXTURES = {
    ("echo hello world", "hello world"): (2 / 3, 0.0, 2 / 3, 11 / 16),
    ("cat a.txt", "red blue"): (0.0, 1.0, 0.0, 8 / 9),
    ("ls", ""): (0.0, 0.0, 0.0, 0.0),
}
#: Settings of the retrieval baseline that are tried.
RETRIEVALS = (
    {"exact_first": True, "neighbours": 30},
    {"exact_first": True, "neighbours": 1},
    {"exact_first": False, "neighbours": 1, "context": 1.0},
)


def check_masking(items: list[EnvTrajectory]) -> Counter[str]:
    """The statistics and weights behind the first stage's loss; the classes of some recorded turns."""
    for (action, observation), wanted in FIXTURES.items():
        found = turn_stats(action, observation)
        told = (found.overlap, found.novelty, found.jaccard, found.ratio)
        assert np.allclose(told, wanted), (action, told, wanted)
    # A coin per turn keeps in the mean what the weight says.
    turns = [Transition("echo hello world", "hello world")] * 20_000
    (kind, share), *_ = loss_weights(turns)
    assert (kind, share) == ("boilerplate", 0.1)
    kept = np.asarray(sampled_turns(np.full(len(turns), share), np.ones(len(turns), dtype=int), 0))
    # 4.9 standard errors: wrong once in a million seeds.
    assert abs(kept.mean() - share) < 4.9 * np.sqrt(share * (1 - share) / len(turns))
    return Counter(f"{name} ({share:g})" for item in items for name, share in loss_weights(item.turns))


def shares(found: Evaluation) -> dict[str, Interval]:
    """Exact match on turns that can be known, by domain and as their mean, clustered by task."""
    by = {}
    for name in DOMAINS:
        figure = found.fidelity.domains[name]["exact_deterministic"]
        by[name] = Interval(figure.estimate, figure.low, figure.high, 0.95, "clustered")
    return by | {"macro": macro_mean(list(by.values()))}


def gaps(base: Evaluation, other: Evaluation) -> dict[str, Interval]:
    """Paired differences in exact match, other minus base, by domain and as their mean."""
    by = {}
    for name, gap in compare_simulators(base.turns, other.turns).domains.items():
        one: Gap = gap["exact_deterministic"]
        if one.low is None or one.high is None:
            raise SystemExit(f"{name}: too few tasks for an interval")
        by[name] = Interval(one.difference, one.low, one.high, 0.95, "paired, clustered")
    return by | {"macro": macro_mean([by[name] for name in DOMAINS])}


def ends(found: dict[str, Interval], scale: float = 1.0) -> dict[str, float]:
    """Estimates and both ends under flat names, for the last line."""
    told = {}
    for name, one in found.items():
        for suffix, value in (("", one.estimate), ("_low", one.low), ("_high", one.high)):
            told[name + suffix] = round(scale * value, 4)
    return told


def spoken(one: Interval, sign: str = "") -> str:
    """An estimate and its ends."""
    return f"{one.estimate:{sign}.3f} [{one.low:{sign}.3f}, {one.high:{sign}.3f}]"


def row(name: str, found: Evaluation, seconds: float) -> str:
    """A line of the table."""
    parts = "".join(f"{spoken(one):24s} " for one in shares(found).values())
    micro = found.fidelity.micro
    return (
        f"{name:34s} {parts}{micro['rule'].estimate:6.3f} {micro['coverage'].estimate:9.3f} "
        f"{1000 * seconds / len(found.turns):8.1f}"
    )


def main() -> None:
    """Measure, print the table, and the figures as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="ends within 50 s on 2 cores")
    quick: bool = parser.parse_args().quick
    torch.set_num_threads(1)
    folders = {name: build(name) for name in STAGES}
    started = time.monotonic()
    learned = lessons()
    count, seed = (25, 0) if quick else (TASKS, sealing.SEED)
    items = trajectories("held-out", dict.fromkeys(WORLDS, count), seed=seed)
    sealed = sealing.seal(items, learned, count, seed)
    print(f"sealed: {sealed.whole} ({sealed})")
    turns: Literal["all"] | int = 2 if quick else "all"
    train = learned[:1500] if quick else learned
    classes = check_masking(train[:300])
    print("classes of recorded turns and their shares of the loss: " + ", ".join(map(str, classes.items())))
    whole = sum(count for name, count in classes.items() if name.endswith("(1)")) / classes.total()
    print(f"without masking the loss is that of the same turns, {whole:.2%} of which have weight 1 anyhow")
    predictors: dict[str, Predictor] = {"copy last": CopyLast(), "common answer": CommonAnswer(train)}
    for settings in RETRIEVALS[: 1 if quick else None]:
        predictors[f"nearest turn {' '.join(map(str, settings.values()))}"] = NearestTurn(train, **settings)
    for name in STAGES:
        predictors[name] = world_model(LocalPolicy.load(str(folders[name])))
    print(
        f"\n{'exact match, turns that are known':34s} {'terminal':24s} {'tools':24s} {'mean':24s}   rule",
        end="",
    )
    print("  coverage  ms/turn")
    found: dict[str, Evaluation] = {}
    for name, predictor in predictors.items():
        begun = time.monotonic()
        # The folder of a stage lists the tasks that it learned from, and these are refused.
        found[name] = evaluate(predictor, items, turns=turns, batch=64, model_folder=folders.get(name))
        print(row(name, found[name], time.monotonic() - begun), flush=True)
    nearest = [name for name in found if name.startswith("nearest")]
    best = max(nearest, key=lambda name: shares(found[name])["macro"].estimate)
    last = found[STAGES[-1]]
    differences = {(a, b): gaps(found[a], found[b]) for a, b in [*pairwise(STAGES), (best, STAGES[-1])]}
    for (a, b), one in differences.items():
        print(f"{b} over {a}: " + "; ".join(f"{name} {spoken(gap, '+')}" for name, gap in one.items()))
    known = sum(turn.deterministic is True for turn in last.turns)
    print(f"\n{time.monotonic() - started:.0f} s, {len(last.turns)} turns of {len(items)} held-out tasks")
    over = ends(differences[best, STAGES[-1]], 100)
    print(
        json.dumps(
            {
                "n": known,
                "tasks": sealed.tasks,
                "sealed": int(sealed.whole),
                **{f"exact_{name}": value for name, value in ends(shares(last)).items()},
                "stages": [ends(shares(found[name])) for name in STAGES],
                "steps": [ends(differences[pair]) for pair in pairwise(STAGES)],
                "retrieval": ends(shares(found[best])),
                "over_retrieval": over.pop("macro"),
                **{f"over_retrieval_{name.removeprefix('macro_')}": value for name, value in over.items()},
            }
        )
    )


if __name__ == "__main__":
    main()
