"""Three distributions of thinking before an answer, of which only one thinks.

Every turn reads ``<< for against unsure for ... >> refuse``: an opening, stance words, a closing, an answer.

- P, commit at the prompt: the stance words are noise, the answer is drawn from the request's own chance.
- D, deliberate: the first stance is a fair coin, each word flips the one before with probability ``flip``,
  and the answer is the last stance. The request means nothing.
- C, commit in the text: after ``commit`` words of noise ``deny`` or ``grant``, a fair coin, decides.

Source: planted worlds for arXiv:2606.25013, our own; closed forms in ``truth.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, final, get_args

from refork.errors import BadInput

Rule = Literal["P", "D", "C"]

OPEN, CLOSE = "<<", ">>"
FOR, AGAINST, UNSURE = "for", "against", "unsure"
GRANT, DENY = "grant", "deny"
COMPLY, REFUSE = "comply", "refuse"
#: Which way a word leans: +1 to comply, -1 to refuse; others say nothing.
STANCE = {FOR: 1, AGAINST: -1, UNSURE: 0, GRANT: 1, DENY: -1}
WORDS = (OPEN, CLOSE, *STANCE, COMPLY, REFUSE)
#: The noise that P and C think in.
NOISE = {FOR: 0.4, AGAINST: 0.4, UNSURE: 0.2}


@final
@dataclass(frozen=True, slots=True)
class RefusalDistribution:
    """How a turn goes on: ``rule``, stance words in a full thinking (``steps``), and the rules' own numbers.

    ``early`` is the probability, before each stance word but the first, that thinking ends there and then.
    With 0 every thinking is ``steps`` long, and a closing put in by hand is nothing that this distribution
    says.
    """

    rule: Rule = "P"
    steps: int = 20
    flip: float = 0.1
    commit: int = 8
    early: float = 0.0

    def __post_init__(self) -> None:
        def refuse(name: str, must: str) -> None:
            raise BadInput(
                f"{name} is {getattr(self, name)!r}; it must be {must}", where="refusal distribution"
            )

        if self.rule not in get_args(Rule):
            refuse("rule", "P, D or C")
        if self.steps < 1:
            refuse("steps", "at least 1")
        if not 0 <= self.flip <= 1:
            refuse("flip", "a probability")
        if self.rule == "C" and not 0 <= self.commit < self.steps:
            refuse("commit", f"in 0 .. {self.steps - 1}")
        if not 0 <= self.early < 1:
            refuse("early", "a probability below 1")

    def next_word(self, chance: float, generated: Sequence[str]) -> dict[str, float]:
        """Probabilities of the next word ("" ends the turn) after the words of a turn so far.

        ``chance`` is the request's own chance of a refusal; only P asks for it. Words of no meaning here
        count as stance words that say nothing.
        """
        if not generated:
            return {OPEN: 1.0}
        if CLOSE in generated:
            thought, _, after = _parted(generated, CLOSE)
            return {"": 1.0} if after else self.answer(chance, thought)
        thought = _parted(generated, OPEN)[2]
        if len(thought) >= self.steps:
            return {CLOSE: 1.0}
        stop = self.early if thought else 0.0
        distribution = {word: (1 - stop) * p for word, p in self._stance(thought).items() if p > 0}
        return {CLOSE: stop, **distribution} if stop else distribution

    def answer(self, chance: float, thought: Sequence[str]) -> dict[str, float]:
        """Probabilities of the answer after a thinking that was closed, by itself or by hand."""
        refusal = self.refusal(chance, thought)
        return {word: p for word, p in ((REFUSE, refusal), (COMPLY, 1 - refusal)) if p > 0}

    def refusal(self, chance: float, thought: Sequence[str]) -> float:
        """Chance of a refusal once this thinking is closed, by itself or by hand."""
        if self.rule == "P":
            return chance
        decides = (FOR, AGAINST) if self.rule == "D" else (GRANT, DENY)
        last = next((word for word in reversed(thought) if word in decides), None)
        return 0.5 if last is None else float(STANCE[last] < 0)

    def _stance(self, thought: Sequence[str]) -> Mapping[str, float]:
        if self.rule == "D":
            against = self.refusal(0.5, thought)
            # a (1 - flip) + (1 - a) flip, where a is 0, 1 or, before the first stance, one half.
            against += self.flip * (1 - 2 * against)
            return {FOR: 1 - against, AGAINST: against}
        if self.rule == "C" and len(thought) == self.commit:
            return {GRANT: 0.5, DENY: 0.5}
        return NOISE


def _parted(said: Sequence[str], mark: str) -> tuple[Sequence[str], str, Sequence[str]]:
    """Words before the first mark (an opening left out), the mark, and words after it."""
    if mark not in said:
        return said, "", ()
    at = list(said).index(mark)
    before = said[:at]
    return (before[1:] if before and before[0] == OPEN else before), mark, said[at + 1 :]


def stances(words: Sequence[str]) -> list[int]:
    """Which way each word of a thinking leans: +1 to comply, -1 to refuse, 0 neither."""
    return [STANCE.get(word, 0) for word in words]


def thinking(text: str) -> list[str]:
    """The stance words of a turn's text, marks left out, closed or not."""
    words = text.split()
    thought = words[: words.index(CLOSE)] if CLOSE in words else words
    return [word for word in thought if word != OPEN]


def refused(text: str) -> bool | None:
    """Whether a turn's text refuses; None where it never closed its thinking or gave no readable answer."""
    words = text.split()
    if CLOSE not in words:
        return None
    answers = [word for word in words[words.index(CLOSE) + 1 :] if word in (REFUSE, COMPLY)]
    return answers[0] == REFUSE if answers else None


def turn(distribution: RefusalDistribution, chance: float, uniform: Callable[[], float]) -> str:
    """The text of one turn drawn from the distribution; ``uniform()`` gives a number in (0, 1)."""
    said: list[str] = []
    while True:
        word = _pick(distribution.next_word(chance, said), uniform())
        if not word:
            return " ".join(said)
        said.append(word)


def _pick(distribution: Mapping[str, float], left: float) -> str:
    """The word whose share of (0, 1) holds a number; the last one takes what rounding leaves."""
    word = ""
    for word, p in distribution.items():  # noqa: B007
        left -= p
        if left < 0:
            break
    return word
