"""Which answer lost a run: its chance of success step by step, and where that falls, on fresh draws, too.

The value of a run before exchange k is the chance that the program succeeds when it is given the recorded
answers up to there and asks anew from there on. An answer is blamed by what the value loses over it, never by
comparison with how the run ended. The search looks for a fall with few runs of the program; what it finds is
a guess, and is tested on draws of its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Final, Literal, TypeAlias, final

import numpy as np

from refork import stats
from refork.agents.fork import (
    Outcome,
    ProgramArm,
    ProgramChange,
    ProgramForkSettings,
    ProgramPoints,
    compare_arms,
)
from refork.agents.steps import step_words
from refork.agents.tape import ProgramRun
from refork.errors import BadChange, BadInput, CannotDo
from refork.forking.arm import Fork
from refork.forking.effect import Effect
from refork.progress import Progress, silent
from refork.tree.tree import Tree
from refork.types import Json

#: Seed of the draws on which a fall is tested; the search has seed 0.
CONFIRM: Final = 1
#: Seed of the draws on which a fall inside an answer is tested.
INSIDE: Final = 2
#: Runs with which a value is first looked at, and with which a fall is first tested.
_FIRST: Final = 2
_FEWEST: Final = 8
#: Chances of a fall between which the search draws on. A wrong turn costs runs; it makes no finding.
_SURE: Final = 0.95
_UNSURE: Final = 0.4
#: Tests that may confirm nothing, and the share of the error that is for the first of them.
_TESTS: Final = 3
_FOREMOST: Final = 0.85
Verdict: TypeAlias = Literal["answer", "chance", "always", "none", "budget"]


@final
@dataclass(frozen=True, slots=True)
class WhySettings:
    """How far a search goes.

    ``draws``: most runs of an arm. ``smallest``: the smallest fall that is looked for. ``findings``: falls
    that are looked for, the last one first; ``error`` is the chance that any is confirmed though there is
    none. ``budget``: requests to providers after which nothing more is begun, None without a limit.
    ``parts``: into how many parts a blamed answer is cut to find one without which it would not have lost; 0:
    none. ``tokens``: where in a blamed answer it was lost is looked for, if its server goes on from the
    beginning of an answer; that has an error of its own.
    """

    draws: int = 32
    smallest: float = 0.2
    findings: int = 1
    error: float = 0.05
    budget: int | None = None
    parts: int = 6
    tokens: bool = True

    def __post_init__(self) -> None:
        if self.draws < _FEWEST:
            raise BadInput(f"{self.draws} draws show nothing", where="--draws", hint=f"{_FEWEST} or more")
        if not 0 < self.smallest <= 1 or not 0 < self.error < 1 or self.findings < 1:
            raise BadInput(f"{self.smallest}, {self.error} and {self.findings} are no settings of a search")

    @property
    def looks(self) -> tuple[int, ...]:
        """Draws of an arm at which a test is looked at."""
        return tuple(sorted({max(_FEWEST, self.draws // 4), max(_FEWEST, self.draws // 2), self.draws}))

    def each(self, failed: int) -> float:
        """The error of one look of a test, after so many that confirmed nothing.

        What a confirmed fall was allowed passes on to the next, so only failures use it up: all looks of all
        tests come to ``error``.
        """
        share = _FOREMOST if not failed else (1 - _FOREMOST) / (_TESTS - 1)
        return self.error * share / len(self.looks)


@final
@dataclass(frozen=True, slots=True)
class RunValue:
    """The value of a run before an exchange: successes of draws that ask anew from there on.

    ``low`` and ``high`` hold at every look, for all values of one diagnosis together.
    """

    step: int
    successes: int
    draws: int
    low: float
    high: float

    @property
    def mean(self) -> float:
        """Share of successes."""
        return self.successes / self.draws


@final
@dataclass(frozen=True, slots=True)
class LostStep:
    """An answer that was tested: ``effect`` of drawing it anew, with the recorded answer as the control.

    ``last`` is another step where the answers of several were tested together: the control keeps all of them,
    the other arm none. ``p``: exact, one-sided, of this test alone. ``confirmed``: with all tests of the
    diagnosis counted. ``by``: the step of the program that asked, in words; empty where that was not told.
    """

    step: int
    last: int
    answer: str
    effect: Effect
    p: float
    confirmed: bool
    by: str = ""

    @property
    def where(self) -> str:
        """The step or steps, in words."""
        if self.last != self.step:
            return f"steps {self.step} to {self.last} together"
        return f"step {self.step}" + (f" ({self.by})" if self.by else "")


@final
@dataclass(frozen=True, slots=True)
class LostToken:
    """The token of a blamed answer that lost it: ``effect`` of going on without it.

    The control keeps the answer up to it and it, the other arm up to it; from there on the model goes on in
    both. ``before`` stands in the answer before the token's ``text``. ``p``: exact, one-sided.
    """

    token: int
    before: str
    text: str
    effect: Effect
    p: float
    confirmed: bool


@final
@dataclass(frozen=True, slots=True)
class Rescue:
    """A part of a blamed answer that was left out: ``effect`` of that; the control has the whole answer.

    ``p``: exact, one-sided. The part was chosen among several on other draws.
    """

    part: str
    effect: Effect
    p: float
    confirmed: bool


@final
@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why a run failed, as far as it was found.

    ``values``: along the run, the last one with every recorded answer kept. ``findings``: answers that were
    tested, confirmed ones first, of those the largest fall first. ``bounds``: (first, last, most) of the
    steps between two values: together their answers lose ``most`` at the most. ``calls`` went to providers,
    in ``runs`` runs of the program, in this call; what the tape held was not drawn again.

    ``token``: of the first confirmed answer, the token that was tested to have lost it; None where nobody
    goes on from the beginning of an answer, or no single token loses enough.
    ``rescue``: the part of the first confirmed answer without which the program succeeds most often, None
    where the answer has no parts, or none helped. ``verdict``: ``answer``, an answer lost it; ``chance``,
    with every recorded answer it still succeeds at times; ``always``, it never succeeded from the start;
    ``none``, no fall was confirmed; ``budget``, the search ended before it was done.
    """

    run: str
    steps: int
    verdict: Verdict
    values: tuple[RunValue, ...]
    findings: tuple[LostStep, ...]
    bounds: tuple[tuple[int, int, float], ...]
    settings: WhySettings
    outcome: Outcome
    calls: int = 0
    runs: int = 0
    rescue: Rescue | None = None
    token: LostToken | None = None

    @property
    def confirmed(self) -> tuple[LostStep, ...]:
        """Answers that lost the run."""
        return tuple(one for one in self.findings if one.confirmed)

    @property
    def start(self) -> RunValue | None:
        """The chance from the start, every answer drawn anew; None where it was not needed."""
        return self.values[0] if self.values and self.values[0].step == 0 else None

    @property
    def sentence(self) -> str:
        """What was found, in words."""
        live = (
            ""
            if self.start is None or self.start.draws < _FEWEST
            else f"; from the start it succeeds in {self.start.successes} of {self.start.draws} runs "
            f"({self.start.low:.0%} to {self.start.high:.0%})"
        )
        if self.confirmed:
            first = self.confirmed[0].effect
            others = ", ".join(str(one.step) for one in self.confirmed[1:])
            lost = self.confirmed[0]
            one = lost.step == lost.last
            what = ("answer", "it", "the answer") if one else ("answers", "them", "all of them")
            return (
                f"the {what[0]} at {lost.where} lost the run: with {what[1]} the program succeeds in "
                f"{first.base.rate:.0%} of runs, with {what[2]} drawn anew in {first.other.rate:.0%} "
                f"(difference {first.low:+.0%} to {first.high:+.0%}){live}"
                + (
                    f"; in it token {self.token.token} ({self.token.text!r}) did: with all before it alone "
                    f"{self.token.effect.other.rate:.0%} succeed, with it {self.token.effect.base.rate:.0%}"
                    if self.token is not None and self.token.confirmed
                    else ""
                )
                + (f"; steps {others} lose more" if others else "")
            )
        whole = self.values[-1]
        if self.verdict == "chance":
            return (
                f"it fails by chance, and no answer is shown to have lost it: with every recorded answer the "
                f"program succeeds in {whole.successes} of {whole.draws} runs all the same{live}"
            )
        if self.verdict == "always":
            return f"no answer lost it: there was little to lose{live}"
        if self.verdict == "budget":
            return f"the budget ended the search before an answer was found{live}"
        return f"no answer that loses {self.settings.smallest:.0%} or more was confirmed{live}"

    def to_json(self) -> Json:
        """Plain fields."""
        return {
            "run": self.run,
            "verdict": self.verdict,
            "sentence": self.sentence,
            "steps": self.steps,
            "values": [asdict(one) for one in self.values],
            "findings": [
                {
                    "step": one.step,
                    "last": one.last,
                    "by": one.by,
                    "answer": one.answer,
                    "p": one.p,
                    "confirmed": one.confirmed,
                }
                | {"effect": one.effect.to_json()}
                for one in self.findings
            ],
            "rescue": None
            if self.rescue is None
            else {"part": self.rescue.part, "p": self.rescue.p, "confirmed": self.rescue.confirmed}
            | {"effect": self.rescue.effect.to_json()},
            "token": None
            if self.token is None
            else {name: getattr(self.token, name) for name in ("token", "before", "text", "p", "confirmed")}
            | {"effect": self.token.effect.to_json()},
            "bounds": [{"first": a, "last": b, "most": most} for a, b, most in self.bounds],
            "settings": asdict(self.settings),
            "outcome": asdict(self.outcome),
            "calls": self.calls,
            "runs": self.runs,
        }


def why(
    tree: Tree,
    run: ProgramRun,
    *,
    outcome: Outcome | None = None,
    settings: ProgramForkSettings | None = None,
    search: WhySettings | None = None,
    progress: Progress = silent,
) -> Diagnosis:
    """Find the answers that lost a recorded run, and test each on draws of its own.

    The search goes back from the end to the last fall, with as many runs of the program as each turn needs.
    Draws stay on the tape: a search that was stopped goes on from them.

    Raises:
        BadInput: the run did not fail, or asked nothing. Whether it did by a check or a judge shows once all
            its answers were given, which asks nobody.
        CannotDo: the program does not repeat what it did up to the point, in most of its draws.
    """
    points = ProgramPoints(tree, run, outcome=outcome, settings=settings)
    grading, how = outcome or Outcome(), search or WhySettings()
    steps = len(points.events)
    if not steps:
        raise BadInput(f"run {run.id} asked no model", hint="refork agent list shows the others")
    if grading.by_ending and run.exit is not None and grading.grade(run.exit, run.output or ""):
        raise BadInput(
            f"run {run.id} succeeded (exit status {run.exit})",
            hint="say what failing is: --fails REGEX, --succeeds REGEX; or name a run that failed",
        )
    draws = _ProgramDraws(points, how, progress)
    # Arms that leave the tape at two points differ in more than answers where chance before it is recorded.
    looking = FallSearch(steps, how, draws.value, draws.test, together=run.repeatable is None)
    with points:
        done = looking.look()
        found = sorted(draws.tests, key=lambda one: (not one.confirmed, -one.effect.difference))
        confirmed = {step for one in found if one.confirmed for step in range(one.step, one.last + 1)}
        inside = bool(confirmed) and found[0].step == found[0].last
        rescue = draws.rescue(found[0]) if inside else None
        token = draws.token(found[0]) if inside and how.tokens else None
    share = how.error / max(len(looking.boundaries), 1)
    values = []
    for step in looking.boundaries:
        successes, drawn = looking.known(step)
        seen = stats.mean_sequence(np.repeat([1.0, 0.0], [successes, drawn - successes]), share)
        values.append(RunValue(step, successes, drawn, seen.low, seen.high))
    bounds = tuple(
        (one.step, other.step - 1, max(0.0, one.high - other.low))
        for one, other in pairwise(values)
        if not confirmed.issuperset(range(one.step, other.step))
    )
    verdict: Verdict = "none"
    if confirmed:
        verdict = "answer"
    elif not done:
        verdict = "budget"
    elif values[-1].successes:
        verdict = "chance"
    elif not values[0].successes:
        verdict = "always"
    return Diagnosis(
        run.id, steps, verdict, tuple(values), tuple(found), bounds, how, grading, points.calls, points.runs,
        rescue, token,
    )  # fmt: skip


@final
class _ProgramDraws:
    """What a search asks, drawn by running the program. ``tests``: those that were made."""

    def __init__(self, points: ProgramPoints, how: WhySettings, progress: Progress) -> None:
        self._points, self._how, self._progress = points, how, progress
        self._steps = len(points.events)
        self.tests: list[LostStep] = []

    def value(self, step: int, draws: int, have: int) -> tuple[int, int]:
        """Successes and draws of the program with the recorded answers before a step."""
        self._afford((draws - have) * (self._steps - step))
        last = step == self._steps
        arm = self._points.arm(step - last, keeps=last)
        (fork,) = self._points.draw({arm: draws}, self._progress)
        successes, graded = self._graded(fork, step, draws)
        if last and successes == graded and not self._points.by_ending:
            # What a check or a judge says of the recorded run itself is not on the tape.
            raise BadInput(
                f"run {self._points.run.id} did not fail by this: with its recorded answers it succeeds in "
                f"all of {graded} runs",
                hint="name a run that failed (--run); refork agent list shows them",
            )
        return successes, graded

    def _graded(self, fork: Fork, step: int, draws: int) -> tuple[int, int]:
        """Successes and draws of an arm, most of whose draws have to be some."""
        successes, graded = _counts(fork.values()[:draws])
        if graded * 2 < draws:
            failed = [draw.error for draw in fork.draws[:draws] if draw.error]
            raise CannotDo(
                f"{draws - graded} of {draws} runs of the program did not come to step {step} as the "
                f"recorded one did: {failed[0] if failed else 'they have no grade'}",
                where=f"run {self._points.run.id}",
                hint="refork agent replay names the first difference; what changes by itself (a clock, "
                "random ids, files that the first run left) must be held still",
            )
        return successes, graded

    def test(self, step: int, last: int, draws: int, error: float) -> tuple[tuple[int, int], tuple[int, int]]:
        """Keep the answers from one step to another, and draw them anew, on draws of their own."""
        points = self._points
        self._afford(draws * (2 * self._steps - step - last - 1))
        control = points.arm(last, keeps=True, seed=CONFIRM)
        changed = points.arm(step, ProgramChange("again"), keeps=True, seed=CONFIRM)
        base, other = points.draw({control: draws, changed: draws}, self._progress)
        kept, anew = (_counts(arm.values()[:draws]) for arm in (base, other))
        # One side of it is the question, so both ends of the interval have the error of a look.
        effect = compare_arms(base, other, 1 - 2 * error)
        node = points.tree.node(points.events[step].node)
        by = step_words(node.extra["exchange"])
        self.tests = [one for one in self.tests if (one.step, one.last) != (step, last)]
        p, sure = exact_p(kept, anew), is_confirmed(kept, anew, error)
        self.tests.append(LostStep(step, last, node.text, effect, p, sure, by))
        return kept, anew

    def rescue(self, lost: LostStep) -> Rescue | None:
        """The part of an answer that is best left out, tested on draws of its own; None: no part helps."""
        points, step = self._points, lost.step
        best, most = None, 0.0
        try:
            for part in parts_of(lost.answer, self._how.parts):
                self._afford(_FEWEST * (self._steps - step - 1))
                try:
                    arm = points.arm(step, ProgramChange("part", "", part), keeps=True)
                except (BadChange, CannotDo):
                    continue  # a text that the answer has in another form
                successes, graded = _counts(points.draw({arm: _FEWEST}, self._progress)[0].values()[:_FEWEST])
                if graded and successes / graded > most:
                    best, most = part, successes / graded
            if best is None:
                return None
            draws = min(max(lost.effect.draws, _FEWEST), self._how.draws)
            self._afford(2 * draws * (self._steps - step - 1))
            control = points.arm(step, keeps=True, seed=CONFIRM)
            changed = points.arm(step, ProgramChange("part", "", best), keeps=True, seed=CONFIRM)
            base, other = points.draw({control: draws, changed: draws}, self._progress)
        except _Spent:
            return None
        kept, without = (_counts(arm.values()[:draws]) for arm in (base, other))
        error = self._how.error
        return Rescue(
            best,
            compare_arms(base, other, 1 - 2 * error),
            exact_p(kept, without),
            is_confirmed(kept, without, error),
        )

    def token(self, lost: LostStep) -> LostToken | None:
        """Where in an answer the chance of success falls, tested on draws of its own; None: nowhere shown."""
        points, step = self._points, lost.step
        try:
            pieces = points.pieces(step)
        except CannotDo:
            return None
        found: list[LostToken] = []
        # Both ends are known from the test of the answer.
        ends = {0: lost.effect.other, len(pieces): lost.effect.base}

        def arm(token: int, seed: int) -> ProgramArm:
            change = ProgramChange("again", token=token) if token < len(pieces) else None
            return points.arm(step, change, keeps=True, seed=seed)

        def value(token: int, draws: int, _: int) -> tuple[int, int]:
            if token in ends:
                return round(ends[token].rate * lost.effect.draws), lost.effect.draws
            self._afford(draws * (self._steps - step))
            (fork,) = points.draw({arm(token, 0): draws}, self._progress)
            return self._graded(fork, step, draws)

        def test(token: int, _: int, draws: int, error: float) -> tuple[tuple[int, int], tuple[int, int]]:
            self._afford(2 * draws * (self._steps - step))
            arms = {arm(at, INSIDE): draws for at in (token + 1, token)}
            base, other = points.draw(arms, self._progress)
            kept, without = (_counts(one.values()[:draws]) for one in (base, other))
            effect = compare_arms(base, other, 1 - 2 * error)
            p, sure = exact_p(kept, without), is_confirmed(kept, without, error)
            before = "".join(pieces[:token])
            found[:] = [LostToken(token, before, pieces[token], effect, p, sure)]
            return kept, without

        looking = FallSearch(len(pieces), replace(self._how, findings=1), value, test, together=False)
        try:
            looking.look()
        except CannotDo:
            return None  # its server refuses to go on, whatever it says of itself
        return found[0] if found else None

    def _afford(self, calls: int) -> None:
        if self._how.budget is not None and self._points.calls + calls > self._how.budget:
            raise _Spent


@final
class FallSearch:
    """A search for falls of a value along a run, which is known from draws alone: the last fall first.

    It goes back from the end, where a draw asks little and the value is known without asking: to the last
    boundary at which more could be won, and between it and the end by halves. ``value`` (step, draws wanted,
    draws had) gives successes and draws of a boundary, 0 to ``steps``; ``test`` (step, last, draws, error)
    judges a fall over one step, or over all up to a last one, and gives successes and draws of its two arms:
    the answers kept, and drawn anew. Where no single step is confirmed to lose enough, several are tested
    together, unless ``together`` is false.
    """

    def __init__(
        self,
        steps: int,
        how: WhySettings,
        value: Callable[[int, int, int], tuple[int, int]],
        test: Callable[[int, int, int, float], tuple[tuple[int, int], tuple[int, int]]],
        together: bool = True,
    ) -> None:
        self._together = together
        self._steps, self._how, self._draw, self._judge = steps, how, value, test
        self._searched: dict[int, tuple[int, int]] = {}
        # Draws of tests say more of the values beside them once the test is made.
        self._fresh: dict[int, tuple[int, int]] = {}
        self.tested: list[int] = []
        self._found = 0

    @property
    def boundaries(self) -> list[int]:
        """Boundaries whose values are known."""
        return sorted(self._searched)

    def known(self, step: int) -> tuple[int, int]:
        """Successes and draws of a boundary."""
        one, other = self._searched.get(step, (0, 0)), self._fresh.get(step, (0, 0))
        return one[0] + other[0], one[1] + other[1]

    def look(self) -> bool:
        """Search until nothing is left to find; False: the budget ended it."""
        end, how = self._steps, self._how
        try:
            # With every answer from the tape nobody is asked: this value costs runs of the program alone.
            self._value(end, how.draws)
            while self._found < how.findings and len(self.tested) - self._found < _TESTS:
                step = self._last_fall(end)
                if step is None or step in self.tested:
                    break
                if self._test(step, step):
                    self._found += 1
                    end = step
            if self._together and not self._found and 0 < len(self.tested) < _TESTS:
                first = self._wider(self.tested[-1], end)
                self._found += first is not None and self._test(first, end - 1)
            # Whether there was anything to lose.
            if not self._found and not self.known(end)[0]:
                self._value(0, _FEWEST)
        except _Spent:
            return False
        return True

    def _value(self, step: int, draws: int) -> None:
        """Know a value from so many draws, or from more."""
        have = self._searched.get(step, (0, 0))[1]
        if have < min(draws, self._how.draws):
            self._searched[step] = self._draw(step, min(draws, self._how.draws), have)

    def _last_fall(self, end: int) -> int | None:
        """The last step before a boundary over which the value falls to what it is there; None: none."""
        after, back = end, max(1, end // 3)
        while True:
            before = max(0, end - back)
            if self._higher(before, end):
                break
            if before == 0:
                return None
            after, back = before, 2 * back
        while after - before > 1:
            middle = (before + after) // 2
            if self._higher(middle, end):
                before = middle
            else:
                after = middle
        return before

    def _wider(self, step: int, end: int) -> int | None:
        """A step before another from which the whole smallest fall is likely to the end; None: none."""
        back = 1
        while back // 2 < step:
            first = max(0, step - back)
            if self._higher(first, end, self._how.smallest):
                return first
            back *= 2
        return None

    def _higher(self, step: int, end: int, least: float | None = None) -> bool:
        """Whether more is won from a boundary than from a later one; draws until that is likely or not."""
        have = self.known(step)[1]
        least = self._how.smallest / 2 if least is None else least
        while True:
            self._value(step, max(_FIRST, have))
            chance = _chance_of_fall(self.known(step), self.known(end), least)
            if chance > _SURE or chance < _UNSURE:
                return chance > _SURE
            now = self._searched[step][1]
            if now >= self._how.draws or now < have:
                return False
            have = now + 1

    def _test(self, step: int, last: int) -> bool:
        """Have a fall judged on fresh draws, few at first; whether it was confirmed."""
        confirmed, error = False, self._how.each(len(self.tested) - self._found)
        for draws in self._how.looks:
            kept, anew = self._judge(step, last, draws, error)
            confirmed = is_confirmed(kept, anew, error)
            if confirmed or _chance_of_fall(anew, kept, self._how.smallest / 2) < _UNSURE:
                break
        self.tested.append(step)
        for at, arm in ((last + 1, kept), (step, anew)):
            before = self._fresh.get(at, (0, 0))
            self._fresh[at] = before[0] + arm[0], before[1] + arm[1]
        return confirmed


class _Spent(Exception):
    """The budget does not allow what would come next."""


def _chance_of_fall(before: tuple[int, int], after: tuple[int, int], least: float) -> float:
    """Posterior chance that the first of two rates is higher by that much, from even priors."""
    from scipy.stats import beta

    grid = (np.arange(400) + 0.5) / 400
    higher = beta.sf(grid + least, before[0] + 1, before[1] - before[0] + 1)
    weights = beta.pdf(grid, after[0] + 1, after[1] - after[0] + 1)
    return float((higher * weights).sum() / weights.sum())


def parts_of(text: str, most: int) -> list[str]:
    """A text cut at the ends of its lines and sentences into at most so many parts; none: it is one piece."""
    pieces = re.findall(r".+?(?:[.!?:](?=\s)|\n|$)\s*", text, re.DOTALL)
    if len(pieces) < 2 or most < 2:
        return []
    count = min(most, len(pieces))
    cuts = [round(i * len(pieces) / count) for i in range(count + 1)]
    return ["".join(pieces[a:b]) for a, b in pairwise(cuts)]


def exact_p(base: tuple[int, int], other: tuple[int, int]) -> float:
    """One-sided p that the other arm succeeds more often, from successes and draws: Boschloo's exact test."""
    from scipy.stats import boschloo_exact

    if not base[1] or not other[1]:
        return 1.0
    table = [[base[0], other[0]], [base[1] - base[0], other[1] - other[0]]]
    p = float(boschloo_exact(table, alternative="less").pvalue)
    return 1.0 if math.isnan(p) else p


def is_confirmed(base: tuple[int, int], other: tuple[int, int], error: float) -> bool:
    """Whether the other arm is shown to succeed more often: by the exact test, and by the interval shown."""
    return exact_p(base, other) < error and stats.newcombe(base, other, 1 - 2 * error).interval.low > 0


def _counts(values: Sequence[float | None]) -> tuple[int, int]:
    graded = [value for value in values if value is not None]
    return int(sum(graded)), len(graded)
