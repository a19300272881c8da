"""A pair of tiny random models with a partitioned crosscoder over one of their layers, for tests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from refork.core.policy.local import LocalPolicy
from refork.examine.crosscoder.model import CrossCoder
from refork.examine.crosscoder.normalizer import fit_normalizer
from refork.examine.crosscoder.paired import Pairs, read_pairs
from refork.examine.crosscoder.partition import Partition
from refork.learn.organism.recipe import Shape
from refork.learn.organism.supervised import new_model
from refork.learn.organism.tokenizer import make_tokenizer

WORDS = ("one", "two", "three", "four", "five", "six")
LAYER = 1


@dataclass(frozen=True)
class Pair:
    a: LocalPolicy
    b: LocalPolicy
    prompts: tuple[np.ndarray, ...]
    pairs: Pairs
    coder: CrossCoder


def tiny_policy(seed: int) -> LocalPolicy:
    """A random model of two layers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        tokenizer = make_tokenizer(WORDS, 64)
        model = new_model(Shape(layers=2, width=16, heads=2, hidden=32, context=64), tokenizer)
    return LocalPolicy(model.eval(), tokenizer, name=f"tiny-{seed}")


def tiny_pair() -> Pair:
    """Two models, twelve prompts, and an untrained crosscoder with the prompts' statistics."""
    a, b = tiny_policy(0), tiny_policy(1)
    rng = np.random.default_rng(0)
    texts = [" ".join(WORDS[i] for i in rng.permutation(6)[:5]) for _ in range(12)]
    prompts = tuple(a.encode(text) for text in texts)
    pairs = read_pairs(a, b, prompts, LAYER)
    normalizer = fit_normalizer([(pairs.a.numpy(), pairs.b.numpy())])
    coder = CrossCoder(
        (16, 16), 40, 20, "topk", Partition(0.25, 0.25), normalizer, seed=3, origin={"layer": LAYER}
    )
    return Pair(a, b, prompts, pairs, coder)
