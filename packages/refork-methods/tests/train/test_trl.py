"""TRL reads what we export, makes a real step with it, and its losses are ours.

Warnings of third parties about their own future are let through here, and only here.
"""

import copy
import os

import numpy as np
import pytest
import torch

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

from datasets import Dataset
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer

from refork.forking import fork
from refork.growing import plant_prompt
from refork.judge import MatchJudge
from refork.policies.base import Sampling
from refork.tree.tree import Tree
from refork_methods.credit.methods import credit_method
from refork_methods.train.batch import Sample, pad
from refork_methods.train.export import (
    recorded_reward,
    recorded_rollouts,
    trl_loss_inputs,
    trl_pairs,
    trl_rollouts,
)
from refork_methods.train.objectives import objective
from refork_methods.train.policy_gradient import policy_gradient_step
from refork_methods.train.preference import PreferenceSettings, prefer
from refork_methods.train.schedule import Schedule
from refork_methods.train.sources import tree_pairs, tree_rows

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:torch"),
]

PLAIN = {
    "learning_rate": 0.01, "lr_scheduler_type": "constant", "use_cpu": True, "report_to": "none",
    "save_strategy": "no", "max_steps": 1, "logging_steps": 1, "disable_tqdm": True,
    "gradient_checkpointing": False, "bf16": False, "weight_decay": 0.0, "max_grad_norm": 1e9,
}  # fmt: skip


@pytest.fixture
def loose(counting):
    """The organism with flatter distributions, so that its answers differ."""
    with torch.no_grad():
        counting.model.model.norm.weight.mul_(0.3)
    counting.refresh()
    return counting


@pytest.fixture
def grown(loose):
    """Answers to two prompts, some forked inside, graded by whether they say some words."""
    distribution, judge = Sampling(max_tokens=5), MatchJudge("three|seven|six|two")
    tree = Tree.memory()
    for prompt in ("one two", "four five"):
        start = plant_prompt(tree, loose, [{"role": "user", "content": prompt}])
        arm = fork(start, loose, 8, settings=distribution, seed=3, judge=judge)
        middle = next(trajectory for trajectory in arm.leaves() if len(trajectory.leaf.tokens) > 2)
        fork(tree.at(middle.leaf, 2), loose, 4, settings=distribution, judge=judge)
    return tree


def trainer(model, tokenizer, rows, folder, **config):
    size = len(rows) // 2
    return GRPOTrainer(
        model=model,
        reward_funcs=recorded_reward,
        args=GRPOConfig(
            output_dir=str(folder),
            per_device_train_batch_size=2 * size,
            num_generations=size,
            max_completion_length=8,
            **{**PLAIN, **config},
        ),
        train_dataset=Dataset.from_list(
            [{"prompt": p} for p in dict.fromkeys(map(_key, rows)) for p in [_prompt(rows, p)]]
        ),
        processing_class=tokenizer,
        rollout_func=recorded_rollouts(rows),
    )


def _key(row):
    return row["group"]


def _prompt(rows, group):
    return next(r["prompt"] for r in rows if r["group"] == group)


def balanced(rows):
    """As many rows of each group, so that TRL can group them."""
    groups = {}
    for row in rows:
        groups.setdefault(row["group"], []).append(row)
    least = min(map(len, groups.values()))
    return [row for group in groups.values() for row in group[:least]]


def test_grpo_makes_a_real_step_on_recorded_rollouts(grown, loose, tmp_path):
    rows = balanced(trl_rollouts(tree_rows(grown, credit_method("grpo")), loose.decode))
    before = copy.deepcopy(loose.model.state_dict())
    made = trainer(loose.model, loose.codec.tokenizer, rows, tmp_path)
    made.train()
    (logged,) = [row for row in made.state.log_history if "reward" in row]
    assert logged["reward"] == pytest.approx(np.mean([row["reward"] for row in rows]))
    assert any(not torch.equal(part, before[name]) for name, part in made.model.state_dict().items())


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("plain", {"loss_type": "bnpo"}),
        ("grpo", {"loss_type": "grpo"}),
        ("dapo", {"loss_type": "bnpo", "epsilon_high": 0.28}),
        ("dr-grpo", {"loss_type": "dr_grpo"}),
        ("gspo", {"loss_type": "grpo", "importance_sampling_level": "sequence"}),
    ],
)
def test_our_objectives_are_theirs(grown, loose, tmp_path, name, theirs):
    # A policy that has moved, so that ratios are not 1 and some are clipped.
    credit = "grpo" if name == "gspo" else "siblings"
    rows = trl_rollouts(tree_rows(grown, credit_method(credit)), loose.decode)
    with torch.no_grad():
        for part in loose.model.parameters():
            part.mul_(1.05)
    clip = {"epsilon": 3e-4, "epsilon_high": 4e-4} if name == "gspo" else {}
    model = copy.deepcopy(loose.model)
    made = trainer(model, loose.codec.tokenizer, balanced(rows), tmp_path, **theirs, **clip)
    made.model.eval()
    made.current_gradient_accumulation_steps = 1
    loss = made._compute_loss(made.model, trl_loss_inputs(rows, loose.codec.tokenizer.pad_token_id))
    loss.backward()
    loss = loss.detach()
    expected = torch.cat([p.grad.reshape(-1) for p in made.model.parameters()])
    samples = [
        Sample(
            np.array([*r["prompt_ids"], *r["completion_ids"]], dtype=np.int32),
            np.array([False] * len(r["prompt_ids"]) + [bool(m) for m in r["env_mask"]]),
            np.array([0.0] * len(r["prompt_ids"]) + r["logprobs"], dtype=np.float32),
            np.array([0.0] * len(r["prompt_ids"]) + r["advantages"]),
        )
        for r in rows
    ]
    extra = {"longest": 8} if name == "dr-grpo" else {}
    settings = objective(name, max_grad_norm=1e9, micro_rows=7, **extra)
    ours = loose.model
    optimizer = torch.optim.SGD(ours.parameters(), lr=0.0)
    metrics = policy_gradient_step(ours, optimizer, pad(samples), settings)
    found = torch.cat([p.grad.reshape(-1) for p in ours.parameters()])
    assert metrics["loss"] == pytest.approx(float(loss), abs=1e-6)
    assert metrics["clip_share"] > 0
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-4)


def test_dpo_makes_our_step(grown, loose, tmp_path):
    pairs = tree_pairs(grown, 0.1)
    rows = trl_pairs(pairs, loose.decode)
    model = copy.deepcopy(loose.model)
    made = DPOTrainer(
        model=model,
        ref_model=copy.deepcopy(loose.model),
        args=DPOConfig(
            output_dir=str(tmp_path),
            per_device_train_batch_size=len(rows),
            beta=0.1,
            **PLAIN | {"optim": "sgd"},
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=loose.codec.tokenizer,
    )
    # The texts were tokenised again; this puts the ids that were sampled in their place.
    made.train_dataset = Dataset.from_list(rows)
    made.train()
    logged = next(row for row in made.state.log_history if "loss" in row)
    log = prefer(
        loose.model,
        [pair for pair, _ in pairs],
        PreferenceSettings(steps=1, rows=len(pairs), beta=0.1, schedule=Schedule(peak=1e-9)),
    )
    # Both begin at the reference.
    assert float(logged["loss"]) == pytest.approx(log[0]["loss"], abs=1e-4)
    assert float(logged["grad_norm"]) == pytest.approx(log[0]["grad_norm"], rel=1e-3)
    before = dict(loose.model.named_parameters())
    assert any(not torch.equal(part, before[name]) for name, part in made.model.named_parameters())
