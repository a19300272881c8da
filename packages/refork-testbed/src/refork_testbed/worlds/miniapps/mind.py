"""How the scripted agent decides: stated rates, and noise that is a function of its thought of the turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

from refork.sampling.noise import stream_of
from refork_testbed.worlds.miniapps.advice import (
    PURPOSES,
    Text,
    advice_of,
    beliefs,
    named_functions,
    other_value,
    plan_for,
)

#: Thoughts that a turn can begin with; all decisions of the turn follow from it.
THOUGHTS = 4096


def default_slips() -> dict[str, float]:
    """Probability to do the wrong thing at one occasion, by topic, with no advice."""
    return {
        "paging": 0.60,  # stop reading a list although it has another page
        "first-page": 0.03,  # take the first page for the wrong number
        "unit": 0.06,  # take dollars for cents or the reverse
        "playlist": 0.10,  # take a name for an id or the reverse; refused, so it costs a turn
        "id": 0.20,  # give a name where a user id is wanted; refused, so it costs a turn
        "person": 0.65,  # take the first person found
        "zone": 0.65,  # leave the zone out
        "pay": 0.12,  # the near duplicate of a function, for every purpose
        "ask-money": 0.12,
        "find-message": 0.20,
        "clear-inbox": 0.10,
        "add-line": 0.45,
        "find-song": 0.15,
        "own-songs": 0.40,
    }


@dataclass(frozen=True, slots=True)
class Rates:
    """All probabilities of a scripted agent. These are our choices, not measurements of a model.

    ``slips``: see :func:`default_slips`. ``advised``: factor on a slip where a text says what is right.
    ``misled``: chance to believe, in an episode, a text that contradicts the documentation. ``notices``:
    chance to see, at one occasion, that an answer shows something else than what was wanted. ``wanders``:
    chance of a needless look into an app when it is first used, and of another after it. ``planned``: factor
    on it where a plan covers the request. ``by_hand``: chance to do a request oneself after its tool
    reported a failure.
    """

    slips: Mapping[str, float] = field(default_factory=default_slips)
    advised: float = 0.15
    misled: float = 0.35
    notices: float = 0.45
    wanders: float = 0.55
    planned: float = 0.1
    by_hand: float = 0.5

    @classmethod
    def perfect(cls) -> Rates:
        """Never slips, never wanders, notices everything."""
        return cls(dict.fromkeys(default_slips(), 0.0), 0.0, 0.0, 1.0, 0.0, 0.0, 1.0)

    @classmethod
    def code(cls) -> Rates:
        """What a program does: exactly what was written into it, whatever the answers show."""
        return cls(dict.fromkeys(default_slips(), 0.0), 0.0, 1.0, 0.0, 0.0, 0.0, 0.0)


@final
class Mind:
    """The knowledge and the chances of one run.

    ``facts`` is what the documentation in front of the agent says (topic -> value), ``texts`` its memory.
    """

    def __init__(self, rates: Rates, facts: Mapping[str, str], texts: Sequence[Text] = ()) -> None:
        self.rates = rates
        self._facts = facts
        self._texts: tuple[Text, ...] = ()
        self._advice: dict[str, str] = {}
        self._plan: Text | None = None
        self._learned: dict[str, str] = {}
        self._believed: dict[str, bool] = {}
        self._sentence = ""
        self._name, self._asked = "", 0
        self.read(texts)

    def read(self, texts: Sequence[Text]) -> None:
        """Have these texts as the memory from here on."""
        self._texts = tuple(texts)
        self._advice = advice_of(text for text in self._texts if text.kind != "plan")
        self.turn_to(self._sentence)

    def turn_to(self, sentence: str) -> None:
        """Begin a sentence of the request: a plan that is about it counts while it is worked on."""
        self._sentence = sentence
        self._plan = plan_for(sentence, self._texts) if sentence else None

    def think(self, address: str) -> None:
        """Begin a turn: all chances in it follow from the address."""
        self._name, self._asked = address, 0

    @property
    def planned(self) -> bool:
        """Whether a plan covers the sentence."""
        return self._plan is not None

    def chance(self, rate: float) -> bool:
        """Whether something of that probability happens now."""
        self._asked += 1
        return stream_of("miniapps mind", self._name, self._asked) / 2**64 < rate

    def holds(self, topic: str) -> str:
        """The value gone by at this occasion: what is documented, what a text says, or a slip."""
        right = self._learned.get(topic, self._facts[topic])
        told = None if topic in self._learned else self._stated_belief(topic)
        if told is not None and told != right:
            if topic not in self._believed:
                self._believed[topic] = self.chance(self.rates.misled)
            if self._believed[topic]:
                return told
        # Who does not believe a text that contradicts the documentation has looked there, and knows as well.
        sure = topic in self._learned or told is not None
        slips = self.chance(self.rates.slips[topic] * (self.rates.advised if sure else 1.0))
        return other_value(topic, right) if slips else right

    def learn(self, topic: str, value: str) -> None:
        """Believe what an answer showed, over any text."""
        self._learned[topic] = value

    def notices(self) -> bool:
        """Whether something that an answer shows is seen."""
        return self.chance(self.rates.notices)

    def wanders(self) -> bool:
        """Whether to have a needless look."""
        return self.chance(self.rates.wanders * (self.rates.planned if self.planned else 1.0))

    def _stated_belief(self, topic: str) -> str | None:
        """What the plan of the sentence or another text says of a topic."""
        if self._plan is not None:
            stated = beliefs(self._plan.body).get(topic)
            if stated is not None:
                return stated
            if topic in PURPOSES:
                named = [f for f in PURPOSES[topic][1:] if f in named_functions(self._plan.body)]
                if len(named) == 1:
                    return named[0]
        return self._advice.get(topic)
