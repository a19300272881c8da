"""The tool-use part of ``benchmarks/crosscoder.py``: interventions on the pair toolbase / toolrl.

States of the last prompt token at one layer, on tool prompts and on a contrast corpus (plain texts, and
requests without tools). Two crosscoders: of the pairs, and of the same rows with B's shuffled. Half of the
held-out prompts choose a feature and a strength, the other half scores them, beside 50 random directions of
the same norm.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from refork import stats
from refork.growing.plant import opening
from refork.policies.local import LocalPolicy
from refork.types import IntArray, token_array
from refork.worlds.dice import Dice
from refork_methods.crosscoder.effects import Steering, patch_effect
from refork_methods.crosscoder.model import CrossCoder
from refork_methods.crosscoder.paired import read_pairs
from refork_methods.crosscoder.partition import Partition
from refork_methods.crosscoder.patch import patch_edit
from refork_methods.crosscoder.rank import FeatureRow, rank_features
from refork_methods.crosscoder.sources import ArrayPairs
from refork_methods.crosscoder.spillover import Spillover, difference_of_spillovers, shuffled, spillover
from refork_methods.crosscoder.sweep import above_random
from refork_methods.crosscoder.train import TrainSettings, train
from refork_methods.crosscoder.trials import Gain, gain, world_trials
from refork_methods.steer import difference_of_means
from refork_testbed.models import build
from refork_testbed.worlds.toolcall import CITIES, REQUESTS, TOPICS, ToolCallWorld, plain_texts, score_call

Floats = NDArray[np.float32]
#: Before the last block. Two blocks earlier the last tokens of all tool prompts share nearly one state, and
#: the readiness to call is not yet in it.
LAYER, FEATURES, K, SHARE = 3, 1_024, 16, 0.1
SHORT, LONG = 12, 32
DIRECTIONS = 50
#: Seed of the prompts; layer and pair were settled on those of seed 0.
PROMPTS = 1


@dataclass(frozen=True)
class Bench:
    """The pair, and its states on both corpora: rows before ``tool`` are of tool prompts."""

    a: LocalPolicy
    b: LocalPolicy
    states: tuple[Floats, Floats]
    tool: int

    def coder(self, steps: int, torn: bool = False) -> CrossCoder:
        """A crosscoder of the pairs, or of shuffled ones."""
        rows = shuffled(*self.states, seed=1) if torn else self.states
        model = CrossCoder(
            (128, 128), FEATURES, K, partition=Partition(SHARE, SHARE), origin={"layer": LAYER}, seed=0
        )
        train(model, ArrayPairs(*rows), TrainSettings(steps=steps, batch=256, rate=1e-3))
        return model

    def ranked(self, model: CrossCoder) -> list[FeatureRow]:
        """Features by Cohen's d of tool prompts against the contrast corpus."""
        with torch.no_grad():
            a, b = (torch.from_numpy(side) for side in self.states)
            values = model.encode(a, b).numpy()
        return rank_features(model, values[: self.tool], values[self.tool :])


def prompt(policy: LocalPolicy, text: str) -> IntArray:
    """A user's message, ready for the answer."""
    return policy.render([], token_array([]), [opening(text, "")]).tokens


def corpora(policy: LocalPolicy, count: int) -> tuple[list[IntArray], list[IntArray]]:
    """Tool prompts of training tasks; plain texts and requests without tools, half each."""
    dice = Dice("benchmark requests without tools")
    tool = [prompt(policy, task.prompt) for task in ToolCallWorld(4).tasks("train", count, 5)]
    bare = [
        prompt(policy, "request : " + dice.choice(REQUESTS).format(dice.choice(TOPICS), dice.choice(CITIES)))
        for _ in range(count // 2)
    ]
    return tool, [*(policy.encode(text) for text in plain_texts(count // 2, 1)), *bare]


def opened(count: int) -> Bench:
    """The pair with its states."""
    a, b = (LocalPolicy.load(str(build(name))) for name in ("toolrl", "toolbase"))
    tool, other = corpora(a, count)
    pairs = read_pairs(a, b, [*tool, *other], LAYER)
    return Bench(a, b, (pairs.a.numpy(), pairs.b.numpy()), len(tool))


def tool_use_part(quick: bool) -> dict[str, float]:
    """``feature_minus_random95_low`` and ``shuffled_spill_z`` on toolbase and toolrl."""
    torch.set_num_threads(1)
    bench = opened(1_000 if quick else 3_000)
    steps, half = (400, 100) if quick else (3_000, 300)
    model = bench.coder(steps)
    world = ToolCallWorld(4)
    tasks = world.tasks("held-out", 2 * half, PROMPTS)
    trials = world_trials(bench.a, world, tasks, short=SHORT, long=LONG)
    pairs = read_pairs(bench.a, bench.b, trials.prompts, LAYER)
    steering = Steering(model, bench.a, pairs, trials)
    ranked = bench.ranked(model)
    print(f"toolrl (A) and toolbase (B), layer {LAYER}, {FEATURES} features, k {K}, {steps} steps")
    patching(model, bench, steering)
    top = feature(steering, ranked, half, quick)
    control = spilled(bench, model, steering, steps)
    return {"feature_minus_random95_low": round(top.low, 4), "shuffled_spill_z": round(control.z, 2)}


def patching(model: CrossCoder, bench: Bench, steering: Steering) -> None:
    """(i): the patch with units kept and forgotten; exact identities."""
    found = patch_effect(model, bench.a, steering.pairs, steering.trials)
    print(
        f"(i) reconstruction patch, n {found.prompts}: A {found.clean:.3f} -> {found.patched:.3f} "
        f"({line(found.gain)}), variance explained {found.fve:.3f} among prompts\n"
        f"    units forgotten: {found.mismatched:.3f} ({line(found.mismatched_gain)}), "
        f"Holm p {found.holm_p[1]:.2g}"
    )
    said = steering.clean()
    marks = [
        score_call(bench.a.decode(tokens), task.data["names"], task.data["right"])
        for tokens, task in zip(
            said.tokens, ToolCallWorld(4).tasks("held-out", len(said.tokens), PROMPTS), strict=True
        )
    ]
    share = {n: float(np.mean([getattr(m, n) for m in marks])) for n in ("format", "listed", "right")}
    print("    A unchanged: " + ", ".join(f"{name} {value:.3f}" for name, value in share.items()))
    same = steering.under(steering.delta([writes(model)], 1.0)).same_tokens(said)
    block = model.blocks["A"]
    plain, scaled = (
        steering.trials.run(
            bench.b.edited(patch_edit(model, steering.pairs, "B", scaled=range(block.stop), alpha=x))
        )
        for x in (1.0, 32.0)
    )
    print(f"    strength 1 token-identical: {same}; A's block times 32 leaves B token-identical: "
          f"{scaled.same_tokens(plain)}")  # fmt: skip


def writes(model: CrossCoder) -> int:
    """The feature that writes most into A."""
    return int(model.directions("A").detach().norm(dim=1).argmax())


def line(found: Gain) -> str:
    """Gains at both caps."""
    return (
        f"{found.long.estimate:+.3f} [{found.long.low:+.3f}, {found.long.high:+.3f}] at {LONG} tokens, "
        f"{found.short.estimate:+.3f} at {SHORT}: {found.label}"
    )


def feature(steering: Steering, ranked: list[FeatureRow], half: int, quick: bool) -> stats.Interval:
    """(ii), (iii), (v): the chosen feature against random directions and matched controls, held out."""
    model, choose, held = steering.model, slice(0, half), slice(half, 2 * half)
    able = [row for row in ranked if row.d > 0 and row.block != "B" and row.relative_norm > 0.05]
    candidates = able[: 3 if quick else 8]
    alphas = (16.0, 32.0) if quick else (0.0, 2.0, 4.0, 8.0, 16.0, 32.0)
    cells = [(f"{r.feature} ({r.block}, d {r.d:.1f})", (r.feature,), x) for r in candidates for x in alphas]
    sweep = steering.sweep(cells, choose)
    best = sweep.cells[int(np.argmax([cell.scores.mean() for cell in sweep.cells]))]
    clean = steering.clean(held)
    delta = steering.delta(best.features, best.alpha)
    top = steering.under(delta, held)
    found = gain(clean, top)
    randoms = steering.randoms(delta, DIRECTIONS, 0, held)
    above = above_random(top.long, randoms)
    without = gain(clean, steering.under(steering.delta(best.features, 0.0), held))
    together = tuple(row.feature for row in able if row.candidate)
    nothing = gain(clean, steering.under(steering.delta(together, 0.0), held))
    print(
        f"(ii) chosen on {half} prompts among {len(cells)} cells: feature {best.name} times {best.alpha:g}; "
        f"on {half} others {clean.long.mean():.3f} -> {top.long.mean():.3f}\n"
        f"     minus the 95th percentile of {DIRECTIONS} random directions "
        f"({np.quantile(randoms.mean(1), 0.95):.3f}): {above.estimate:+.3f} "
        f"[{above.low:+.3f}, {above.high:+.3f}]\n"
        f"     taken out (times 0): {line(without)}\n"
        f"     all {len(together)} features of tool prompts taken out: {line(nothing)}\n(v)  {line(found)}"
    )
    controls(steering, ranked, best.features, delta, held, clean.long, model)
    return above


def controls(
    steering: Steering, ranked: list[FeatureRow], chosen: tuple[int, ...], delta: torch.Tensor, held: slice,
    clean: Any, model: CrossCoder,
) -> None:  # fmt: skip
    """(iii): directions that had no say in the choice, with the norm of the chosen one on every prompt."""
    rng = np.random.default_rng(0)
    directions = model.directions("A").detach().numpy()
    own = [r.feature for r in ranked if r.block == "A" and r.feature not in chosen]
    shared = [r.feature for r in ranked if r.block == "shared" and r.feature not in chosen]
    arms = {
        "random feature of A's block": directions[own[int(rng.integers(len(own)))]],
        "top shared feature": directions[shared[0]],
        "mean of A minus mean of B": difference_of_means(steering.pairs.a.numpy(), steering.pairs.b.numpy()),
    }
    found = {name: steering.under(steering.like(delta, arm), held).long for name, arm in arms.items()}
    p = stats.holm(np.array([stats.mcnemar(*counts(clean, scores)).p for scores in found.values()])).p
    for (name, scores), q in zip(found.items(), p, strict=True):
        change = float((scores - clean).mean())
        print(f"(iii) {name}, same norm: {scores.mean():.3f} ({change:+.3f}, Holm p {q:.2g})")


def counts(base: Any, other: Any) -> tuple[int, int]:
    """Prompts won and lost."""
    return int((other > base).sum()), int((other < base).sum())


def spilled(bench: Bench, model: CrossCoder, steering: Steering, steps: int) -> Spillover:
    """(iv): the reconstruction patched into B, by the crosscoder and by one of shuffled pairs."""
    torn = bench.coder(steps, torn=True)
    real, control = (spillover(m, bench.b, steering.pairs, steering.trials) for m in (model, torn))
    gap = difference_of_spillovers(real, control)
    print(
        f"(iv) patched into B, n {real.prompts}: {real.clean:.3f} -> {real.patched:.3f} "
        f"(z {real.z:+.2f}); by "
        f"a crosscoder of shuffled pairs {control.patched:.3f} (z {control.z:+.2f}); difference "
        f"{gap.estimate:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]\n"
    )
    return control


def main() -> None:
    """This part alone; its figures are the last line."""
    print(json.dumps(tool_use_part("--quick" in sys.argv[1:])))


if __name__ == "__main__":
    main()
