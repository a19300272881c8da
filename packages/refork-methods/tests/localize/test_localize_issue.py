"""What an issue says: words, identifiers, data, stack frames, masking and leaks."""

from __future__ import annotations

import pytest

from refork.errors import BadInput
from refork_methods.localize.leaks import find_leaks, refuse_leaks
from refork_methods.localize.mask import diff_names, diff_paths, mask_code, mask_issue
from refork_methods.localize.snapshot import Snapshot
from refork_methods.localize.terms import issue_terms, name_words, query_words, split_data, words
from refork_methods.localize.traceback import Frame, frames, place_frames


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("parse_http_body", ["pars", "http", "body", "parse_http_body"]),
        ("parseHTTPBody2", ["pars", "http", "body", "2", "parsehttpbody2"]),
        ("HTTPServer", ["http", "server", "httpserver"]),
        ("__init__", ["init"]),
        ("MAX_SIZE", ["max", "size", "max_size"]),
        ("x", ["x"]),
        ("naïveMean", ["naïv", "mean", "naïvemean"]),
    ],
)
def test_identifiers_are_split(name: str, parts: list[str]) -> None:
    assert list(name_words(name)) == parts


@pytest.mark.parametrize(
    "family",
    [
        "parse parses parsed parsing",
        "entry entries",
        "box boxes",
        "round rounds rounded rounding",
        "split splits splitting",
    ],
)
def test_inflections_are_one_word(family: str) -> None:
    assert len(set(words(family))) == 1


@pytest.mark.parametrize("word", ["string", "class", "status", "axis", "bus", "sing", "red"])
def test_what_only_looks_inflected_is_kept(word: str) -> None:
    assert words(word) == [word]


def test_common_words_say_nothing() -> None:
    assert query_words("The result is not what I expected, please fix the slug") == ["fix", "slug"]


ISSUE = """`slugify` drops digits

When I call `make_url("Top 10")` from `site/urls.py` I get *"no such page"* and a ValueError.
See also textkit.slugs.Slugger and parseTitle.

```python
>>> make_url("Top 10")
'top'
```
"""


def test_an_issue_names_things() -> None:
    terms = issue_terms(ISSUE)
    assert terms.paths == ("site/urls.py",)
    assert terms.errors == ("ValueError",)
    assert {"slugify", "make_url", "textkit.slugs.Slugger", "parseTitle"} <= set(terms.identifiers)
    assert "no such page" in terms.quoted
    assert any(text.startswith(">>> make_url") for text in terms.code)
    weights = terms.weights()
    assert weights["make_url"] > weights["digit"] > weights["error"]


def test_data_is_told_from_prose() -> None:
    prose, data = split_data(
        "Filling gaps of [1, None, 'pear'] in 'plum' gives (2, open\nThe next line stays"
    )
    assert words(prose) == words("Filling gaps of in gives The next line stays")
    assert set(words(data)) == set(words("1 None pear plum 2 open"))
    assert split_data('It says "cannot open the file" twice')[0].count("cannot open the file") == 1


PYTHON = """Traceback (most recent call last):
  File "/home/me/app/main.py", line 12, in <module>
    run()
  File "/home/me/app/core/run.py", line 7, in run
    step(1)
ZeroDivisionError: division by zero
"""
PYTEST = """tests/test_a.py:5: in test_it
    run()
core/run.py:7: ZeroDivisionError
"""
JAVASCRIPT = """TypeError: x is undefined
    at Cart.total (/srv/app/src/cart.js:10:15)
    at async main (file:///srv/app/src/index.mjs:3:1)
    at /srv/app/src/run.ts:8:2
"""
JAVA = """java.lang.NullPointerException
    at com.acme.Cart.total(Cart.java:14)
    at com.acme.Main.main(Main.java:3)
"""
GO = """panic: runtime error: index out of range

goroutine 1 [running]:
main.(*Cart).Total(0xc000)
	/srv/app/cart/cart.go:21 +0x1d
main.main()
	/srv/app/main.go:9 +0x20
"""
RUST = """thread 'main' panicked at src/cart.rs:4:5:
stack backtrace:
   0: rust_begin_unwind
             at /rustc/abc/library/std/src/panicking.rs:1:1
   1: app::cart::total
             at ./src/cart.rs:4:5
"""


def told(text: str) -> list[tuple[str, int, str | None, int]]:
    return [(one.path, one.line, one.name, one.depth) for one in frames(text)]


def test_stack_frames_deepest_first() -> None:
    assert told(PYTHON) == [("/home/me/app/core/run.py", 7, "run", 0), ("/home/me/app/main.py", 12, None, 1)]
    assert told(PYTEST) == [("core/run.py", 7, None, 0), ("tests/test_a.py", 5, "test_it", 1)]
    assert told(JAVASCRIPT) == [
        ("/srv/app/src/cart.js", 10, "Cart.total", 0),
        ("/srv/app/src/index.mjs", 3, "async main", 1),
        ("/srv/app/src/run.ts", 8, None, 2),
    ]
    assert told(JAVA) == [("Cart.java", 14, "Cart.total", 0), ("Main.java", 3, "Main.main", 1)]
    cause = "Caused by: java.io.IOException\n    at com.acme.Disk.read(Disk.java:7)\n\t... 2 more\n"
    assert told(JAVA + cause) == [
        ("Disk.java", 7, "Disk.read", 0), ("Cart.java", 14, "Cart.total", 1), ("Main.java", 3, "Main.main", 2)
    ]  # fmt: skip
    assert told(GO) == [("/srv/app/cart/cart.go", 21, "Total", 0), ("/srv/app/main.go", 9, "main", 1)]
    assert ("./src/cart.rs", 4, "total", 1) in told(RUST)
    assert told("nothing here, at line 3 of it") == []


def test_frames_are_placed_by_the_longest_tail() -> None:
    files = ["app/core/run.py", "lib/core/run.py", "app/main.py", "src/Cart.java", "x/run.py"]
    placed = place_frames(frames(PYTHON), files)
    assert [(one.path, one.frame.line) for one in placed] == [("app/core/run.py", 7), ("app/main.py", 12)]
    assert [one.path for one in place_frames(frames(JAVA), files)] == ["src/Cart.java"]


def test_an_ambiguous_or_foreign_frame_is_left_out() -> None:
    frame = Frame("/usr/lib/python3/json/run.py", 3, None, "python", 0)
    assert place_frames([frame], ["a/b/run.py"]) == ()
    assert (
        place_frames([Frame("core/run.py", 3, None, "python", 0)], ["a/core/run.py", "b/core/run.py"]) == ()
    )


def test_masking_hides_names_and_paths() -> None:
    masked = mask_issue(ISSUE, ["slugify", "make_url"], ["site/urls.py"])
    assert not {"slugify", "make_url", "urls", "site"} & set(words(masked))
    assert masked.count("⟦name 3⟧") == 1
    assert masked.count("⟦name 2⟧") == 2
    assert "drops digits" in masked
    assert mask_issue("nothing", [], []) == "nothing"
    assert mask_issue("sluggish slug", ["slug"]) == "sluggish ⟦name 1⟧"


def test_searching_skips_what_is_masked() -> None:
    assert query_words("the ⟦name 1⟧ of ⟦file 2⟧ stopped") == ["stop"]
    assert issue_terms("⟦name 1⟧ broke").identifiers == ()


def test_masking_code_needs_no_repository() -> None:
    masked = mask_code(ISSUE)
    assert not {"slugify", "make_url", "parsetitle", "slugger"} & set(words(masked))
    assert "drops digits" in masked


DIFF = """--- a/site/urls.py
+++ b/site/urls.py
@@ -1,4 +1,4 @@ def make_url(title):
 one
-    value = old_name(title)
+    value = new_name(title, keep_digits=True)
 three
 four
"""


def test_names_of_a_diff() -> None:
    assert diff_names(DIFF) == {"make_url", "old_name", "new_name", "keep_digits"}
    assert diff_names(DIFF, ["title"]) == {"make_url", "old_name", "new_name", "keep_digits", "title"}
    assert diff_paths(DIFF) == {"site/urls.py"}


OLD = "one\n    value = old_name(title)\nthree\nfour\n"
NEW = "one\n    value = new_name(title, keep_digits=True)\nthree\nfour\n"


def kinds(issue: str, text: str = OLD) -> list[str]:
    return [
        leak.kind
        for leak in find_leaks(issue, diff=DIFF, snapshot=Snapshot.from_files({"site/urls.py": text}))
    ]


def test_a_diff_in_the_issue_is_refused() -> None:
    assert kinds("The digits are lost.") == []
    assert kinds(f"Fix:\n{DIFF}") == ["diff in issue", "fix in issue"]
    assert kinds("Use `value = new_name(title, keep_digits=True)` there.") == ["fix in issue"]
    with pytest.raises(BadInput, match="contains a diff"):
        refuse_leaks(DIFF)


def test_a_snapshot_newer_than_the_fix_is_refused() -> None:
    assert kinds("The digits are lost.", NEW) == ["fix in snapshot"]
    with pytest.raises(BadInput, match="newer than the gold diff"):
        refuse_leaks("x y", diff=DIFF, snapshot=Snapshot.from_files({"site/urls.py": NEW}))
    assert kinds("The digits are lost.", "other\n") == []


def test_a_last_line_without_an_end_is_compared_like_any_other() -> None:
    mark = "\\ No newline at end of file\n"
    diff = f"--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n one\n-two\n{mark}+three\n{mark}"
    for text, found in {"one\ntwo": [], "one\nthree": ["fix in snapshot"]}.items():
        leaks = find_leaks("x y", diff=diff, snapshot=Snapshot.from_files({"a.py": text}))
        assert [leak.kind for leak in leaks] == found


def test_long_runs_of_one_letter_are_no_trouble() -> None:
    for text in ("a" * 100_000, "aA" * 20_000, "_" * 20_000 + "a", "a/" * 20_000, "[" * 20_000, '"' * 20_000):
        issue_terms(text)
        assert not frames(text)
