"""Files that are meant to break a reader: every reader refuses each of them, clearly and at once."""

from __future__ import annotations

import gzip
import io
import json
import random
import re
import sqlite3
import time
import zipfile

import pytest

from refork.errors import BadInput
from refork.formats import Head, import_file, readers
from refork.formats import reader_for as named
from refork.formats.archive import open_zip
from refork.formats.llm_logs import LLMLogs
from refork.formats.native import Native
from refork.tree import Tree
from refork.tree.codec import DEEPEST
from support.fuzz_seeds import seeds_of
from support.mutate import changed, words_of

READERS = {reader.name: reader for reader in readers()}
#: A key of an object that each format of JSON reads, so that the refusal is for what it holds.
KEYS = (
    "messages",
    "prompt",
    "steps",
    "trajectory",
    "resourceSpans",
    "run_type",
    "record",
    "samples",
    "action",
)


def packed(entries, method=zipfile.ZIP_DEFLATED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file:
        for name, body in entries:
            file.writestr(zipfile.ZipInfo(name), body, method)
    return out.getvalue()


def within(value: bytes) -> bytes:
    """An object with a value under keys of every format."""
    return b"{" + b",".join(b'"%s":%s' % (key.encode(), value) for key in KEYS) + b"}"


HOSTILE = {
    "deep lists": within(b"[" * 9000 + b"]" * 9000),
    "deep objects": within(b'{"a":' * 9000 + b"1" + b"}" * 9000),
    "deep, not ended": b'{"messages":[' * 9000,
    "a huge number": within(b"9" * 20_000),
    "a huge negative number": within(b"[-" + b"9" * 5000 + b"]"),
    "UTF-16": json.dumps({"messages": []}).encode("utf-16"),
    "UTF-16 without a mark": json.dumps({"messages": []}).encode("utf-16-le"),
    "UTF-32": json.dumps({"messages": []}).encode("utf-32"),
    "Latin-1": '{"messages": "caf\xe9"}'.encode("latin-1"),
    "no JSON": b"\x7fELF\x02\x01\x01" + b"\0" * 300,
    "a path that climbs": packed([("header.json", b"{}"), ("samples/../../../etc/passwd", b"{}")]),
    "an absolute path": packed([("/etc/passwd", b"{}")]),
    "a drive": packed([("C:\\x.json", b"{}")]),
    "a bomb": packed([("samples/1.json", b" " * (17 << 20))]),
    "gzip of much": gzip.compress(b"\0" * (1 << 20)),
    "a pickle that calls": gzip.compress(b"\x80\x02cos\nsystem\nX\x02\0\0\0id\x85R."),
    "no database": b"SQLite format 3\0" + b"\xff" * 4096,
    "no Parquet": b"PAR1" + b"\xff" * 400 + b"\xff\xff\xff\x7fPAR1",
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("name", READERS)
def test_hostile_files_are_refused(name, kind, tmp_path):
    file = tmp_path / ("log.eval" if name == "inspect" else "log.jsonl")
    file.write_bytes(HOSTILE[kind])
    start = time.process_time()
    READERS[name].sniff(Head.of(file))
    with Tree.memory() as tree, pytest.raises(BadInput) as caught:
        import_file(tree, file, READERS[name])
    assert str(file) in str(caught.value.where)
    assert "Error(" not in str(caught.value), "a message of Python's, not for people"
    assert time.process_time() - start < 20  # seconds; what is not linear here takes hours


@pytest.mark.parametrize("kind", HOSTILE)
def test_no_format_takes_hostile_files_for_its_own_and_breaks(kind, tmp_path):
    """Without ``--format``: whichever reader is found refuses, or none is."""
    file = tmp_path / "log"
    file.write_bytes(HOSTILE[kind])
    with Tree.memory() as tree, pytest.raises(BadInput):
        import_file(tree, file, named(file))


@pytest.mark.parametrize("name", READERS)
def test_changed_files_are_read_or_refused(name, tmp_path):
    """Forty inputs of the fuzzer, which ``tools/fuzz_formats.py`` makes by the hundred thousand."""
    seeds, dice, file = seeds_of(name), random.Random(name), tmp_path / "log"
    words = words_of(seeds)
    for data in [*seeds, *(changed(dice, dice.choice(seeds), words) for _ in range(40))]:
        file.write_bytes(data)
        READERS[name].sniff(Head.of(file))
        with Tree.memory() as tree:
            try:
                import_file(tree, file, READERS[name])
            except BadInput:
                assert data not in seeds
            assert list(tree.verify()) == []


def test_a_number_names_an_input(tmp_path):
    seeds = seeds_of("inspect")
    first, again = ([changed(random.Random(n), seeds[0]) for n in range(40)] for _ in range(2))
    assert first == again
    assert len(set(first)) > 30


def export():
    return [json.loads(line) for line in seeds_of("native")[0].splitlines()]


@pytest.mark.parametrize(
    ("record", "change"),
    [
        ("node", {"text": 7}),
        ("node", {"parent": 7}),
        ("node", {"keep": True}),
        ("node", {"keep": 2**70}),
        ("node", {"created": 10**350}),
        ("node", {"created": "now"}),
        ("node", {"message": []}),
        ("node", {"extra": "x"}),
        ("node", {"snapshot": "no digest"}),
        ("node", {"cost": {"tokens_in": "7"}}),
        ("node", {"tokens": [2**40]}),
        ("score", {"name": 7}),
        ("score", {"producer": 0.5}),
        ("score", {"reason": {}}),
        ("score", {"value": 10**400}),
        ("producer", {"reads": [[]]}),
        ("producer", {"reads": [True]}),
        ("producer", {"name": []}),
    ],
)
def test_records_of_an_export_are_checked_field_by_field(record, change, tmp_path):
    lines = export()
    at = next(n for n, line in reversed(list(enumerate(lines))) if line.get("record") == record)
    lines[at] |= change
    file = tmp_path / "tree.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    with Tree.memory() as tree:
        with pytest.raises(BadInput, match=r"not a record|digits") as caught:
            import_file(tree, file, Native())
        assert f"{file}:{at + 1}" in str(caught.value.where)
        assert len(tree) == 0


def test_an_export_that_nests_as_deep_as_a_tree_may_is_read(tmp_path):
    file, deep = tmp_path / "tree.jsonl", {"a": 1}
    for _ in range(DEEPEST - 2):
        deep = {"a": deep}
    lines = export()
    node = next(line for line in lines if line.get("record") == "node")
    node["extra"] = deep
    file.write_text("\n".join(map(json.dumps, lines)))
    with Tree.memory() as tree:
        import_file(tree, file, Native())
        assert next(iter(tree.tasks())).extra == deep


def test_a_database_whose_schema_is_no_text(tmp_path):
    """SQLite quotes what it finds in its message, which then is no UTF-8."""
    file = tmp_path / "logs.db"
    with sqlite3.connect(file) as db:
        db.execute("CREATE TABLE responses (id TEXT)")
    db.close()
    raw = file.read_bytes()
    file.write_bytes(raw.replace(b"tableresponses", b"\xff\xff\xff\xff\xffresponses"))
    with pytest.raises(BadInput, match="cannot be read"):
        list(LLMLogs().read(file))


def test_a_nameless_entry_is_an_entry(tmp_path):
    file = tmp_path / "x.eval"
    file.write_bytes(re.sub(rb"\?", b"/", packed([("?", b"{}"), ("samples/1.json", b"{}")])))
    with pytest.raises(BadInput, match="leads out"), open_zip(file):
        pass
