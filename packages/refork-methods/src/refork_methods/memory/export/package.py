"""Tools as a Python package: typed, documented, with tests that run on a recording."""

from __future__ import annotations

import ast
import json
import keyword
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refork.errors import BadInput
from refork.sandbox import Call, Sandbox
from refork.types import Json
from refork_methods.memory import runtime
from refork_methods.memory.registry import ToolRegistry, invoke
from refork_methods.memory.runtime import Secrets, filled, from_environment
from refork_methods.memory.secrets import names_in, refuse_secrets
from refork_methods.memory.tool import Tool

# Writing an export: into a new or empty folder, all files or none are there at the end.


def write_files(folder: str | Path, files: Mapping[str, str]) -> list[Path]:
    """Write texts by relative path into a folder that is not there or is empty; the paths written.

    Raises:
        BadInput: the folder holds something, or is a file.
    """
    target = Path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise BadInput(f"{target} is not an empty folder", hint="name a new folder, or empty this one")
    target.parent.mkdir(parents=True, exist_ok=True)
    # Beside the target: a rename moves a folder whole, but not to another file system.
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        for name, text in files.items():
            (draft / name).parent.mkdir(parents=True, exist_ok=True)
            (draft / name).write_text(text, encoding="utf-8")
        # mkdtemp lets nobody else read the folder.
        draft.chmod(0o755)
        if target.exists():
            # Not every system renames onto a folder that is there, even an empty one.
            target.rmdir()
        draft.rename(target)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return [target / name for name in files]


# A tool's run on a real or replayed environment, kept so that an export can be tested without one.


@dataclass(frozen=True, slots=True)
class Recording:
    """One run: which tool, its arguments, each call of the environment with its answer, and the value."""

    tool: str
    arguments: Json
    calls: tuple[tuple[str, Json, Any], ...]
    value: Any

    def to_json(self) -> Json:
        """Plain fields."""
        calls = [{"name": name, "arguments": given, "answer": answer} for name, given, answer in self.calls]
        return {"tool": self.tool, "arguments": self.arguments, "calls": calls, "value": self.value}

    def told_calls(self) -> list[tuple[str, Json]]:
        """Its calls with the arguments that no earlier answer held."""
        seen: set[str] = set()
        found = []
        for name, given, answer in self.calls:
            found.append((name, {k: v for k, v in given.items() if json.dumps(v) not in seen}))
            seen |= set(re.findall(r'"[^"\\]*"|[\d.]+', json.dumps(answer)))
        return found


def record(
    registry: ToolRegistry,
    sandbox: Sandbox,
    name: str,
    arguments: Mapping[str, Any],
    call: Call,
    secrets: Secrets | None = from_environment,
) -> Recording:
    """Run a tool in the sandbox and keep what it asked the environment and what it gave; secrets by name.

    Raises:
        BadInput: the run gave no value.
    """
    calls: list[tuple[str, Json, Any]] = []

    def recorded_call(asked: str, given: Json) -> Any:
        answer = call(asked, filled(asked, given, secrets))
        calls.append((asked, given, answer))
        return answer

    result = invoke(registry, sandbox, name, arguments, recorded_call, secrets=None)
    if not result.ok:
        raise BadInput(f"{name} gave no value ({result.kind}): {result.error}", where="recording")
    return Recording(registry.tool(name).name, dict(arguments), tuple(calls), result.value)


# Tools as a Python package: typed, documented, with tests that run.

_PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{dashed}"
version = "{version}"
description = "{count} tools that were built from plans which came up again and again."
readme = "README.md"
requires-python = ">=3.11"

[project.optional-dependencies]
test = ["pytest"]

[tool.hatch.build.targets.wheel]
packages = ["src/{name}"]

[tool.pytest.ini_options]
pythonpath = ["src"]
testpaths = ["tests"]
"""
_TESTS = '''\
"""The tools have the parameters that tools.json says, and do again what they did when they were recorded."""

import inspect
import json
from pathlib import Path

import pytest

from {name} import FUNCTIONS, Tools

HERE = Path(__file__).parent
TOOLS = json.loads((HERE / "tools.json").read_text(encoding="utf-8"))["tools"]
RECORDINGS = json.loads((HERE / "recordings.json").read_text(encoding="utf-8"))


class Replay:
    """Answers as the environment did; another call than the recorded one is an error."""

    def __init__(self, calls):
        self.left = list(calls)

    def __call__(self, name, arguments):
        assert self.left, f"one call more than recorded: {{name}}"
        wanted = self.left.pop(0)
        assert (name, arguments) == (wanted["name"], wanted["arguments"])
        return wanted["answer"]


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool["name"])
def test_signature(tool):
    first, second, *keywords = inspect.signature(FUNCTIONS[tool["name"]]).parameters.values()
    assert (first.name, second.name) == ("apis", "tools")
    assert {{one.name for one in keywords}} == set(tool["parameters"].get("properties", {{}}))
    needed = {{one.name for one in keywords if one.default is inspect.Parameter.empty}}
    assert needed == set(tool["parameters"].get("required", []))
    assert inspect.getdoc(FUNCTIONS[tool["name"]])
    assert inspect.getdoc(getattr(Tools, tool["name"])) == inspect.getdoc(FUNCTIONS[tool["name"]])


@pytest.mark.parametrize("recorded", RECORDINGS, ids=lambda one: one["tool"])
def test_replay(recorded):
    replay = Replay(recorded["calls"])
    value = getattr(Tools(replay, secrets=None), recorded["tool"])(**recorded["arguments"])
    assert json.loads(json.dumps(value)) == recorded["value"]
    assert not replay.left
'''


def export_package(
    registry: ToolRegistry,
    folder: str | Path,
    *,
    name: str = "memory_tools",
    version: str = "0.1.0",
    recordings: Sequence[Recording] = (),
    allow_secrets: bool = False,
) -> list[Path]:
    """Write a package of a registry's tools; the paths written.

    ``recordings`` become tests that replay them. Outside the sandbox a tool runs with its caller's rights.

    Raises:
        BadInput: no tools, a name that no package can have, or a folder that is not empty.
        CannotDo: something looks like a secret, unless ``allow_secrets``.
    """
    if not registry.tools:
        raise BadInput("there is no tool to export")
    if not re.fullmatch(r"[a-z_][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise BadInput(f"{name!r} cannot name a package", hint="lower-case letters, digits and _")
    if not allow_secrets:
        refuse_secrets(registry.tools, calls=[call for one in recordings for call in one.told_calls()])
    home = f"src/{name}"
    files = {
        "pyproject.toml": _PYPROJECT.format(
            dashed=name.strip("_").replace("_", "-"), name=name, version=version, count=len(registry.tools)
        ),
        "README.md": _readme(registry, name),
        f"{home}/__init__.py": _init(),
        f"{home}/py.typed": "",
        f"{home}/_runtime.py": Path(runtime.__file__).read_text(encoding="utf-8"),
        f"{home}/functions/__init__.py": _functions(registry),
        f"{home}/bound.py": _bound(registry),
        "tests/test_tools.py": _TESTS.format(name=name),
        "tests/tools.json": registry.to_bytes().decode() + "\n",
        "tests/recordings.json": json.dumps([one.to_json() for one in recordings], indent=1) + "\n",
    }
    for tool in registry.tools:
        files[f"{home}/functions/{tool.name}.py"] = f"# mypy: ignore-errors\n# {origin(tool)}\n{tool.source}"
    return write_files(folder, files)


def origin(tool: Tool) -> str:
    """One line: where a tool comes from."""
    return (
        f"From plan {one_line(tool.plan)}; digest {tool.digest[:12]}; {len(tool.queries)} supporting queries."
    )


def one_line(text: str) -> str:
    """A text without line breaks and control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _init() -> str:
    return (
        '"""Tools that were built from plans which came up again and again."""\n\n'
        "from .bound import Tools\nfrom .functions import FUNCTIONS\n\n"
        '__all__ = ["FUNCTIONS", "Tools"]\n'
    )


def _functions(registry: ToolRegistry) -> str:
    lines = [
        '"""The tools as they were admitted, one per file."""',
        "",
        "from collections.abc import Callable",
    ]
    lines += ["from typing import Any", ""]
    lines += [f"from .{name} import {name}" for name in registry.names]
    lines += [
        "",
        "#: Name -> function of (apis, tools, *, its parameters).",
        "FUNCTIONS: dict[str, Callable[..., Any]] = {",
    ]
    lines += [f'    "{name}": {name},' for name in registry.names]
    return "\n".join([*lines, "}", ""])


def _bound(registry: ToolRegistry) -> str:
    lines = [
        '"""The tools as methods, bound to an environment."""', "", "from typing import Any", "",
        "from ._runtime import Bound, Call, Secrets, from_environment", "from .functions import FUNCTIONS",
        "", "", "class Tools:",
        '    """All tools on one environment: ``call(name, arguments)`` answers for "app.function"."""', "",
        "    def __init__(self, call: Call, secrets: Secrets | None = from_environment) -> None:",
        "        self._bound = Bound(call, FUNCTIONS, secrets)",
    ]  # fmt: skip
    for tool in registry.tools:
        function = next(
            node
            for node in ast.parse(tool.source).body
            if isinstance(node, ast.FunctionDef) and node.name == tool.name
        )
        lines += ["", *_method(tool, function)]
    return "\n".join([*lines, ""])


def _method(tool: Tool, function: ast.FunctionDef) -> list[str]:
    """A typed method with the function's own keywords and docstring."""
    given = function.args
    keywords = ast.unparse(ast.arguments([], [], None, given.kwonlyargs, given.kw_defaults, None, []))
    doc = ast.get_docstring(function) or ""
    quoted = doc.replace("\\", "\\\\").replace('"""', '\\"""')
    # A quote at the end would close the docstring one character early.
    body = quoted + ("\n" if "\n" in quoted or quoted.endswith('"') else "")
    names = ", ".join(f'"{one.arg}": {one.arg}' for one in given.kwonlyargs)
    return [
        f"    def {tool.name}(self{', ' + keywords if keywords else ''}) -> Any:",
        *('        """' + body + '"""').replace("\n", "\n        ").splitlines(),
        f'        return self._bound.run("{tool.name}", {{{names}}})',
    ]


def _readme(registry: ToolRegistry, name: str) -> str:
    lines = [
        f"# {name}", "",
        f"{len(registry.tools)} tools, each built from a plan that came up again and again, and",
        "admitted after it was read, compiled and loaded in a sandbox.",
        "Here they run with your rights, outside any sandbox.", "",
        "```python", f"from {name} import Tools", "",
        "tools = Tools(call)   # call(name, arguments) answers for the environment: name is \"app.function\"",
        "```", "",
    ]  # fmt: skip
    for tool in registry.tools:
        lines += [f"## {tool.name}", "", one_line(tool.doc), "", *describe(tool, registry)]
    return "\n".join(lines)


def describe(tool: Tool, registry: ToolRegistry) -> list[str]:
    """Markdown lines: a tool's parameters, what it may call, and where it comes from."""
    required = set(tool.parameters.get("required", ()))
    lines = ["| parameter | type | |", "|---|---|---|"]
    for key, schema in tool.parameters.get("properties", {}).items():
        note = one_line(str(schema.get("description", ""))).replace("|", "\\|")
        lines.append(
            f"| `{key}` | {schema.get('type', 'any')}{'' if key in required else ', optional'} | {note} |"
        )
    if not tool.parameters.get("properties"):
        lines = ["No parameters."]
    closed = sorted(registry.close(tool.needs))
    may = ", ".join(f"`{need}`" for need in closed) or "nothing"
    named = ", ".join(f"`{name}` ({runtime.variable(name)})" for name in names_in(tool))
    secret = (
        [f"Secrets that its calls are given by name, from the environment: {named}.", ""] if named else []
    )
    return [*lines, "", f"Calls, itself or through other tools: {may}.", "", *secret, origin(tool), ""]
