"""Same seed, same bits: whatever the batch, the order, the company, the cache or the process."""

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest

from refork.decoding.backbone import Backbone
from refork.decoding.loop import BranchDecoder
from refork.policies.base import Sampling
from refork.sampling.noise import NoiseKey
from support import decoder_models as models

PREFIXES = models.prefixes()
DRAWS = 3
SETTINGS = Sampling(max_tokens=24)


def draw(decoder, which, draws=DRAWS, settings=SETTINGS):
    """Tokens and log-prob bits by (prefix, draw)."""
    pairs = [(i, d) for i in which for d in range(draws)]
    noise = [NoiseKey(7, i, d) for i, d in pairs]
    drawn = decoder.sample([PREFIXES[i] for i, _ in pairs], noise, settings)
    return {
        pairs[x.index]: (x.tokens.tobytes(), x.logprobs.tobytes(), x.logprobs_t1.tobytes()) for x in drawn
    }


def assert_same(part, whole):
    assert part
    assert {key for key in part if part[key] != whole[key]} == set()


def assert_begins(part, whole):
    assert part
    for key, bits in part.items():
        assert all(longer.startswith(one) for one, longer in zip(bits, whole[key], strict=True)), key


@pytest.mark.parametrize("name", models.ARCHITECTURES)
def test_bits_do_not_depend_on_the_batch(built, name):
    _, backbone = built(name)
    every = range(len(PREFIXES))
    decoder = BranchDecoder(backbone)
    whole = draw(decoder, every)
    assert_same(draw(decoder, every), whole)  # from the cache
    assert decoder.cache.hits > 0
    shuffled = [int(i) for i in np.random.default_rng(1).permutation(len(PREFIXES))]
    assert_same(draw(BranchDecoder(backbone), shuffled), whole)
    assert_same(draw(BranchDecoder(backbone, max_branches=9), every, draws=2), whole)  # joins and leaves
    assert_same(draw(BranchDecoder(backbone, memory=1 << 20), every, draws=1), whole)  # several sessions
    # Each prefix is drawn alone with every third architecture: far enough to leave its block, or the window
    # where it begins inside.
    for i in every[models.ARCHITECTURES.index(name) % 3 :: 3]:
        few = SETTINGS if len(PREFIXES[i]) < models.WINDOW else SETTINGS.but(max_tokens=8)
        assert_begins(draw(BranchDecoder(backbone), [i], draws=1, settings=few), whole)


def test_one_of_sixty_four(built):
    _, backbone = built("qwen3")
    many = draw(BranchDecoder(backbone), [5], draws=64)
    assert_same(draw(BranchDecoder(backbone), [5], draws=1), many)
    assert_same(
        draw(BranchDecoder(backbone), [5, 8, 11], draws=10), many | draw(BranchDecoder(backbone), [8, 11], 10)
    )
    assert len(set(many.values())) == 64


@pytest.mark.parametrize(
    "settings",
    [
        SETTINGS.but(coupling="gumbel"),
        SETTINGS.but(top_k=7, temperature=0.7),
        SETTINGS.but(top_p=0.8, banned=(1, 2), forced=(5, 6), banned_first=(9,), max_tokens=70),
    ],
)
def test_every_law_is_invariant(built, settings):
    _, backbone = built("llama")
    whole = draw(BranchDecoder(backbone), [4, 7, 8, 11], settings=settings)
    assert_same(draw(BranchDecoder(backbone, max_branches=2), [11, 7, 8, 4], settings=settings), whole)


def digest():
    backbone = Backbone(models.make("gemma2"))
    whole = draw(BranchDecoder(backbone), [1, 3, 5, 6, 8, 10, 11], draws=2)
    return hashlib.sha256(repr(sorted(whole.items())).encode()).hexdigest()


def test_two_processes_draw_the_same_bytes():
    threads = str(__import__("torch").get_num_threads())
    code = f"import runpy, sys; sys.path[:0] = {sys.path}; print(runpy.run_path({__file__!r})['digest']())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"OMP_NUM_THREADS": threads},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip().splitlines()[-1] == digest()


def test_a_turn_built_on_cached_blocks_is_the_same_bits(built):
    """An agentic rollout: the next turn's prefix holds the last turn's words and an answer."""
    _, backbone = built("gemma3")
    warm, rng = BranchDecoder(backbone), np.random.default_rng(4)
    contexts = [PREFIXES[6]] * 4
    for turn in range(3):
        noise = [NoiseKey(1, 0, d, turn) for d in range(4)]
        hits = warm.cache.hits
        hot = sorted(warm.sample(contexts, noise, SETTINGS), key=lambda x: x.index)
        cold = sorted(BranchDecoder(backbone).sample(contexts, noise, SETTINGS), key=lambda x: x.index)
        assert turn == 0 or warm.cache.hits > hits
        for a, b in zip(hot, cold, strict=True):
            assert a.logprobs.tobytes() == b.logprobs.tobytes()
        seen = [rng.integers(0, models.VOCABULARY, 5).astype(np.int32) for _ in hot]
        contexts = [np.concatenate([c, x.tokens, s]) for c, x, s in zip(contexts, hot, seen, strict=True)]
