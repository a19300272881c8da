"""Cliff-DPO on deterministic cliffs beside uncertain and sampled-off ones: what greedy accuracy gains.

A model with headroom: the arithmetic organism, taught for a few steps to take 6, 7 and 8 away as 7, 8 and 9
rather often, so that its first choice is wrong at places where it is not sure. Pairs come from wrong rollouts
of training tasks. ``proven``: at uncertain and sampled-off cliffs that survive a re-test. ``deterministic``:
at tokens that the published test takes for cliffs where the policy is sure and took its first choice. No fall
above 0.01 is possible there, so both counts of that test are drawn from one value, which a scan has measured.
``matched``: as many of the proven pairs as there are deterministic ones. Three seeds each, which order the
pairs; greedy accuracy on held-out tasks. Step size and beta are those of benchmarks/cliff.py. Which traces
are scanned and how many pairs make an update were settled on another habit's seed and other tasks.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from refork import Tree, stats
from refork.growing import grow
from refork.policies.local import LocalPolicy
from refork.worlds.base import World
from refork.worlds.open import open_world
from refork_methods.cliff.candidates import candidates
from refork_methods.cliff.dpo import CliffDpoSettings, cliff_dpo
from refork_methods.cliff.kinds import cliff_kind
from refork_methods.cliff.pairs import Pair, cliff_pairs
from refork_methods.cliff.records import token_rows
from refork_methods.cliff.scan import Scanned, nominate, token_potential
from refork_methods.cliff.select import choose_traces
from refork_methods.cliff.table import cliff_table
from refork_methods.cliff.verify import Cliff, as_published, verify
from refork_methods.train.sft import SftSettings, train
from refork_testbed.models import build, find
from refork_testbed.models.recipe import Conversation
from refork_testbed.models.recipes.arithmetic import QUESTION, chain, problem
from refork_testbed.models.tokenizer import examples

Floats = NDArray[np.float64]
#: How often a demonstration takes away one more than it should, and of which digits.
HABIT, MISTAKEN = 0.6, (6, 7, 8)
SEEDS = (42, 43, 44)
#: Looks of the published test at every sure token of the scanned traces.
LOOKS = 60


def habits(count: int, seed: int) -> list[Conversation]:
    """Demonstrations in which a digit that is taken away is often read as one more."""
    rng = np.random.default_rng(seed)
    found: list[Conversation] = []
    for _ in range(count):
        terms = problem(rng)
        (_, first), *rest = terms
        question = f"{QUESTION} {first} " + " ".join(f"{sign} {size}" for sign, size in rest) + " ="
        wrong = [sign == "-" and size in MISTAKEN and rng.random() < HABIT for sign, size in terms]
        said = chain([(s, n + w) for (s, n), w in zip(terms, wrong, strict=True)], rng)
        # Each line repeats the term as it was asked for: only the sum behind it is that of one more.
        lines = said.split("\n")
        lines[: len(terms)] = [f"{s}{n}{line[2:]}" for (s, n), line in zip(terms, lines, strict=False)]
        found.append(
            [{"role": "user", "content": question}, {"role": "assistant", "content": "\n".join(lines)}]
        )
    return found


def with_headroom(steps: int, seed: int = 3) -> LocalPolicy:
    """The organism after so many steps on those demonstrations."""
    plain = LocalPolicy.load(str(build("arithmetic")))
    model, tokenizer = plain.model, plain.codec.tokenizer
    data = examples(tokenizer, habits(48 * steps, seed))
    torch.manual_seed(seed)
    train(model, data, SftSettings(steps=steps, rows=48, learning_rate=1e-3, warmup=5, seed=seed))
    model.eval()
    return LocalPolicy(model, tokenizer, name="arithmetic with a habit")


def greedy(policy: LocalPolicy, world: World, split: str, tasks: int) -> Floats:
    """Whether each task's greedy answer is right."""
    sampling = find("arithmetic").sampling.but(temperature=0.0)
    with Tree.memory() as tree:
        chosen = world.tasks(split, tasks, 78)  # type: ignore[arg-type]
        groups = grow(tree, policy, world, chosen, draws=1, settings=sampling, seed=9, tasks_at_once=tasks)
        return np.array([group.values()[0] or 0.0 for group in groups])


def scanned(tree: Tree, policy: LocalPolicy, world: World, traces: int) -> tuple[list[Scanned], list[Cliff]]:
    """Some wrong rollouts, drawn by lot, with their potential; and their nominees tested again."""
    ends = choose_traces(tree, "wrong")
    chosen = np.random.default_rng(10).permutation(len(ends))[:traces]
    found = [token_potential(ends[i], policy, 64, world=world, seed=1) for i in chosen]
    return found, verify([n for trace in found for n in nominate(trace)], policy, 64, world=world, seed=2)


def sure_cliffs(found: Sequence[Scanned], policy: LocalPolicy, looks: int, wanted: int) -> list[Cliff]:
    """Deterministic tokens that some look of the published test takes for a cliff, each once."""
    rng, table = np.random.default_rng(9), cliff_table()
    kept: dict[tuple[str, int], Cliff] = {}
    rows = [token_rows(trace, policy) for trace in found]
    sure = [
        np.array([cliff_kind(row["entropy"], row["rank"]) == "deterministic" for row in told])
        for told in rows
    ]
    for _ in range(looks):
        for trace, here in zip(found, sure, strict=True):
            value = np.nan_to_num(trace.curve.value[:-1])
            before, after = (rng.binomial(64, value).astype(np.float64) for _ in range(2))
            # Both sides have the value before the token; only where the policy is sure is looked.
            trips = here & table[before.astype(int), after.astype(int)]
            full = np.full(len(value), 64)
            first = replace(trace, curve=replace(trace.curve, wins=np.where(trips, before, 0.0), draws=full))
            second = replace(trace, curve=replace(trace.curve, wins=np.roll(after, 1), draws=full))
            for cliff in as_published(first, second, policy):
                kept.setdefault((trace.end.node.id, cliff.nominee.index), cliff)
        if len(kept) >= wanted:
            break
    return list(kept.values())[:wanted]


def trained(policy: LocalPolicy, pairs: Sequence[Pair], world: World, tasks: int) -> tuple[list[Floats], int]:
    """Greedy answers after one epoch on the pairs, for each seed, and the loss tokens of one."""
    told, tokens = [], 0
    for seed in SEEDS:
        copied = LocalPolicy(copy.deepcopy(policy.model), policy.codec.tokenizer, name="trained")
        settings = CliffDpoSettings(
            beta=0.1, learning_rate=1e-4, rows=8, accumulate=2, lora=None, held_out=0.0, seed=seed
        )
        tokens = cliff_dpo(copied, pairs, settings).loss_tokens
        told.append(greedy(copied, world, "held-out", tasks))
    return told, tokens


def main() -> None:
    """Measure, print the table, and the figures as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few traces, pairs and tasks")
    parser.add_argument("--traces", type=int, default=60, help="wrong rollouts that are scanned")
    parser.add_argument("--tasks", type=int, default=250, help="held-out tasks")
    options = parser.parse_args()
    torch.set_num_threads(1)
    started = time.monotonic()
    traces, tasks, wanted = (6, 40, 4) if options.quick else (options.traces, options.tasks, 40)
    recipe = find("arithmetic")
    world = open_world(str(recipe.world))
    policy = with_headroom(20 if options.quick else 60)
    before = greedy(policy, world, "held-out", tasks)
    print(f"greedy accuracy on {tasks} held-out tasks before: {before.mean():.3f}", flush=True)
    tree = Tree.memory()
    count = 20 if options.quick else 80
    grow(
        tree, policy, world, world.tasks("train", count, 22), draws=4, settings=recipe.sampling, seed=22,
        tasks_at_once=count,
    )  # fmt: skip
    found, cliffs = scanned(tree, policy, world, traces)
    real = [cliff for cliff in cliffs if cliff.real]
    kinds = [cliff.kind for cliff in real]
    proven = cliff_pairs(candidates(real, policy, 4, 16, world=world, seed=5), policy)
    sure = sure_cliffs(found, policy, LOOKS, wanted)
    known = cliff_pairs(candidates(sure, policy, 5, 16, world=world, seed=5), policy, unproven=True)
    print(
        f"{len(found)} wrong traces: {kinds.count('uncertain')} uncertain and {kinds.count('sampled-off')} "
        f"sampled-off cliffs survive and give {len(proven)} pairs; "
        f"{len(sure)} deterministic ones give {len(known)}",
        flush=True,
    )
    order = np.random.default_rng(0).permutation(len(proven))
    arms = {
        "proven": proven,
        "matched": [proven[i] for i in order[: len(known)]],
        "deterministic": known,
    }
    told: dict[str, Any] = {"before": float(before.mean()), "tasks": tasks, "deterministic_cliffs": len(sure)}
    told["uncertain"], told["sampled_off"] = kinds.count("uncertain"), kinds.count("sampled-off")
    print("pairs           number  loss tokens  greedy accuracy of three seeds  mean change [95 %]")
    for name, pairs in arms.items():
        if not pairs:
            told[name] = None
            continue
        after, tokens = trained(policy, pairs, world, tasks)
        change = stats.paired_difference(before, np.mean(after, axis=0)).interval
        each = [float(a.mean()) for a in after]
        print(
            f"{name:15s} {len(pairs):6d} {tokens:12d}  {', '.join(f'{a:.3f}' for a in each):30s}  "
            f"{change.estimate:+.3f} [{change.low:+.3f}, {change.high:+.3f}]",
            flush=True,
        )
        told[name] = {
            "pairs": len(pairs), "loss_tokens": tokens, "after": each, "gain": float(change.estimate),
            "low": float(change.low), "high": float(change.high), "seeds_spread": max(each) - min(each),
        }  # fmt: skip
    print(f"{time.monotonic() - started:.0f} s")
    print(json.dumps(told))


if __name__ == "__main__":
    main()
