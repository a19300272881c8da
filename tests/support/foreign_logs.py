"""Importing and exporting in tests: records apart from remarks, trees as plain data."""

from __future__ import annotations

import gzip
import io
import os
from pathlib import Path

from refork.formats.native import plain_node
from refork.tree import Tree
from refork.tree.records import Position, Remark
from support.repository import ROOT

FIXTURES = ROOT / "packages/refork/tests/formats/fixtures"
#: Real logs, where they lie beside the repository or in a folder that is named.
REAL = Path(os.environ.get("REFORK_REAL_LOGS") or ROOT.parent / "shared/data/logs")


def imported(reader, file):
    """A tree of a file, checked, and the remarks made on the way."""
    records = list(reader.read(Path(file)))
    remarks = [record for record in records if isinstance(record, Remark)]
    tree = Tree.memory()
    tree.load(record for record in records if not isinstance(record, (Remark, Position)))
    assert list(tree.verify()) == []
    return tree, remarks


def exported(tree, writer, file):
    """A tree written to a file; how many."""
    file = Path(file)
    if getattr(writer, "binary", False):
        with file.open("wb") as out:
            return writer.write(tree.records(), out)
    out = io.StringIO()
    count = writer.write(tree.records(), out)
    file.write_text(out.getvalue(), encoding="utf-8")
    return count


def plain(tree):
    """All that a tree holds, moments of writing aside."""
    nodes = [{k: v for k, v in plain_node(node).items() if k != "created"} for node in tree.walk()]
    scores = [
        (s.node, s.name, s.value if isinstance(s.value, float) else s.value.tolist(), s.reason)
        for s in tree.scores()
    ]
    return nodes, sorted(scores, key=repr), sorted(p.id for p in tree.producers())


def whats(remarks, kind):
    """What remarks of a kind say."""
    return [remark.what for remark in remarks if remark.kind == kind]


def unpacked(name, folder):
    """A committed fixture that is compressed, unpacked into a folder."""
    file = Path(folder) / name
    file.write_bytes(gzip.decompress((FIXTURES / f"{name}.gz").read_bytes()))
    return file


def kinds(tree):
    """The kinds of nodes of every trajectory."""
    return sorted([step.node.kind for step in trajectory] for trajectory in tree.paths(tree.leaves()))
