"""The instruments on a real transformer: exact token positions, one batch, redraws that repeat."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from refork.growing.plant import plant_prompt
from refork.judge import MatchJudge
from refork.policies.base import Sampling
from refork.policies.local import LocalPolicy
from refork.tree.node import NewNode
from refork.types import token_array
from refork_methods.forensics.instruments.logprob_prefill import phrase_levels
from refork_methods.forensics.instruments.questions import follow_up, reflective_prefill, user_turn_sample
from refork_methods.forensics.instruments.reading import Patterns
from refork_methods.forensics.instruments.repeated_resampling import repeated_resample
from refork_methods.forensics.instruments.sentence_resampling import sentence_resample
from refork_testbed.models.tokenizer import make_tokenizer

TEXT = "I run it.  The hook\nfails! Then we go on."
SETTINGS = Sampling(max_tokens=24)


@pytest.fixture(scope="module")
def policy():
    torch.manual_seed(0)
    tokenizer = make_tokenizer(["I", "run", "it", "The", "hook", "fails", "Then", "we", "go", "on"], 256)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=256, initializer_range=0.4, bos_token_id=None,
        eos_token_id=None,
    )  # fmt: skip
    return LocalPolicy(LlamaForCausalLM(config).eval(), tokenizer, name="random")


@pytest.fixture
def end(tree, policy):
    tokens = policy.encode(TEXT)
    ends = np.cumsum([len(policy.decode(token_array([t]))) for t in tokens])
    root = plant_prompt(tree, policy, "go on")
    draft = NewNode(
        kind="action", parent=root.node.id, key="t", text=TEXT, tokens=tokens, offsets=token_array(ends),
        policy=policy.card.name, weights=policy.card.weights, settings=SETTINGS.to_json(), finish="length",
    )  # fmt: skip
    return tree.at(tree.append([draft])[0])


def test_prefixes_are_the_trace_s_own_tokens_and_redraw(tree, policy, end):
    found = sentence_resample(end, policy, 4, grader=MatchJudge("e"), seed=3)
    assert [p.text for p in found.pieces] == ["I run it.", "  The hook", "\nfails!", " Then we go on."]
    whole = tree.path(end).tokens
    for arm, piece in zip(found.arms, [None, *found.pieces], strict=True):
        prefix = tree.path(found.pieces[0].before if piece is None else piece.after).tokens
        assert np.array_equal(whole[: len(prefix)], prefix)
        for trajectory in tree.paths(arm.nodes):
            assert np.array_equal(trajectory.tokens[: len(prefix)], prefix), "no token was rendered anew"
    wrong = [f for f in tree.verify({policy.card.name: policy}, redraw=True) if f.level == "error"]
    ours = [f for f in wrong if f.node != end.node.id]
    assert not ours


def test_questions_only_append_tokens(tree, policy, end):
    reader = Patterns.of(e="e")
    found = follow_up([end], policy, "Why?", reader, 3, indirect=False, settings=SETTINGS)
    before = tree.path(end).tokens
    for reply in found.replies:
        assert np.array_equal(tree.path(reply.node).tokens[: len(before)], before)
    assert len(user_turn_sample([end], policy, reader, 2, settings=SETTINGS).replies) == 2
    prefilled = reflective_prefill([end], policy, " Then I", reader, 2, settings=SETTINGS)
    assert all("Then I" in "".join(s.text for s in tree.path(r.node)) for r in prefilled.replies)


def test_redrawing_and_levels_run_on_a_transformer(tree, policy, end):
    found = repeated_resample(
        tree.at(end.node.parent), policy, 6, Patterns.of(z="z"), "z", grader=MatchJudge("e"),
        settings=SETTINGS, max_tries=4,
    )  # fmt: skip
    assert found.redrawn.total == 6
    kept = [n for n, r in zip(found.redrawn.nodes, found.redraws, strict=True) if r]
    assert found.gave_up or all("z" not in "".join(s.text for s in tree.path(n).steps[1:]) for n in kept)
    levels = phrase_levels([end], policy, " hook")
    assert len(levels[0]) == 2
    assert (levels[0] < 0).all()
