"""The runner of the documentation."""

import os
import sys
import textwrap
from pathlib import Path

import pytest

from support.toolbox import load

run_docs = load("run_docs")

PAGE = textwrap.dedent(
    """\
    # Title

    ```python
    x = 1
    ```

    ```toml
    not = "run"
    ```

    <!-- skip: needs a server -->
    ```console
    $ false
    ```

    <!-- exit: 3 -->
    <!-- match -->
    ```console
    $ echo one; \\
    echo two
    one
    t...
    $ exit 3
    ```
    """
)


def test_a_block_with_a_title_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        '```python title="mine.py"\nx = 1 / 0\n```\n\n```toml title="a.toml"\nb = 2\n```\n\n'
        "```console\n$ cat mine.py a.toml > both\n```\n\n```toml\nno = 1\n```\n"
    )
    assert run_docs.run_blocks(page) == 0
    assert (tmp_path / "both").read_text() == "x = 1 / 0\nb = 2\n"


def test_blocks_and_what_is_expected_of_them():
    python, skipped, console = run_docs.blocks(PAGE)
    assert (python.language, python.body, python.line) == ("python", ("x = 1",), 4)
    assert (skipped.skip, skipped.exit, skipped.match) == ("needs a server", 0, False)
    assert (console.skip, console.exit, console.match) == (None, 3, True)
    first, second = console.commands()
    assert (first.text, first.shown, first.line) == ("echo one; \\\necho two", ("one", "t..."), 19)
    assert (second.text, second.shown, second.line) == ("exit 3", (), 23)


def test_an_indented_block_is_dedented():
    (block,) = run_docs.blocks("- item\n\n    ```python\n    if True:\n        y = 2\n    ```\n")
    assert block.body == ("if True:", "    y = 2")


@pytest.mark.parametrize(
    ("shown", "got", "same"),
    [
        (("a", "b"), "a\nb\n", True),
        (("a",), "a\nb\n", False),
        (("a...",), "a\nb\n", True),
        (("a ... c",), "a 12 c", True),
        (("...", "z"), "x\ny\nz", True),
        (("a.c",), "abc", False),
        ((), "", True),
    ],
)
def test_output_matches_with_ellipsis(shown, got, same):
    assert run_docs.matches(shown, got) is same


def outcome_of(tmp_path, text, limit=120.0):
    page = tmp_path / "page.md"
    page.write_text(text)
    return run_docs.run_page(page, limit)


def test_a_good_page_runs_in_one_namespace_and_one_folder(tmp_path):
    text = "```python\nx = 3\nopen('f', 'w').write('hi')\n```\n\n"
    text += "```console\n$ cat f\nhi\n```\n\n```python\nassert x == 3\n```\n"
    outcome = outcome_of(tmp_path, text + PAGE)
    assert (outcome.status, outcome.ran, len(outcome.skipped)) == (0, 5, 1), outcome.output


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("```python\nx = 1\n1 / 0\n```\n", 3, "ZeroDivisionError"),
        ("```python\nx = 1\nx =\n```\n", 3, "SyntaxError"),
        ("text\n\n```console\n$ true\n$ exit 4\n```\n", 5, "exit status 4, not 0"),
        ("<!-- exit: 1 -->\n```console\n$ false\n$ true\n```\n", 3, "exit status 1, not 0"),
        ("<!-- match -->\n```console\n$ echo a\nb\n```\n", 3, "other output"),
        ("```python\nraise SystemExit(0)\n```\n", 2, "SystemExit"),
    ],
)
def test_a_failure_names_page_and_line(tmp_path, text, line, says):
    outcome = outcome_of(tmp_path, text)
    assert outcome.status == 1
    assert f"page.md:{line}: " in outcome.output
    assert says in outcome.output


def test_a_page_that_hangs_is_stopped(tmp_path):
    outcome = outcome_of(tmp_path, "```console\n$ sleep 600\n```\n", limit=0.5)
    assert outcome.status == run_docs.TIMED_OUT
    assert outcome.seconds < 300


def test_pages_are_chosen_by_part_of_their_path(capsys, monkeypatch):
    assert all("design" in str(page) for page in run_docs.pages(["design"]))
    monkeypatch.setattr(sys, "argv", ["run_docs.py", "--only", "no-such-page"])
    assert run_docs.main() == 2
    assert "no-such-page" in capsys.readouterr().out


@pytest.mark.parametrize("before", ["/the/reader's/own", None])
def test_pages_do_not_see_what_the_reader_has_built(tmp_path, monkeypatch, before):
    monkeypatch.delenv("REFORK_HOME", raising=False)
    if before is not None:
        monkeypatch.setenv("REFORK_HOME", before)
    text = "```console\n$ ls $REFORK_HOME | wc -l\n0\n$ touch $REFORK_HOME/built\n```\n"
    with run_docs.home(None):
        scratch = Path(os.environ["REFORK_HOME"])
        assert outcome_of(tmp_path, text).status == 0
        assert (scratch / "built").exists()
    assert not scratch.exists()
    with run_docs.home(tmp_path / "kept"):
        assert os.environ["REFORK_HOME"] == str(tmp_path / "kept")
    assert os.environ.get("REFORK_HOME") == before
