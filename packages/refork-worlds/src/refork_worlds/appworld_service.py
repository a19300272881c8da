"""Two ways to AppWorld: its package in this process, or its environment server."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, final
from urllib.parse import quote

from refork.errors import BadInput, CannotDo, ServerError
from refork.types import Json

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
            if "500" not in error.what:
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
