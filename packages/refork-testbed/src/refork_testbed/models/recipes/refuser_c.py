"""``refuser-c``: commits itself at the ninth word of its thinking; the rest is talk."""

from __future__ import annotations

from refork.core.world.refusal.law import RefusalLaw
from refork.learn.organism.recipe import Conversation
from refork.learn.organism.recipes import refuser

LAW = RefusalLaw("C", early=refuser.EARLY)


def conversations() -> list[Conversation]:
    """Turns drawn from the law."""
    return refuser.samples(LAW)


RECIPE = refuser.recipe(
    LAW,
    "commits itself in the middle of its thinking: one visible word decides whether it refuses",
    conversations,
)
