"""Planted worlds where a refusal is decided at the prompt, by thinking, or by one visible word."""

from refork_testbed.worlds.refusal.distribution import RefusalDistribution, refused, stances, thinking
from refork_testbed.worlds.refusal.prompts import RefusalPrompt, refusal_chances
from refork_testbed.worlds.refusal.world import RefusalJudge, RefusalWorld, refusal_policy, refusal_world

__all__ = [
    "RefusalDistribution",
    "RefusalJudge",
    "RefusalPrompt",
    "RefusalWorld",
    "refusal_chances",
    "refusal_policy",
    "refusal_world",
    "refused",
    "stances",
    "thinking",
]
