"""Models that compute contexts beyond a length otherwise: each context by its own length, in any batch."""

import numpy as np
import pytest
import torch
from transformers import Phi3Config, Phi3ForCausalLM

from refork.decoding.backbone import Backbone
from refork.decoding.live import DrawRequest, LiveDecoder
from refork.decoding.loop import BranchDecoder
from refork.decoding.score import hidden, next_distributions, score
from refork.decoding.states import Capture, Edit
from refork.errors import CannotDo
from refork.policies.base import Sampling
from refork.sampling.noise import NoiseKey
from support import decoder_models as models

SWITCH = 80
LENGTH = 40
PREFIXES = [
    *models.prefixes(),
    models.prefixes()[5][:80],
    models.prefixes()[5][:79],
    models.prefixes()[5][:81],
]


def make(switch=SWITCH):
    torch.manual_seed(0)
    half = models.PLAIN["hidden_size"] // models.PLAIN["num_attention_heads"] // 2
    scaling = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": switch}
    scaling |= {"short_factor": [1.0] * half, "long_factor": [1.5 + i for i in range(half)]}
    shape = models.PLAIN | {"pad_token_id": 0, "num_key_value_heads": 2}
    config = Phi3Config(**shape, rope_parameters=scaling, original_max_position_embeddings=switch)
    return Phi3ForCausalLM(config).eval()


@pytest.fixture(scope="module")
def model():
    return make()


@pytest.fixture(scope="module")
def backbone(model):
    return Backbone(model)


def plain(model, context, **more):
    """One forward pass over a context and nothing else."""
    with torch.no_grad():
        return model(torch.from_numpy(context.copy()).long()[None], use_cache=False, **more)


def told(model, tokens, start):
    """Log-probs of tokens from ``start`` on: each after its own context, read alone."""
    distributions = [
        torch.log_softmax(plain(model, tokens[:k]).logits[0, -1], dim=-1) for k in range(start, len(tokens))
    ]
    return np.array(
        [
            float(distribution[token])
            for distribution, token in zip(distributions, tokens[start:], strict=True)
        ]
    )


def draw(decoder, which=None, settings=None, seed=5):
    which = range(len(PREFIXES)) if which is None else which
    settings = settings or Sampling(max_tokens=LENGTH)
    noise = [NoiseKey(seed, i, 0) for i in which]
    found = decoder.sample([PREFIXES[i] for i in which], noise, settings)
    return {which[item.index]: item for item in found}


def bits(items):
    return {i: (x.tokens.tobytes(), x.logprobs.tobytes(), x.logprobs_t1.tobytes()) for i, x in items.items()}


def test_the_two_sets_of_factors_matter(model):
    """Else nothing here would be tested."""
    tokens = PREFIXES[6][: SWITCH + 1]
    near, far = plain(model, tokens[:-1]).logits[0], plain(model, tokens).logits[0, :-1]
    assert float((near - far).abs().max()) > 0.5


def test_greedy_is_generate_across_the_switch(model, backbone):
    drawn = draw(BranchDecoder(backbone), settings=Sampling(temperature=0, max_tokens=LENGTH))
    assert backbone.switch == SWITCH
    assert any(len(PREFIXES[i]) < SWITCH < len(PREFIXES[i]) + LENGTH for i in drawn)
    for i, item in drawn.items():
        np.testing.assert_array_equal(item.tokens, models.greedy(model, PREFIXES[i], LENGTH))
        whole = np.concatenate([PREFIXES[i], item.tokens])
        np.testing.assert_allclose(item.logprobs_t1, told(model, whole, len(PREFIXES[i])), atol=1e-5, rtol=0)


def test_scores_laws_and_states_are_those_of_each_context(model, backbone):
    decoder = BranchDecoder(backbone)
    for prefix, values in zip(PREFIXES, score(decoder, PREFIXES), strict=True):
        np.testing.assert_allclose(values, told(model, prefix, 1), atol=1e-5, rtol=0)
    for prefix, distribution in zip(PREFIXES, next_distributions(decoder, PREFIXES), strict=True):
        theirs = torch.log_softmax(plain(model, prefix).logits[0, -1], dim=-1)
        np.testing.assert_allclose(distribution, theirs.numpy(), atol=1e-5, rtol=0)
    few = [PREFIXES[5], PREFIXES[-1], PREFIXES[-2]]
    for prefix, values in zip(few, hidden(decoder, few, [0, 1, 2], [70] * 3), strict=True):
        for place in range(70, len(prefix)):
            theirs = plain(model, prefix[: place + 1], output_hidden_states=True).hidden_states
            for mine, layer in zip(values, theirs, strict=True):
                np.testing.assert_allclose(mine[place - 70], layer[0, -1].numpy(), atol=2e-5, rtol=1e-5)


def test_scores_begin_where_they_are_asked_to(backbone):
    decoder, tokens = BranchDecoder(backbone), PREFIXES[6]
    [whole] = score(decoder, [tokens])
    for start in (1, SWITCH - 1, SWITCH, SWITCH + 1, SWITCH + 2, 200):
        np.testing.assert_array_equal(score(decoder, [tokens], [start])[0], whole[start - 1 :])


def test_bits_do_not_depend_on_the_batch(backbone):
    decoder = BranchDecoder(backbone)
    whole = bits(draw(decoder))
    assert bits(draw(decoder)) == whole  # from the cache
    assert decoder.cache.hits > 0
    shuffled = [int(i) for i in np.random.default_rng(1).permutation(len(PREFIXES))]
    assert bits(draw(BranchDecoder(backbone), shuffled)) == whole
    assert bits(draw(BranchDecoder(backbone, max_branches=3))) == whole  # joins and leaves
    assert bits(draw(BranchDecoder(backbone, memory=1 << 20))) == whole  # several sessions
    # Each of those about the border is drawn alone, and some of the others.
    for i in (0, 3, 5, 8, len(PREFIXES) - 3, len(PREFIXES) - 2, len(PREFIXES) - 1):
        assert bits(draw(BranchDecoder(backbone), [i])) == {i: whole[i]}


def test_a_served_request_crosses_as_a_drawn_one(backbone):
    decoder = BranchDecoder(backbone)
    whole = bits(draw(decoder))
    live, request_ids, said = LiveDecoder(decoder, width=6), {}, {}
    for i, prefix in enumerate(PREFIXES):
        request_ids[live.submit(DrawRequest(prefix, NoiseKey(5, i, 0), Sampling(max_tokens=LENGTH)))] = i
        for part in live.step():
            said.setdefault(part.request_id, []).append(part)
    while not live.idle:
        for part in live.step():
            said.setdefault(part.request_id, []).append(part)
    for request_id, i in request_ids.items():
        parts = said[request_id]
        names = ("tokens", "logprobs", "logprobs_t1")
        assert tuple(np.concatenate([getattr(p, n) for p in parts]).tobytes() for n in names) == whole[i]


def test_states_kept_while_drawing_are_those_of_each_context(model, backbone):
    capture = Capture(layers=(1, 2), fresh="all", prefix="last")
    which = [4, 12, 13]
    found = BranchDecoder(backbone).sample(
        [PREFIXES[i] for i in which],
        [NoiseKey(5, i, 0) for i in which],
        Sampling(max_tokens=20),
        capture=capture,
    )
    for item in found:
        prefix = PREFIXES[which[item.index]]
        whole = np.concatenate([prefix, item.tokens])
        for k in range(len(item.tokens)):
            theirs = plain(model, whole[: len(prefix) + k + 1], output_hidden_states=True).hidden_states
            for row, layer in enumerate((1, 2)):
                mine = item.states.fresh[row, k]
                np.testing.assert_allclose(mine, theirs[layer][0, -1].numpy(), atol=2e-5, rtol=1e-5)


def test_an_edit_acts_across_the_switch(model, backbone):
    """What is read anew is changed as what was read at first."""
    push = torch.linspace(-1, 1, 64)
    edit = Edit(1, lambda states: states + push, "push")
    drawn = draw(BranchDecoder(backbone, edits=(edit,)), [4, 5, 12])
    model.model.layers[1].register_forward_pre_hook(lambda _, args: (args[0] + push, *args[1:]))
    try:
        for i, item in drawn.items():
            whole = np.concatenate([PREFIXES[i], item.tokens])
            np.testing.assert_allclose(item.logprobs, told(model, whole, len(PREFIXES[i])), atol=1e-5, rtol=0)
    finally:
        model.model.layers[1]._forward_pre_hooks.clear()


def test_the_model_keeps_its_own_frequencies(model, backbone):
    before = model.model.rotary_emb.inv_freq.clone()
    draw(BranchDecoder(backbone), [4])
    assert torch.equal(model.model.rotary_emb.inv_freq, before)
    assert "forward" not in model.model.rotary_emb.__dict__


def test_what_one_pass_cannot_change_in_the_middle_is_refused_when_it_is_opened(backbone):
    class Speculator:
        layers = ()
        window = 1

    with pytest.raises(CannotDo, match="drafts"):
        LiveDecoder(BranchDecoder(backbone), speculator=Speculator())
    late = Edit(1, lambda states: states, "late", positions="last", phase="prefill")
    with pytest.raises(CannotDo, match="where a prompt ends"):
        BranchDecoder(backbone, edits=(late,))


def test_without_long_contexts_there_is_no_switch():
    assert Backbone(make(512)).switch is None
