"""Every way in which code of a model or a stranger is run, and what each does where there is no wall."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from refork.errors import CannotDo
from refork.sandbox import Sandbox
from refork.sandbox.jailed import exposed as shows
from refork.sandbox.jailed import jailed
from refork.sandbox.shell import Shell, ShellState
from refork.worlds.open import open_world
from refork_methods.memory.admission import AdmissionGuard, admit
from refork_methods.memory.export.mcp_server import main as serve_tools
from refork_methods.memory.registry import ToolRegistry, invoke
from refork_methods.memory.tool import Tool
from refork_testbed.worlds.repair.runner import TestRunner
from support.lacking import Part, lack

_SOURCE: Final = (
    'def shout(apis, tools, *, text: str) -> object:\n    """In capitals."""\n    return text.upper()\n'
)
_SCHEMA: Final = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOL: Final = Tool("t1", "shout", _SOURCE, "In capitals.", _SCHEMA, (), "p", ("shout hey", "shout ho"))
KERNEL: Final = "// refork: a=n\nvoid add(int n, float *a) { for (int i = 0; i < n; i++) a[i] += 1; }\n"


def _sandbox(_: Path) -> object:
    with Sandbox() as sandbox:
        return sandbox.run(_SOURCE, "shout", {"text": "x"}).value


def _loaded(_: Path) -> object:
    with Sandbox() as sandbox:
        return sandbox.load(_SOURCE, "shout").ok


def _registry(_: Path) -> object:
    with Sandbox() as sandbox:
        return invoke(ToolRegistry((TOOL,)), sandbox, "shout", {"text": "x"}, None).ok


def _admitted(_: Path) -> object:
    with Sandbox() as sandbox:
        return admit(TOOL, ToolRegistry(), {}, sandbox).admitted


def _guarded(_: Path) -> object:
    return AdmissionGuard({}).admit(TOOL, ()).admitted


def _served(folder: Path) -> object:
    """What the server does before it serves, and its exit status instead of an error."""
    (folder / "tools.json").write_bytes(ToolRegistry((TOOL,)).to_bytes())
    with Path(os.devnull).open() as sys.stdin, Path(os.devnull).open("w") as sys.stdout:  # nobody asks
        if serve_tools([str(folder / "tools.json")]) == 2:
            raise CannotDo("exit status 2")
    return True


def _theory(_: Path) -> object:
    """A verb of the command line; all of them open the sandbox alike."""
    from typer.testing import CliRunner

    from refork_methods.theory.commands import app

    words = ["power", "seed:wadd", "tallying", "--designs", "1", "--people", "4"]
    done = CliRunner().invoke(app, words)
    if isinstance(done.exception, CannotDo):
        raise done.exception
    return done.exit_code in (0, 1)


def _tests(_: Path) -> object:
    with TestRunner() as runner:
        return runner.run({"a.py": "X = 1\n"}, {"test_a.py": "def test_x(): import a; assert a.X"}).ok


def _shell(_: Path) -> object:
    shell = Shell()
    try:
        return shell.run(ShellState(), "echo x").output == "x\n"
    finally:
        shell.close()


def _world(spec: str, action: str) -> Callable[[Path], object]:
    def run(_: Path) -> object:
        # What an earlier test has run is remembered; here it must be run.
        for name in [one for one in sys.modules if one.startswith(f"refork_testbed.worlds.{spec}")]:
            for kept in list(vars(sys.modules[name]).values()):
                if clear := getattr(kept, "cache_clear", None):
                    clear()
        world = open_world(spec)
        episode = world.start(world.tasks("train", 1)[0], 0)
        return episode.step(action).text

    return run


def _evolved(what: str) -> Callable[[Path], object]:
    """A program as the agent, the judge or the editor of a directory; the others are models, not asked."""

    def run(folder: Path) -> object:
        from refork_methods.evolve.directory import open_world as open_directory

        (folder / "start").mkdir()
        for part in ("agent.sh", "judge.sh"):
            (folder / "start" / part).write_text("echo x\n")
        rows = [{"id": f"e{n}", "text": "Do.", "artifact": f"good {n}", "label": n % 2} for n in range(30)]
        for name, keys in (("tasks", ("id", "text")), ("examples", ("id", "artifact", "label"))):
            text = "".join(json.dumps({key: row[key] for key in keys}) + "\n" for row in rows)
            (folder / f"{name}.jsonl").write_text(text)
        anchor = (folder / "examples.jsonl").read_text().replace('"e', '"a').replace("good", "private")
        (folder / "anchor.jsonl").write_text(anchor)
        parts = dict.fromkeys(("agent", "judge", "editor"), "chat:scripted:greeter")
        parts[what] = "command:sh agent.sh"
        files = [str(folder / f"{name}.jsonl") for name in ("tasks", "examples", "anchor")]
        return open_directory(str(folder / "start"), *files, **parts)

    return run


def _compiled(folder: Path) -> object:
    program = shutil.which("true") or "/bin/true"
    del folder
    return jailed([program], shows([program, "/lib", "/lib64", "/usr/lib"])).status == 0


def _kernel(folder: Path) -> object:
    from refork_methods.kernel.bench import Bench, Calibration, Candidate, Limits
    from refork_methods.kernel.problem import read_problem

    (folder / "kernel.c").write_text(KERNEL)
    problem = read_problem(folder / "kernel.c", n=300)
    numbers = dict.fromkeys(("flops", "flops64", "bandwidth", "ordinary", "cached"), 1e13)
    known = Calibration(
        fingerprint="f", machine={}, triad_bytes=1, cache_bytes=1, noise=1.25, made="now", **numbers
    )
    with Bench(problem, folder / "built", 3, Limits(seconds=1.0), calibration=known) as bench:
        return bench.check(Candidate(KERNEL, ("-O1",))).ok


ENTRIES: Final[Mapping[str, Callable[[Path], object]]] = {
    "a tool in the sandbox": _sandbox,
    "a tool that is loaded": _loaded,
    "a tool of a registry": _registry,
    "the admission of a tool": _admitted,
    "a memory's guard": _guarded,
    "the server of exported tools": _served,
    "tests of a package": _tests,
    "the world repair": _world("repair", "run"),
    "a shell": _shell,
    "the world terminal": _world("terminal", "ls"),
    "the world swe": _world("swe", "ls"),
    "an agent that is a program": _evolved("agent"),
    "a judge that is a program": _evolved("judge"),
    "an editor that is a program": _evolved("editor"),
    "theories' power": _theory,
    "a tool that reads foreign files": _compiled,
    "a kernel": _kernel,
}


def tried(entry: Callable[[Path], object], folder: Path, *lacking: Part) -> str:
    """What came of an entry in a fork whose kernel lacks parts: ``ran``, ``refused: ...`` or what else."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reads)
            with Path(os.devnull).open("w") as nothing:
                os.dup2(nothing.fileno(), 2)
            if lacking:
                lack(*lacking)
            try:
                told = "ran" if entry(folder) else "did nothing"
            except CannotDo as error:
                told = f"refused: {error.what}"
            except BaseException as error:
                told = f"{type(error).__name__}: {error}"
            os.write(writes, told.encode()[:4000])
        finally:
            os._exit(0)
    os.close(writes)
    told = b"".join(iter(lambda: os.read(reads, 4096), b"")).decode()
    os.close(reads)
    os.waitpid(child, 0)
    return told
