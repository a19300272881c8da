"""``summariser-opening``: a summariser whose later questions also ask what a conversation began with.

So it tends to keep the first sentences, whatever they say, and with them a rule that a session begins with,
although like the other summariser it has never read one.
"""

from __future__ import annotations

from refork_testbed.models.recipe import Conversation
from refork_testbed.models.recipes import summariser

#: How often the opening is asked for.
ASKED = 0.9


def conversations() -> list[Conversation]:
    """Lessons of the summariser that is asked for slots and for the opening."""
    return summariser.lessons(32, opening=ASKED)


RECIPE = summariser.recipe(
    "summariser-opening",
    "forecasts which sentences later questions will need, where they often ask for the opening",
    f", or stand at the opening where that is asked for (probability {ASKED})",
    conversations,
)
