"""Twelve hand-made diffs with known chunks and scores, and what may not be scored."""

from __future__ import annotations

import pytest

from refork.errors import BadInput
from refork_methods.localize.casefile import CaseFile, Location
from refork_methods.localize.gold import Gold, GoldSpan, gold_spans
from refork_methods.localize.metrics import mean_scores, score_locations


def at(path: str, start: int, end: int) -> Location:
    return Location(path, start, end, "why", "cause", "idea")


def case(*places: Location) -> CaseFile:
    return CaseFile(places, "final" if places else "empty")


CHANGE = """--- a/a.py
+++ b/a.py
@@ -3,5 +3,5 @@
 three
 four
-five
+FIVE
 six
 seven
"""
INSERTION = """--- a/a.py
+++ b/a.py
@@ -9,2 +9,3 @@
 nine
+new
 ten
"""
INSERTION_TOP = """--- a/a.py
+++ b/a.py
@@ -0,0 +1,2 @@
+new
+new
"""
INSERTION_END = """--- a/a.py
+++ b/a.py
@@ -10,1 +10,2 @@
 ten
+new
"""
RENAME = """diff --git a/old.py b/new.py
similarity index 100%
rename from old.py
rename to new.py
"""
RENAME_CHANGED = """diff --git a/old.py b/new.py
similarity index 90%
rename from old.py
rename to new.py
--- a/old.py
+++ b/new.py
@@ -2 +2 @@
-two
+TWO
"""
DELETED_FILE = """diff --git a/gone.py b/gone.py
deleted file mode 100644
--- a/gone.py
+++ /dev/null
@@ -1,3 +0,0 @@
-one
-two
-three
"""
DELETED_LINES = """--- a/a.py
+++ b/a.py
@@ -4,4 +4,2 @@
 four
-five
-six
 seven
"""
TWO_HUNKS = """--- a/a.py
+++ b/a.py
@@ -1,2 +1,2 @@
-one
+ONE
 two
@@ -20,3 +20,3 @@
 twenty
-twenty-one
-twenty-two
+twenty-three
+twenty-four
"""
CRLF = "--- a/a.py\r\n+++ b/a.py\r\n@@ -1,3 +1,3 @@\r\n one\r\n-two\r\n+TWO\r\n three\r\n"
NEW_FILE = """diff --git a/new.py b/new.py
new file mode 100644
--- /dev/null
+++ b/new.py
@@ -0,0 +1,2 @@
+one
+two
"""
TWO_FILES = (
    CHANGE
    + """--- a/b/c.py
+++ b/b/c.py
@@ -7,2 +7,3 @@
 seven
+new
 eight
"""
)

KNOWN = {
    "change": (CHANGE, [("a.py", 5, 5, "change")]),
    "insertion": (INSERTION, [("a.py", 8, 10, "insertion")]),
    "insertion at the top": (INSERTION_TOP, [("a.py", 1, 1, "insertion")]),
    "insertion at the end": (INSERTION_END, [("a.py", 9, 11, "insertion")]),
    "rename": (RENAME, []),
    "rename with a change": (RENAME_CHANGED, [("old.py", 2, 2, "change")]),
    "deleted file": (DELETED_FILE, [("gone.py", 1, 3, "deletion")]),
    "deleted lines": (DELETED_LINES, [("a.py", 5, 6, "deletion")]),
    "two hunks": (TWO_HUNKS, [("a.py", 1, 1, "change"), ("a.py", 21, 22, "change")]),
    "crlf": (CRLF, [("a.py", 2, 2, "change")]),
    "new file": (NEW_FILE, []),
    "two files": (TWO_FILES, [("a.py", 5, 5, "change"), ("b/c.py", 6, 8, "insertion")]),
}


@pytest.mark.parametrize("name", KNOWN)
def test_chunks_of_hand_made_diffs(name: str) -> None:
    diff, spans = KNOWN[name]
    assert [(s.path, s.start, s.end, s.kind) for s in gold_spans(diff).spans] == spans


@pytest.mark.parametrize("name", [name for name, (_, spans) in KNOWN.items() if spans])
def test_a_perfect_prediction_scores_one(name: str) -> None:
    diff, spans = KNOWN[name]
    found = score_locations(case(*(at(path, start, end) for path, start, end, _ in spans)), diff)
    assert (found.chunk_recall, found.chunk_precision, found.iou, found.complete) == (1.0, 1.0, 1.0, 1.0)
    many = len({path for path, *_ in spans})
    assert found.acc == {1: float(many == 1), 3: 1.0, 5: 1.0, 10: 1.0}
    assert found.recall[1] == 1 / many


# (diff, predicted spans, acc@1, recall@1, chunk recall, chunk precision, iou)
SCORED = [
    (CHANGE, [("a.py", 4, 7)], 1.0, 1.0, 1.0, 1.0, 1 / 4),
    (CHANGE, [("a.py", 6, 7), ("a.py", 5, 5)], 1.0, 1.0, 1.0, 0.5, 1 / 3),
    (CHANGE, [("b.py", 5, 5), ("a.py", 1, 4)], 0.0, 0.0, 0.0, 0.0, 0.0),
    (TWO_HUNKS, [("a.py", 22, 30)], 1.0, 1.0, 0.5, 1.0, 1 / 11),
    (TWO_FILES, [("a.py", 1, 10)], 0.0, 0.5, 0.5, 1.0, 1 / 13),
    (INSERTION, [("a.py", 10, 10)], 1.0, 1.0, 1.0, 1.0, 1 / 3),
    (DELETED_FILE, [("gone.py", 1, 1)], 1.0, 1.0, 1.0, 1.0, 1 / 3),
]


@pytest.mark.parametrize("row", range(len(SCORED)))
def test_known_recall_precision_and_iou(row: int) -> None:
    diff, spans, acc, recall, chunk_recall, precision, iou = SCORED[row]
    found = score_locations(case(*(at(*one) for one in spans)), diff)
    assert (found.acc[1], found.recall[1]) == (acc, recall)
    assert (found.chunk_recall, found.chunk_precision) == (chunk_recall, precision)
    assert found.iou == pytest.approx(iou)
    assert found.complete == float(chunk_recall == 1)


def test_what_has_no_old_side_is_not_measured() -> None:
    gold = gold_spans(NEW_FILE)
    assert gold == Gold((), (), ("new.py",))
    found = score_locations(case(at("a.py", 1, 1)), NEW_FILE)
    assert found.acc[1] is None
    assert found.chunk_recall is None
    assert found.iou is None
    renamed = score_locations(case(at("old.py", 1, 1)), RENAME)
    assert renamed.acc[1] == 1.0
    assert renamed.chunk_recall is None


def test_an_empty_case_finds_nothing() -> None:
    found = score_locations(case(), CHANGE)
    assert (found.acc[10], found.chunk_recall, found.chunk_precision, found.iou) == (0.0, 0.0, 0.0, 0.0)


def test_context_does_not_move_chunks() -> None:
    bare = "--- a/a.py\n+++ b/a.py\n@@ -5 +5 @@\n-five\n+FIVE\n@@ -9,0 +10 @@\n+new\n"
    lines = " four,-five,+FIVE, six, seven, eight, nine,+new, ten"
    wide = "--- a/a.py\n+++ b/a.py\n@@ -4,7 +4,8 @@\n" + lines.replace(",", "\n") + "\n"
    assert (
        gold_spans(bare).spans
        == gold_spans(wide).spans
        == (
            GoldSpan("a.py", 5, 5, "change"),
            GoldSpan("a.py", 8, 10, "insertion"),
        )
    )


def test_only_keeps_some_files() -> None:
    gold = gold_spans(TWO_FILES).only(lambda path: path.startswith("b/"))
    assert gold.files == ("b/c.py",)
    assert len(gold.spans) == 1


@pytest.mark.parametrize("text", ["", "not a diff", "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n one\n"])
def test_what_is_no_diff_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        gold_spans(text)


def test_means_say_over_how_many_cases() -> None:
    rows = [score_locations(case(at("a.py", 5, 5)), CHANGE), score_locations(case(), CHANGE)]
    rows.append(score_locations(case(at("a.py", 5, 5)), NEW_FILE))
    told = mean_scores(rows)
    interval, cases = told["acc@1"]
    assert cases == 2
    assert interval is not None
    assert interval.estimate == 0.5
    assert interval.method.startswith("Wilson") or interval.low > 0
    with pytest.raises(BadInput):
        mean_scores([])
