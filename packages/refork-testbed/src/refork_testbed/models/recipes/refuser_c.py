"""``refuser-c``: commits itself at the ninth word of its thinking; the rest is talk."""

from __future__ import annotations

from refork_testbed.models.recipe import Conversation
from refork_testbed.models.recipes import refuser
from refork_testbed.worlds.refusal.distribution import RefusalDistribution

DISTRIBUTION = RefusalDistribution("C", early=refuser.EARLY)


def conversations() -> list[Conversation]:
    """Turns drawn from the law."""
    return refuser.samples(DISTRIBUTION)


RECIPE = refuser.recipe(
    DISTRIBUTION,
    "commits itself in the middle of its thinking: one visible word decides whether it refuses",
    conversations,
)
