"""How fast branches are drawn from one model: plain, with a drafter, and by transformers' own ways.

Target: the organism `chronicler` (8 layers x 512, float32), two threads, one process; greedy, so every side
must say the same tokens, and they are compared. Sides take turns; figures are medians over rounds. The peers
run at the best settings that the full form finds (it tries them all); `--quick` takes fixed ones.

In the full form `generate` with Refork's packed matrix products, which transformers does not offer, stands
beside the plain peers: so it is seen what the drafter gains and what the products gain. Sampling at
temperature 1 and sixteen prompts at once are in the full form too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from scipy.stats import binom

from parts.decode_models import assistant, drafter, openings, prompts, target, threads
from refork.decoding.live import LiveDecoder
from refork.decoding.packed import PackedLinears
from refork.policies.base import Request, Sampling, sample_all
from refork.policies.local import LocalPolicy
from refork.sampling.noise import NoiseKey
from refork_methods.speculate.decoder import SpeculativeDecoder
from refork_methods.speculate.dflash_hf import as_assistant
from refork_methods.speculate.profile import profile
from refork_methods.speculate.schedule import MEASURED, PrefixScheduler
from refork_methods.speculate.speculator import ModelSpeculator
from refork_methods.speculate.step_cost import StepCost

CONSOLE = Console(width=110)
BATCHES = (1, 2, 4, 8, 16, 32, 64)
#: Tokens of passes that the quick form profiles.
QUICK = (1, 4, 16, 64, 128, 256)
#: What the quick form takes: the fastest of TRIED on this model, as the full form finds them.
BEST = {
    "generate": {"attention": "sdpa", "cache": None},
    "assisted": {"tokens": 7, "schedule": "heuristic", "confidence": 0.0},
    "lookup": {"tokens": 5, "ngram": 2},
    "continuous": {"num_blocks": 64, "page_size": 32, "max_batch_tokens": 512},
}
TRIED = {
    "generate": [{"attention": a, "cache": c} for a in ("sdpa", "eager") for c in (None, "static")],
    "assisted": [
        {"tokens": n, "schedule": s, "confidence": c}
        for n in (3, 5, 7, 11)
        for s, c in (("constant", 0.0), ("constant", 0.4), ("heuristic", 0.0))
    ],
    "lookup": [{"tokens": n, "ngram": k} for n in (3, 5, 10) for k in (2, 3)],
    "continuous": [
        {"num_blocks": 64, "page_size": page, "max_batch_tokens": most}
        for page in (32, 256)
        for most in (256, 512)
    ],
}
Tokens = list[list[int]]
Run = Callable[[], Tokens]


@dataclass
class Bench:
    """The models, and what every side is asked."""

    policy: LocalPolicy
    dspark: Any
    dflash: Any
    small: Any
    cost: StepCost
    asked: list[np.ndarray]
    length: int
    law: Sampling = field(init=False)

    def __post_init__(self) -> None:
        self.law = Sampling(temperature=0.0, max_tokens=self.length, ignore_eos=True)

    def requests(self, count: int | None = None) -> list[Request]:
        """The prompts, each with noise of its own."""
        return [Request(ids, NoiseKey(0, 0, i)) for i, ids in enumerate(self.asked[:count])]

    # -- ours ------------------------------------------------------------------------------------

    def plain(self, together: int, law: Sampling | None = None) -> Run:
        """The branching decoder, so many prompts at a time."""
        return lambda: self._drawn(self.policy, together, law or self.law)

    def live(self, together: int) -> Run:
        """The continuous batch without a drafter."""

        def run() -> Tokens:
            found: Tokens = []
            for part in self._parts(together):
                live = LiveDecoder(self.policy.decoder, width=together)
                said: dict[int, list[int]] = {}
                for item in part:
                    said[live.submit(self.policy.ask(item.tokens, item.noise, self.law))] = []
                while not live.idle:
                    for step in live.step():
                        said[step.request_id] += step.tokens.tolist()
                found += said.values()
            return found

        return run

    def drafted(
        self, together: int, draft: Any, law: Sampling | None = None, *, scheduled: bool = True, **more: Any
    ) -> Run:
        """The same with a drafter; ``scheduled``: by the table of what steps cost here."""
        plan = PrefixScheduler(self.cost, "stale_topk", beyond="cap", margin=MEASURED) if scheduled else None
        decoder = SpeculativeDecoder(self.policy, draft, scheduler=plan, **more)

        def run() -> Tokens:
            decoder.reset()
            found = self._drawn(decoder, together, law or self.law)
            run.stats = decoder.stats  # type: ignore[attr-defined]
            return found

        return run

    def _parts(self, together: int) -> Iterator[list[Request]]:
        asked = self.requests()
        for start in range(0, len(asked), together):
            yield asked[start : start + together]

    def _drawn(self, policy: Any, together: int, sampling: Sampling) -> Tokens:
        return [
            item.tokens.tolist()
            for part in self._parts(together)
            for item in sample_all(policy, part, sampling)
        ]

    # -- transformers ----------------------------------------------------------------------------

    def _one_by_one(self, attention: str = "sdpa", **options: Any) -> Tokens:
        model = self.policy.model
        model.set_attn_implementation(attention)
        options = {"do_sample": False} | options
        found = []
        for ids in self.asked:
            given = torch.tensor(ids.tolist())[None]
            with torch.inference_mode():
                out = model.generate(
                    given, attention_mask=torch.ones_like(given), max_new_tokens=self.length,
                    eos_token_id=None, pad_token_id=0, **options,
                )  # fmt: skip
            found.append(out[0, given.shape[1] :].tolist())
        return found

    def generate(self, attention: str, cache: str | None, **more: Any) -> Run:
        """`generate`, one prompt after another."""
        options = {"cache_implementation": cache} if cache else {}
        return lambda: self._one_by_one(attention, **options, **more)

    def packed_generate(self, attention: str, cache: str | None) -> Run:
        """`generate` with our matrix products."""
        linears = PackedLinears(self.policy.model)

        def run() -> Tokens:
            with torch.inference_mode(), linears.attached():
                return self.generate(attention, cache)()

        return run

    def assisted(self, tokens: int, schedule: str, confidence: float) -> Run:
        """Assisted generation with the small autoregressive model."""

        def run() -> Tokens:
            told = self.small.generation_config
            told.num_assistant_tokens, told.num_assistant_tokens_schedule = tokens, schedule
            told.assistant_confidence_threshold = confidence
            return self._one_by_one(assistant_model=self.small)

        return run

    def lookup(self, tokens: int, ngram: int) -> Run:
        """Drafts that are looked up in the text so far."""
        return lambda: self._one_by_one(prompt_lookup_num_tokens=tokens, max_matching_ngram_size=ngram)

    def dflash_there(self) -> Run:
        """Transformers' own DFlash generation with our parallel drafter's weights."""
        model = as_assistant(self.dflash)
        return lambda: self._one_by_one(assistant_model=model, speculation_type="dflash")

    def continuous(self, **settings: Any) -> Run:
        """All prompts at once through transformers' continuous batching."""
        from transformers import GenerationConfig
        from transformers.generation.configuration_utils import ContinuousBatchingConfig

        sampling = GenerationConfig(
            max_new_tokens=self.length, do_sample=False, eos_token_id=-1, pad_token_id=0
        )

        def run() -> Tokens:
            self.policy.model.set_attn_implementation("sdpa")
            out = self.policy.model.generate_batch(
                [ids.tolist() for ids in self.asked],
                generation_config=sampling,
                continuous_batching_config=ContinuousBatchingConfig(**settings),
            )
            return [list(item.generated_tokens) for item in out.values()]

        return run

    def together(self, attention: str, cache: str | None) -> Run:
        """All prompts as one batch of `generate`; they must be of one length."""

        def run() -> Tokens:
            model = self.policy.model
            model.set_attn_implementation(attention)
            longest = max(len(ids) for ids in self.asked)
            given = torch.zeros((len(self.asked), longest), dtype=torch.long)
            mask = torch.zeros_like(given)
            for row, ids in enumerate(self.asked):
                given[row, longest - len(ids) :] = torch.tensor(ids.tolist())
                mask[row, longest - len(ids) :] = 1
            with torch.inference_mode():
                out = model.generate(
                    given, attention_mask=mask, max_new_tokens=self.length, eos_token_id=None, pad_token_id=0,
                    do_sample=False, **({"cache_implementation": cache} if cache else {}),
                )  # fmt: skip
            return [row[longest:].tolist() for row in out]

        return run

    def of(self, asked: Sequence[np.ndarray], length: int) -> Bench:
        """The same models with other work."""
        return Bench(self.policy, self.dspark, self.dflash, self.small, self.cost, list(asked), length)


def in_turns(
    sides: dict[str, Run], rounds: int, warm: bool = True
) -> tuple[dict[str, float], dict[str, Tokens]]:
    """Seconds (the median) of every side over rounds in which each runs once, and what it said.

    Without ``warm`` the first round is cold, which the median of three leaves out.
    """
    if warm:
        for run in sides.values():
            run()
    seconds, said = rounds_of(sides, rounds)
    return {name: statistics.median(found) for name, found in seconds.items()}, said


def rounds_of(sides: dict[str, Run], rounds: int) -> tuple[dict[str, list[float]], dict[str, Tokens]]:
    """Seconds of every side in every round, and what it said last."""
    said: dict[str, Tokens] = {}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(rounds):
        # The order turns around, so that no side always follows the same one.
        for name in list(sides)[:: 1 if turn % 2 == 0 else -1]:
            began = time.perf_counter()
            said[name] = sides[name]()
            seconds[name].append(time.perf_counter() - began)
    return seconds, said


def differing(said: Tokens, other: Tokens) -> int:
    """How many answers are not the same tokens."""
    return sum(a != b for a, b in zip(said, other, strict=True))


def tuned(bench: Bench) -> dict[str, dict[str, Any]]:
    """The fastest of each peer's settings (all that are tried, in turns)."""
    found = {}
    for name, options in TRIED.items():
        work = bench if name == "continuous" else bench.of(bench.asked[:3], bench.length)
        runs = {str(i): getattr(work, name)(**option) for i, option in enumerate(options)}
        seconds, _ = in_turns(runs, 3)
        for i, option in enumerate(options):
            print(f"  {name} {option}: {seconds[str(i)]:.2f} s", flush=True)
        found[name] = options[int(min(seconds, key=lambda key: seconds[key]))]
    print(f"best: {found}", flush=True)
    return found


def alone(
    bench: Bench, best: dict[str, dict[str, Any]], rounds: int, quick: bool
) -> tuple[dict[str, float], dict[str, int], Any]:
    """Seconds of every side, one prompt at a time; ``quick`` of those that the claims speak of."""
    drafts = bench.drafted(1, bench.dspark)
    sides: dict[str, Run] = {
        "refork": bench.plain(1),
        "refork + dspark": drafts,
        "generate": bench.generate(**best["generate"]),
        "assisted generation": bench.assisted(**best["assisted"]),
        "prompt lookup": bench.lookup(**best["lookup"]),
    }
    if not quick:
        sides |= {
            "refork, continuous batch": bench.live(1),
            "refork + dspark, no schedule": bench.drafted(1, bench.dspark, scheduled=False),
            "refork + parallel drafter": bench.drafted(1, bench.dflash, scheduled=False),
            "generate, our products": bench.packed_generate(**best["generate"]),
            "transformers' dflash": bench.dflash_there(),
        }
    seconds, said = in_turns(sides, rounds, not quick)
    wrong = {name: differing(tokens, said["refork"]) for name, tokens in said.items()}
    return seconds, wrong, drafts.stats  # type: ignore[attr-defined]


def by_batch(
    bench: Bench, asked: Sequence[np.ndarray], longest: int, rounds: int, quick: bool
) -> dict[int, dict[str, float]]:
    """Tokens per second, plain and drafted, at every batch size (quick: every second), after a warm run.

    The rival is the plain decoder that is the faster in the warm runs. ``ratio`` is the median over rounds of
    its time over the drafted one's in the same round, ``low`` and ``high`` its 95 % interval (by ranks);
    every round has a new decoder, which has not seen how its drafts are kept. ``drafts`` is 0 where the
    schedule hands the whole batch to the plain decoder: both sides are one call then, and ``ratio`` shows how
    far two runs of it differ on this machine.
    """
    found = {}
    for size in BATCHES[:: 2 if quick else 1]:
        # Long enough that the prompts are not most of the work.
        length = longest if not quick or size < 16 else 2 * longest // 3
        work = bench.of(asked[:size], length)
        sides = {
            "plain": work.plain(size),
            "live": work.live(size),
            "dspark": work.drafted(size, work.dspark),
        }
        if not quick:
            sides["always"] = work.drafted(size, work.dspark, scheduled=False)
        once, said = rounds_of(sides, 1 if quick else 2)
        drafts = sides["dspark"].stats.passes  # type: ignore[attr-defined]
        first = {name: min(times) for name, times in once.items()}
        rival = min(("plain", "live"), key=lambda name: first[name])
        seconds: dict[str, list[float]] = {rival: [], "dspark": []}
        # Small batches are quick, so more rounds of them fit.
        several = max(rounds, min(5 * rounds, round(rounds / first[rival])))
        for turn in range(rounds - size // 64 if quick else several):
            runs = {rival: sides[rival], "dspark": work.drafted(size, work.dspark)}
            for name in list(runs)[:: 1 if turn % 2 == 0 else -1]:
                seconds[name] += rounds_of({name: runs[name]}, 1)[0][name]
        ratios = np.array(seconds[rival]) / np.array(seconds["dspark"])
        low, high = median_interval(ratios)
        rates = first | {name: statistics.median(times) for name, times in seconds.items()}
        found[size] = {name: size * length / value for name, value in rates.items()} | {
            "ratio": float(np.median(ratios)),
            "low": low,
            "high": high,
            "rounds": len(ratios),
            "drafts": drafts,
            "differ": sum(differing(tokens, said["plain"]) for tokens in said.values()),
        }
    return found


def median_interval(values: np.ndarray) -> tuple[float, float]:
    """The 95 % interval of a median between two of the values, the widest there is where they are few."""
    ordered = np.sort(values)
    low = max(int(binom.ppf(0.025, len(ordered), 0.5)) - 1, 0)
    return float(ordered[low]), float(ordered[len(ordered) - 1 - low])


def sampled(bench: Bench, best: dict[str, dict[str, Any]], rounds: int, warm: bool) -> dict[str, float]:
    """Seconds at temperature 1, one prompt at a time; the law is checked by benchmarks/lossless.py."""
    sampling = bench.law.but(temperature=1.0)
    options = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
    return in_turns(
        {
            "refork": bench.plain(1, sampling),
            "refork + dspark": bench.drafted(1, bench.dspark, sampling, rule="rejection"),
            "refork + dspark, same tokens": bench.drafted(1, bench.dspark, sampling, rule="coupled"),
            "generate": bench.generate(**best["generate"], **options),
        },
        rounds,
        warm,
    )[0]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No warnings of peers about how they are configured."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer prompts, settings as found; under 50 s")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    quick = options.quick
    began = time.perf_counter()
    with threads(options.threads), quiet():
        policy = target()
        models = drafter(policy, "dspark"), drafter(policy, "dflash"), assistant(policy)
        print(f"models: {time.perf_counter() - began:.0f} s; load {os.getloadavg()[0]:.1f}", flush=True)
        began = time.perf_counter()
        asked = prompts(policy, openings(max(BATCHES)))
        cost = profile(
            policy, ModelSpeculator(models[0]), tokens=QUICK if quick else [2**k for k in range(10)],
            requests=BATCHES[:: 2 if quick else 1], repeats=1 if quick else 3, sweeps=3 if quick else 9,
            max_ratio=4.0, context=32 if quick else 48,
        )  # fmt: skip
        bench = Bench(policy, *models, cost, asked[: 2 if quick else 8], 40 if quick else 128)
        best = BEST if quick else tuned(bench.of(asked[:16], 96))
        print(f"cost table: {time.perf_counter() - began:.0f} s", flush=True)
        seconds, wrong, stats = alone(bench, best, 3 if quick else 7, quick)
        show_alone(bench, seconds, wrong)
        print(f"dspark: {stats}; {time.perf_counter() - began:.0f} s", flush=True)
        batches = by_batch(bench, asked, 24 if quick else 96, 4 if quick else 9, quick)
        show_batches(batches)
        if not quick:
            show_sampled(sampled(bench, best, 5, warm=True), len(bench.asked) * bench.length)
            many = bench.of(asked[:16], 128)
            sixteen, said = in_turns(
                {
                    "refork": many.plain(16), "refork + dspark": many.drafted(16, many.dspark),
                    "continuous batching": many.continuous(**best["continuous"]),
                    "generate, one batch": many.together(**best["generate"]),
                },
                5,
            )  # fmt: skip
            show_sixteen(many, sixteen, said)
    print(f"{time.perf_counter() - began:.0f} s, load {os.getloadavg()[0]:.1f}")
    fast = seconds["refork + dspark"]
    least = min(row["ratio"] for row in batches.values())
    print(
        json.dumps(
            {
                "vs_generate": round(seconds["generate"] / fast, 2),
                "vs_assisted": round(seconds["assisted generation"] / fast, 2),
                "vs_lookup": round(seconds["prompt lookup"] / fast, 2),
                "min_vs_plain": round(least, 3),
            }
        )
    )


def show_alone(bench: Bench, seconds: dict[str, float], wrong: dict[str, int]) -> None:
    """One prompt at a time."""
    tokens = len(bench.asked) * bench.length
    table = Table("one prompt at a time, greedy", "tokens/s", "dspark is faster by", "answers that differ")
    for name, value in sorted(seconds.items(), key=lambda pair: pair[1]):
        ratio = value / seconds["refork + dspark"]
        table.add_row(name, f"{tokens / value:.0f}", f"{ratio:.2f}x", str(wrong[name]))
    CONSOLE.print(table)


def show_sampled(drawn: dict[str, float], tokens: int) -> None:
    """One prompt at a time, with chance."""
    table = Table("one prompt at a time, temperature 1", "tokens/s", "dspark is faster by")
    for name, value in sorted(drawn.items(), key=lambda pair: pair[1]):
        table.add_row(name, f"{tokens / value:.0f}", f"{value / drawn['refork + dspark']:.2f}x")
    CONSOLE.print(table)


def show_batches(batches: dict[int, dict[str, float]]) -> None:
    """Tokens per second by batch size."""
    names = ("plain", "live", "dspark", "always")
    table = Table(
        "batch", "plain", "continuous", "dspark", "always", "ratio (95 %, rounds)", "drafts", "differ"
    )
    for size, row in batches.items():
        rates = (f"{row.get(name, math.nan):.0f}" for name in names)
        drafts = f"{row['drafts']:.0f} passes" if row["drafts"] else "none: same call"
        ratio = f"{row['ratio']:.3f} [{row['low']:.3f}, {row['high']:.3f}], {row['rounds']:.0f}"
        table.add_row(str(size), *rates, ratio, drafts, f"{row['differ']:.0f}")
    CONSOLE.print(table)


def show_sixteen(bench: Bench, seconds: dict[str, float], said: dict[str, Tokens]) -> None:
    """Sixteen prompts at once."""
    table = Table("16 prompts at once", "tokens/s", "dspark is faster by", "answers that differ")
    for name, value in sorted(seconds.items(), key=lambda pair: pair[1]):
        rate, ratio = 16 * bench.length / value, value / seconds["refork + dspark"]
        table.add_row(name, f"{rate:.0f}", f"{ratio:.2f}x", str(differing(said[name], said["refork"])))
    CONSOLE.print(table)


if __name__ == "__main__":
    main()
