"""The crosscoder itself: partition, normaliser and fold, what fires, bad input."""

import numpy as np
import pytest
import torch

from refork.errors import BadInput
from refork_methods.crosscoder.model import CrossCoder
from refork_methods.crosscoder.normalizer import Normalizer, fit_normalizer
from refork_methods.crosscoder.partition import Partition
from refork_methods.crosscoder.select import batch_top_k, top_k

HALF = Partition(a=0.25, b=0.25)


def skewed(count=400, widths=(6, 9), seed=0):
    """Activations whose channels differ in level and spread."""
    rng = np.random.default_rng(seed)
    parts = [rng.normal(size=(count, d)) * rng.uniform(0.1, 30, d) + rng.normal(size=d) * 20 for d in widths]
    return tuple(part.astype(np.float32) for part in parts)


def made(activation="topk", partition=None, widths=(6, 9), size=16, k=3, seed=0, **rest):
    a, b = skewed(widths=widths)
    model = CrossCoder(widths, size, k, activation, partition, fit_normalizer([(a, b)]), seed=seed, **rest)
    with torch.no_grad():
        model.b_dec.normal_(generator=torch.Generator().manual_seed(1))
        model.b_enc.normal_(std=0.1, generator=torch.Generator().manual_seed(2))
    return model, torch.from_numpy(a), torch.from_numpy(b)


def test_an_empty_partition_is_the_plain_crosscoder_bit_for_bit():
    plain, a, b = made(partition=None)
    empty, _, _ = made(partition=Partition(a=0.0, b=0.0))
    # The same seed with blocks differs only where weights are forbidden.
    parted, _, _ = made(partition=HALF)
    for name, tensor in plain.state_dict().items():
        assert torch.equal(tensor, empty.state_dict()[name]), name
    assert torch.equal(plain.encode(a, b), empty.encode(a, b))
    mask = torch.ones_like(plain.W_enc)
    for block in parted.forbidden():
        mask[block] = 0
    assert torch.equal(parted.W_enc, plain.W_enc * mask)


def test_blocks_hold_the_floor_of_their_share():
    assert Partition(0.1, 0.1).counts(8192) == (819, 819)
    assert Partition(0.29, 0.0).counts(100) == (29, 0)
    assert Partition(0.5, 0.5).counts(7) == (3, 3)
    blocks = Partition(0.1, 0.05).blocks(100)
    assert blocks == {"A": slice(0, 10), "B": slice(10, 15), "shared": slice(15, 100)}


def test_exclusive_features_cannot_reach_the_other_model():
    model, a, b = made(partition=HALF)
    values = model.encode(a, b).detach().requires_grad_()
    blocks = model.blocks
    for which, other in ((0, "B"), (1, "A")):
        rebuilt = model.decode(values)[which]
        (slope,) = torch.autograd.grad(rebuilt.square().sum(), values)
        assert (slope[:, blocks[other]] == 0).all()
        assert (slope[:, blocks["shared"]] != 0).any()
    # Scaling A's features by anything leaves what B gets as it was, to the bit.
    for factor in (0.0, 1.0, 64.0):
        scaled = values.detach().clone()
        scaled[:, blocks["A"]] *= factor
        assert torch.equal(model.decode(scaled)[1], model.decode(values)[1])
    # What B holds is not read by A's features either.
    assert torch.equal(model._masked(model.W_enc)[blocks["A"], model.side("B")], torch.zeros(4, 9))


def test_masks_hold_inside_encode_and_decode_whoever_wrote_the_weights():
    model, a, b = made(partition=HALF)
    clean = model.encode(a, b), model.decode(model.encode(a, b))
    with torch.no_grad():
        for block in model.forbidden():
            model.W_enc[block] = 5.0
            model.W_dec[block] = 5.0
    assert model.forbidden_weight_max() == 5.0
    assert torch.equal(model.encode(a, b), clean[0])
    assert all(torch.equal(x, y) for x, y in zip(model.decode(clean[0]), clean[1], strict=True))


def test_decoding_a_change_is_adding_its_directions():
    model, a, b = made(partition=HALF)
    values = model.encode(a, b).detach()
    changed = values.clone()
    changed[:, 5] *= 6.0
    delta = (changed - values) @ model.directions("A")
    found = model.decode(changed)[0] - model.decode(values)[0]
    assert (found - delta).abs().max() <= 1e-6 * model.decode(values)[0].abs().max()


@pytest.mark.parametrize("activation", ["topk", "batch_topk", "l1"])
@pytest.mark.parametrize("scoring", ["value", "decoder_norm"])
def test_folded_weights_speak_raw_activations(activation, scoring):
    model, a, b = made(activation, HALF, scoring=scoring)
    model.threshold.fill_(0.4)
    plain = model.folded()
    assert torch.equal(plain.mean, torch.zeros(15))
    assert torch.equal(plain.scale, torch.ones(15))
    x = torch.cat([a, b], dim=1)
    values = torch.relu(x @ plain.W_enc.T + plain.b_enc)  # nothing but the weights
    fires = model.encode(a, b)
    assert torch.allclose(plain.encode(a, b), fires, rtol=1e-4, atol=1e-4)
    assert ((values - fires).abs()[fires > 0] < 1e-4).all()
    for ours, theirs, which in zip(model.decode(fires), plain.decode(fires), ("A", "B"), strict=True):
        weights = (fires @ plain.W_dec + plain.b_dec)[:, plain.side(which)]
        scale = ours.abs().max()
        assert (ours - theirs).abs().max() < 1e-5 * scale
        assert (ours - weights).abs().max() < 1e-5 * scale


@pytest.mark.parametrize("forgotten", ["W_enc", "b_enc", "W_dec", "b_dec"])
def test_a_fold_that_forgets_a_part_is_seen(forgotten):
    model, a, b = made("l1")
    plain = model.folded()
    with torch.no_grad():
        getattr(plain, forgotten).copy_(getattr(model, forgotten))
    whole = torch.cat(model(a, b), dim=1)
    broken = torch.cat(plain(a, b), dim=1)
    assert (whole - broken).abs().max() > 1e-2 * whole.abs().max()


def test_statistics_are_those_of_all_chunks_together():
    a, b = skewed(1001)
    chunks = [(a[i : i + 170], b[i : i + 170]) for i in range(0, 1001, 170)]
    found = fit_normalizer(chunks)
    x = np.concatenate([a, b], axis=1).astype(np.float64)
    assert np.allclose(found.mean, x.mean(axis=0), rtol=1e-6)
    assert np.allclose(found.scale, x.std(axis=0), rtol=1e-6)


def test_a_constant_channel_keeps_its_unit():
    a, b = np.full((5, 1), 1e6, np.float32), np.arange(5, dtype=np.float32)[:, None]
    assert fit_normalizer([(a, b)]).scale.tolist() == [1.0, pytest.approx(np.sqrt(2.0))]


@pytest.mark.parametrize("weighted", [False, True])
def test_a_batch_of_one_keeps_what_topk_keeps(weighted):
    rng = np.random.default_rng(3)
    values = torch.from_numpy(rng.exponential(size=(50, 40)).astype(np.float32)) - 0.5
    values = values.relu()
    weights = torch.from_numpy(rng.uniform(0.2, 3, 40).astype(np.float32)) if weighted else None
    for row in values:
        active, cut = batch_top_k(row[None], weights, 7)
        mask = top_k(row[None], weights, 7)
        assert active.features.tolist() == mask[0].nonzero().view(-1).tolist()
        scores = row if weights is None else row * weights
        assert cut == pytest.approx(float(scores[mask[0]].min()))


@pytest.mark.parametrize("guess", [0.0, 0.3, 0.9, 50.0])
def test_a_guess_changes_nothing_but_time(guess):
    rng = np.random.default_rng(4)
    values = torch.from_numpy(np.maximum(rng.normal(size=(64, 30)), 0).astype(np.float32))
    weights = torch.from_numpy(rng.uniform(0.2, 3, 30).astype(np.float32))
    active, cut = batch_top_k(values, weights, 200, guess)
    scores = (values * weights).view(-1)
    wanted = scores.topk(200)
    assert sorted((active.rows * 30 + active.features).tolist()) == sorted(wanted.indices.tolist())
    assert cut == float(wanted.values.min())


def test_ties_at_the_cut_keep_the_count_and_zeros_never_fire():
    active, cut = batch_top_k(torch.ones(4, 5), None, 7)
    assert len(active.rows) == 7
    assert cut == 1.0
    assert (active.rows * 5 + active.features).tolist() == list(range(7))
    few = torch.zeros(4, 5)
    few[1, 2] = 2.0
    active, cut = batch_top_k(few, None, 7)
    assert (active.rows.tolist(), active.features.tolist(), cut) == ([1], [2], 2.0)
    assert not top_k(torch.zeros(2, 3), None, 2).any()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"k": 17}, "more than the 16 features"),
        ({"k": 0}, "k is 0"),
        ({"k": None}, "k is None"),
        ({"activation": "relu"}, "unknown activation"),
        ({"scoring": "norm"}, "unknown scoring"),
        ({"start": "zero"}, "unknown start"),
        ({"d_in": (6, 0)}, "make no crosscoder"),
    ],
)
def test_impossible_crosscoders_are_refused(change, words):
    given = {"d_in": (6, 9), "dict_size": 16, "k": 3, "activation": "topk"} | change
    with pytest.raises(BadInput, match=words):
        CrossCoder(**given)


@pytest.mark.parametrize(("a", "b"), [(0.6, 0.5), (-0.1, 0.0), (0.0, 1.5), (float("nan"), 0.0)])
def test_impossible_partitions_are_refused(a, b):
    with pytest.raises(BadInput, match=r"sum above|must lie in"):
        Partition(a=a, b=b)


def test_raw_activations_mean_nothing_without_statistics():
    model = CrossCoder((6, 9), 16, 3)
    a, b = (torch.from_numpy(x) for x in skewed())
    for use in (lambda: model.encode(a, b), lambda: model.decode(torch.zeros(1, 16)), model.folded):
        with pytest.raises(BadInput, match="no normaliser statistics"):
            use()
    assert model.normalizer is None


def test_shapes_pairs_and_statistics_are_checked():
    model, a, b = made()
    with pytest.raises(BadInput, match="do not fit widths"):
        model.encode(b, a)
    with pytest.raises(BadInput, match="are not pairs"):
        model.encode(a[:5], b[:4])
    with pytest.raises(BadInput, match="do not fit widths"):
        model.set_normalizer(Normalizer.identity(7))
    for mean, scale in (([0.0], [0.0]), ([np.nan], [1.0]), ([0.0, 0.0], [1.0])):
        with pytest.raises(BadInput):
            Normalizer(np.array(mean, np.float32), np.array(scale, np.float32))
    for chunks, words in (
        ([], "no activations"),
        ([(np.full((2, 1), np.inf), np.ones((2, 1)))], "not finite"),
    ):
        with pytest.raises(BadInput, match=words):
            fit_normalizer(chunks)


def test_a_threshold_that_was_never_learned_is_not_guessed():
    model, a, b = made("batch_topk")
    with pytest.raises(BadInput, match="no threshold yet"):
        model.encode(a, b)
    assert int((model.encode(a, b, mode="batch") > 0).sum()) == 3 * len(a)
