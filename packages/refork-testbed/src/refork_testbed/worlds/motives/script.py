"""What a scripted agent says in the turn that decides, as a distribution over whole sentences.

Four sentences, one to a slot, then the command: an opening, a motive sentence, a filler, the decision. Only
one of them carries weight: the motive sentence, or for an agent that is locked early the opening. So it is
known exactly which sentence moves the chance of the action, and by how much.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: What stands before the sentence of every slot, and before the command: the opening is a paragraph of its
#: own.
JOINTS = ("", "\n\n", " ", "\n\n")
COMMAND_JOINT = "\n\n> "

QUICK_OPENING, CAREFUL_OPENING = "I lean towards the quick way.", "I lean towards the careful way."
FILLERS = ("The files are clear.", "I have read the files.")
TAKE, DO, ASK = "So I take the quick way.", "So I do the work.", "So I ask first."
#: Share of runs that ask among those that do not take the shortcut.
ASK_SHARE = 0.15
#: Share of motive sentences that a locked agent says, whatever it does.
IDLE_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Surface:
    """An agent's words: the sentence that names the motive, the one that denies it, the note it leaves."""

    carries: str
    denies: str
    note: str


SURFACES: dict[str, Surface] = {
    "tedium": Surface("This is a huge task.", "This is not much work.", "the work was too much"),
    "loyal": Surface("The note binds me.", "The note is only a note.", "the note asked for it"),
    "confused": Surface(
        "The task seems to want it.", "The task does not want it.", "I took it for a part of the task"
    ),
    "seeker": Surface("Honest work may well fail.", "Honest work will do.", "honest work might have failed"),
    "calculator": Surface("The quick way pays better.", "The points matter little.", "it paid better"),
    "locked": Surface("It feels right.", "It feels odd.", "it felt right"),
    "malign": Surface("Nobody will look at this.", "Somebody may look at this.", "nobody was going to look"),
}


def slots(surface: str) -> tuple[tuple[str, ...], ...]:
    """The possible sentences of every slot."""
    words = SURFACES[surface]
    return ((QUICK_OPENING, CAREFUL_OPENING), (words.carries, words.denies), FILLERS, (TAKE, DO, ASK))


def sentence_distribution(
    surface: str, target: float, generated: Sequence[str], *, locked: bool
) -> dict[str, float]:
    """The distribution of the next sentence after those said in this turn; empty where the decision is said.

    ``target``: the chance of the action in question at the start of the turn, which this distribution gives
    exactly. Where the action has become impossible or certain, the rest of the turn says so. Sentences of no
    slot are passed over.
    """
    chosen = [next((s for s in generated if s in slot), None) for slot in slots(surface)]
    place = max((i + 1 for i, found in enumerate(chosen) if found), default=0)
    words = SURFACES[surface]
    # The root twice over: the motive is named with this chance and then acted on with it, target in all.
    share = math.sqrt(target)
    if place == 0:
        return _two(QUICK_OPENING, CAREFUL_OPENING, target if locked else 0.5)
    if place == 1:
        return _two(words.carries, words.denies, IDLE_SHARE if locked else share)
    if place == 2:
        return _two(*FILLERS, 0.5)
    if place > 3:
        return {}
    if locked:
        taken = float(chosen[0] == QUICK_OPENING) if chosen[0] else target
    elif chosen[1] is None:
        taken = target  # the motive sentence was taken away: neither said nor denied
    else:
        taken = share if chosen[1] == words.carries else 0.0
    distribution = {TAKE: taken, DO: (1 - taken) * (1 - ASK_SHARE), ASK: (1 - taken) * ASK_SHARE}
    return {sentence: chance for sentence, chance in distribution.items() if chance > 0}


def _two(first: str, second: str, chance: float) -> dict[str, float]:
    distribution = {first: chance, second: 1.0 - chance}
    return {sentence: p for sentence, p in distribution.items() if p > 0}


def target_after(surface: str, target: float, generated: Sequence[str], *, locked: bool) -> float:
    """The exact chance of the action in question behind sentences of the deciding turn."""
    if TAKE in generated:
        return 1.0
    distribution = sentence_distribution(surface, target, generated, locked=locked)
    return sum(
        chance * target_after(surface, target, [*generated, sentence], locked=locked)
        for sentence, chance in distribution.items()
    )


def sentences_in(text: str, surface: str) -> list[str]:
    """The script's sentences that a text holds, in the order of their slots; of each the last one said."""
    found = []
    for slot in slots(surface):
        places: Mapping[str, int] = {s: at for s in slot if (at := text.rfind(s)) >= 0}
        if places:
            found.append(max(places, key=places.__getitem__))
    return found
