"""``reasoning-gym:DATASET?setting=value``: single-turn tasks, graded by the dataset's own scorer.

The prompt is the question and the action is the answer, or a text that holds it:

- ``extract=tag``: the answer stands between the last ``<answer>`` and ``</answer>`` (the prompt says so);
- ``after=WORD``: the answer is what follows the last ``WORD``, for policies that think aloud first;
- ``compact=true``: white space inside the answer is dropped (word-level tokenizers write ``- 4 2``);
- ``grade_seconds=10``: a scorer that takes longer, or fails, leaves the reward None (ungraded), never 0.

Every other option is a setting of the dataset. An action without the marker holds no answer and is graded
so by the dataset. The reward is the dataset's score, 1 for a right answer. Equal questions always
stand in the same split.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, final

from refork.errors import BadInput, Mismatch, MissingExtra
from refork.sampling.noise import stream_of
from refork.types import Json
from refork.worlds.base import Observation, Split, Task
from refork.worlds.dice import digest, split_of
from refork.worlds.game import need
from refork.worlds.single_turn import SingleTurnEpisode, restore_single_turn
from refork.worlds.spec import Spec

_TAG = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_TAG_PROMPT = "\nGive the final answer between <answer> and </answer>."
_OWN: dict[str, type | tuple[type, ...]] = {
    "extract": str,
    "after": str,
    "compact": bool,
    "grade_seconds": (int, float),
}
_SIZE = 1_000_000


def _library() -> Any:
    try:
        import reasoning_gym
    except ImportError:
        raise MissingExtra("reasoning-gym", "worlds") from None
    return reasoning_gym


@final
@dataclass(frozen=True)
class Extraction:
    """Where in an action the answer stands."""

    tag: bool = False
    after: str | None = None
    compact: bool = False

    def __call__(self, action: str) -> str | None:
        """The answer; None where the marker is missing."""
        answer: str | None = action
        if self.tag:
            found = _TAG.findall(action)
            answer = found[-1] if found else None
        elif self.after is not None:
            _, marker, rest = action.rpartition(self.after)
            answer = rest if marker else None
        if answer is None:
            return None
        return "".join(answer.split()) if self.compact else answer.strip()


@final
@dataclass(frozen=True)
class ReasoningGymWorld:
    """Questions of one dataset under one configuration."""

    dataset: str
    settings: Json
    extraction: Extraction
    grade_seconds: float = 10.0
    query: str = ""
    _built: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    max_turns = 1
    deterministic = True

    @property
    def name(self) -> str:
        """The specification that opens this world."""
        return f"reasoning-gym:{self.dataset}" + (f"?{self.query}" if self.query else "")

    @property
    def version(self) -> str:
        """This adapter's version and the library's."""
        return f"1+reasoning-gym-{version('reasoning-gym')}"

    def tasks(self, split: Split, count: int, seed: int = 0) -> list[Task]:
        """``count`` different questions.

        Raises:
            BadInput: the dataset, so configured, does not hold that many different questions.
        """
        inner = stream_of("reasoning-gym", self.dataset, seed) >> 33
        dataset = self._dataset(self.settings, inner)
        found: dict[str, Task] = {}
        # Questions repeat, and a dataset may not hold so many different ones: the search has an end.
        for index in range(50 * count + 200):
            if len(found) == count:
                break
            question = str(dataset[index]["question"])
            mark = digest(self.dataset, question)
            if mark in found or split_of(mark) != split:
                continue
            found[mark] = Task(
                id=f"reasoning-gym:{self.dataset}/{mark[:16]}",
                world=self.name,
                split=split,
                prompt=question + (_TAG_PROMPT if self.extraction.tag else ""),
                data={
                    "dataset": self.dataset,
                    "settings": self.settings,
                    "seed": inner,
                    "index": index,
                    "question": question,
                },
            )
        if len(found) < count:
            raise BadInput(
                f"found only {len(found)} different {split} questions, not {count}",
                where=self.name,
                hint="ask for fewer, or widen the dataset's settings",
            )
        return list(found.values())

    def entry(self, task: Task) -> Json:
        """The dataset's own entry of a task: question, answer and metadata.

        Raises:
            BadInput: the task is of another dataset.
            Mismatch: this version of the library asks another question there.
        """
        need(task.data, ("dataset", "settings", "seed", "index", "question"), self.name)
        data = task.data
        if data["dataset"] != self.dataset:
            raise BadInput(f"this task is of dataset {data['dataset']!r}", where=self.name)
        entry: Json = self._dataset(data["settings"], int(data["seed"]))[int(data["index"])]
        if entry["question"] != data["question"]:
            raise Mismatch(
                f"the dataset now asks {entry['question']!r}, recorded was {data['question']!r}",
                where=f"task {task.id}",
                hint="use the version of reasoning-gym that the task was recorded with",
            )
        return entry

    def start(self, task: Task, seed: int) -> SingleTurnEpisode:
        """Begin; there is no chance."""
        del seed
        return SingleTurnEpisode(task, self._grader(task))

    def restore(self, task: Task, snapshot: bytes) -> SingleTurnEpisode:
        """An episode in the state of a snapshot."""
        return restore_single_turn(task, snapshot, self._grader(task))

    def _grader(self, task: Task) -> Callable[[str], Observation]:
        entry = self.entry(task)
        score = self._dataset(task.data["settings"], int(task.data["seed"])).score_answer

        def grade(action: str) -> Observation:
            answer = self.extraction(action)
            reward, reason = score_in_time(lambda: score(answer, entry), self.grade_seconds)
            info: Json = {"answer": answer} | ({"ungraded": reason} if reason else {})
            return Observation(text="", done=True, reward=reward, info=info)

        return grade

    def _dataset(self, settings: Json, seed: int) -> Any:
        key = digest(settings, seed)
        if key not in self._built:
            # A task that was recorded as JSON has lists where its settings had tuples.
            plain = {k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}
            try:
                self._built[key] = _library().create_dataset(self.dataset, **plain, seed=seed, size=_SIZE)
            except (TypeError, ValueError, AssertionError) as error:
                raise BadInput(f"the dataset refused its settings: {error}", where=self.name) from error
        return self._built[key]


def score_in_time(score: Callable[[], Any], seconds: float) -> tuple[float | None, str | None]:
    """A scorer's result and None, or None and why there is none: it failed, took too long, or gave no number.

    A scorer that hangs keeps its (daemon) thread; nothing waits for it.
    """
    result: list[float] = []
    failure: list[str] = []

    def work() -> None:
        try:
            result.append(float(score()))
        except Exception as error:  # whatever a grader raises, the draw is ungraded, not wrong
            failure.append(f"the grader failed: {error!r}")

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        return None, f"the grader took longer than {seconds:g} s"
    if failure:
        return None, failure[0]
    if not math.isfinite(result[0]):
        return None, f"the grader gave {result[0]}"
    return result[0], None


def open_reasoning_gym(spec: Spec) -> ReasoningGymWorld:
    """``reasoning-gym:DATASET``: any of its datasets (its settings as options; extract, after, compact).

    Raises:
        BadInput: an unknown dataset, a setting it refuses, or an option that cannot be.
        MissingExtra: reasoning-gym is not installed.
    """
    library = _library()
    known = library.factory.DATASETS
    if spec.argument not in known:
        raise BadInput(
            f"reasoning-gym has no dataset {spec.argument!r}",
            hint=f"for example chain_sum; all {len(known)}: reasoning_gym.factory.DATASETS",
        )
    own = Spec(spec.name, spec.argument, {k: v for k, v in spec.options.items() if k in _OWN}, spec.query)
    options = own.take(_OWN)
    if options.get("extract", "tag") != "tag":
        raise BadInput(f"extract cannot be {options['extract']!r}", where=spec.name, hint="extract=tag")
    if "extract" in options and "after" in options:
        raise BadInput("extract and after exclude each other", where=spec.name)
    settings = {k: v for k, v in spec.options.items() if k not in _OWN}
    reserved = sorted({"seed", "size"} & set(settings))
    if reserved:
        raise BadInput(f"{reserved[0]} is not an option: tasks are seeded by Refork", where=spec.name)
    world = ReasoningGymWorld(
        dataset=spec.argument,
        settings=settings,
        extraction=Extraction("extract" in options, options.get("after"), options.get("compact", False)),
        grade_seconds=float(options.get("grade_seconds", 10.0)),
        query=spec.query,
    )
    world._dataset(settings, 0)  # refuses bad settings when the world is opened
    return world
