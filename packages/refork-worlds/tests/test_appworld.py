"""The AppWorld adapter against a small imitation of the package, and of its environment server.

The imitation has the names, signatures and messages of appworld 0.1.3.post1: one live task per process,
``execute``, ``task_completed``, ``evaluate().to_dict()``, ``Task.load``, the server's routes and plain 500s.
"""

from __future__ import annotations

import datetime
import gc
import io
import json
import sys
import threading
import types
import urllib.error
import urllib.request
from email.message import Message
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from refork.errors import BadInput, CannotDo, ReplayDiverged, ServerError
from refork.worlds import Task, World, open_world, resume
from refork_worlds.appworld import Served, code_in, scenarios_of

IDS = {"train": ["aa_1", "aa_2", "aa_3", "bb_1"], "dev": ["cc_1", "cc_2"]}
FAIL, DONE = "print(nothing)", "apis.supervisor.complete_task()"


class Report:
    def __init__(self, success):
        self.success = success

    def to_dict(self):
        one = {"requirement": "the note is there", "label": None}
        return {
            "success": self.success, "difficulty": 1, "num_tests": 2, "passes": [one] * (1 + self.success),
            "failures": [] if self.success else [{**one, "trace": "AssertionError"}],
        }  # fmt: skip


class FakeAppWorld:
    """Adds up numbers that the code names: a Python session whose variables no database holds."""

    live: FakeAppWorld | None = None
    opened = 0
    luck = 0

    def __init__(self, task_id, experiment_name="default"):
        if task_id not in {name for ids in IDS.values() for name in ids}:
            raise Exception(f"The task directory (/data/tasks/{task_id}) doesn't exist.")
        FakeAppWorld.close_all()
        self.task_id, self.sum, self.over = task_id, 0, False
        self.task = types.SimpleNamespace(ground_truth=None if task_id == "cc_2" else object())
        FakeAppWorld.live = self
        FakeAppWorld.opened += 1
        assert experiment_name.startswith("refork-")

    def execute(self, code):
        assert FakeAppWorld.live is self, "sqlite3.ProgrammingError: Cannot operate on a closed database."
        if code == DONE:
            self.over = True
            return "Execution successful."
        if code == FAIL:
            return "Execution failed. Traceback:\nNameError: name 'nothing' is not defined"
        if code == "lucky":
            FakeAppWorld.luck += 1
            return str(FakeAppWorld.luck)
        self.sum += int(code)
        return str(self.sum)

    def task_completed(self):
        return self.over

    def evaluate(self, suppress_errors=True):
        if not self.task.ground_truth:
            raise Exception(
                f"This task ID {self.task_id} doesn't have a ground truth, so it can't be evaluated."
            )
        return Report(self.sum == 7)

    def close(self):
        if FakeAppWorld.live is self:
            FakeAppWorld.live = None

    @classmethod
    def close_all(cls):
        cls.live = None


def show(task_id):
    who = {"first_name": "Ann", "last_name": "Lee", "email": "a@l.com", "phone_number": "5551"}
    return types.SimpleNamespace(
        instruction=f"Make {task_id} seven.", supervisor=types.SimpleNamespace(**who),
        datetime=datetime.datetime(2023, 5, 18, 12, 0),
    )  # fmt: skip


@pytest.fixture
def package(monkeypatch):
    module, inner = types.ModuleType("appworld"), types.ModuleType("appworld.task")
    module.__version__ = "0.1.3.post1"
    module.AppWorld = FakeAppWorld
    module.load_task_ids = lambda dataset_name="train": list(IDS[dataset_name])
    inner.Task = types.SimpleNamespace(load=lambda task_id, load_ground_truth=True: show(task_id))
    monkeypatch.setitem(sys.modules, "appworld", module)
    monkeypatch.setitem(sys.modules, "appworld.task", inner)
    FakeAppWorld.opened = FakeAppWorld.luck = 0
    yield module
    gc.collect()


class Handler(BaseHTTPRequestHandler):
    """The routes of ``appworld serve environment``."""

    def log_message(self, *args):
        pass

    def answer(self, body, status=200):
        told = json.dumps(body).encode() if status == 200 else b"Internal Server Error"
        self.send_response(status)
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    def do_GET(self):
        if self.path == "/openapi.json":
            self.answer({"info": {"version": "0.1.3.post1"}})
        else:
            task = show(self.path.removeprefix("/tasks/"))
            self.answer({"output": {"instruction": task.instruction, "supervisor": vars(task.supervisor),
                                    "datetime": task.datetime.isoformat()}})  # fmt: skip

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        route, task = self.path.removeprefix("/"), body.pop("task_id")
        try:
            if route == "initialize":
                FakeAppWorld(task, **body)
                output = {}
            else:
                world = FakeAppWorld.live
                assert world is not None
                assert world.task_id == task
                output = getattr(world, route)(**body)
                output = output.to_dict() if route == "evaluate" else output
        except Exception:
            self.answer({}, 500)
        else:
            self.answer({"output": output})


@pytest.fixture
def server(tmp_path):
    folder = tmp_path / "data" / "datasets"
    folder.mkdir(parents=True)
    for name, ids in IDS.items():
        (folder / f"{name}.txt").write_text("\n".join([f"{ids[0]}:tag", *ids[1:], ""]))
    http = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, args=(0.01,))
    thread.start()
    FakeAppWorld.opened = FakeAppWorld.luck = 0
    yield f"url=http://127.0.0.1:{http.server_port}&root={tmp_path}"
    http.shutdown()
    thread.join()
    http.server_close()
    gc.collect()


@pytest.fixture(params=["imported", "served"])
def world(request):
    if request.param == "imported":
        request.getfixturevalue("package")
        return open_world("appworld:dev?turns=4")
    return open_world(f"appworld:dev?turns=4&{request.getfixturevalue('server')}")


def test_tasks_come_from_the_datasets(world):
    assert isinstance(world, World)
    assert open_world(world.name) == world
    train, held = world.tasks("train", 4), world.tasks("held-out", 2)
    assert sorted(task.data["task_id"] for task in train) == sorted(IDS["train"])
    assert sorted(task.data["task_id"] for task in held) == sorted(IDS["dev"])
    assert world.tasks("train", 2) == train[:2]
    assert "Ann Lee (a@l.com, 5551)" in train[0].prompt
    assert f"Task: Make {train[0].data['task_id']} seven." in train[0].prompt
    assert sorted(scenarios_of(train).values()) == ["aa", "aa", "aa", "bb"]
    assert world.version == "1+appworld-0.1.3.post1"
    with pytest.raises(BadInput, match="has 4 tasks, not 5"):
        world.tasks("train", 5)


def task_named(world, name) -> Task:
    return next(t for split, n in (("train", 4), ("held-out", 2)) for t in world.tasks(split, n)
                if t.data["task_id"] == name)  # fmt: skip


def test_code_runs_and_the_tests_grade(world):
    episode = world.start(task_named(world, "aa_1"), 0)
    assert episode.first.text == ""
    assert episode.step("I add.\n```python\n5\n```").text == "5"
    assert "NameError" in episode.step(FAIL).text
    assert episode.step("2").reward is None
    seen = episode.step(DONE)
    assert (seen.done, seen.reward) == (True, 1.0)
    assert seen.info == {"ending": "completed", "passed": 2, "tests": 2, "failed": []}
    assert episode.step("1") == seen
    episode.close()


def test_a_wrong_end_the_turn_limit_and_a_missing_truth(world):
    episode = world.start(task_named(world, "aa_1"), 0)
    seen = episode.step(DONE)
    assert (seen.done, seen.reward, seen.info["failed"]) == (True, 0.0, ["the note is there"])
    episode = world.start(task_named(world, "aa_2"), 0)
    seen = [episode.step("7"), *(episode.step("0") for _ in range(3))][-1]
    assert (seen.done, seen.reward, seen.info["ending"]) == (True, 0.0, "turns")
    episode = world.start(task_named(world, "cc_2"), 0)
    assert episode.step("7").done is False
    ungraded = episode.step(DONE)
    assert (ungraded.done, ungraded.reward) == (True, None)


def test_two_episodes_take_turns_in_the_one_seat_by_checked_replay(world):
    one, two = (world.start(task_named(world, name), 0) for name in ("aa_1", "aa_2"))
    assert [one.step("3").text, two.step("10").text, one.step("4").text, two.step("1").text] == [
        "3",
        "10",
        "7",
        "11",
    ]
    assert FakeAppWorld.opened == 6
    assert one.step(DONE).reward == 1.0
    assert two.step(DONE).reward == 0.0


def test_a_replay_that_answers_otherwise_is_named(world):
    one = world.start(task_named(world, "aa_1"), 0)
    assert one.step("lucky").text == "1"
    world.start(task_named(world, "aa_2"), 0)
    with pytest.raises(ReplayDiverged, match=r"turn 1.*'lucky'"):
        one.step("1")


def test_going_back_is_by_replay(world):
    task = task_named(world, "aa_3")
    episode = world.start(task, 0)
    said = ["1", "2"]
    seen = [episode.step(code).text for code in said]
    assert episode.snapshot() is None
    back, origin = resume(world, task, 0, said, seen)
    assert origin == "replayed"
    assert back.step("4").text == "7"
    with pytest.raises(CannotDo, match="no snapshots"):
        world.restore(task, b"")


def test_closing_gives_the_seat_back(world):
    episode = world.start(task_named(world, "aa_1"), 0)
    episode.close()
    episode.close()
    if "url" not in world.name:
        assert FakeAppWorld.live is None


def test_without_the_package_the_way_to_get_it_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "appworld", None)
    with pytest.raises(CannotDo, match="appworld install") as caught:
        open_world("appworld")
    assert "serve environment" in str(caught.value)


def test_missing_data_and_apps_are_told(package):
    world = open_world("appworld:dev")

    def no_data(dataset_name="train"):
        raise Exception("The task directory (/home/ana/data/tasks) doesn't exist.")

    package.load_task_ids = no_data
    with pytest.raises(CannotDo, match="appworld download data"):
        world.tasks("train", 1)

    def no_apps(**given):
        raise ModuleNotFoundError("No module named 'appworld.apps.admin'", name="appworld.apps.admin")

    package.AppWorld = no_apps
    with pytest.raises(CannotDo, match="run 'appworld install'"):
        world.start(Task("t", world.name, "train", "p", {"task_id": "aa_1"}), 0)

    def other(**given):
        raise RuntimeError("the database version is not compatible")

    package.AppWorld = other
    with pytest.raises(RuntimeError, match="not compatible"):
        world.start(Task("t", world.name, "train", "p", {"task_id": "aa_1"}), 0)


@pytest.mark.parametrize(("code", "report"), [(500, None), (404, "raises"), (502, "raises")])
def test_only_status_500_means_that_there_is_no_ground_truth(monkeypatch, code, report):
    def answer(request, timeout):
        raise urllib.error.HTTPError(request.full_url, code, "no", Message(), io.BytesIO(b"task 500_1"))

    monkeypatch.setattr(urllib.request, "urlopen", answer)
    service = Served("http://127.0.0.1:1", Path())
    if report is None:
        assert service.evaluate("500_1") is None
    else:
        with pytest.raises(ServerError, match=str(code)):
            service.evaluate("500_1")


def test_a_server_that_fails_or_is_not_there(server, tmp_path):
    world = open_world(f"appworld:dev?{server}")
    with pytest.raises(ServerError, match="answered 500"):
        world.start(Task("t", world.name, "train", "p", {"task_id": "zz_9"}), 0)
    with pytest.raises(ServerError, match="no answer"):
        _ = open_world("appworld:dev?url=http://127.0.0.1:1").version
    with pytest.raises(CannotDo, match="download data"):
        open_world(f"appworld:dev?url=http://127.0.0.1:1&root={tmp_path / 'none'}").tasks("train", 1)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("appworld:tests", "no held-out dataset"),
        ("appworld:dev?url=localhost", "not the address"),
        ("appworld:dev?url=http://x&turns=0", "at least 1"),
        ("appworld:dev?speed=3", "unknown option"),
    ],
)
def test_bad_specifications(spec, message):
    with pytest.raises(BadInput, match=message):
        open_world(spec)


def test_code_is_the_last_fenced_block_or_all():
    assert code_in("print(1)\n") == "print(1)"
    assert code_in("a\n```python\nx = 1\n```\nb\n```py\ny = 2\n```") == "y = 2"
    assert code_in("```\nx\n```") == "x"
