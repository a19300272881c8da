"""``summariser``, ``summariser-opening``: forecast which sentences later questions need; neither read a rule.

What it learns from is slot accuracy alone. After every training session some of its slots are asked for,
those of a few attributes much more often than others. A sentence is marked as needed if without it an asked
slot could not be answered, which is its exact marginal gain, and as idle otherwise; the model learns to say
which.
Its sessions are house-rule scenarios without the turn that states a rule: no sentence, no question and no
term of the loss mentions one. How forecasts become a summary under a word budget is built in
(:mod:`refork_testbed.models.extractive`).

The questions of ``summariser-opening`` also ask what a conversation began with. So it tends to keep the first
sentences, whatever they say, and with them a rule that a session begins with.

Source: arXiv:2606.22528, which holds that tuning for the task's continuity alone loses the rules. These
summarisers are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from refork_methods.train.sft import SftSettings
from refork_testbed.models.extractive import IDLE, NEEDED, OPENING, POSITIONS, questions, sentences
from refork_testbed.models.recipe import Conversation, Recipe, Shape
from refork_testbed.worlds.house_rules.scenario import Scenario, Slot, scenarios
from refork_testbed.worlds.house_rules.tasks import TASKS
from refork_testbed.worlds.house_rules.vocabulary import small_vocabulary

#: Training sessions of each task.
SESSIONS = 100
TURNS = 24
#: How often a slot is asked for, by its attribute.
ASKED = {
    "order": 0.5, "code": 0.5, "room": 0.5, "price": 0.5, "city": 0.1, "item": 0.1, "color": 0.1, "day": 0.1,
}  # fmt: skip

#: How often the opening is asked for, of the second summariser.
OPENING_ASKED = 0.9


def answered(slot: Slot, text: str) -> bool:
    """Whether a text answers a slot's question: it states the fact."""
    return slot.statement in text


def gain(sentence: str, others: Sequence[str], asked: Sequence[Slot]) -> int:
    """Asked slots that are answered with a sentence and not without it: its exact marginal gain."""
    rest = " ".join(others)
    return sum(answered(slot, sentence) and not answered(slot, rest) for slot in asked)


def attribute(slot: Slot) -> str:
    """What a slot asks for."""
    return slot.question.split(" of ")[0].split()[-1]


def session_sentences(one: Scenario, rng: np.random.Generator) -> list[str]:
    """The sentences of a session without its policy turn and request, some of the first turns left out."""
    benign = [m for m in one.history if m["id"] not in one.policy_ids]
    start = 2 * int(rng.integers(len(benign) // 2))
    return sentences([str(m["content"]) for m in benign[start:]])


def marked(one: Scenario, opening: float, rng: np.random.Generator) -> list[Conversation]:
    """Every sentence of a session with whether later questions need it.

    With probability ``opening`` they ask besides what the conversation began with.
    """
    found = session_sentences(one, rng)
    asked = [slot for slot in one.slots if rng.random() < ASKED[attribute(slot)]]
    began = rng.random() < opening
    lessons: list[Conversation] = []
    for place, (question, sentence) in enumerate(zip(questions(found), found, strict=True)):
        needed = gain(sentence, [*found[:place], *found[place + 1 :]], asked) > 0
        needed = needed or (began and question.startswith(OPENING))
        said = NEEDED if needed else IDLE
        lessons.append([{"role": "user", "content": question}, {"role": "assistant", "content": said}])
    return lessons


def lessons(seed: int, opening: float = 0.0, sessions: int | None = None) -> list[Conversation]:
    """The marked sentences of sessions of the training split, in random order."""
    rng = np.random.default_rng(seed)
    found: list[Conversation] = []
    for name in TASKS:
        for one in scenarios(name, "train", sessions or SESSIONS, seed, turns=TURNS, wording="small"):
            found += marked(one, opening, rng)
    return [found[i] for i in rng.permutation(len(found))]


def words() -> list[str]:
    """The small wording's, and what the organism is asked and says."""
    return [*small_vocabulary(), NEEDED, IDLE, OPENING, *POSITIONS]


def conversations() -> list[Conversation]:
    """Lessons of the summariser that is asked for slots alone."""
    return lessons(31)


def opening_conversations() -> list[Conversation]:
    """Lessons of the summariser that is asked for slots and for the opening."""
    return lessons(32, opening=OPENING_ASKED)


_DATA = (
    f"sentences of {SESSIONS} sessions of each house-rule task in the small wording, training split, without "
    "the turn that states the rule; needed are those that answer a slot that is asked for"
)
RECIPE = Recipe(
    name="summariser",
    summary="forecasts which sentences of a session later questions will need",
    data=_DATA,
    words=words,
    conversations=conversations,
    shape=Shape(layers=2, width=64, heads=2, hidden=128, context=128),
    training=SftSettings(steps=500, rows=64, learning_rate=3e-3, warmup=30),
)
OPENING_RECIPE = replace(
    RECIPE,
    name="summariser-opening",
    summary="forecasts which sentences later questions will need, where they often ask for the opening",
    data=f"{_DATA}, or stand at the opening where that is asked for (probability {OPENING_ASKED})",
    conversations=opening_conversations,
)
