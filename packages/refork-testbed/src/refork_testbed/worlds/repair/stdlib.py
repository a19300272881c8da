"""Projects of the running interpreter's own standard library: copies of modules, read when they are needed.

Each project mutates one module and holds five others to be searched. What the copies answer is recorded from
their original text, so the tasks fit whatever version of Python runs.
"""

from __future__ import annotations

import ast
import importlib
import re
from functools import cache
from pathlib import Path

from refork.errors import CannotDo
from refork.worlds.dice import Dice
from refork_testbed.worlds.repair.drawn import Draw
from refork_testbed.worlds.repair.mutation import lines
from refork_testbed.worlds.repair.package import Check
from refork_testbed.worlds.repair.templates.standard import MODULES
from refork_testbed.worlds.repair.trades import trades

CALLS = 7
_FOLDERS = ("kit", "toolbox", "vendored", "lib", "shared")


def sources() -> tuple[str, ...]:
    """Names of the mutated modules; the first half of the projects takes every other one."""
    return tuple(MODULES)


@cache
def source_of(module: str) -> str:
    """The text of a standard module, without the lines that put compiled twins in the place of its functions.

    Raises:
        CannotDo: this Python comes without the text of its library.
    """
    path = getattr(importlib.import_module(module), "__file__", None)
    if not path or not Path(path).is_file() or not path.endswith(".py"):
        raise CannotDo(f"the text of the standard module {module!r} is not installed")
    text = Path(path).read_text(encoding="utf-8")
    rows = lines(text)
    for node in ast.parse(text).body:
        if isinstance(node, ast.Try) and all(isinstance(one, ast.ImportFrom) for one in node.body):
            taken = node.body[0]
            if isinstance(taken, ast.ImportFrom) and (taken.module or "").startswith("_"):
                for row in range(node.lineno - 1, node.end_lineno or node.lineno):
                    rows[row] = "\n"
    return "".join(rows)


@cache
def copied(module: str) -> tuple[str, dict[str, str], tuple[Check, ...], str]:
    """Name, files, checks (without answers) and mutated path of a standard module's project."""
    place = sources().index(module)
    dice = Dice("repair", "stdlib", module)
    folder = _FOLDERS[place % len(_FOLDERS)]
    others = dice.sample([one for one in sources() if one != module], 5)
    files = {f"{folder}/__init__.py": '"""Small tools."""\n'}
    for one in (module, *others):
        files[f"{folder}/{_file(one)}.py"] = source_of(one)
    trade = trades()[place]
    draw = Draw(dice, trade.goods, trade.places, trade.amount)
    exported = _tops(source_of(module))
    checks = []
    for line in MODULES[module].strip().split("\n"):
        call, _, about = line.rpartition(" ; ")
        used = tuple(name for name in _used(call) if name in exported)
        for _ in range(CALLS):
            checks.append(Check(f"{folder}.{_file(module)}", used[0], used, draw.filled(call), about))
    return f"std-{module}", dict(sorted(files.items())), tuple(checks), f"{folder}/{_file(module)}.py"


def _file(module: str) -> str:
    return module.replace(".", "_")


def _tops(source: str) -> set[str]:
    """Names that a module defines, in whatever branch."""
    found: set[str] = set()
    pending: list[ast.AST] = [*ast.parse(source).body]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        else:
            pending += ast.iter_child_nodes(node)
    return found


def _used(call: str) -> list[str]:
    """Names that a call calls, as they first occur."""
    return list(dict.fromkeys(re.findall(r"(?<![\w.\"$])[A-Za-z_]\w*(?=\()", call)))
