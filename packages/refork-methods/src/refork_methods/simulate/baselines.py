"""Predictors that learn nothing: what a simulator has to beat.

:class:`NearestTurn` was tuned on recorded turns (terminal, tools; see docs/methods/world-model-fidelity.md):
the same action first and then the likest history was better there than ranking action and history as one
text.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.plain import content_hash
from refork.policies.base import Cost
from refork.types import Json
from refork.worlds.environment import ActionObservation, Brief, EnvTrajectory
from refork_methods.simulate.prompt import Asked, Prediction

_WORD = re.compile(r"\w+|[^\w\s]")


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _turns(
    trajectories: Iterable[EnvTrajectory],
) -> list[tuple[Brief, tuple[ActionObservation, ...], str, str]]:
    """Brief, history, action and observation of every turn. Raises BadInput where there is none."""
    found = [
        (item.brief, item.history(at), turn.action, turn.observation)
        for item in trajectories
        for at, turn in enumerate(item.turns)
    ]
    if not found:
        raise BadInput("there is no turn to learn from", where="baseline")
    return found


@final
class CopyLast:
    """The last observation once more; before the first turn an empty one."""

    name = "copy-last"

    @property
    def identity(self) -> Json:
        """The rule."""
        return {"baseline": self.name}

    def predict(self, asked: Sequence[Asked]) -> list[Prediction]:
        """The observation before each question."""
        texts = [item.history[-1][1] if item.history else "" for item in asked]
        return [Prediction(text, text, Cost(0, 0, 0.0)) for text in texts]


@final
class CommonAnswer:
    """The commonest answer to the same action in training; to its first word where the action is new.

    The n-gram model of turns: of order two, then one, then none.
    """

    name = "common-answer"

    def __init__(self, train: Iterable[EnvTrajectory]) -> None:
        turns = _turns(train)
        self._data = content_hash([[action, said] for _, _, action, said in turns])
        self._tables: list[dict[str, Counter[str]]] = [{}, {}, {}]
        for _, _, action, said in turns:
            for table, key in zip(self._tables, self._keys(action), strict=True):
                table.setdefault(key, Counter())[said] += 1

    @staticmethod
    def _keys(action: str) -> tuple[str, str, str]:
        words = _words(action)
        return action.strip(), " ".join(words[:1]), ""

    @property
    def identity(self) -> Json:
        """The rule and what it was counted on."""
        return {"baseline": self.name, "data": self._data}

    def predict(self, asked: Sequence[Asked]) -> list[Prediction]:
        """The commonest known answer; of equally common ones the first seen."""
        found = []
        for item in asked:
            known = (
                table[key]
                for table, key in zip(self._tables, self._keys(item.action), strict=True)
                if key in table
            )
            text = next(known).most_common(1)[0][0]
            found.append(Prediction(text, text, Cost(0, 0, 0.0)))
        return found


@final
class NearestTurn:
    """The answer of the training turn nearest in action, then in state and history: mere retrieval.

    ``exact_first``: where training has the same action, its turns alone compete, by their context; else all
    turns do, by their action and, at ``context`` times the weight, their context. The context is the initial
    state and the last ``history`` turns. The ``neighbours`` nearest vote, each with its likeness (1: the
    nearest answers). Likeness is BM25, both texts' words compared, 1 being that of the likest.
    """

    name = "nearest-turn"

    def __init__(
        self,
        train: Iterable[EnvTrajectory],
        *,
        exact_first: bool = True,
        history: int = 2,
        context: float = 0.3,
        neighbours: int = 30,
    ) -> None:
        if history < 0 or context < 0 or neighbours < 1:
            raise BadInput(
                "history and the weight of the context are 0 or more, neighbours 1 or more",
                where="nearest turn",
            )
        turns = _turns(train)
        self.exact_first, self.history, self.context = exact_first, history, context
        self.neighbours = neighbours
        self._answers = [said for _, _, _, said in turns]
        self._actions = [action for _, _, action, _ in turns]
        self._contexts = [self._context(brief, seen) for brief, seen, _, _ in turns]
        self._same: dict[str, list[int]] = {}
        for number, action in enumerate(self._actions):
            self._same.setdefault(action.strip(), []).append(number)

    @cached_property
    def identity(self) -> Json:
        """The rule, its settings and what it was built on."""
        return {
            "baseline": self.name,
            "exact_first": self.exact_first,
            "history": self.history,
            "context": self.context,
            "neighbours": self.neighbours,
            "data": content_hash([self._actions, self._answers, self._contexts]),
        }

    def _context(self, brief: Brief, seen: Sequence[ActionObservation]) -> str:
        last = seen[len(seen) - self.history :] if self.history < len(seen) else seen
        return "\n".join([brief.initial_state, *(text for turn in last for text in turn)])

    @cached_property
    def _by_action(self) -> Any:
        return _index(self._actions)

    @cached_property
    def _by_context(self) -> Any:
        return _index(self._contexts)

    def predict(self, asked: Sequence[Asked]) -> list[Prediction]:
        """The nearest turn's answer to every question."""
        found = []
        for item in asked:
            began = time.perf_counter()
            text = self._vote(item)
            found.append(Prediction(text, text, Cost(0, 0, time.perf_counter() - began)))
        return found

    def _vote(self, item: Asked) -> str:
        """The answer with the most likeness among the nearest; of equal ones that of the nearest."""
        near = _scores(self._by_context, self._context(item.brief, item.history))
        same = self._same.get(item.action.strip(), []) if self.exact_first else []
        if same:
            open_, likeness = np.asarray(same), near[same]
        else:
            # Both have 1 at their likest, so the context's weight means the same for every question.
            likeness = _scores(self._by_action, item.action) + self.context * near
            open_ = np.arange(likeness.size)
        best = np.argsort(-likeness, kind="stable")[: self.neighbours]
        votes: dict[str, float] = {}
        for place in best:
            said = self._answers[int(open_[place])]
            votes[said] = votes.get(said, 0.0) + float(likeness[place])
        # Answers stand in order of nearness, and max keeps the first of equals.
        return max(votes, key=lambda said: votes[said])


def _index(texts: Sequence[str]) -> Any:
    """A BM25 index; texts without a word are like nothing."""
    import bm25s  # type: ignore[import-untyped]

    index = bm25s.BM25()
    index.index([_words(text) or [""] for text in texts], show_progress=False)
    return index


def _scores(index: Any, text: str) -> NDArray[np.float64]:
    """How like each indexed text is, 0 to 1 of the likest."""
    found = np.asarray(index.get_scores(_words(text) or [""]), dtype=np.float64)
    most = float(found.max(initial=0.0))
    return found / most if most > 0 else found
