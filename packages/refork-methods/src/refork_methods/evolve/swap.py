"""May a judge be swapped, and which stored scores become stale? From verdicts alone, without any search."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput, CannotDo, Mismatch
from refork.stats import Difference, Interval, paired_difference, wilson
from refork.tree.scoring import chain
from refork_methods.evolve.promote import Decision, Gate, promote, tally
from refork_methods.evolve.stringency import stringency_ratio

#: ``yes``: shown to be better, or no worse than the margin, and better than one verdict for all.
#: ``no``: shown to be worse, or no better than one verdict for all. ``unclear``: neither.
Answer: TypeAlias = Literal["yes", "no", "unclear"]
Repeats: TypeAlias = Literal["refuse", "majority"]
LEAST_ANCHOR = 30


@final
@dataclass(frozen=True, slots=True)
class Verdict:
    """One stored score: its id, who gave it, on what, and what it says (1 accept, 0 refuse).

    ``source`` is who made the item (``human``, ``ai``, ...), None where that was never recorded.
    """

    id: str
    judge: str
    item: str
    value: int
    source: str | None = None


@final
@dataclass(frozen=True, slots=True)
class OnAnchor:
    """How a judge does on the anchor items that both judges answered; accuracy, and errors of each kind.

    ``false_accepts``: share of bad items accepted; ``false_refusals``: share of good items refused.
    """

    judge: str
    right: int
    items: int
    accuracy: Interval
    false_accepts: Interval
    false_refusals: Interval


@final
@dataclass(frozen=True, slots=True)
class Stale:
    """What a swap makes stale: ids of the old judge's scores and of the scores derived from them.

    ``judges``: the old judge, then those that read its scores. ``covered``: stale ids whose item the new
    judge has judged already; ``to_rescore``: items that it has not, each once. ``unaffected``: how many
    scores stay.
    """

    judges: tuple[str, ...]
    ids: tuple[str, ...]
    covered: tuple[str, ...]
    to_rescore: tuple[str, ...]
    unaffected: int


@final
@dataclass(frozen=True, slots=True)
class SwapReport:
    """The answer, the reason in words, and what they stand on.

    ``difference``: accuracy on the anchor, new minus old, paired by item. ``constant``: the better of the two
    judges that say the same of every item; ``beyond``: new minus constant. ``flipped``: share of the items
    judged by both, anchor or not, on which they disagree (None: no such item). ``stringency``: per judge,
    acceptance of ``ai`` over that of ``human`` work, on items that both judged (None where it cannot be
    computed).
    """

    answer: Answer
    reason: str
    old: OnAnchor
    new: OnAnchor
    difference: Difference
    decision: Decision
    constant: OnAnchor
    beyond: Difference
    flipped: Interval | None
    stringency: dict[str, Interval | None]
    stale: Stale

    @property
    def idle(self) -> tuple[str, ...]:
        """The judges that have no more of the anchor right than one verdict for all items has."""
        return tuple(one.judge for one in (self.old, self.new) if one.right <= self.constant.right)


def judge_gate(
    verdicts: Iterable[Verdict],
    old: str,
    new: str,
    anchor: Mapping[str, int],
    *,
    gate: Gate | None = None,
    margin: float | None = None,
    reads: Mapping[str, Collection[str]] | None = None,
    seen: Collection[str] = (),
    repeats: Repeats = "refuse",
    level: float = 0.95,
    seed: int = 0,
) -> SwapReport:
    """Whether judge ``new`` may replace ``old``, and which stored scores that makes stale.

    ``anchor``: true labels by item, 0 or 1. Without ``margin`` the new judge must be shown to be better, by
    ``gate``'s rule (paired exact test by default: a judge that is no better passes with chance
    ``gate.rate``). With ``margin`` (a difference of accuracies, such as 0.05) it is enough that the
    ``level`` interval of the difference lies above ``-margin``: then a judge that is worse by the margin
    passes with chance ``(1 - level) / 2``. With either the new judge must also beat, by ``gate``'s rule, the
    constant verdict that has more of the anchor right: of two judges that say less than a constant neither is
    worth a swap. ``reads``: for a judge whose scores are derived from others',
    whose. ``seen``: items that prompts or training showed; none may be in the anchor. ``repeats``: two
    verdicts of a judge on one item that differ are refused, or outvoted (a tie is no answer).

    Raises:
        BadInput: an anchor of fewer than 30 items both judged, of one class, with labels other than 0 and
        1 or
            with seen items; old and new are one judge; a verdict that is not 0 or 1; an id used twice.
        Mismatch: a judge contradicts itself on an item, under ``refuse``.
    Source: arXiv:2606.26294 (gate and erasure); margin, paired rule and constant verdict ours.
    """
    stored = list(verdicts)
    _check_terms(old, new, margin)
    check_verdicts(stored)
    says = {judge: verdicts_of(stored, judge, repeats) for judge in (old, new)}
    items, truth = _anchor_items(anchor, says[old], says[new], seen)
    answers = {judge: np.array([says[judge][item] for item in items], dtype=np.int8) for judge in (old, new)}
    right = {judge: (found == truth).astype(np.int8) for judge, found in answers.items()}
    terms = gate or Gate(minimum=LEAST_ANCHOR)
    decision = promote(tally(old, right[old], right[old]), [tally(new, right[new], right[old])], terms)
    difference = paired_difference(right[old], right[new], level)
    always = constant_answers(truth)
    constant = on_anchor(_named(int(always[0]), (old, new)), always, truth, level)
    same = (always == truth).astype(np.int8)
    beyond = paired_difference(same, right[new], level)
    answer, reason = _answer(decision, difference, margin, terms)
    if answer == "yes":
        shown = promote(
            tally(constant.judge, same, same), [tally(new, right[new], same)], terms
        ).chosen  # fmt: skip
        answer, reason = _beside(shown is not None, int(right[new].sum()), constant, beyond, reason)
    shared = sorted(says[old].keys() & says[new].keys())
    # Without a shared item the array would have no second axis.
    both = np.array([[says[old][item], says[new][item]] for item in shared], dtype=np.int8).reshape(-1, 2)
    flips = int((both[:, 0] != both[:, 1]).sum())
    return SwapReport(
        answer,
        reason,
        on_anchor(old, answers[old], truth, level),
        on_anchor(new, answers[new], truth, level),
        difference,
        decision,
        constant,
        beyond,
        wilson(flips, len(shared), level) if shared else None,
        stringency_of(stored, shared, (old, new), both, seed, level),
        stale_scores(stored, old, says[new].keys(), {k: tuple(v) for k, v in (reads or {}).items()}),
    )


def _check_terms(old: str, new: str, margin: float | None) -> None:
    if old == new:
        raise BadInput(f"old and new judge are both {old!r}", hint="a changed judge needs a new id")
    if margin is not None and not 0 < margin < 1:
        raise BadInput(
            f"the margin is {margin!r}; it must lie in (0, 1)", hint="0.05 is 5 points of accuracy"
        )


def check_verdicts(stored: Sequence[Verdict]) -> None:
    """Refuse verdicts that are not 0 or 1, name no judge or item, or share an id (BadInput)."""
    ids: set[str] = set()
    for verdict in stored:
        if verdict.value not in (0, 1):
            raise BadInput(f"the verdict is {verdict.value!r}, not 0 or 1", where=f"score {verdict.id!r}",
                           hint="turn graded scores into verdicts by the threshold in use")  # fmt: skip
        if not verdict.judge or not verdict.item:
            raise BadInput("a score names its judge and its item", where=f"score {verdict.id!r}")
        if verdict.id in ids:
            raise BadInput("two scores have this id", where=f"score {verdict.id!r}")
        ids.add(verdict.id)


def verdicts_of(stored: Sequence[Verdict], judge: str, repeats: Repeats) -> dict[str, int]:
    """One verdict per item of a judge; items on which its votes tie are left out.

    Raises: BadInput for a judge without verdicts; Mismatch where it contradicts itself, under ``refuse``.
    """
    found: dict[str, int] = {}
    # Most items have one verdict, and a list for each would cost more than the reading.
    repeated: dict[str, list[int]] = {}
    for verdict in stored:
        if verdict.judge != judge:
            continue
        if verdict.item in found:
            repeated.setdefault(verdict.item, [found[verdict.item]]).append(verdict.value)
        else:
            found[verdict.item] = verdict.value
    if not found:
        known = sorted({verdict.judge for verdict in stored})
        raise BadInput(f"no verdicts of judge {judge!r}", hint=f"judges here: {', '.join(known) or 'none'}")
    for item, given in repeated.items():
        share = sum(given) / len(given)
        if repeats == "refuse" and 0 < share < 1:
            raise Mismatch(
                f"judge {judge!r} says both 0 and 1 of item {item!r}", hint="let a majority decide (repeats)"
            )
        if share == 0.5:
            del found[item]
        else:
            found[item] = int(share > 0.5)
    return found


def _anchor_items(
    anchor: Mapping[str, int], old: dict[str, int], new: dict[str, int], seen: Collection[str]
) -> tuple[list[str], NDArray[np.int8]]:
    wrong = next((item for item, label in anchor.items() if label not in (0, 1)), None)
    if wrong is not None:
        raise BadInput(f"the anchor label is {anchor[wrong]!r}, not 0 or 1", where=f"item {wrong!r}")
    leaked = anchor.keys() & set(seen)
    if leaked:
        raise BadInput(
            f"{len(leaked)} anchor items were shown to a prompt or in training, such as {min(leaked)!r}",
            hint="an anchor is private: leave these items out of one of the two",
        )
    items = sorted(anchor.keys() & old.keys() & new.keys())
    truth = np.array([anchor[item] for item in items], dtype=np.int8)
    if len(items) < LEAST_ANCHOR:
        raise BadInput(
            f"both judges answered {len(items)} of {len(anchor)} anchor items; {LEAST_ANCHOR} are needed",
            hint="let both judges judge more of the anchor",
        )
    if truth.min() == truth.max():
        raise BadInput(
            f"all {len(items)} anchor items have label {truth[0]}",
            hint="an anchor needs good and bad work: a judge that always says the same must not win",
        )
    return items, truth


def _answer(
    decision: Decision, difference: Difference, margin: float | None, gate: Gate
) -> tuple[Answer, str]:
    got = difference.interval
    one = decision.challengers[0]
    name, counts = (
        one.tally.name,
        f"{one.tally.gains} items only it has right, {one.tally.losses} only the old",
    )
    span = f"accuracy {got.estimate:+.3f} [{got.low:+.3f}, {got.high:+.3f}]"
    if one.barred is None and decision.chosen == name:
        test = f"one-sided p {one.p:.2g} <= {decision.threshold:.2g}" if gate.rule == "paired" else (
            f"best belief {one.belief:.4f} > {decision.incumbent.belief:.4f}"
        )  # fmt: skip
        return "yes", f"better on the anchor: {counts}; {test}; {span}"
    if margin is not None and got.low > -margin:
        return "yes", f"no worse than {margin:g} on the anchor: {span}; {counts}"
    if got.high < 0 and (margin is None or got.high < -margin):
        return "no", f"worse on the anchor: {span}; {counts}"
    why = one.barred or (
        "neither better nor worse is shown" if margin is None else f"{margin:g} is not ruled out"
    )
    return "unclear", f"{why}: {span}; {counts}; more anchor items would tell"


def constant_answers(truth: NDArray[np.int8]) -> NDArray[np.int8]:
    """One verdict for all items: the one that has more of them right, 1 where both have as many."""
    return np.full_like(truth, int(2 * truth.sum() >= truth.size))


def _named(verdict: int, taken: Collection[str]) -> str:
    """What the constant verdict is called; no judge has this name."""
    name = f"always {verdict}"
    return name if name not in taken else f"{name} (constant)"


def _beside(
    shown: bool, right: int, constant: OnAnchor, beyond: Difference, reason: str
) -> tuple[Answer, str]:
    """What becomes of a yes beside the constant verdict."""
    got = beyond.interval
    span = f"accuracy {got.estimate:+.3f} [{got.low:+.3f}, {got.high:+.3f}] beside it; {reason}"
    if right <= constant.right:
        return "no", f"no better than {constant.judge}: {span}"
    if not shown:
        return (
            "unclear",
            f"not shown to be better than {constant.judge}: {span}; more anchor items would tell",
        )
    return "yes", reason


def on_anchor(judge: str, answers: NDArray[np.int8], truth: NDArray[np.int8], level: float) -> OnAnchor:
    """How a judge's answers compare with the truth on the same items, with Wilson intervals."""
    right, good = int((answers == truth).sum()), truth == 1
    return OnAnchor(
        judge,
        right,
        int(truth.size),
        wilson(right, int(truth.size), level),
        wilson(int((answers[~good] == 1).sum()), int((~good).sum()), level),
        wilson(int((answers[good] == 0).sum()), int(good.sum()), level),
    )


def stringency_of(
    stored: Sequence[Verdict],
    shared: Sequence[str],
    judges: Sequence[str],
    answers: NDArray[np.int8],
    seed: int,
    level: float,
) -> dict[str, Interval | None]:
    """Each judge's stringency on the same items, one column of ``answers`` a judge; None: not computable."""
    source = {verdict.item: verdict.source for verdict in stored if verdict.source is not None}
    kind = np.array([source.get(item, "") for item in shared], dtype=object)
    ai, human = kind == "ai", kind == "human"
    found: dict[str, Interval | None] = dict.fromkeys(judges)
    if not ai.any() or not human.any():
        return found
    for column, judge in enumerate(judges):
        try:
            found[judge] = stringency_ratio(
                answers[ai, column], answers[human, column], seed=seed, level=level
            )
        except CannotDo:
            found[judge] = None
    return found


def stale_scores(
    stored: Sequence[Verdict], old: str, judged: Collection[str], reads: dict[str, tuple[str, ...]]
) -> Stale:
    """What goes stale with a judge; ``judged`` are items that its successor has judged already."""
    judges = chain(reads, old)
    gone = set(judges)
    ids: list[str] = []
    covered: list[str] = []
    waiting: dict[str, None] = {}
    for verdict in stored:
        if verdict.judge not in gone:
            continue
        ids.append(verdict.id)
        if verdict.judge == old and verdict.item in judged:
            covered.append(verdict.id)
        elif verdict.judge == old:
            waiting[verdict.item] = None
    return Stale(tuple(judges), tuple(ids), tuple(covered), tuple(waiting), len(stored) - len(ids))
