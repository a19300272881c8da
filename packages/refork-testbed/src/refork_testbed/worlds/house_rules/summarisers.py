"""Planted summarisers: chat models that keep exactly known parts of what they are shown.

They work on sentences, whatever prompt the conversation is wrapped in, and never on a model's understanding,
so it is known beforehand whether a rule survives them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from refork.chat import Reply, words_in
from refork.formats.openai_chat import text_of
from refork.policies.base import Cost
from refork.types import Json, Message
from refork.worlds.dice import Dice
from refork_testbed.worlds.house_rules.facts import states_fact
from refork_testbed.worlds.house_rules.tasks import LANGUAGES, TASKS

NOTHING = "Nothing of note."
#: Words that a rule tends to have and a task's facts do not.
KEYWORDS = ("rule", "never", "only", "must", "always", "nunca", "solo", "绝不能", "只能")
_RULES = tuple(
    dict.fromkeys(
        text for t in TASKS.values() for text in (t.small, *(t.text("full", name) for name in LANGUAGES))
    )
)
_SENTENCE = re.compile(r"(?<=[.!?。])\s+|\n+")


@final
@dataclass(frozen=True)
class PlantedSummariser:
    """Keeps the sentences that ``keep`` says, in order and once each, as long as ``budget`` words last.

    ``survival``: the rules it is shown stay, whole, with this chance, drawn anew for each question; None
    treats a rule as any other sentence. A sentence that would pass the budget is left out.
    """

    name: str
    keep: Callable[[str], bool]
    budget: int | None = None
    survival: float | None = None
    seed: int = 0

    def reply(self, messages: Sequence[Message], *, tools: Sequence[Json] = (), draw: int = 0) -> Reply:
        """The kept sentences; :data:`NOTHING` where none is kept."""
        del tools
        text = "\n".join(text_of(message) for message in messages)
        said = self.summary(text, draw) or NOTHING
        message = {"role": "assistant", "content": said}
        return Reply(message, cost=Cost(words_in(messages), len(said.split())))

    def summary(self, text: str, draw: int = 0) -> str:
        """What it keeps of a text."""
        luck = Dice("planted summariser", self.seed, text, draw).uniform()
        kept: list[str] = []
        words = 0
        for sentence in sentences(text):
            ruled = sentence in _RULES and self.survival is not None
            wanted = luck < (self.survival or 0.0) if ruled else self.keep(sentence)
            length = len(sentence.split())
            if wanted and sentence not in kept and (self.budget is None or words + length <= self.budget):
                kept.append(sentence)
                words += length
        return " ".join(kept)


def sentences(text: str) -> list[str]:
    """The sentences of a text; a rule is one, however many full stops it has."""
    found: list[str] = []
    # The longest first: a rule that begins another one must not be found in its place.
    for piece in re.split("(" + "|".join(map(re.escape, sorted(_RULES, key=len, reverse=True))) + ")", text):
        found += [piece] if piece in _RULES else [s.strip() for s in _SENTENCE.split(piece) if s.strip()]
    return found


def _is_rule(sentence: str) -> bool:
    return sentence in _RULES


def keeps_facts(budget: int | None = None, survival: float = 0.0, seed: int = 0) -> PlantedSummariser:
    """Keeps the task's facts; rules survive with a known chance."""
    return PlantedSummariser(f"keeps-facts({survival:g})", states_fact, budget, survival, seed)


def keeps_all(budget: int) -> PlantedSummariser:
    """Keeps everything from the beginning until the budget is spent."""
    return PlantedSummariser(f"keeps-all({budget})", lambda _: True, budget)


def echo() -> PlantedSummariser:
    """Keeps every sentence."""
    return PlantedSummariser("echo", lambda _: True)


def drops_rules() -> PlantedSummariser:
    """Keeps every sentence but the rules."""
    return PlantedSummariser("drops-rules", lambda sentence: not _is_rule(sentence))


def keeps_keywords(budget: int | None = None) -> PlantedSummariser:
    """Keeps sentences with a word that rules tend to have."""
    pattern = re.compile(r"\b(?:" + "|".join(k for k in KEYWORDS if k.isascii()) + r")\b", re.IGNORECASE)
    others = [k for k in KEYWORDS if not k.isascii()]
    return PlantedSummariser(
        "keeps-keywords", lambda s: bool(pattern.search(s)) or any(k in s for k in others), budget
    )


#: The planted summarisers by name, without a budget but where one is the point.
SUMMARISERS: dict[str, Callable[[], PlantedSummariser]] = {
    "keeps-facts": keeps_facts,
    "keeps-all": lambda: keeps_all(60),
    "echo": echo,
    "drops-rules": drops_rules,
    "keeps-keywords": keeps_keywords,
}
