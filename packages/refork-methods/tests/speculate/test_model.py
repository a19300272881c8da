import numpy as np
import pytest
import torch

from refork.errors import BadInput, CannotDo, WrongTokenizer, WrongWeights
from refork_methods.speculate.config import DraftConfig, draft_config, feature_layers
from refork_methods.speculate.model import (
    DraftModel,
    Lesson,
    as_draft_model,
    build_draft,
)
from support.drafters import random_target, shaken

LENGTH, WIDTH = 23, 32
TOLERANCE = 2e-5


@pytest.fixture(scope="module")
def target():
    return random_target(num_hidden_layers=2)


def drafter(target, **changes):
    return shaken(as_draft_model(build_draft(draft_config(target, layers=2, rank=4, **changes), target)))


@pytest.fixture(scope="module")
def blocks():
    rng = np.random.default_rng(0)
    states = torch.from_numpy(rng.normal(size=(2, LENGTH, 2, WIDTH)).astype(np.float32))
    anchors = torch.tensor([[0, 5, 6, 22], [1, 9, 17, 18]])
    return states, anchors, torch.from_numpy(rng.integers(258, size=(2, 4)))


def packed(model, blocks):
    with torch.no_grad():
        return model.packed(*blocks)


@pytest.mark.parametrize(
    "changes", [{}, {"kind": "dflash"}, {"window": 4}, {"qk_norm": False, "mask_token": 3}]
)
def test_packed_and_cached_forms_agree(target, blocks, changes):
    """Drafting from keys and values kept in pieces gives the h that training sees."""
    model = drafter(target, **changes)
    whole = packed(model, blocks)
    states, anchors, tokens = blocks
    assert whole.shape == (2, 4, 7, WIDTH)
    with torch.no_grad():
        for n in range(2):
            for a in range(4):
                place = int(anchors[n, a])
                low = 0 if model.config.window is None else max(0, place - model.config.window)
                cut = (low + place) // 2
                pieces = [
                    model.keys_values(model.context(states[n : n + 1, i:j]), torch.arange(i, j)[None])
                    for i, j in ((low, cut), (cut, place))
                ]
                context = [
                    (torch.cat([x[0], y[0]], 2), torch.cat([x[1], y[1]], 2))
                    for x, y in zip(*pieces, strict=True)
                ]
                found = model.block(tokens[n, a : a + 1], anchors[n, a : a + 1], context)
                assert torch.allclose(found[0], whole[n, a], atol=TOLERANCE)


def test_cached_rows_with_masks_agree(target, blocks):
    """Rows of different lengths side by side, what is beyond each masked."""
    model = drafter(target)
    states, anchors, tokens = blocks
    with torch.no_grad():
        context = model.keys_values(
            model.context(states[:1].expand(4, -1, -1, -1)), torch.arange(LENGTH).expand(4, -1)
        )
        seen = torch.arange(LENGTH) < anchors[0][:, None]
        found = model.block(tokens[0], anchors[0], context, seen)
    assert torch.allclose(found, packed(model, blocks)[0], atol=TOLERANCE)


@pytest.mark.parametrize("window", [None, 4])
def test_a_block_sees_only_what_lies_before_its_anchor(target, blocks, window):
    model = drafter(target, window=window)
    states, anchors, tokens = blocks
    before = packed(model, blocks)
    for place in range(LENGTH):
        changed = states.clone()
        changed[0, place] += 1.0
        after = packed(model, (changed, anchors, tokens))
        for a, anchor in enumerate(anchors[0].tolist()):
            seen = place < anchor and (window is None or place >= anchor - window)
            same = torch.equal(before[0, a], after[0, a])
            assert same != seen
        assert torch.equal(before[1], after[1])


def test_a_block_never_sees_another(target, blocks):
    model = drafter(target)
    states, anchors, tokens = blocks
    before = packed(model, blocks)
    changed = tokens.clone()
    changed[0, 1] = (changed[0, 1] + 1) % 258
    after = packed(model, (states, anchors, changed))
    for n in range(2):
        for a in range(4):
            assert torch.equal(before[n, a], after[n, a]) == ((n, a) != (0, 1))
    # Inside a block every slot sees every other, so all of its slots moved.
    assert (before[0, 1] != after[0, 1]).any(-1).all()


def test_slots_attend_both_ways(target, blocks):
    """The first slot of a block depends on its last one: with one slot less, it says something else."""
    config = draft_config(target, layers=2, head="none", confidence=False)
    long, short = (as_draft_model(build_draft(config.but(block=g), target)) for g in (7, 6))
    assert not torch.allclose(packed(long, blocks)[..., 0, :], packed(short, blocks)[..., 0, :], atol=1e-4)


def test_padding_of_the_context_changes_nothing(target, blocks):
    model = drafter(target)
    states, anchors, tokens = blocks
    longer = torch.cat([states, torch.full((2, 9, 2, WIDTH), 7.0)], 1)
    assert torch.allclose(packed(model, blocks), packed(model, (longer, anchors, tokens)), atol=TOLERANCE)


def test_positions_are_absolute_and_distances_count(target, blocks):
    """Context and block moved together: the same h. The block alone: another."""
    model = drafter(target)
    states, _, tokens = blocks

    def said(first, anchor):
        with torch.no_grad():
            places = torch.arange(first, first + 5)[None]
            context = model.keys_values(model.context(states[:1, :5]), places)
            return model.block(tokens[0, :1], torch.tensor([anchor]), context)

    assert torch.allclose(said(0, 5), said(90, 95), atol=TOLERANCE)
    assert not torch.allclose(said(0, 5), said(0, 12), atol=1e-3)


def lesson(blocks, seed=0):
    states, anchors, tokens = blocks
    rng = np.random.default_rng(seed)
    after = torch.from_numpy(rng.integers(258, size=(2, 4, 7)))
    learned = torch.from_numpy(np.logical_and.accumulate(rng.random((2, 4, 7)) < 0.8, axis=-1))
    return Lesson(states, anchors, torch.cat([tokens[..., None], after], -1), learned)


def test_without_a_rank_it_is_the_parallel_drafter_bit_for_bit(target, blocks):
    full = draft_config(target, layers=2)
    flat = as_draft_model(build_draft(full.but(rank=0, confidence=False), target))
    none = as_draft_model(build_draft(full.but(head="none", confidence=False), target))
    assert sorted(dict(flat.named_parameters())) == sorted(dict(none.named_parameters()))
    taught = lesson(blocks)
    found = flat.teach(taught).logits
    assert torch.equal(found, none.teach(taught).logits)
    base = flat.base_logits(flat.packed(taught.states, taught.anchors, taught.tokens[..., 0])[taught.learned])
    assert torch.equal(found, base)
    # A fresh drafter with any head starts from the same backbone and says the same.
    fresh = as_draft_model(build_draft(full.but(rank=4), target))
    assert torch.equal(found, fresh.teach(taught).logits)


@pytest.mark.parametrize("head", ["markov", "gated", "rnn"])
def test_teaching_and_drafting_give_the_same_laws(target, blocks, head):
    model = drafter(target, head=head)
    taught = lesson(blocks)
    with torch.no_grad():
        found = model.teach(taught)
        hidden = packed(model, blocks)
        base, state = model.base_logits(hidden), None
        for k in range(7):
            previous = taught.tokens[..., k]
            logits, state = model.next_logits(k, base[..., k, :], hidden[..., k, :], previous, state)
            mine = taught.learned.nonzero()[:, 2] == k
            assert torch.allclose(found.logits[mine], logits[taught.learned[..., k]], atol=1e-4)
            sure = model.confidence(hidden[..., k, :], previous)[taught.learned[..., k]]
            assert torch.allclose(found.confidence[mine], sure, atol=1e-5)


def test_confidence_reads_the_token_before_only_where_it_may(target, blocks):
    hidden = packed(drafter(target), blocks)[:, 0, 0]
    one, other = torch.tensor([1, 2]), torch.tensor([3, 4])
    reads, blind = drafter(target), drafter(target, confidence_with_markov=False)
    assert not torch.allclose(reads.confidence(hidden, one), reads.confidence(hidden, other))
    assert torch.equal(blind.confidence(hidden, one), blind.confidence(hidden, other))
    with pytest.raises(CannotDo):
        drafter(target, confidence=False).confidence(hidden, one)


def test_the_targets_ends_are_shared_and_frozen(target, blocks):
    model = drafter(target)
    theirs = target.model.get_output_embeddings().weight
    assert all(part.shape[0] != 258 or "markov" in name for name, part in model.named_parameters())
    assert not any("embed" in name or "lm_head" in name for name in model.state_dict())
    model.teach(lesson(blocks)).logits.sum().backward()
    assert theirs.grad is None
    assert target.model.get_input_embeddings().weight.grad is None
    assert all(part.grad is not None for name, part in model.named_parameters() if "confidence" not in name)


def test_the_mask_is_a_row_of_its_own_or_a_spare_token(target):
    own, spare = drafter(target), drafter(target, mask_token=5)
    anchors = torch.tensor([7])
    assert own.mask is not None
    assert torch.equal(own.inputs(anchors)[0, 1], own.mask)
    assert spare.mask is None
    assert torch.equal(spare.inputs(anchors)[0, 1], spare.ends.embed(torch.tensor(5)))
    assert own.inputs(anchors).shape[1] == 7
    assert drafter(target, kind="dflash").inputs(anchors).shape[1] == 8


def test_weights_come_from_seed_and_name(target):
    config = draft_config(target, layers=2, rank=4)
    one, same, other = (as_draft_model(build_draft(config, target, seed)) for seed in (0, 0, 1))
    assert torch.equal(one.fc.weight, same.fc.weight)
    assert not torch.equal(one.fc.weight, other.fc.weight)


# -- configs ------------------------------------------------------------------------------------


def test_feature_layers():
    assert feature_layers(36) == (2, 10, 18, 26, 34)
    assert feature_layers(2) == (0, 1)
    for depth in range(1, 60):
        found = feature_layers(depth)
        assert list(found) == sorted(set(found))
        assert 0 <= found[0] <= found[-1] < depth


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"target_layers": (1, 0)}, "increasing"),
        ({"target_layers": (0, 0)}, "increasing"),
        ({"target_layers": (0, 2)}, "final norm"),
        ({"target_layers": (-1,)}, "final norm"),
        ({"target_layers": (0, 3)}, "must lie"),
        ({"target_layers": ()}, "hidden states"),
        ({"kv_heads": 3}, "cannot share"),
        ({"mask_token": 258}, "outside the vocabulary"),
        ({"block": 0}, "at least 1"),
        ({"rank": -1}, "at least 0"),
        ({"head": "lstm"}, "lstm"),
        ({"kind": "medusa"}, "medusa"),
        ({"head_dim": 7}, "even"),
    ],
)
def test_configs_that_do_not_fit_are_refused(target, changes, words):
    with pytest.raises(BadInput, match=words):
        draft_config(target, **changes)


def test_config_goes_through_json(target):
    config = draft_config(target, window=9, mask_token=4, head="rnn")
    assert DraftConfig.from_json(config.to_json()) == config
    # Fields that came later are written where they say something: half-done trainings know themselves again.
    assert {"family", "shared_values", "rotary"}.isdisjoint(config.to_json())
    assert config.to_json()["max_positions"] == 160
    later = config.but(family="gemma4", rotary=0.5)
    assert DraftConfig.from_json(later.to_json()) == later
    assert later.to_json()["rotary"] == 0.5


def test_a_drafter_of_another_target_is_refused(target):
    config = draft_config(target)
    with pytest.raises(WrongWeights):
        build_draft(config, random_target(seed=1, num_hidden_layers=2))
    with pytest.raises(WrongTokenizer):
        build_draft(config.but(tokenizer="0" * 64), target)
    with pytest.raises(WrongTokenizer):
        build_draft(config.but(vocabulary=300), target)
    with pytest.raises(BadInput):
        build_draft(config.but(target_depth=9), target)
    assert isinstance(build_draft(config.but(target=None, tokenizer=None), target), DraftModel)
