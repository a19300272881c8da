"""The second stage: answers with explicit reasoning before the tag, from notes or from a teacher.

A teacher's answers are judged and only the best of good ones are learned (rejection sampling).

Source: arXiv 2606.24597 for the stage and the selection; how many candidates, and which score is enough, are
not published and ours.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from refork.errors import BadInput, Mismatch
from refork.plain import content_hash
from refork.policies.base import Policy, Sampling
from refork.policies.local import LocalPolicy
from refork.progress import Progress, silent
from refork.types import Json
from refork_methods.simulate.cpt import Encoded, Replay, Trained, context_of, train_encoded
from refork_methods.simulate.draw import Teacher, texts
from refork_methods.simulate.encode import Writer, encode_target
from refork_methods.simulate.prompt import TAG, Target, extract_prediction, matches, thoughts
from refork_methods.simulate.refusals import refuse_same, speaker
from refork_methods.simulate.reward import HybridReward
from refork_methods.train.tracker import Tracker, read_lines
from refork_methods.train.weighted import WeightedSettings


@dataclass(frozen=True, slots=True)
class Demonstration:
    """An answer to learn: what to say in the tag, and what to reason before it."""

    target: Target
    prediction: str
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """How a teacher's answers are drawn and chosen.

    Of ``draws`` answers to a target the best is kept if it earns ``least`` or more. ``batch`` targets are
    asked for at once.
    """

    draws: int = 4
    least: float = 0.75
    sampling: Sampling = field(default_factory=lambda: Sampling(temperature=1.0, max_tokens=512))
    batch: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        if self.draws < 1 or self.batch < 1 or not 0 <= self.least <= 1:
            raise BadInput("draws and batch must be at least 1, least in [0, 1]", where="candidates")


@dataclass(frozen=True, slots=True)
class SelectedDemonstrations:
    """What rejection sampling kept, and of how many, by domain."""

    demonstrations: list[Demonstration]
    domains: dict[str, Json]

    @property
    def share(self) -> float | None:
        """Share of targets that were kept; None without targets."""
        total = sum(row["total"] for row in self.domains.values())
        return len(self.demonstrations) / total if total else None


def demonstrations(items: Iterable[Target], noted_only: bool = False) -> list[Demonstration]:
    """The targets' own observations with their turns' notes as the reasoning.

    ``noted_only`` leaves out turns without a note; else they are learned without reasoning.
    """
    return [
        Demonstration(item, item.truth, item.turn.note) for item in items if item.turn.note or not noted_only
    ]


def rejection_sample(
    teacher: Teacher,
    items: Sequence[Target],
    reward: HybridReward,
    settings: Candidates,
    *,
    instruction: str = "",
    file: Path | None = None,
    progress: Progress = silent,
) -> SelectedDemonstrations:
    """Draw candidates of a teacher, judge them, keep the best of each target where it is good enough.

    Equal scores: the first drawn. Rows are appended to ``file`` block by block, and a call that was stopped
    goes on behind them. Targets to which an answer ``failed`` (the server's) are not among them.

    Raises:
        BadInput: the judge is the teacher.
        Mismatch: the file holds candidates of other settings, teacher's instruction or judge.
    """
    refuse_same(
        speaker(teacher) if isinstance(teacher, Policy) else {"model": teacher.name}, reward.rubric.identity
    )
    name = content_hash(
        {
            "settings": [settings.draws, settings.least, settings.sampling.to_json(), settings.seed],
            "reward": reward.identity,
            "teacher": _named(teacher),
            "instruction": instruction,
            "tag": TAG,
        }
    )
    rows = _rows(file, name)
    waiting = [item for item in items if item.digest not in rows]
    done = len(items) - len(waiting)
    for start in range(0, len(waiting), settings.batch):
        block = waiting[start : start + settings.batch]
        said = texts(
            teacher, block, settings.draws, settings.sampling, seed=settings.seed,
            instruction=instruction,
        )  # fmt: skip
        fresh = _judged(block, said, reward, settings.least)
        # What a server did not answer, or the judge not grade, is not known yet: a later call asks again.
        _append(file, name, [row for row in fresh if not row["failed"] and not row["ungraded"]])
        rows |= {row["key"]: row for row in fresh}
        done += len(block)
        progress("candidates", done, len(items))
    return _select(items, rows)


def _named(teacher: Teacher) -> str:
    card = getattr(teacher, "card", None)
    return str((card.weights or card.name) if card is not None else getattr(teacher, "name", ""))


def _rows(file: Path | None, name: str) -> dict[str, Json]:
    """What a file holds already; a last line that was cut short is taken out of it."""
    if file is None or not file.exists():
        return {}
    found = read_lines(file)
    if any(row["run"] != name for row in found):
        raise Mismatch(
            "this file holds candidates of another teacher, judge or settings",
            where=str(file),
            hint="use the same settings to go on, or another folder",
        )
    part = file.with_suffix(".part")
    part.write_text("".join(json.dumps(row) + "\n" for row in found), encoding="utf-8")
    part.replace(file)
    return {row["key"]: row for row in found}


def _append(file: Path | None, name: str, rows: Sequence[Json]) -> None:
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as out:
            out.write("".join(json.dumps({"run": name} | row) + "\n" for row in rows))


def _judged(
    block: Sequence[Target],
    said: Sequence[Sequence[str | None]],
    reward: HybridReward,
    least: float,
) -> list[Json]:
    pairs = [
        (None if text is None else extract_prediction(text), item)
        for item, answers in zip(block, said, strict=True)
        for text in answers
    ]
    scores = iter(reward.earned(pairs))
    rows: list[Json] = []
    for item, answers in zip(block, said, strict=True):
        earned = [next(scores) for _ in answers]
        # Less the number, so that of equal rewards the first drawn is the greatest.
        graded = [
            (one.reward, -k) for k, one in enumerate(earned) if one.extracted and one.reward is not None
        ]
        best = max(graded, default=None)
        rows.append(
            {
                "key": item.digest,
                "domain": item.domain,
                "candidates": list(answers),
                "scores": [one.reward for one in earned],
                "failed": answers.count(None),
                "unreadable": sum(not one.extracted for one in earned) - answers.count(None),
                "ungraded": sum(one.reward is None for one in earned),
                "kept": -best[1] if best is not None and best[0] >= least else None,
            }
        )
    return rows


def _select(items: Sequence[Target], rows: dict[str, Json]) -> SelectedDemonstrations:
    found: list[Demonstration] = []
    domains: dict[str, Json] = {}
    for item in items:
        row = rows[item.digest]
        counted = ("failed", "unreadable", "ungraded")
        tally = domains.setdefault(item.domain, dict.fromkeys(("total", "kept", *counted), 0))
        tally["total"] += 1
        for one in counted:
            tally[one] += row[one]
        if row["kept"] is None:
            continue
        tally["kept"] += 1
        text = row["candidates"][row["kept"]]
        said = extract_prediction(text)
        assert said is not None
        # The recorded note leads to what was really observed, and to no other answer.
        note = item.turn.note if matches(said, item.truth) else None
        found.append(Demonstration(item, said, thoughts(text) or note))
    return SelectedDemonstrations(found, dict(sorted(domains.items())))


def encode_demonstrations(
    writer: Writer, items: Sequence[Demonstration], context: int | None = None
) -> Encoded:
    """Demonstrations as sequences whose answers are learned; those longer than ``context`` are left out.

    The kinds are the domains.
    """
    names = tuple(sorted({item.target.domain for item in items}))
    number = {name: i for i, name in enumerate(names)}
    counts = dict.fromkeys(names, 0)
    made = []
    for item in items:
        # An empty note, not None: with None the recorded turn's own would be learned.
        one = encode_target(
            writer, item.target, prediction=item.prediction, note=item.note or "",
            kind=number[item.target.domain],
        )  # fmt: skip
        if context is None or len(one.tokens) <= context:
            made.append(one)
            counts[item.target.domain] += 1
    return Encoded(made, names, counts, left_out=len(items) - len(made))


def train_sft(
    policy: LocalPolicy,
    items: Sequence[Demonstration],
    settings: WeightedSettings,
    *,
    replay: Sequence[Replay] = (),
    replay_fraction: float = 0.0,
    context: int | None = None,
    folder: Path | None = None,
    tracker: Tracker | None = None,
    progress: Progress = silent,
) -> Trained:
    """Train a policy in place on demonstrations; resumable with ``folder``, bit for bit.

    Raises:
        BadInput: nothing to train on, or a replay fraction without replay.
        Mismatch: the folder holds another run's checkpoints.
    """
    window = context_of(policy, context)
    encoded = encode_demonstrations(Writer(policy.codec), items, window)
    return train_encoded(
        policy, encoded, settings, stage="sft", replay=replay, replay_fraction=replay_fraction,
        window=window, folder=folder, tracker=tracker, progress=progress,
    )  # fmt: skip
