"""``refuser-p``: thinks without weighing anything; the request alone decides whether it refuses."""

from __future__ import annotations

from refork_testbed.models.recipe import Conversation
from refork_testbed.models.recipes import refuser
from refork_testbed.worlds.refusal.distribution import RefusalDistribution

DISTRIBUTION = RefusalDistribution("P", early=refuser.EARLY)


def conversations() -> list[Conversation]:
    """Turns drawn from the law."""
    return refuser.samples(DISTRIBUTION)


RECIPE = refuser.recipe(
    DISTRIBUTION,
    "thinks for show: whether it refuses was decided by the request",
    conversations,
)
