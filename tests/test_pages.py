"""Pages that list what is there list all of it: design decisions."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
#: What a decision says, in this order.
PARTS = ("**Question.** ", "**Decision.** ", "**Reason.** ", "**Instead of.** ")
#: A line of the index of decisions.
DECISION = re.compile(r"^\| (\d{4}-\d\d-\d\d) \| \[(.+)\]\(design/(\1-[a-z0-9-]+\.md)\) \|$", re.MULTILINE)


def test_every_decision_is_in_the_index_with_its_date_and_title():
    files = {path.name: path.read_text() for path in sorted((DOCS / "design").glob("*.md"))}
    rows = DECISION.findall((DOCS / "design.md").read_text())
    assert sorted(name for _, _, name in rows) == sorted(files)
    for date, title, name in rows:
        assert files[name].startswith(f"# {title}\n\n*{date} · "), name


def test_every_decision_says_what_was_asked_why_and_instead_of_what():
    for path in sorted((DOCS / "design").glob("*.md")):
        parts = [part for part in path.read_text().split("\n\n") if part.startswith("**")]
        assert tuple(part[: part.index("** ") + 3] for part in parts) == PARTS, path.name
