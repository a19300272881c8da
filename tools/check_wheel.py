"""Build the wheel, install it alone into an empty environment, and use it there.

The empty environment borrows from this one (they are large) what the wheel declares, what that needs, and
nothing else: no extra. So every module must be importable without the extras, or say which extra it wants.
The package itself can only come from the wheel.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent

TRIAL = """
import pathlib, sys
import refork
from importlib.metadata import requires, distribution
from packaging.requirements import Requirement

assert pathlib.Path(refork.__file__).is_relative_to(sys.prefix), refork.__file__
for need in map(Requirement, requires("refork")):
    if need.marker is None or need.marker.evaluate({"extra": ""}):
        assert need.specifier.contains(distribution(need.name).version, prereleases=True), need

from refork import MatchJudge, Remove, Sampling, ScriptedPolicy, Tree, compare, fork, plant_prompt

law = {"": {" think": 0.5, " guess": 0.5}, " think": {" right": 1.0}, " guess": {" wrong": 1.0}}
policy = ScriptedPolicy.from_chain(law | {" right": {"": 1.0}, " wrong": {"": 1.0}})
with Tree.memory() as tree:
    judge, settings = MatchJudge("right"), Sampling(max_tokens=8)
    start = plant_prompt(tree, policy, "Well?")
    base = fork(start, policy, 64, settings=settings, judge=judge)
    guess = next(walk for walk in base.leaves() if " guess" in walk.leaf.text)
    point = tree.at(guess.leaf, 1)
    control = fork(point, policy, 64, settings=settings, judge=judge)
    other = fork(point, policy, 64, Remove(1), settings=settings, judge=judge)
    effect = compare(control, other)
assert effect.low > 0, effect
print(f"wheel: a scripted fork gives {effect.difference:+.2f} [{effect.low:+.2f}, {effect.high:+.2f}]")
"""

IMPORTS = """
import importlib, pkgutil
import refork
from importlib.metadata import metadata
from refork.errors import MissingExtra, install_command

extras, wanting = set(metadata("refork").get_all("Provides-Extra")), []

def visit(name):
    try:
        module = importlib.import_module(name)
    except MissingExtra as error:
        assert any(error.hint == install_command(extra) for extra in extras), error
        assert error.hint.startswith("pip install "), error
        return wanting.append(name)
    for part in pkgutil.iter_modules(getattr(module, "__path__", ()), f"{name}."):
        if not part.name.endswith("__main__"):
            visit(part.name)

visit("refork")
print(f"wheel: without extras, all modules import but {len(wanting)} that name the packages they want")
"""


#: A user's own log; the scripted policy needs no download, and speaks of coins.
CHAT = '{"messages": [{"role": "user", "content": "toss"}, {"role": "assistant", "content": " heads"}]}'


def first_fork(refork: Path, folder: Path) -> None:
    """What a first-time user does after installing: import a log, then run the fork that this suggests."""
    (folder / "chats.jsonl").write_text(CHAT + "\n", encoding="utf-8")
    told = run(refork, "tree", "import", "mine.db", "chats.jsonl", "--policy", "scripted:coin", cwd=folder)
    suggested = next(line for line in told.splitlines() if line.startswith("next "))
    command = suggested.removeprefix("next").split()[1:]
    run(refork, *command, "--success-regex", "heads", "--draws", "16", cwd=folder)


def borrow(site: Path) -> None:
    """Link what the wheel in ``site`` needs, with all that this needs in turn, and no extra."""
    todo = [(_own(site), "")]
    done: set[tuple[str, str]] = set()
    while todo:
        one, extra = todo.pop()
        for need in map(Requirement, one.requires or ()):
            if need.marker is not None and not need.marker.evaluate({"extra": extra}):
                continue
            for wanted in ("", *need.extras):
                key = (canonicalize_name(need.name), wanted)
                if key not in done:
                    done.add(key)
                    todo.append((distribution(need.name), wanted))
                    _link(distribution(need.name), site)


def _own(site: Path) -> Distribution:
    return next(iter(Distribution.discover(name="refork", path=[str(site)])))


def _link(one: Distribution, site: Path) -> None:
    for name in {file.parts[0] for file in one.files or ()} - {"..", "__pycache__"}:
        # A .pth file (an editable install) would lead back to this environment.
        if not name.endswith(".pth") and not (site / name).exists():
            (site / name).symlink_to(Path(str(one.locate_file(name))))


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command and return what it printed; building is silent unless it fails."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    if cwd != ROOT and done.stdout:
        print(done.stdout, end="")
    return done.stdout


def main() -> None:
    """Build, install and try the wheel; exits with the output of the step that fails."""
    with tempfile.TemporaryDirectory(prefix="refork-wheel-") as name:
        folder = Path(name)
        run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, cwd=ROOT)
        wheel = next(folder.glob("refork-*.whl"))
        run(sys.executable, "-m", "venv", "--without-pip", folder / "env", cwd=ROOT)
        run(
            *(sys.executable, "-m", "pip", "--python", folder / "env/bin/python"),
            *("install", "--quiet", "--no-deps", "--no-index", wheel),
            cwd=ROOT,
        )
        borrow(next((folder / "env/lib").glob("python*/site-packages")))
        run(folder / "env/bin/refork", "--version", cwd=folder)
        first_fork(folder / "env/bin/refork", folder)
        run(folder / "env/bin/python", "-W", "error::UserWarning", "-c", TRIAL, cwd=folder)
        run(folder / "env/bin/python", "-W", "error::UserWarning", "-c", IMPORTS, cwd=folder)


if __name__ == "__main__":
    main()
