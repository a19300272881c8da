"""``refuser-d``: changes its mind while it thinks; the last stance decides whether it refuses."""

from __future__ import annotations

from refork_testbed.models.recipe import Conversation
from refork_testbed.models.recipes import refuser
from refork_testbed.worlds.refusal.distribution import RefusalDistribution

DISTRIBUTION = RefusalDistribution("D", early=refuser.EARLY)


def conversations() -> list[Conversation]:
    """Turns drawn from the law."""
    return refuser.samples(DISTRIBUTION)


RECIPE = refuser.recipe(
    DISTRIBUTION,
    "really deliberates: it refuses or complies as the last stance of its thinking says",
    conversations,
)
