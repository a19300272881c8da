"""``logs.db`` as llm 0.26 and 0.36 wrote it (``fixtures/generate_llm.py``): read only, never changed."""

from __future__ import annotations

import hashlib
import sqlite3

import pytest

from refork.errors import BadInput
from refork.formats import reader_for
from refork.formats.llm_logs import LLMLogs, cost_of
from refork.policies.base import Cost
from support.foreign_logs import imported, kinds, unpacked, whats

TALK = ["task", "action", "observation", "action", "observation", "action"]


def read(file):
    reader = reader_for(file)
    assert reader.name == "llm"
    return imported(reader, file)


@pytest.mark.parametrize("version", ["0.26", "0.36"])
def test_both_schemas_give_the_same_conversations(version, tmp_path):
    file = unpacked(f"llm-{version}.db", tmp_path)
    before = hashlib.sha256(file.read_bytes()).digest()
    tree, remarks = read(file)
    assert hashlib.sha256(file.read_bytes()).digest() == before
    assert [entry.name for entry in tmp_path.iterdir()] == [file.name]
    assert kinds(tree) == [["task", "action"], TALK]
    short, long = sorted(tree.paths(tree.leaves()), key=len)
    assert [m["content"] for m in short.root.extra["messages"]] == ["be brief", "a fragment\nhello"]
    assert (short.leaf.policy, short.leaf.cost.tokens_in, short.leaf.cost.tokens_out) == ("echo", 7, 3)
    called, result, said = (s.node for s in long.steps[1:4])
    assert called.message["tool_calls"][0]["function"] == {
        "name": "weather",
        "arguments": '{"city": "Paris"}',
    }
    assert (result.text, result.message["tool_call_id"]) == (
        "rain in Paris",
        called.message["tool_calls"][0]["id"],
    )
    assert said.text == "you said ['rain in Paris']"
    assert long.root.extra["tools"][0]["function"]["name"] == "weather"
    assert long.steps[4].node.message["attachments"]
    assert whats(remarks, "lost").count("contents of attachments") == 1
    assert not whats(remarks, "skipped")


def test_costs_that_are_no_numbers_are_not_known():
    row = {"input_tokens": "12", "output_tokens": True, "duration_ms": "fast"}
    assert cost_of(row) == Cost()
    assert cost_of({"input_tokens": 0, "duration_ms": 500}) == Cost(tokens_in=0, seconds=0.5)


def test_threads_that_fork_share_their_messages(tmp_path):
    """A second answer to the same messages, as llm stores one: a message with the same parent."""
    file = unpacked("llm-0.36.db", tmp_path)
    db = sqlite3.connect(file)
    sql = "SELECT tip_message_hash, parent_message_hash, thread_id FROM turns ORDER BY id DESC LIMIT 1"
    tip, parent, thread = db.execute(sql).fetchone()
    db.execute("INSERT INTO messages VALUES ('fork', ?, 'assistant', NULL)", (parent,))
    db.execute("INSERT INTO parts (message_hash, position, type, text) VALUES ('fork', 0, 'text', 'other')")
    db.execute(
        "INSERT INTO threads (id, name, tip_message_hash, forked_from) VALUES ('t2', 'f', 'fork', ?)",
        (thread,),
    )
    db.execute(
        "INSERT INTO turns (id, thread_id, parent_message_hash, tip_message_hash, model) "
        "VALUES ('z', 't2', ?, 'fork', 'echo')",
        (parent,),
    )
    db.commit()
    db.close()
    tree, _ = read(file)
    assert kinds(tree) == [["task", "action"], TALK, TALK]
    assert len(tree) == 9
    leaf = next(w.leaf for w in tree.paths(tree.leaves()) if w.leaf.text == "other")
    assert leaf.extra["turns"][0]["thread"]["forked_from"] == thread
    assert leaf.cost.tokens_in is None
    assert tip != "fork"


def test_an_older_file_without_newer_tables_and_columns(tmp_path):
    """The tables of llm 0.4 to 0.10, before usage, tools and fragments."""
    file = tmp_path / "logs.db"
    db = sqlite3.connect(file)
    db.execute("CREATE TABLE conversations (id TEXT PRIMARY KEY, name TEXT, model TEXT)")
    db.execute(
        "CREATE TABLE responses (id TEXT PRIMARY KEY, model TEXT, prompt TEXT, system TEXT, "
        "prompt_json TEXT, options_json TEXT, response TEXT, response_json TEXT, conversation_id TEXT, "
        "duration_ms INTEGER, datetime_utc TEXT)"
    )
    rows = [
        ("a", "m", "hi", "s", None, "{}", "yo", "not json", "c", 1500, "2023-09-01"),
        ("b", "m", "more", "other", None, '{"t": 1}', "ok", None, "c", None, None),
        ("d", "m", None, None, None, None, None, None, None, None, None),
    ]
    db.executemany(f"INSERT INTO responses VALUES ({', '.join('?' * 11)})", rows)
    db.commit()
    db.close()
    tree, _ = read(file)
    lone, talk = sorted(tree.paths(tree.leaves()), key=len)
    assert [s.text for s in talk] == ["s\nhi", "yo", "other\nmore", "ok"]
    assert talk.steps[1].node.cost.seconds == 1.5
    assert talk.steps[1].node.extra["response"]["response_json"] == "not json"
    assert talk.leaf.cost.seconds is None
    assert [s.text for s in lone] == ["", ""]


def test_other_and_damaged_databases_are_refused(tmp_path):
    other = tmp_path / "other.db"
    db = sqlite3.connect(other)
    db.execute("CREATE TABLE t (x)")
    db.commit()
    db.close()
    with pytest.raises(BadInput, match="no tables of llm"):
        read(other)
    file = unpacked("llm-0.36.db", tmp_path)
    data = file.read_bytes()
    for size in (100, 5000, len(data) // 2):
        file.write_bytes(data[:size])
        with pytest.raises(BadInput, match=r"cannot be read|no tables"):
            read(file)
    scrambled = bytearray(data)
    for at in range(4096, len(data), 7):
        scrambled[at] ^= 0x55
    file.write_bytes(scrambled)
    with pytest.raises(BadInput):
        read(file)


def test_a_message_that_is_its_own_parent_ends(tmp_path):
    file = unpacked("llm-0.36.db", tmp_path)
    db = sqlite3.connect(file)
    db.execute("INSERT INTO messages VALUES ('x', 'y', 'user', NULL), ('y', 'x', 'user', '{')")
    db.execute("INSERT INTO messages VALUES ('z', 'x', 'assistant', NULL)")
    db.commit()
    db.close()
    tree, remarks = read(file)
    assert kinds(tree) == [["task", "action"], TALK]
    assert whats(remarks, "skipped") == ["a message comes after itself"]


@pytest.mark.parametrize("version", ["0.26", "0.36"])
def test_a_file_that_grew_adds_what_is_new(version, tmp_path):
    """The first import had all but the last response; the second one adds it to the others."""
    whole = unpacked(f"llm-{version}.db", tmp_path)
    (tmp_path / "sub").mkdir()
    part = unpacked(f"llm-{version}.db", tmp_path / "sub")
    db = sqlite3.connect(part)
    if version == "0.26":
        db.execute("DELETE FROM responses WHERE id = (SELECT max(id) FROM responses)")
    else:
        db.execute("PRAGMA foreign_keys = OFF")
        tip = db.execute("SELECT tip_message_hash FROM turns ORDER BY id DESC LIMIT 1").fetchone()
        db.execute("DELETE FROM messages WHERE hash = ?", tip)
    db.commit()
    db.close()
    tree, _ = imported(LLMLogs(), part)
    before = len(tree)
    tree.load(r for r in LLMLogs().read(whole) if type(r).__name__ not in ("Remark", "Position"))
    assert len(tree) > before
    assert kinds(tree) == [["task", "action"], TALK]
