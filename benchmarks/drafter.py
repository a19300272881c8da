"""Drafters: what does a small sequential head add to a parallel network, and can its confidence be believed?

The target writes phrases of 3 to 7 syllables, each followed by one of four others: inside a phrase the next
token is all but certain, behind its end it is open, and only who knows the first token of the new phrase
knows the second. Four drafters share text, anchors and size: the semi-autoregressive one (dspark), the same
net without its sequential head but with the same loss (parallel), the recipe of its backbone (dflash: cross
entropy only, nothing from the anchor's slot), and an autoregressive one of one layer (eagle). Measured is
real decoding at temperature 1, whole blocks verified: tokens per round (tau), and the share of drafts kept
at each position of those reached. Then the sequential head is switched off in the trained drafter (W2 = 0),
and its confidences are calibrated on half of the rounds and judged on the other half.

Drafters are trained when they are missing and kept beside the organisms; nothing that is measured is kept.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from parts.drafter_kinds import KINDS, LONG, MAX_TOKENS, SHORT, Kind, target, trained
from refork.policies.base import Request, Sampling
from refork.policies.local import LocalPolicy
from refork.sampling.noise import NoiseKey, stream_of
from refork.types import IntArray, token_array
from refork_methods.speculate.calibrate import Calibrated, calibrate
from refork_methods.speculate.context import Proposer
from refork_methods.speculate.decoder import SpeculativeDecoder
from refork_methods.speculate.model import DraftModel
from refork_methods.speculate.rounds import Round, Rounds
from refork_methods.speculate.speculator import SpeculationStats
from refork_testbed.models.recipes.phrases import ASK

#: Requests decoded for one tau, in groups, from whose spread its interval is made.
REQUESTS, GROUPS = 96, 8
#: At least so many rounds to calibrate on, and as many to judge by.
ROUNDS = 10_000
#: Of a t distribution with one degree less than there are groups.
T_95 = 2.36
#: What the last line tells.
KEYS = ("tau_dspark", "tau_parallel", "pos2_ratio", "ablated_gain", "ece_cut")


@dataclass(frozen=True)
class Measured:
    """Tokens per round with half its 95 % interval, drafts kept by position, rounds."""

    tau: float
    half: float
    kept: tuple[float, ...]
    rounds: int


def ask(policy: LocalPolicy) -> IntArray:
    """The prompt's tokens."""
    return policy.render([], token_array([]), [{"role": "user", "content": ASK}]).tokens


def decode(
    policy: LocalPolicy, draft: Proposer, requests: int, first: int, heard: list[Round] | None = None
) -> SpeculationStats:
    """Counts over as many answers, the noise of number ``first`` and those after it."""
    listener = None if heard is None else heard.extend
    decoder = SpeculativeDecoder(policy, draft, width=64, on_rounds=listener)
    prompt, stream = ask(policy), stream_of("drafter benchmark")
    wanted = [Request(prompt, NoiseKey(0, stream, first + i)) for i in range(requests)]
    for _ in decoder.sample(wanted, Sampling(max_tokens=MAX_TOKENS)):
        pass
    return decoder.stats


def measure(policy: LocalPolicy, draft: Proposer) -> Measured:
    """Tau and acceptances of real decoding."""
    parts = [decode(policy, draft, REQUESTS // GROUPS, 1_000 * g) for g in range(GROUPS)]
    taus = np.array([part.tau for part in parts], dtype=float)
    reached, kept = (sum(getattr(part, name) for part in parts) for name in ("reached", "kept_tokens"))
    rounds = sum(part.rounds for part in parts)
    tau = 1 + sum(part.accepted for part in parts) / rounds
    half = T_95 * float(taus.std(ddof=1)) / math.sqrt(GROUPS)
    share = tuple(float(k / n) if n else math.nan for k, n in zip(kept, reached, strict=True))
    return Measured(tau, half, share, rounds)


def ablated(draft: Proposer) -> Proposer:
    """The same drafter with W2 set to zero; it is changed in place."""
    assert isinstance(draft, DraftModel)
    assert draft.head is not None
    with torch.no_grad():
        draft.head.markov_w2.weight.zero_()
    return draft


def confidences(policy: LocalPolicy, draft: Proposer) -> Calibrated:
    """Temperatures from the first half of the rounds, judged on the second, which are other answers."""
    heard: list[Round] = []
    while len(heard) < 2 * ROUNDS:
        decode(policy, draft, 64, 100_000 + len(heard), heard)
    return calibrate(Rounds.of(heard))


def show(name: str, found: Measured) -> None:
    """One line of the table."""
    shares = " ".join(f"{share:5.2f}" for share in found.kept)
    print(f"{name:22s} {found.tau:5.2f} +- {found.half:4.2f}  {shares}  {found.rounds:6d}", flush=True)


def compare(policy: LocalPolicy, steps: int, seed: int, kinds: Sequence[Kind]) -> dict[str, Measured]:
    """All kinds after as many updates, and dspark with its head switched off."""
    found: dict[str, Measured] = {}
    for kind in kinds:
        draft, fresh = trained(policy, kind, steps, seed)
        found[kind.name] = measure(policy, draft)
        show(kind.name + (" (trained now)" if fresh else ""), found[kind.name])
        if kind.name == "dspark":
            found["ablated"] = measure(policy, ablated(draft))
            show("  its W2 set to 0", found["ablated"])
    return found


def main() -> None:
    """Compare, ablate, calibrate."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one seed, short training only")
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each kind in the full form")
    args = parser.parse_args()
    began = time.perf_counter()
    policy = target()
    rows: dict[int, list[dict[str, Measured]]] = {}
    for steps in (SHORT,) if args.quick else (SHORT, LONG):
        for seed in range(1 if args.quick else args.seeds):
            print(
                f"\n{steps} updates, seed {seed}: tokens per round, drafts kept by position, rounds",
                flush=True,
            )
            rows.setdefault(steps, []).append(compare(policy, steps, seed, KINDS))
    # After a short training most confidences are below one half, and no temperature lifts them above it.
    draft, fresh = trained(policy, KINDS[0], LONG, 0)
    told = confidences(policy, draft)
    before, after = (
        float(np.mean([p.ece for p in part if p.ece is not None])) for part in (told.before, told.after)
    )
    judged = told.after[0].rounds
    chosen = " ".join(f"{t:.2f}" for t in told.scaling.temperatures)
    print(f"\nconfidence after {LONG} updates{' (trained now)' if fresh else ''}: mean calibration error")
    print(f"{before:.4f} -> {after:.4f} on {judged} rounds, fitted on {told.fitted}; temperatures {chosen}")
    for steps, seeds in rows.items():
        print(f"{steps} updates: " + ", ".join(f"{k} {v:.3f}" for k, v in figures(seeds).items()))
    print(f"{time.perf_counter() - began:.0f} s")
    told_last = figures(rows[SHORT]) | {"ece_cut": 1 - after / before}
    print(json.dumps({key: round(told_last[key], 4) for key in KEYS}))


def figures(seeds: Sequence[dict[str, Measured]]) -> dict[str, float]:
    """Means over the seeds, as the claims name them."""

    def tau(name: str) -> float:
        return float(np.mean([one[name].tau for one in seeds]))

    second = {n: float(np.mean([one[n].kept[1] for one in seeds])) for n in ("dspark", "parallel")}
    return {
        "tau_dspark": tau("dspark"),
        "tau_parallel": tau("parallel"),
        "tau_dflash": tau("dflash"),
        "tau_eagle": tau("eagle"),
        "tau_gain": tau("dspark") / tau("parallel"),
        "pos2_ratio": second["dspark"] / second["parallel"],
        "ablated_gain": tau("ablated") / tau("parallel") - 1,
    }


if __name__ == "__main__":
    main()
