"""What watching costs: the same rollouts and forks unwatched, on record, traced and profiled, in turns.

Run: python benchmarks/observability.py [--quick]. Two workloads: a scripted policy in a small world, where a
rollout takes a few milliseconds of Python and watching weighs most; and forks of a random-initialised Llama
model of two layers. Sides take turns within each round, in an order that rotates; a figure is the median over
rounds of a side's processor time (all threads, the record's own too) over the unwatched side's of the same
round, its interval the sign test's. "on record" is what every long command does unless told otherwise.
"traced" ends its spans in memory, without a network.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from refork.forking import fork
from refork.growing.plant import plant_prompt
from refork.growing.rollouts import grow
from refork.policies.base import Sampling
from refork.policies.local import LocalPolicy
from refork.policies.open import open_policy
from refork.runs import observe
from refork.runs.observe import observed
from refork.runs.otel import Telemetry
from refork.tree.tree import Tree
from refork.worlds.open import open_world

SIDES = ("unwatched", "on record", "traced", "profiled")


def small_model() -> LocalPolicy:
    """Two layers of width 128 over bytes, the same random weights every time."""
    torch.manual_seed(0)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE({"<end>": 0} | {c: i + 1 for i, c in enumerate(letters)}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(["<end>"])
    config = LlamaConfig(
        vocab_size=257, hidden_size=128, intermediate_size=384, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=512, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<end>")
    return LocalPolicy(LlamaForCausalLM(config).eval(), tokenizer, name="small")


def rollouts(draws: int) -> Callable[[Any], int]:
    """Rollouts of the scripted locksmith; how many."""
    policy, world = open_policy("scripted:lock"), open_world("lock")
    tasks = world.tasks("held-out", 4, 0)

    def work(progress: Any) -> int:
        with tempfile.TemporaryDirectory() as folder, Tree.open(Path(folder) / "tree.db") as tree:
            grow(tree, policy, world, tasks, draws=draws, settings=Sampling(max_tokens=40), progress=progress)
        return 4 * draws

    return work


def forks(draws: int) -> Callable[[Any], int]:
    """Draws of the small model at one point; how many."""
    policy = small_model()

    def work(progress: Any) -> int:
        with tempfile.TemporaryDirectory() as folder, Tree.open(Path(folder) / "tree.db") as tree:
            start = plant_prompt(tree, policy, "once upon a time " * 8)
            fork(start, policy, draws, settings=Sampling(max_tokens=24), progress=progress)
        return draws

    return work


def silent(*arguments: Any, **named: Any) -> None:
    """Nobody hears of progress."""


@contextmanager
def watched(side: str) -> Iterator[Any]:
    """A side's watching, around one turn of work."""
    if side == "unwatched":
        with nullcontext():
            yield silent
        return
    spans, metrics = TracerProvider(shutdown_on_exit=False), MeterProvider([InMemoryMetricReader()])
    spans.add_span_processor(SimpleSpanProcessor(InMemorySpanExporter()))
    before = observe.open_telemetry
    made = Telemetry(spans.get_tracer("b"), metrics.get_meter("b")) if side == "traced" else None
    observe.open_telemetry = lambda: made  # type: ignore[attr-defined]
    try:
        with observed("benchmark", profile=side == "profiled") as run:
            yield run
    finally:
        observe.open_telemetry = before  # type: ignore[attr-defined]
        metrics.shutdown()


def turn(side: str, work: Callable[[Any], int]) -> float:
    """Processor seconds of one turn's work, beginning and ending the watching left out."""
    with watched(side) as progress:
        start = time.process_time()
        work(progress)
        return time.process_time() - start


def median_interval(values: np.ndarray) -> tuple[float, float, float]:
    """A median with its 95 % interval by order statistics: no assumption on how times scatter."""
    ordered = np.sort(values)
    n = len(ordered)
    cut = max(0, int(np.floor((n - 1.96 * np.sqrt(n)) / 2)))
    return float(np.median(ordered)), float(ordered[cut]), float(ordered[n - 1 - cut])


def compare(work: Callable[[Any], int], rounds: int) -> dict[str, Any]:
    """Every side in every round, and what it costs beside the unwatched side of that round."""
    times: dict[str, list[float]] = {side: [] for side in SIDES}
    count = work(silent)
    for number in range(rounds):
        for place in range(len(SIDES)):
            side = SIDES[(number + place) % len(SIDES)]
            times[side].append(turn(side, work))
    base = np.array(times["unwatched"])
    return {
        "count": count,
        "per_second": count / float(np.median(base)),
        "cost": {side: median_interval(np.array(times[side]) / base - 1) for side in SIDES[1:]},
    }


def main() -> None:
    """Both workloads, a table, and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    figures: dict[str, Any] = {}
    table = Table("work", "unwatched per second", *(f"{side}, % slower" for side in SIDES[1:]))
    with tempfile.TemporaryDirectory() as home:
        os.environ["REFORK_HOME"] = home
        for name, work, rounds in (
            ("rollouts", rollouts(8), 16 if quick else 60),
            ("forks", forks(16), 10 if quick else 60),
        ):
            found = compare(work, rounds)
            shown = [f"{100 * m:.1f} [{100 * a:.1f}, {100 * b:.1f}]" for m, a, b in found["cost"].values()]
            table.add_row(name, f"{found['per_second']:,.0f}", *shown)
            figures[f"{name}_per_s"] = found["per_second"]
            for side, (middle, low, high) in found["cost"].items():
                key = f"{name}_{side.replace(' ', '_')}"
                figures |= {
                    f"{key}_percent": 100 * middle,
                    f"{key}_low": 100 * low,
                    f"{key}_high": 100 * high,
                }
    Console().print(table)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
