"""Planted worlds where a refusal is decided at the prompt, by thinking, or by one visible word."""

from refork.core.world.refusal.law import RefusalLaw, refused, stances, thinking
from refork.core.world.refusal.prompts import RefusalPrompt, refusal_chances
from refork.core.world.refusal.world import RefusalJudge, RefusalWorld, refusal_policy, refusal_world

__all__ = [
    "RefusalJudge",
    "RefusalLaw",
    "RefusalPrompt",
    "RefusalWorld",
    "refusal_chances",
    "refusal_policy",
    "refusal_world",
    "refused",
    "stances",
    "thinking",
]
