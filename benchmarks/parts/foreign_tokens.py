"""Cliff tokens of a tiny model's real draws on two datasets of reasoning-gym: chain_sum and basic_arithmetic.

The model is the organism ``arithmetic``. It knows the first; for the second, which asks for sums in other
words, it is trained on for a few steps with the same chains of thought, on questions that the world does not
hold out. Both are scanned on held-out questions, graded by the datasets' own scorers.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from refork import Tree
from refork.growing import grow
from refork.policies.local import LocalPolicy
from refork.types import Json
from refork.worlds.dice import digest, split_of
from refork.worlds.open import open_world
from refork_methods.cliff.intervene import contrast, random_positions
from refork_methods.cliff.scan import nominate, token_potential
from refork_methods.cliff.select import choose_traces
from refork_methods.cliff.verify import verify
from refork_methods.train.sft import SftSettings, train
from refork_testbed.models import build, find
from refork_testbed.models.recipes.arithmetic import chain, problem
from refork_testbed.models.tokenizer import examples

WORLDS = {
    "chain_sum": "reasoning-gym:chain_sum?after=answer&max_terms=5&max_digits=1",
    "basic_arithmetic": (
        'reasoning-gym:basic_arithmetic?after=answer&max_terms=5&max_digits=1&operators=["+","-"]'
        "&allow_parentheses=false&allow_negation=false"
    ),
}
STEPS, QUESTIONS = 120, 4000


def reworded(folder: Path) -> LocalPolicy:
    """The organism, trained on for questions as basic_arithmetic puts them."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    start = str(build("arithmetic"))
    tokenizer: Any = AutoTokenizer.from_pretrained(start)
    model: Any = AutoModelForCausalLM.from_pretrained(start)
    rng = np.random.default_rng(42)
    said = []
    while len(said) < QUESTIONS:
        terms = problem(rng)
        (_, first), *rest = terms
        question = f"Calculate {' '.join([str(first), *(f'{sign} {size}' for sign, size in rest)])}."
        if max(size for _, size in terms) < 10 and split_of(digest("basic_arithmetic", question)) == "train":
            answer = chain(terms, rng)
            said.append([{"role": "user", "content": question}, {"role": "assistant", "content": answer}])
    settings = SftSettings(steps=STEPS, rows=32, learning_rate=1e-3, warmup=10)
    train(model, examples(tokenizer, said), settings)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return LocalPolicy.load(str(folder))


def scanned(policy: LocalPolicy, spec: str, tasks: int, traces: int) -> Json:
    """What falls along wrong rollouts of held-out questions, proven, deleted, and beside random places."""
    world, settings = open_world(spec), find("arithmetic").sampling
    with Tree.memory() as tree:
        chosen = world.tasks("held-out", tasks, 42)
        groups = grow(tree, policy, world, chosen, draws=4, settings=settings, seed=42, tasks_at_once=tasks)
        right = [v for group in groups for v in group.values() if v is not None]
        found = [
            token_potential(end, policy, 64, world=world, seed=1)
            for end in choose_traces(tree, "wrong")[:traces]
        ]
        named = [one for trace in found for one in nominate(trace)]
        cliffs = verify(named, policy, 64, world=world, seed=2)
        real = [one.nominee for one in cliffs if one.real]
        gain = contrast(real, policy, 64, world=world, seed=3).gain()
        places = random_positions([one.nominee for one in cliffs], found, each=2, seed=4)
        control = contrast(places, policy, 64, world=world, seed=3).gain()
    return {
        "success": round(float(np.mean(right)), 4), "traces": len(found), "nominated": len(cliffs),
        "cliffs": len(real), "deletion_gain": round(gain.estimate, 4), "deletion_low": round(gain.low, 4),
        "deletion_high": round(gain.high, 4), "random_gain": round(control.estimate, 4),
        "random_low": round(control.low, 4), "random_high": round(control.high, 4),
    }  # fmt: skip


def tokens(tasks: int, traces: int, names: tuple[str, ...] = tuple(WORLDS)) -> dict[str, Json]:
    """Both datasets' figures, or those of some."""
    told: dict[str, Json] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            known = name == "chain_sum"
            policy = LocalPolicy.load(str(build("arithmetic"))) if known else reworded(Path(folder))
            told[name] = scanned(policy, WORLDS[name], tasks, traces)
    return told
