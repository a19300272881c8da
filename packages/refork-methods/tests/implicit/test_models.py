"""Pairs of models: chunked log-probs, cache, refusals, merged references."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
import torch
from transformers import Gemma2Config, Gemma2ForCausalLM

from refork.errors import BadInput, CannotDo
from refork.policies.local import LocalPolicy
from refork_methods.implicit import aggregate
from refork_methods.implicit import pair as pair_module
from refork_methods.implicit.chunked import Head, chunked_logprobs, head_of, model_logprobs
from refork_methods.implicit.merge import elected, merge_reference, merged_model, merged_tensor, own_part
from refork_methods.implicit.pair import ImplicitPair
from refork_methods.implicit.score import score_chats
from support.implicit_policies import make_policy


@pytest.mark.parametrize(("rows", "words"), [(1, 1), (3, 7), (100, 1000)])
@pytest.mark.parametrize("softcap", [None, 5.0])
def test_chunks_change_nothing(rows, words, softcap):
    generator = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(n, 8, generator=generator) * 3 for n in (11, 41))
    bias, targets = torch.randn(41, generator=generator), torch.randint(41, (11,), generator=generator)
    logits = 0.5 * (hidden @ weight.T + bias)
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    wanted = torch.log_softmax(logits.double(), -1)[torch.arange(11), targets]
    found = chunked_logprobs(hidden, Head(weight, bias, 0.5, softcap), targets, rows=rows, words=words)
    assert torch.allclose(found, wanted, atol=1e-5)


def test_a_model_in_chunks_is_the_model(policy):
    sequences = [np.arange(5, 40, dtype=np.int32), np.array([7, 8], dtype=np.int32)]
    for mine, plain in zip(model_logprobs(policy, sequences), policy.logprobs(sequences), strict=True):
        assert np.abs(mine - plain).max() < 1e-5


def test_a_soft_capped_model_in_chunks(policy):
    torch.manual_seed(0)
    config = Gemma2Config(
        vocab_size=policy.decoder.backbone.vocabulary, hidden_size=16, intermediate_size=32,
        num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, head_dim=8,
        max_position_embeddings=64, final_logit_softcapping=0.05, pad_token_id=0,
    )  # fmt: skip
    capped = LocalPolicy(Gemma2ForCausalLM(config).eval(), policy.codec.tokenizer, name="capped")
    sequence = [np.arange(5, 30, dtype=np.int32)]
    assert head_of(capped.model).softcap == 0.05
    assert np.abs(model_logprobs(capped, sequence)[0] - capped.logprobs(sequence)[0]).max() < 1e-5


def test_a_head_that_does_more_is_refused():
    odd = make_policy(5)
    odd.model.lm_head.register_forward_hook(lambda module, given, out: out * out)
    with pytest.raises(CannotDo, match="does more than"):
        model_logprobs(odd, [np.arange(5, 20, dtype=np.int32)])


def test_identical_weights_are_refused(policy):
    with pytest.raises(BadInput, match="same weights"):
        ImplicitPair(policy, make_policy(1, name="again"))


def test_log_probs_that_are_the_same_everywhere_are_refused():
    same = aggregate.pair_logprobs([-1.0, -2.0], [-1.0, -2.0], [0, 1])
    with pytest.raises(BadInput, match="same everywhere"):
        aggregate.refuse_all_zero([same])


def test_a_pair_names_both_and_scores_under_beta(policy, reference, messages):
    pair = ImplicitPair(policy, reference, beta=0.5)
    (found,) = pair.logprobs([pair.render(messages[:3])])
    assert pair.names["reference"] == {"name": "model-2", "weights": reference.card.weights}
    assert pair.producer.config["beta"] == 0.5
    assert aggregate.trajectory_score(found, beta=0.5) == 0.5 * aggregate.trajectory_score(found)
    swapped = ImplicitPair(reference, policy)
    (other,) = swapped.logprobs([swapped.render(messages[:3])])
    assert aggregate.trajectory_score(other) == pytest.approx(-aggregate.trajectory_score(found), abs=1e-5)


def test_what_was_computed_is_kept_per_weights_and_tokens(policy, reference, messages, tmp_path, monkeypatch):
    pair = ImplicitPair(policy, reference, cache=tmp_path)
    rendered = [pair.render(messages[:3]), pair.render(messages, "flat")]
    first = pair.logprobs(rendered)
    assert len(list(tmp_path.rglob("*.npy"))) == 4
    with monkeypatch.context() as patched:
        patched.setattr(LocalPolicy, "logprobs", lambda *_: pytest.fail("asked the model again"))
        again = pair.logprobs(rendered)
    for a, b in zip(first, again, strict=True):
        assert np.array_equal(a.policy, b.policy)
        assert np.array_equal(a.reference, b.reference)
    other = ImplicitPair(policy, make_policy(4), cache=tmp_path)
    other.logprobs(rendered[:1])
    assert len(list(tmp_path.rglob("*.npy"))) == 5, "other weights are another place"
    for file in tmp_path.rglob("*.npy"):
        file.write_bytes(b"damaged")
    assert np.array_equal(pair.logprobs(rendered)[0].policy, first[0].policy)


def test_a_stopped_call_goes_on_where_it_was(policy, reference, messages, tmp_path, monkeypatch):
    monkeypatch.setattr(pair_module, "_AT_ONCE", 1)
    pair = ImplicitPair(policy, reference, cache=tmp_path)
    rendered = [pair.render(messages[:3], "flat"), pair.render(messages[:5], "flat")]
    seen = []

    def stop(stage, done, total, *, tokens=None, waiting=None):
        seen.append((stage, done, total))
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pair.logprobs(rendered, stop)
    assert len(list(tmp_path.rglob("*.npy"))) == 1
    del seen[:]
    pair.logprobs(rendered, lambda *a, **k: seen.append(a))
    assert seen[0] == ("policy log-probs", 1, 2)


def test_a_trajectory_longer_than_the_limit_is_flagged(policy, reference, messages):
    pair = ImplicitPair(policy, reference, longest=40)
    rendered = pair.render(messages, "flat")
    assert len(rendered.tokens) == 40
    assert rendered.cut[0]
    (found,) = pair.logprobs([rendered])
    assert np.isnan(aggregate.step_advantages(found)[0])
    with pytest.raises(BadInput, match="leaves nothing"):
        ImplicitPair(policy, reference, longest=1)


def test_a_reference_without_a_probability_is_named(policy, messages):
    broken = make_policy(6)
    with torch.no_grad():
        broken.model.lm_head.weight[:, :] = torch.nan
    pair = ImplicitPair(policy, broken)
    with pytest.raises(BadInput, match=r"reference gives token .* the log-prob nan"):
        pair.logprobs([pair.render(messages[:3])])


def test_chat_files(policy, reference, messages, tmp_path):
    file = tmp_path / "chats.jsonl"
    lines = [
        {"messages": messages[:3], "task": "t", "outcome": 1},
        {"history": messages[:5], "question_ID": 7, "mistake_step": "4", "reward_info": {"reward": 0.5}},
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    pair = ImplicitPair(policy, reference)
    first, second = score_chats(file, pair, render="flat")
    assert (first.facts.task, first.facts.outcome, first.messages) == ("t", 1.0, (2,))
    assert (second.facts.task, second.facts.outcome, second.facts.decisive) == ("7", 0.5, 4)
    for bad, said in [({"messages": []}, "action"), ({"text": 1}, "no messages"), ([1], "not a JSON object")]:
        file.write_text(json.dumps(bad) + "\n")
        with pytest.raises(BadInput, match=said):
            score_chats(file, pair, render="flat")
    with pytest.raises(BadInput, match="rendering"):
        score_chats(file, pair, render="markdown")
    with pytest.raises(BadInput, match="choice of actions"):
        score_chats(file, pair, actions="nobody")
    with pytest.raises(BadInput, match="template knows only"):
        pair.render(messages, "template", "every")


# -- merging ------------------------------------------------------------------------------------


def test_merged_tensors():
    reference, policy = torch.zeros(10), torch.arange(1.0, 11.0)
    assert torch.equal(merged_tensor(reference, policy, 0.0, "ties"), reference)
    assert torch.equal(merged_tensor(reference, policy, 1.0), policy)
    assert torch.equal(merged_tensor(reference, policy, 0.5), policy / 2)
    kept = merged_tensor(reference, policy, 0.5, "ties", 0.2)
    assert kept.tolist() == [0.0] * 8 + [4.5, 5.0]
    half = merged_tensor(torch.zeros(10_000), torch.ones(10_000), 1.0, "ties", 0.3)
    assert half.sum() == 10_000, "equal sizes are kept together"


def test_dare_keeps_the_difference_on_average():
    size = 20_000
    made = [
        merged_tensor(
            torch.zeros(size), torch.ones(size), 1.0, "dare", 0.2, torch.Generator().manual_seed(seed)
        )
        for seed in (0, 0, 1)
    ]
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])
    assert set(made[0].tolist()) == {0.0, 5.0}
    # Standard error 0.014; 5 of them: a false alarm has a chance below 1e-6, and the seed is fixed.
    assert float(made[0].mean()) == pytest.approx(1.0, abs=0.07)


def test_what_several_differences_elect():
    differences = [torch.tensor(row) for row in ([3.0, -1.0, 2.0, 0.0, 1.0], [-1.0, -4.0, -2.0, 5.0, 2.0])]
    chosen = elected(differences)
    # Of the third entry the sum is 0, so nothing is elected there.
    assert chosen.tolist() == [3.0, -4.0, 0.0, 5.0, 2.0]
    assert own_part(differences[0], chosen).tolist() == [3.0, -4.0, 0.0, 0.0, 2.0]
    assert own_part(differences[1], chosen).tolist() == [0.0, -4.0, 0.0, 5.0, 2.0]


def weights(**rows):
    model = torch.nn.Module()
    for name, row in rows.items():
        model.register_parameter(name, torch.nn.Parameter(torch.tensor(row)))
    return model


def test_emr_rescales_over_the_whole_model():
    reference, first = weights(a=[1.0, 1.0], b=[0.0]), weights(a=[4.0, 0.0], b=[2.0])
    second = weights(a=[0.0, -3.0], b=[-2.0])
    # Differences (3, -1 | 2) and (-1, -4 | -2) elect (3, -4 | 0): the first takes 7, and its own size is 6.
    merged = merged_model(first, reference, 0.5, "emr", others=[second])
    scale = 0.5 * 6 / 7
    assert merged.a.tolist() == pytest.approx([1 + scale * 3, 1 - scale * 4])
    assert merged.b.tolist() == [0.0]


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_emr_of_one_checkpoint_is_linear(policy, reference, alpha):
    plain, alone = copy.deepcopy(reference.model), copy.deepcopy(reference.model)
    merged_model(policy.model, plain, alpha, "linear")
    merged_model(policy.model, alone, alpha, "emr")
    # Of two equal differences each is the elected one, too.
    twice = merged_model(policy.model, copy.deepcopy(reference.model), alpha, "emr", others=[policy.model])
    for name, part in plain.named_parameters():
        assert torch.equal(alone.get_parameter(name), part)
        assert torch.allclose(twice.get_parameter(name), part, atol=1e-6)


def test_emr_refuses_what_it_cannot_merge(policy, reference):
    with pytest.raises(BadInput, match="merges one checkpoint"):
        merged_model(policy.model, reference.model, 0.5, "ties", others=[policy.model])
    far = weights(a=[-9.0, -9.0])
    with pytest.raises(BadInput, match="no entry"):
        merged_model(weights(a=[1.0, 1.0]), weights(a=[0.0, 0.0]), 0.5, "emr", others=[far])
    with pytest.raises(BadInput, match="in one only"):
        merged_model(weights(a=[1.0]), weights(a=[0.0]), 0.5, "emr", others=[weights(b=[1.0])])
    with pytest.raises(BadInput, match="shapes"):
        merged_model(weights(a=[1.0]), weights(a=[0.0]), 0.5, "emr", others=[weights(a=[1.0, 2.0])])


def test_merging_refuses_what_does_not_fit(tmp_path):
    with pytest.raises(BadInput, match="shape"):
        merged_tensor(torch.zeros(2), torch.zeros(3), 0.5)
    with pytest.raises(BadInput, match="merge method"):
        merged_tensor(torch.zeros(2), torch.zeros(2), 0.5, "mean")
    with pytest.raises(BadInput, match="whole models"):
        merged_tensor(torch.zeros(2), torch.zeros(2), 0.5, "emr")
    with pytest.raises(BadInput, match="alpha"):
        merged_tensor(torch.zeros(2), torch.zeros(2), 1.5)
    (tmp_path / "x").write_text("")
    with pytest.raises(BadInput, match="holds something"):
        merge_reference("a", "b", tmp_path, 0.5)


@pytest.mark.parametrize("method", ["linear", "ties", "dare", "emr"])
def test_a_merged_reference_is_a_usual_folder(policy, reference, tmp_path, method):
    for item, name in ((policy, "policy"), (reference, "reference")):
        item.model.save_pretrained(tmp_path / name)
        item.codec.tokenizer.save_pretrained(tmp_path / name)
    out = tmp_path / "between"
    others = [str(tmp_path / "policy")] if method == "emr" else []
    merge_reference(
        str(tmp_path / "policy"), str(tmp_path / "reference"), out, 0.4, method=method, others=others
    )
    found = LocalPolicy.load(str(out))
    assert found.codec.digest == reference.codec.digest
    name = "model.layers.0.mlp.up_proj.weight"
    own, far, near = (m.model.get_parameter(name) for m in (found, policy, reference))
    if method in ("linear", "emr"):
        assert torch.allclose(own, 0.4 * far + 0.6 * near, atol=1e-6)
    else:
        moved = float((own != near).float().mean())
        assert moved == pytest.approx(0.2, abs=0.05)
    assert found.card.weights not in (policy.card.weights, reference.card.weights)
