"""Pages that list what is there list all of it: design decisions, papers, questions, rooms, modules."""

import re
import shlex
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest
import typer

from refork.cli import app
from refork.registry import KINDS
from support.toolbox import load

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
#: What a decision says, in this order.
PARTS = ("**Question.** ", "**Decision.** ", "**Reason.** ", "**Instead of.** ")


def test_every_decision_is_in_the_index_with_its_date_and_title():
    page = (DOCS / "design.md").read_text()
    assert load("design_index").render(page) == page


def test_a_decision_without_a_date_is_refused(tmp_path):
    (tmp_path / "2026-01-01-odd.md").write_text("# Odd\n\nNo date.\n")
    with pytest.raises(ValueError, match="2026-01-01-odd"):
        load("design_index").render("", tmp_path)


def test_a_decision_among_the_tables_is_not_lost():
    with pytest.raises(ValueError, match="belongs in docs/design/: 'A decision"):
        load("design_index").render("# Page\n\n## A new one\n\nA decision.\n")


def test_every_decision_says_what_was_asked_why_and_instead_of_what():
    for path in sorted((DOCS / "design").glob("*.md")):
        parts = [part for part in path.read_text().split("\n\n") if part.startswith("**")]
        assert tuple(part[: part.index("** ") + 3] for part in parts) == PARTS, path.name


INDEXES = ("papers.md", "questions.md")
METHODS = ROOT / "packages/refork-methods/src/refork_methods"
PRODUCT = ROOT / "packages/refork/src/refork"
COMMAND = re.compile(r"`(refork [^`]+)`")
LINK = re.compile(r"\]\(([^)#\s]+)")


def lacking(command):
    """What the command line does not have of a command, as words and options; none where all is there."""
    group = typer.main.get_command(app)
    context = typer.Context(group, info_name="refork")
    words = [word for word in shlex.split(command)[1:] if word.isalnum() or word.startswith("--")]
    while words and hasattr(group, "get_command") and not words[0].startswith("--"):
        found = group.get_command(context, words[0])
        if found is None:
            return [words[0]]
        group = found
        context = typer.Context(group, info_name=words.pop(0), parent=context)
    options = {option for parameter in group.params for option in parameter.opts}
    return [word for word in words if word.startswith("--") and word not in options]


def test_every_folder_of_the_methods_is_in_the_index_by_paper():
    rows = [line.split("|") for line in (DOCS / "papers.md").read_text().splitlines() if "| `refork" in line]
    named = {name for row in rows for cell in row[1:3] for name in re.findall(r"`(\w+)`", cell)}
    folders = {path.parent.name for path in METHODS.glob("*/__init__.py")}
    assert folders <= named
    assert all((PRODUCT / name).is_dir() for name in named - folders)


def test_every_page_of_a_method_is_in_the_index_by_paper():
    linked = set(LINK.findall((DOCS / "papers.md").read_text()))
    assert {f"methods/{path.name}" for path in (DOCS / "methods").glob("*.md")} <= linked


def test_a_paper_is_named_by_the_pages_of_its_row():
    """The identifier of a paper stands in the table and in a page that the same row leads to."""
    lines = (DOCS / "papers.md").read_text().split("## Folders")[0].splitlines()
    rows = [line for line in lines if "arxiv.org" in line]
    assert len(rows) == 18
    for row in rows:
        [paper] = re.findall(r"arxiv\.org/abs/([\d.]+)", row)
        pages = [link for link in LINK.findall(row) if link.startswith("methods/")]
        assert any(paper in (DOCS / page).read_text() for page in pages), paper


@pytest.mark.parametrize("page", INDEXES)
def test_what_an_index_names_is_there(page):
    text = (DOCS / page).read_text()
    commands = COMMAND.findall(text)
    assert len(commands) > 18
    assert {command: gone for command in commands if (gone := lacking(command))} == {}
    pages = [link for link in LINK.findall(text) if "://" not in link]
    assert [link for link in pages if not (DOCS / link).is_file()] == []


def test_a_command_that_is_not_there_is_seen():
    assert lacking("refork nothing") == ["nothing"]
    assert lacking("refork tree nothing") == ["nothing"]
    assert lacking("refork fork --nothing") == ["--nothing"]
    assert lacking("refork grow --selector uucb") == []


def cells(text, heading):
    """The rows of the table below a heading of a page, each as its cells."""
    part = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def test_the_rooms_stand_in_the_order_that_is_kept():
    """A contract keeps the order of imports; the page says it to people."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [layers] = [one["layers"] for one in contracts if one.get("containers") == ["refork"]]
    level = {room.strip(): number for number, rooms in enumerate(layers) for room in rooms.split("|")}
    del level["__main__"]  # a file that starts the command line, no room
    rows = cells((DOCS / "architecture.md").read_text(), "The rooms of the product")
    named = [re.findall(r"`(\w+)`", row[0]) for row in rows]
    assert sorted(room for rooms in named for room in rooms) == sorted(level)
    levels = [{level[room] for room in rooms} for rooms in named]
    assert all(max(upper) <= min(lower) for upper, lower in pairwise(levels))


def test_seams_and_steps_of_a_fork_are_where_the_page_says():
    text = (DOCS / "architecture.md").read_text()
    seams = [(row[1], row[0]) for row in cells(text, "Seams")]
    steps = [tuple(row[1].split(", ")) for row in cells(text, "How a fork goes through the code")]
    for file, name in [*seams, *steps]:
        source = (PRODUCT / file.strip("`")).read_text()
        assert re.search(rf"^ *(def|class) {name.strip('`')}\b", source, re.MULTILINE), (file, name)


#: A name in our packages, as ``refork.forking.compare``; a link to a file is none.
DOTTED = re.compile(r"(?<![/\w])refork(?:_methods|_worlds|_testbed)?(?:\.[A-Za-z_]\w*)+")
NAMING = [path for path in DOCS.rglob("*.md") if path.name not in ("cli.md", "observability.md")]


def gone(name):
    """Whether no module has a dotted name, as far as files show it; groups of entry points are none."""
    package, *rest = name.split(".")
    folder = ROOT / "packages" / package.replace("_", "-") / "src" / package
    if package == "refork" and rest[0] in KINDS:
        return False
    while rest and (folder / rest[0]).is_dir():
        folder /= rest.pop(0)
    if not rest:
        return False
    module = folder / f"{rest[0]}.py"
    if module.is_file():
        return len(rest) > 1 and rest[1] not in module.read_text()
    heads = [folder / "__init__.py", folder / "__init__.pyi"]
    return not any(head.is_file() and rest[0] in head.read_text() for head in heads)


@pytest.mark.parametrize("page", NAMING, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_modules_that_a_page_names_are_there(page):
    assert [name for name in DOTTED.findall(page.read_text()) if gone(name)] == []


def test_a_module_that_is_gone_is_seen():
    assert gone("refork.nowhere.Thing")
    assert gone("refork.judge.Nobody")
    assert gone("refork_methods.cliff.nothing")
    assert not gone("refork.forking.compare")
    assert not gone("refork.worlds")
