"""Logs of inspect_ai: of its mock model (``fixtures/generate_inspect.py``), killed, cut, and real ones."""

from __future__ import annotations

import io
import json
import random
import zipfile
from pathlib import Path

import pytest

from refork.errors import BadInput
from refork.formats import import_file, reader_for
from refork.formats.archive import ZSTANDARD
from refork.formats.inspect_ai import InspectAI
from refork.tree import Tree
from refork.tree.load import Loader
from support.foreign_logs import FIXTURES, REAL, unpacked


def read(path: Path):
    tree = Tree.memory()
    reader = reader_for(path)
    assert reader.name == "inspect"
    return tree, import_file(tree, path, reader)


@pytest.fixture
def plain(tmp_path):
    """The JSON form of the log."""
    return unpacked("inspect.json", tmp_path)


def test_the_fixture_is_packed_with_zstandard():
    with zipfile.ZipFile(FIXTURES / "inspect.eval") as packed:
        assert {info.compress_type for info in packed.infolist()} == {ZSTANDARD}


def test_a_log_is_walks_with_scores_calls_and_costs():
    tree, found = read(FIXTURES / "inspect.eval")
    trajectories = list(tree.paths(tree.leaves()))
    assert len(trajectories) == 4
    assert len(list(tree.tasks())) == 2  # two samples, two epochs each
    lamp = next(trajectory for trajectory in trajectories if trajectory.leaf.extra["line"]["id"] == "lamp")
    assert [s.node.kind for s in lamp] == ["task", "action", "observation", "action", "observation"]
    first, second = lamp.steps[1].node, lamp.steps[3].node
    assert first.policy == "mockllm/model"
    assert first.finish == "stop"
    assert first.cost.tokens_in > 0
    call = first.message["tool_calls"][0]["function"]
    assert (call["name"], json.loads(call["arguments"])) == ("look", {"at": "the door"})
    assert second.message["reasoning_content"] == "It must be the lamp."
    assert second.message["content"] == "I see."
    seen = lamp.steps[2].node
    assert seen.text == "The room is dark. " * 8 + "You look at the door."
    scores = {(s.name, s.value, s.reason) for s in tree.scores(lamp.leaf)}
    assert scores == {
        ("includes", 1.0, "a lamp"),
        ("parts/short", 1.0, "counted"),
        ("parts/length", 2.5, "counted"),
    }
    assert lamp.leaf.extra["line"]["eval"]["model"] == "mockllm/model"
    assert lamp.leaf.extra["line"]["metadata"] == {"level": 2}
    kinds = {note.what for note in found.remarks}
    assert kinds == {"events other than model calls", "token ids: the format records none"}
    assert list(tree.verify()) == []


def test_both_forms_and_the_killed_run_are_one_tree(plain):
    tree, _ = read(FIXTURES / "inspect.eval")
    ids = {node.id for node in tree.walk()}
    killed, found = read(FIXTURES / "inspect-killed.eval")
    assert {node.id for node in killed.walk()} == ids
    assert any("was cut" in note.what for note in found.remarks)
    again = import_file(tree, plain, InspectAI())
    said = {w.leaf.extra["line"]["uuid"]: [s.text for s in w] for w in tree.paths(tree.leaves())}
    assert len(said) == 4
    assert again.read["draft"] == 20


@pytest.mark.parametrize("part", [0.4, 0.6, 0.9])
def test_cut_files_are_read_up_to_there(plain, tmp_path, part):
    for source in (FIXTURES / "inspect.eval", plain):
        raw = source.read_bytes()
        file = tmp_path / f"cut-{source.name}"
        file.write_bytes(raw[: int(len(raw) * part)])
        tree, found = read(file)
        assert 0 < len(list(tree.leaves())) <= 4
        assert found.count("skipped") + found.count("lost") > 0


def test_a_file_cut_before_its_first_sample_is_refused(plain, tmp_path):
    """Nothing was read of it, and that is no success."""
    archive = (FIXTURES / "inspect.eval").read_bytes()
    with zipfile.ZipFile(FIXTURES / "inspect.eval") as packed:
        first = min(i.header_offset for i in packed.infolist() if i.filename.startswith("samples/"))
    listed = plain.read_bytes()
    for name, raw in (
        ("cut.eval", archive[: first + 40]),
        ("cut.json", listed[: listed.index(b'"samples"') + 60]),
    ):
        file = tmp_path / name
        file.write_bytes(raw)
        with pytest.raises(BadInput, match=r"cut|end") as caught:
            read(file)
        assert str(file) in str(caught.value.where)


def test_a_journal_without_a_header_names_the_evaluation(tmp_path):
    """What is left of a run that was killed between two writes of a whole archive."""
    with (
        zipfile.ZipFile(REAL / next(iter(real()), "none"))
        if real()
        else pytest.skip("REFORK_REAL_LOGS names no folder of real logs") as old
    ):
        file = tmp_path / "killed.eval"
        with zipfile.ZipFile(file, "w") as new:
            for name in old.namelist():
                if name != "header.json" and "summaries" not in name:
                    new.writestr(name, old.read(name))
    tree, found = read(file)
    leaf = next(iter(tree.leaves()))
    assert leaf.extra["line"]["eval"]["task"]
    assert any("results of the evaluation" in note.what for note in found.remarks)


def real() -> list[str]:
    return sorted(file.name for file in REAL.glob("inspect-*.eval"))


@pytest.mark.parametrize(
    "name",
    real()
    or [pytest.param("", marks=pytest.mark.skip(reason="REFORK_REAL_LOGS names no folder of real logs"))],
)
def test_real_logs_are_read(name):
    tree, found = read(REAL / name)
    assert found.count("skipped") == 0
    assert len(list(tree.leaves())) > 0
    assert list(tree.verify()) == []


def archive(tmp_path, sample: object, name: str = "samples/1_epoch_1.json") -> Path:
    file = tmp_path / "log.eval"
    with zipfile.ZipFile(file, "w") as packed:
        packed.writestr(
            "_journal/start.json", json.dumps({"version": 2, "eval": {"task": "t", "run_id": "r"}})
        )
        packed.writestr(name, sample if isinstance(sample, str) else json.dumps(sample))
    return file


def said(number: int, text: str) -> dict[str, object]:
    return {"id": f"m{number}", "role": "assistant", "content": text}


def test_calls_outside_the_last_context_are_walks_of_their_own(tmp_path):
    """A pooled input with two ranges, and a context that was compacted before the end."""
    pool = [{"id": f"u{n}", "role": "user", "content": f"say {n}"} for n in range(3)]
    old, new = said(1, "one"), said(2, "two")

    def call(refs, message):
        output = {"choices": [{"message": message, "stop_reason": "stop"}], "usage": {"input_tokens": 3}}
        return {"event": "model", "model": "m", "input": [], "input_refs": refs, "output": output}

    sample = {
        "id": 1,
        "epoch": 1,
        "messages": [pool[2], new],
        "events": [call([[0, 1], [1, 2]], old), call([[2, 3]], new)],
        "events_data": {"messages": pool, "calls": []},
        "scores": {"grade": {"value": "C"}, "words": {"value": "fine"}},
    }
    tree, found = read(archive(tmp_path, sample))
    trajectories = {tuple(s.text for s in trajectory) for trajectory in tree.paths(tree.leaves())}
    assert trajectories == {("say 2", "two"), ("say 0\nsay 1", "one")}
    assert [(s.name, s.value) for s in tree.scores()] == [("grade", 1.0)]
    assert any("score of words" in note.what for note in found.remarks)
    sample["events"][0]["input_refs"] = [[0, 9]]
    with pytest.raises(BadInput, match="of a pool of 3"):
        read(archive(tmp_path, sample))


def test_a_sample_that_failed_has_its_error(tmp_path):
    sample = {
        "id": 1,
        "messages": [{"role": "user", "content": "q"}],
        "error": {"message": "broke", "traceback": "t"},
    }
    tree, _ = read(archive(tmp_path, sample))
    assert next(iter(tree.leaves())).error == "broke"


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "samples/../../x.json", "C:/x", "..\\x"])
def test_names_that_lead_out_are_refused(tmp_path, name):
    with pytest.raises(BadInput, match="leads out of it"):
        read(archive(tmp_path, {}, name))


def test_bombs_are_refused(tmp_path, monkeypatch):
    file = tmp_path / "log.eval"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("_journal/start.json", "{}")
        packed.writestr("samples/1_epoch_1.json", b" " * (40 << 20))
    monkeypatch.setattr("refork.formats.archive.RATIO", 100)
    with pytest.raises(BadInput, match="unpacks to"):
        read(file)
    monkeypatch.setattr("refork.formats.archive.ENTRIES", 1)
    with pytest.raises(BadInput, match="entries"):
        read(file)


def test_an_entry_that_lies_about_its_size_is_not_unpacked(tmp_path):
    """The directory promises ten bytes; no more than eleven are ever made."""
    raw = bytearray()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("_journal/start.json", "{}")
        packed.writestr("samples/1_epoch_1.json", b"[" * 1000)
    raw += out.getvalue()
    at = raw.rindex(b"PK\x01\x02")
    raw[at + 24 : at + 28] = (10).to_bytes(4, "little")
    file = tmp_path / "log.eval"
    file.write_bytes(raw)
    with pytest.raises(BadInput, match="not what the archive's directory promises"):
        read(file)


def test_an_archive_without_samples_has_nothing(tmp_path):
    file = tmp_path / "log.eval"
    with zipfile.ZipFile(file, "w") as packed:
        packed.writestr("_journal/start.json", "{}")
    tree = Tree.memory()
    with tree._db.transaction():
        assert Loader(tree._db).load(InspectAI().read(file)).nodes == 0


@pytest.mark.parametrize("name", ["inspect.eval", "inspect-killed.eval"])
def test_no_damage_to_an_archive_is_more_than_bad_input(tmp_path, name):
    """120 seeded changes of bytes and cuts."""
    dice, good = random.Random(name), (FIXTURES / name).read_bytes()
    file = tmp_path / "log.eval"
    refused = []
    for _ in range(120):
        raw = bytearray(good[: dice.randrange(5, 2 * len(good))])
        for _ in range(dice.randrange(4)):
            raw[dice.randrange(4, len(raw))] = dice.randrange(256)
        file.write_bytes(raw)
        try:
            list(InspectAI().read(file))
        except BadInput as error:
            refused.append(str(error.where))
    assert all(str(file) in where for where in refused)
    assert len(refused) < 120


def test_values_of_metrics_and_totals_of_usage_are_kept(tmp_path):
    """What the log says of all samples together stands with the end of each trajectory."""
    body = json.loads(unpacked("inspect.json", tmp_path).read_text())
    usage = {"mockllm/model": {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}}
    body["stats"] = {**(body.get("stats") or {}), "model_usage": usage}
    metrics = {"accuracy": {"name": "accuracy", "value": 0.25}, "stderr": {"name": "stderr", "value": 0.125}}
    body["results"] = {"scores": [{"name": "match", "scorer": "match", "metrics": metrics}]}
    file = tmp_path / "log.json"
    file.write_text(json.dumps(body))
    with Tree.memory() as tree:
        tree.load(reader_for(file, "inspect").read(file))
        told = [node.extra["line"]["eval"] for node in tree.leaves() if "line" in node.extra]
    assert told
    for one in told:
        assert one["metrics"] == {"match/accuracy": 0.25, "match/stderr": 0.125}
        assert one["model_usage"] == usage
