"""Predictions and grades on disk, so that an evaluation goes on where it stopped.

Two journals in a folder: ``predictions.jsonl`` and ``grades.jsonl``, a line per batch. An answer is found
again by all that it depends on: the model (or judge), the seed, and the whole question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Self, final

from refork.journal import Journal
from refork.plain import content_hash
from refork.policies.base import Cost
from refork.types import Json
from refork_methods.simulate.asked import NO_TAG, Prediction
from refork_methods.simulate.fidelity import Grade
from refork_methods.simulate.target import Target


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
                    found._said |= {item["key"]: item for item in entry.body["items"]}
        return found

    def _key(self, target: Target) -> str:
        asked = [target.brief.to_json(), [list(turn) for turn in target.seen], target.action]
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

    def keep_predictions(self, said: Sequence[tuple[Target, Prediction]]) -> None:
        """Write a batch of predictions; where the model could not be reached it is asked again next time."""
        items = []
        for target, one in said:
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
