"""Passes that feed several tokens per branch give the bits of passes that feed one."""

import numpy as np
import pytest
import torch

from refork.decoding import alone
from refork.decoding.batch import Batch
from refork.decoding.loop import BranchDecoder, Wanted
from support import decoder_models as models

PREFIXES = models.prefixes()
LENGTH = 70


def seated(backbone, prefixes):
    """A batch with one row per prefix, none of which has said anything."""
    decoder = BranchDecoder(backbone)
    folded = decoder.fold(prefixes, [len(prefix) for prefix in prefixes])
    order = np.lexsort((folded.keep, folded.owner))
    owners, trace = np.unique(folded.owner[order], return_inverse=True)
    keep = folded.keep[order]
    forest, _, passes = decoder.read(folded, owners, np.bincount(trace), Wanted(trace, keep - 1))
    list(passes)
    batch = Batch(backbone, forest.slots, len(prefixes), LENGTH)
    batch.reseat(np.arange(len(order)), trace, keep)
    return batch


def logits_of(backbone, places, step, tokens):
    ids = np.zeros(len(places), dtype=np.int64)
    ids[: len(tokens)] = tokens
    return backbone.run(torch.from_numpy(ids), places, step)[: len(tokens)].clone()


def one_by_one(backbone, prefixes, words):
    batch, found = seated(backbone, prefixes), []
    for at in range(LENGTH):
        batch.generated[:] = at + 1
        found.append(logits_of(backbone, *batch.step(), words[:, at]))
    return torch.stack(found, dim=1)


# Several groups of query heads, sliding windows, soft caps, none of these.
@pytest.mark.parametrize("name", ["llama", "gemma", "gemma2", "gemma2_wide", "qwen2"])
@pytest.mark.parametrize("copies", [False, True])
def test_ragged_passes_give_the_same_bits(built, name, copies, monkeypatch):
    _, backbone = built(name)
    monkeypatch.setattr(alone, "copies", lambda device: copies)
    rng = np.random.default_rng(0)
    prefixes = [PREFIXES[i] for i in (0, 4, 5, 6, 6, 7, 9, 12)]
    words = rng.integers(0, models.VOCABULARY, (len(prefixes), LENGTH))
    with torch.inference_mode():
        plain = one_by_one(backbone, prefixes, words)
        batch, at, rows = seated(backbone, prefixes), np.zeros(len(prefixes), dtype=np.int64), 0
        while (at < LENGTH).any():
            counts = np.minimum(rng.integers(0, 7, len(at)) + (at == at.min()), LENGTH - at)
            batch.generated = at + 1
            true = np.concatenate([w[a : a + c] for w, a, c in zip(words, at, counts, strict=True)])
            if rng.random() < 0.5:
                # What was fed and rejected is overwritten by what is fed in its place.
                logits_of(backbone, *batch.spread(counts), rng.integers(0, models.VOCABULARY, len(true)))
            places, step = batch.spread(counts)
            assert len(places) == backbone.padded(len(true))
            got = logits_of(backbone, places, step, true)
            wanted = torch.cat([p[a : a + c] for p, a, c in zip(plain, at, counts, strict=True)])
            assert torch.equal(got, wanted)
            at, rows = at + counts, rows + len(true)
        assert rows == words.size


@pytest.mark.parametrize("name", ["llama", "gemma2_wide", "gemma2", "gemma3", "qwen2", "gpt_neox"])
@pytest.mark.parametrize("prefix", [0, 6, 12])
@pytest.mark.parametrize("copies", [False, True])
def test_one_branch_alone_gives_the_same_bits(built, name, prefix, copies, monkeypatch):
    _, backbone = built(name)
    monkeypatch.setattr(alone, "copies", lambda device: copies)
    rng = np.random.default_rng(prefix)
    words = rng.integers(0, models.VOCABULARY, (2, LENGTH))
    with torch.inference_mode():
        plain = one_by_one(backbone, [PREFIXES[prefix]] * 2, words)[0]
        assert torch.equal(one_by_one(backbone, [PREFIXES[prefix]], words[:1])[0], plain)
        batch, at = seated(backbone, [PREFIXES[prefix]]), 0
        while at < LENGTH:
            count = min(int(rng.integers(1, 21)), LENGTH - at)
            batch.generated[:] = at + 1
            _, step = batch.spread(np.array([count]))
            assert (step.alone is None) == (step.own is not None)
            places, step = batch.spread(np.array([count]))
            got = logits_of(backbone, places, step, words[0, at : at + count])
            assert torch.equal(got, plain[at : at + count])
            at += count
    heavy = any(layer.group >= layer.enough for layer in backbone.shape.layers)
    assert (step.alone is None) == heavy


def test_plain_and_spread_passes_mix(built):
    _, backbone = built("gemma3")
    words = np.random.default_rng(1).integers(0, models.VOCABULARY, (2, LENGTH))
    prefixes = [PREFIXES[5], PREFIXES[12]]
    with torch.inference_mode():
        plain, batch, at = one_by_one(backbone, prefixes, words), seated(backbone, prefixes), 0
        while at < LENGTH - 4:
            batch.generated[:] = at + 1
            got = logits_of(backbone, *batch.spread(np.array([3, 3])), words[:, at : at + 3].ravel())
            assert torch.equal(got.view(2, 3, -1), plain[:, at : at + 3])
            batch.generated[:] = at + 4
            assert torch.equal(logits_of(backbone, *batch.step(), words[:, at + 3]), plain[:, at + 3])
            at += 4


def test_plans_are_kept_by_lengths(built):
    _, backbone = built("llama")
    batch = seated(backbone, [PREFIXES[1]])
    batch.generated[:] = 1
    _, first = batch.spread(np.array([3]))
    _, again = batch.spread(np.array([3]))
    _, other = batch.spread(np.array([2]))
    assert again.products is first.products
    assert other.products is not first.products
