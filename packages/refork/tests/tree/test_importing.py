"""Imports of files of any size: parts, kills and repetition, what is skipped, what is all or nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from refork.errors import BadInput
from refork.formats import Redactor, import_file, reader_for
from refork.formats import rows as rows_of_files
from refork.formats.base import whole
from refork.formats.native import Native
from refork.formats.openai_chat import OpenAIChat
from refork.tree import NewNode, Producer, Score, Tree
from refork.tree.load import Loaded
from refork.tree.records import Remark
from support.told import told

MAIN = "from refork.cli import main; main()"


def line(number: int, text: str = "well") -> str:
    turns = [{"role": "user", "content": f"q{number}"}, {"role": "assistant", "content": text}]
    return json.dumps({"messages": turns, "n": number})


@pytest.fixture
def small_parts(monkeypatch):
    """Positions every few lines, so that a small file has many parts."""
    monkeypatch.setattr(rows_of_files, "EVERY", 300)


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def read(tree: Tree, path: Path, **options):
    return import_file(tree, path, OpenAIChat(), **options)


class Stopped(Exception):
    """What a killed process stands for here."""


def stopper(after: int):
    """Progress that ends the import at its ``after``-th report."""
    count = 0

    def progress(stage, done, total, **more):
        nonlocal count
        count += 1
        if count == after:
            raise Stopped

    return progress


@pytest.mark.parametrize("after", [1, 2, 5])
def test_a_stopped_import_adds_the_rest(tmp_path, small_parts, after):
    """Equal lines lie on both sides of the stop, and bad ones; the tree is that of one go."""
    lines = [line(n % 7) for n in range(60)]
    lines[3] = lines[50] = "{"
    source = write(tmp_path / "chats.jsonl", lines)
    with Tree.open(tmp_path / "whole.db") as whole:
        once = read(whole, source)
        expected = told(whole)
    assert (once.count("skipped"), once.nodes) == (2, 7 + 58)
    with Tree.open(tmp_path / "tree.db") as tree:
        with pytest.raises(Stopped):
            read(tree, source, progress=stopper(after))
        stood = len(tree)
        assert 0 < stood < 65
        again = read(tree, source)
        assert told(tree) == expected
        assert (again.read, again.nodes) == (once.read, once.nodes - stood)
        assert list(tree.verify()) == []


def test_a_killed_process_loses_nothing(tmp_path):
    """SIGKILL in the middle of an import of 12 MB, then the same import: the tree of one go."""
    text = "and so on " * 2000
    lines = [line(n, text) for n in range(600)]
    source = write(tmp_path / "chats.jsonl", lines)
    tree = tmp_path / "tree.db"
    command = [sys.executable, "-c", MAIN, "tree", "import", str(tree), str(source), "--json"]
    started = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 900
    wait_for_part(tree, started, deadline)
    started.kill()
    killed = started.wait() == -signal.SIGKILL
    with Tree.open(tree) as store:
        stood = len(store)
        assert not killed or 0 < stood < 1200
        read(store, source, redactor=Redactor())
        assert len(store) == 1200
        assert list(store.verify()) == []
        numbers = sorted(leaf.extra["line"]["n"] for leaf in store.leaves())
    assert numbers == list(range(600))
    assert killed, "the import ended before it could be killed"


def wait_for_part(tree: Path, started: subprocess.Popen[bytes], deadline: float) -> None:
    """Until the first part of an import is in the tree."""
    while started.poll() is None and time.monotonic() < deadline:
        if tree.exists():
            with Tree.open(tree, "r") as store:
                if len(store):
                    return
        time.sleep(0.02)


def test_bad_items_are_skipped_or_where_strict_an_error(tmp_path):
    source = write(tmp_path / "chats.jsonl", [line(1), '{"x": 1}', line(2), '{"messages": [3]}', line(3)])
    with Tree.open(tmp_path / "tree.db") as tree:
        with pytest.raises(BadInput, match="no messages") as caught:
            read(tree, source, strict=True)
        assert str(caught.value.where).endswith("chats.jsonl:2")
        assert len(tree) == 0
        found = read(tree, source)
        assert (found.nodes, found.count("skipped")) == (6, 2)
        assert {note.what for note in found.remarks if note.kind == "skipped"} == {
            "this line has no messages",
            "a message needs a role and a content",
        }
        with pytest.raises(BadInput, match="no messages"):
            tree.load(OpenAIChat().read(source))


def test_a_file_of_which_nothing_can_be_read_is_an_error(tmp_path):
    source = write(tmp_path / "chats.jsonl", ['{"messages": []}'] * 5)
    with Tree.open(tmp_path / "tree.db") as tree, pytest.raises(BadInput, match="no messages") as caught:
        read(tree, source)
    assert "nothing was imported" in str(caught.value)


def test_many_reasons_are_counted_together(tmp_path):
    source = write(tmp_path / "chats.jsonl", [line(1), *(f'{{"messages": {"x" * n}' for n in range(300))])
    with Tree.open(tmp_path / "tree.db") as tree:
        found = read(tree, source)
    assert found.count("skipped") == 300
    assert len(found.remarks) < 205


def test_secrets_are_taken_out_unless_they_are_kept(tmp_path):
    secret = "ghp_" + "aB3" * 12
    source = write(tmp_path / "chats.jsonl", [line(1, f"the key is {secret}")])
    for redactor, kept in ((Redactor(), False), (None, True)):
        with Tree.memory() as tree:
            found = read(tree, source, redactor=redactor)
            assert any(secret in node.text for node in tree.walk()) is kept
            assert found.count("redacted") == (0 if kept else 2)


def test_our_own_exports_are_all_or_nothing_and_keep_everything(tmp_path):
    secret = "ghp_" + "aB3" * 12
    with Tree.memory() as tree:
        read(tree, write(tmp_path / "chats.jsonl", [line(1, secret)]))
        with (tmp_path / "tree.jsonl").open("w") as out:
            Native().write(tree.records(), out)
        expected = told(tree)
    with Tree.open(tmp_path / "copy.db") as copy:
        import_file(copy, tmp_path / "tree.jsonl", Native(), redactor=Redactor())
        assert told(copy) == expected
    cut = (tmp_path / "tree.jsonl").read_text()[:-20]
    (tmp_path / "cut.jsonl").write_text(cut)
    with Tree.open(tmp_path / "other.db") as other:
        with pytest.raises(BadInput, match="not a record"):
            import_file(other, tmp_path / "cut.jsonl", Native())
        assert len(other) == 0


def test_reasons_beyond_the_limit_are_counted_together_by_kind():
    result = Loaded()
    for number in range(205):
        result.note(Remark("skipped", f"reason {number}", f"line {number}"))
    result.note(Remark("lost", "a part"))
    more = Loaded()
    more.add(result)
    for one in (result, more):
        assert one.count("skipped") == 205
        assert one.count("lost") == 1
        others = [(n.kind, n.count) for n in one.remarks if n.what == "other reasons"]
        assert others == [("skipped", 5), ("lost", 1)]


def trace(logprobs):
    said = {"role": "assistant", "content": "a"}
    nodes = [
        {"parent": None, "message": {"role": "user", "content": "q"}, "token_ids": [1], "mask": [False]},
        {"parent": 0, "message": said, "token_ids": [3, 4], "mask": [True, True], "logprobs": logprobs},
    ]
    return json.dumps({"id": "x", "task": {"type": "T"}, "nodes": nodes, "rewards": {}, "errors": []})


PAIR = {"prompt": "q", "completion": "a", "reward": 1.0}
HALF = json.dumps({"function": {"name": "f", "arguments": {"x": "\ud800"}}})
CALLS = PAIR | {"completion": [{"role": "assistant", "content": "", "tool_calls": [HALF]}]}
#: A format, a good item and one that holds what a tree cannot.
ODD = {
    "log-probs that are not known": ("verifiers", trace([-1.0, -2.0]), trace([-1.0, None])),
    "log-probs that are NaN": ("verifiers", trace([-1.0, -2.0]), trace([-1.0, float("nan")])),
    "half a surrogate pair": ("verifiers", json.dumps(PAIR), json.dumps(CALLS)),
    "NaN in a text of JSON": ("trl", json.dumps(PAIR), json.dumps(PAIR | {"extra": '{"x": NaN}'})),
    "a number beyond floats": ("openai-chat", line(1), line(2)[:-1] + ', "m": 1' + "0" * 250 + "e99}"),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_values_that_no_tree_holds_are_made_plain_and_end_no_import(tmp_path, name):
    form, good, odd = ODD[name]
    source = write(tmp_path / "rows.jsonl", [good, odd, good])
    with Tree.memory() as tree:
        found = import_file(tree, source, reader_for(source, form))
        assert sum(node.kind == "action" for node in tree.walk()) == 3
        assert list(tree.verify()) == []
    assert found.count("skipped") == 0


TASK = NewNode(kind="task", key="k", text="q", tokens=np.array([1], np.int32))
REFUSED = {
    "NaN in a text of JSON": NewNode(kind="task", key="n", extra={"x": float("nan")}),
    "half a surrogate pair": NewNode(kind="task", key="n", text="\ud800"),
    "tools that are none": NewNode(kind="task", key="n", extra={"tools": "f"}),
    "log-probs without tokens": NewNode(kind="task", key="n", logprobs=np.zeros(1, np.float32)),
    "a log-prob that is NaN": NewNode(
        kind="task", key="n", tokens=np.array([1], np.int32), logprobs=np.array([np.nan], np.float32)
    ),
    "a producer without a name": Producer(""),
    "a score that is NaN": Score("f" * 32, "s", float("nan"), Producer("p").id),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_item_that_a_tree_refuses_is_skipped_whole(name):
    (remark,) = whole(iter([TASK, REFUSED[name]]), "rows.jsonl:2", "TRL")
    assert isinstance(remark, Remark)
    assert (remark.kind, remark.where) == ("skipped", "rows.jsonl:2")


def test_of_two_values_of_one_score_the_first_is_kept():
    giver = Producer("p")
    scores = [Score("f" * 32, "s", value, giver.id) for value in (1.0, 0.5, 1.0)]
    found = list(whole(iter([giver, *scores]), "trace 1", "OpenTelemetry"))
    assert found[0] is giver
    assert found[1] is scores[0]
    assert found[2] == Remark("lost", "another value of the score s", "trace 1")
