"""The append-only journal: durable, chained, recovered after a crash."""

from __future__ import annotations

import pytest

from refork.errors import Mismatch, TreeBusy
from refork_methods.journal import Journal


def test_entries_are_chained_and_read_back(tmp_path):
    journal = Journal.create(tmp_path / "a" / "log.jsonl", clock=lambda: 1.0)
    journal.append("one", {"x": 1})
    journal.append("two", {})
    again = Journal(tmp_path / "a" / "log.jsonl")
    assert [(entry.kind, entry.n) for entry in again] == [("one", 0), ("two", 1)]
    assert (again.head, again.torn) == (journal.head, 0)


def test_a_torn_line_never_counted_and_is_replaced(tmp_path):
    file = tmp_path / "log.jsonl"
    Journal.create(file).append("one", {})
    with file.open("ab") as stream:
        stream.write(b'{"half')
    journal = Journal(file)
    assert (len(journal), journal.torn) == (1, 6)
    journal.append("two", {})
    assert (journal.torn, len(Journal(file)), Journal(file).torn) == (0, 2, 0)


@pytest.mark.parametrize("on_disk", [True, False])
def test_a_journal_may_keep_only_the_newest_in_memory(tmp_path, on_disk):
    file = tmp_path / "log.jsonl"
    journal = Journal.create(file, keep=2) if on_disk else Journal(keep=2)
    for number in range(5):
        journal.append("one", {"x": number})
    assert len(journal) == 5
    assert [entry.body["x"] for entry in journal] == ([0, 1, 2, 3, 4] if on_disk else [3, 4])
    if on_disk:
        reading = iter(journal)
        journal.append("one", {"x": 5})  # not part of what was asked for before
        assert [entry.n for entry in reading] == [0, 1, 2, 3, 4]
        again = Journal(file, keep=0)
        assert (len(again), again.head, len(list(again))) == (6, journal.head, 6)
        file.write_text(file.read_text().replace('"x":1', '"x":7'))
        with pytest.raises(Mismatch, match="changed"):
            list(again)


def test_messages_use_the_noun(tmp_path):
    file = tmp_path / "log.jsonl"
    journal = Journal.create(file, noun="memory")
    journal.append("one", {})
    with pytest.raises(Mismatch, match="a memory here already"):
        Journal.create(file, noun="memory")
    other = Journal(file, noun="memory")
    other.append("two", {})
    with pytest.raises(TreeBusy, match="this memory"):
        journal.append("three", {})
    file.write_text(file.read_text().replace("two", "too"))
    with pytest.raises(Mismatch, match="changed"):
        Journal(file, noun="memory")
    file.unlink()
    with pytest.raises(Mismatch, match="the memory's file is gone"):
        other.append("four", {})
