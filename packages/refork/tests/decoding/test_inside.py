"""Hidden states read and changed inside the decoder, against plain models with hooks of their own."""

from contextlib import ExitStack

import numpy as np
import pytest
import torch

from refork.decoding.loop import BranchDecoder
from refork.decoding.plan import BLOCK, clusters, traces
from refork.decoding.score import hidden, next_distributions, score
from refork.decoding.sites import PassProbe, Sites
from refork.decoding.states import Capture, Edit, layer_number
from refork.errors import BadInput, CannotDo
from refork.policies.base import Sampling
from refork.sampling.noise import NoiseKey
from support import decoder_models as models

PREFIXES = models.prefixes()
NOISE = [NoiseKey(5, 0, i) for i in range(len(PREFIXES))]
DRAWS = Sampling(max_tokens=12)
WIDTH = 64
PUSH = torch.linspace(-1, 1, WIDTH)


def add(layer, positions="all", phase="both", scale=1.0):
    return Edit(layer, lambda states: states + scale * PUSH, f"push{scale}", positions, phase)


def blocks_of(model):
    return next(m for m in model.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == 2)


def plain_logprobs(model, tokens, prompt, layer, chosen):
    """Teacher-forced log-probs with PUSH added by an ordinary hook on what enters or leaves a block."""
    places = torch.arange(len(tokens))
    mask = {
        ("all", "both"): places >= 0,
        ("last", "prefill"): places == prompt - 1,
        ("all", "prefill"): places < prompt,
        ("all", "decode"): places >= prompt,
        ((1, 3), "both"): (places == 1) | (places == 3),
        ("slice", "both"): (places >= 2) & (places < 70),
    }[chosen][:, None]

    def before(_, args, kwargs):
        if args:
            return (args[0] + mask * PUSH, *args[1:]), kwargs
        return args, kwargs | {"hidden_states": kwargs["hidden_states"] + mask * PUSH}

    def after(_, __, out):
        return (out[0] + mask * PUSH, *out[1:]) if isinstance(out, tuple) else out + mask * PUSH

    blocks = blocks_of(model)
    with ExitStack() as stack:
        if layer == "raw":
            stack.callback(blocks[-1].register_forward_hook(after).remove)
        else:
            stack.callback(blocks[layer].register_forward_pre_hook(before, with_kwargs=True).remove)
        return models.teacher_forced(model, tokens)


@pytest.mark.parametrize("name", models.ARCHITECTURES)
def test_what_is_kept_is_exactly_what_transformers_shows(built, name):
    model, backbone = built(name)
    ids = torch.from_numpy(PREFIXES[6]).long()[None]
    probe = PassProbe(layers=(0, 1, 2, 3))
    seen = []
    sites = backbone.sites
    with torch.inference_mode(), sites.attached(probe):
        hook = sites.blocks[-1].register_forward_hook(
            lambda _, __, out: seen.append(out[0] if isinstance(out, tuple) else out)
        )
        plain = model(ids, output_hidden_states=True).hidden_states
        hook.remove()
    assert len(plain) == 3
    for number, theirs in enumerate(plain):
        assert torch.equal(probe.captured[number], theirs[0])
    # Hook at block l is entry l + 1, but for the last block: there the entry is what leaves the norm.
    assert torch.equal(probe.captured[3], seen[0][0])
    assert sites.norm is not None
    with torch.inference_mode():
        assert torch.equal(sites.norm(probe.captured[3]), probe.captured[2])
    assert not torch.equal(probe.captured[3], probe.captured[2])


@pytest.mark.parametrize("name", ["llama", "gemma3", "gpt_neox", "lora"])
def test_fresh_states_come_from_the_pass_that_drew(built, name):
    _, backbone = built(name)
    decoder = BranchDecoder(backbone, max_branches=5)
    plain = sorted(decoder.sample(PREFIXES, NOISE, DRAWS), key=lambda item: item.index)
    capture = Capture((0, 1, -1, "raw"), "all", "last")
    kept = sorted(decoder.sample(PREFIXES, NOISE, DRAWS, capture=capture), key=lambda item: item.index)
    for item, with_states, prefix in zip(plain, kept, PREFIXES, strict=True):
        np.testing.assert_array_equal(item.tokens, with_states.tokens)
        np.testing.assert_array_equal(item.logprobs, with_states.logprobs)
        assert item.states is None
        assert item.finish == with_states.finish
        whole = np.concatenate([prefix, item.tokens]).astype(np.int32)
        read = hidden(decoder, [whole], [0, 1, -1, "raw"], [len(prefix) - 1])[0]
        assert with_states.states.prefix.shape == (4, 1, WIDTH)
        np.testing.assert_allclose(with_states.states.prefix, read[:, :1], atol=2e-5, rtol=1e-5)
        np.testing.assert_allclose(with_states.states.fresh, read[:, 1:], atol=2e-5, rtol=1e-5)


def test_only_what_is_asked_for_is_kept(built):
    _, backbone = built("llama")
    decoder = BranchDecoder(backbone)
    everything = {
        item.index: item.states for item in decoder.sample(PREFIXES, NOISE, DRAWS, capture=Capture((1,)))
    }
    for item in decoder.sample(PREFIXES, NOISE, DRAWS, capture=Capture((1,), "first")):
        np.testing.assert_array_equal(item.states.fresh, everything[item.index].fresh[:, :1])
        assert item.states.prefix.shape == (1, 0, WIDTH)
    for item in decoder.sample(PREFIXES, NOISE, DRAWS, capture=Capture((1,), "none", "last")):
        assert item.states.fresh.shape[1] == 0
        assert item.states.prefix.shape == (1, 1, WIDTH)
    one = DRAWS.but(max_tokens=1)
    for item in decoder.sample(PREFIXES, NOISE, one, capture=Capture((1,), "first")):
        np.testing.assert_array_equal(item.states.fresh, everything[item.index].fresh[:, :1])


CHOICES = [
    ("all", "both"),
    ("last", "prefill"),
    ("all", "prefill"),
    ("all", "decode"),
    ((1, 3), "both"),
    ("slice", "both"),
]


@pytest.mark.parametrize("name", models.ARCHITECTURES)
@pytest.mark.parametrize("layer", [0, 1, "raw"])
def test_edits_are_those_of_hooks_on_the_plain_model(built, name, layer):
    model, backbone = built(name)
    for number, (positions, phase) in enumerate(CHOICES):
        # Every second prefix: those left out at one layer are drawn at the next.
        these = range((number + (0, 1, "raw").index(layer)) % 2, len(PREFIXES), 2)
        where = slice(2, 70) if positions == "slice" else positions
        decoder = BranchDecoder(backbone, edits=(add(layer, where, phase),))
        settings = DRAWS.but(max_tokens=4)
        for item in decoder.sample([PREFIXES[i] for i in these], [NOISE[i] for i in these], settings):
            prefix = PREFIXES[these[item.index]]
            whole = np.concatenate([prefix, item.tokens])
            forced = plain_logprobs(model, whole, len(prefix), layer, (positions, phase))
            np.testing.assert_allclose(item.logprobs_t1, forced[len(prefix) - 1 :], atol=3e-5, rtol=0)


def test_recorded_tokens_score_as_they_were_drawn(built):
    _, backbone = built("llama")
    for positions, phase in CHOICES[:4]:
        decoder = BranchDecoder(backbone, edits=(add(1, positions, phase),))
        drawn = sorted(decoder.sample(PREFIXES, NOISE, DRAWS), key=lambda item: item.index)
        whole = [
            np.concatenate([p, item.tokens]).astype(np.int32) for p, item in zip(PREFIXES, drawn, strict=True)
        ]
        ends = [len(prefix) for prefix in PREFIXES]
        for item, found in zip(drawn, score(decoder, whole, ends, ends), strict=True):
            np.testing.assert_allclose(found, item.logprobs_t1, atol=2e-5, rtol=0)
        first = next_distributions(decoder, PREFIXES)
        for item, distribution in zip(drawn, first, strict=True):
            assert abs(distribution[item.tokens[0]] - item.logprobs_t1[0]) < 2e-5


def test_a_branch_does_not_depend_on_its_company(built):
    _, backbone = built("qwen3")
    for number, (positions, phase) in enumerate((("last", "prefill"), ("all", "decode"), ("all", "both"))):
        edits = (add(1, positions, phase), add("raw", scale=0.5))
        capture = Capture((1, -1), "all", "last")
        together = {
            item.index: item
            for item in BranchDecoder(backbone, edits=edits).sample(PREFIXES, NOISE, DRAWS, capture=capture)
        }
        for i in range(number, len(PREFIXES), 3):
            lonely = BranchDecoder(backbone, edits=edits)
            (alone,) = lonely.sample([PREFIXES[i]], [NOISE[i]], DRAWS, capture=capture)
            np.testing.assert_array_equal(alone.tokens, together[i].tokens)
            np.testing.assert_array_equal(alone.logprobs, together[i].logprobs)
            np.testing.assert_array_equal(alone.states.fresh, together[i].states.fresh)
            np.testing.assert_array_equal(alone.states.prefix, together[i].states.prefix)


def test_an_edit_that_changes_nothing_changes_no_bit(built):
    _, backbone = built("gemma2")
    same = Edit(1, lambda states: states * 1.0, "same", "last", "prefill")
    plain = {i.index: i for i in BranchDecoder(backbone).sample(PREFIXES, NOISE, DRAWS)}
    for item in BranchDecoder(backbone, edits=(same,)).sample(PREFIXES, NOISE, DRAWS):
        np.testing.assert_array_equal(item.tokens, plain[item.index].tokens)
        np.testing.assert_array_equal(item.logprobs, plain[item.index].logprobs)


def test_edits_act_in_their_order_and_states_are_kept_after_them(built):
    _, backbone = built("llama")
    double = Edit(1, lambda states: states * 2, "double")
    states = hidden(BranchDecoder(backbone), PREFIXES[:1], [1], [0])[0]
    for edits, wanted in (
        ((add(1), double), (states + PUSH.numpy()) * 2),
        ((double, add(1)), states * 2 + PUSH.numpy()),
    ):
        found = hidden(BranchDecoder(backbone, edits=edits), PREFIXES[:1], [1], [0])[0]
        np.testing.assert_allclose(found, wanted, atol=1e-5, rtol=1e-6)


def test_prompts_end_before_a_shared_trunk_does():
    rng = np.random.default_rng(0)
    long = rng.integers(0, 9, 3 * BLOCK).astype(np.int32)
    prefixes = [long, long[: 2 * BLOCK], long[: 2 * BLOCK].copy()]
    folded = traces(prefixes, [len(p) for p in prefixes])
    assert len(folded.tokens) == 2
    assert folded.owner[1] == folded.owner[2]
    assert sorted(folded.ends) == [2 * BLOCK, 3 * BLOCK]
    # The last token of the shorter prompt is its own, so the whole second block is.
    assert [size for _, size in clusters(folded.tokens, folded.ends)] == [BLOCK]
    assert len(traces(prefixes).tokens) == 1


def test_what_cannot_be_is_refused(built):
    _, backbone = built("llama")
    with pytest.raises(BadInput, match="no layer 3"):
        BranchDecoder(backbone, edits=(add(3),))
    with pytest.raises(BadInput, match="no layer 'post'"):
        layer_number("post", 2)
    assert [layer_number(layer, 2) for layer in (0, -1, 2, "raw")] == [0, 2, 2, 3]
    for bad in (
        {"positions": "first"},
        {"positions": ()},
        {"positions": (-1,)},
        {"positions": slice(-2, None)},
        {"positions": "last", "phase": "decode"},
        {"phase": "later"},
    ):
        with pytest.raises(BadInput):
            Edit(1, torch.neg, "bad", **bad)
    with pytest.raises(BadInput, match="name"):
        Edit(1, torch.neg, "")
    with pytest.raises(BadInput, match="nothing"):
        Capture((1,), "none")
    with pytest.raises(BadInput, match="layer"):
        Capture(())
    with pytest.raises(BadInput, match="unknown"):
        Capture((1,), "some")
    narrow = Edit(1, lambda states: states[:, :3], "narrow")
    with pytest.raises(BadInput, match="width"):
        list(BranchDecoder(backbone, edits=(narrow,)).sample(PREFIXES[:1], NOISE[:1], DRAWS))
    with pytest.raises(CannotDo, match="blocks"):
        Sites(torch.nn.Linear(2, 2), 2)
