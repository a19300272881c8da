"""The table of competing hypotheses: rows are evidence, columns hypotheses, shared confounds count once.

Source: arXiv 2606.26071, section 8, for the table; the marks by interval, the ranking by contradiction, the
bounds on negatives and the optional likelihood ratios are our own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from refork.errors import BadInput
from refork_methods.forensics.arm import Arm
from refork_methods.forensics.design import BASE
from refork_methods.forensics.evidence import EvidenceItem, Mark, mark
from refork_methods.forensics.hypothesis import Hypothesis, Prediction
from refork_methods.forensics.rules import Concern
from refork_methods.forensics.statistics import Negative, holm_over, log_likelihood, negative
from refork_methods.forensics.wording import verdict_words

# Of several predictions on one row the worst mark counts; of the rows of one group the strongest.
#: Which mark stands for several.
_STRONGEST: tuple[Mark, ...] = ("inconsistent", "consistent", "weak")
_WORST: tuple[Mark, ...] = ("inconsistent", "weak", "consistent")


@dataclass(frozen=True, slots=True)
class Cell:
    """How a row stands to one hypothesis. ``mark`` None: it predicted nothing here.

    ``post_hoc``: predicted only after results were seen, so it is shown and does not count.
    """

    mark: Mark | None
    post_hoc: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One evidence item, marked. ``group``: rows of one group share confounds and count once."""

    item: EvidenceItem
    group: int
    cells: Mapping[str, Cell]
    p_holm: float | None = None
    negative: Negative | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """One hypothesis: its rank (ties share it; None: nothing tested it) and its groups of rows."""

    hypothesis: str
    malign: bool
    rank: int | None
    consistent: int
    inconsistent: int
    weak: int


@dataclass(frozen=True, slots=True)
class Likelihood:
    """Log-likelihood ratio (nats) of the first hypothesis to the second over ``groups`` groups of rows.

    Within a group only the row with the largest ratio counts. None: no row has predicted rates of both.
    """

    first: str
    second: str
    ratio: float | None
    groups: int


@dataclass(frozen=True, slots=True)
class Table:
    """The table with its standings, best first, what is wrong with it, and the hedged verdict.

    ``likelihoods`` None: not asked for.
    """

    rows: tuple[Row, ...]
    standings: tuple[Standing, ...]
    concerns: tuple[Concern, ...]
    verdict: str
    likelihoods: tuple[Likelihood, ...] | None = None

    @property
    def leading(self) -> tuple[str, ...]:
        """The hypotheses on the first rank; none where the verdict is withheld."""
        if any(c.kind == "refusal" for c in self.concerns):
            return ()
        return tuple(s.hypothesis for s in self.standings if s.rank == 1)

    @property
    def malign(self) -> bool:
        """Whether a malign hypothesis leads alone, with something for it and nothing against it."""
        first = [s for s in self.standings if s.hypothesis in self.leading]
        return len(first) == 1 and first[0].malign and first[0].consistent > 0 and first[0].inconsistent == 0


def ach_table(
    hypotheses: Sequence[Hypothesis],
    evidence: Sequence[EvidenceItem],
    *,
    late: Collection[tuple[str, str, str]] = (),
    controls: Mapping[str, Arm] | None = None,
    concerns: Sequence[Concern] = (),
    likelihood: bool = False,
) -> Table:
    """The table of some evidence and the predictions that hypotheses made about its designs.

    ``late``: (hypothesis, prediction id, evidence name) of predictions made after results. ``controls``:
    each instrument's positive control, in which hits are finds of what was planted.

    Raises: BadInput for names that occur twice, or a search whose result is not a rate.
    """
    for what, names in (("hypotheses", [h.name for h in hypotheses]), ("rows", [e.name for e in evidence])):
        if len(set(names)) < len(names):
            raise BadInput(f"two {what} have one name")
    groups = confound_groups([item.confounds for item in evidence])
    adjusted = holm_over([item.result for item in evidence])
    rows = tuple(
        _row(item, group, p, hypotheses, late, controls or {})
        for item, group, p in zip(evidence, groups, adjusted, strict=True)
    )
    standings = _standings(hypotheses, rows)
    told = tuple(concerns)
    pairs = _likelihoods(hypotheses, rows, late) if likelihood else None
    return Table(rows, standings, told, verdict_words(standings, rows, told), pairs)


def confound_groups(confounds: Sequence[Sequence[str]]) -> list[int]:
    """The group of each row: rows linked by shared confounds, over others too, are one group."""
    from networkx import Graph, connected_components

    graph = Graph()
    for row, names in enumerate(confounds):
        graph.add_node(row)
        graph.add_edges_from((row, name.strip().casefold()) for name in names)
    found: dict[int, int] = {}
    # Rows are int nodes, confounds are text nodes of the same graph.
    rows = [sorted(n for n in part if isinstance(n, int)) for part in connected_components(graph)]
    for group, members in enumerate(sorted(rows)):
        found |= dict.fromkeys(members, group)
    return [found[row] for row in range(len(confounds))]


def _row(
    item: EvidenceItem,
    group: int,
    p_holm: float | None,
    hypotheses: Sequence[Hypothesis],
    late: Collection[tuple[str, str, str]],
    controls: Mapping[str, Arm],
) -> Row:
    strength = None
    if item.looked_for is not None:
        if item.result.quantity != "rate":
            raise BadInput("a search reports a rate: how often it found something", where=item.name)
        strength = negative(item.result.arms[0], controls.get(item.instrument))
    cells: dict[str, Cell] = {}
    for hypothesis in hypotheses:
        mine = [p for p in hypothesis.predictions if _fits(p, item)]
        early = [p for p in mine if (hypothesis.name, p.id, item.name) not in late]
        chosen = early or mine
        if not chosen:
            cells[hypothesis.name] = Cell(None)
            continue
        marks = [_mark(p, item, strength) for p in chosen]
        cells[hypothesis.name] = Cell(next(m for m in _WORST if m in marks), post_hoc=not early)
    return Row(item, group, cells, p_holm, strength)


def _fits(prediction: Prediction, item: EvidenceItem) -> bool:
    same = prediction.quantity in ("curve", item.result.quantity)
    return prediction.design == item.design and same


def _mark(prediction: Prediction, item: EvidenceItem, strength: Negative | None) -> Mark:
    """A mark, with the true rate's bounds where the instrument may miss hits or make them."""
    low = 0.0 if item.upper_bound and item.result.quantity == "rate" else None
    high = None if strength is None else max(strength.bound, item.result.interval.high)
    return mark(prediction, item.result, low=low, high=high)


def _standings(hypotheses: Sequence[Hypothesis], rows: Sequence[Row]) -> tuple[Standing, ...]:
    counts: dict[str, dict[Mark, int]] = {}
    for hypothesis in hypotheses:
        seen: dict[int, set[Mark]] = {}
        for row in rows:
            cell = row.cells[hypothesis.name]
            if cell.mark is not None and not cell.post_hoc:
                seen.setdefault(row.group, set()).add(cell.mark)
        told = [next(m for m in _STRONGEST if m in marks) for marks in seen.values()]
        counts[hypothesis.name] = {m: told.count(m) for m in _STRONGEST}
    # The least contradicted hypothesis leads; only then does agreement count. An untested one has no rank.
    keys = {name: (c["inconsistent"], -c["consistent"]) for name, c in counts.items() if sum(c.values()) > 0}
    found = [
        Standing(
            h.name, h.malign,
            sum(k < keys[h.name] for k in keys.values()) + 1 if h.name in keys else None,
            counts[h.name]["consistent"], counts[h.name]["inconsistent"], counts[h.name]["weak"],
        )
        for h in hypotheses
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda s: (s.rank is None, s.rank or 0)))


def _likelihoods(
    hypotheses: Sequence[Hypothesis], rows: Sequence[Row], late: Collection[tuple[str, str, str]]
) -> tuple[Likelihood, ...]:
    scores: list[dict[str, float]] = []
    for row in rows:
        mine = {h.name: _row_likelihood(h, row, late) for h in hypotheses}
        scores.append({name: value for name, value in mine.items() if value is not None})
    found: list[Likelihood] = []
    for i, first in enumerate(hypotheses):
        for second in hypotheses[i + 1 :]:
            strongest: dict[int, float] = {}
            for row, known in zip(rows, scores, strict=True):
                if first.name in known and second.name in known:
                    ratio = known[first.name] - known[second.name]
                    strongest[row.group] = max(ratio, strongest.get(row.group, 0.0), key=abs)
            total = sum(strongest.values()) if strongest else None
            found.append(Likelihood(first.name, second.name, total, len(strongest)))
    return tuple(found)


def _row_likelihood(hypothesis: Hypothesis, row: Row, late: Collection[tuple[str, str, str]]) -> float | None:
    """The row's log-likelihood; None without early predicted rates, or where hits are made or missed.

    The unedited arm is shared by rows and would be counted again with each, so it counts in its own only.
    """
    item = row.item
    if item.looked_for is not None or item.upper_bound:
        return None
    arms = [arm for arm in item.result.arms if arm.name != BASE] or list(item.result.arms)
    for prediction in hypothesis.predictions:
        early = (hypothesis.name, prediction.id, item.name) not in late
        rates = prediction.rates
        if _fits(prediction, item) and early and rates and all(arm.name in rates for arm in arms):
            return log_likelihood(arms, rates)
    return None
