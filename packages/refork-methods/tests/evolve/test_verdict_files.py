import json
import struct
import sys
import zipfile
import zlib

import pytest
import zstandard

from refork.errors import BadInput, Mismatch, MissingExtra
from refork_methods.evolve.inspect_log import read_log
from refork_methods.evolve.verdict_files import (
    read_anchor,
    read_items,
    read_sources,
    read_verdicts,
    verdict_value,
)


def lines(file, *rows):
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def log(values, options=None, epochs=1, output="no", status="success"):
    """A log as inspect_ai writes it: of each sample the parts that are read, and others around them."""
    samples = [
        {
            "id": f"s{i}", "epoch": epoch + 1, "input": "q", "target": "no", "metadata": {"source": "ai"},
            "output": {"model": "m", "choices": [{"message": {"content": output}}], "completion": output},
            "scores": {"strict": {"value": value, "explanation": "x", "history": []}},
        }
        for epoch in range(epochs)
        for i, value in enumerate(values)
    ]  # fmt: skip
    scorers = [{"name": "strict", "options": options or {}, "metrics": [], "metadata": {}}]
    head = {"version": 2, "status": status, "eval": {"task": "t", "scorers": scorers}, "plan": {}}
    return head | {"samples": samples}


def test_rows_become_verdicts_with_a_place_as_id(tmp_path):
    file = lines(
        tmp_path / "v.jsonl",
        {"item": 3, "judge": "j", "value": True, "source": "ai"},
        {"item": "b", "judge": "j", "value": 0, "id": "x7", "comment": "kept out"},
        {"item": "c", "judge": "j", "value": 0, "id": None},
        {"item": "d", "judge": "j", "value": 0, "id": 0},
    )
    one, two, three, four = read_verdicts([file])
    assert (three.id, four.id) == (f"{file}:3", "0")
    assert (one.id, one.item, one.value, one.source) == (f"{file}:1", "3", 1, "ai")
    assert (two.id, two.item, two.value, two.source) == ("x7", "b", 0, None)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"item": "a", "value": 1}, "judge and item"),
        ({"judge": "j", "value": 1}, "judge and item"),
        ({"judge": "j", "item": "a"}, "value"),
        ({"judge": "j", "item": "a", "value": 0.7}, "not 0 or 1"),
        ({"judge": "j", "item": "a", "value": "good"}, "not a verdict"),
        ({"judge": "j", "item": "a", "value": None}, "not a verdict"),
    ],
)
def test_rows_that_are_no_verdicts_name_their_line(tmp_path, row, words):
    file = lines(tmp_path / "v.jsonl", {"item": "a", "judge": "j", "value": 1}, row)
    with pytest.raises(BadInput, match=words) as caught:
        read_verdicts([file])
    assert "v.jsonl:2" in str(caught.value)


def test_values_and_thresholds():
    assert [verdict_value(v, "") for v in ("C", "I", "N", True, False, 1, 0, 1.0)] == [1, 0, 0, 1, 0, 1, 0, 1]
    assert [verdict_value(v, "", 0.5) for v in (0.5, 0.49, 7, "C")] == [1, 0, 1, 1]
    for bad in ("P", float("nan"), [1], {"a": 1}):
        with pytest.raises(BadInput):
            verdict_value(bad, "", 0.5)


def test_logs_in_json_and_zip_say_the_same(tmp_path):
    told = log(["C", "I", True, 0])
    (tmp_path / "a.json").write_text(json.dumps(told))
    packed = tmp_path / "b.eval"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("header.json", json.dumps({k: v for k, v in told.items() if k != "samples"}))
        for sample in told["samples"]:
            file.writestr(f"samples/{sample['id']}_epoch_1.json", json.dumps(sample))
    plain, zipped = read_verdicts([tmp_path / "a.json"]), read_verdicts([packed])
    assert [(v.judge, v.item, v.value, v.source) for v in plain] == [
        ("strict", f"s{i}", value, "ai") for i, value in enumerate((1, 0, 1, 0))
    ]
    assert [(v.item, v.value) for v in plain] == [(v.item, v.value) for v in zipped]


def test_a_scorer_with_options_is_another_judge_and_an_epoch_another_item(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(log([1], {"model": "x"}, epochs=2)))
    (tmp_path / "b.json").write_text(json.dumps(log([1], {"model": "y"})))
    found = read_verdicts([tmp_path])
    assert [v.item for v in found] == ["s0@1", "s0@2", "s0"]
    assert len({v.judge for v in found}) == 2
    assert all(v.judge.startswith("strict#") for v in found)


def test_logs_of_different_work_are_not_compared(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(log([1])))
    (tmp_path / "b.json").write_text(json.dumps(log([1], output="yes")))
    with pytest.raises(Mismatch, match="another output"):
        read_verdicts([tmp_path / "a.json", tmp_path / "b.json"])


def test_logs_that_tell_nothing_are_refused(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(log([], status="error")))
    with pytest.raises(BadInput, match="status 'error'"):
        read_verdicts([tmp_path / "a.json"])
    (tmp_path / "b.eval").write_text("no zip")
    with pytest.raises(BadInput, match="not JSON"):
        read_verdicts([tmp_path / "b.eval"])
    (tmp_path / "c.eval").write_text("{}")
    with pytest.raises(BadInput, match="not an inspect_ai log"):
        read_verdicts([tmp_path / "c.eval"])
    with zipfile.ZipFile(tmp_path / "d.eval", "w") as file:
        file.writestr("header.json", "{}")
    with pytest.raises(BadInput, match="no score"):
        read_verdicts([tmp_path / "d.eval"])


def zstandard_log(place, told, spoil=lambda name, data: data):
    """The log as inspect_ai's recent releases pack it: ZIP entries with Zstandard inside."""
    parts = {"header.json": {k: v for k, v in told.items() if k != "samples"}}
    parts |= {f"samples/{n}_epoch_1.json": sample for n, sample in enumerate(told["samples"])}
    pack = zstandard.ZstdCompressor().compress
    plain = {name: json.dumps(part).encode() for name, part in parts.items()}
    with zipfile.ZipFile(place, "w", zipfile.ZIP_STORED) as file:
        for name, data in plain.items():
            file.writestr(name, spoil(name, pack(data)))
    whole = bytearray(place.read_bytes())
    with zipfile.ZipFile(place) as file:
        entries, at = file.infolist(), file.start_dir
    for info in entries:
        data = plain[info.filename]
        told_of = struct.pack("<LLL", zlib.crc32(data), info.compress_size, len(data))
        for method, sums in ((info.header_offset + 8, info.header_offset + 14), (at + 10, at + 16)):
            whole[method] = 93
            whole[sums : sums + 12] = told_of
        at += 46 + len(info.filename)
    place.write_bytes(bytes(whole))
    return place


def test_logs_packed_with_zstandard_are_read(tmp_path):
    told = log([1, 0, 1])
    (tmp_path / "a.json").write_text(json.dumps(told))
    packed = zstandard_log(tmp_path / "b.eval", told)
    rows = [(v.judge, v.item, v.value) for v in read_log(tmp_path / "a.json")]
    assert rows == [(v.judge, v.item, v.value) for v in read_log(packed)]
    assert len(rows) == 3


@pytest.mark.parametrize("spoil", [
    lambda name, data: data[:-3],
    lambda name, data: b"no zstandard" + data,
    lambda name, data: zstandard.ZstdCompressor().compress(bytes(1 << 20)),
])  # fmt: skip
def test_damaged_entries_are_refused(tmp_path, spoil):
    with pytest.raises(BadInput, match="not a whole inspect_ai log"):
        list(read_log(zstandard_log(tmp_path / "z.eval", log([1]), spoil)))


def test_without_the_package_it_says_what_to_install(tmp_path, monkeypatch):
    file = zstandard_log(tmp_path / "z.eval", log([1]))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(MissingExtra, match="zstandard"):
        list(read_log(file))


def test_folders_and_nothing(tmp_path):
    with pytest.raises(BadInput, match="in this folder"):
        read_verdicts([tmp_path])
    with pytest.raises(BadInput, match="no verdicts"):
        read_verdicts([lines(tmp_path / "e.jsonl")])


def test_anchors(tmp_path):
    file = lines(tmp_path / "a.jsonl", {"id": "x", "label": 1, "source": "ai"}, {"item": 2, "label": 0})
    assert read_anchor(file) == {"x": 1, "2": 0}
    assert read_sources(file) == {"x": "ai"}
    assert read_anchor(lines(tmp_path / "d.jsonl", {"id": None, "item": "y", "label": 1})) == {"y": 1}
    for row, words in (
        ({"id": "x", "label": "good"}, "label is 'good'"),
        ({"label": 1}, "names its item"),
        ({"id": "x", "label": 1}, "has a label already"),
    ):
        with pytest.raises(BadInput, match=words):
            read_anchor(lines(tmp_path / "b.jsonl", {"id": "x", "label": 0}, row))
    with pytest.raises(BadInput, match="empty"):
        read_anchor(lines(tmp_path / "c.jsonl"))


def test_lists_of_items(tmp_path):
    (tmp_path / "seen.txt").write_text("a1\n\n a2 \n")
    assert read_items(tmp_path / "seen.txt") == ["a1", "a2"]
    assert read_items(lines(tmp_path / "seen.jsonl", {"id": "a1"}, {"item": "b"})) == ["a1", "b"]
