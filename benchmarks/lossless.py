"""Losslessness: is what a speculative decoder says distributed as plain decoding says it, exactly?

Exact part, no sampling: the published counterexample (an arg-max over lengths that sees the drafts says A
with probability 0.85 where the model says 0.7), a rule that drops unlikely drafts and its lossless twin,
and the joint distribution of two requests on tiny vocabularies under every schedule, by enumeration, with the
acceptance functions of the real decoder. The leaky arg-max must be caught by the same enumeration. Sampled
part: a random two-layer model and a drafter trained for it here, through the real decoder with a schedule
on a jagged table: greedy answers token for token, and chi-square tests of samples against the model's exact
distribution under temperature, top-k and top-p.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from refork.policies.base import Sampling
from refork.policies.local import LocalPolicy
from refork.types import IntArray, token_array
from refork_methods.speculate.config import draft_config
from refork_methods.speculate.data import Prompt, answers
from refork_methods.speculate.decoder import SpeculativeDecoder
from refork_methods.speculate.lossless import (
    Certificate,
    DropUnlikely,
    RetrospectiveArgmax,
    StopAfterUnlikely,
    check_decoder,
    check_lossless,
    counterexample,
    first_token,
    single_draft,
    worlds,
)
from refork_methods.speculate.model import DraftModel, as_draft_model
from refork_methods.speculate.schedule import PrefixScheduler, schedule_of
from refork_methods.speculate.step_cost import StepCost, shapes
from refork_methods.speculate.train import DraftTraining, train_draft
from refork_methods.speculate.verification import Rule
from refork_testbed.models.tokenizer import make_tokenizer

RULES = (
    "early_stop",
    "stale_topk",
    "stale_topk:2",
    "top_k:2",
    "context_only",
    "vllm",
    "static_threshold:0.5",
    "fixed:1",
)
WORDS = [f"w{i}" for i in range(24)]
WIDTH = 1024
SETTINGS = {
    "temperature 0.7": Sampling(temperature=0.7),
    "top-k 6": Sampling(top_k=6),
    "top-p 0.8": Sampling(top_p=0.8),
    "temperature 1.3, top-k 12, top-p 0.9": Sampling(temperature=1.3, top_k=12, top_p=0.9),
}


def jagged(requests: int, block: int) -> StepCost:
    """Seconds that rise in steps, so that lengths differ from round to round."""
    sizes = shapes(requests * (1 + block))
    return StepCost.of({b: 1.0 + 0.02 * (b // 300) for b in sizes})


def exact() -> dict[str, float]:
    """Figures of the exact part; prints its tables."""
    world, single = counterexample(), single_draft()
    leaky = float(first_token(world, RetrospectiveArgmax(world.cost))[0])
    causal = float(first_token(world, PrefixScheduler(world.cost))[0])
    print(f"counterexample, P(A) = 0.7: arg-max over lengths {leaky:.12f}, Algorithm 1 {causal:.12f}")
    drop, stop = (float(first_token(single, rule)[0]) for rule in (DropUnlikely(0.5), StopAfterUnlikely(0.5)))
    print(f"one draft, P(A) = 0.7: unlikely drafts dropped {drop:.12f}, kept as the last one {stop:.12f}")
    any_table = StepCost.of({1: 1.0})
    largest, leaks = 0.0, []
    print("\nlaw of two tokens of each request, largest total variation to the model's own")
    for name in RULES:
        found = check_lossless(schedule_of(name, any_table), name=name)
        largest = max(largest, found.max_tv or 0.0)
        print(f"{name:22s} {found.max_tv:.2e}  over {len(found.cases)} worlds")
    two = [w for w in worlds() if w.requests == 2]
    for name, found in (
        ("retrospective arg-max", check_lossless(RetrospectiveArgmax, among=two)),
        ("context-only rule, head reads drafts", context_only_misused()),
        ("unlikely drafts dropped", check_lossless(lambda cost: DropUnlikely(0.5), among=two)),
    ):
        leaks.append(found.max_tv or 0.0)
        print(f"{name:36s} {found.max_tv:.4f}  {'NOT CAUGHT' if found.lossless else 'caught'}")
    if max(abs(drop - 0.88), abs(stop - 0.70)) > 1e-12:
        raise SystemExit("the rule that drops unlikely drafts, or its twin, is not what it should be")
    return {"leaky": leaky, "causal": causal, "max_tv": largest, "leak_caught": min(leaks)}


def context_only_misused() -> Certificate:
    """The same-step search on confidences that read drafted tokens."""

    def make(cost: StepCost) -> PrefixScheduler:
        return PrefixScheduler(cost, "context_only")

    return check_lossless(make, among=[w for w in worlds() if w.requests == 2])


def target() -> LocalPolicy:
    """A random two-layer model of width 32 over 24 words and a few marks, with a peaked distribution."""
    tokenizer = make_tokenizer(WORDS, 128)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=128,
        initializer_range=0.35,
    )
    return LocalPolicy(LlamaForCausalLM(config).eval(), tokenizer, name="random")


def drafter(policy: LocalPolicy, steps: int) -> DraftModel:
    """A drafter of that model, trained for a few seconds on its answers."""
    prompts = [Prompt(text=f"w{i % 24} w{(7 * i) % 24}") for i in range(96)]
    data = answers(policy, prompts, Sampling(max_tokens=40, ignore_eos=True)).examples
    config = draft_config(policy, layers=2, rank=16, block=5)
    plan = DraftTraining(steps=steps, batch=16, rows=16, anchors=8, learning_rate=5e-3, held_out=0.1)
    made = train_draft(policy, data, config, plan)
    tau = made.held_out.tau_prob if made.held_out is not None else float("nan")
    print(f"\ndrafter of {steps} steps, tau_prob on held-out text {tau:.3f}")
    return as_draft_model(made.draft)


def prompts(policy: LocalPolicy, count: int) -> list[IntArray]:
    """Random prompts of 1 to 12 tokens."""
    rng = np.random.default_rng(5)
    size = policy.card.vocabulary or 0
    return [token_array(rng.integers(0, size, rng.integers(1, 13))) for _ in range(count)]


def sampled(samples: int, steps: int) -> dict[str, float]:
    """Figures of the sampled part; prints every test."""
    policy = target()
    draft = drafter(policy, steps)
    mismatches, least = 0, 1.0
    shares: dict[Rule, int] = {"rejection": samples, "coupled": samples // 4}
    for rule, share in shares.items():
        scheduler = PrefixScheduler(jagged(WIDTH, draft.config.block), "early_stop", beyond="cap")
        decoder = SpeculativeDecoder(policy, draft, rule=rule, scheduler=scheduler, width=WIDTH)
        began = time.monotonic()
        found = check_decoder(
            policy,
            decoder,
            prompts(policy, 1),
            SETTINGS,
            samples=share,
            tokens=3,
            greedy=prompts(policy, 200),
            seed=1,
        )
        stats = decoder.stats
        print(
            f"\n{rule}: {stats.rounds} rounds, {stats.verified} drafts verified, {stats.accepted} kept, "
            f"greedy mismatches {found.mismatches} of 200, {time.monotonic() - began:.0f} s"
        )
        for case in found.cases:
            print(
                f"  {case.name:50s} p {case.p:.4f}  {case.samples} samples, {case.cells} cells, "
                f"would show a total variation of {case.detectable or 1.0:.4f}"
            )
        mismatches += found.mismatches or 0
        least = min(least, 1.0 if found.min_p is None else found.min_p)
    return {"greedy_mismatches": mismatches, "chi2_min_p": least}


def main() -> None:
    """Check, print the tables, and the figures as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="ends within 50 s on 2 cores")
    quick: bool = parser.parse_args().quick
    figures = exact()
    figures |= sampled(*((8_000, 120) if quick else (100_000, 200)))
    print(json.dumps({k: float(f"{v:.12g}") if isinstance(v, float) else v for k, v in figures.items()}))


if __name__ == "__main__":
    main()
