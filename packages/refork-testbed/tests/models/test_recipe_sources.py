"""A tiny model is built anew where what its world says or grades by has changed, also in a method's file."""

import ast
from pathlib import Path

from refork_testbed import worlds
from refork_testbed.models.registry import _WORLDS


def test_what_planted_worlds_take_from_methods_decides_their_models():
    taken = set()
    for file in Path(worlds.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("refork_methods."):
                taken.add(node.module)
    assert taken, "the test looks in the wrong place"
    assert [name for name in sorted(taken) if not name.startswith(_WORLDS)] == []
