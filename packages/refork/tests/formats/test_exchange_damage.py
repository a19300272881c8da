"""Hostile and damaged files of every exchanged format: what is whole is read, and nothing breaks."""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refork.errors import BadInput
from refork.formats import reader_for, readers, writer_for
from refork.formats.otlp.writer import OTLPWriter
from refork.tree import Tree
from refork.tree.node import NewNode
from refork.tree.records import Position, Remark
from support.foreign_logs import FIXTURES, exported, unpacked
from support.fuzz_seeds import (
    ATIF,
    BATCH,
    CHAT,
    PAIR,
    ROW,
    RUN,
    SKYRL,
    SWE,
    TOOL,
    TRL,
    VERL,
    WORLD,
)

MINI = json.loads((FIXTURES / "mini-tools.traj.json").read_text())
TRACE = {"task": {"type": "T"}, "nodes": [{"message": {"role": "user", "content": "q"}}], "rewards": {}}


def lines(name):
    """The objects of a fixture."""
    return [json.loads(line) for line in (FIXTURES / name).read_text().splitlines()]


def packed(name, id_, trace):
    """The objects of a compressed fixture, of the trace ``t`` and the first with the id ``a``."""
    text = gzip.decompress((FIXTURES / f"{name}.gz").read_bytes()).decode()
    first = json.loads(text.splitlines()[0])
    text = text.replace(f'"{first[trace]}"', '"t"').replace(f'"{first[id_]}"', '"a"')
    return [json.loads(line) for line in text.splitlines()]


GOOD = {
    "agentworldbench": [WORLD],
    "art": lines("art.jsonl"),
    "atif": [ATIF],
    "langfuse": packed("langfuse-api.jsonl", "id", "traceId")[:4],
    "langsmith": [RUN, TOOL],
    "mlflow": [
        {"spans": [span | {"trace_id": "0" * 31 + "1"}]}
        for span in packed("mlflow-langchain.json", "info", "info")[0]["data"]["spans"]
        if "CHAT_MODEL" in str(span["attributes"])
    ],
    "mini-swe-agent": [MINI],
    "openai-chat": [{"messages": CHAT}],
    "openai-preference": [PAIR],
    "otlp": [BATCH],
    "skyrl": [*lines("skyrl-dump.jsonl"), SKYRL],
    "swe-agent": [SWE],
    "trl": [*TRL],
    "verifiers": [ROW, TRACE],
    "braintrust": packed("braintrust-spans.jsonl", "span_id", "root_span_id")[2:6],
    "phoenix": packed("phoenix-frame.jsonl", "context.span_id", "context.trace_id")[1:4],
    "weave": packed("weave-calls.jsonl", "id", "trace_id")[:4],
    "verl": [*lines("verl-dump.jsonl"), *VERL],
}
#: Formats whose files are lines of rows.
ROWS = ("trl", "verl", "skyrl", "art", "openai-preference", "agentworldbench")
READERS = {reader.name: reader for reader in readers() if reader.name in GOOD}
ODD = (
    None, 0, -1, 1e308, "", "x", "{", "[1]", [], {}, [1], {"a": 1}, [[]], [{}], "\ud800", 10**30, 10**350,
    True, float("nan"), float("inf"), {"role": "user"}, [None], "9" * 5000, 2**63, 0.5,
)  # fmt: skip


def places(value, path=()):
    """Every place of a document."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def load(reader, file):
    """A file read into a tree; whatever is wrong with it is a remark or a BadInput that names it."""
    tree = Tree.memory()
    try:
        records = list(reader.read(file))
    except BadInput as error:
        return None, [error] if str(file) in str(error.where) else pytest.fail(f"no place: {error}")
    tree.load(record for record in records if not isinstance(record, (Remark, Position)))
    assert list(tree.verify()) == []
    return tree, [record for record in records if isinstance(record, Remark)]


@pytest.mark.parametrize("name", sorted(GOOD))
def test_good_files_are_told_apart(name, tmp_path):
    file = tmp_path / ("log.traj.json" if name == "mini-swe-agent" else "log.jsonl")
    for form in ("lines", "indented"):
        if form == "lines":
            file.write_text("".join(json.dumps(body) + "\n" for body in GOOD[name]))
        else:
            file.write_text(json.dumps(GOOD[name][0], indent=2))
            if name in ROWS:
                continue
        reader = reader_for(file)
        assert reader.name == name
        tree, remarks = load(reader, file)
        assert len(tree) >= 2
        assert not [remark for remark in remarks if remark.kind == "skipped"]


@pytest.mark.parametrize("name", sorted(GOOD))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_no_change_of_a_file_breaks_its_reader(name, data, tmp_path_factory):
    """Up to three places of a good document changed to something odd, or taken away."""
    body = copy.deepcopy(data.draw(st.sampled_from(GOOD[name]), label="document"))
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from([one for one in places(body) if one]), label="place")
        holder = body
        for key in path[:-1]:
            holder = holder[key]
        if data.draw(st.booleans()):
            holder[path[-1]] = copy.deepcopy(data.draw(st.sampled_from(ODD), label="value"))
        else:
            del holder[path[-1]]
        if not body:
            return
    file = tmp_path_factory.mktemp("odd") / "log.jsonl"
    # Spans and runs belong to traces: the good one is of another trace.
    good = json.dumps(GOOD[name][0]).replace("0" * 15 + "1", "0" * 15 + "2").replace('"t"', '"u"')
    file.write_text(json.dumps(body) + "\n" + good.replace('"id": "a"', '"id": "z"') + "\n")
    tree, _ = load(READERS[name], file)
    assert tree is not None
    assert len(tree) >= 2


@pytest.mark.parametrize("name", sorted(GOOD))
def test_tools_may_be_anything(name, tmp_path):
    """What a file says of tools is read, or its line is skipped; the line behind it is read."""
    file = tmp_path / "log.jsonl"
    good = json.dumps(GOOD[name][0]).replace("0" * 15 + "1", "0" * 15 + "2").replace('"t"', '"u"')
    for document in GOOD[name]:
        named = [path for path in places(document) if path and path[-1] in ("tools", "tool_defs")]
        for path in named or [("tools",)]:
            for odd in ODD:
                body = copy.deepcopy(document)
                holder = body
                for key in path[:-1]:
                    holder = holder[key]
                holder[path[-1]] = odd
                file.write_text(json.dumps(body) + "\n" + good.replace('"id": "a"', '"id": "z"') + "\n")
                tree, _ = load(READERS[name], file)
                assert tree is not None
                assert len(tree) >= 2


@pytest.mark.parametrize("name", sorted(GOOD))
def test_cut_files_wrong_encodings_and_bombs(name, tmp_path):
    file = tmp_path / "log.jsonl"
    good = json.dumps(GOOD[name][0])
    for raw in (
        b"", b"\n\n", b"7\n", b"{}\n", b"\xff\xfe{\x00}\x00", good.encode("utf-16"), b"{}\n\xff\xff\n",
        b"[" * 100_000, b'{"a":' * 100_000, b'{"a": ' + b"9" * 100_000 + b"}", b"\x00" * 100, b"PK\x03\x04x",
        *(good.encode()[:cut] for cut in range(1, len(good), max(1, len(good) // 12))),
    ):  # fmt: skip
        file.write_bytes(raw)
        load(READERS[name], file)
    # What stands before and after a bad line is read.
    deep = b'{"a":' * 300 + b"1" + b"}" * 300
    file.write_bytes(b"\n".join([good.encode(), b"\xff\xff", deep, good.encode()[:-9], good.encode()]))
    tree, remarks = load(READERS[name], file)
    assert len(tree) >= 2
    assert sum(remark.kind == "skipped" for remark in remarks) == 3
    file.write_text("\ufeff" + good + "\n", encoding="utf-8")
    assert len(load(READERS[name], file)[0]) >= 2


@pytest.mark.parametrize("name", ["trl-completions.parquet", "art.parquet", "llm-0.26.db", "llm-0.36.db"])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_no_damage_of_a_binary_file_breaks_its_reader(name, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("binary")
    whole = FIXTURES / name if name.endswith("parquet") else unpacked(name, folder)
    raw = bytearray(whole.read_bytes())
    for _ in range(data.draw(st.integers(0, 5))):
        raw[data.draw(st.integers(4, len(raw) - 1))] = data.draw(st.integers(0, 255))
    size = data.draw(st.sampled_from([len(raw), len(raw) - 1, len(raw) // 2, 20]))
    file = Path(folder) / "damaged"
    file.write_bytes(bytes(raw[:size]))
    load(reader_for(whole), file)


def test_a_large_file_is_read_a_line_at_a_time(tmp_path):
    """Records come before the file is at its end."""
    file = tmp_path / "many.jsonl"
    row = json.dumps(GOOD["trl"][0])
    file.write_text((row + "\n") * 20_000)
    records = READERS["trl"].read(file)
    assert isinstance(next(record for record in records if isinstance(record, NewNode)), NewNode)
    records.close()


WRITTEN = ("trl", "otlp", "atif", "verifiers", "openai-chat")


def fixtures(folder):
    """A file of every format."""
    yield from sorted(FIXTURES.glob("art*.jsonl"))
    yield from (
        FIXTURES / name for name in ("trl-completions.parquet", "verl-dump.jsonl", "skyrl-dump.jsonl")
    )
    yield from sorted(FIXTURES.glob("mini-*.json"))
    yield from (unpacked(f"llm-{version}.db", folder) for version in ("0.26", "0.36"))
    for name in ("swe-agent", "openai-preference", "langsmith", "otlp", "verl", "trl", "atif", "verifiers"):
        file = folder / f"{name}.jsonl"
        file.write_text("".join(json.dumps(body) + "\n" for body in GOOD[name]))
        yield file


def written(tree, writer, file):
    """How many; None where the tree has nothing that the format can hold."""
    try:
        return exported(tree, writer, file)
    except BadInput as error:
        return None if "nothing to write" in str(error) else pytest.fail(str(error))


def test_whatever_was_imported_can_be_exported(tmp_path):
    """Every format there is to every other: what one keeps beside its messages does not disturb another."""
    together = Tree.memory()
    for file in fixtures(tmp_path):
        tree, _ = load(reader_for(file), file)
        trajectories = len(list(tree.leaves()))
        for writer in map(writer_for, WRITTEN):
            out = tmp_path / f"{file.name}.{writer.name}"
            count = written(tree, writer, out)
            if count is None:
                continue
            again, remarks = load(reader_for(out), out)
            assert not [remark for remark in remarks if remark.kind == "skipped"]
            if writer.name in ("trl", "otlp"):
                said = {node.text for node in tree.walk() if node.kind == "action"}
                assert said <= {node.text for node in again.walk()} | {""}, (file.name, writer.name)
                assert count <= trajectories + sum(node.kind == "rewrite" for node in tree.walk())
        together.merge(tree)
    assert exported(together, OTLPWriter(), tmp_path / "all.jsonl") > 20
