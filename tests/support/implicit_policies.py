"""Untrained transformers with one small tokenizer, as policies."""

import torch

from refork.policies.local import LocalPolicy
from refork_testbed.models.build import new_model
from refork_testbed.models.recipe import Shape
from refork_testbed.models.tokenizer import make_tokenizer

WORDS = ("go", "north", "south", "wait", "key", "door", "open", "the", "at")
SHAPE = Shape(layers=2, width=32, heads=2, hidden=64, context=256)


def make_policy(seed, words=WORDS, name=None):
    tokenizer = make_tokenizer(words, SHAPE.context)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = new_model(SHAPE, tokenizer)
    return LocalPolicy(model.eval(), tokenizer, name=name or f"model-{seed}")
