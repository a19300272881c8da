from __future__ import annotations

import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from ramify.core.errors import BadInput
from ramify.core.policy.base import Sampling
from ramify.core.policy.local import LocalPolicy
from ramify.core.tree.tree import Tree
from ramify.learn.train.loop import TreeTraining, group_walks, improve
from support.worlds import TwoTurns

WORDS = ["<end>", "<user>", "<agent>", " a", " b", "task", "begin", "heard", "x"]
TEMPLATE = (
    "{% for m in messages %}{{ '<user>' if m.role == 'user' else '<agent>' }}"
    "{{ 'x' if m.role == 'user' else m.content }}{{ '<end>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<agent>' }}{% endif %}"
)
WORLD = TwoTurns(max_turns=1)
LAW = Sampling(max_tokens=1)


def policy() -> LocalPolicy:
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="x"))
    inner.add_special_tokens(["<end>", "<user>", "<agent>"])
    inner.add_tokens([" a", " b"])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<end>", unk_token="x")
    tokenizer.chat_template = TEMPLATE
    torch.manual_seed(0)
    shape = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=True,
        eos_token_id=0,
    )  # fmt: skip
    return LocalPolicy(LlamaForCausalLM(shape).eval(), tokenizer, name="tiny")


def plan(**changes):
    return TreeTraining(
        **{"updates": 8, "tasks": 8, "roots": 8, "leaves": 10, "learning_rate": 0.05, **changes}
    )


def train(tree, **changes):
    actor = policy()
    tasks = WORLD.tasks("train", 8)
    return actor, list(improve(tree, actor, WORLD, tasks, plan(**changes), LAW))


def test_success_rises_from_rare_to_usual():
    with Tree.memory() as tree:
        _, updates = train(tree, updates=12)
    assert updates[0].success < 0.4
    assert updates[-1].success > 0.8
    assert updates[0].metrics["sampler_difference"] < 1e-5, "sampler and trainer agree on every log-prob"


def test_the_same_call_finds_its_rollouts_and_the_same_weights():
    with Tree.memory() as tree:
        one, first = train(tree, updates=3)
        two, again = train(tree, updates=3)
    assert sum(u.tokens for u in first) > 0
    assert sum(u.tokens for u in again) == 0
    assert one.card.weights == two.card.weights != policy().card.weights


def test_groups_without_difference_change_nothing():
    actor = policy()
    before = actor.card.weights
    with Tree.memory() as tree:
        world = TwoTurns(luck=0.0, max_turns=1)
        updates = list(improve(tree, actor, world, world.tasks("train", 2), plan(updates=1, tasks=2), LAW))
    assert updates[0].mixed == 0.0
    assert "skipped" in updates[0].metrics
    assert actor.card.weights == before


def test_a_filtered_law_is_refused():
    with Tree.memory() as tree, pytest.raises(BadInput, match="temperature 1"):
        next(improve(tree, policy(), WORLD, WORLD.tasks("train", 1), plan(), LAW.but(top_k=2)))


def test_failed_draws_teach_nothing():
    class Draw:
        end = "error"

    class Arm:
        draws = (Draw(),)

        def values(self):
            return [None]

        def leaves(self):
            return ["walk"]

    class Group:
        forks = (Arm(),)

    assert group_walks(Group()) == ([], [])
