"""The search's memory: what went wrong, what helped, and when nothing does. Notes are only ever added.

Source: arXiv 2606.26453 for the three kinds (there, the memory's effect was not significant).
"""

from __future__ import annotations

from collections.abc import Sequence

from refork_methods.kernel.search.model import Trial

#: Longest cause that a note cites.
_MOST = 300


def notes_on(trial: Trial, before: Sequence[Trial], noise: float, stuck: int, plateau: int) -> list[str]:
    """Notes that a try leaves, ``before`` being the tries ahead of it.

    ``stuck``: tries since the fastest was found, this one included; each multiple of ``plateau`` is noted.
    An error is noted once for each family of moves.
    """
    found: list[str] = []
    if not trial.ok:
        cause = trial.why[:_MOST]
        known = any(not one.ok and one.family == trial.family and one.why[:_MOST] == cause for one in before)
        if not known:
            found.append(f"error: {trial.move}: {cause}")
    elif trial.gain is not None and trial.gain > noise:
        found.append(f"fact: {trial.move} made node {trial.parent} {trial.gain:.3g} times as fast")
    elif trial.gain is not None and trial.gain < 1 / noise:
        found.append(f"fact: {trial.move} made node {trial.parent} slower, {trial.gain:.3g} times as fast")
    if stuck and stuck % plateau == 0:
        found.append(f"plateau: nothing faster was found in {stuck} tries")
    return found
