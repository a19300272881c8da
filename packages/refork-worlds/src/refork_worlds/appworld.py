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

import json
import os
import re
import urllib.error
import urllib.request
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, final
from urllib.parse import quote

from refork.errors import BadInput, CannotDo, ServerError
from refork.types import Json
from refork.worlds.base import Observation, Split, Task
from refork.worlds.dice import Dice, digest
from refork.worlds.fork import check_answer
from refork.worlds.game import need
from refork.worlds.spec import Spec

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
            # Tests may all pass before the agent has said that the task is complete: that is no success.
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
        # Nobody's until the replay is through: one that fails half way must not pass for this turn.
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


# Two ways to AppWorld: its package in this process, or its environment server.


#: How to get AppWorld where it is not there.
HOW = (
    "AppWorld needs pydantic below 2, so give it an environment of its own: python -m venv appworld-env; "
    "appworld-env/bin/pip install appworld; appworld-env/bin/appworld install; "
    "appworld-env/bin/appworld download data; appworld-env/bin/appworld serve environment --port 9000; "
    "then open appworld:dev?url=http://127.0.0.1:9000&root=FOLDER-WITH-data"
)
_DATA = "download them with 'appworld download data' in that folder, or set APPWORLD_ROOT"
_PATIENCE = 150.0  # seconds; AppWorld itself stops code after 100


class Service(Protocol):
    """What the adapter asks of AppWorld."""

    @property
    def key(self) -> str:
        """Names the process that has the one live task."""
        ...

    def version(self) -> str:
        """The package's version, as far as it is known."""
        ...

    def task_ids(self, dataset: str) -> list[str]:
        """Ids of a dataset's tasks. Raises CannotDo where the data are not there."""
        ...

    def show(self, task_id: str) -> Json:
        """``instruction``, ``supervisor`` and ``datetime`` of a task."""
        ...

    def open(self, task_id: str, experiment: str) -> None:
        """Begin a task; whatever was live before is gone."""
        ...

    def execute(self, task_id: str, code: str) -> str:
        """Run code in the live task; what it printed, or its traceback."""
        ...

    def completed(self, task_id: str) -> bool:
        """Whether the code said that the task is complete."""
        ...

    def evaluate(self, task_id: str) -> Json | None:
        """``success``, ``num_tests``, ``passes``, ``failures``; None where there is no ground truth."""
        ...

    def close(self, task_id: str) -> None:
        """End the live task."""
        ...


@final
@dataclass
class Imported:
    """The package ``appworld`` in this process."""

    module: Any
    live: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls) -> Imported:
        """Import the package. Raises CannotDo where it is not installed."""
        try:
            return cls(import_module("appworld"))
        except ImportError as error:
            raise CannotDo(f"AppWorld cannot be imported: {error}", where="appworld", hint=HOW) from error

    @property
    def key(self) -> str:
        """There is one package in a process."""
        return "imported"

    def version(self) -> str:
        """The package's version."""
        return str(getattr(self.module, "__version__", "unknown"))

    def task_ids(self, dataset: str) -> list[str]:
        """As ``load_task_ids`` gives them."""
        return [str(name) for name in self._ask(self.module.load_task_ids, dataset)]

    def show(self, task_id: str) -> Json:
        """From the task's own record, without opening its databases."""
        name = f"{self.module.__name__}.task"
        task = self._ask(lambda: import_module(name).Task.load(task_id=task_id, load_ground_truth=False))
        who = task.supervisor
        keys = ("first_name", "last_name", "email", "phone_number")
        return {
            "instruction": str(task.instruction),
            "supervisor": {key: str(getattr(who, key)) for key in keys},
            "datetime": task.datetime.isoformat(),
        }

    def open(self, task_id: str, experiment: str) -> None:
        """A new ``AppWorld``; it closes all others itself."""
        self.live = {task_id: self._ask(self.module.AppWorld, task_id=task_id, experiment_name=experiment)}

    def execute(self, task_id: str, code: str) -> str:
        """``AppWorld.execute``."""
        return str(self.live[task_id].execute(code))

    def completed(self, task_id: str) -> bool:
        """``AppWorld.task_completed``."""
        return bool(self.live[task_id].task_completed())

    def evaluate(self, task_id: str) -> Json | None:
        """``AppWorld.evaluate``; None where the task has no ground truth."""
        world = self.live[task_id]
        if not world.task.ground_truth:
            return None
        report: Json = world.evaluate(suppress_errors=True).to_dict()
        return report

    def close(self, task_id: str) -> None:
        """``AppWorld.close``."""
        world = self.live.pop(task_id, None)
        if world is not None:
            world.close()

    @staticmethod
    def _ask(function: Any, *args: Any, **given: Any) -> Any:
        """Call; AppWorld says with plain exceptions that its apps or data are missing."""
        try:
            return function(*args, **given)
        except ModuleNotFoundError as error:
            if not str(error.name).startswith("appworld."):
                raise
            raise CannotDo(
                f"AppWorld's apps are not unpacked: {error}", where="appworld", hint="run 'appworld install'"
            ) from error
        except Exception as error:
            if "doesn't exist" not in str(error):
                raise
            told = f"AppWorld's data are not there: {error}"
            raise CannotDo(told, where="appworld", hint=_DATA) from error


@final
@dataclass(frozen=True)
class Served:
    """``appworld serve environment``: one live task at a time; ``root`` holds its folder ``data``."""

    url: str
    root: Path

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise BadInput(f"{self.url!r} is not the address of a server", where="appworld", hint=HOW)

    @property
    def key(self) -> str:
        """The server."""
        return self.url

    def version(self) -> str:
        """As the server's own description says."""
        return str(self._get("/openapi.json").get("info", {}).get("version", "unknown"))

    def task_ids(self, dataset: str) -> list[str]:
        """From the dataset's file, which the server does not list; suffixes after ``:`` are tags."""
        file = self.root / "data" / "datasets" / f"{dataset}.txt"
        if not file.is_file():
            raise CannotDo(f"there is no file {file}", where="appworld", hint=f"{_DATA}, or give root=FOLDER")
        lines = file.read_text(encoding="utf-8").splitlines()
        return [line.strip().split(":")[0] for line in lines if line.strip()]

    def show(self, task_id: str) -> Json:
        """``GET /tasks/ID``."""
        told: Json = self._get(f"/tasks/{quote(task_id)}")["output"]
        return told

    def open(self, task_id: str, experiment: str) -> None:
        """``POST /initialize``."""
        self._post("initialize", task_id=task_id, experiment_name=experiment)

    def execute(self, task_id: str, code: str) -> str:
        """``POST /execute``."""
        return str(self._post("execute", task_id=task_id, code=code))

    def completed(self, task_id: str) -> bool:
        """``POST /task_completed``."""
        return bool(self._post("task_completed", task_id=task_id))

    def evaluate(self, task_id: str) -> Json | None:
        """``POST /evaluate``; None where the server cannot, as for a task without ground truth."""
        try:
            report: Json = self._post("evaluate", task_id=task_id, suppress_errors=True)
        except ServerError as error:
            if not isinstance(error.__cause__, urllib.error.HTTPError) or error.__cause__.code != 500:
                raise
            return None
        return report

    def close(self, task_id: str) -> None:
        """``POST /close``."""
        self._post("close", task_id=task_id)

    def _get(self, path: str) -> Json:
        return self._send(urllib.request.Request(self.url.rstrip("/") + path))

    def _post(self, path: str, **body: Any) -> Any:
        request = urllib.request.Request(
            f"{self.url.rstrip('/')}/{path}",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        return self._send(request)["output"]

    def _send(self, request: urllib.request.Request) -> Json:
        where = request.full_url
        try:
            with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:
                told: Json = json.loads(answer.read())
        except urllib.error.HTTPError as error:
            told_ = error.read().decode("utf-8", "replace")[:300]
            raise ServerError(
                f"the AppWorld server answered {error.code}: {told_}",
                where=where,
                hint=f"its own log says more; if its data are missing, {_DATA}",
            ) from error
        except (OSError, ValueError) as error:
            raise ServerError(
                f"no answer from the AppWorld server: {error}", where=where, hint=HOW
            ) from error
        return told
