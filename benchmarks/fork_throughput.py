"""Forks at many points of one trace: the branching decoder against `generate`, with and without a cache.

The work: 64 draws of 16 tokens at each of 20 points of a 200-token trace, on random-initialised Llama
models, float32, two threads. Every side does the same work at temperature 1, and none decodes text. The
branching decoder also returns log-probs and starts from an empty cache; the peers return token ids only.
The decoder runs linear layers through oneDNN with packed weights. "Packed generate" gives the peers that
too (transformers does not offer it), so that what sharing and batching gain is seen apart.

llama.cpp runs the same weights as GGUF in float32, in a process of its own: the trace is decoded once, the
branches of a point share its cells (`llama_memory_seq_cp`), and a pass feeds one token of every branch of
several points; the full form tries how many. It lives in an environment of its own, compiled for this
processor on the first run (without --quick; needs a C++ compiler) or named by REFORK_LLAMA, a Python that
has it.

`--quick` forks at fewer points of the larger models, on all sides alike, and leaves out the left-padded
batches, which were hardly ever faster than a call per point.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from parts.llama_forks import BEST, TRIED, Task, llama, llama_python
from refork.decoding.backbone import Backbone
from refork.decoding.loop import BranchDecoder
from refork.decoding.packed import PackedLinears
from refork.policies.base import Sampling
from refork.sampling.noise import NoiseKey

TRACE, POINTS, DRAWS, TOKENS = 200, 20, 64, 16
TARGETS = {"small": 0.15, "middle": 0.30, "large": 0.50}


@dataclass(frozen=True)
class Size:
    """A model size, and at how many points a quick run forks it."""

    layers: int
    width: int
    heads: int
    vocabulary: int
    quick_points: int

    def build(self) -> PreTrainedModel:
        """The model, with the same random weights every time."""
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=self.vocabulary,
            hidden_size=self.width,
            # Llama's usual ratio of 8/3, rounded up to a multiple of 64.
            intermediate_size=math.ceil(8 * self.width / 3 / 64) * 64,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.heads,
            max_position_embeddings=512,
            bos_token_id=None,
            eos_token_id=None,
        )
        return LlamaForCausalLM(config).eval()


SIZES = {
    "small": Size(2, 128, 4, 128, 20),
    "middle": Size(6, 256, 8, 2048, 4),
    "large": Size(8, 512, 8, 4096, 2),
}


@dataclass(frozen=True)
class Work:
    """A model, the trace and the prefixes to fork."""

    model: PreTrainedModel
    trace: np.ndarray
    points: list[np.ndarray]

    @property
    def branches(self) -> int:
        """Continuations to draw."""
        return len(self.points) * DRAWS


def ours(work: Work) -> Callable[[], None]:
    decoder = BranchDecoder(Backbone(work.model))
    prefixes = [point for point in work.points for _ in range(DRAWS)]
    noise = [NoiseKey(0, point, draw) for point in range(len(work.points)) for draw in range(DRAWS)]
    settings = Sampling(max_tokens=TOKENS)

    def run() -> None:
        decoder.cache.clear()
        drawn = list(decoder.sample(prefixes, noise, settings))
        assert sum(len(item.tokens) for item in drawn) == work.branches * TOKENS

    return run


def generate(model: PreTrainedModel, ids: torch.Tensor, mask: torch.Tensor, **options: object) -> None:
    with torch.inference_mode():
        out = model.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=TOKENS,
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            pad_token_id=0,
            **options,
        )
    assert out.shape[1] == ids.shape[1] + TOKENS


def generate_per_point(work: Work) -> Callable[[], None]:
    def run() -> None:
        for point in work.points:
            ids = torch.from_numpy(point)[None]
            generate(work.model, ids, torch.ones_like(ids), num_return_sequences=DRAWS)

    return run


def generate_padded(work: Work, rows: int) -> Callable[[], None]:
    """Left-padded batches of ``rows`` branches; points of similar length lie together."""

    def run() -> None:
        per_call = rows // DRAWS
        for start in range(0, len(work.points), per_call):
            points = work.points[start : start + per_call]
            longest = max(len(point) for point in points)
            ids = torch.zeros((len(points), longest), dtype=torch.long)
            mask = torch.zeros_like(ids)
            for row, point in enumerate(points):
                ids[row, longest - len(point) :] = torch.from_numpy(point)
                mask[row, longest - len(point) :] = 1
            generate(work.model, ids, mask, num_return_sequences=DRAWS)

    return run


def generate_with_prefix_cache(work: Work) -> Callable[[], None]:
    """The trace's cache is computed once; each point crops a copy, expands it and generates."""

    def run() -> None:
        whole = DynamicCache(config=work.model.config)
        with torch.inference_mode():
            work.model(torch.from_numpy(work.trace)[None], past_key_values=whole, logits_to_keep=1)
        for point in work.points:
            cache = copy.deepcopy(whole)
            cache.crop(len(point) - 1 - len(work.trace))
            cache.batch_repeat_interleave(DRAWS)
            ids = torch.from_numpy(point)[None].expand(DRAWS, -1)
            generate(work.model, ids, torch.ones_like(ids), past_key_values=cache)

    return run


def generate_static(work: Work) -> Callable[[], None]:
    """A call per point with a static cache."""

    def run() -> None:
        for point in work.points:
            ids = torch.from_numpy(point)[None]
            mask = torch.ones_like(ids)
            generate(work.model, ids, mask, num_return_sequences=DRAWS, cache_implementation="static")

    return run


def with_our_products(work: Work, run: Callable[[], None]) -> Callable[[], None]:
    """A peer whose linear layers multiply as ours do: what is left is the gain of sharing and batching."""
    linears = PackedLinears(work.model)

    def packed() -> None:
        with torch.inference_mode(), linears.attached():
            run()

    return packed


def matrix_products(work: Work) -> Callable[[], None]:
    """The bare projections and LM head: 15 passes over all branches, one over the trace."""
    layers = [m for m in work.model.modules() if isinstance(m, torch.nn.Linear)]
    widths = {layer.in_features for layer in layers}
    inputs = {rows: {width: torch.randn(rows, width) for width in widths} for rows in (work.branches, TRACE)}

    def run() -> None:
        with torch.inference_mode():
            for rows, passes in ((work.branches, TOKENS - 1), (TRACE, 1)):
                for _ in range(passes):
                    for layer in layers:
                        layer(inputs[rows][layer.in_features])

    return run


def bandwidth() -> float:
    """Bytes per second that a large copy reads and writes."""
    source, target = torch.randn(32 << 20), torch.empty(32 << 20)
    best = min(clock(lambda: target.copy_(source)) for _ in range(5))
    return 2 * source.numel() * 4 / best


def bytes_moved(work: Work, size: Size) -> float:
    """What 16 tokens of every branch must read at least: weights, the shared prefix, own keys and values."""
    weights = 4 * sum(p.numel() for p in work.model.parameters())
    position = 4 * 2 * size.layers * size.width
    own = work.branches * position * sum(range(1, TOKENS))
    return (TOKENS - 1) * (weights + TRACE * position) + own


def clock(run: Callable[[], object]) -> float:
    """Seconds of a call, or those it says it took."""
    start = time.perf_counter()
    told = run()
    return told if isinstance(told, float) else time.perf_counter() - start


def in_turns(sides: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The fastest of several rounds, all sides one after another in each, so load hits all alike."""
    best = dict.fromkeys(sides, math.inf)
    for _ in range(rounds):
        for name, run in sides.items():
            best[name] = min(best[name], clock(run))
            print(f"  {name}: {best[name]:.3f} s", flush=True)
            # A short side is timed again: its minimum shall be as sure as the long ones'.
            for _ in range(2 if best[name] < 1.0 else 0):
                best[name] = min(best[name], clock(run))
    return best


def measure(name: str, quick: bool, rounds: int | None, python: str | None) -> tuple[dict[str, float], Work]:
    size = SIZES[name]
    trace = np.random.default_rng(0).integers(0, size.vocabulary, TRACE)
    count = size.quick_points if quick else POINTS
    # Evenly spread; the mean prefix is 105 tokens however many points there are.
    cuts = [
        round(10 + 190 * (row + 0.5 * (count < POINTS)) / (count - (count == POINTS))) for row in range(count)
    ]
    work = Work(size.build(), trace, [trace[:cut] for cut in cuts])
    work_ours = Work(work.model, trace, [trace[:cut].astype(np.int32) for cut in cuts])
    sides: dict[str, Callable[[], object]] = {
        "ours": ours(work_ours),
        "bare products, plain": matrix_products(work),
        "bare products, packed": with_our_products(work, matrix_products(work)),
        "generate, a call per point": generate_per_point(work),
        "generate with prefix cache": generate_with_prefix_cache(work),
        "packed generate, a call per point": with_our_products(work, generate_per_point(work)),
        "packed generate with prefix cache": with_our_products(work, generate_with_prefix_cache(work)),
    }
    for rows in () if quick else (256, work.branches):
        sides[f"generate, left-padded {rows}"] = generate_padded(work, rows)
    if not quick or name == "small":
        sides["generate, static cache"] = generate_static(work)
    for run in list(sides.values())[:3]:
        run()
    with contextlib.ExitStack() as stack:
        task = Task(trace.tolist(), cuts, DRAWS, TOKENS)
        for setting in (BEST, *(() if quick else TRIED)) if python else ():
            forks = stack.enter_context(llama(work.model, task, python or "", *setting))
            sides[f"llama.cpp, {forks.label}"] = forks.shared
            forks.shared()
            if setting == BEST and not quick and name == "small":
                sides["llama.cpp, one by one"] = forks.one_by_one
        return in_turns(sides, rounds or (1 if quick else 3)), work


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer points of the larger models; under 50 s")
    parser.add_argument("--sizes", default="small,middle,large")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, help="rounds, all sides in turns (default 3, quick 1)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    console = Console()
    table = Table("size", "points", "side", "seconds", "tokens/s", "ours is faster by")
    python = llama_python(make=not options.quick)
    keys = (
        "vs_generate", "vs_prefix_reuse", "tokens_per_s", "limit_share", "vs_packed", "vs_packed_reuse",
        "vs_llama",
    )  # fmt: skip
    result: dict[str, dict[str, float]] = {key: {} for key in keys}
    speed = bandwidth()
    for name in options.sizes.split(","):
        print(f"{name}:", flush=True)
        seconds, work = measure(name, options.quick, options.rounds, python)
        tokens = work.branches * TOKENS
        for side, value in sorted(seconds.items(), key=lambda pair: pair[1]):
            ratio = f"{value / seconds['ours']:.2f}x"
            points = str(len(work.points))
            table.add_row(name, points, side, f"{value:.3f}", f"{tokens / value:,.0f}", ratio)
        floor = bytes_moved(work, SIZES[name]) / speed
        table.add_row(name, "", "memory-bandwidth limit", f"{floor:.3f}", f"{tokens / floor:,.0f}", "")
        plain = [v for side, v in seconds.items() if side.startswith("generate,")]
        result["vs_generate"][name] = round(min(plain) / seconds["ours"], 2)
        result["vs_prefix_reuse"][name] = round(seconds["generate with prefix cache"] / seconds["ours"], 2)
        result["tokens_per_s"][name] = round(tokens / seconds["ours"])
        limit = min(v for side, v in seconds.items() if side.startswith("bare products"))
        result["limit_share"][name] = round(limit / seconds["ours"], 3)
        other = [v for side, v in seconds.items() if side.startswith("llama.cpp")]
        if other:
            result["vs_llama"][name] = round(min(other) / seconds["ours"], 2)
        packed = seconds["packed generate, a call per point"], seconds["packed generate with prefix cache"]
        result["vs_packed"][name] = round(packed[0] / seconds["ours"], 2)
        result["vs_packed_reuse"][name] = round(packed[1] / seconds["ours"], 2)
    console.print(table)
    console.print(
        f"memory bandwidth measured: {speed / 1e9:.1f} GB/s; limit = the faster bare products, same run"
    )
    for name, share in result["limit_share"].items():
        ratio, reuse = result["vs_generate"][name], result["vs_prefix_reuse"][name]
        met = ratio >= 10 and reuse >= 3 and share >= TARGETS[name]
        console.print(f"{name}: targets (10x, 3x, {TARGETS[name]:.0%}) {'met' if met else 'not met'}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
