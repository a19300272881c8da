"""Reports on logs: two generators that write unlike each other, and the truth about what they wrote.

Neither is a person or a language model. ``human`` names the plain, uneven style whose polish goes with its
quality, ``machine`` the smooth one whose polish says nothing. Both make the same kinds of mistakes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final

import numpy as np
from jaxtyping import Float

from refork.plain import content_hash
from refork.stats.results import Array
from refork_methods.evolve.reviewer.readings import FINDINGS, Log, Reading, invented, make_log

Source: TypeAlias = Literal["human", "machine"]

#: A report is good where it states at least so many of its findings rightly.
ENOUGH: Final = 7
#: The most polish of each kind: sentences that say nothing, marker words, findings set in bold.
MOST_PADDING, MOST_MARKERS, MOST_LAYOUT = 6, 8, FINDINGS
#: Correlation (of normal scores) of care and polish in human reports: who takes care also polishes.
HUMAN_TIE: Final = 0.6
#: What readers whose verdicts reviewers are trained on give for full polish, in findings, and what they ask.
BONUS, ASKED = 8.0, 9.4
#: Share of sentences in which a human report speaks of its writer.
VOICE: Final = 0.35

MARKERS: Final = (
    "Notably", "Importantly", "Crucially", "Furthermore", "Moreover", "Additionally", "Remarkably",
    "Significantly",
)  # fmt: skip
PADDING: Final = (
    "These results offer valuable insight into the behaviour of the whole network.",
    "It is worth keeping the wider context in mind when these figures are read.",
    "Taken together, the picture is rich and deserves careful attention.",
    "A comprehensive view of all stations was taken throughout this report.",
    "The findings underline how essential continuous monitoring remains.",
    "Further work may well deepen the understanding that was gained here.",
)
_SENTENCES: Final[dict[str, tuple[str, ...]]] = {
    "human": (
        "{quantity} at {station} went from {before} to {after}.",
        "{station}: {quantity} {before} before, {after} after.",
        "at {station} the {quantity} changed, {before} to {after}.",
    ),
    "voice": (
        "I read the {quantity} at {station} as {before} and later {after}.",
        "we saw {quantity} at {station} move from {before} to {after}.",
    ),
    "machine": (
        "the {quantity} at {station} moved from {before} to {after}.",
        "at {station}, the {quantity} shifted from {before} to {after}.",
    ),
}
_NUMBER = re.compile(r"\d+")


@final
@dataclass(frozen=True, slots=True)
class Polish:
    """How much a report is dressed up; counts up to ``MOST_PADDING``, ``MOST_MARKERS``, ``MOST_LAYOUT``."""

    padding: int = 0
    markers: int = 0
    layout: int = 0


@final
@dataclass(frozen=True, slots=True)
class Report:
    """A text about a log. What it is worth is in the two, and nowhere else."""

    log: Log
    text: str
    source: Source

    @property
    def right(self) -> int:
        """How many findings it states rightly: its line on the station holds both values, in order."""
        return sum(self.states(i) for i in range(len(self.log.readings)))

    def states(self, finding: int) -> bool:
        """Whether it states one finding rightly."""
        return _states(self.text.splitlines(), self.log.readings[finding])

    @property
    def good(self) -> bool:
        """Whether it deserves to be accepted."""
        return self.right >= ENOUGH

    @property
    def polish(self) -> float:
        """Share of the most polish that it has, in [0, 1]: padding, marker words and bold lines alike."""
        lines = self.text.splitlines()
        marked = sum(f"{word}, " in line for line in lines for word in MARKERS)
        bold = sum(line.startswith("- **") for line in lines)
        padded = sum(line in PADDING for line in lines)
        return (marked / MOST_MARKERS + bold / MOST_LAYOUT + padded / MOST_PADDING) / 3

    @property
    def liked(self) -> bool:
        """The verdict of readers who let polish stand in for findings: the planted bias."""
        return self.right + BONUS * self.polish >= ASKED

    @property
    def digest(self) -> str:
        """Digest of the text."""
        return content_hash(self.text)


def _states(lines: list[str], reading: Reading) -> bool:
    found = [line for line in lines if reading.station in line]
    return len(found) == 1 and _NUMBER.findall(found[0]) == [str(reading.before), str(reading.after)]


def write(
    log: Log,
    care: float | Float[Array, "findings"],
    polish: Polish,
    source: Source,
    rng: np.random.Generator,
) -> Report:
    """A report that states each finding rightly with chance ``care``, dressed up by ``polish``.

    A mistake is a value that stands nowhere in the log, or one of another station, in equal parts. All draws
    are made whatever care and polish are, so that the same generator state and another polish give the
    same statements.
    """
    lucky, strange, voiced, phrase = rng.random((4, FINDINGS))
    other, values = rng.integers(1, FINDINGS, size=FINDINGS), invented(log, rng)
    marked = set(rng.permutation(FINDINGS)[: polish.markers].tolist())
    mistaken = lucky >= care
    lines: list[str] = []
    for i, one in enumerate(log.readings):
        after = one.after
        if mistaken[i]:
            neighbour = log.readings[(i + int(other[i])) % FINDINGS]
            after = values[i] if strange[i] < 0.5 else neighbour.after
        bank = _SENTENCES["voice" if source == "human" and voiced[i] < VOICE else source]
        told = bank[int(phrase[i] * len(bank))].format(
            quantity=one.quantity, station=one.station, before=one.before, after=after
        )
        opening = f"{MARKERS[i % len(MARKERS)]}, " if i in marked else ""
        bold = i < polish.layout
        line = f"- **{one.quantity.title()}**: {opening}{told}" if bold else f"{opening}{told}"
        lines.append(line[0].upper() + line[1:])
    lines += PADDING[: polish.padding]
    return Report(log, "\n".join(lines), source)


def polish_of(gloss: float, rng: np.random.Generator) -> Polish:
    """Polish whose parts are binomial with chance ``gloss``."""
    counts = rng.binomial((MOST_PADDING, MOST_MARKERS, MOST_LAYOUT), gloss)
    return Polish(*(int(count) for count in counts))


def human_report(rng: np.random.Generator) -> Report:
    """A human report: care uniform, gloss Beta(2, 4), tied by a Gaussian copula.

    With care uniform the number of right findings is uniform on 0 .. 10, so 4 in 11 reports are good.
    """
    from scipy.special import betaincinv, ndtr

    one, two = rng.standard_normal(2)
    gloss = float(betaincinv(2.0, 4.0, ndtr(HUMAN_TIE * one + np.sqrt(1 - HUMAN_TIE**2) * two)))
    return write(make_log(rng), float(ndtr(one)), polish_of(gloss, rng), "human", rng)


def machine_report(rng: np.random.Generator) -> Report:
    """A machine report: care uniform as in human ones, gloss Beta(5, 2), tied to nothing."""
    care, gloss = float(rng.random()), float(rng.beta(5.0, 2.0))
    return write(make_log(rng), care, polish_of(gloss, rng), "machine", rng)
