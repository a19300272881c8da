"""Repeated resampling: rollouts in which every sentence of a class is redrawn until it is of another.

A redraw is a fork at the sentence's first token, so a rollout is kept up to there, exactly. The result is an
*intervention* (see :mod:`refork_methods.forensics.instruments.redraw_distribution`); rollouts that never
needed a redraw are a sample of the conditioned distribution, and are reported beside it.

Source: arXiv:2606.26071, appendix E. There the filtered rollouts that survive are compared with all
unfiltered ones; here what failed is counted either way, and pairs share their beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from refork import stats
from refork.errors import BadInput
from refork.forking.arm import ReadyArm, prepare, run_jobs
from refork.judge import Judge
from refork.plain import to_json
from refork.policies.base import Policy, Sampling
from refork.progress import Progress, silent
from refork.sampling.noise import stream_of
from refork.tree.node import Point
from refork.tree.score import DrawRecord
from refork.tree.tree import Tree
from refork.types import Json
from refork.worlds.base import World
from refork_methods.forensics.arm import Arm, Outcome
from refork_methods.forensics.evidence import Result
from refork_methods.forensics.instruments.outcomes import grade, outcome_of, same_model
from refork_methods.forensics.instruments.reading import Reader
from refork_methods.forensics.instruments.redraw_distribution import JudgeQuality, judge_quality
from refork_methods.forensics.instruments.replies import subject_of
from refork_methods.forensics.instruments.sentences import Piece, Unit, pieces
from refork_methods.forensics.statistics import difference


@dataclass(slots=True)
class _Rollout:
    """One rollout on its way: its last draw, how far it was judged, and redraws at this place and in all."""

    number: int
    draw: DrawRecord
    behind: Point | None = None
    tries: int = 0
    redraws: int = 0
    gave_up: bool = False
    clean: bool = False


@dataclass(frozen=True, slots=True)
class Redrawn:
    """What redrawing a class of sentences does.

    ``base``: the rollouts before any redraw; ``redrawn``: the same ones with the class redrawn, those that
    gave up counted as failed; ``conditioned``: those that never needed a redraw. ``result``: redrawn minus
    base, paired where every rollout survived, else with bounds. ``redraws`` [rollouts]; ``quality`` None:
    the judge was not checked.
    """

    label: str
    base: Arm
    redrawn: Arm
    conditioned: Arm
    result: Result | None
    survivors: int
    gave_up: int
    redraws: tuple[int, ...]
    quality: JudgeQuality | None = None
    warnings: tuple[str, ...] = ()

    def to_json(self) -> Json:
        """Plain fields."""
        found = self.result and self.result.interval
        low, high = self.redrawn.bounds()
        return {
            "instrument": "repeated resampling",
            "class": self.label,
            "arms": [
                {"name": a.name, "hits": a.hits, "runs": a.runs, "failed": a.failed,
                 "unfinished": a.unfinished, "rate": a.rate}
                for a in (self.base, self.redrawn, self.conditioned)
            ],
            "survivors": self.survivors,
            "gave_up": self.gave_up,
            "bounds": [low, high],
            "difference": to_json(found),
            "p": self.result and self.result.p,
            "method": self.result and self.result.method,
            "redraws": list(self.redraws),
            "judge": None if self.quality is None else self.quality.to_json(),
            "warnings": list(self.warnings),
        }  # fmt: skip


@dataclass(slots=True)
class _Redrawing:
    """The loop over rounds: judge what is new in every rollout, redraw where the class begins."""

    tree: Tree
    policy: Policy
    reader: Reader
    label: str
    unit: Unit
    world: World | None
    settings: Sampling | None
    seed: int
    max_tries: int
    known: dict[str, str | None] = field(default_factory=dict)
    unread: int = 0

    def first_bad(self, found: Sequence[Sequence[Piece]]) -> list[Piece | None]:
        """The first piece of the class in each rollout's new text; equal texts are judged once."""
        fresh = list(dict.fromkeys(p.text for row in found for p in row if p.text not in self.known))
        self.known.update(zip(fresh, self.reader.read(fresh) if fresh else [], strict=True))
        self.unread += sum(self.known[text] is None for text in fresh)
        return [next((p for p in row if self.known[p.text] == self.label), None) for row in found]

    def round(self, rollouts: list[_Rollout], progress: Progress, number: int) -> None:
        """One round; rollouts become clean, give up, or get a new draw."""
        live = [r for r in rollouts if not (r.clean or r.gave_up or r.draw.end == "error")]
        found = [pieces(self.tree.at(r.draw.leaf), self.unit, r.behind) for r in live]
        jobs: list[ReadyArm] = []
        owners: list[_Rollout] = []
        for rollout, bad in zip(live, self.first_bad(found), strict=True):
            if bad is None:
                rollout.clean = True
                continue
            # Tries count in one place: a class that turns up further on starts anew.
            again = rollout.behind is not None and bad.before.address == rollout.behind.address
            rollout.tries = rollout.tries + 1 if again else 1
            if rollout.tries > self.max_tries:
                rollout.gave_up = True
                continue
            rollout.behind = bad.before
            rollout.redraws += 1
            jobs.append(self.job(bad.before, rollout.number, rollout.tries - 1))
            owners.append(rollout)
        forks = run_jobs(jobs, progress=progress, stage=f"redrawing, round {number}") if jobs else []
        for rollout, fork in zip(owners, forks, strict=True):
            rollout.draw = next(d for d in fork.draws if d.draw == rollout.tries - 1)

    def job(self, at: Point, rollout: int, draw: int) -> ReadyArm:
        """A draw of the rollout's own at a point, under the turn's settings and what is left of its limit."""
        # A stream of its own: rollouts that share a beginning must not be redrawn alike.
        stream = stream_of("redraw", rollout, at.address)
        return prepare(
            at, self.policy, [draw], settings=self.settings, world=self.world, seed=self.seed, stream=stream
        )


def repeated_resample(
    start: Point,
    policy: Policy,
    n: int,
    reader: Reader,
    label: str,
    *,
    grader: Judge,
    max_tries: int = 20,
    unit: Unit = "sentence",
    settings: Sampling | None = None,
    world: World | None = None,
    labelled: Sequence[tuple[str, bool]] = (),
    seed: int = 0,
    progress: Progress = silent,
) -> Redrawn:
    """``n`` rollouts from ``start``, and the same with sentences redrawn that the reader calls ``label``.

    The reader sees one sentence at a time. A rollout that meets the class ``max_tries`` times in one place
    gives up and counts as failed. ``labelled``: sentences with the truth, to report how well the reader
    knows the class. What the tree holds is not drawn again.

    Raises: BadInput for a label that the reader cannot give, or fewer than two rollouts.
    """
    if label not in reader.labels:
        raise BadInput(f"the reader gives no label {label!r}", hint="labels: " + ", ".join(reader.labels))
    if n < 2 or max_tries < 1:
        raise BadInput(f"{n} rollouts with {max_tries} tries; at least two rollouts and one try are needed")
    tree = start.tree
    if tree is None:
        raise BadInput("this point belongs to no tree; take it with tree.at(node)")
    job = prepare(start, policy, n, settings=settings, world=world, seed=seed)
    first = run_jobs([job], judge=grader, progress=progress, stage="rollouts")[0]
    begun = [d for d in first.draws if d.draw < n]
    # What is forced or banned at the start of a turn is so once, not again at every redraw.
    sampling = None if settings is None else settings.but(forced=(), banned_first=())
    rollouts = [_Rollout(i, draw) for i, draw in enumerate(begun)]
    loop = _Redrawing(tree, policy, reader, label, unit, world, sampling, seed, max_tries)
    number = 0
    while any(not (r.clean or r.gave_up or r.draw.end == "error") for r in rollouts):
        number += 1
        loop.round(rollouts, progress, number)
    return _redrawn(loop, rollouts, begun, grader, labelled)


def _redrawn(
    loop: _Redrawing,
    rollouts: Sequence[_Rollout],
    begun: Sequence[DrawRecord],
    grader: Judge,
    labelled: Sequence[tuple[str, bool]],
) -> Redrawn:
    before = _ends(loop.tree, begun, grader)
    after = _ends(loop.tree, [r.draw for r in rollouts], grader)
    after = [
        Outcome("failed", o.node, o.fork, note="gave up") if r.gave_up else o
        for r, o in zip(rollouts, after, strict=True)
    ]
    by, subject = grader.producer.id, subject_of(loop.policy)
    base = Arm.of("base", before, grader=by, subject=subject)
    redrawn = Arm.of(f"{loop.label!r} redrawn", after, grader=by, subject=subject)
    clean = [o for r, o in zip(rollouts, before, strict=True) if not r.redraws and r.clean]
    conditioned = Arm.of(f"no {loop.label!r} by chance", clean, grader=by, subject=subject)
    quality = None
    if labelled:
        judged = np.array([x == loop.label for x in loop.reader.read([text for text, _ in labelled])])
        quality = judge_quality(judged, np.array([truth for _, truth in labelled]))
    warnings = [*same_model(loop.reader, loop.policy)]
    if quality is None:
        warnings.append(f"the reader was not checked: filtered is what it calls {loop.label!r}")
    else:
        warnings.append(quality.sentence(loop.label))
    if loop.unread:
        warnings.append(f"the reader could not label {loop.unread} sentences; they were kept")
    gave_up = sum(r.gave_up for r in rollouts)
    if gave_up:
        warnings.append(
            f"{gave_up} of {len(rollouts)} rollouts gave up: the difference counts them either way"
        )
    return Redrawn(
        loop.label, base, redrawn, conditioned, _compare(base, redrawn, before, after),
        sum(r.clean for r in rollouts), gave_up, tuple(r.redraws for r in rollouts), quality,
        tuple(warnings),
    )  # fmt: skip


def _ends(tree: Tree, draws: Sequence[DrawRecord], grader: Judge) -> list[Outcome]:
    verdicts = grade(tree, [d.leaf for d in draws if d.end != "error"], grader)
    return [outcome_of(d, verdicts.get(d.leaf), grader.score) for d in draws]


def _compare(base: Arm, redrawn: Arm, before: Sequence[Outcome], after: Sequence[Outcome]) -> Result | None:
    """Redrawn minus base, pair by pair where every rollout ended in both arms, else with bounds."""
    if not base.runs or not redrawn.runs:
        return None
    if base.total > base.runs or redrawn.total > redrawn.runs:
        return difference(base, redrawn, bounds=True)
    x, y = (np.array([o.end == "hit" for o in ends], dtype=np.float64) for ends in (before, after))
    found = stats.paired_difference(x, y)
    return Result("difference", found.interval, (base, redrawn), found.p, found.interval.method)
