"""A language world model of two million parameters against a real shell and real SQLite databases.

Held-out tasks: their paths (terminal) and their compositions of goals (tools) are in no training task. One
prediction a turn, the real history before it; a missing prediction is a wrong one. Baselines learn from the
same recordings, and the retrieval baseline is taken in whichever of its settings does best here.

Run: python benchmarks/world_model.py [--quick]
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from itertools import pairwise

import numpy as np
import torch

from refork.policies.local import LocalPolicy
from refork.worlds.environment import EnvTrajectory, Transition
from refork_methods.simulate.baselines import CommonAnswer, CopyLast, NearestTurn
from refork_methods.simulate.data import loss_weights, sampled_turns, turn_stats
from refork_methods.simulate.evaluate import Evaluation, Predictor, evaluate
from refork_methods.simulate.fidelity import Gap, compare_simulators
from refork_testbed.models.build import build
from refork_testbed.models.recipes.world_model import held_out, lessons, world_model

STAGES = ("world-model-cpt", "world-model-sft", "world-model")
DOMAINS = ("terminal", "tools")
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


def rates(found: Evaluation) -> dict[str, float]:
    """Exact match on turns that can be known, by domain and as their mean."""
    by = {name: found.fidelity.domains[name]["exact_deterministic"].estimate for name in DOMAINS}
    return by | {"macro": float(np.mean(list(by.values())))}


def row(name: str, found: Evaluation, seconds: float) -> str:
    """A line of the table."""
    told, fidelity = rates(found), found.fidelity
    parts = []
    for domain in DOMAINS:
        figure = fidelity.domains[domain]["exact_deterministic"]
        parts.append(f"{figure.estimate:.3f} [{figure.low:.3f}, {figure.high:.3f}]")
    rule = fidelity.micro["rule"].estimate
    return (
        f"{name:34s} {parts[0]:24s} {parts[1]:24s} {told['macro']:6.3f} {rule:6.3f} "
        f"{fidelity.micro['coverage'].estimate:9.3f} {1000 * seconds / len(found.turns):8.1f}"
    )


def told(gap: Gap) -> str:
    """A paired difference in words."""
    return f"{gap.difference:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}], n = {gap.n}"


def main() -> None:
    """Measure, print the table, and the figures as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="ends within 50 s on 2 cores")
    quick: bool = parser.parse_args().quick
    torch.set_num_threads(1)
    folders = {name: build(name) for name in STAGES}
    started = time.monotonic()
    train = lessons()
    items = held_out(25 if quick else 200)
    turns: int | str = 2 if quick else "all"
    if quick:
        train = train[:1500]
    classes = check_masking(train[:300])
    print("classes of recorded turns and their shares of the loss: " + ", ".join(map(str, classes.items())))
    whole = sum(count for name, count in classes.items() if name.endswith("(1)")) / classes.total()
    print(f"without masking the loss is that of the same turns, {whole:.2%} of which have weight 1 anyhow")
    predictors: dict[str, Predictor] = {"copy last": CopyLast(), "common answer": CommonAnswer(train)}
    for settings in RETRIEVALS[: 1 if quick else None]:
        predictors[f"nearest turn {' '.join(map(str, settings.values()))}"] = NearestTurn(train, **settings)  # type: ignore[arg-type]
    for name in STAGES:
        predictors[name] = world_model(LocalPolicy.load(str(folders[name])))
    head = f"{'exact match, turns that are known':34s} {'terminal':24s} {'tools':24s}"
    print(f"\n{head}  macro   rule  coverage  ms/turn")
    found: dict[str, Evaluation] = {}
    for name, predictor in predictors.items():
        begun = time.monotonic()
        found[name] = evaluate(predictor, items, turns=turns, batch=64)  # type: ignore[arg-type]
        print(row(name, found[name], time.monotonic() - begun), flush=True)
    best = max((n for n in found if n.startswith("nearest")), key=lambda n: rates(found[n])["macro"])
    last = found[STAGES[-1]]
    gaps = {
        f"{b} over {a}": compare_simulators(found[a].turns, found[b].turns).overall
        for a, b in [*pairwise(STAGES), (best, STAGES[-1])]
    }
    for name, gap in gaps.items():
        print(f"{name}: {told(gap['exact_deterministic'])}; rule {told(gap['rule'])}")
    print(f"\n{time.monotonic() - started:.0f} s, {len(last.turns)} turns of {len(items)} held-out tasks")
    figures = {name: round(value, 4) for name, value in rates(last).items()}
    print(
        json.dumps(
            {
                "exact_terminal": figures["terminal"],
                "exact_tools": figures["tools"],
                "stages": [round(rates(found[name])["macro"], 4) for name in STAGES],
                "over_retrieval": round(100 * (rates(last)["macro"] - rates(found[best])["macro"]), 2),
            }
        )
    )


if __name__ == "__main__":
    main()
