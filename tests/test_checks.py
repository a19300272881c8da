"""What pages say is checked is checked by something that is there: every test, tool and benchmark named."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

#: A file of ours, with the name of a test behind it where one is given.
NAMED = re.compile(r"\b((?:packages/[\w-]+/)?tests/[\w/.-]*\w|(?:tools|benchmarks)/[\w/-]+\.py)(?:::(\w+))?")
#: A sentence that rests on a test of this repository. Other tests are a user's, a benchmark's or statistical.
RESTS = re.compile(
    r"""(?x)
    \b(?: in\ (?:the|our)\ tests \b | (?:equality|which)\ is\ a\ test\b
    | a\ test\ (?:of\ ours|here|holds|forgets|drives)
    | (?:the|our)\ tests\ (?:run|hold|carry|compare|write|show) | which\ tests\ (?:hold|compare)
    | test\ that\ shuffles | ^\#\#\ How\ (?:it|this)\ was\ checked | ^\#\#\ Checked\ against
    | (?:^|:\ |all\ |is\ |was\ |were\ )tested\ (?:against|for|over|in)\ | \b(?:all|that\ is|were)\ tested\b
    | ^Tested\ | \bthese\ are\ tests\b )
    """,
    re.MULTILINE,
)


def paragraphs(text):
    """Paragraphs and list items of a page, tables whole; a heading goes with what follows it."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    text = re.sub(r"(^#+ .*)\n\n", r"\1\n", text, flags=re.MULTILINE)
    return re.split(r"\n\n|\n(?=[-*] )", text)


def missing(file, name):
    """Whether a page names what is not there."""
    path = ROOT / file
    if not path.exists():
        return True
    return bool(name) and f"def {name}(" not in path.read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_what_a_page_names_is_there(page):
    found = [match.groups() for match in NAMED.finditer(page.read_text())]
    assert [(file, name) for file, name in found if missing(file, name)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_sentence_about_tests_names_one(page):
    bare = [part for part in paragraphs(page.read_text()) if RESTS.search(part) and "tests/" not in part]
    assert bare == []


#: A name in a module of ours, as pages of parts write it: `probe.fit:FirstTokenProbe`.
PART = re.compile(r"`([a-z_]\w*(?:\.\w+)*):(\w+)`")
PARTS = ROOT / "docs/papers-parts.md"


def without_part(module, name):
    """Whether a module, of refork_methods unless it says another package, has no such name."""
    own = module.split(".")[0] in ("refork", "refork_methods", "refork_testbed", "refork_worlds")
    package, _, rest = (module if own else f"refork_methods.{module}").partition(".")
    place = ROOT / "packages" / package.replace("_", "-") / "src" / package / rest.replace(".", "/")
    files = [file for file in (place.with_suffix(".py"), place / "__init__.py") if file.exists()]
    defined = re.compile(rf"^(?:def|class) {name}\b|^\s+{name},$|^{name}\b.* = |\bimport .*\b{name}\b", re.M)
    return not any(defined.search(file.read_text()) for file in files)


def test_parts_of_papers_are_there():
    rows = [
        line for line in PARTS.read_text().splitlines() if line.startswith("| ") and "why not |" not in line
    ]
    assert len(rows) > 250
    assert [found for row in rows for found in PART.findall(row) if without_part(*found)] == []
    # A part is shown by something, or it is said why not.
    assert [row for row in rows if not NAMED.search(row) and not row.rsplit("|", 2)[1].strip()] == []
    # Nothing stands there as a name that is none.
    where = [row.split("|")[2] for row in rows]
    assert [cell for cell in where if cell.count("`") != 2 * len(PART.findall(cell))] == []


def test_a_part_that_is_gone_is_seen():
    assert without_part("probe.fit", "NoSuchProbe")
    assert without_part("probe.no_such_file", "FirstTokenProbe")
    assert not without_part("probe.fit", "FirstTokenProbe")
    assert not without_part("refork.stats", "wilson")


def test_the_page_of_checks_names_many():
    text = (ROOT / "docs" / "checks.md").read_text()
    assert len(set(NAMED.findall(text))) > 40


def promises(text):
    """Rows of the tables of promises: what is promised, and by what it is held."""
    part = text.split("## Promises")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in part.splitlines() if line.startswith("|")]
    return [(what.strip(), held) for what, held in rows if what.strip("- ") not in ("", "promise")]


def test_every_promise_of_security_names_a_test_that_is_there():
    rows = promises((ROOT / "SECURITY.md").read_text())
    assert len(rows) > 12
    for what, held in rows:
        named = NAMED.findall(held)
        assert any("tests/" in file for file, _ in named), what
        assert [one for one in named if missing(*one)] == [], what


def test_a_promise_without_a_test_is_seen():
    head = "# S\n## Promises\n| promise | held by |\n|---|---|\n"
    [(what, held)] = promises(head + "| Nothing gets out. | our care |\n## What is not defended\n| a | b |\n")
    assert what == "Nothing gets out."
    assert NAMED.findall(held) == []


def test_a_name_that_is_gone_is_seen():
    assert missing("tests/test_checks.py", "test_that_never_was")
    assert missing("tests/no_such_file.py", "")
    assert not missing("tests/test_checks.py", "test_a_name_that_is_gone_is_seen")
    assert RESTS.search("This is compared in the tests.")
    assert not RESTS.search("The second fooled the public tests, and the hidden suite passes.")
