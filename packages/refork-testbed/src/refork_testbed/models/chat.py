"""Summariser organisms as chat models, by name."""

from __future__ import annotations

from refork.policies.local import LocalPolicy
from refork.progress import Progress, silent
from refork_testbed.models.build import build
from refork_testbed.models.extractive import ExtractiveChat
from refork_testbed.worlds.house_rules.vocabulary import small_vocabulary


def summariser_chat(
    name: str = "summariser", words: int = 80, seed: int = 0, progress: Progress = silent
) -> ExtractiveChat:
    """A summariser organism, built where it is not, as the model of a compaction strategy or a framework.

    ``words`` is the budget where the prompt names none. Raises BadInput for a name that is no organism.
    """
    return ExtractiveChat(
        LocalPolicy.load(str(build(name, progress=progress))), small_vocabulary(), words, seed
    )
