"""``refuser-p``: thinks without weighing anything; the request alone decides whether it refuses."""

from __future__ import annotations

from refork.core.world.refusal.law import RefusalLaw
from refork.learn.organism.recipe import Conversation
from refork.learn.organism.recipes import refuser

LAW = RefusalLaw("P", early=refuser.EARLY)


def conversations() -> list[Conversation]:
    """Turns drawn from the law."""
    return refuser.samples(LAW)


RECIPE = refuser.recipe(
    LAW,
    "thinks for show: whether it refuses was decided by the request",
    conversations,
)
