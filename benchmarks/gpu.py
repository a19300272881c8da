"""What a CUDA device changes: is the decoder as exact there, how steady, how fast, and with how much memory?

One command of at most eight minutes, `make test-gpu`. Models have the shapes of real ones and random
weights. Their heads are scaled until a token's chances are as uneven as a language model's (an entropy of
some 3 nats), for where all tokens are nearly as likely each rounding error would move a draw. Every part
writes what it found into the JSON file before the next begins, so nothing is lost where the time ends. The
parts:

- ``architectures``: the check of ``arch.py`` on the device, float32: right, slow, refused, silently wrong.
- ``processor``: the same draws on the device as on the processor, and their distribution against enumeration.
- ``shape``: for every size and number format, log-probs of draws against the model's own forward pass in
  that format, both against a float32 pass; and draws alone, among six others and in a crowd, counted.
- ``throughput``: 64 draws of 16 tokens at 20 points of a 200-token trace, beside ``generate`` and continuous
  batching of transformers, with the peak of memory.
- ``drafter``: coupled speculative draws against plain ones.
- ``training``: an update on the device against the same on the processor, and steps of a larger model.

``--page RUN.json...`` writes the tables of docs/gpu.md from what runs wrote.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import os
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import chisquare
from transformers import AutoModelForCausalLM, DynamicCache, GenerationConfig, LlamaConfig, Qwen2Config

import arch
from parts.gpu_drafts import compare
from refork.decoding.backbone import Backbone
from refork.decoding.loop import BranchDecoder
from refork.decoding.record import Sampled
from refork.policies.base import Sampling
from refork.sampling.noise import NoiseKey
from refork_methods.train.batch import Batch, Sample, pad
from refork_methods.train.objectives import PolicyGradientSettings
from refork_methods.train.policy_gradient import policy_gradient_step

TRACE, POINTS, DRAWS, TOKENS = 200, 20, 64, 16
ENTROPY = 3.0
"""Nats of a token's distribution that a model's head is scaled to."""
ROUNDS = 3
PART = 60.0
"""Seconds after which no further round of a throughput begins."""
BUDGET = 470.0
"""Seconds after which no further part begins, unless told otherwise."""
ARCHITECTURES = (*arch.QUICK, "qwen3", "gemma3_text", "mistral", "gpt_neox", "mixtral", "qwen3_next")

_LLAMA: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None, "max_position_embeddings": 8192}


@dataclass(frozen=True, slots=True)
class Shape:
    """A model's config, and what is measured with it."""

    config: Any
    dtypes: tuple[str, ...] = ("float32", "bfloat16", "float16")


def shapes() -> dict[str, Shape]:
    """Sizes by name: those of Qwen2.5 0.5B, Llama 3.2 1B and 3.1 8B, and two for a trial without a device."""

    def llama(width: int, layers: int, heads: int, keys: int, inner: int, vocabulary: int) -> LlamaConfig:
        return LlamaConfig(
            hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=keys,
            intermediate_size=inner, vocab_size=vocabulary, **_LLAMA,
        )  # fmt: skip

    small = Qwen2Config(
        hidden_size=896, num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2,
        intermediate_size=4864, vocab_size=151_936, **_LLAMA,
    )  # fmt: skip
    return {
        "tiny": Shape(llama(64, 2, 4, 2, 128, 500)),
        "little": Shape(llama(128, 3, 8, 2, 256, 2000)),
        "0.5B": Shape(small),
        "1B": Shape(llama(2048, 16, 32, 8, 8192, 128_256)),
        "8B": Shape(llama(4096, 32, 32, 8, 14_336, 128_256)),
    }


@dataclass
class Kit:
    """Where and what is measured, and what was found so far."""

    device: torch.device
    sizes: list[str]
    fast: list[str]
    trained: str
    only: list[str]
    peers: bool
    budget: float
    file: Path
    began: float
    found: dict[str, Any]

    @property
    def gpu(self) -> bool:
        """Whether it is a CUDA device and not a trial of the kit."""
        return self.device.type == "cuda"

    def wants(self, name: str) -> bool:
        """Whether a part was asked for."""
        return not self.only or name.partition(" ")[0] in self.only

    def left(self) -> float:
        """Seconds until no further part begins."""
        return self.budget - (time.monotonic() - self.began)

    def wait(self) -> None:
        """Until the device has done what it was given."""
        if self.gpu:
            torch.cuda.synchronize()

    def clear(self) -> None:
        """Give back what nobody holds, and count the peak of memory anew."""
        gc.collect()
        if self.gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def peak(self) -> float | None:
        """GiB held at most since :meth:`clear`; None where it is not counted."""
        return round(torch.cuda.max_memory_allocated() / 2**30, 3) if self.gpu else None

    def seconds(self, run: Callable[[], object]) -> float:
        """What a call takes, the device's work included."""
        self.wait()
        start = time.perf_counter()
        run()
        self.wait()
        return time.perf_counter() - start

    def save(self) -> None:
        """Write what was found."""
        self.found["seconds"] = round(time.monotonic() - self.began, 1)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps(self.found, indent=1) + "\n")

    def part(self, name: str, run: Callable[[], Any]) -> None:
        """Run a part where there is time, and keep what it gives or how it failed."""
        if not self.wants(name):
            return
        if self.left() <= 0:
            self.found[name] = {"left out": f"the {self.budget:g} seconds were over"}
        else:
            print(f"gpu: {name} ({time.monotonic() - self.began:.0f} s)", flush=True)
            try:
                self.found[name] = run()
            except Exception as error:  # one part's failure is a finding and ends no other
                traceback.print_exc()
                self.found[name] = {"error": f"{type(error).__name__}: {error}"[:400]}
            print(json.dumps(self.found[name]), flush=True)
        self.clear()
        self.save()


@contextmanager
def made_in(dtype: torch.dtype, device: torch.device) -> Iterator[None]:
    """Where new tensors lie, and their number format."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with device:
            yield
    finally:
        torch.set_default_dtype(before)


def build(kit: Kit, size: str, dtype: str = "bfloat16") -> Any:
    """A model of random weights on the device; its head is scaled so that chances are uneven.

    Weights are made in bfloat16 in any case, so that every format holds the same numbers (but for what is
    below float16's smallest number).
    """
    torch.manual_seed(0)
    with made_in(torch.bfloat16, kit.device):
        model = AutoModelForCausalLM.from_config(copy.deepcopy(shapes()[size].config)).eval()
    tokens = torch.from_numpy(trace_of(model.config.vocab_size)[None]).to(kit.device)
    with torch.no_grad():
        logits = model(input_ids=tokens, logits_to_keep=32).logits[0].float()
        low, high = 0.0, 200.0
        for _ in range(40):
            middle = (low + high) / 2
            spread = torch.log_softmax(middle * logits, dim=-1)
            entropy = float(-(spread.exp() * spread).sum(-1).mean())
            low, high = (middle, high) if entropy > ENTROPY else (low, middle)
        model.get_output_embeddings().weight.mul_(low)
    return model.to(getattr(torch, dtype))


def trace_of(vocabulary: int) -> np.ndarray:
    """The recorded trace: random tokens."""
    return np.random.default_rng(0).integers(0, vocabulary, TRACE)


def drawn(
    decoder: BranchDecoder, prefixes: list[np.ndarray], noise: list[NoiseKey], settings: Sampling
) -> list[Sampled]:
    """One continuation of each prefix, in their order, from an empty cache."""
    decoder.cache.clear()
    found = {item.index: item for item in decoder.sample(prefixes, noise, settings)}
    return [found[place] for place in range(len(prefixes))]


# The parts.


def environment(kit: Kit) -> dict[str, Any]:
    """What the figures depend on."""
    packages = {}
    for name in ("torch", "transformers", "numpy", "triton", "vllm", "trl"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = None
    found: dict[str, Any] = {
        "python": ".".join(map(str, sys.version_info[:3])),
        "packages": packages,
        "float32_products": torch.get_float32_matmul_precision(),
        "processors": os.cpu_count(),
    }
    if kit.gpu:
        about = torch.cuda.get_device_properties(kit.device)
        found |= {
            "device": about.name,
            "capability": f"{about.major}.{about.minor}",
            "memory_gib": round(about.total_memory / 2**30, 1),
            "cuda": torch.version.cuda,
        }
    return found


def architectures(kit: Kit) -> dict[str, Any]:
    """The check of arch.py, on the device."""
    rows: list[arch.Row] = []
    for name in ARCHITECTURES:
        if kit.left() <= 0:
            break
        rows.append(arch.judge(name, str(kit.device)))
        row = rows[-1]
        print(f"  {row.name}: {row.status} {row.difference} {row.why}"[:160], flush=True)
    left = list(ARCHITECTURES[len(rows) :])
    return {**arch.counts(rows), "not_tried": left, "rows": [asdict(row) for row in rows]}


def processor(kit: Kit) -> dict[str, Any]:
    """The same noise on the device and on the processor; the distribution of a token against enumeration."""
    count, length = (256, 32) if kit.gpu else (32, 8)
    there = build(kit, "little", "float32")
    # Its head lies on the device that made it, so the weights are copied and not made again.
    here = copy.deepcopy(there).to("cpu")
    vocabulary = there.config.vocab_size
    trace = trace_of(vocabulary).astype(np.int32)
    prefixes = [trace[: 5 + 37 * (place % 5)] for place in range(count)]
    noise = [NoiseKey(5, 1, place) for place in range(count)]
    settings = Sampling(max_tokens=length)
    one = drawn(BranchDecoder(Backbone(there)), prefixes, noise, settings)
    other = drawn(BranchDecoder(Backbone(here)), prefixes, noise, settings)
    pairs = list(zip(one, other, strict=True))
    same = [a for a, b in pairs if np.array_equal(a.tokens, b.tokens)]
    apart = [
        float(np.abs(a.logprobs_t1 - b.logprobs_t1).max())
        for a, b in pairs
        if np.array_equal(a.tokens, b.tokens)
    ]
    # A distribution of few tokens: all but the likeliest are one cell each where five draws are expected.
    draws = 20_000 if kit.gpu else 2_000
    tiny = build(kit, "tiny", "float32")
    prefix = trace_of(tiny.config.vocab_size)[:40].astype(np.int32)
    with torch.no_grad():
        ids = torch.from_numpy(prefix.astype(np.int64))[None].to(kit.device)
        chances = torch.softmax(tiny(input_ids=ids).logits[0, -1].double(), -1).cpu().numpy()
    said = drawn(
        BranchDecoder(Backbone(tiny)),
        [prefix] * draws,
        [NoiseKey(9, 2, place) for place in range(draws)],
        Sampling(max_tokens=1, ignore_eos=True),
    )
    counts = np.bincount([int(item.tokens[0]) for item in said], minlength=len(chances)).astype(float)
    large = chances * draws >= 5
    seen = np.append(counts[large], counts[~large].sum())
    expected = np.append(chances[large], chances[~large].sum()) * draws
    return {
        "draws": count,
        "same": len(same),
        "ties_where_not": sum(a.ties + b.ties for a, b in pairs if not np.array_equal(a.tokens, b.tokens)),
        "max_dlogp": max(apart, default=None),
        "distribution_draws": draws,
        "distribution_p": float(chisquare(seen, expected).pvalue),
        "distribution_cells": len(seen),
    }


def shape(kit: Kit, size: str, dtype: str) -> dict[str, Any]:
    """Log-probs against plain passes, and draws in other company."""
    model = build(kit, size, dtype)
    decoder = BranchDecoder(Backbone(model))
    trace = trace_of(model.config.vocab_size).astype(np.int32)
    prefixes = [trace[:cut] for cut in (30, 75, 130, 200) for _ in range(DRAWS // 4)]
    noise = [NoiseKey(3, 1 + len(prefix), place) for place, prefix in enumerate(prefixes)]
    settings = Sampling(max_tokens=TOKENS, ignore_eos=True)
    whole = drawn(decoder, prefixes, noise, settings)
    found: dict[str, Any] = {
        "draws": len(whole),
        "ties": sum(item.ties for item in whole),
        "rows_of_a_pass": decoder.backbone.granule,
        "steady": decoder.backbone.steady,
    }
    found |= company(decoder, prefixes, noise, settings, whole)
    ours = np.concatenate([item.logprobs_t1 for item in whole])
    own = plain(kit, model, prefixes, whole)
    found["max_dlogp_to_own"] = float(np.abs(ours - own).max())
    if dtype != "float32" and kit.left() > 30:
        truth = plain(kit, model.float(), prefixes, whole)
        found["rms_ours_to_float32"] = float(np.sqrt(np.mean((ours - truth) ** 2)))
        found["rms_own_to_float32"] = float(np.sqrt(np.mean((own - truth) ** 2)))
    return found


def company(
    decoder: BranchDecoder,
    prefixes: list[np.ndarray],
    noise: list[NoiseKey],
    settings: Sampling,
    whole: list[Sampled],
) -> dict[str, Any]:
    """How many draws are the same alone, in sevens, and beside four times as many others."""
    strangers = [prefix[: len(prefix) - 9] for prefix in prefixes for _ in range(3)]
    theirs = [NoiseKey(77, 5, place) for place in range(len(strangers))]
    alone, few = range(0, len(prefixes), 16), range(min(len(prefixes), 28))
    sides: dict[str, tuple[list[int], list[Sampled]]] = {
        "alone": (list(alone), [drawn(decoder, [prefixes[i]], [noise[i]], settings)[0] for i in alone]),
        "sevens": (
            list(few),
            [
                item
                for at in few[::7]
                for item in drawn(decoder, prefixes[at : at + 7], noise[at : at + 7], settings)
            ],
        ),
        "crowd": (
            list(range(len(prefixes))),
            drawn(decoder, prefixes + strangers, noise + theirs, settings)[: len(prefixes)],
        ),
        "again": (list(range(len(prefixes))), drawn(decoder, prefixes, noise, settings)),
    }
    found = {}
    for name, (places, items) in sides.items():
        pairs = [(item, whole[place]) for place, item in zip(places, items, strict=True)]
        same = [(a, b) for a, b in pairs if np.array_equal(a.tokens, b.tokens)]
        apart = [float(np.abs(a.logprobs_t1 - b.logprobs_t1).max()) for a, b in same]
        found[name] = {
            "of": len(pairs),
            "same_tokens": len(same),
            "same_bits": sum(value == 0 for value in apart),
            "max_dlogp": max(apart, default=None),
        }
    return found


def plain(kit: Kit, model: Any, prefixes: list[np.ndarray], items: list[Sampled]) -> np.ndarray:
    """Log-probs [n * TOKENS] of draws by the model's own forward pass over each whole sequence alone."""
    values = []
    for prefix, item in zip(prefixes, items, strict=True):
        ids = torch.from_numpy(np.concatenate([prefix, item.tokens]).astype(np.int64)).to(kit.device)
        with torch.no_grad():
            logits = model(input_ids=ids[None], logits_to_keep=len(item.tokens) + 1).logits[0, :-1]
        chosen = ids[len(prefix) :, None]
        values.append(torch.log_softmax(logits.float(), dim=-1).gather(1, chosen)[:, 0].cpu().numpy())
    return np.concatenate(values)


def throughput(kit: Kit, size: str) -> dict[str, Any]:  # noqa: C901, PLR0915 (one side after the other)
    """Tokens a second and GiB of one fork of many points, all sides in turns, ROUNDS times."""
    model = build(kit, size, "bfloat16" if kit.gpu else "float32")
    weights = kit.peak() and round(torch.cuda.memory_allocated() / 2**30, 3)
    trace = trace_of(model.config.vocab_size)
    cuts = [round(10 + 190 * row / (POINTS - 1)) for row in range(POINTS)]
    points = [trace[:cut] for cut in cuts]
    decoder = BranchDecoder(Backbone(model))
    prefixes = [point.astype(np.int32) for point in points for _ in range(DRAWS)]
    noise = [NoiseKey(0, point, draw) for point in range(POINTS) for draw in range(DRAWS)]
    settings = Sampling(max_tokens=TOKENS, ignore_eos=True)

    def ours(count: int = POINTS) -> None:
        drawn(decoder, prefixes[: count * DRAWS], noise[: count * DRAWS], settings)

    options: dict[str, Any] = {
        "max_new_tokens": TOKENS, "min_new_tokens": TOKENS, "do_sample": True, "temperature": 1.0, "top_k": 0,
        "top_p": 1.0, "pad_token_id": 0,
    }  # fmt: skip

    def generate(count: int = POINTS) -> None:
        for point in points[:count]:
            ids = torch.from_numpy(point)[None].to(kit.device)
            with torch.inference_mode():
                model.generate(
                    ids, attention_mask=torch.ones_like(ids), num_return_sequences=DRAWS, **options
                )

    def cached(count: int = POINTS) -> None:
        whole = DynamicCache(config=model.config)
        with torch.inference_mode():
            model(torch.from_numpy(trace)[None].to(kit.device), past_key_values=whole, logits_to_keep=1)
        for point in points[:count]:
            cache = copy.deepcopy(whole)
            cache.crop(len(point) - 1 - len(trace))
            cache.batch_repeat_interleave(DRAWS)
            ids = torch.from_numpy(point)[None].expand(DRAWS, -1).to(kit.device)
            with torch.inference_mode():
                model.generate(ids, attention_mask=torch.ones_like(ids), past_key_values=cache, **options)

    def padded(count: int = POINTS) -> None:
        """All points as one left-padded batch."""
        ids = torch.zeros((count * DRAWS, TRACE), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, prefix in enumerate(prefixes[: count * DRAWS]):
            ids[row, TRACE - len(prefix) :] = torch.from_numpy(prefix.astype(np.int64))
            mask[row, TRACE - len(prefix) :] = 1
        with torch.inference_mode():
            model.generate(ids.to(kit.device), attention_mask=mask.to(kit.device), **options)

    def continuous(count: int = POINTS) -> None:
        asked = [prefix.tolist() for prefix in prefixes[: count * DRAWS]]
        config = GenerationConfig(**options, eos_token_id=-1)
        model.generate_batch(asked, generation_config=config)

    sides: dict[str, Callable[..., None]] = {
        "ours": ours,
        "generate": generate,
        "generate, prefix cache": cached,
        "generate, one batch": padded,
    }
    if kit.gpu:  # on a processor it takes minutes
        sides["continuous batching"] = continuous
    if not kit.peers:
        sides = {"ours": ours}
    said: dict[str, Any] = {}
    times: dict[str, list[float]] = {name: [] for name in sides}
    ends = time.monotonic() + min(kit.left(), PART)
    for turn in range(ROUNDS + 1):
        for name, run in sides.items():
            if "error" in said.get(name, {}) or (turn > 1 and time.monotonic() > ends):
                continue
            kit.clear()
            try:
                # The first turn warms up, on two points.
                spent = kit.seconds(run if turn else partial(run, 2))
            except Exception as error:  # a peer that cannot is a row that says so
                said[name] = {"error": f"{type(error).__name__}: {error}"[:200]}
                continue
            if turn:
                times[name].append(spent)
            said[name] = {"peak_gib": kit.peak()}
    tokens = len(prefixes) * TOKENS
    for name, spent in times.items():
        if spent:
            middle = statistics.median(spent)
            said[name] |= {
                "seconds": round(middle, 3),
                "tokens_per_s": round(tokens / middle),
                "rounds": [round(value, 3) for value in spent],
            }
    return {"weights_gib": weights, "tokens": tokens, "sides": said, **where_time_goes(kit, decoder, ours)}


def where_time_goes(kit: Kit, decoder: BranchDecoder, run: Callable[[], None]) -> dict[str, Any]:
    """Seconds of the model's passes within one run of ours; the rest is drawing and bookkeeping."""
    backbone, spent, passes = decoder.backbone, 0.0, 0
    plain_run = backbone.run

    def timed(*given: Any, **named: Any) -> Any:
        nonlocal spent, passes
        kit.wait()
        start = time.perf_counter()
        result = plain_run(*given, **named)
        kit.wait()
        spent += time.perf_counter() - start
        passes += 1
        return result

    backbone.run = timed  # type: ignore[method-assign]
    try:
        whole = kit.seconds(run)
    finally:
        del backbone.run
    return {"ours_passes": passes, "ours_seconds_in_passes": round(spent, 3), "ours_seconds": round(whole, 3)}


def drafter(kit: Kit) -> dict[str, Any]:
    """Coupled speculative draws are the target's own; of a drafter that is right at times."""
    return compare(kit.device, 64 if kit.gpu else 8)


def training(kit: Kit) -> dict[str, Any]:
    """The same update on the device and the processor; then the time of steps of a larger model."""

    def batch(vocabulary: int, rows: int, length: int) -> Batch:
        rng = np.random.default_rng(4)
        return pad([
            Sample(
                rng.integers(0, vocabulary, length).astype(np.int32),
                np.arange(length) >= length // 2,
                np.full(length, -3.0, dtype=np.float32),
                np.full(length, rng.normal()),
            )
            for _ in range(rows)
        ])  # fmt: skip

    there = build(kit, "little", "float32")
    here = copy.deepcopy(there).to("cpu")
    gradients, losses = [], []
    for model in (there, here):
        # Without a rate the weights stay, and the gradient can be read after the step.
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        said = policy_gradient_step(model, optimizer, batch(model.config.vocab_size, 6, 40))
        losses.append(said["loss"])
        gradients.append([p.grad.cpu().double() for p in model.parameters() if p.grad is not None])
    size = max(float(part.abs().max()) for part in gradients[1])
    worst = max(float((a - b).abs().max()) for a, b in zip(*gradients, strict=True))
    found: dict[str, Any] = {
        "max_gradient_difference": worst / size,
        "loss_difference": abs(losses[0] - losses[1]),
    }
    del there, here
    kit.clear()
    model = build(kit, kit.trained)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    rows, length = (32, 256) if kit.gpu else (4, 32)
    learned = batch(model.config.vocab_size, rows, length).to(kit.device)
    settings = PolicyGradientSettings(micro_rows=8)

    def step() -> None:
        policy_gradient_step(model, optimizer, learned, settings)

    step()
    spent = [kit.seconds(step) for _ in range(3)]
    middle = statistics.median(spent)
    return found | {
        "size": kit.trained,
        "dtype": "bfloat16",
        "rows": rows,
        "tokens_per_row": length,
        "step_seconds": round(middle, 3),
        "tokens_per_s": round(rows * length / middle),
        "peak_gib": kit.peak(),
    }


def summary(found: dict[str, Any]) -> dict[str, Any]:
    """The figures in one line."""

    def rows(dtype: str) -> list[dict[str, Any]]:
        return [
            row
            for name, row in found.items()
            if name.startswith("shape ") and name.endswith(f" {dtype}") and "again" in row
        ]

    dtypes = ("float32", "bfloat16", "float16")
    sides = ("alone", "sevens", "crowd")

    def share(row: dict[str, Any], some: str, of: str) -> float | None:
        return row[some] / row[of] if row.get(of) else None

    def within(dtype: str, key: str) -> float | None:
        """The share of draws that are the same in other company."""
        pairs = [r[s] for r in rows(dtype) for s in sides]
        return sum(pair[key] for pair in pairs) / sum(pair["of"] for pair in pairs) if pairs else None

    return {
        "device": found.get("environment", {}).get("device"),
        "silently_wrong": found.get("architectures", {}).get("silently_wrong"),
        "right": found.get("architectures", {}).get("right"),
        "same_as_processor": share(found.get("processor", {}), "same", "draws"),
        "distribution_p": found.get("processor", {}).get("distribution_p"),
        "max_dlogp": {d: max((r["max_dlogp_to_own"] for r in rows(d)), default=None) for d in dtypes},
        "same_tokens": {d: within(d, "same_tokens") for d in dtypes},
        "same_bits": {d: within(d, "same_bits") for d in dtypes},
        "draws_compared": sum(r[s]["of"] for d in dtypes for r in rows(d) for s in sides),
        "drafted_same": {d: share(row, "same", "draws") for d, row in found.get("drafter", {}).items()},
        "errors": [name for name, part in found.items() if isinstance(part, dict) and "error" in part],
        "left_out": [name for name, part in found.items() if isinstance(part, dict) and "left out" in part],
        "seconds": found["seconds"],
    }


PAGE = Path(__file__).parents[1] / "docs" / "gpu.md"
BEGIN, END = "<!-- tables -->\n", "<!-- end of tables -->\n"


def tables(files: list[Path]) -> str:
    """What runs found, as Markdown."""
    lines: list[str] = []
    for file in files:
        found = json.loads(file.read_text())
        about = found["environment"]
        packages = ", ".join(f"{name} {about['packages'][name]}" for name in ("torch", "transformers"))
        lines += [f"### {file.stem}", "", f"{about['device']}, CUDA {about['cuda']}, {packages}.", ""]
        lines += [*_shape_table(found), "", *_throughput_table(found), "", *_others(found), ""]
    return "\n".join(lines)


def _shape_table(found: dict[str, Any]) -> list[str]:
    lines = [
        "| shape | format | same tokens in other company | same bits "
        "| largest difference to the model's own pass | error of ours, of its own (rms) |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in found.items():
        if name.startswith("shape ") and "again" in row:
            _, size, dtype = name.split(" ")
            sides = [row[side] for side in ("alone", "sevens", "crowd")]
            of, same, bits = (sum(side[key] for side in sides) for key in ("of", "same_tokens", "same_bits"))
            errors = [row.get(f"rms_{whose}_to_float32") for whose in ("ours", "own")]
            said = "" if None in errors else ", ".join(f"{value:.2g}" for value in errors)
            lines.append(
                f"| {size} | {dtype} | {same} of {of} | {bits} | {row['max_dlogp_to_own']:.1g} | {said} |"
            )
    return lines


def _throughput_table(found: dict[str, Any]) -> list[str]:
    lines = [
        "| shape | side | tokens a second | seconds of each round | GiB at most |",
        "|---|---|---|---|---|",
    ]
    for name, part in found.items():
        if name.startswith("throughput "):
            for side, row in part["sides"].items():
                if "error" in row:
                    lines.append(f"| {name.split(' ')[1]} | {side} | {row['error'].partition(':')[0]} | | |")
                    continue
                rounds = ", ".join(f"{value:.2f}" for value in row["rounds"])
                speed = f"{row['tokens_per_s']:,}"
                lines.append(f"| {name.split(' ')[1]} | {side} | {speed} | {rounds} | {row['peak_gib']} |")
    return lines


def _others(found: dict[str, Any]) -> list[str]:
    one = found["processor"]
    lines = [
        f"- The same noise on the processor, float32: {one['same']} of {one['draws']} draws the same; "
        f"the others hold {one['ties_where_not']} ties. One token's distribution, "
        f"{one['distribution_draws']:,} draws "
        f"in {one['distribution_cells']} cells: p = {one['distribution_p']:.2f}."
    ]
    for dtype, row in found["drafter"].items():
        lines.append(
            f"- Drafted under the coupled rule, {dtype}: {row['same']} of {row['draws']} draws the same."
        )
    if "training" in found:
        step = found["training"]
        lines.append(
            f"- An update against the processor's: gradients differ by {step['max_gradient_difference']:.1g} "
            f"of the largest. A {step['size']} shape in {step['dtype']}, {step['rows']} rows of "
            f"{step['tokens_per_row']} tokens: {step['step_seconds']} s a step, {step['peak_gib']} GiB."
        )
    kinds = found.get("architectures")
    if kinds:
        names = ", ".join(f"{row['name']} {row['status']}" for row in kinds["rows"])
        lines.append(f"- Architectures: {names}; not tried for want of time: {len(kinds['not_tried'])}.")
    return lines


def main() -> None:
    """Run all parts, print the figures as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/gpu.json"), help="where the JSON goes")
    parser.add_argument("--device", default="cuda", help="cpu: a trial of the kit with tiny models")
    parser.add_argument("--sizes", default="0.5B,1B,8B", help="shapes whose exactness is measured")
    parser.add_argument("--fast", default="0.5B,1B,8B", help="shapes whose throughput is measured")
    parser.add_argument("--trained", default="1B", help="the shape that is trained")
    parser.add_argument("--only", default="", help="these parts, apart by commas (default: all)")
    parser.add_argument("--quick", action="store_true", help="the smallest shape, and no peers")
    parser.add_argument("--alone", action="store_true", help="no peers beside the throughput")
    parser.add_argument("--seconds", type=float, default=BUDGET, help="after which no further part begins")
    parser.add_argument("--page", type=Path, nargs="+", help="write the page's tables from these runs")
    asked = parser.parse_args()
    if asked.page:
        text = PAGE.read_text()
        head, tail = text.partition(BEGIN)[0], text.partition(END)[2]
        PAGE.write_text(f"{head}{BEGIN}\n{tables(asked.page)}\n{END}{tail}")
        return
    if asked.quick:
        asked.sizes, asked.fast, asked.trained, asked.alone = "0.5B", "0.5B", "0.5B", True
    if asked.device == "cuda" and not torch.cuda.is_available():
        print(
            "gpu: this machine has no CUDA device that PyTorch can use; nothing was measured. "
            "Try the kit itself with --device cpu --sizes tiny --fast tiny --trained tiny"
        )
        print(json.dumps({"device": None}))
        return
    kit = Kit(
        torch.device(asked.device),
        [name for name in asked.sizes.split(",") if name],
        [name for name in asked.fast.split(",") if name],
        asked.trained,
        [name for name in asked.only.split(",") if name],
        not asked.alone,
        asked.seconds,
        asked.out,
        time.monotonic(),
        {},
    )
    kit.part("environment", lambda: environment(kit))
    kit.part("processor", lambda: processor(kit))
    kit.part("drafter", lambda: drafter(kit))
    kit.part("training", lambda: training(kit))
    for size in kit.sizes:
        for dtype in shapes()[size].dtypes:
            kit.part(f"shape {size} {dtype}", lambda size=size, dtype=dtype: shape(kit, size, dtype))
    for size in kit.fast:
        kit.part(f"throughput {size}", lambda size=size: throughput(kit, size))
    kit.part("architectures", lambda: architectures(kit))
    kit.save()
    print(f"gpu: {kit.file}")
    print(json.dumps(summary(kit.found)))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        # Verdicts of an earlier run must not stand in for comparisons.
        os.environ["REFORK_HOME"] = home
        main()
