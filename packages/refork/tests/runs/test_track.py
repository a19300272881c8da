"""A tracker is told every step of a curve once, over interruptions, and nothing leaves this machine."""

import json
import re
import struct
import sys
import time

import pytest

from refork import registry
from refork.errors import BadInput, MissingExtra, install_command
from refork.runs.observe import observed
from refork.runs.record import records
from refork.runs.track import Follower, Tracker, parse_track, plain_metrics


class Told:
    """A tracker of this test."""

    def __init__(self, handle):
        self.handle = handle or "made"
        self.steps, self.closed = [], False

    def log(self, step, metrics):
        self.steps.append((step, dict(metrics)))

    def close(self):
        self.closed = True


@pytest.fixture
def told(monkeypatch):
    made = []

    def opener(where, out, name, handle):
        made.append(Told(handle))
        return made[-1]

    registry.register("trackers", "told", opener)
    yield made
    registry.unregister("trackers", "told")


def write(folder, steps, tail=""):
    lines = [json.dumps({"step": n, "loss": 1 / n}) for n in steps]
    (folder / "metrics.jsonl").write_text("".join(line + "\n" for line in lines) + tail)


def test_the_protocol():
    assert isinstance(Told(None), Tracker)


def test_every_step_is_told_once(tmp_path, told):
    follower = Follower("told", tmp_path)
    write(tmp_path, [1, 2], tail='{"step": 3, "lo')
    follower.poll()
    follower.poll()
    write(tmp_path, [1, 2, 3])
    follower.close()
    assert told[0].steps == [(1, {"loss": 1.0}), (2, {"loss": 0.5}), (3, {"loss": 1 / 3})]
    assert told[0].closed


def test_a_resumed_run_goes_on_with_the_same_curve(tmp_path, told):
    write(tmp_path, [1, 2, 3])
    Follower("told", tmp_path).close()
    write(tmp_path, [1, 2])  # it takes back what lies after its checkpoint
    again = Follower("told", tmp_path)
    again.poll()
    write(tmp_path, [1, 2, 3, 4])
    again.close()
    assert [step for step, _ in told[1].steps] == [3, 4]
    assert told[1].handle == "made"


def test_another_place_is_another_curve(tmp_path, told, monkeypatch):
    write(tmp_path, [1])
    Follower("told", tmp_path).close()
    Follower("told:there", tmp_path).close()
    assert [step for one in told for step, _ in one.steps] == [1, 1]


def test_a_run_without_a_curve_shows_its_progress(tmp_path, told, monkeypatch):
    monkeypatch.setenv("REFORK_HOME", str(tmp_path / "home"))
    with observed("grow") as run, run.following("told", tmp_path / "out"):
        run("rollouts", 4, 8, tokens=12)
    assert told[0].steps[0][0] == 4
    assert told[0].steps[0][1]["rollouts/tokens"] == 12


def test_a_tracker_that_breaks_ends_no_work(tmp_path, told, monkeypatch):
    monkeypatch.setenv("REFORK_HOME", str(tmp_path / "home"))
    write(tmp_path, [1])
    with observed("grow") as run, run.following("told", tmp_path):
        told[0].log = None
        run("s", 1, 2)
        assert "the tracker told broke" in run.complaint
    with pytest.raises(BadInput, match="none is named"), observed("x") as run, run.following("told", None):
        pass


def test_after_a_tracker_broke_the_record_still_says_how_the_run_ended(tmp_path, told, monkeypatch):
    monkeypatch.setenv("REFORK_HOME", str(tmp_path / "home"))
    write(tmp_path, [1])
    with observed("grow") as run, run.following("told", tmp_path):
        told[0].log = None
        run("s", 1, 2)
    (record,) = records()
    assert (record.state, record.status) == ("done", 0)


@pytest.mark.parametrize(
    "marker",
    [b"{", b"[]", b"null", b'{"handle": "old", "told": {}}', b'{"asked": "told", "handle": 7}', b"\xff\xfe"],
)
def test_a_damaged_marker_is_refused_before_the_work(tmp_path, told, monkeypatch, marker):
    monkeypatch.setenv("REFORK_HOME", str(tmp_path / "home"))
    file = tmp_path / ".track-told.json"
    file.write_bytes(marker)
    with observed("grow") as run, pytest.raises(BadInput, match="cannot be read") as caught:
        run.following("told", tmp_path).__enter__()
    assert str(file) in str(caught.value)


def test_a_missing_marker_and_one_of_another_place_are_normal(tmp_path, told):
    first = Follower("told", tmp_path)
    first.close()
    second = Follower("told:there", tmp_path)
    second.close()
    assert first.notes == second.notes == []


def test_a_damaged_line_of_a_curve_is_said_and_those_behind_it_are_told(tmp_path, told):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "a": 1}\n{"st\n{"step": 3, "a": 3}\n{"step": 4, "')
    follower = Follower("told", tmp_path)
    follower.poll()
    follower.close()
    assert [step for step, _ in told[0].steps] == [1, 3]
    (note,) = follower.notes
    assert note == f"{tmp_path / 'metrics.jsonl'}: lines that are no JSON are not shown: 2"


def test_what_may_be_asked():
    assert parse_track("wandb:me/lab") == ("wandb", "me/lab")
    assert parse_track("mlflow:http://h:5000") == ("mlflow", "http://h:5000")
    for wrong in ("", "excel", "wandb:", "Wandb"):
        with pytest.raises(BadInput, match="no tracker"):
            parse_track(wrong)


@pytest.mark.parametrize(("name", "extra"), [("wandb", "wandb"), ("mlflow", "mlflow"), ("trackio", "track")])
def test_what_is_not_installed_names_its_command(tmp_path, monkeypatch, name, extra):
    for module in (name, *(m for m in sys.modules if m.partition(".")[0] == name)):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=re.escape(install_command(extra))):
        Follower(name, tmp_path)


def test_numbers_only():
    assert plain_metrics({"a": 1, "b": True, "c": float("nan"), "d": "x", "e": 2.5}) == {"a": 1.0, "e": 2.5}


def test_tensorboard_has_the_curve(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    write(tmp_path, [1, 2])
    Follower("tensorboard", tmp_path).close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(e.step, round(e.value, 3)) for e in events.Scalars("loss")] == [(1, 1.0), (2, 0.5)]


@pytest.mark.filterwarnings("default")  # what another package warns of is not ours
def test_mlflow_keeps_one_run_in_a_folder(tmp_path):
    pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    from mlflow.tracking import MlflowClient

    write(tmp_path, [1])
    Follower("mlflow", tmp_path).close()
    write(tmp_path, [1, 2])
    Follower("mlflow", tmp_path).close()
    client = MlflowClient(tracking_uri=(tmp_path / "mlflow").as_uri())
    (run,) = client.search_runs([client.get_experiment_by_name("refork").experiment_id])
    history = client.get_metric_history(run.info.run_id, "loss")
    assert [(m.step, m.value) for m in history] == [(1, 1.0), (2, 0.5)]
    assert (run.info.status, run.info.run_name) == ("FINISHED", tmp_path.name)
    with pytest.raises(BadInput, match="cannot write"):
        Follower("mlflow:nosuchscheme://x", tmp_path)


def history(data, kind):
    """Steps and losses of an offline run's file: a log in LevelDB's format, here of one block."""
    at = 7
    while at < len(data):
        _, length, whole = struct.unpack_from("<IHB", data, at)
        assert whole == 1
        record = kind.FromString(data[at + 7 : at + 7 + length])
        at += 7 + length
        values = {i.key or i.nested_key[0]: json.loads(i.value_json) for i in record.history.item}
        if values:
            yield values["_step"], values["loss"]


@pytest.mark.filterwarnings("default")
def test_wandb_is_offline_unless_it_is_told(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="the extra wandb is not installed")
    from wandb.proto.wandb_internal_pb2 import Record

    monkeypatch.delenv("WANDB_MODE", raising=False)
    write(tmp_path, [1, 2])
    Follower("wandb:lab", tmp_path).close()
    (file,) = (tmp_path / "wandb").rglob("run-*.wandb")
    assert "offline-run" in str(file)
    deadline = time.monotonic() + 900  # its own process writes the file, after we have closed it
    while len(steps := list(history(file.read_bytes(), Record))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert steps == [(1, 1.0), (2, 0.5)]


@pytest.mark.filterwarnings("default")
def test_trackio_keeps_a_project_here(tmp_path, monkeypatch):
    trackio = pytest.importorskip("trackio", reason="the extra track is not installed")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    assert trackio is not None
    write(tmp_path, [1, 2])
    Follower("trackio:lab", tmp_path).close()


def test_a_tracker_of_a_users_file(tmp_path):
    (tmp_path / "mine.py").write_text(
        "class Mine:\n"
        "    def __init__(self, where, out, name, handle):\n"
        "        self.where, self.handle, self.steps = where, handle or 'first', []\n"
        "    def log(self, step, metrics): self.steps.append(step)\n"
        "    def close(self): pass\n"
    )
    out = tmp_path / "out"
    out.mkdir()
    write(out, [1, 2])
    follower = Follower(f"{tmp_path}/mine.py:Mine:there", out)
    follower.close()
    assert (follower.tracker.where, follower.tracker.steps) == ("there", [1, 2])
    write(out, [1, 2, 3])
    again = Follower(f"{tmp_path}/mine.py:Mine:there", out)
    again.close()
    assert (again.tracker.handle, again.tracker.steps) == ("first", [3])
