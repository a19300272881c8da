"""The tools world in labels: every note by hand, one token a label, full and short as they were."""

from __future__ import annotations

import re

import pytest

from refork.errors import BadInput
from refork.worlds.open import open_world
from refork_worlds.tools.call import call_text
from refork_worlds.tools.goals import Goal, Part, after
from refork_worlds.tools.labels import all_labels, label, state, submit_note
from refork_worlds.tools.schema import DATABASES, MOST
from refork_worlds.tools.service import Service
from refork_worlds.tools.store import Store
from refork_worlds.tools.world import MAX_TURNS

PIECES = re.compile(r"[A-Za-z]+|[0-9]+|[^A-Za-z0-9\s]+")
LIBRARY = DATABASES["library"]
ROWS = {
    "books": [
        {"id": 1, "title": "fox", "copies": 1},
        {"id": 2, "title": "owl", "copies": 2},
        {"id": 4, "title": "bowl", "copies": 0},
    ],
    "members": [{"id": 1, "name": "ada", "level": "gold"}, {"id": 2, "name": "ben", "level": "basic"}],
    "loans": [
        {"id": 1, "book": 2, "member": 1, "days": 5},
        {"id": 2, "book": 1, "member": 1, "days": 3},
        {"id": 4, "book": 2, "member": 2, "days": 4},
    ],
}
EMPTY = {**ROWS, "loans": []}


def notes(*calls, rows=ROWS, labels=True):
    service = Service(Store(LIBRARY, rows), labels)
    found = [service.call(name, arguments) for name, arguments in calls]
    service.store.close()
    return [answer.note for answer in found]


def test_a_label_is_one_token_and_names_one_row_of_its_database():
    books = LIBRARY.table("books")
    assert " ".join(label(books, n) for n in (1, 2, 26, 27, 52, 53, 99)) == "Ba Bb Bz Baa Baz Bba Bcu"
    assert label(LIBRARY.table("loans"), 4) == "Ld"
    for database in DATABASES.values():
        letters = [table.name[0] for table in database.tables]
        assert len(set(letters)) == len(letters)
        found = all_labels(database)
        assert len(set(found)) == len(database.tables) * MOST
        assert all(PIECES.findall(one) == [one] for one in found)


def test_a_state_is_a_heading_and_a_line_a_row():
    assert state(LIBRARY, {**ROWS, "books": []}).split("\n") == [
        "books : title copies",
        "members : name level",
        "Ma:ada:gold",
        "Mb:ben:basic",
        "loans : book member days",
        "La:Bb:Ma:5",
        "Lb:Ba:Ma:3",
        "Ld:Bb:Mb:4",
    ]


@pytest.mark.parametrize(
    ("name", "arguments", "lines"),
    [
        ("get_loan", {"id": 4}, ["Ld:Bb:Mb:4"]),
        ("get_book", {"id": 3}, ["no row"]),
        ("list_books", {}, ["Ba:fox:1 yes 1", "Bb:owl:2 yes 2", "Bd:bowl:0 yes 3", "rows 3"]),
        ("list_loans", {"member": 1, "offset": 1, "limit": 1},
         ["La:Bb:Ma:5;Ma=Ma yes 1", "Lb:Ba:Ma:3;Ma=Ma yes 2", "Ld:Bb:Mb:4;Mb=Ma no", "rows 2"]),
        ("list_loans", {"book": 9},
         ["La:Bb:Ma:5;Bb=Bi no", "Lb:Ba:Ma:3;Ba=Bi no", "Ld:Bb:Mb:4;Bb=Bi no", "rows 0"]),
        ("search_books", {"text": "OW"},
         ["Ba:fox:1;fox=ow no", "Bb:owl:2;owl=ow yes 1", "Bd:bowl:0;bowl=ow yes 2", "rows 2"]),
        ("count_loans", {"book": 2, "member": 2},
         ["La:Bb:Ma:5;Bb:Ma=Bb:Mb no", "Lb:Ba:Ma:3;Ba:Ma=Bb:Mb no",
          "Ld:Bb:Mb:4;Bb:Mb=Bb:Mb yes 1", "count 1"]),
        ("sum_loans", {"column": "days", "book": 2},
         ["La:Bb:Ma:5;Bb=Bb yes 5", "Lb:Ba:Ma:3;Ba=Bb no", "Ld:Bb:Mb:4;Bb=Bb yes 9", "sum 9"]),
        ("update_book", {"id": 2, "copies": 7}, ["Bb:owl:2"]),
        ("update_book", {"id": 2, "title": "owl"}, ["Bb:owl:2", "free"]),
        ("update_book", {"id": 2, "title": "fox"}, ["Bb:owl:2", "Ba:fox:1"]),
        ("update_book", {"id": 2}, ["Bb:owl:2"]),
        ("update_book", {"id": 9, "title": "fox"}, ["no row"]),
        ("update_loan", {"id": 1, "book": 4, "member": 26}, ["La:Bb:Ma:5", "Bd:bowl:0", "no row Mz"]),
        ("create_book", {"title": "cat", "copies": 1}, ["last Bd", "free"]),
        ("create_book", {"title": "owl", "copies": 1}, ["last Bd", "Bb:owl:2"]),
        ("create_loan", {"book": 3, "member": 1, "days": 2}, ["last Ld", "no row Bc", "Ma:ada:gold"]),
        ("delete_book", {"id": 2}, ["Bb:owl:2", "La:Bb:Ma:5", "Ld:Bb:Mb:4"]),
        ("delete_book", {"id": 4}, ["Bd:bowl:0", "unused"]),
        ("delete_book", {"id": 3}, ["no row"]),
    ],
)  # fmt: skip
def test_a_note_holds_what_decides_the_answer(name, arguments, lines):
    assert notes((name, arguments)) == ["\n".join(lines)]


def test_wrong_arguments_have_no_note_and_empty_tables_say_so():
    wrong = [("get_book", {}), ("get_book", {"id": "one"}), ("find_book", {}), ("get_book", {"page": 1})]
    assert notes(*wrong) == [None] * 4
    assert notes(
        ("list_loans", {}),
        ("count_loans", {}),
        ("sum_loans", {"column": "days"}),
        ("create_loan", {"book": 1, "member": 1, "days": 2}),
        rows=EMPTY,
    ) == ["no rows\nrows 0", "no rows\ncount 0", "no rows\nsum 0", "no rows\nBa:fox:1\nMa:ada:gold"]


def test_a_note_tells_the_rows_as_they_are_when_the_call_is_made():
    assert notes(
        ("update_book", {"id": 1, "title": "elk\n deer"}), ("get_book", {"id": 1}),
        ("delete_loan", {"id": 4}), ("create_loan", {"book": 2, "member": 2, "days": 1}),
        ("get_loan", {"id": 3}),
    ) == [
        "Ba:fox:1\nfree", "Ba:elk deer:1", "Ld:Bb:Mb:4\nunused",
        "last Lb\nBb:owl:2\nMb:ben:basic", "Lc:Bb:Mb:1",
    ]  # fmt: skip


def _goal(*parts):
    end = ROWS
    for part in parts:
        end = after(end, part)
    return Goal(LIBRARY, ROWS, parts, end)


SET = Part("set", "", "books", 1, "copies", 7)
ADD = Part("add", "", "loans", values=(("book", 4), ("member", 1), ("days", 6)))
REMOVE = Part("remove", "", "loans", 4)
ASK = Part("value", "", "members", 1, "level", "gold")


def _changed(rows, **tables):
    return {name: tables.get(name, these) for name, these in rows.items()}


@pytest.mark.parametrize(
    ("parts", "rows", "said", "lines"),
    [
        ((SET,), after(ROWS, SET), "", ["Ba wanted:fox:7 now:fox:7 same", "rows right"]),
        ((SET,), ROWS, "7", ["Ba wanted:fox:7 now:fox:1 other", "rows wrong"]),
        ((SET, ASK), after(ROWS, SET), "gold",
         ["Ba wanted:fox:7 now:fox:7 same", "rows right", "wanted gold said gold right"]),
        ((ASK,), ROWS, "", ["rows right", "wanted gold said nothing wrong"]),
        ((ASK,), ROWS, "\ud800 a\nb" + "c" * 99,
         ["rows right", "wanted gold said ? a b" + "c" * 35 + " wrong"]),
        ((ASK,), after(ROWS, REMOVE), "red",
         ["Ld wanted:Bb:Mb:4 now:none other", "rows wrong", "wanted gold said red wrong"]),
        ((REMOVE,), after(ROWS, REMOVE), "", ["Ld wanted:none now:none same", "rows right"]),
        ((ADD,), after(ROWS, ADD), "", ["new wanted:Bd:Ma:6 now:Bd:Ma:6 same", "rows right"]),
        ((ADD,), ROWS, "", ["new wanted:Bd:Ma:6 now:none other", "rows wrong"]),
        ((ADD,), _changed(ROWS, loans=[*ROWS["loans"], {"id": 8, "book": 1, "member": 1, "days": 6}]), "",
         ["new wanted:Bd:Ma:6 now:Ba:Ma:6 other", "rows wrong"]),
        # Ids of added rows do not count; what was added beside them does.
        ((ADD,), _changed(ROWS, loans=[*ROWS["loans"],
                                       {"id": 5, "book": 1, "member": 1, "days": 1},
                                       {"id": 6, "book": 4, "member": 1, "days": 6}]), "",
         ["new wanted:Bd:Ma:6 now:Bd:Ma:6 same", "new wanted:none now:Ba:Ma:1 other", "rows wrong"]),
    ],
)  # fmt: skip
def test_a_verdict_is_told_row_by_row(parts, rows, said, lines):
    assert submit_note(_goal(*parts), rows, said).split("\n") == lines


def test_episodes_are_those_of_short_with_other_notes_made_of_the_vocabulary():
    world, short = open_world("tools:library?brief=labels"), open_world("tools:library?brief=short")
    words, longest, seen_notes = set(world.vocabulary()), 0, set()
    assert {"Bcu", "Ma", "unused", "none", "nothing"} <= words
    for task in [*world.tasks("train", 5), *world.tasks("held-out", 5)]:
        brief = world.brief(task)
        assert brief.task_description == short.brief(task).task_description
        assert set(brief.to_json()) == {"task_description", "initial_state"}
        actor, seen = world.agent(task, 3), []
        one, other = world.start(task, 0), short.start(task, 0)
        texts = [brief.text]
        while (action := actor.act(seen)) is not None and len(seen) < MAX_TURNS:
            again = world.restore(task, one.snapshot())
            shown, plain = one.step(action), other.step(action)
            assert again.step(action) == shown
            bare = [{key: value for key, value in x.info.items() if key != "note"} for x in (shown, plain)]
            assert (shown.text, shown.reward, bare[0]) == (plain.text, plain.reward, bare[1])
            note = shown.info.get("note", "")
            longest = max(longest, len(note.split()))
            seen_notes |= set(note.split())
            texts += [note]
            seen.append((action, shown.text))
            again.close()
        assert not set(PIECES.findall(" ".join(texts))) - words
        if shown.text in ("accepted", "rejected"):
            compared = re.findall(r" (same|other)$", note, re.MULTILINE)
            assert ("rows right" in note) == ("other" not in compared)
            right = "rows right" in note and not note.endswith(" wrong")
            assert (shown.text == "accepted") == right
    assert 0 < longest <= 120
    assert {"yes", "no", "rows", "wanted", "last"} <= seen_notes


def test_full_and_short_keep_their_notes_and_another_brief_is_refused():
    calls = [("get_book", {"id": 1}), ("list_loans", {"book": 2}), ("delete_book", {"id": 2}),
             ("create_book", {"title": "owl", "copies": 1}),
             ("update_book", {"id": 2, "copies": 3})]  # fmt: skip
    assert notes(*calls, labels=False) == [
        None, "ids 1 4", "used by loan 1 loan 4", "last id 4", 'row {"id":2,"title":"owl","copies":2}'
    ]  # fmt: skip
    episode = open_world("tools?brief=short")
    task = episode.tasks("train", 1)[0]
    assert episode.brief(task).initial_state.startswith(next(iter(task.data["rows"])) + " : ")
    said = episode.start(task, 0).step(call_text("submit", {"answer": "x"})).info["note"]
    assert re.fullmatch(r"rows (right|wrong)( ; wanted \w+)?", said)
    with pytest.raises(BadInput, match="no brief") as refused:
        open_world("tools?brief=long")
    assert "labels" in str(refused.value.hint)
