"""The general path against the packed one where both know a model, and against plain passes where not."""

import re

import numpy as np
import pytest
import torch

from refork.decoding.loop import BranchDecoder
from refork.decoding.own import OwnDecoder, OwnForward
from refork.decoding.score import hidden, next_distributions, score
from refork.decoding.states import Capture, Edit
from refork.errors import BadInput, CannotDo
from refork.policies.base import Request, Sampling, sample_all
from refork.policies.local import LocalPolicy
from refork.sampling.grammar import Grammar
from refork.sampling.noise import NoiseKey
from refork.types import token_array
from support import decoder_models as models
from support.models import CONTEXT, make_model, make_tokenizer

PREFIXES = models.prefixes()
SHORT = [p[:40] for p in PREFIXES[:2] + PREFIXES[7:]] + [PREFIXES[6][:40], PREFIXES[6][:40], PREFIXES[6][:33]]
NOISE = [NoiseKey(3, 0, i) for i in range(len(SHORT))]


def recurrent(name):
    """Tiny models whose branches cannot be packed."""
    import transformers as t

    torch.manual_seed(0)
    plain = {"vocab_size": models.VOCABULARY, "initializer_range": 0.1}
    plain |= {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    if name == "mamba":
        return t.MambaForCausalLM(
            t.MambaConfig(**plain, hidden_size=32, state_size=4, num_hidden_layers=2, time_step_rank=4)
        ).eval()
    if name == "rwkv":  # its cache is called state
        return t.RwkvForCausalLM(
            t.RwkvConfig(**plain, hidden_size=32, num_hidden_layers=2, context_length=256, rescale_every=0)
        ).eval()
    if name == "bloom":
        return t.BloomForCausalLM(t.BloomConfig(**plain, hidden_size=32, n_layer=2, n_head=2)).eval()
    if name == "qwen3_next":
        return t.Qwen3NextForCausalLM(
            t.Qwen3NextConfig(
                **plain, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
                num_key_value_heads=1, head_dim=16, linear_key_head_dim=8, linear_value_head_dim=8,
                linear_num_key_heads=2, linear_num_value_heads=2, num_experts=4, num_experts_per_tok=2,
                moe_intermediate_size=16, shared_expert_intermediate_size=16,
                layer_types=["linear_attention", "full_attention"],
            )
        ).eval()  # fmt: skip
    raise AssertionError(name)


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("name", ["mamba", "rwkv", "bloom", "qwen3_next"])
def test_draws_and_scores_are_those_of_plain_passes_in_any_company(name, cached):
    """Branches of one prompt go on from copies of its cache: none hears of another."""
    model = recurrent(name)
    decoder = OwnDecoder(OwnForward(model, cached=cached))
    settings = Sampling(max_tokens=8)
    drawn = {item.index: item for item in decoder.sample(SHORT, NOISE, settings)}
    assert len({drawn[i].tokens.tobytes() for i in range(len(SHORT) - 3, len(SHORT) - 1)}) == 2
    for i, prefix in enumerate(SHORT):
        whole = np.concatenate([prefix, drawn[i].tokens]).astype(np.int32)
        truth = models.teacher_forced(model, whole)
        np.testing.assert_allclose(drawn[i].logprobs, truth[len(prefix) - 1 :], atol=1e-5, rtol=0)
        np.testing.assert_allclose(score(decoder, [whole])[0], truth, atol=1e-5, rtol=0)
    for i in (len(SHORT) - 1, 0, len(SHORT) - 2):
        [alone] = decoder.sample([SHORT[i]], [NOISE[i]], settings)
        np.testing.assert_array_equal(alone.tokens, drawn[i].tokens)
        np.testing.assert_array_equal(alone.logprobs, drawn[i].logprobs)
    together = score(decoder, SHORT)
    for i, prefix in enumerate(SHORT):
        np.testing.assert_array_equal(score(decoder, [prefix])[0], together[i])


@pytest.fixture(scope="module")
def both():
    model, tokenizer = make_model(), make_tokenizer()
    return [LocalPolicy(model, tokenizer, name="tiny", forward=kind) for kind in ("packed", "own")]


LAWS = [
    Sampling(max_tokens=9),
    Sampling(max_tokens=9, temperature=0.0),
    Sampling(max_tokens=9, temperature=0.7, top_k=20, entropy_top_k=5),
    Sampling(max_tokens=9, top_p=0.6, coupling="gumbel"),
    Sampling(max_tokens=9, forced=(7, 9), banned_first=(3, 4), banned=tuple(range(100, 258))),
    Sampling(max_tokens=40, stop=("a", "b", "c"), banned=tuple(range(150, 258))),
    Sampling(max_tokens=40, stop_ids=tuple(range(40, 90))),
    Sampling(max_tokens=20, grammar=Grammar("regex", "(ab|ba|[0-9]{1,3})x")),
]


@pytest.mark.parametrize("settings", LAWS, ids=range(len(LAWS)))
def test_every_law_draws_what_packed_branches_draw(both, settings):
    pytest.importorskip("llguidance")
    packed, own = both
    tokens = packed.encode("hello there, ")
    asked = [Request(tokens[: 4 + i % 3 * 3], NoiseKey(5, 0, i), exclude_first=5 + i) for i in range(4)]
    asked += [Request(tokens, NoiseKey(6, 0, i), max_tokens=3 + i) for i in range(3)]
    one, two = sample_all(packed, asked, settings), sample_all(own, asked, settings)
    for mine, theirs in zip(two, one, strict=True):
        np.testing.assert_array_equal(mine.tokens, theirs.tokens)
        assert (mine.finish, mine.text, mine.ties) == (theirs.finish, theirs.text, theirs.ties)
        np.testing.assert_allclose(mine.logprobs, theirs.logprobs, atol=1e-5)
        np.testing.assert_allclose(mine.logprobs_t1, theirs.logprobs_t1, atol=1e-5)
        if settings.entropy_top_k is not None:
            np.testing.assert_allclose(mine.entropy, theirs.entropy, atol=1e-5)


def test_laws_states_and_edits_are_those_of_packed_branches(both):
    packed, own = both
    texts = [packed.encode(text) for text in ("hello there", "hello", "a")]
    for mine, theirs in zip(own.next_logprobs(texts), packed.next_logprobs(texts), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)
    push = torch.linspace(-1, 1, 32)
    for where, phase in (("all", "both"), ("last", "prefill"), ("all", "decode"), ((1, 3), "both")):
        edit = Edit(1, lambda states: states + push, "push", where, phase)
        asked = [Request(texts[i % 3], NoiseKey(1, 0, i)) for i in range(5)]
        capture = Capture((0, 1, -1, "raw"), prefix="last")
        one, two = (
            sorted(
                policy.edited(edit).sample_captured(asked, Sampling(max_tokens=4), capture),
                key=lambda pair: pair[0].index,
            )
            for policy in (packed, own)
        )
        for (mine, inside), (theirs, outside) in zip(two, one, strict=True):
            np.testing.assert_array_equal(mine.tokens, theirs.tokens)
            np.testing.assert_allclose(inside.prefix, outside.prefix, atol=2e-4)
            np.testing.assert_allclose(inside.fresh, outside.fresh, atol=2e-4)
        whole = [texts[0]] * 2
        for mine, theirs in zip(
            own.edited(edit).logprobs(whole, [3, 5]), packed.edited(edit).logprobs(whole, [3, 5]), strict=True
        ):
            np.testing.assert_allclose(mine, theirs, atol=1e-4)
    assert own.edited(edit).card.weights != own.card.weights


def test_edits_act_without_a_cache_too(both):
    """Then a pass covers the prompt and what was drawn, and each edit must find its own places in it."""
    packed, _ = both
    push = torch.linspace(-1, 1, 32)
    prefixes = [packed.encode("hello there"), packed.encode("hel")]
    noise = [NoiseKey(1, 0, i) for i in range(2)]
    for where, phase in (("last", "prefill"), ("all", "prefill"), ("all", "decode"), (slice(2, 13), "both")):
        edit = Edit(1, lambda states: states + push, "push", where, phase)
        decoders = (
            packed.decoder.edited(edit),
            OwnDecoder(OwnForward(packed.model, cached=False), edits=(edit,)),
        )
        settings, capture = Sampling(max_tokens=5), Capture((1,))
        found = [
            {item.index: item for item in decoder.sample(prefixes, noise, settings, capture=capture)}
            for decoder in decoders
        ]
        for i in range(2):
            np.testing.assert_array_equal(found[0][i].tokens, found[1][i].tokens)
            np.testing.assert_allclose(found[0][i].states.fresh, found[1][i].states.fresh, atol=2e-4)


def test_hidden_states_are_those_that_the_model_shows():
    model = recurrent("qwen3_next")
    decoder = OwnDecoder(OwnForward(model))
    found = hidden(decoder, SHORT[:4], [0, 1, 2], [0] * 4)
    for prefix, values in zip(SHORT, found, strict=False):
        with torch.no_grad():
            shown = model(torch.from_numpy(prefix).long()[None], output_hidden_states=True).hidden_states
        for mine, theirs in zip(values, shown, strict=True):
            np.testing.assert_allclose(mine, theirs[0].numpy(), atol=2e-5)


def test_states_that_hooks_do_not_see_are_refused():
    """A list of modules that is as long as the blocks' list need not be that list."""
    model = recurrent("bloom")
    model.others = torch.nn.ModuleList([torch.nn.Identity(), torch.nn.Identity()])
    decoder = OwnDecoder(OwnForward(model))
    with pytest.raises(CannotDo, match="cannot be reached"):
        hidden(decoder, SHORT[:1], [1], [0])
    assert len(score(decoder, SHORT[:1])[0]) == len(SHORT[0]) - 1


def test_bad_input_is_refused_alike(both):
    for policy in both:
        with pytest.raises(BadInput, match="no room"):
            sample_all(policy, [Request(token_array([1] * CONTEXT), NoiseKey(0, 0, 0))], Sampling())
        with pytest.raises(BadInput, match="every token"):
            sample_all(
                policy, [Request(token_array([1]), NoiseKey(0, 0, 0))], Sampling(banned=tuple(range(258)))
            )
    model = make_model()
    with torch.no_grad():
        model.lm_head.weight.fill_(torch.nan)
    for kind in ("packed", "own"):
        broken = LocalPolicy(model, make_tokenizer(), forward=kind)
        with pytest.raises(BadInput, match="not finite"):
            sample_all(broken, [Request(token_array([1]), NoiseKey(0, 0, 0))], Sampling())


def test_a_context_is_filled_and_not_overrun(both):
    _, own = both
    [item] = sample_all(own, [Request(token_array([1] * (CONTEXT - 3)), NoiseKey(0, 0, 0))], Sampling())
    assert (len(item.tokens), item.finish) == (3, "length")


def test_trained_adapters_count_and_changed_weights_too():
    model = models.make("lora")
    own, packed = OwnDecoder(OwnForward(model)), BranchDecoder(models_backbone(model))
    for mine, theirs in zip(score(own, SHORT), score(packed, SHORT), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)
    before = next_distributions(own, SHORT[3:4])[0]
    with torch.no_grad():
        next(p for name, p in model.named_parameters() if "lora_B" in name).mul_(3.0)
    assert np.abs(next_distributions(own, SHORT[3:4])[0] - before).max() > 1e-3


def models_backbone(model):
    from refork.decoding.backbone import Backbone

    return Backbone(model)


def test_a_live_decoder_says_that_it_cannot(both):
    from refork.decoding.live import LiveDecoder

    with pytest.raises(CannotDo, match=re.escape("its own forward pass")):
        LiveDecoder(both[1].decoder)


def test_drafting_for_such_a_model_is_refused_with_the_reason(both):
    from refork_methods.speculate.config import draft_config
    from refork_methods.speculate.model import build_draft

    with pytest.raises(CannotDo, match="its own forward pass, one branch at a time"):
        build_draft(draft_config(both[1]), both[1])
