"""A pair of tiny random models with a partitioned crosscoder over one of their layers, for tests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from refork.policies.local import LocalPolicy
from refork_methods.crosscoder.model import CrossCoder
from refork_methods.crosscoder.normalizer import fit_normalizer
from refork_methods.crosscoder.paired import Pairs, read_pairs
from refork_methods.crosscoder.partition import Partition
from refork_testbed.models.recipe import Shape
from refork_testbed.models.supervised import new_model
from refork_testbed.models.tokenizer import make_tokenizer

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
