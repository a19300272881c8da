"""Commands that read lines of their own, given a log of another tool or a tree: they say what it is."""

from __future__ import annotations

import json

import pytest

from refork.formats import import_file, reader_for
from refork.tree import Tree
from support.command import refork
from support.foreign_logs import FIXTURES, unpacked

#: Commands with a file of lines in them, and what a log stands for.
COMMANDS = {
    "gate fit": "gate fit {}",
    "theory score": "theory score {}",
    "memory ingest": "memory ingest {new} {}",
    "recovery audit": "recovery audit {}",
    "credit report": "credit report {}",
    "implicit predict": "implicit predict {}",
    "probe ceiling": "probe ceiling --counts {}",
    "speculate train": "speculate train --model organism:test-tiny --prompts {} --out {new} --dry-run",
    "localize run": "localize run {folder} --issue {}",
    "judge compare": "judge compare {}",
}
#: Those that read trees: a tree is no foreign file to them.
OF_TREES = {"memory ingest", "recovery audit", "credit report", "judge compare"}


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """An archive, a JSON document of several lines, and a tree."""
    folder = tmp_path_factory.mktemp("logs")
    document = folder / "run.traj"
    document.write_text(json.dumps(json.loads((FIXTURES / "mini-tools.traj.json").read_text()), indent=1))
    tree = folder / "tree.db"
    chat = unpacked("langgraph.json", folder)
    with Tree.open(tree) as made:
        import_file(made, chat, reader_for(chat))
    return {"archive": FIXTURES / "inspect.eval", "document": document, "tree": tree}


@pytest.mark.parametrize("kind", ["archive", "document", "tree"])
@pytest.mark.parametrize("name", COMMANDS)
def test_what_it_is_stands_where_a_parser_gave_up(name, kind, logs, tmp_path):
    if (kind == "tree" and name in OF_TREES) or (kind == "archive" and name == "judge compare"):
        return  # it reads them
    line = COMMANDS[name].format(logs[kind], new=tmp_path / "new", folder=tmp_path)
    said = refork(*line.split(), status=2).stderr
    assert "next:" in said, said
    assert "codec" not in said, said
    assert "Expecting" not in said, said
