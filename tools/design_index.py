"""Write the tables of docs/design.md from the decisions in docs/design/; ``--check`` compares them."""

from __future__ import annotations

import re
import sys
from itertools import groupby
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = DOCS / "design.md"
#: Subjects in the order of the page; others follow.
ORDER = (
    "Forks and draws", "The tree", "Decoding", "White box", "Worlds and simulators", "Credit and training",
    "Methods", "Serving", "Walls", "Logs", "House",
)  # fmt: skip
HEAD = re.compile(r"# (?P<title>.+)\n\n\*(?P<date>\d{4}-\d\d-\d\d) · (?P<subject>.+)\*\n")


def render(page: str, folder: Path = DOCS / "design") -> str:
    """The page: what stands before its first table, and a table for each subject.

    Raises:
        ValueError: a decision does not begin with its title, its date and its subject; or a text stands among
            the tables, where it would be lost.
    """
    start, *tables = page.split("\n## ")
    if lost := [line for part in tables for line in part.splitlines()[1:] if line and line[0] != "|"]:
        raise ValueError(f"docs/design.md holds a text that belongs in docs/design/: {lost[0][:60]!r}")
    rows = []
    for path in folder.glob("*.md"):
        head = HEAD.match(path.read_text())
        if head is None or not path.name.startswith(head["date"]):
            raise ValueError(f"{path.name} does not begin with '# Title' and '*DATE · Subject*'")
        subject = head["subject"]
        place = ORDER.index(subject) if subject in ORDER else len(ORDER)
        rows.append(
            (place, subject, path.name, f"| {head['date']} | [{head['title']}](design/{path.name}) |")
        )
    lines = [start.rstrip(), ""]
    for subject, group in groupby(sorted(rows), key=lambda row: row[1]):
        lines += [f"## {subject}", "", "| date | decision |", "|---|---|", *(row[3] for row in group), ""]
    return "\n".join(lines)


def main() -> int:
    """Write the page, or (``--check``) compare it."""
    page = render(PAGE.read_text())
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page)
        return 0
    if PAGE.read_text() == page:
        return 0
    print("docs/design.md does not list docs/design; run tools/design_index.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
