"""``appworld:DATASET``: the tasks of AppWorld, acted on by Python code and graded by its own tests.

Training tasks are those of the dataset ``train``; held-out tasks those of DATASET: ``dev`` (default),
``test_normal`` or ``test_challenge``. An action is code, the whole turn or its last fenced block; what it
prints is the observation. The run ends when the code calls ``apis.supervisor.complete_task``. Reward 1 where
all tests pass, and none where the task comes without its ground truth.

AppWorld needs pydantic below 2 and Refork needs 2, so it usually lives in an environment of its own and is
reached by its server, ``appworld serve environment``: options ``url`` (the server) and ``root`` (the folder
that holds ``data``). Without ``url`` the package is imported. ``turns`` is the turn limit (40).

AppWorld keeps one task alive per process. An episode that another one displaced is opened again, its actions
are replayed and each answer is checked. There is no snapshot: AppWorld's own checkpoints hold the databases
but not the variables of the agent's Python session, so going back to one would not be exact.

Source: arXiv 2407.18901, and the package ``appworld`` 0.1.3 (its class ``AppWorld`` and its server).
"""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from refork.errors import BadInput, CannotDo
from refork.types import Json
from refork.worlds.base import Observation, Split, Task
from refork.worlds.dice import Dice, digest
from refork.worlds.fork import check_answer
from refork.worlds.game import need
from refork.worlds.spec import Spec
from refork_worlds.appworld_service import Imported, Served, Service

DATASETS = ("dev", "test_normal", "test_challenge")
_TURNS = 40
_FENCE = re.compile(r"```(?:python|py)?\s*\n(.*?)```", re.DOTALL)


def code_in(action: str) -> str:
    """The code of a turn: its last fenced block, or all of it."""
    blocks = _FENCE.findall(action)
    return str(blocks[-1] if blocks else action).strip()


@final
@dataclass(slots=True)
class _Seat:
    """Who has the one live task of a service."""

    holder: weakref.ref[AppWorldEpisode] | None = None

    def held_by(self, episode: AppWorldEpisode) -> bool:
        return self.holder is not None and self.holder() is episode


_SEATS: dict[str, _Seat] = {}


@final
class AppWorldEpisode:
    """One run of a task; it may have to take its seat back before it goes on."""

    def __init__(self, world: AppWorldWorld, task: Task) -> None:
        self.task = task
        self._world = world
        self._said: list[tuple[str, str]] = []
        self._end: Observation | None = None
        self._take_seat()

    @property
    def first(self) -> Observation:
        """Nothing but the prompt is seen before the first turn."""
        return Observation("", digest("appworld", self.task.id, []))

    def step(self, action: str) -> Observation:
        """Run the code of a turn and see what it prints."""
        if self._end is not None:
            return self._end
        if not self._world.seat.held_by(self):
            self._take_seat()
        code = code_in(action)
        text = self._world.service.execute(self._name, code)
        self._said.append((code, text))
        over = self._world.service.completed(self._name)
        if not over and len(self._said) < self._world.max_turns:
            return self._see(text)
        report = self._world.service.evaluate(self._name)
        info: Json = {"ending": "completed" if over else "turns"}
        reward = None
        if report is not None:
            reward = float(bool(report["success"]) and over)
            info |= {"passed": len(report["passes"]), "tests": report["num_tests"]}
            info["failed"] = [str(one["requirement"]) for one in report["failures"]]
        self._end = self._see(text, done=True, reward=reward, info=info)
        return self._end

    def snapshot(self) -> None:
        """None: an episode is forked by replay that is checked."""

    def reseed(self, seed: int) -> None:
        """AppWorld's own seed is fixed; there is no chance."""

    def close(self) -> None:
        """Give the seat back."""
        if self._world.seat.held_by(self):
            self._world.seat.holder = None
            self._world.service.close(self._name)

    @property
    def _name(self) -> str:
        return str(self.task.data["task_id"])

    def _take_seat(self) -> None:
        """Open the task anew and go through all turns so far; AppWorld itself closes whoever was there."""
        self._world.seat.holder = None
        self._world.service.open(self._name, self._world.experiment)
        for turn, (code, expected) in enumerate(self._said, 1):
            seen = Observation(self._world.service.execute(self._name, code))
            check_answer(turn, code, expected, seen, where=f"task {self.task.id}")
        self._world.seat.holder = weakref.ref(self)

    def _see(
        self, text: str, *, done: bool = False, reward: float | None = None, info: Json | None = None
    ) -> Observation:
        key = digest("appworld", self.task.id, [list(turn) for turn in self._said])
        return Observation(text, key, done, reward, info or {})


@final
@dataclass(frozen=True)
class AppWorldWorld:
    """AppWorld by one service: the package, or its server."""

    service: Service
    held_out: str = "dev"
    max_turns: int = _TURNS
    options: str = ""
    deterministic = True

    @property
    def seat(self) -> _Seat:
        """Who has the live task, whatever world object asks."""
        return _SEATS.setdefault(self.service.key, _Seat())

    @property
    def name(self) -> str:
        """The specification that opens this world."""
        return f"appworld:{self.held_out}" + (f"?{self.options}" if self.options else "")

    @property
    def version(self) -> str:
        """The package's version, and the adapter's."""
        return f"1+appworld-{self.service.version()}"

    @property
    def experiment(self) -> str:
        """Where AppWorld writes its outputs, one folder per process."""
        return f"refork-{os.getpid()}"

    def tasks(self, split: Split, count: int, seed: int = 0) -> list[Task]:
        """``count`` tasks of the split's dataset in a seeded order.

        Raises:
            BadInput: the dataset has fewer.
            CannotDo: the data are not there.
        """
        dataset = "train" if split == "train" else self.held_out
        names = self.service.task_ids(dataset)
        if count > len(names):
            raise BadInput(f"{dataset} has {len(names)} tasks, not {count}", where=self.name)
        return [self._task(name, split) for name in Dice("appworld", seed).sample(names, len(names))[:count]]

    def _task(self, name: str, split: Split) -> Task:
        told = self.service.show(name)
        return Task(
            id=f"{self.name}/{name}",
            world=self.name,
            split=split,
            prompt=_prompt(told),
            data={"task_id": name, "scenario": name.rpartition("_")[0]},
        )

    def start(self, task: Task, seed: int) -> AppWorldEpisode:
        """Begin; there is no chance."""
        del seed
        need(task.data, ("task_id",), "appworld")
        return AppWorldEpisode(self, task)

    def restore(self, task: Task, snapshot: bytes) -> AppWorldEpisode:
        """There are no snapshots; raises CannotDo."""
        raise CannotDo("AppWorld has no snapshots", where=f"task {task.id}", hint="fork by replay")


def _prompt(told: Json) -> str:
    who = told["supervisor"]
    return (
        f"I am your supervisor, {who['first_name']} {who['last_name']} ({who['email']}, "
        f"{who['phone_number']}). The time is {told['datetime']}.\nTask: {told['instruction']}\n"
        "Answer with Python code in a fenced block; one lasting session runs it; you see what it prints. "
        "The apps are apis.APP.FUNCTION(name=value). apis.api_docs.show_app_descriptions(), "
        "apis.api_docs.show_api_descriptions(app_name=...) and apis.api_docs.show_api_doc(app_name=..., "
        "api_name=...) describe them; apis.supervisor.show_account_passwords() gives my passwords. "
        "When the task is done, call apis.supervisor.complete_task(), with answer=... for a question."
    )


def open_appworld(spec: Spec) -> AppWorldWorld:
    """``appworld:DATASET``: AppWorld's tasks, where its package and data are installed (option turns).

    Raises:
        BadInput: an unknown dataset or option.
        CannotDo: neither the package nor a server is there.
    """
    dataset = spec.argument or "dev"
    if dataset not in DATASETS:
        raise BadInput(
            f"there is no held-out dataset {dataset!r}",
            where="appworld",
            hint=f"one of {', '.join(DATASETS)}; training tasks are always those of train",
        )
    given = spec.take({"url": str, "root": str, "turns": int})
    turns = int(given.get("turns", _TURNS))
    if turns < 1:
        raise BadInput(f"turns is {turns}; it must be at least 1", where="appworld")
    root = Path(str(given.get("root", os.environ.get("APPWORLD_ROOT", "."))))
    service: Service = Served(str(given["url"]), root) if "url" in given else Imported.load()
    return AppWorldWorld(service, dataset, turns, spec.query)


def scenarios_of(tasks: Sequence[Task]) -> dict[str, str]:
    """Task ids and the scenario of each, for scenario goal completion."""
    return {task.id: str(task.data["scenario"]) for task in tasks}
