"""What a model is compared with when it is opened, and what becomes of one that differs."""

import json

import numpy as np
import pytest
import torch

from refork.decoding import attention, opening
from refork.decoding.attention import AttentionPlan
from refork.decoding.loop import BranchDecoder
from refork.decoding.opening import open_decoder
from refork.decoding.own import OwnDecoder
from refork.errors import BadInput, CannotDo
from refork.policies.base import Sampling
from refork.policies.local import LocalPolicy
from refork.policies.open import open_policy
from refork.sampling.noise import NoiseKey
from support import decoder_models as models
from support.models import make_tokenizer


@pytest.fixture(autouse=True)
def forgotten(monkeypatch, tmp_path):
    """Nothing is known of any model yet, and verdicts are kept in a folder of their own."""
    monkeypatch.setattr(opening, "_KNOWN", {})
    monkeypatch.setenv("REFORK_HOME", str(tmp_path))


@pytest.mark.parametrize("name", models.ARCHITECTURES)
def test_what_packed_branches_know_is_packed(name):
    model = models.make(name)
    decoder, found = open_decoder(model)
    assert isinstance(decoder, BranchDecoder)
    assert (found.path, found.why, found.unseen) == ("packed", None, {})
    assert 0 < found.difference < 1e-4
    assert found.compared == 72
    assert found.to_json() == {"forward": "packed branches"}


def test_a_window_that_is_not_kept_to_is_seen(monkeypatch):
    """The class of the error: a mask that a decoder does not know of. Sequences must be longer than it."""
    monkeypatch.setattr(AttentionPlan, "_visible", lambda step, window: step.mask)
    decoder, found = open_decoder(models.make("qwen2"))
    assert isinstance(decoder, OwnDecoder)
    assert found.path == "cached"
    assert "nats from its own" in found.why
    with pytest.raises(
        CannotDo, match=r"packed branches of Qwen2ForCausalLM give log-probs .* nats from its"
    ):
        open_decoder(models.make("qwen2"), forward="packed")
    assert open_decoder(models.make("llama"))[1].path == "packed"


def test_a_wrong_scale_is_seen_and_not_only_in_the_long_sequence(monkeypatch):
    plain = attention._attention

    def other(module, query, key, value, mask, scaling=None, **rest):
        return plain(module, query * 1.01, key, value, mask, scaling=scaling, **rest)

    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    monkeypatch.setattr(
        attention, "register", lambda: ALL_ATTENTION_FUNCTIONS.register(attention.NAME, other)
    )
    try:
        found = open_decoder(models.make("llama"))[1]
        assert found.path == "cached"
        assert "nats from its own" in found.why
    finally:
        ALL_ATTENTION_FUNCTIONS.register(attention.NAME, plain)


def bidirectional():
    from transformers import BertConfig, BertLMHeadModel

    torch.manual_seed(0)
    sizes = {"vocab_size": 101, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    return BertLMHeadModel(BertConfig(**sizes, intermediate_size=48, initializer_range=0.2)).eval()


def test_what_is_not_causal_is_refused_by_name():
    with pytest.raises(CannotDo, match="BertLMHeadModel is no causal model"):
        open_decoder(bidirectional())


def test_a_model_that_needs_more_than_tokens_is_refused_by_name(monkeypatch):
    model = models.make("llama")
    monkeypatch.setattr(model, "forward", lambda input_ids, pictures: None)
    with pytest.raises(CannotDo, match="LlamaForCausalLM does not run on token ids alone: TypeError"):
        open_decoder(model)


def longrope(original=20):
    from transformers import Phi3Config, Phi3ForCausalLM

    torch.manual_seed(0)
    half = models.PLAIN["hidden_size"] // models.PLAIN["num_attention_heads"] // 2
    config = models.PLAIN | {"max_position_embeddings": 160}
    scaling = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * half}
    scaling |= {"long_factor": [3.0] * half, "original_max_position_embeddings": original}
    return Phi3ForCausalLM(
        Phi3Config(
            **config,
            num_key_value_heads=2,
            rope_parameters=scaling,
            original_max_position_embeddings=original,
        )
    ).eval()


def test_a_scaling_that_asks_for_the_length_gives_each_place_its_own_law():
    """Behind the border a longer pass changes earlier logits; a token's law knows what is before it only."""
    model = longrope()
    for forward in ("auto", "own"):
        decoder, found = open_decoder(model, forward=forward)
        assert found.steady in (None, 20)
        base = models.prefixes()[6]
        prefixes = [base[:12], base[:17], base[:60]]
        noise = [NoiseKey(1, 0, i) for i in range(3)]
        for item in decoder.sample(prefixes, noise, Sampling(max_tokens=8)):
            whole = np.concatenate([prefixes[item.index], item.tokens])
            for k in range(len(item.tokens)):
                ids = torch.from_numpy(whole[: len(prefixes[item.index]) + k]).long()[None]
                with torch.no_grad():
                    distribution = torch.log_softmax(model(ids, use_cache=False).logits[0, -1], dim=-1)
                assert item.logprobs[k] == pytest.approx(float(distribution[item.tokens[k]]), abs=1e-5)


def test_borders_that_are_too_far_are_named_on_the_card(monkeypatch):
    monkeypatch.setitem(opening._LONGEST, "cpu", 20)
    monkeypatch.setattr(opening, "_LEAST", 20)
    policy = LocalPolicy(models.make("gemma2"), make_tokenizer())
    assert policy.card.extra["forward"] == "packed branches"
    assert policy.card.extra["not compared"] == f"beyond 20 tokens (sliding_window {models.WINDOW})"


def test_a_slow_model_says_so_and_why_once(tmp_path):
    from transformers import MambaConfig, MambaForCausalLM

    torch.manual_seed(0)
    model = MambaForCausalLM(MambaConfig(vocab_size=258, hidden_size=16, num_hidden_layers=1))
    model.save_pretrained(tmp_path / "m")
    make_tokenizer().save_pretrained(tmp_path / "m")
    told = []
    policy = open_policy(f"hf:{tmp_path / 'm'}", on_wait=told.append)
    assert len(told) == 1
    assert "m runs slowly, by the model's own forward pass, one branch at a time: MambaForCausalLM" in told[0]
    assert policy.card.extra["forward"] == "the model's own forward pass, one branch at a time"
    assert "cannot be run by the branching decoder" in policy.card.extra["not packed"]
    with pytest.raises(CannotDo, match="MambaForCausalLM cannot be run by the branching decoder"):
        open_policy(f"hf:{tmp_path / 'm'}+forward=packed")
    with pytest.raises(BadInput, match="forward is 'fast'"):
        open_policy(f"hf:{tmp_path / 'm'}+forward=fast")


def test_a_comparison_that_took_long_is_made_once(monkeypatch, tmp_path):
    """By the digest of config, shapes, versions and this package's source; a damaged verdict is made anew."""
    monkeypatch.setattr(opening, "_KEEP_FROM", -1.0)
    model = models.make("llama")
    _, found = open_decoder(model)
    [kept] = (tmp_path / "openings").iterdir()
    assert json.loads(kept.read_text())["difference"] == found.difference
    made = []
    monkeypatch.setattr(opening, "_Trial", lambda *args: made.append(args))
    assert open_decoder(model)[1] == found
    opening._KNOWN.clear()
    decoder, again = open_decoder(model)
    assert again == found
    assert isinstance(decoder, BranchDecoder)
    assert not made
    opening._KNOWN.clear()
    kept.write_text("{")
    with pytest.raises(AttributeError):
        open_decoder(model)
    assert made
    with pytest.raises(AttributeError):
        open_decoder(models.make("qwen3"))


def test_half_precision_is_compared_with_its_own_tolerance():
    for dtype in (torch.bfloat16, torch.float16):
        assert open_decoder(models.make("gemma3").to(dtype))[1].path == "packed"


def test_half_precision_hides_no_missing_window(monkeypatch):
    monkeypatch.setattr(AttentionPlan, "_visible", lambda step, window: step.mask)
    assert open_decoder(models.make("gemma3").to(torch.bfloat16))[1].path == "cached"
