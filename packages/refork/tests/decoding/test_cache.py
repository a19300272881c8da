"""Blocks are found by their exact tokens and all before them, and forgotten when memory is short."""

import numpy as np
import torch

from refork.decoding.cache import BlockCache
from refork.decoding.loop import BranchDecoder
from refork.decoding.plan import BLOCK
from refork.decoding.session import NEVER
from refork.decoding.stack import KvShape, LayerShape, Stack
from refork.policies.base import Sampling
from refork.sampling.noise import NoiseKey

SHAPE = KvShape((LayerShape(1, 1, 2, 3),), torch.float32, torch.device("cpu"))
TOKENS = np.arange(3 * BLOCK, dtype=np.int32)


def filled(start=0, length=3 * BLOCK):
    stack = Stack(SHAPE, 1, start, length)
    stack.keys[0] += torch.arange(start, start + length, dtype=torch.float32)[:, None]
    return stack


def test_a_known_beginning_is_copied():
    cache = BlockCache(1 << 20)
    cache.remember(TOKENS, None, filled(), 0)
    other = TOKENS.copy()
    other[2 * BLOCK] += 1
    fresh = Stack(SHAPE, 2, 0, 3 * BLOCK)
    assert cache.load(TOKENS, fresh, 1) == 3 * BLOCK
    assert torch.equal(fresh.keys[0][1], filled().keys[0][0])
    assert cache.load(other, Stack(SHAPE, 1, 0, 3 * BLOCK), 0) == 2 * BLOCK
    assert cache.load(TOKENS[1:], Stack(SHAPE, 1, 0, 3 * BLOCK), 0) == 0


def test_a_leaf_takes_only_what_lies_behind_the_trunk():
    cache = BlockCache(1 << 20)
    cache.remember(TOKENS, filled(0, BLOCK), filled(BLOCK, 2 * BLOCK), 0)
    leaf = Stack(SHAPE, 1, BLOCK, 2 * BLOCK)
    assert cache.load(TOKENS, leaf, 0) == 2 * BLOCK
    assert float(leaf.keys[0][0, 0, 0, 0]) == BLOCK


def test_the_oldest_goes_first():
    one = filled()
    cache = BlockCache(2 * one.bytes)
    sets = [TOKENS + 1000 * i for i in range(3)]
    cache.remember(sets[0], None, one, 0)
    cache.remember(sets[1], None, filled(), 0)
    cache.load(sets[0], Stack(SHAPE, 1, 0, 3 * BLOCK), 0)
    cache.remember(sets[2], None, filled(), 0)
    cache.trim()
    loaded = [cache.load(tokens, Stack(SHAPE, 1, 0, 3 * BLOCK), 0) for tokens in sets]
    assert loaded == [3 * BLOCK, 0, 3 * BLOCK]
    assert cache.bytes == 2 * one.bytes
    cache.clear()
    assert cache.bytes == 0
    assert cache.load(sets[0], Stack(SHAPE, 1, 0, 3 * BLOCK), 0) == 0


def test_what_cannot_fit_is_not_kept():
    cache = BlockCache(8)
    cache.remember(TOKENS, None, filled(), 0)
    assert cache.bytes == 0


def test_prompts_that_begin_alike_and_come_one_by_one_keep_their_ends_only(built):
    """Each of ten prompts of 4 + 1 blocks shares the first four."""
    backbone = built("llama")[1]
    decoder = BranchDecoder(backbone)
    rng = np.random.default_rng(0)
    head = rng.integers(0, 90, 4 * BLOCK)
    prompts = [np.concatenate([head, rng.integers(0, 90, BLOCK + 3)]).astype(np.int32) for _ in range(10)]
    distribution, key = Sampling(max_tokens=4), [NoiseKey(0, 0, 0)]

    def said(decoder, prompt):
        (item,) = decoder.sample([prompt], key, distribution, NEVER)
        return item.tokens.tobytes(), item.logprobs.tobytes()

    first = [said(decoder, prompt) for prompt in prompts]
    assert decoder.cache.bytes <= (4 + 2 + 10) * BLOCK * backbone.shape.bytes_per_token
    hits = decoder.cache.hits
    assert [said(decoder, prompt) for prompt in prompts] == first
    assert decoder.cache.hits - hits == 10 * 5
    assert said(BranchDecoder(backbone), prompts[7]) == first[7]
