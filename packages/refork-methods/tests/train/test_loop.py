from __future__ import annotations

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from refork.errors import BadInput, Mismatch
from refork.growing import Independent, RandomNode
from refork.policies.base import Sampling
from refork.policies.local import LocalPolicy
from refork.tree.tree import Tree
from refork_methods.credit.methods import credit_method
from refork_methods.train.loop import (
    TreeTraining,
    finished_updates,
    group_credit_of,
    group_trajectories,
    train_policy,
)
from refork_methods.train.lora import LoraSettings
from refork_methods.train.objectives import objective
from refork_methods.train.run import with_lora
from refork_methods.train.schedule import Schedule
from refork_methods.train.tracker import JsonLines, read_lines
from support.nodes import make_node, make_walk
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
    return actor, list(train_policy(tree, actor, WORLD, tasks, plan(**changes), LAW))


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
        updates = list(
            train_policy(tree, actor, world, world.tasks("train", 2), plan(updates=1, tasks=2), LAW)
        )
    assert updates[0].mixed == 0.0
    assert "skipped" in updates[0].metrics
    assert actor.card.weights == before


def test_a_filtered_law_is_refused():
    with Tree.memory() as tree, pytest.raises(BadInput, match="temperature 1"):
        next(train_policy(tree, policy(), WORLD, WORLD.tasks("train", 1), plan(), LAW.but(top_k=2)))


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

    assert group_trajectories(Group()) == ([], [])


def state(actor):
    return {name: part.detach().clone() for name, part in actor.model.named_parameters()}


@pytest.mark.parametrize("stop", [1, 3])
@pytest.mark.parametrize("lora", [False, True])
def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(tmp_path, stop, lora):
    settings = plan(
        updates=5, passes=2, minibatches=2, budget=70, schedule=Schedule(peak=0.05, shape="cosine")
    )
    tasks = WORLD.tasks("train", 12)

    def actor():
        made = policy()
        return with_lora(made, LoraSettings(rank=2)) if lora else made

    whole, told = actor(), JsonLines(tmp_path / "curve.jsonl")
    with Tree.memory() as tree:
        expected = list(
            train_policy(tree, whole, WORLD, tasks, settings, LAW, folder=tmp_path / "whole", tracker=told)
        )
    with Tree.open(tmp_path / "tree.db") as tree:
        runs = train_policy(tree, actor(), WORLD, tasks, settings, LAW, folder=tmp_path / "cut", every=1)
        first = [next(runs) for _ in range(stop)]
        del runs
        torch.manual_seed(99)  # what another process would have
        resumed = actor()
        rest = list(train_policy(tree, resumed, WORLD, tasks, settings, LAW, folder=tmp_path / "cut"))
    for name, part in state(whole).items():
        assert torch.equal(part, state(resumed)[name]), name
    timeless = [u.to_json() | {"seconds": 0} for u in [*first, *rest]]
    assert timeless == [u.to_json() | {"seconds": 0} for u in expected]
    assert [u["number"] for u in finished_updates(tmp_path / "cut")] == [1, 2, 3, 4, 5]
    curve = read_lines(told.path)
    assert [row["step"] for row in curve] == [1, 2, 3, 4, 5]
    assert curve[0]["loss"] == expected[0].metrics["loss"]


def test_a_finished_run_has_nothing_left_to_do(tmp_path):
    with Tree.memory() as tree:
        list(
            train_policy(
                tree, policy(), WORLD, WORLD.tasks("train", 8), plan(updates=1), LAW, folder=tmp_path
            )
        )
        again = train_policy(
            tree, policy(), WORLD, WORLD.tasks("train", 8), plan(updates=1), LAW, folder=tmp_path
        )
        assert list(again) == []


def test_another_runs_checkpoints_are_refused(tmp_path):
    tasks = WORLD.tasks("train", 8)
    with Tree.memory() as tree:
        list(train_policy(tree, policy(), WORLD, tasks, plan(updates=1), LAW, folder=tmp_path, digest="one"))
        with pytest.raises(Mismatch, match="another run"):
            next(
                train_policy(
                    tree, policy(), WORLD, tasks, plan(updates=2), LAW, folder=tmp_path, digest="two"
                )
            )


def test_a_budget_holds_over_the_run():
    with Tree.memory() as tree:
        updates = list(
            train_policy(
                tree, policy(), WORLD, WORLD.tasks("train", 6), plan(updates=4, tasks=2, budget=50), LAW
            )
        )
    # A block is 2 tasks of 10 rollouts of one token: each update ends in the block that reaches the budget.
    assert [u.spent for u in updates] == [60, 100, 160, 200]
    assert [u.cost for u in updates] == [60, 40, 60, 40]


def test_a_task_that_comes_round_again_within_an_update_is_drawn_anew():
    with Tree.memory() as tree:
        (update,) = train_policy(
            tree, policy(), WORLD, WORLD.tasks("train", 1), plan(updates=1, tasks=1, budget=25), LAW
        )
        draws = sum(len(tree.draws(fork.id)) for fork in tree.forks())
    assert update.cost == 30
    assert draws == 30


def test_a_block_in_which_the_tasks_begin_anew_draws_them_anew():
    with Tree.memory() as tree:
        # Tasks 0 1, then 2 0: the second time task 0 is met within the second block.
        (update,) = train_policy(
            tree, policy(), WORLD, WORLD.tasks("train", 3), plan(updates=1, tasks=2, budget=35), LAW
        )
        draws = sum(len(tree.draws(fork.id)) for fork in tree.forks())
    assert (update.cost, draws) == (40, 40)


@pytest.mark.parametrize(
    "grower", ["independent", Independent(), lambda seed: RandomNode(seed, 4, 2), RandomNode]
)
@pytest.mark.parametrize("credit", ["grpo", "g2po"])
def test_growers_and_credits_are_exchanged_freely(grower, credit):
    with Tree.memory() as tree:
        updates = list(
            train_policy(
                tree,
                policy(),
                WORLD,
                WORLD.tasks("train", 8),
                plan(updates=2),
                LAW,
                grower=grower,
                credit=credit_method(credit),
            )
        )
    assert updates[-1].metrics["grad_norm"] > 0
    assert updates[0].metrics["sampler_difference_max"] < 1e-5


def test_an_unknown_grower_is_refused():
    with Tree.memory() as tree, pytest.raises(BadInput, match="unknown grower"):
        next(train_policy(tree, policy(), WORLD, WORLD.tasks("train", 1), plan(), LAW, grower="uucb"))


def test_a_kl_weight_needs_a_reference():
    actor = policy()
    settings = plan(updates=2, gradient=objective("plain", kl_weight=0.1))
    with Tree.memory() as tree:
        with pytest.raises(BadInput, match="reference"):
            next(train_policy(tree, actor, WORLD, WORLD.tasks("train", 8), settings, LAW))
        held = LocalPolicy(actor.model, actor.codec, name="tiny", reference=policy())
        updates = list(train_policy(tree, held, WORLD, WORLD.tasks("train", 8), settings, LAW))
    assert updates[0].metrics["kl"] == pytest.approx(0, abs=1e-6)
    assert updates[1].metrics["kl"] > 0


def test_rollouts_over_their_limit_may_teach_nothing_or_cost():
    class Draw:
        def __init__(self, end):
            self.end = end

    class Arm:
        draws = (Draw("done"), Draw("limit"))

        def __init__(self, trajectories):
            self._walks = trajectories

        def values(self):
            return [1.0, 0.0]

        def leaves(self):
            return self._walks

    class Group:
        pass

    task = make_node("t", "task", [1])
    trajectories = [
        make_walk(task, make_node(n, tokens=ids, parent="t")) for n, ids in (("a", [2]), ("b", [3, 4]))
    ]
    group = Group()
    group.forks = (Arm(trajectories),)
    credit = credit_method("grpo", normalise="mean")
    _, kept = group_credit_of(group, credit, plan())
    _, masked = group_credit_of(group, credit, plan(overlong="mask"))
    _, soft = group_credit_of(group, credit, plan(overlong="soft", longest=2, soft=1))
    assert [float(a[-1]) for a in kept] == [0.5, -0.5]
    assert masked[0][-1] == 0.5
    assert np.isnan(masked[1][1:]).all()
    # The long answer's reward falls from 0 to -1.
    assert [float(a[-1]) for a in soft] == [1.0, -1.0]


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"updates": 0}, "updates"),
        ({"budget": 0}, "budget"),
        ({"shared": "twice"}, "shared"),
        ({"overlong": "drop"}, "overlong"),
        ({"overlong": "soft"}, "longest"),
    ],
)
def test_bad_plans(wrong, what):
    with pytest.raises(BadInput, match=what):
        plan(**wrong)


def test_no_task_is_refused():
    with Tree.memory() as tree, pytest.raises(BadInput, match="no task"):
        next(train_policy(tree, policy(), WORLD, [], plan(), LAW))
