"""Planted worlds in which it is known where a refusal is decided: at the prompt, while thinking, or in the text."""

from ramify.core.world.refusal.law import RefusalLaw, refused, stances, thinking
from ramify.core.world.refusal.prompts import RefusalPrompt, refusal_chances
from ramify.core.world.refusal.world import RefusalJudge, RefusalWorld, refusal_policy, refusal_world

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
