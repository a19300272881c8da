"""Forks at every sentence of one trace: the branching decoder against the same work through `generate`.

The work: 50 continuations of 16 tokens behind each of 100 sentences of one trace (5.4 tokens each on
average), on a random Llama of 2 layers x 128, float32, two threads, temperature 1. Peers run in the same
process, in turns, each at its best: a call per boundary with 50 return sequences (with a dynamic and a static
cache), left-padded batches, and a trace cache that is cropped and expanded by hand (which `generate` does not
do by itself). `ratio` is against the best plain `generate`. llama.cpp draws the same forks from one decoded
trace, where `fork_throughput.py` has installed it.

Then the same forks are made through the tree, and every recorded continuation is drawn again from its noise
key, in another order and other batches: `replay_rate` is the share that comes out token by token as recorded.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import math
import time
from collections.abc import Callable

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from parts.llama_forks import BEST, Task, llama, llama_python
from refork.decoding.backbone import Backbone
from refork.decoding.loop import BranchDecoder
from refork.forking.arm import prepare, run_jobs
from refork.growing.plant import plant_prompt
from refork.policies.base import Request, Sampling, sample_all
from refork.policies.local import LocalPolicy
from refork.sampling.noise import NoiseKey
from refork.tree.node import NewNode, Point
from refork.tree.tree import Tree
from refork.types import token_array
from refork_methods.forensics.instruments.sentences import pieces
from refork_testbed.models.tokenizer import make_tokenizer

SENTENCES, DRAWS, TOKENS = 100, 50, 16
WORDS = ("so", "the", "hook", "fails", "again", "and", "I", "fix", "it", "now", "then", "run", "tests")
SETTINGS = Sampling(max_tokens=TOKENS, ignore_eos=True)


def build() -> tuple[LocalPolicy, PreTrainedModel]:
    """A policy with random weights, the same every time."""
    torch.manual_seed(0)
    tokenizer = make_tokenizer(WORDS, 1024)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=128, intermediate_size=384, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=1024,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    return LocalPolicy(model, tokenizer, name="random-2x128"), model


def record_trace(tree: Tree, policy: LocalPolicy) -> Point:
    """A turn of 100 sentences of 2 to 5 tokens, recorded as if it had been said."""
    rng = np.random.default_rng(0)
    sentences = [" ".join(rng.choice(WORDS, rng.integers(1, 5))) + "." for _ in range(SENTENCES)]
    tokens = policy.encode(" ".join(sentences))
    ends = np.cumsum([len(policy.decode(token_array([t]))) for t in tokens])
    root = plant_prompt(tree, policy, "fix the hook")
    draft = NewNode(
        kind="action", parent=root.node.id, key="trace", text=policy.decode(tokens), tokens=tokens,
        offsets=token_array(ends), policy=policy.card.name, weights=policy.card.weights,
        settings=SETTINGS.to_json(), finish="length",
    )  # fmt: skip
    return tree.at(tree.append([draft])[0])


def ours(model: PreTrainedModel, prefixes: list[np.ndarray]) -> Callable[[], None]:
    decoder = BranchDecoder(Backbone(model))
    rows = [prefix for prefix in prefixes for _ in range(DRAWS)]
    noise = [NoiseKey(0, point, draw) for point in range(len(prefixes)) for draw in range(DRAWS)]

    def run() -> None:
        decoder.cache.clear()
        drawn = list(decoder.sample(rows, noise, SETTINGS))
        assert sum(len(item.tokens) for item in drawn) == len(rows) * TOKENS

    return run


def generate(model: PreTrainedModel, ids: torch.Tensor, mask: torch.Tensor, **options: object) -> None:
    with torch.inference_mode():
        out = model.generate(
            input_ids=ids, attention_mask=mask, max_new_tokens=TOKENS, do_sample=True, temperature=1.0,
            top_k=0, top_p=1.0, pad_token_id=0, **options,
        )  # fmt: skip
    assert out.shape[1] == ids.shape[1] + TOKENS


def per_boundary(model: PreTrainedModel, prefixes: list[np.ndarray], **options: object) -> Callable[[], None]:
    def run() -> None:
        for prefix in prefixes:
            ids = torch.from_numpy(prefix.astype(np.int64))[None]
            generate(model, ids, torch.ones_like(ids), num_return_sequences=DRAWS, **options)

    return run


def left_padded(model: PreTrainedModel, prefixes: list[np.ndarray], rows: int) -> Callable[[], None]:
    """Batches of ``rows`` branches; boundaries of similar length lie together."""

    def run() -> None:
        for start in range(0, len(prefixes), rows // DRAWS):
            part = prefixes[start : start + rows // DRAWS]
            longest = max(map(len, part))
            ids = torch.zeros((len(part), longest), dtype=torch.long)
            mask = torch.zeros_like(ids)
            for row, prefix in enumerate(part):
                ids[row, longest - len(prefix) :] = torch.from_numpy(prefix.astype(np.int64))
                mask[row, longest - len(prefix) :] = 1
            generate(model, ids, mask, num_return_sequences=DRAWS)

    return run


def cropped_cache(model: PreTrainedModel, prefixes: list[np.ndarray]) -> Callable[[], None]:
    """The trace's cache is computed once; each boundary crops a copy, expands it and generates."""
    trace = prefixes[-1].astype(np.int64)

    def run() -> None:
        whole = DynamicCache(config=model.config)
        with torch.inference_mode():
            model(torch.from_numpy(trace)[None], past_key_values=whole, logits_to_keep=1)
        for prefix in prefixes:
            cache = copy.deepcopy(whole)
            cache.crop(len(prefix) - 1 - len(trace))
            cache.batch_repeat_interleave(DRAWS)
            ids = torch.from_numpy(prefix.astype(np.int64))[None].expand(DRAWS, -1)
            generate(model, ids, torch.ones_like(ids), past_key_values=cache)

    return run


def in_turns(sides: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The fastest of several rounds, all sides one after another in each, so load hits all alike."""
    best = dict.fromkeys(sides, math.inf)
    for _ in range(rounds):
        for name, run in sides.items():
            for _ in range(3 if best[name] < 2.0 or name == "ours" else 1):
                start = time.perf_counter()
                told = run()
                spent = told if isinstance(told, float) else time.perf_counter() - start
                best[name] = min(best[name], spent)
            print(f"  {name}: {best[name]:.2f} s", flush=True)
    return best


def recorded(policy: LocalPolicy, tree: Tree, points: list[Point]) -> tuple[float, list[str]]:
    """The same forks through the tree: seconds, and the nodes of the continuations."""
    start = time.perf_counter()
    jobs = [prepare(point, policy, DRAWS, settings=SETTINGS, any_weights=True) for point in points]
    forks = run_jobs(jobs)
    seconds = time.perf_counter() - start
    return seconds, [draw.leaf for fork in forks for draw in fork.draws]


def replay(policy: LocalPolicy, tree: Tree, leaves: list[str], batch: int = 625) -> float:
    """Share of recorded continuations that their noise keys draw again exactly, in shuffled batches."""
    order = np.random.default_rng(1).permutation(len(leaves))
    same = 0
    for first in range(0, len(order), batch):
        trajectories = tree.paths([leaves[int(i)] for i in order[first : first + batch]])
        requests = []
        for trajectory in trajectories:
            node = trajectory.leaf
            assert node.noise is not None
            assert node.tokens is not None
            requests.append(Request(trajectory.tokens[: -len(node.tokens)], node.noise, mid_turn=True))
        policy.decoder.cache.clear()
        again = sample_all(policy, requests, SETTINGS)
        same += sum(np.array_equal(a.tokens, w.leaf.tokens) for a, w in zip(again, trajectories, strict=True))
    return same / len(leaves)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round, no left-padded batches; under 50 s")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    policy, model = build()
    with Tree.memory() as tree:
        end = record_trace(tree, policy)
        found = pieces(end)
        # Behind the last sentence the trace has its own outcome; before the first one is a boundary too.
        points = [found[0].before, *(piece.after for piece in found[:-1])]
        assert len(points) == SENTENCES
        prefixes = [np.ascontiguousarray(tree.path(point).tokens) for point in points]
        sides: dict[str, Callable[[], object]] = {
            "ours": ours(model, prefixes),
            "generate, a call per boundary": per_boundary(model, prefixes),
            "generate, cropped and expanded cache": cropped_cache(model, prefixes),
        }
        if not options.quick:
            sides["generate, static cache"] = per_boundary(model, prefixes, cache_implementation="static")
        for rows in () if options.quick else (250, 500):
            sides[f"generate, left-padded {rows}"] = left_padded(model, prefixes, rows)
        sides["ours"]()
        with contextlib.ExitStack() as stack:
            python = llama_python(make=False)
            if python:
                task = Task(prefixes[-1].tolist(), [len(prefix) for prefix in prefixes], DRAWS, TOKENS)
                sides["llama.cpp, one decoded trace"] = stack.enter_context(
                    llama(model, task, python, *BEST)
                ).shared
            seconds = in_turns(sides, 1 if options.quick else 3)
        seconds["ours, recorded on a tree"], leaves = recorded(policy, tree, points)
        rate = replay(policy, tree, leaves)
    table = Table("side", "seconds", "forks/s", "times ours", title=f"{len(leaves)} forks of {TOKENS} tokens")
    for side, value in sorted(seconds.items(), key=lambda pair: pair[1]):
        table.add_row(side, f"{value:.2f}", f"{len(leaves) / value:,.0f}", f"{value / seconds['ours']:.2f}")
    console = Console()
    console.print(table)
    plain = [v for side, v in seconds.items() if side.startswith("generate,") and "cropped" not in side]
    against = seconds["generate, cropped and expanded cache"] / seconds["ours"]
    console.print(f"trace of {len(prefixes[-1])} tokens; against the hand-cropped cache {against:.2f}x")
    console.print(f"{rate:.2%} of {len(leaves)} recorded continuations were drawn again token by token")
    told = {"ratio": min(plain) / seconds["ours"], "vs_cropped": against}
    if python:
        told["vs_llama"] = seconds["llama.cpp, one decoded trace"] / seconds["ours"]
    print(json.dumps({key: round(value, 2) for key, value in told.items()} | {"replay_rate": rate}))


if __name__ == "__main__":
    main()
