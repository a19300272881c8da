"""Pairs of models: cache, refusals, chat files."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from refork.errors import BadInput
from refork.policies.local import LocalPolicy
from refork_methods.implicit import aggregate
from refork_methods.implicit import pair as pair_module
from refork_methods.implicit.pair import ImplicitPair
from refork_methods.implicit.score import score_chats
from support.implicit_policies import make_policy


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
