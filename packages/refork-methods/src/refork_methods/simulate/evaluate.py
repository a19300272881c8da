"""Single-step fidelity: one prediction per turn with the real history before it, judged and counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, Self, TypeAlias, final, runtime_checkable

from refork.errors import BadInput
from refork.interrupt import Interrupt
from refork.plain import canonical, content_hash, to_json
from refork.policies.base import Cost
from refork.progress import Progress, silent
from refork.sampling.noise import NoiseKey, stream_of
from refork.types import Json
from refork.worlds.environment import EnvTrajectory
from refork_methods.journal import Journal
from refork_methods.simulate.data import classify, turn_stats
from refork_methods.simulate.fidelity import Comparison, Fidelity, Grade, JudgedTurn, summarise
from refork_methods.simulate.prompt import NO_TAG, Asked, Prediction, Target, bare, matches, pick, targets
from refork_methods.simulate.refusals import refuse_same, refuse_trained_on
from refork_methods.simulate.reward import DIMENSIONS, Rater
from refork_methods.simulate.rules import check

# Predictions and grades on disk, so that an evaluation goes on where it stopped.
#
# Two journals in a folder: ``predictions.jsonl`` and ``grades.jsonl``, a line per batch. An answer is found
# again by all that it depends on: the model (or judge), the seed, and the whole question.


@final
class KeptAnswers:
    """What was answered before under the same model, judge and seed."""

    def __init__(self, model: Json, judge: Json | None, seed: int) -> None:
        self._model = content_hash([model, seed])
        self._judge = None if judge is None else content_hash(judge)
        self._said: dict[str, Json] = {}
        self._journals: dict[str, Journal] = {}

    @classmethod
    def open(cls, folder: Path | None, model: Json, judge: Json | None, seed: int) -> Self:
        """The answers of a folder, which is made; without one nothing is kept.

        Raises: Mismatch where a file was changed by hand.
        """
        found = cls(model, judge, seed)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            for kind in ("predictions", "grades"):
                file = folder / f"{kind}.jsonl"
                file.touch()
                found._journals[kind] = Journal(file, noun=f"record of {kind}", keep=0)
                for entry in found._journals[kind]:
                    # Both kinds share one table: a grade's key is a digest over its prediction's.
                    found._said |= {item["key"]: item for item in entry.body["items"]}
        return found

    def _key(self, target: Target) -> str:
        asked = [target.brief.to_json(), [list(turn) for turn in target.history], target.action]
        return content_hash([self._model, target.key, asked])

    def _grade_key(self, target: Target, text: str) -> str:
        return content_hash([self._judge, self._key(target), target.truth, text])

    def prediction(self, target: Target) -> Prediction | None:
        """What the model predicted before."""
        if not self._journals or (item := self._said.get(self._key(target))) is None:
            return None
        return Prediction(
            item["text"], item["raw"], Cost(**item["cost"]), item["error"], item["tries"], item["cut"]
        )

    def grade(self, target: Target, text: str) -> Grade | None:
        """How the judge graded the prediction before; None where it did not."""
        if not self._journals or self._judge is None:
            return None
        item = self._said.get(self._grade_key(target, text))
        return None if item is None else Grade(item["score"], item["rubric"])

    def keep_predictions(self, predictions: Sequence[tuple[Target, Prediction]]) -> None:
        """Write a batch of predictions; where the model could not be reached it is asked again next time."""
        items = []
        for target, one in predictions:
            # A server that failed may answer next time; a model that gave no tag would give none again.
            if one.text is None and one.tries and not one.raw and one.error != NO_TAG:
                continue
            told = asdict(one) | {"cost": one.cost.to_json()}
            items.append({"key": self._key(target), "of": target.key, **told})
        self._write("predictions", items)

    def keep_grades(self, rated: Sequence[tuple[Target, str, Grade | None]]) -> None:
        """Write a batch of grades; what stayed ungraded is asked again next time."""
        items = [
            {"key": self._grade_key(target, text), "of": target.key, **asdict(grade)}
            for target, text, grade in rated
            if grade is not None
        ]
        self._write("grades", items)

    def _write(self, kind: str, items: list[Json]) -> None:
        if kind in self._journals and items:
            self._journals[kind].append(kind, {"items": items})


#: Which turns are predicted: all, one of each trajectory, or so many drawn ones of each.
Chosen: TypeAlias = Literal["all", "one"] | int


@runtime_checkable
class Predictor(Protocol):
    """Whoever predicts observations: a world model, or a baseline."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def identity(self) -> Json:
        """What its answers depend on."""
        ...

    def predict(self, asked: Sequence[Asked]) -> list[Prediction]:
        """An answer to every question, in order."""
        ...


@final
@dataclass(frozen=True, slots=True)
class Evaluation:
    """Judged turns and what they show. ``stopped``: Ctrl-C came before all were predicted.

    ``judge``: the identity of who graded, None where nobody did.
    """

    fidelity: Fidelity
    turns: tuple[JudgedTurn, ...]
    targets: tuple[Target, ...]
    stopped: bool = False
    judge: Json | None = None


def chosen_targets(
    trajectories: Iterable[EnvTrajectory], turns: Chosen = "all", seed: int = 0
) -> list[Target]:
    """The turns to predict, of each trajectory; drawn ones by the seed and the trajectory's name alone.

    Raises: BadInput where two trajectories have one name, or there is nothing to predict.
    """
    held = list(trajectories)
    names = [(item.source, item.id) for item in held]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadInput("two trajectories have one name", where=f"trajectory {twice[1]} of {twice[0]}")
    if turns == "one":
        found = pick(held, seed)
    elif turns == "all":
        found = targets(held)
    elif turns > 0:
        found = targets(held, turns, seed)
    else:
        raise BadInput(f"{turns} turns of each trajectory leave none", hint="all, one or a number above 0")
    if not found:
        raise BadInput("the trajectories have no turn to predict", where="evaluate")
    return found


def evaluate(
    model: Predictor,
    trajectories: Iterable[EnvTrajectory],
    *,
    judge: Rater | None = None,
    turns: Chosen = "all",
    seed: int = 0,
    batch: int = 32,
    folder: Path | None = None,
    model_folder: Path | None = None,
    progress: Progress = silent,
) -> Evaluation:
    """Predict turns with the real history as context, and judge them.

    ``folder`` keeps predictions and grades, so that the same evaluation goes on where it stopped.
    ``model_folder`` has the record of the model's training, where there is one.

    Raises:
        BadInput: nothing to predict, the judge is the simulator, or the model learned from these sources.
        KeyboardInterrupt: Ctrl-C came before one batch was predicted and judged; what was done is kept.
    """
    if judge is not None:
        refuse_same(model.identity, judge.identity)
    due = chosen_targets(trajectories, turns, seed)
    refuse_trained_on(model_folder, due)
    kept = KeptAnswers.open(folder, model.identity, None if judge is None else judge.identity, seed)
    with Interrupt() as interrupt:
        said = _predictions(model, due, seed, batch, kept, progress, interrupt)
        grades = _grades(judge, due[: len(said)], said, batch, kept, progress, interrupt)
    done = len(said) if judge is None else len(grades)
    if not done:
        raise KeyboardInterrupt
    judged = tuple(
        _judged(target, prediction, grade)
        # Not strict: interrupted judging leaves more predictions than grades.
        for target, prediction, grade in zip(due[:done], said, grades or [None] * done, strict=False)
    )
    fidelity = summarise(judged, model.name, model.identity, judge=None if judge is None else judge.name)
    identity = None if judge is None else judge.identity
    return Evaluation(fidelity, judged, tuple(due[:done]), done < len(due), identity)


def asked_of(target: Target, seed: int) -> Asked:
    """The question whose answer is a target's turn; its noise is of this turn alone."""
    # Of the target alone, so that which turns are predicted beside it changes nothing.
    noise = NoiseKey(seed, stream_of("fidelity", target.key), 0, target.index)
    return Asked(target.brief, target.history, target.action, noise)


def _predictions(
    model: Predictor,
    due: Sequence[Target],
    seed: int,
    batch: int,
    kept: KeptAnswers,
    progress: Progress,
    interrupt: Interrupt,
) -> list[Prediction]:
    """Predictions of the first targets, in their order; fewer than there are where it was interrupted."""
    found = {n: known for n, target in enumerate(due) if (known := kept.prediction(target)) is not None}
    missing = [n for n in range(len(due)) if n not in found]
    for start in range(0, len(missing), batch):
        if interrupt.asked:
            break
        progress("predicting", len(found), len(due))
        part = missing[start : start + batch]
        said = model.predict([asked_of(due[n], seed) for n in part])
        kept.keep_predictions([(due[n], one) for n, one in zip(part, said, strict=True)])
        found |= dict(zip(part, said, strict=True))
    progress("predicting", len(found), len(due))
    # What is kept may have gaps; an interrupted evaluation is judged on the first ones without any.
    whole = next((n for n in range(len(due)) if n not in found), len(due))
    return [found[n] for n in range(whole)]


def _grades(
    judge: Rater | None,
    due: Sequence[Target],
    said: Sequence[Prediction],
    batch: int,
    kept: KeptAnswers,
    progress: Progress,
    interrupt: Interrupt,
) -> list[Grade | None]:
    """The judge's grades of predictions; a missing prediction has the least, without asking."""
    if judge is None:
        return []
    found: dict[int, Grade | None] = {}
    for n, (target, one) in enumerate(zip(due, said, strict=True)):
        if one.text is None:
            # The judge sees no empty text, which it might like.
            found[n] = Grade(0.0, dict.fromkeys(DIMENSIONS, 1))
        elif (known := kept.grade(target, one.text)) is not None:
            found[n] = known
    missing = [n for n in range(len(due)) if n not in found]
    for start in range(0, len(missing), batch):
        if interrupt.asked:
            break
        progress("judging", len(found), len(due))
        part = missing[start : start + batch]
        items = [(due[n], said[n].text or "") for n in part]
        rated = [None if one is None else Grade(one.score, one.grades()) for one in judge.rate(items)]
        kept.keep_grades([(*item, grade) for item, grade in zip(items, rated, strict=True)])
        found |= dict(zip(part, rated, strict=True))
    progress("judging", len(found), len(due))
    whole = next((n for n in range(len(due)) if n not in found), len(due))
    return [found[n] for n in range(whole)]


def _judged(
    target: Target,
    said: Prediction,
    grade: Grade | None,
) -> JudgedTurn:
    return JudgedTurn(
        key=target.key,
        trajectory=target.trajectory.id,
        source=target.trajectory.source,
        domain=target.domain,
        turn=target.index + 1,
        turn_class=classify(turn_stats(target.action, target.truth)),
        action=target.action,
        observation=target.truth,
        prediction=said.text,
        padded=said.text is not None and said.raw != said.text and not bare(said.raw),
        exact=matches(said.text, target.truth),
        deterministic=target.turn.exact,
        rule=check(said.text, target),
        grade=None if grade is None else grade.score,
        rubric=None if grade is None else grade.rubric,
        error=said.error,
        tries=said.tries,
        cut=said.cut,
        cost=said.cost,
    )


# An evaluation as files: ``report.json`` and ``turns.jsonl`` beside the kept predictions.

#: What a figure cannot tell; told with every report.
NOTES = (
    "One step at a time, with the real history: errors that build up over an episode do not show here.",
    "A turn without a valid prediction counts as wrong.",
    "Exact match asks for the letter; where the answer is not determined, read the rules and the rubric.",
)


def report(
    evaluation: Evaluation, others: Sequence[Evaluation] = (), comparisons: Sequence[Comparison] = ()
) -> Json:
    """An evaluation, those beside it, and the differences, as plain JSON."""
    found: Json = to_json(evaluation.fidelity)
    found["complete"] = not any(one.stopped for one in (evaluation, *others))
    found["others"] = [to_json(other.fidelity) for other in others]
    found["comparisons"] = [to_json(one) for one in comparisons]
    found["notes"] = list(NOTES)
    return found


def write_report(folder: Path, figures: Json, evaluation: Evaluation) -> None:
    """Write both files, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "report.json", [canonical(figures)])
    turns: list[Any] = [to_json(turn) for turn in evaluation.turns]
    _write(folder / "turns.jsonl", (canonical(turn) for turn in turns))


def _write(file: Path, lines: Iterable[str]) -> None:
    part = file.with_name(file.name + ".tmp")
    part.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    part.replace(file)
