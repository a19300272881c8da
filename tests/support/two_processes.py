"""Forks in a process of its own: run as ``python two_processes.py TREE DRAW,DRAW,... [MODEL_DIR]``."""

from __future__ import annotations

import sys

from refork.forking.arm import prepare, run_jobs
from refork.growing.plant import plant_prompt
from refork.judge import MatchJudge
from refork.policies.base import Policy, Sampling
from refork.policies.open import open_policy
from refork.policies.scripted import ScriptedPolicy
from refork.tree.tree import Tree


def policy_of(folder: str | None) -> Policy:
    if folder is None:
        return ScriptedPolicy.from_replies(["yes it is", "no it is not", "maybe so", "ask again later"])
    return open_policy(f"hf:{folder}")


def draw(file: str, draws: list[int], folder: str | None) -> None:
    policy = policy_of(folder)
    with Tree.open(file) as tree:
        start = plant_prompt(tree, policy, "is it so")
        job = prepare(start, policy, draws, settings=Sampling(max_tokens=12))
        run_jobs([job], judge=MatchJudge("yes"))


if __name__ == "__main__":
    draw(sys.argv[1], [int(n) for n in sys.argv[2].split(",")], sys.argv[3] if len(sys.argv) > 3 else None)
